//! An agent that an earlier daemon followed.
//!
//! The protocol has no question for what an agent is doing. It needs none: the answer to a prompt
//! that is under way comes to whoever listens, and one that was heard is in the checkpoint.

use drowse_messages::AgentStatus;

use super::super::super::{Seen, kept};
use super::AcpObserver;

/// 1,000: far more requests than an observer can have numbered after its last checkpoint.
const UNKNOWN_REQUESTS: u64 = 1_000;

impl AcpObserver {
    /// What `checkpoint` holds, restated; none if that agent was not ready yet, and
    /// nobody else shakes hands with it.
    pub(in super::super) fn adopt(checkpoint: &[u8]) -> Option<(Self, Seen)> {
        let mut this: Self = kept::restore(checkpoint)?;
        if !this.handshake.ready && !this.listens {
            return None;
        }
        let mut seen = Seen::default();
        if let Some(known) = &this.conversation {
            seen.status(AgentStatus::Conversation(known.clone()));
        }
        let is_open = this.is_prompted() || this.turn.is_working();
        seen.status_if(is_open, AgentStatus::TurnStarted);
        this.asks.restate(&mut seen);
        this.ours.skip(UNKNOWN_REQUESTS);
        Some((this, seen))
    }
}
