//! A Codex that an earlier daemon followed: what is known of it, and what it is asked to be sure.
//!
//! Codex lists the last turn of a thread at any time, with how it stands, and the commands that
//! still run in its background; so what nobody heard while no daemon ran is healed. Invariant: a
//! turn is over only when Codex lists that very turn as over: between the acceptance of a prompt
//! and its turn there is a moment in which the thread seems to rest.

use drowse_messages::AgentStatus;

use super::super::super::wire::{Part, read, text};
use super::super::super::{Seen, kept};
use super::super::lines::{About, Listed, Turn as TurnPart, id};
use super::CodexObserver;
use super::told::compaction;

/// 1,000: far more requests than an observer can have numbered after its last checkpoint.
const UNKNOWN_REQUESTS: u64 = 1_000;

impl CodexObserver {
    /// What `checkpoint` holds, restated; none if that agent was not ready yet and nobody else
    /// speaks to it.
    pub(in super::super) fn adopt(checkpoint: &[u8]) -> Option<(Self, Seen)> {
        let mut this: Self = kept::restore(checkpoint)?;
        if !this.ready && !this.listens {
            return None;
        }
        let mut seen = Seen::default();
        this.threads.restate(&mut seen);
        this.tasks.restate(&mut seen);
        seen.status_if(this.is_open(), AgentStatus::TurnStarted);
        seen.status_if(this.compacting, compaction());
        this.asks.restate(&mut seen);
        this.ours.skip(UNKNOWN_REQUESTS);
        if let Some(thread) = this.threads.main().map(|main| main.native_id.clone()) {
            let turns = About {
                thread_id: Some(&thread),
                limit: Some(1),
                ..About::default()
            };
            seen.write.push(this.about("thread/turns/list", &turns));
            let terminals = About {
                thread_id: Some(&thread),
                ..About::default()
            };
            seen.write
                .push(this.about("thread/backgroundTerminals/list", &terminals));
        }
        Some((this, seen))
    }

    /// Codex says how the last turn of a thread stands.
    pub(super) fn compare(&mut self, seen: &mut Seen, thread: &str, listed: Part<'_>) {
        let listed: Listed<'_> = read(listed).unwrap_or_default();
        let turns: Vec<TurnPart<'_>> = read(listed.data).unwrap_or_default();
        let Some(last) = turns.first().filter(|_| self.threads.is_main(thread)) else {
            return;
        };
        let Some(id) = id(last.id) else { return };
        match text(last.status).as_deref() {
            Some("inProgress") if self.turn.running() != Some(&*id) => {
                self.turn_started(seen, thread, &id);
            }
            Some("inProgress") | None => {}
            Some(_) if self.turn.awaits(&id) => self.turn_completed(seen, thread, &id, last),
            Some(_) => {}
        }
        self.tasks.tell(seen, self.turn.running());
    }
}
