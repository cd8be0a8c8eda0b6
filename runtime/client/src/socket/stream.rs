//! What is told on a connection: all of it, or what belongs to one prompt.
//!
//! Fed by `drive.rs`. Invariant: a reader that is too slow is told how much it missed, and stops
//! nobody else, calls included.

use std::sync::Arc;

use drowse_messages::{
    Ask, EventNote, GapNote, MessageId, MessageState, Notification, Prompted, SessionEvent,
    SessionReport, SnapshotNote,
};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::drive::Told;
use super::error::SocketError;
use super::{Connection, Shared};

/// Something that was told.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Heard {
    /// Something happened.
    Event(EventNote),
    /// The daemon has no longer what came in between; a snapshot follows.
    Gap(GapNote),
    /// How the session is, at this place.
    Snapshot(SnapshotNote),
    /// The connection's hard limit is near.
    Warning {
        /// How long from now, in milliseconds.
        in_ms: u64,
    },
    /// The connection broke and was taken up again; what was missed follows.
    Resumed,
    /// This reader was too slow for so many.
    Missed(u64),
}

/// All that is told on a connection, from the moment it was asked for.
#[derive(Debug)]
pub struct Events {
    told: broadcast::Receiver<Told>,
    shared: Arc<Shared>,
}

impl Events {
    pub(super) fn new(told: broadcast::Receiver<Told>, shared: Arc<Shared>) -> Self {
        Self { told, shared }
    }

    /// The next thing; may be dropped before it is done.
    ///
    /// # Errors
    /// [`SocketError::Closed`] when the connection is over.
    pub async fn next(&mut self) -> Result<Heard, SocketError> {
        loop {
            match self.told.recv().await {
                Ok(Told::Resumed) => return Ok(Heard::Resumed),
                Err(RecvError::Lagged(missed)) => return Ok(Heard::Missed(missed)),
                Err(RecvError::Closed) => return Err(self.shared.why_closed().into()),
                Ok(Told::Note(note)) => match &*note {
                    Notification::Event(note) => return Ok(Heard::Event(note.clone())),
                    Notification::Gap(note) => return Ok(Heard::Gap(note.clone())),
                    Notification::Snapshot(note) => return Ok(Heard::Snapshot(note.clone())),
                    Notification::Warning(note) => {
                        return Ok(Heard::Warning { in_ms: note.in_ms });
                    }
                    // Of a newer daemon.
                    _ => {}
                },
            }
        }
    }
}

/// A piece of what becomes of a prompt.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Piece {
    /// A piece of the agent's answer.
    Output(String),
    /// The agent asks a person.
    Asked(Ask),
    /// It does not ask any more.
    Settled(String),
    /// Pieces are missing here; the answer at the end is whole.
    Missed,
    /// The end.
    Ended(Prompted),
}

/// What becomes of one prompt, up to its end.
#[derive(Debug)]
pub struct PromptStream {
    connection: Connection,
    events: Events,
    prompted: Prompted,
    over: bool,
}

impl PromptStream {
    pub(super) fn new(connection: Connection, events: Events, prompted: Prompted) -> Self {
        Self {
            connection,
            events,
            prompted,
            over: false,
        }
    }

    /// The message's number.
    #[must_use]
    pub const fn message(&self) -> MessageId {
        self.prompted.message
    }

    /// The next piece; `None` after the end. A break of the connection is bridged.
    ///
    /// # Errors
    /// When the connection is over before the prompt is; ask for the message later.
    pub async fn next(&mut self) -> Result<Option<Piece>, SocketError> {
        if self.over {
            return Ok(None);
        }
        if self.prompted.state.is_final() {
            return Ok(Some(self.ended()));
        }
        loop {
            match self.events.next().await? {
                Heard::Event(note) => {
                    if let Some(piece) = self.piece(note.event.what) {
                        return Ok(Some(piece));
                    }
                }
                Heard::Gap(_) | Heard::Missed(_) => return self.look().await.map(Some),
                Heard::Snapshot(_) | Heard::Warning { .. } | Heard::Resumed => {}
            }
        }
    }

    fn ended(&mut self) -> Piece {
        self.over = true;
        Piece::Ended(self.prompted.clone())
    }

    /// Events are missing, and the last one may be among them.
    async fn look(&mut self) -> Result<Piece, SocketError> {
        let saved = self.connection.message(self.prompted.message).await?;
        if !saved.state.is_final() {
            return Ok(Piece::Missed);
        }
        self.settle(saved.state, saved.answer);
        Ok(self.ended())
    }

    fn settle(&mut self, state: MessageState, answer: String) {
        self.prompted.state = state;
        self.prompted.answer = answer;
    }

    fn piece(&mut self, what: SessionEvent) -> Option<Piece> {
        let own = self.prompted.message;
        if let SessionEvent::Output { message, text } = what {
            return (message == Some(own)).then_some(Piece::Output(text));
        }
        if let SessionEvent::Asked { ask } = what {
            return Some(Piece::Asked(ask));
        }
        if let SessionEvent::Settled { id, .. } = what {
            return Some(Piece::Settled(id));
        }
        let SessionEvent::MessageChanged {
            message,
            state,
            text,
        } = what
        else {
            return None;
        };
        if message != own || !state.is_final() {
            return None;
        }
        self.settle(state, text);
        Some(self.ended())
    }
}

/// The report in a snapshot.
impl Heard {
    /// The session as it is, when this says so.
    #[must_use]
    pub fn report(&self) -> Option<&SessionReport> {
        match self {
            Self::Snapshot(note) => Some(&note.report),
            Self::Event(_)
            | Self::Gap(_)
            | Self::Warning { .. }
            | Self::Resumed
            | Self::Missed(_) => None,
        }
    }
}
