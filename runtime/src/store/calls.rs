//! Calls on their way to the database: questions, which somebody waits for, and writes, which
//! nobody does.
//!
//! Invariant: a call can be carried out any number of times until its transaction commits, so a
//! group that failed as a whole can be taken apart and tried again.

use drowse_actors::ports::StoreError;
use drowse_messages::{MessageId, MessageState, Progress, SessionId, WallTime};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::log::{self, Line};
use super::sql::{Fault, attempt};
use super::{inbox, relays, sessions};

/// Where an answer goes. Nobody may be listening any more.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// One call.
pub(super) enum Call {
    /// Must be on the disk before it is answered; refused while writes fail.
    Question(Box<dyn Question>),
    /// Changes nothing; answered from what there is while writes fail.
    Reading(Box<dyn Question>),
    /// Must reach the disk in its place in the order; kept and tried again while writes fail.
    Write(Write),
}

impl Call {
    /// Carries it out within the transaction there is. An error ends that transaction.
    pub(super) fn carry_out(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        match self {
            Self::Question(question) | Self::Reading(question) => question.carry_out(conn),
            Self::Write(write) => write.carry_out(conn),
        }
    }

    /// Whether it must survive a power cut at once, and not only the end of the daemon.
    pub(super) const fn is_urgent(&self) -> bool {
        match self {
            Self::Question(_) => true,
            Self::Reading(_) => false,
            Self::Write(write) => write.is_urgent(),
        }
    }
}

/// Something that is answered.
pub(super) trait Question: Send {
    /// Finds the answer and keeps it.
    fn carry_out(&mut self, conn: &Connection) -> rusqlite::Result<()>;
    /// Gives the answer that was found, or the error that befell the transaction.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A question made of a function.
pub(super) struct Asked<T, F> {
    find: F,
    found: Option<Result<T, StoreError>>,
    reply: Reply<T>,
}

impl<T, F> Asked<T, F>
where
    T: Send + 'static,
    F: FnMut(&Connection) -> Result<T, Fault> + Send + 'static,
{
    /// A question that is answered to `reply`.
    pub(super) fn boxed(find: F, reply: Reply<T>) -> Box<dyn Question> {
        Box::new(Self {
            find,
            found: None,
            reply,
        })
    }
}

impl<T, F> Question for Asked<T, F>
where
    T: Send + 'static,
    F: FnMut(&Connection) -> Result<T, Fault> + Send + 'static,
{
    fn carry_out(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.found = Some(attempt(conn, &mut self.find)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { found, reply, .. } = *self;
        let found = found.unwrap_or_else(|| Err(closed()));
        // A caller that gave up waiting is none of the store's business.
        drop(reply.send(committed.and(found)));
    }
}

/// The error of a store that is being dropped, or whose threads have ended.
pub(super) fn closed() -> StoreError {
    StoreError::Failed("the store is closed, or its disk has stopped".to_owned())
}

/// Something that is not answered.
#[derive(Debug)]
pub(super) enum Write {
    /// See `Store::save`.
    Save {
        /// Whose.
        id: SessionId,
        /// What.
        progress: Box<Progress>,
        /// When the call was made.
        at: WallTime,
    },
    /// See `Store::settle`.
    Settle {
        /// Which.
        message: MessageId,
        /// What it is now.
        state: MessageState,
        /// The answer, cut already.
        text: String,
    },
    /// See `Store::forget`.
    Forget(SessionId),
    /// See `Store::keep_relay`.
    KeepRelay {
        /// Whose.
        id: SessionId,
        /// What, sealed.
        sealed: Vec<u8>,
    },
    /// See `Store::record`.
    Record(Line),
}

impl Write {
    /// Carries it out. A fault of its own is logged: trying again would not mend it.
    pub(super) fn carry_out(&self, conn: &Connection) -> rusqlite::Result<()> {
        let done = attempt(conn, &mut |conn| match self {
            Self::Save { id, progress, at } => sessions::save(conn, *id, progress, *at),
            Self::Settle {
                message,
                state,
                text,
            } => inbox::settle(conn, *message, *state, text),
            Self::Forget(id) => sessions::forget(conn, *id),
            Self::KeepRelay { id, sealed } => relays::keep(conn, *id, sealed),
            Self::Record(line) => log::record(conn, line),
        })?;
        if let Err(error) = done {
            tracing::error!(%error, write = self.what(), "a write was not kept");
        }
        Ok(())
    }

    /// What people and programs were told, or asked for, must survive a power cut. Progress of
    /// processes that the power cut ends anyway, and events, may wait for the next such write.
    const fn is_urgent(&self) -> bool {
        match self {
            Self::Settle { .. } | Self::Forget(_) => true,
            Self::Save { .. } | Self::KeepRelay { .. } | Self::Record(_) => false,
        }
    }

    /// The text it carries, in bytes; the rest of it is small.
    pub(super) const fn bytes(&self) -> usize {
        match self {
            Self::Settle { text, .. } => text.len(),
            Self::Record(line) => line.json.len(),
            Self::KeepRelay { sealed, .. } => sealed.len(),
            Self::Save { .. } | Self::Forget(_) => 0,
        }
    }

    /// Its name in the log, where its contents do not belong.
    pub(super) const fn what(&self) -> &'static str {
        match self {
            Self::Save { .. } => "save",
            Self::Settle { .. } => "settle",
            Self::Forget(_) => "forget",
            Self::KeepRelay { .. } => "keep_relay",
            Self::Record(_) => "record",
        }
    }
}
