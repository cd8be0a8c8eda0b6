//! Background tasks of Pi's extensions, told by convention as status lines.
//!
//! Fed by the observer with `setStatus` requests. `t3:background` or `drowse:background`, alone or
//! with `:job`, with a text: pending; without: ended. `drowse:session` with `shutdown` clears the
//! set and fences it until the same key says `start`: what a conversation that is being left still
//! reports concerns nobody. Every other key is some extension's own and ignored.

use std::collections::BTreeMap;

use drowse_messages::Task;
use serde::{Deserialize, Serialize};

use super::super::text::{TITLE_CHARS_MAX, one_line};
use super::super::wire::text;
use super::super::{Fact, Seen};
use super::lines::Ui;

/// 64: an agent runs at most a few dozen tasks; one that is left out still leaves 64 that hold.
const TASKS_MAX: usize = 64;

const KINDS: [&str; 2] = ["t3:background", "drowse:background"];

const SESSION: &str = "drowse:session";

/// The set as last known.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tasks {
    pending: BTreeMap<String, Task>,
    fenced: bool,
}

impl Tasks {
    /// The set as last known, for whoever did not hear it.
    pub(super) fn restate(&self, seen: &mut Seen) {
        seen.roster(self.pending.values().cloned());
    }

    /// An extension sets or clears a status.
    pub(super) fn status(&mut self, seen: &mut Seen, ui: &Ui<'_>) {
        let Some(key) = text(ui.status_key) else {
            return;
        };
        let status = text(ui.status_text).unwrap_or_default();
        let changed = match (&*key, &*status) {
            (SESSION, "shutdown") => {
                self.fenced = true;
                !std::mem::take(&mut self.pending).is_empty()
            }
            (SESSION, "start") => {
                self.fenced = false;
                false
            }
            _ if self.fenced => false,
            _ => kind(&key).is_some_and(|kind| self.set(kind, &key, &status)),
        };
        if changed {
            seen.facts
                .push(Fact::Roster(self.pending.values().cloned().collect()));
        }
    }

    fn set(&mut self, kind: &str, key: &str, status: &str) -> bool {
        let id = one_line(key, TITLE_CHARS_MAX);
        let description = one_line(status, TITLE_CHARS_MAX);
        if description.is_empty() {
            return self.pending.remove(&id).is_some();
        }
        if self.pending.len() >= TASKS_MAX && !self.pending.contains_key(&id) {
            return false;
        }
        let task = Task {
            id: id.clone(),
            kind: kind.to_owned(),
            description,
            ambient: false,
        };
        self.pending.insert(id, task.clone()) != Some(task)
    }
}

fn kind(key: &str) -> Option<&'static str> {
    KINDS.into_iter().find(|kind| {
        key.strip_prefix(kind)
            .is_some_and(|job| job.is_empty() || job.starts_with(':'))
    })
}
