//! The scripted fake agent as tests use it: its home, its behaviour and its log.
//!
//! Fed by: tests. The program itself is `bin/fake_agent`; both sides meet in the home folder:
//! `behaviour.json` (what to do wrong at start and end), `log.jsonl` (what happened), `sessions/`
//! (the conversations).
//! Invariant: the log is only appended to, one line per write, by any number of processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::ProcIdentity;
use crate::wait::{CEILING, wait_until};

/// Name of the variable that tells the fake agent where its home is.
pub const HOME: &str = "FAKE_AGENT_HOME";

/// The two protocols the fake agent speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Claude Code's stream-json.
    Claude,
    /// Pi's RPC, version 1.6 (ends a run with `agent_settled`).
    Pi,
    /// Pi's RPC as of 0.73 (no `agent_settled`).
    Pi073,
}

impl Dialect {
    /// The arguments that select it.
    #[must_use]
    pub fn args(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["--dialect", "claude"],
            Self::Pi => &["--dialect", "pi"],
            Self::Pi073 => &["--dialect", "pi", "--pi", "0.73"],
        }
    }
}

/// One home of the fake agent and the way to start it there. Any number of processes may share it.
#[derive(Debug)]
pub struct FakeAgent {
    program: PathBuf,
    home: TempDir,
}

impl FakeAgent {
    /// A fake agent with an empty home. `program` is the binary; see [`fake_agent!`].
    ///
    /// # Panics
    /// When no temporary folder can be made.
    ///
    /// [`fake_agent!`]: crate::fake_agent
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let home = tempfile::Builder::new()
            .prefix("drowse-fake-")
            .tempdir()
            .expect("the temporary folder can be written");
        Self {
            program: program.into(),
            home,
        }
    }

    /// The binary.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The home folder; removed on drop.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The environment it needs.
    #[must_use]
    pub fn env(&self) -> (&'static str, String) {
        (HOME, self.home().display().to_string())
    }

    /// A command that starts it, with `args` after those of the dialect.
    #[must_use]
    pub fn command(&self, dialect: Dialect, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let (name, value) = self.env();
        command
            .args(dialect.args())
            .args(args)
            .env(name, value)
            .current_dir(self.home());
        command
    }

    /// Sets what every later start does; keys as in `bin/fake_agent/home.rs`.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn behave(&self, behaviour: &Value) {
        let part = self.home().join("behaviour.part");
        fs::write(&part, behaviour.to_string()).expect("the home can be written");
        fs::rename(part, self.home().join("behaviour.json")).expect("the home can be written");
    }

    /// All entries of the log so far, oldest first. Each has `event`, `at_ms` (wall clock), `pid`,
    /// `who` (`pid@start`) and `launch` (counts starts in this home from 1).
    ///
    /// # Panics
    /// When an entry is not JSON: entries are written whole.
    #[must_use]
    pub fn log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.home().join("log.jsonl")).unwrap_or_default();
        // The last line may be half-written by a process that is at it now.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|l| serde_json::from_str(l).expect("log entries are JSON"))
            .collect()
    }

    /// The log's entries of one kind.
    #[must_use]
    pub fn events(&self, event: &str) -> Vec<Value> {
        self.log()
            .into_iter()
            .filter(|entry| entry["event"] == event)
            .collect()
    }

    /// Waits until the log holds `count` entries of one kind and returns them.
    ///
    /// # Panics
    /// When it does not within [`CEILING`].
    #[track_caller]
    pub fn wait_events(&self, event: &str, count: usize) -> Vec<Value> {
        wait_until(
            &format!("{count} entries {event:?} in the agent's log"),
            CEILING,
            || Some(self.events(event)).filter(|found| found.len() >= count),
        )
    }

    /// The texts of all user turns that began, in order, whoever served them.
    #[must_use]
    pub fn turns(&self) -> Vec<String> {
        let texts = self.events("turn").into_iter();
        texts
            .filter_map(|turn| Some(turn["text"].as_str()?.to_owned()))
            .collect()
    }

    /// Every process of the fake agent and its children that the log names, gone or not.
    #[must_use]
    pub fn everyone(&self) -> Vec<ProcIdentity> {
        let mut found: Vec<ProcIdentity> = self
            .log()
            .iter()
            .filter_map(|entry| ProcIdentity::parse(entry["who"].as_str()?))
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// Fails when two processes of one session ever lived at the same time.
    ///
    /// # Panics
    /// When a start found another live process of its session.
    #[track_caller]
    pub fn assert_never_two(&self) {
        for start in self.events("start") {
            assert_eq!(
                start["others_alive"],
                serde_json::json!([]),
                "two at once: {start}"
            );
        }
    }
}

/// The binary of the fake agent, for [`FakeAgent::new`]. Works in tests and benches of this crate.
#[macro_export]
macro_rules! fake_agent {
    () => {
        $crate::FakeAgent::new(env!("CARGO_BIN_EXE_fake-agent"))
    };
}

/// What the fake agent shows of a variable's value instead of the value: FNV-1a, 64 bits, in hex.
#[must_use]
pub fn fingerprint(value: &str) -> String {
    let hash = value.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
