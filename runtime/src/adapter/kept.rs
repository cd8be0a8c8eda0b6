//! What an observer leaves for the one that follows the same agent after it.
//!
//! Fed by the observers. JSON with a number in front that names its form: an observer of a later
//! release fills in what an earlier one did not know, and another form is not read at all. It
//! holds what agents said and asked, so it is never logged.

use drowse_messages::{AgentStatus, Task};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Fact, Seen};

/// Counts up when what an earlier release left would be misread.
const FORM: u32 = 1;

/// An observer as bytes.
pub(super) fn keep(observer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(&(FORM, observer))
        .expect("observers are made of text, numbers and sets of them")
}

/// The observer in these bytes, if they hold one of this form.
pub(super) fn restore<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    #[derive(Deserialize)]
    struct Kept<T>(u32, T);
    let Kept(form, observer) = serde_json::from_slice(bytes).ok()?;
    (form == FORM).then_some(observer)
}

impl Seen {
    /// Restates a whole roster.
    pub(super) fn roster(&mut self, tasks: impl Iterator<Item = Task>) {
        self.facts.push(Fact::Roster(tasks.collect()));
    }

    /// Restates what holds, if it does.
    pub(super) fn status_if(&mut self, holds: bool, status: AgentStatus) {
        if holds {
            self.status(status);
        }
    }
}
