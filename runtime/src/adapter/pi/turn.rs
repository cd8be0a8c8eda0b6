//! Where a run of Pi's agent begins and ends, and whom its end answers.
//!
//! Fed by the observer. Since 1.0 `agent_settled` is the end and `agent_end` is not: retries and
//! compaction may follow. Before, `agent_end` is the end, except that a failed one may be retried:
//! that end waits until Pi, asked for its state, is seen to rest. Invariant: an end is reported
//! once, and as an answer only for a prompt that Pi has accepted.

use std::collections::BTreeSet;

use drowse_messages::{TurnEnded, TurnOutcome};
use serde::{Deserialize, Serialize};

/// 4 KiB: an error is some lines; the rest is in the agent's own log.
const ERROR_BYTES_MAX: usize = 4 * 1024;

/// 64: prompts are sent one by one; a host may pile up a few.
const PROMPTS_MAX: usize = 64;

/// What is said of a prompt that Pi took too late for its run.
const KEPT_BACK: &str = "pi took this message when its turn was almost over, and did not begin it: \
                         it goes into the next turn, if at all";

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Turn {
    /// This Pi sends `agent_settled`: it said so, or used a word that only such a Pi has.
    settles: bool,
    /// Between `agent_start` and `agent_end`.
    running: bool,
    retrying: bool,
    /// Prompts written and not yet accepted, by their id.
    waiting: BTreeSet<String>,
    /// Accepted and not answered.
    accepted: bool,
    /// Accepted into the run, and not begun by it yet.
    queued: u32,
    /// A run began since the last end.
    ran: bool,
    /// An interrupt was written.
    interrupted: bool,
    /// What the agent said last.
    last: Last,
    /// An `agent_end` that may be retried.
    held: Option<TurnEnded>,
    /// Part of what was said may not have been heard.
    #[serde(skip)]
    doubted: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Last {
    text: String,
    outcome: Option<TurnOutcome>,
}

impl Turn {
    pub(super) fn interrupt(&mut self) {
        self.interrupted = true;
    }

    pub(super) fn prompted(&mut self, id: &str) {
        self.interrupted = false;
        if self.waiting.len() < PROMPTS_MAX {
            self.waiting.insert(id.to_owned());
        }
    }

    /// Pi took a prompt in. With `settles` the answer had a word of the newer dialect.
    pub(super) fn accepted(&mut self, id: &str, settles: bool) -> bool {
        self.settles |= settles;
        let ours = self.waiting.remove(id);
        self.accepted |= ours;
        ours
    }

    /// Pi refused a prompt: its end, if it was one we know of.
    pub(super) fn refused(&mut self, id: &str, error: &str) -> Option<TurnEnded> {
        self.waiting.remove(id).then(|| TurnEnded {
            outcome: failed(error),
            text: String::new(),
            answers: true,
            left: 0,
        })
    }

    /// True while a run is under way, or a prompt that will begin one.
    pub(super) fn is_open(&self) -> bool {
        let under_way = self.running || self.retrying || self.accepted || self.ran;
        under_way || self.held.is_some() || !self.waiting.is_empty()
    }

    /// Something may have gone by unheard.
    pub(super) fn doubt(&mut self) {
        self.doubted = true;
    }

    /// Pi is known to rest, and nothing told of an end: the one that went by unheard. What the
    /// agent said last is its answer if the run was seen to end.
    pub(super) fn lost(&mut self) -> Option<TurnEnded> {
        let known = std::mem::take(&mut self.running);
        self.retrying = false;
        if !known && !self.accepted && !self.ran {
            return None;
        }
        let mut ended = self.end(false);
        if known {
            (ended.outcome, ended.text) = (TurnOutcome::Lost, String::new());
        }
        Some(self.over(ended))
    }

    pub(super) fn started(&mut self) {
        if std::mem::take(&mut self.doubted) && !self.waiting.is_empty() {
            // Its acceptance went by unheard.
            self.waiting.clear();
            self.accepted = true;
        }
        self.running = true;
        self.ran = true;
        self.retrying = false;
        self.held = None;
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// The agent finished a message.
    pub(super) fn said(&mut self, text: String, stop_reason: &str, error: &str) {
        let outcome = match stop_reason {
            "error" => failed(error),
            "aborted" => TurnOutcome::Interrupted,
            _ => TurnOutcome::Completed,
        };
        self.last = Last {
            text,
            outcome: Some(outcome),
        };
    }

    /// True when this Pi is known to speak the newer dialect.
    pub(super) fn settles(&self) -> bool {
        self.settles
    }

    /// True while an end waits for proof that Pi does not try again.
    pub(super) fn holds_an_end(&self) -> bool {
        self.held.is_some()
    }

    /// `agent_end`. In the older dialect the end of the turn, unless it failed.
    pub(super) fn agent_end(&mut self, settles: bool) -> Option<TurnEnded> {
        self.settles |= settles;
        self.running = false;
        if self.settles {
            return None;
        }
        let ended = self.end(false);
        if matches!(ended.outcome, TurnOutcome::Failed { .. }) {
            self.held = Some(ended);
            return None;
        }
        Some(self.over(ended))
    }

    /// `agent_settled`.
    pub(super) fn settled(&mut self, aborted: bool) -> TurnEnded {
        self.settles = true;
        self.running = false;
        let ended = self.end(aborted);
        self.over(ended)
    }

    pub(super) fn retrying(&mut self) {
        self.retrying = true;
    }

    /// Retries are over. Without success nothing more comes.
    pub(super) fn retried(&mut self, success: bool) -> Option<TurnEnded> {
        self.retrying = false;
        if success { None } else { self.release_held() }
    }

    /// Compaction ended, and the agent does not go on by itself.
    pub(super) fn gave_up(&mut self) -> Option<TurnEnded> {
        self.release_held()
    }

    /// Pi was asked and is at rest: what was held is over, and so is a prompt that it took in
    /// without a run (a command of an extension).
    pub(super) fn rests(&mut self) -> Option<TurnEnded> {
        if self.running || self.retrying {
            return None;
        }
        if self.held.is_some() {
            return self.release_held();
        }
        // A run that began has an end of its own.
        (self.accepted && !self.ran).then(|| {
            self.last = Last::default();
            let ended = self.end(false);
            self.over(ended)
        })
    }

    fn release_held(&mut self) -> Option<TurnEnded> {
        let mut held = self.held.take()?;
        if self.interrupted {
            // Between two tries nothing runs that could say so itself.
            held.outcome = TurnOutcome::Interrupted;
        }
        Some(self.over(held))
    }

    fn end(&mut self, aborted: bool) -> TurnEnded {
        let Last { text, outcome } = std::mem::take(&mut self.last);
        let outcome = match outcome {
            _ if aborted => TurnOutcome::Interrupted,
            Some(outcome) => outcome,
            None => TurnOutcome::Completed,
        };
        TurnEnded {
            outcome,
            text,
            answers: self.accepted,
            left: self.left().saturating_add(self.queued),
        }
    }

    /// Prompts that Pi has not accepted yet.
    fn left(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// How many of the prompts that it accepted Pi has not begun yet.
    pub(super) fn queued(&mut self, prompts: usize) {
        self.queued = u32::try_from(prompts).unwrap_or(u32::MAX);
    }

    /// After the end of a run: the end of what it did not begin. Pi keeps it for a run that
    /// something else begins.
    pub(super) fn kept_back(&mut self) -> Option<TurnEnded> {
        let kept = std::mem::take(&mut self.queued) > 0;
        kept.then(|| TurnEnded {
            outcome: TurnOutcome::Lost,
            text: KEPT_BACK.to_owned(),
            answers: true,
            left: self.left(),
        })
    }

    fn over(&mut self, ended: TurnEnded) -> TurnEnded {
        self.held = None;
        self.accepted = false;
        self.ran = false;
        self.interrupted = false;
        ended
    }
}

fn failed(error: &str) -> TurnOutcome {
    let error = super::super::text::cut(error, ERROR_BYTES_MAX).to_owned();
    TurnOutcome::Failed { error }
}
