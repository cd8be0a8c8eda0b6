//! Which conversations a Codex has open, and which of them is the session's.
//!
//! Fed by the observer. A thread is Codex's word for a conversation; one process may have several.
//! The session's is the one a person last spoke in. Invariant: a thread can be resumed only once a
//! turn of it was seen to end, or when it was resumed itself; an ephemeral one never can, and is
//! never the session's.

use std::collections::BTreeMap;

use drowse_messages::{AgentStatus, Conversation};
use serde::{Deserialize, Serialize};

use super::super::Seen;
use super::super::wire::{flag, text};
use super::lines::{Thread, id};

/// 16: a host has a handful of threads open; what is not remembered is not the session's.
const THREADS_MAX: usize = 16;

/// 4 KiB: longer paths the kernel does not take.
const PATH_BYTES_MAX: usize = 4096;

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Threads {
    /// The session's.
    main: Option<Conversation>,
    /// The others that people may speak in, by id.
    others: BTreeMap<String, Conversation>,
    /// What was last reported.
    told: Option<Conversation>,
}

impl Threads {
    pub(super) fn new(known: Option<&Conversation>) -> Self {
        Self {
            main: known.cloned(),
            told: known.cloned(),
            ..Self::default()
        }
    }

    /// The session's thread.
    pub(super) fn main(&self) -> Option<&Conversation> {
        self.main.as_ref()
    }

    pub(super) fn is_main(&self, id: &str) -> bool {
        self.main.as_ref().is_some_and(|main| main.native_id == id)
    }

    /// A thread was started or taken up again; true when it is the session's now.
    pub(super) fn opened(&mut self, seen: &mut Seen, thread: &Thread<'_>, resumed: bool) -> bool {
        let Some(id) = id(thread.id).filter(|_| !flag(thread.ephemeral)) else {
            return false;
        };
        let known = self.get(&id).is_some_and(|known| known.resumable);
        let mut opened = Conversation {
            native_id: id.into_owned(),
            resumable: known || resumed,
            ..Conversation::default()
        };
        let path = text(thread.path).filter(|path| path.len() <= PATH_BYTES_MAX);
        opened.path = path.map(std::borrow::Cow::into_owned);
        let is_main = self.is_main(&opened.native_id);
        // One in which nothing was said yet is no loss.
        if is_main || self.main.as_ref().is_none_or(|main| !main.resumable) {
            self.main = Some(opened);
            self.tell(seen);
            return true;
        }
        if self.others.len() < THREADS_MAX {
            self.others.insert(opened.native_id.clone(), opened);
        }
        false
    }

    /// A person speaks in this thread: it is the session's from now on.
    pub(super) fn spoken_in(&mut self, seen: &mut Seen, id: &str) {
        if let Some(next) = self.others.remove(id) {
            if let Some(last) = self.main.replace(next) {
                self.others.insert(last.native_id.clone(), last);
            }
            self.tell(seen);
        }
    }

    /// A turn of this thread is over: it is on disk.
    pub(super) fn turn_ended(&mut self, seen: &mut Seen, id: &str) {
        match &mut self.main {
            Some(main) if main.native_id == id => {
                main.resumable = true;
                self.tell(seen);
            }
            Some(_) | None => {
                if let Some(other) = self.others.get_mut(id) {
                    other.resumable = true;
                }
            }
        }
    }

    /// Says which one it is, for whoever did not hear it.
    pub(super) fn restate(&self, seen: &mut Seen) {
        if let Some(told) = &self.told {
            seen.status(AgentStatus::Conversation(told.clone()));
        }
    }

    fn get(&self, id: &str) -> Option<&Conversation> {
        let main = self.main.as_ref().filter(|main| main.native_id == id);
        main.or_else(|| self.others.get(id))
    }

    fn tell(&mut self, seen: &mut Seen) {
        if self.told != self.main {
            self.told.clone_from(&self.main);
            self.restate(seen);
        }
    }
}
