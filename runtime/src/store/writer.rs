//! The one thread that writes: takes what is queued, commits it as one group, answers all of it.
//!
//! Fed by the queue of `SqliteStore`. Invariants: calls are carried out in the order they were
//! made; nothing is answered before its commit; while the disk takes no writes, those that nobody
//! waits for are kept in order, nothing later overtakes them, and what somebody waits for is
//! refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use drowse_actors::ports::{Clock, StoreError};
use drowse_messages::MonoTime;
use rusqlite::Connection;

use super::backlog::Backlog;
use super::calls::{Call, Question};
use super::schema;
use super::sql::failed;

/// 256 calls in one commit: enough that waiting for the disk is shared, few enough that the first
/// of them does not wait long for the last.
const GROUP_MAX: usize = 256;

/// The first pause before writes that failed are tried again; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// The longest pause: somebody who frees disk space sees the alarm end soon.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What the callers may know of the writer without asking it.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Calls that were queued and are not yet committed, refused or put aside.
    pub(super) calls: AtomicUsize,
    /// The text in them, in bytes.
    pub(super) bytes: AtomicUsize,
    /// See `Store::failing`.
    pub(super) failing: AtomicBool,
}

/// A call in the queue, with what it counts for in the gauge.
pub(super) struct Queued {
    pub(super) call: Call,
    pub(super) bytes: usize,
}

/// Since writes fail.
struct Trouble {
    pause: Duration,
    again_at: MonoTime,
}

/// The thread's own state.
pub(super) struct Writer {
    conn: Connection,
    clock: Arc<dyn Clock>,
    gauge: Arc<Gauge>,
    backlog: Backlog,
    trouble: Option<Trouble>,
    /// Whether commits wait for the disk, as last told to the connection.
    waits: bool,
}

impl Writer {
    /// On a connection that waits for the disk with each commit.
    pub(super) fn new(conn: Connection, clock: Arc<dyn Clock>, gauge: Arc<Gauge>) -> Self {
        Self {
            conn,
            clock,
            gauge,
            backlog: Backlog::default(),
            trouble: None,
            waits: true,
        }
    }

