//! What is said in a turn, and how it ended.
//!
//! Fed by the observer. A turn runs from a prompt to its answer; some agents also say by
//! themselves that they work. Invariant: an end is reported as an answer only for a prompt.

use drowse_messages::{TurnEnded, TurnOutcome};
use serde::{Deserialize, Serialize, Serializer};

use super::super::text::{ANSWER_BYTES_MAX, cut, one_line};

/// 4 KiB: an error is some lines; the rest is in the agent's own log.
const ERROR_BYTES_MAX: usize = 4 * 1024;

/// 100: an id of a message.
const ID_CHARS_MAX: usize = 100;

/// 64 KiB of a text are written down, so that a checkpoint stays small: the end of a longer one is
/// heard by whoever goes on.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Turn {
    /// It says that it works, without a prompt.
    works: bool,
    /// The text it says now: the last one is the answer.
    #[serde(serialize_with = "kept")]
    said: String,
    /// The message that the text belongs to, where the agent names them.
    message: String,
    /// What is said next begins another text.
    begins: bool,
}

impl Turn {
    /// A turn begins.
    pub(super) fn begin(&mut self) {
        self.said.clear();
        self.message.clear();
        self.begins = false;
    }

    /// Something else than words: what is said next is a text of its own.
    pub(super) fn interrupt_text(&mut self) {
        self.begins = true;
    }

    /// Words; true when they begin a text.
    pub(super) fn say(&mut self, words: &str, message: Option<&str>) -> bool {
        let message = message.map(|id| one_line(id, ID_CHARS_MAX));
        let is_other = message.as_ref().is_some_and(|id| *id != self.message);
        let begins = std::mem::take(&mut self.begins) || is_other;
        if let Some(message) = message {
            self.message = message;
        }
        if begins {
            self.said.clear();
        }
        let room = ANSWER_BYTES_MAX.saturating_sub(self.said.len());
        self.said.push_str(cut(words, room));
        begins
    }

    /// It says whether it works; what that begins, or ends, if no prompt is under way.
    pub(super) fn works(&mut self, works: bool) -> bool {
        std::mem::replace(&mut self.works, works) != works
    }

    /// True while it works without a prompt.
    pub(super) fn is_working(&self) -> bool {
        self.works
    }

    /// The end of a turn.
    pub(super) fn end(&mut self, outcome: TurnOutcome, answers: bool) -> TurnEnded {
        self.works = false;
        let text = std::mem::take(&mut self.said);
        self.begin();
        TurnEnded {
            outcome,
            text,
            answers,
            left: 0,
        }
    }
}

fn kept<S: Serializer>(said: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(cut(said, KEPT_BYTES_MAX))
}

/// How a turn went, by the agent's word for why it stopped; and what is worth telling of it.
pub(super) fn outcome(stop_reason: &str) -> (TurnOutcome, Option<String>) {
    match stop_reason {
        "cancelled" => (TurnOutcome::Interrupted, None),
        "refusal" => (failed("the agent refuses to go on with this"), None),
        "" | "end_turn" => (TurnOutcome::Completed, None),
        // Cut short: what was said so far is the answer.
        reason => (
            TurnOutcome::Completed,
            Some(format!("the agent stopped before the end: {reason}")),
        ),
    }
}

/// It ended in an error.
pub(super) fn failed(error: &str) -> TurnOutcome {
    let error = cut(error, ERROR_BYTES_MAX).to_owned();
    TurnOutcome::Failed { error }
}
