//! The registry: which sessions have an actor, which may start, and when the daemon is done.
//!
//! Fed by the registry actor. A session that sleeps is not known here at all: it is a row on disk,
//! and costs nothing until something concerns it.
//!
//! Invariants: a session has one actor at most; nothing that arrived for a session is lost when
//! its actor leaves (it may leave only when it has handled everything it was handed); at most
//! `starting_max` backends start at once, in the order they asked; once draining, nothing starts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use drowse_messages::{Refusal, SessionId};

#[cfg(test)]
mod tests;

/// What the registry is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// What an earlier daemon left behind is dealt with.
    Recovered,
    /// Something is to be handed to a session.
    Arrived(SessionId),
    /// Its record was read and its actor made.
    Loaded(SessionId),
    /// Its backend ran before this daemon did, and its actor was made; it is to be told.
    Adopted(SessionId),
    /// There is no such session, or its record could not be read.
    LoadFailed(SessionId),
    /// It wants to start a backend.
    AskStart(SessionId),
    /// Its start is over, or not wanted any more.
    StartSettled(SessionId),
    /// It has nothing to do and has handled this many things.
    MaySleep {
        /// Which.
        id: SessionId,
        /// Things handled since its actor was made.
        handled: u64,
    },
    /// Its actor is gone.
    Gone {
        /// Which.
        id: SessionId,
        /// False when it vanished: a fault of ours.
        orderly: bool,
    },
    /// What a vanished session left behind is ended.
    Mourned(SessionId),
    /// A host relays it, through this process.
    HostCame(SessionId, i32),
    /// The host is gone, or was told to go.
    HostWent(SessionId),
    /// The configuration changed.
    StartingMax(usize),
    /// The daemon is about to be replaced: backends are left to the next one.
    Suspend,
    /// Its backend can be left as it is.
    Suspended(SessionId),
    /// The daemon ends.
    Drain,
}

/// What the registry wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read the session's record and make its actor.
    Load(SessionId),
    /// Keep what arrived until then.
    Keep(SessionId),
    /// Hand over what arrived, and whatever was kept before it.
    Hand(SessionId),
    /// Refuse what was kept: there is no such session.
    Disown(SessionId),
    /// Let it start.
    Grant(SessionId),
    /// Let its actor go.
    LetGo(SessionId),
    /// End the processes of a session whose actor vanished, and write that down.
    Mourn(SessionId),
    /// Tell a session that the next daemon goes on with it.
    Suspend(SessionId),
    /// Every session that is left has a backend that can be left as it is.
    Suspended,
    /// Shut every session down.
    ShutDown(SessionId),
    /// All trees are gone: the daemon may go.
    Drained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Recovering,
    Serving,
    Suspending,
    Draining,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// Its record is being read.
    Loading,
    /// It has an actor, which was handed this many things.
    Here { handed: u64 },
    /// It may go; its actor has not left yet.
    Leaving,
    /// Its actor vanished; what it left is being ended.
    Mourned,
}

/// The registry's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    mode: Mode,
    starting_max: usize,
    starting: BTreeSet<SessionId>,
    waiting: VecDeque<SessionId>,
    /// Of the present ones, those that can be left to the next daemon.
    suspended: BTreeSet<SessionId>,
    present: BTreeMap<SessionId, Presence>,
    /// Sessions whose agent a host speaks to, and the process through which it does.
    hosts: BTreeMap<SessionId, i32>,
    /// How much is kept for sessions whose actor is not there.
    kept: BTreeMap<SessionId, u64>,
}

