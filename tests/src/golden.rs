//! The golden transcripts of real agents (`tests/golden`, described in its README).
//!
//! Fed by: files of this repository. Invariant: a transcript is given in the order it was recorded.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Which way a line went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the agent's stdin.
    In,
    /// From its stdout.
    Out,
    /// From its stderr.
    Err,
    /// What was done to the process: a start, a kill, the end of stdin, an exit.
    Meta,
}

/// One recorded line.
#[derive(Clone, Debug)]
pub struct GoldenLine {
    /// Which way it went.
    pub direction: Direction,
    /// When, in milliseconds since the start of its process.
    pub at_ms: u64,
    /// The line without its newline, with paths and long texts shortened.
    pub line: String,
}

impl GoldenLine {
    /// The line as JSON; null when it is none (a malformed line is part of some transcripts).
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.line).unwrap_or(Value::Null)
    }
}

/// Loads a transcript by its name below `tests/golden` without the ending, as `claude/turn`.
///
/// # Panics
/// When there is no such transcript or it is malformed.
#[must_use]
pub fn load(name: &str) -> Vec<GoldenLine> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(format!("{name}.jsonl"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let line = |line: &str| {
        let entry: Value = serde_json::from_str(line).ok()?;
        let direction = match entry["dir"].as_str()? {
            "in" => Direction::In,
            "out" => Direction::Out,
            "err" => Direction::Err,
            "meta" => Direction::Meta,
            _ => return None,
        };
        let line = entry["line"].as_str()?.to_owned();
        Some(GoldenLine {
            direction,
            at_ms: entry["at_ms"].as_u64()?,
            line,
        })
    };
    let lines: Option<Vec<GoldenLine>> = text.lines().map(line).collect();
    lines.unwrap_or_else(|| panic!("{}: not a transcript", path.display()))
}
