//! `/v1/events`: everything that happens, without a hole, from where a client left off.
//!
//! Subscribes first and reads what was kept second. The subscription begins with a snapshot that
//! carries the number of the newest event at that moment; kept events up to that number and live
//! events behind it are together every event once. Watching is never activity.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use drowse_messages::{Event, Refusal, SessionEvent, SessionId};

use super::front::{Front, Live};
use super::stream::{Source, frame, id_of};

/// 500 kept events are read at a time: some hundred kilobytes, and the store is free in between.
const PAGE_EVENTS: usize = 500;

/// How far a watch is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The snapshot is next.
    Opening {
        /// The last event the client has seen.
        after: Option<u64>,
    },
    /// Kept events behind `after` are next.
    Replaying { after: u64, until: u64 },
    /// Live events behind `last` are next.
    Live { last: u64 },
}

/// A source of all events, or of those of one session.
#[derive(Debug)]
pub(super) struct Watch {
    daemon: Arc<dyn Front>,
    live: Box<dyn Live>,
    session: Option<SessionId>,
    stage: Stage,
    /// Frames that are ready. At most a page of them.
    ready: VecDeque<Bytes>,
}

impl Watch {
    /// Subscribes.
    pub(super) fn new(
        daemon: Arc<dyn Front>,
        capacity: usize,
        session: Option<SessionId>,
        after: Option<u64>,
    ) -> Self {
        let live = daemon.subscribe(capacity, session);
        Self {
            daemon,
            live,
            session,
            stage: Stage::Opening { after },
            ready: VecDeque::new(),
        }
    }

    fn open(&mut self, snapshot: &Event, after: Option<u64>) {
        let until = snapshot.seq;
        // With the number the client already has: cut off in the middle of the replay, it must
        // come back for the rest.
        self.ready
            .push_back(frame(snapshot, Some(after.unwrap_or(until))));
        self.stage = match after {
            Some(after) if after < until => Stage::Replaying { after, until },
            Some(after) if after > until => {
                // Its number is of another store: nothing can be said about what came between.
                self.gap(snapshot, None);
                Stage::Live { last: until }
            }
            Some(_) | None => Stage::Live { last: until },
        };
    }

    fn gap(&mut self, near: &Event, missed: Option<u64>) {
        let what = SessionEvent::Gap { missed };
        let gap = Event {
            seq: near.seq,
            at: near.at,
            session: self.session,
            what,
        };
        self.ready.push_back(frame(&gap, None));
    }

    fn replay(&mut self, page: &[Event], after: u64, until: u64) {
        let fits = page.iter().take_while(|event| event.seq <= until);
        self.ready
            .extend(fits.map(|event| frame(event, id_of(event))));
        self.stage = match page.last() {
            Some(last) if page.len() >= PAGE_EVENTS && last.seq < until && last.seq > after => {
                Stage::Replaying {
                    after: last.seq,
                    until,
                }
            }
            Some(_) | None => Stage::Live { last: until },
        };
    }

    /// The store cannot say what was missed; what follows is delivered all the same.
    fn give_up(&mut self, refusal: &Refusal, after: u64, until: u64) {
        tracing::warn!(error = %refusal, "kept events cannot be read");
        let what = SessionEvent::Gap { missed: None };
        let gap = Event {
            seq: after,
            at: Default::default(),
            session: self.session,
            what,
        };
        self.ready.push_back(frame(&gap, None));
        self.stage = Stage::Live { last: until };
    }

    fn live(&mut self, event: &Event, last: u64) {
        let numbered = !matches!(
            event.what,
            SessionEvent::Output { .. } | SessionEvent::Gap { .. } | SessionEvent::Snapshot { .. }
        );
        if numbered && event.seq <= last {
            return;
        }
        self.stage = Stage::Live {
            last: last.max(event.seq),
        };
        self.ready.push_back(frame(event, id_of(event)));
    }
}

impl Source for Watch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            // Nothing is changed before the last wait of an arm is over.
            match self.stage {
                Stage::Opening { after } => {
                    let snapshot = self.live.next().await?;
                    self.open(&snapshot, after);
                }
                Stage::Replaying { after, until } => {
                    match self
                        .daemon
                        .events(Some(after), PAGE_EVENTS, self.session)
                        .await
                    {
                        Ok(page) => self.replay(&page, after, until),
                        Err(refusal) => self.give_up(&refusal, after, until),
                    }
                }
                Stage::Live { last } => {
                    let event = self.live.next().await?;
                    self.live(&event, last);
                }
            }
        }
    }
}
