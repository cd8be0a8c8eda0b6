//! A Pi that an earlier daemon followed: what is known of it, and what it is asked to be sure.
//!
//! Pi tells its state at any time. Between the acceptance of a prompt and its run there is a
//! moment in which it seems to rest, so it is believed only when it says so twice. Invariant: a
//! turn whose end was not heard is never taken for answered.

use drowse_messages::AgentStatus;

use super::super::super::{Seen, kept};
use super::{PiObserver, busy, compaction};

/// 1,000: far more commands than an observer can have numbered after its last checkpoint.
const UNKNOWN_ORDERS: u64 = 1_000;

/// How often in a row Pi must say that it rests.
const RESTS_WANTED: u8 = 2;

impl PiObserver {
    /// What `checkpoint` holds, restated; none if that agent was not ready yet.
    pub(in super::super) fn adopt(checkpoint: &[u8]) -> Option<(Self, Seen)> {
        let mut this: Self = kept::restore(checkpoint)?;
        if !(this.ready || this.listening) {
            return None;
        }
        let mut seen = Seen::default();
        if let Some(known) = &this.conversation {
            seen.status(AgentStatus::Conversation(known.clone()));
        }
        this.tasks.restate(&mut seen);
        seen.status_if(this.turn.is_open(), AgentStatus::TurnStarted);
        seen.status_if(this.compacting, compaction("asked for before"));
        for id in &this.commands {
            seen.status(busy(id, "a command"));
        }
        this.asks.restate(&mut seen);
        this.orders += UNKNOWN_ORDERS;
        if this.listening {
            // Whatever it said meanwhile is still to be heard: a host's Pi is read only while the
            // host is there.
            return Some((this, seen));
        }
        this.turn.doubt();
        this.rests_wanted = RESTS_WANTED;
        this.ask_state(&mut seen);
        Some((this, seen))
    }

    /// Pi says whether it rests, to one who is not sure; true when it is believed to.
    pub(super) fn is_sure(&mut self, seen: &mut Seen, rests: bool) -> bool {
        if !rests {
            self.rests_wanted = 0;
            return false;
        }
        self.rests_wanted -= 1;
        if self.rests_wanted > 0 {
            self.ask_state(seen);
        }
        self.rests_wanted == 0
    }
}