    /// Runs until the queue is disconnected and empty.
    pub(super) fn run(mut self, queue: &Receiver<Queued>) {
        loop {
            let next = match &self.trouble {
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(trouble) => queue.recv_timeout(trouble.again_at.since(self.clock.now())),
            };
            match next {
                Ok(first) => {
                    let rest = queue.try_iter().take(GROUP_MAX - 1);
                    self.take(std::iter::once(first).chain(rest).collect());
                }
                Err(RecvTimeoutError::Timeout) => self.catch_up(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.trouble.is_some() {
            self.catch_up();
        }
        if self.backlog.len() > 0 {
            tracing::error!(
                writes = self.backlog.len(),
                "the last writes did not reach the disk"
            );
        }
    }

    fn take(&mut self, group: Vec<Queued>) {
        let bytes = group.iter().map(|queued| queued.bytes).sum();
        let calls = group.len();
        let group: Vec<Call> = group.into_iter().map(|queued| queued.call).collect();
        let waited_for = group.iter().any(|call| matches!(call, Call::Question(_)));
        if self.trouble.is_some() && waited_for {
            self.catch_up();
        }
        let answers = self.carry_out(group);
        // First the gauge, then the answers: whoever has one finds its call counted off.
        self.gauge.calls.fetch_sub(calls, Ordering::Release);
        self.gauge.bytes.fetch_sub(bytes, Ordering::Release);
        for (question, committed) in answers {
            question.answer(committed);
        }
    }

    /// Carries a group out in one transaction, or call by call when that fails, so that none
    /// fails for another's sake. Returns what is to be answered.
    fn carry_out(&mut self, mut group: Vec<Call>) -> Vec<Answer> {
        if self.trouble.is_some() {
            let error = StoreError::Failed("the disk takes no writes at present".to_owned());
            return group
                .into_iter()
                .filter_map(|call| self.put_aside(call, &error))
                .collect();
        }
        match self.commit(&mut group) {
            Ok(()) => group.into_iter().filter_map(answered).collect(),
            Err(error) if group.len() == 1 => {
                self.raise_alarm(&error);
                let error = failed(&error);
                group
                    .into_iter()
                    .filter_map(|call| self.put_aside(call, &error))
                    .collect()
            }
            Err(_) => self.carry_out_singly(group),
        }
    }

    /// One that fails may be too large for what is left of the disk, so the next ones are tried;
    /// but once the disk takes nothing at all, not each of them has to find that out.
    fn carry_out_singly(&mut self, group: Vec<Call>) -> Vec<Answer> {
        let mut stuck = false;
        let mut answers = Vec::new();
        for call in group {
            if self.trouble.is_some() && !stuck && matches!(call, Call::Question(_)) {
                self.catch_up();
                stuck = self.trouble.is_some();
            }
            answers.extend(self.carry_out(vec![call]));
        }
        answers
    }

    /// What becomes of a call while the disk takes no writes.
    fn put_aside(&mut self, mut call: Call, error: &StoreError) -> Option<Answer> {
        if matches!(call, Call::Reading(_)) {
            let read = call.carry_out(&self.conn).map_err(|error| failed(&error));
            self.end_transaction();
            return match call {
                Call::Question(question) | Call::Reading(question) => Some((question, read)),
                Call::Write(_) => None,
            };
        }
        match call {
            Call::Question(question) | Call::Reading(question) => {
                Some((question, Err(error.clone())))
            }
            Call::Write(write) => {
                self.backlog.keep(write);
                None
            }
        }
    }

    fn commit(&mut self, group: &mut [Call]) -> rusqlite::Result<()> {
        let urgent = group.iter().any(Call::is_urgent);
        self.wait_for_disk(urgent)?;
        self.transact(|conn| group.iter_mut().try_for_each(|call| call.carry_out(conn)))
    }

    /// Tries the writes that failed again, all together. Without any, writes something small, to
    /// see whether the disk takes it.
    fn catch_up(&mut self) {
        let backlog = std::mem::take(&mut self.backlog);
        let done = self.wait_for_disk(true).and_then(|()| {
            self.transact(|conn| {
                schema::set_version(conn, schema::newest())?;
                backlog.iter().try_for_each(|write| write.carry_out(conn))
            })
        });
        self.backlog = backlog;
        match done {
            Ok(()) => self.end_alarm(),
            Err(error) => self.raise_alarm(&error),
        }
    }

    fn transact(
        &self,
        steps: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let done = self
            .conn
            .execute_batch("BEGIN IMMEDIATE")
            .and_then(|()| steps(&self.conn))
            .and_then(|()| self.conn.execute_batch("COMMIT"));
        self.end_transaction();
        done
    }

    /// Rolls back what a failure left open; after a success nothing is.
    fn end_transaction(&self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }

    /// `FULL` waits for the disk with each commit, `NORMAL` only with checkpoints; both survive
    /// the death of the daemon, `FULL` alone a power cut.
    fn wait_for_disk(&mut self, wait: bool) -> rusqlite::Result<()> {
        if wait != self.waits {
            let level = if wait { "FULL" } else { "NORMAL" };
            self.conn.pragma_update(None, "synchronous", level)?;
            self.waits = wait;
        }
        Ok(())
    }

    fn raise_alarm(&mut self, error: &rusqlite::Error) {
        let now = self.clock.now();
        let pause = match &self.trouble {
            None => {
                tracing::error!(%error, "the database takes no writes: check its disk; \
                                         messages are refused until it does");
                self.gauge.failing.store(true, Ordering::Release);
                PAUSE_FIRST
            }
            // A question in between found the disk as it was: that is no reason to wait longer.
            Some(trouble) if now < trouble.again_at => return,
            Some(trouble) => PAUSE_MAX.min(trouble.pause * 2),
        };
        self.trouble = Some(Trouble {
            pause,
            again_at: now.after(pause),
        });
    }

    fn end_alarm(&mut self) {
        let caught_up = self.backlog.len();
        let lost = self.backlog.clear();
        self.trouble = None;
        self.gauge.failing.store(false, Ordering::Release);
        tracing::info!(caught_up, lost, "the database takes writes again");
    }
}

/// A question and how its transaction went.
type Answer = (Box<dyn Question>, Result<(), StoreError>);

fn answered(call: Call) -> Option<Answer> {
    match call {
        Call::Question(question) | Call::Reading(question) => Some((question, Ok(()))),
        Call::Write(_) => None,
    }
}
