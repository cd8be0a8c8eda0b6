//! The store: sessions, inbox and events in one SQLite file, behind the `Store` port.
//!
//! One thread writes, in the order of the calls, and commits in groups: a message is acknowledged
//! when it would survive a power cut. A second thread reads for those who look. The files are
//! their owner's alone, and what is secret of a session is sealed. Fed by the registry and by the
//! sessions; it decides nothing about them.
//!
//! | module | keeps |
//! |---|---|
//! | `files`, `schema` | the folder private, the database sound, its tables up to date |
//! | `writer`, `calls`, `backlog`, `lane` | the order of calls, groups, what waits for a full disk |
//! | `sessions`, `seal`, `recover` | sessions and their secrets; puts them at rest at start |
//! | `inbox`, `log`, `relays` | messages; events; hosts |
//!
//! Invariants: no call blocks its caller but for a write that finds the queue full; memory does
//! not grow with the number of sessions; a failure of the disk loses nothing that was
//! acknowledged and is one alarm.

mod backlog;
mod calls;
mod files;
mod inbox;
mod keeping;
mod lane;
mod log;
mod recover;
mod relays;
mod schema;
mod seal;
mod sessions;
mod sql;
mod writer;

#[cfg(test)]
mod tests;

use std::future::ready;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::Receiver;
use drowse_actors::ports::{Clock, Page, Recovered, SavedPage, Store, StoreError, Stored};
use drowse_messages::{
    Accepted, Event, KeptRelay, MessageId, MessageQueued, MessageState, Profile, Progress, Recipe,
    SavedMessage, SavedSession, SendMessage, SessionId,
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use calls::{Asked, Call, Question, Write, closed};
use lane::Lane;
use seal::Seal;
use sql::{Fault, failed};
use writer::{Gauge, Queued, Writer};

/// The key of the sealed recipes, inside the state folder.
const KEY: &str = "key";

/// 1,024 questions may wait for the disk: a second of them on a slow one.
const QUESTIONS_MAX: usize = 1_024;

/// Four times as many calls in all, so that writes, which cannot be refused, find room where
/// questions no longer do. The queue is allocated whole: 320 KB.
const QUEUE_MAX: usize = 4 * QUESTIONS_MAX;

/// 64 MiB of text may be on its way to the disk; a message that finds more is refused.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// 256 readings may wait; more come from a client in a loop.
const READINGS_MAX: usize = 256;

/// How long a write waits for room in a queue that is full, which takes a disk that has stopped.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder or a file in it cannot be used.
    #[error("cannot use {path} for the state of drowse")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A later version wrote the database. It was not touched.
    #[error(
        "{path} was made by a newer drowse (form {found}, this one knows up to {known}): \
         use that version, or another state folder"
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest one known here.
        known: i64,
    },
    /// A damaged database could not be set aside. It was not touched.
    #[error("the database {path} is damaged and cannot be set aside")]
    SetAside {
        /// The database.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// SQLite cannot work with the database.
    #[error("cannot open the database {path}")]
    Database {
        /// The database.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// There is no thread to be had.
    #[error("cannot start a thread for the database")]
    Thread(#[source] io::Error),
}

/// A store in a folder. Dropping it brings what is queued to the disk and waits for that, a few
/// seconds at most.
#[derive(Debug)]
pub struct SqliteStore {
    clock: Arc<dyn Clock>,
    gauge: Arc<Gauge>,
    seal: Arc<Seal>,
    warning: Option<String>,
    // The writer is dropped last: closing the last connection folds the log into the database.
    reader: Lane<Box<dyn Question>>,
    writer: Lane<Queued>,
}

impl SqliteStore {
    /// Opens the store in `folder`, or begins one. Only one process may have it open.
    ///
    /// # Errors
    /// [`OpenError`], and nothing on disk was changed but for making what was missing. A damaged
    /// database is no error: see [`SqliteStore::warning`].
    pub fn open(folder: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let opened = files::open(folder, clock.wall())?;
        let gauge = Arc::new(Gauge::default());
        let writer = Writer::new(opened.writer, Arc::clone(&clock), Arc::clone(&gauge));
        Ok(Self {
            clock,
            gauge,
            seal: Arc::new(Seal::new(folder.join(KEY))),
            warning: opened.warning,
            reader: Lane::start("store-reader", READINGS_MAX, {
                move |calls| read(&opened.reader, &calls)
            })
            .map_err(OpenError::Thread)?,
            writer: Lane::start("store-writer", QUEUE_MAX, move |calls| writer.run(&calls))
                .map_err(OpenError::Thread)?,
        })
    }

    /// What people must be told about how the store was opened: that a damaged database was set
    /// aside, and where it is.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Has a question of `bytes` answered by the writer, in its place in the order.
    fn ask<T: Send + 'static>(
        &self,
        bytes: usize,
        find: impl FnMut(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Stored<T> {
        let (reply, answer) = oneshot::channel();
        let waiting = self.gauge.calls.load(Ordering::Acquire);
        let full = self
            .gauge
            .bytes
            .load(Ordering::Acquire)
            .saturating_add(bytes)
            > QUEUE_BYTES_MAX;
        if waiting >= QUESTIONS_MAX || full {
            return refused(StoreError::Failed(format!(
                "{waiting} calls wait for the disk already: it is slow or has stopped"
            )));
        }
        let call = Call::Question(Asked::boxed(find, reply));
        self.queue(call, bytes, Duration::ZERO);
        answered(answer)
    }

    /// Has a question answered by the reader. It sees all that was acknowledged before.
    fn look<T: Send + 'static>(
        &self,
        find: impl FnMut(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Stored<T> {
        let (reply, answer) = oneshot::channel();
        if self.reader.offer(Asked::boxed(find, reply)).is_err() {
            let detail = format!("{READINGS_MAX} readings of the database wait already");
            return refused(StoreError::Failed(detail));
        }
        answered(answer)
    }

    /// Has a question answered that must see every call made before it, acknowledged or not: by
    /// the reader when there is none under way, else by the writer.
    fn look_in_order<T: Send + 'static>(
        &self,
        find: impl FnMut(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Stored<T> {
        if self.gauge.calls.load(Ordering::Acquire) == 0 {
            return self.look(find);
        }
        let (reply, answer) = oneshot::channel();
        self.queue(Call::Reading(Asked::boxed(find, reply)), 0, Duration::ZERO);
        answered(answer)
    }

    fn write(&self, write: Write) {
        let bytes = write.bytes();
        self.queue(Call::Write(write), bytes, ROOM_WAIT_MAX);
    }

    /// A call that finds no room is dropped, which answers its question.
    fn queue(&self, call: Call, bytes: usize, wait: Duration) {
        // Counted before it is queued, lest the writer count it off first.
        self.gauge.calls.fetch_add(1, Ordering::AcqRel);
        self.gauge.bytes.fetch_add(bytes, Ordering::AcqRel);
        if let Err(Queued { call, bytes }) = self.writer.put(Queued { call, bytes }, wait) {
            self.gauge.calls.fetch_sub(1, Ordering::AcqRel);
            self.gauge.bytes.fetch_sub(bytes, Ordering::AcqRel);
            if let Call::Write(write) = call {
                let write = write.what();
                tracing::error!(write, "the disk has stopped, and a write was given up");
            }
        }
    }
}

fn answered<T: Send + 'static>(answer: oneshot::Receiver<Result<T, StoreError>>) -> Stored<T> {
    Box::pin(async { answer.await.unwrap_or_else(|_| Err(closed())) })
}

fn refused<T: Send + 'static>(error: StoreError) -> Stored<T> {
    Box::pin(ready(Err(error)))
}

/// The reader's thread. Each question gets one consistent view, of the moment it is begun.
fn read(conn: &Connection, calls: &Receiver<Box<dyn Question>>) {
    for mut question in calls {
        let read = question.carry_out(conn).map_err(|error| failed(&error));
        if !conn.is_autocommit()
            && let Err(error) = conn.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a reading could not be ended");
        }
        question.answer(read);
    }
}

impl Store for SqliteStore {
    fn recover(&self) -> Stored<Recovered> {
        let now = self.clock.wall();
        self.ask(0, move |conn| recover::recover(conn, now))
    }

    fn put_at_rest(&self, sessions: Vec<SessionId>) -> Stored<Recovered> {
        let now = self.clock.wall();
        self.ask(0, move |conn| recover::put_at_rest(conn, &sessions, now))
    }

    fn open(&self, profile: Profile) -> Stored<()> {
        let seal = Arc::clone(&self.seal);
        self.ask(0, move |conn| sessions::open(conn, &seal, &profile))
    }

    fn reseal(&self, id: SessionId, recipe: Recipe) -> Stored<()> {
        let seal = Arc::clone(&self.seal);
        self.ask(0, move |conn| sessions::reseal(conn, &seal, id, &recipe))
    }

    fn load(&self, id: SessionId) -> Stored<SavedSession> {
        let seal = Arc::clone(&self.seal);
        self.ask(0, move |conn| sessions::load(conn, &seal, id))
    }

    fn resolve(&self, text: String) -> Stored<SessionId> {
        self.look_in_order(move |conn| sessions::resolve(conn, &text))
    }

    fn list(&self, page: Page) -> Stored<SavedPage> {
        self.look(move |conn| sessions::list(conn, &page))
    }

    fn enqueue(&self, session: SessionId, message: SendMessage) -> Stored<Accepted> {
        if let Err(error) = inbox::check(&message.text, message.key.as_deref()) {
            return refused(error);
        }
        let now = self.clock.wall();
        self.ask(message.text.len(), move |conn| {
            inbox::enqueue(conn, session, &message, now)
        })
    }

    fn requeue(&self, session: SessionId, message: MessageId) -> Stored<MessageQueued> {
        self.ask(0, move |conn| inbox::requeue(conn, session, message))
    }

    fn deliver(&self, message: MessageId) -> Stored<String> {
        self.ask(0, move |conn| inbox::deliver(conn, message))
    }

    fn message(&self, message: MessageId) -> Stored<SavedMessage> {
        self.look_in_order(move |conn| inbox::read(conn, message))
    }

    fn messages(&self, session: SessionId, limit: usize) -> Stored<Vec<SavedMessage>> {
        self.look_in_order(move |conn| inbox::newest(conn, session, limit))
    }

    fn save(&self, id: SessionId, progress: Progress) {
        self.write(Write::Save {
            id,
            progress: Box::new(progress),
            at: self.clock.wall(),
        });
    }

    fn settle(&self, message: MessageId, state: MessageState, text: String) {
        let text = sql::bounded(text, inbox::ANSWER_BYTES_MAX, inbox::ANSWER_CUT);
        self.write(Write::Settle {
            message,
            state,
            text,
        });
    }

    fn forget(&self, id: SessionId) {
        self.write(Write::Forget(id));
    }

    fn keep_relay(&self, id: SessionId, kept: KeptRelay) {
        match self.seal.seal_relay(id, &kept) {
            Ok(sealed) => self.write(Write::KeepRelay { id, sealed }),
            Err(error) => tracing::error!(session = %id, %error, "a host was not written down"),
        }
    }

    fn relay(&self, id: SessionId) -> Stored<KeptRelay> {
        let seal = Arc::clone(&self.seal);
        self.look_in_order(move |conn| Ok(seal.open_relay(id, &relays::read(conn, id)?)?))
    }

    fn record(&self, event: Event) {
        if let Some(line) = log::line(event) {
            self.write(Write::Record(line));
        }
    }

    fn events(
        &self,
        after: Option<u64>,
        limit: usize,
        session: Option<SessionId>,
    ) -> Stored<Vec<Event>> {
        self.look(move |conn| log::events(conn, after, limit, session))
    }

    fn failing(&self) -> bool {
        self.gauge.failing.load(Ordering::Acquire)
    }
}
