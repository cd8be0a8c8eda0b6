//! Which turn is running, and whom its end answers.
//!
//! Fed by the observer. Claude starts turns of its own (a background task ended, a timer fired),
//! takes prompts in while one is running, and sends one result for all of them. Invariant: an end
//! is reported as an answer only if a prompt was written that no earlier end answered.

use drowse_messages::TurnOutcome;
use serde::{Deserialize, Serialize};

/// 4 KiB: an error is some lines; the rest is in the agent's own log.
const ERROR_BYTES_MAX: usize = 4 * 1024;

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Turn {
    /// Claude said that it is running, and has not sent a result since. A prompt alone does not
    /// count: the `idle` of the turn before may still be on its way when one is written.
    running: bool,
    /// Prompts written and not answered.
    prompts: u32,
    /// Of those, how many Claude has taken in since the last result.
    echoes: u32,
    /// It echoes what was written.
    echoing: bool,
    /// An interrupt was written.
    interrupted: bool,
    /// Part of what was said in this turn may not have been heard.
    #[serde(skip)]
    doubted: bool,
}

/// For whom Claude ran the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// For a prompt, or it does not say.
    Person,
    /// On its own account.
    Itself,
}

impl Turn {
    pub(super) fn prompted(&mut self) {
        self.prompts = self.prompts.saturating_add(1);
        self.interrupted = false;
    }

    /// True while a prompt was written that Claude has not taken in.
    pub(super) fn awaits_echo(&self) -> bool {
        self.prompts > self.echoes
    }

    /// True while what Claude says comes before the prompt that it is to answer. Only an echo
    /// tells, so one that never echoed answers the prompt as far as is known.
    pub(super) fn is_before_prompt(&self) -> bool {
        self.echoing && self.prompts > 0 && self.echoes == 0
    }

    /// Claude took a prompt in; with `verbatim`, as it was written.
    pub(super) fn echoed(&mut self, verbatim: bool) {
        self.echoes = self.prompts.min(self.echoes.saturating_add(1));
        self.echoing |= verbatim;
    }

    pub(super) fn interrupt(&mut self) {
        self.interrupted = true;
    }

    pub(super) fn running(&mut self) {
        self.running = true;
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// True while a turn runs, or a prompt was written that will be the next one.
    pub(super) fn is_open(&self) -> bool {
        self.running || self.prompts > 0
    }

    /// Something may have gone by unheard: an end without a result is no answer.
    pub(super) fn doubt(&mut self) {
        self.doubted = self.is_open();
    }

    /// A result: how an error has to be read, and whether it answers a prompt.
    pub(super) fn result(&mut self, origin: Origin, aborted: bool, error: Option<String>) -> Ended {
        let outcome = match error {
            _ if aborted => TurnOutcome::Interrupted,
            Some(_) if self.interrupted => TurnOutcome::Interrupted,
            Some(mut error) => {
                error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
                TurnOutcome::Failed { error }
            }
            None => TurnOutcome::Completed,
        };
        let answers = self.prompts > 0 && (origin == Origin::Person || self.echoes > 0);
        let left = self.over(answers);
        Ended {
            outcome,
            answers,
            left,
        }
    }

    /// `idle`: the end of a turn whose result was missed, if there is one.
    pub(super) fn idle(&mut self) -> Option<Ended> {
        if !self.running {
            return None;
        }
        let answers = self.prompts > 0 && (self.echoes > 0 || !self.echoing);
        let outcome = if self.doubted {
            TurnOutcome::Lost
        } else {
            TurnOutcome::Completed
        };
        let left = self.over(answers);
        Some(Ended {
            outcome,
            answers,
            left,
        })
    }

    /// Says how many prompts are left for turns that follow.
    fn over(&mut self, answers: bool) -> u32 {
        if answers {
            self.prompts = self.prompts.saturating_sub(self.echoes.max(1));
        }
        self.echoes = 0;
        self.running = false;
        self.interrupted = false;
        self.doubted = false;
        self.prompts
    }
}

/// The end of a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) outcome: TurnOutcome,
    pub(super) answers: bool,
    pub(super) left: u32,
}
