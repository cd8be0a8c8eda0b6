//! Reads the recorded transcripts of real agents, and compares what an observer makes of them
//! with what is written beside it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use drowse_messages::{AgentStatus, Conversation, TurnEnded};
use serde::Deserialize;

use super::{Adapter, Direction, Fact, Observer, Seen};

/// One line of a transcript.
#[derive(Debug, Deserialize)]
pub(super) struct Recorded {
    pub(super) dir: String,
    pub(super) line: String,
}

impl Recorded {
    pub(super) fn direction(&self) -> Option<Direction> {
        match self.dir.as_str() {
            "in" => Some(Direction::In),
            "out" => Some(Direction::Out),
            _ => None,
        }
    }
}

fn root(protocol: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(protocol)
}

/// All transcripts of a protocol, by name.
pub(super) fn transcripts(protocol: &str) -> Vec<(String, Vec<Recorded>)> {
    let mut names: Vec<String> = std::fs::read_dir(root(protocol))
        .expect("the recorded transcripts are in the repository")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("plain name")
        })
        .filter(|name| name.ends_with(".jsonl"))
        .collect();
    names.sort();
    let read = |name: String| {
        let lines = transcript(protocol, &name);
        (name, lines)
    };
    names.into_iter().map(read).collect()
}

/// One transcript.
pub(super) fn transcript(protocol: &str, name: &str) -> Vec<Recorded> {
    let text = std::fs::read_to_string(root(protocol).join(name)).expect("a recorded transcript");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a recorded line"))
        .collect()
}

/// Feeds a transcript; each start in it begins a new observer for the conversation known so far,
/// as a session would. Returns what was seen, a line per fact.
pub(super) fn follow(adapter: &dyn Adapter, lines: &[Recorded]) -> String {
    let mut told = String::new();
    let mut known: Option<Conversation> = None;
    let mut observer = adapter.observe(None, "fresh");
    let mut stderr = String::new();
    for recorded in lines {
        let seen = match (recorded.direction(), recorded.dir.as_str()) {
            (Some(direction), _) => observer.observe(direction, recorded.line.as_bytes()),
            (None, "err") => {
                stderr = stderr + &recorded.line + "\n";
                continue;
            }
            (None, _) if recorded.line.contains("\"argv\"") => {
                observer = adapter.observe(known.as_ref(), "fresh");
                stderr.clear();
                told.push_str("  start\n");
                observer.open();
                continue;
            }
            (None, _) if recorded.line.contains("\"exit\"") => Seen {
                facts: observer.exited(&stderr),
                write: Vec::new(),
            },
            (None, _) => continue,
        };
        for fact in &seen.facts {
            if let Fact::Status(AgentStatus::Conversation(conversation)) = fact {
                known = Some(conversation.clone());
            }
            writeln!(told, "  {}", shown(fact)).expect("a string takes all");
        }
        for line in &seen.write {
            write!(told, "  > {}", String::from_utf8_lossy(line)).expect("a string takes all");
        }
    }
    told
}

/// A fact on one line, long texts cut.
pub(super) fn shown(fact: &Fact) -> String {
    let text = match fact {
        Fact::Status(status) => format!("{status:?}"),
        Fact::Roster(tasks) => format!("Roster {tasks:?}"),
        Fact::Output(text) => format!("Output {text:?}"),
    };
    match text.char_indices().nth(240) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Compares with the file beside the observer. `DROWSE_BLESS=1` writes it anew.
pub(super) fn check(adapter: &dyn Adapter, protocol: &str) {
    let mut told = String::new();
    for (name, lines) in transcripts(protocol) {
        writeln!(told, "{name}\n{}", follow(adapter, &lines)).expect("a string takes all");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/adapter")
        .join(protocol)
        .join("golden.txt");
    if std::env::var_os("DROWSE_BLESS").is_some() {
        std::fs::write(&file, &told).expect("the expectation is writable");
    }
    let expected = std::fs::read_to_string(&file).expect("the expectation is in the repository");
    for (told, expected) in told.lines().zip(expected.lines()) {
        assert_eq!(told, expected, "the first line that differs");
    }
    assert_eq!(
        told.lines().count(),
        expected.lines().count(),
        "lines in all"
    );
}

/// Feeds lines, `>` before those written, and returns the facts.
pub(super) fn feed(observer: &mut dyn Observer, lines: &[&str]) -> Vec<Fact> {
    let see = |line: &&str| match line.strip_prefix('>') {
        Some(line) => observer.observe(Direction::In, line.as_bytes()).facts,
        None => observer.observe(Direction::Out, line.as_bytes()).facts,
    };
    lines.iter().flat_map(see).collect()
}

/// The same, each fact on one line.
pub(super) fn told(observer: &mut dyn Observer, lines: &[&str]) -> Vec<String> {
    feed(observer, lines).iter().map(shown).collect()
}

/// The ends of turns among the facts.
pub(super) fn ends(facts: &[Fact]) -> Vec<&TurnEnded> {
    facts
        .iter()
        .filter_map(|fact| {
            let Fact::Status(AgentStatus::TurnEnded(ended)) = fact else {
                return None;
            };
            Some(ended)
        })
        .collect()
}
