//! A Claude that an earlier daemon followed: what is known of it, and what it is asked to be sure.
//!
//! Claude answers `initialize` at any time, with whether a turn runs and what it asks of a person,
//! and lists its background tasks again; so what nobody heard while no daemon ran, or in the last
//! moment of one, is healed. Invariant: a turn whose end was not heard is never taken for answered.

use drowse_messages::{AgentStatus, TurnOutcome, WallTime};

use super::super::super::wire::{Part, read, text};
use super::super::super::{Seen, kept};
use super::super::lines::{Control, Initialized, Outcome};
use super::{ClaudeObserver, compaction};

/// 1,000: far more requests than an observer can have numbered after its last checkpoint.
const UNKNOWN_REQUESTS: u64 = 1_000;

impl ClaudeObserver {
    /// What `checkpoint` holds, restated; none if that agent was not ready yet.
    pub(in super::super) fn adopt(checkpoint: &[u8], now: WallTime) -> Option<(Self, Seen)> {
        let mut this: Self = kept::restore(checkpoint)?;
        if !(this.ready || this.listening) {
            return None;
        }
        let mut seen = Seen::default();
        let conversation = AgentStatus::Conversation(this.conversation.clone());
        seen.status_if(this.named, conversation);
        this.tasks.restate(&mut seen);
        seen.status_if(this.turn.is_open(), AgentStatus::TurnStarted);
        seen.status_if(this.compacting, compaction());
        this.asks.restate(&mut seen);
        this.timers.restate(&mut seen, now);
        this.requests += UNKNOWN_REQUESTS;
        if this.listening {
            // Whatever it said meanwhile is still to be heard: a host's Claude is read only while
            // the host is there. A second `initialize` would undo what the host's one said.
            return Some((this, seen));
        }
        this.turn.doubt();
        let (id, line) = this.request("initialize");
        this.opening = id;
        seen.write.push(line);
        Some((this, seen))
    }

    /// Claude says how things stand.
    pub(super) fn compare(
        &mut self,
        seen: &mut Seen,
        outcome: &Outcome<'_>,
        about: &Initialized<'_>,
    ) {
        if let Some(pending) = read::<Vec<Control<'_>>>(outcome.pending_permission_requests) {
            self.asks.compare(seen, &pending);
        }
        match text(about.session_state).as_deref() {
            Some("idle") => self.lost(seen),
            Some("running" | "requires_action") if !self.turn.is_running() => {
                self.started(seen, Part::None);
            }
            Some(_) | None => {}
        }
    }

    /// No turn runs. The end of one that was thought to run went by unheard.
    fn lost(&mut self, seen: &mut Seen) {
        self.compacted(seen);
        if let Some(mut ended) = self.turn.idle() {
            ended.outcome = TurnOutcome::Lost;
            self.ended(seen, ended, String::new());
        }
    }
}
