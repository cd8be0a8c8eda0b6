//! What must hold after every delivery, and at the end.

use std::collections::{BTreeMap, BTreeSet};

use drowse_messages::{Incarnation, MessageId, MessageState, Priority, SessionId, SessionState};

use crate::world::{World, announced};

/// What happened to messages, as the agents saw it.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    last: BTreeMap<(SessionId, Priority), MessageId>,
}

impl Heard {
    /// A message was written to an agent: none is written twice, or before an older one that is as
    /// urgent.
    pub(crate) fn note(&mut self, session: SessionId, message: MessageId) {
        let priority = announced(message).priority;
        let last = self.last.insert((session, priority), message);
        assert!(last < Some(message), "{message} after {last:?}");
    }
}

/// No session has processes of two launches; no more starts are granted than allowed.
pub(crate) fn after_each(world: &World) {
    let mut owners: BTreeMap<SessionId, Incarnation> = BTreeMap::new();
    for process in world.table.living() {
        let (session, incarnation) = process.owner;
        let other = *owners.entry(session).or_insert(incarnation);
        assert_eq!(other, incarnation, "two trees of session {session}");
    }
    assert!(
        world.granted.len() <= crate::world::STARTING_MAX,
        "{} starts at once",
        world.granted.len()
    );
}

/// Faults are over and nothing is left to happen: all is asleep, nothing runs, and each message
/// has an end, or waits for a person or the next daemon.
pub(crate) fn at_the_end(world: &World) {
    let left: Vec<_> = world.table.living().collect();
    assert!(left.is_empty(), "still there: {left:?}");
    let awake: BTreeSet<_> = world.actors.keys().collect();
    assert!(awake.is_empty(), "still awake: {awake:?}");
    assert_eq!(world.draining, world.drained, "a drain ends");
    for (id, record) in &world.store {
        let state = record.progress.state;
        assert!(!state.is_awake(), "{id} is written down as {state:?}");
        assert_eq!(record.progress.running, None, "{id} is said to run");
        let kept = world.draining || state == SessionState::Failing || record.vanished;
        for (message, state) in &record.messages {
            assert_ne!(*state, MessageState::Delivered, "{message} has no end");
            assert!(state.is_final() || kept, "{message} of {id} waits for ever");
        }
    }
}