impl Registry {
    /// An empty registry that waits for the recovery to end.
    #[must_use]
    pub fn new(starting_max: usize) -> Self {
        Self {
            mode: Mode::Recovering,
            starting_max: starting_max.max(1),
            starting: BTreeSet::new(),
            waiting: VecDeque::new(),
            suspended: BTreeSet::new(),
            present: BTreeMap::new(),
            hosts: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    /// True while new sessions, messages and wakes are accepted.
    #[must_use]
    pub fn admits(&self) -> bool {
        match self.mode {
            Mode::Recovering | Mode::Serving => true,
            Mode::Suspending | Mode::Draining => false,
        }
    }

    /// Whether a message of anybody's is accepted for this session.
    ///
    /// # Errors
    /// The daemon takes nothing new, or a host has the session: two who speak would not
    /// understand the answers.
    pub fn admits_message(&self, id: SessionId) -> Result<(), Refusal> {
        match self.hosts.get(&id) {
            _ if !self.admits() => Err(Refusal::Draining),
            Some(pid) => Err(Refusal::Relayed { pid: *pid }),
            None => Ok(()),
        }
    }

    /// True while orders to sessions are passed on.
    #[must_use]
    pub fn takes_orders(&self) -> bool {
        self.mode != Mode::Suspending
    }

    /// True once requests are served.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.mode == Mode::Serving
    }

    /// Applies one input. Total, like a session's step.
    #[must_use]
    pub fn step(mut self, input: Input) -> (Self, Vec<Effect>) {
        let mut fx = Vec::new();
        match input {
            Input::Recovered => {
                if self.mode == Mode::Recovering {
                    self.mode = Mode::Serving;
                }
            }
            Input::Arrived(id) => self.arrived(id, &mut fx),
            Input::Loaded(id) => self.loaded(id, &mut fx),
            Input::Adopted(id) => {
                self.present.insert(id, Presence::Here { handed: 1 });
                fx.push(Effect::Hand(id));
            }
            Input::LoadFailed(id) => {
                self.present.remove(&id);
                self.kept.remove(&id);
                fx.push(Effect::Disown(id));
            }
            Input::AskStart(id) => {
                if !self.starting.contains(&id) && !self.waiting.contains(&id) {
                    self.waiting.push_back(id);
                }
            }
            Input::StartSettled(id) => self.leave_queue(id),
            Input::MaySleep { id, handled } => {
                if self.present.get(&id) == Some(&Presence::Here { handed: handled }) {
                    self.present.insert(id, Presence::Leaving);
                    fx.push(Effect::LetGo(id));
                }
            }
            Input::Gone { id, orderly } => self.gone(id, orderly, &mut fx),
            Input::Mourned(id) => {
                self.present.remove(&id);
                self.revive(id, &mut fx);
            }
            Input::HostCame(id, pid) => drop(self.hosts.insert(id, pid)),
            Input::HostWent(id) => drop(self.hosts.remove(&id)),
            Input::StartingMax(most) => self.starting_max = most.max(1),
            Input::Suspend => self.suspend(&mut fx),
            Input::Suspended(id) => drop(self.suspended.insert(id)),
            Input::Drain => self.drain(&mut fx),
        }
        self.grant(&mut fx);
        if self.mode == Mode::Suspending
            && self.present.keys().all(|id| self.suspended.contains(id))
        {
            fx.push(Effect::Suspended);
        }
        if self.mode == Mode::Draining && self.present.is_empty() {
            fx.push(Effect::Drained);
        }
        (self, fx)
    }

    fn arrived(&mut self, id: SessionId, fx: &mut Vec<Effect>) {
        match self.present.get(&id) {
            Some(Presence::Here { .. }) => {
                self.hand_more(id);
                fx.push(Effect::Hand(id));
                // A message accepted just before must not start it again.
                self.follow_mode(id, fx);
            }
            Some(Presence::Loading | Presence::Leaving | Presence::Mourned) => {
                *self.kept.entry(id).or_default() += 1;
                fx.push(Effect::Keep(id));
            }
            None => {
                self.present.insert(id, Presence::Loading);
                self.kept.insert(id, 1);
                fx.push(Effect::Load(id));
                fx.push(Effect::Keep(id));
            }
        }
    }

    fn loaded(&mut self, id: SessionId, fx: &mut Vec<Effect>) {
        let handed = self.kept.remove(&id).unwrap_or_default();
        self.present.insert(id, Presence::Here { handed });
        fx.push(Effect::Hand(id));
        self.follow_mode(id, fx);
    }

    /// What a session that was handed something, or has just come, must hear of the daemon's end.
    fn follow_mode(&mut self, id: SessionId, fx: &mut Vec<Effect>) {
        match self.mode {
            Mode::Recovering | Mode::Serving => {}
            Mode::Suspending => {
                self.hand_more(id);
                fx.push(Effect::Suspend(id));
            }
            Mode::Draining => self.shut_down(id, fx),
        }
    }

    fn shut_down(&mut self, id: SessionId, fx: &mut Vec<Effect>) {
        self.hand_more(id);
        fx.push(Effect::ShutDown(id));
    }

    /// Counts something of the registry's own that is handed over.
    fn hand_more(&mut self, id: SessionId) {
        if let Some(Presence::Here { handed }) = self.present.get_mut(&id) {
            *handed += 1;
        }
    }

    fn gone(&mut self, id: SessionId, orderly: bool, fx: &mut Vec<Effect>) {
        self.leave_queue(id);
        self.suspended.remove(&id);
        if orderly {
            self.present.remove(&id);
            self.revive(id, fx);
        } else {
            self.present.insert(id, Presence::Mourned);
            fx.push(Effect::Mourn(id));
        }
    }

    /// Something arrived while the former actor was leaving.
    fn revive(&mut self, id: SessionId, fx: &mut Vec<Effect>) {
        if self.kept.contains_key(&id) {
            self.present.insert(id, Presence::Loading);
            fx.push(Effect::Load(id));
        }
    }

    fn leave_queue(&mut self, id: SessionId) {
        self.starting.remove(&id);
        self.waiting.retain(|waiting| *waiting != id);
    }

    fn grant(&mut self, fx: &mut Vec<Effect>) {
        while self.mode == Mode::Serving && self.starting.len() < self.starting_max {
            let Some(id) = self.waiting.pop_front() else {
                break;
            };
            self.starting.insert(id);
            self.hand_more(id);
            fx.push(Effect::Grant(id));
        }
    }

    fn suspend(&mut self, fx: &mut Vec<Effect>) {
        if self.admits() {
            self.end_with(Mode::Suspending, fx);
        }
    }

    fn drain(&mut self, fx: &mut Vec<Effect>) {
        if self.mode != Mode::Draining {
            self.end_with(Mode::Draining, fx);
        }
    }

    fn end_with(&mut self, mode: Mode, fx: &mut Vec<Effect>) {
        self.mode = mode;
        // The others are loading, or gone soon; if they come back, they hear of it then.
        let here: Vec<SessionId> = self
            .present
            .iter()
            .filter(|(_, presence)| matches!(presence, Presence::Here { .. }))
            .map(|(id, _)| *id)
            .collect();
        for id in here {
            self.follow_mode(id, fx);
        }
    }
}
