//! The life of one message as a stream: what happens from its acceptance to its final state.
//!
//! Subscribed before the message is accepted, so nothing is missed. Left out is what belongs to
//! other messages, and turns the agent began by itself. Invariant: the last frame is the
//! `message_changed` to a final state, unless the session or the daemon ends first.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use drowse_messages::{Accepted, Event, MessageId, SavedMessage, SessionEvent};

use super::front::{Front, Live};
use super::stream::{Source, frame, id_of};

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The message's own `message_queued` has not come by.
    Awaited,
    /// The store is asked how the message stands: events of it may have gone by unseen.
    Asking,
    /// Its events come.
    Living,
    /// The final state was said.
    Over,
}

/// A source of the events of one message.
#[derive(Debug)]
pub(super) struct Life {
    daemon: Arc<dyn Front>,
    live: Box<dyn Live>,
    message: MessageId,
    stage: Stage,
    ready: VecDeque<Bytes>,
}

impl Life {
    /// Follows a message just accepted. A repeat was accepted earlier: the store says how far it
    /// is.
    pub(super) fn new(daemon: Arc<dyn Front>, live: Box<dyn Live>, accepted: Accepted) -> Self {
        let stage = if accepted.duplicate {
            Stage::Asking
        } else {
            Stage::Awaited
        };
        Self {
            daemon,
            live,
            message: accepted.message,
            stage,
            ready: VecDeque::new(),
        }
    }

    fn asked(&mut self, saved: SavedMessage) {
        self.stage = if saved.state.is_final() {
            Stage::Over
        } else {
            Stage::Living
        };
        let what = SessionEvent::MessageChanged {
            message: saved.id,
            state: saved.state,
            text: saved.answer,
        };
        // An answer of the store has no number among events.
        let event = Event {
            seq: 0,
            at: saved.at,
            session: Some(saved.session),
            what,
        };
        self.ready.push_back(frame(&event, None));
    }

    fn heard(&mut self, event: &Event) {
        if let SessionEvent::Gap { .. } = event.what {
            self.ready.push_back(frame(event, None));
            self.stage = Stage::Asking;
            return;
        }
        if self.stage == Stage::Awaited {
            let queued = SessionEvent::MessageQueued {
                message: self.message,
            };
            if event.what != queued {
                return;
            }
            self.stage = Stage::Living;
        }
        if !self.belongs(&event.what) {
            return;
        }
        self.ready.push_back(frame(event, id_of(event)));
        if ends(&event.what) {
            self.stage = Stage::Over;
        }
    }

    fn belongs(&self, what: &SessionEvent) -> bool {
        if let SessionEvent::MessageQueued { message }
        | SessionEvent::MessageChanged { message, .. } = what
        {
            return *message == self.message;
        }
        if let SessionEvent::TurnStarted { message }
        | SessionEvent::Output { message, .. }
        | SessionEvent::TurnEnded { message, .. } = what
        {
            return *message == Some(self.message);
        }
        // What the whole session does, and what it asks, concerns its message.
        !matches!(what, SessionEvent::Snapshot { .. })
    }
}

/// Asked of the message's own events only.
const fn ends(what: &SessionEvent) -> bool {
    if let SessionEvent::MessageChanged { state, .. } = what {
        return state.is_final();
    }
    matches!(what, SessionEvent::Removed)
}

impl Source for Life {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            match self.stage {
                Stage::Over => return None,
                Stage::Asking => match self.daemon.message(self.message).await {
                    Ok(saved) => self.asked(saved),
                    // It was removed with its session: nothing more can be said of it.
                    Err(_) => self.stage = Stage::Over,
                },
                Stage::Awaited | Stage::Living => {
                    let event = self.live.next().await?;
                    self.heard(&event);
                }
            }
        }
    }
}
