//! What a dialect is to the turn engine: it words what the engine does and reads what it is told.
//!
//! Implemented by `claude.rs` and `pi.rs`. Decides nothing about turns.
//! Invariant: a wire writes whole lines through [`Out`] only.

use std::time::Duration;

use serde_json::Value;

use crate::transcript::Transcript;

/// What one line of stdin meant.
#[derive(Debug)]
pub(crate) enum Heard {
    Prompt(String),
    Compact(Duration),
    Interrupt,
    Answer {
        id: String,
        allowed: bool,
    },
    StopTask(String),
    /// The agent is to leave with this status.
    Leave(u8),
    /// Nothing the engine cares about; the wire has answered it.
    Nothing,
}

/// Why a turn runs.
#[derive(Debug)]
pub(crate) enum Cause {
    User(String),
    TaskEnded(Task),
}

/// How a turn ended.
#[derive(Debug)]
pub(crate) enum End {
    Answer(String),
    Failed(String),
    Interrupted,
}

/// A background task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) ambient: bool,
}

/// What happened to a task.
#[derive(Debug)]
pub(crate) enum Change {
    Started,
    Completed,
    Stopped,
}

/// What the agent asks a person.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ask {
    Permission,
    Question,
}

/// One dialect: words what the engine does and reads what it is told.
pub(crate) trait Wire {
    /// Whether the end of stdin ends a running turn, too.
    const EOF_ENDS_TURN: bool;
    /// Whether background tasks keep the process after the end of stdin.
    const TASKS_OUTLIVE_EOF: bool;

    fn hear(&mut self, line: &str, busy: bool, transcript: &Transcript) -> Heard;
    /// Tells of tasks that were lost with an earlier process, before the first line is answered.
    fn lost_tasks(&mut self, ids: &[String]);
    /// Ends that notice after the first line; `more`: it was a message, which follows at once.
    fn lost_tasks_told(&mut self, more: bool);
    fn turn_started(&mut self, cause: &Cause);
    fn delta(&mut self, text: &str);
    /// A line that carries `text` as a piece of the answer.
    fn delta_line(&self, text: &str) -> String;
    /// Asks and returns the id under which the answer will come.
    fn ask(&mut self, ask: Ask, text: &str) -> String;
    fn answered(&mut self);
    fn withdrawn(&mut self, id: &str);
    fn task(&mut self, task: &Task, change: &Change, roster: &[Task]);
    fn compaction_started(&mut self, in_turn: bool);
    fn compaction_ended(&mut self, in_turn: bool);
    /// `more`: another message is waiting and follows at once.
    fn turn_ended(&mut self, end: &End, more: bool);
    fn out(&mut self) -> &mut Out;
}

/// A line of JSON whose first key is `type`.
pub(crate) fn typed(kind: &str, facts: &Value) -> String {
    let facts = facts.to_string();
    format!("{{\"type\":\"{kind}\",{}", &facts[1..])
}

/// The agent's stdout.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// Newlines come before the next line, so that the very last one never comes.
    pub(crate) newline_first: bool,
}

impl Out {
    pub(crate) fn line(&mut self, line: &str) {
        let whole = if self.newline_first {
            format!("\n{line}")
        } else {
            format!("{line}\n")
        };
        self.raw(whole.as_bytes());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        use std::io::Write;
        let mut out = std::io::stdout().lock();
        // Nobody may be reading any more; the agent goes on as a real one does until it is told.
        drop(out.write_all(bytes).and_then(|()| out.flush()));
    }
}
