//! Writes that wait because the disk takes none.
//!
//! Invariant: they reach the database in their order, all in one transaction, before anything
//! later; so an earlier save of a session may give way to a later one. Bounded: there is at most
//! one save per session, as many settlements as there were messages, and beyond
//! [`BACKLOG_BYTES_MAX`] of text no event and no answer is kept.

use std::collections::VecDeque;

use super::calls::Write;

/// 10,000 events: a disk that stays full for an hour of ordinary use.
const BACKLOG_EVENTS_MAX: usize = 10_000;

/// 64 MiB of answers and events; the rest of a daemon is smaller than that.
const BACKLOG_BYTES_MAX: usize = 64 << 20;

/// Stands for an answer that found no room.
const ANSWER_LOST: &str = "[the disk took no writes when this answer came, and it was not kept]";

/// Writes in the order they were made.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    writes: VecDeque<Write>,
    events: usize,
    bytes: usize,
    lost: u64,
}

impl Backlog {
    /// Keeps a write for later.
    pub(super) fn keep(&mut self, mut write: Write) {
        let full = self.bytes.saturating_add(write.bytes()) > BACKLOG_BYTES_MAX;
        match &mut write {
            Write::Record(_) if full || self.events >= BACKLOG_EVENTS_MAX => {
                self.lost += 1;
                return;
            }
            Write::Record(_) => self.events += 1,
            Write::Settle { text, .. } if full && text.len() > ANSWER_LOST.len() => {
                self.lost += 1;
                ANSWER_LOST.clone_into(text);
            }
            Write::Save { .. } => self.forgo_save_before(&write),
            Write::Settle { .. } | Write::Forget(_) | Write::KeepRelay { .. } => {}
        }
        self.bytes += write.bytes();
        self.writes.push_back(write);
    }

    fn forgo_save_before(&mut self, later: &Write) {
        let Write::Save { id, .. } = later else {
            return;
        };
        let same = |write: &Write| matches!(write, Write::Save { id: other, .. } if other == id);
        if let Some(place) = self.writes.iter().rposition(same) {
            self.writes.remove(place);
        }
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Empties it after all of them were committed; returns how many found no room meanwhile.
    pub(super) fn clear(&mut self) -> u64 {
        std::mem::take(self).lost
    }
}

#[cfg(test)]
mod tests {
    use drowse_messages::{
        Incarnation, MessageId, MessageState, Progress, SessionId, SessionState, WallTime,
    };

    use super::super::log::Line;
    use super::*;

    fn save(id: u64, launches: u32) -> Write {
        let progress = Progress {
            state: SessionState::Resting,
            incarnation: Incarnation(launches),
            ..Progress::default()
        };
        let id = SessionId::from_random(id);
        Write::Save {
            id,
            progress: Box::new(progress),
            at: WallTime(1),
        }
    }

    fn settle(bytes: usize) -> Write {
        let text = "x".repeat(bytes);
        Write::Settle {
            message: MessageId(1),
            state: MessageState::Answered,
            text,
        }
    }

    /// A session that is saved over and over while the disk is full takes one place.
    #[test]
    fn the_newest_save_of_a_session_stands_for_all() {
        let mut backlog = Backlog::default();
        for turn in 0..50 {
            backlog.keep(save(1, turn));
            backlog.keep(save(2, turn));
        }
        let kept: Vec<_> = backlog.iter().map(|write| format!("{write:?}")).collect();
        assert_eq!(kept.len(), 2);
        assert!(
            kept.iter().all(|write| write.contains("Incarnation(49)")),
            "{kept:?}"
        );
    }

    /// Memory stays bounded however long the disk is full, and no state is given up for it.
    #[test]
    fn events_and_answers_give_way_before_states_do() {
        let mut backlog = Backlog::default();
        for seq in 0..2 * BACKLOG_EVENTS_MAX as u64 {
            backlog.keep(Write::Record(Line {
                seq,
                session: None,
                json: "{}".to_owned(),
            }));
        }
        for _ in 0..40 {
            backlog.keep(settle(4 << 20));
        }
        assert!(backlog.bytes <= BACKLOG_BYTES_MAX + 40 * ANSWER_LOST.len());
        assert_eq!(
            backlog.len(),
            BACKLOG_EVENTS_MAX + 40,
            "each settlement is there"
        );
        assert!(
            backlog.clear() > BACKLOG_EVENTS_MAX as u64,
            "the lost ones were counted"
        );
    }
}
