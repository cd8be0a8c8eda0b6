//! The reaper's threads: everything about processes that blocks, behind a bounded channel.
//!
//! Fed by: the reaper actor's port. Decides nothing: one order, one reply.
//! Invariant: every accepted order is replied to exactly once, and each takes a bounded time.
//! Only listed pids are waited for.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use drowse_messages::{ExitStatus, ProcIdentity, ReapReport, ReapRequest, ReapStep, SessionId};
use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;
use thiserror::Error;

use super::adopted;
use super::cgroup::Cgroup;
use super::reap::{self, Outcome, Scope, wait_until_ended};
use super::signal::Signaller;
use super::spawn::SESSION_VARIABLE;
use super::sweep::Mark;
use super::table;
use crate::memory;

/// 4 threads: one stuck process (5 s) must not make the other sessions wait.
pub const THREADS: usize = 4;

/// 4,096 waiting orders: each awake session has one outstanding at most. One that finds no room
/// is told so, and its ladder comes back.
pub const QUEUE_MAX: usize = 4096;

/// 2 s for a keeper without children to leave after it was asked to.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// How often [`ReaperPool::idle`] looks. Only a daemon that ends waits for it.
const IDLE_LOOK_EVERY: Duration = Duration::from_millis(5);

/// The queue is full; the order was not taken and its reply will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the reaper's queue is full")]
pub struct Full;

/// The memory and number of processes below one keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeUsage {
    /// Above the tree.
    pub keeper: ProcIdentity,
    /// Living processes, the keeper not counted.
    pub processes: usize,
    /// Their proportional set sizes, summed up, in bytes.
    pub pss_bytes: u64,
}

/// Called with the result of a step, on a thread of the reaper.
pub type ReapReply = Box<dyn FnOnce(ReapReport) + Send>;

/// Called with one entry per keeper that still runs, in the order asked.
pub type MeasureReply = Box<dyn FnOnce(Vec<TreeUsage>) + Send>;

/// Called with how the keeper ended; `None` when it was no child of this process.
pub type CollectReply = Box<dyn FnOnce(Option<ExitStatus>) + Send>;

enum Order {
    Step(ReapRequest, ReapReply),
    Measure(Vec<ProcIdentity>, MeasureReply),
    Collect(ProcIdentity, CollectReply),
}

/// An order that is counted until it is done.
struct Queued {
    order: Order,
    _pending: Arc<()>,
}

/// The running threads. They end once the pool is dropped and its queue is empty.
pub struct ReaperPool {
    queue: Sender<Queued>,
    /// Counted by what is queued or under way.
    pending: Arc<()>,
}

impl fmt::Debug for ReaperPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaperPool")
            .field("queued", &self.queue.len())
            .finish_non_exhaustive()
    }
}

impl ReaperPool {
    /// Starts `threads` threads that share one queue of `queue_max` orders.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(threads: usize, queue_max: usize) -> io::Result<Self> {
        let (queue, orders) = bounded(queue_max);
        for number in 0..threads {
            let orders: Receiver<Queued> = orders.clone();
            let work = move || {
                for queued in &orders {
                    let ends_a_session = matches!(queued.order, Order::Collect(..));
                    carry_out(queued.order);
                    if ends_a_session && orders.is_empty() {
                        memory::give_back();
                    }
                }
            };
            let _detached = thread::Builder::new()
                .name(format!("reaper-{number}"))
                .spawn(work)?;
        }
        Ok(Self {
            queue,
            pending: Arc::new(()),
        })
    }

    /// Queues one step; `reply` is called once it is done, or at once when there is no room: then
    /// nothing was done, and the tree is not said to be empty.
    pub fn submit(&self, request: ReapRequest, reply: ReapReply) {
        match self
            .queue
            .try_send(self.counted(Order::Step(request, reply)))
        {
            Ok(()) => {}
            Err(TrySendError::Full(queued) | TrySendError::Disconnected(queued)) => {
                if let Order::Step(request, reply) = queued.order {
                    tracing::error!(session = %request.session, "the reaper has no room");
                    reply(report(&request, Outcome::default(), Duration::ZERO));
                }
            }
        }
    }

    /// Returns once everything that was queued is done.
    pub async fn idle(&self) {
        while Arc::strong_count(&self.pending) > 1 {
            tokio::time::sleep(IDLE_LOOK_EVERY).await;
        }
    }

    fn counted(&self, order: Order) -> Queued {
        Queued {
            order,
            _pending: Arc::clone(&self.pending),
        }
    }

    /// Queues measuring the trees below these keepers.
    ///
    /// # Errors
    /// [`Full`]: `reply` is dropped.
    pub fn measure(&self, keepers: Vec<ProcIdentity>, reply: MeasureReply) -> Result<(), Full> {
        self.queue(Order::Measure(keepers, reply))
    }

    /// Queues collecting a keeper that was told to leave, or that has ended unasked. One that
    /// does not leave within 2 s is killed, but only if its tree is empty.
    ///
    /// # Errors
    /// [`Full`]: `reply` is dropped.
    pub fn collect(&self, keeper: ProcIdentity, reply: CollectReply) -> Result<(), Full> {
        self.queue(Order::Collect(keeper, reply))
    }

    fn queue(&self, order: Order) -> Result<(), Full> {
        self.queue.try_send(self.counted(order)).map_err(|_| Full)
    }
}

fn carry_out(order: Order) {
    match order {
        Order::Step(request, reply) => reply(run(request)),
        Order::Measure(keepers, reply) => {
            reply(keepers.into_iter().filter_map(measure_tree).collect());
        }
        Order::Collect(keeper, reply) => reply(collect_keeper(keeper)),
    }
}

/// Runs one step. A keeper that was killed from outside has left its tree to others; the session's
/// mark, the cgroup, and adoption by this process lead to it then.
fn run(request: ReapRequest) -> ReapReport {
    let started = Instant::now();
    let ReapRequest {
        session,
        step,
        keeper,
        ..
    } = request;
    let outcome = match reap::run(step, &scope(Scope::keeper(keeper), &request)) {
        Err(error) if table::is_gone(&error) => {
            tracing::warn!(%session, %keeper, "the keeper is lost");
            let outcome = reap::run(step, &scope(Scope::lost(session_mark(session)), &request));
            let ended = outcome.as_ref().ok().filter(|outcome| outcome.empty);
            adopted::collect(ended.map_or(&[], |outcome| &outcome.processes));
            outcome
        }
        outcome => outcome,
    };
    let outcome = outcome.unwrap_or_else(|error| {
        tracing::error!(%session, ?step, error = %error, "failed to look at a process tree");
        // Not known to be empty: the session must not be told that it is.
        Outcome::default()
    });
    report(&request, outcome, started.elapsed())
}

fn scope(scope: Scope, request: &ReapRequest) -> Scope {
    let open = |path| Cgroup::of_launch(path, request.session, request.incarnation);
    let cgroup = match request.cgroup.as_deref().map(open) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
            tracing::error!(session = %request.session, %error, "failed to open a cgroup");
            None
        }
        opened => opened.and_then(Result::ok),
    };
    scope
        .in_cgroup(cgroup)
        .keeping(request.keep.clone(), request.agent)
}

fn report(request: &ReapRequest, outcome: Outcome, took: Duration) -> ReapReport {
    let ReapRequest {
        session,
        incarnation,
        step,
        ..
    } = *request;
    let Outcome {
        processes,
        survivors,
        kept,
        empty,
    } = outcome;
    ReapReport {
        session,
        incarnation,
        step,
        processes,
        survivors,
        kept,
        empty,
        took,
    }
}

fn session_mark(session: SessionId) -> Mark {
    Mark {
        entry: format!("{SESSION_VARIABLE}={session}"),
        exclude: Vec::new(),
    }
}

fn measure_tree(keeper: ProcIdentity) -> Option<TreeUsage> {
    let tree = reap::run(ReapStep::Snapshot, &Scope::keeper(keeper)).ok()?;
    let pss_bytes = tree.processes.iter().map(|process| process.pss_bytes).sum();
    Some(TreeUsage {
        keeper,
        processes: tree.processes.len(),
        pss_bytes,
    })
}

fn collect_keeper(keeper: ProcIdentity) -> Option<ExitStatus> {
    if !wait_until_ended(keeper, Instant::now() + LEAVE_MAX) && is_childless(keeper) {
        // It was asked and has nothing left to hold; stopped by somebody, perhaps.
        drop(Signaller::new().send_to(keeper, Signal::KILL));
        let _ended = wait_until_ended(keeper, Instant::now() + LEAVE_MAX);
    }
    adopted::forget_own(keeper);
    // `WNOHANG`: a keeper that cannot die must not take a thread with it.
    match waitpid(Pid::from_raw(keeper.pid()), Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(_, code)) => Some(ExitStatus::Code(code)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(ExitStatus::Signal(signal as i32)),
        Ok(_) | Err(Errno::ECHILD) => None,
        Err(errno) => {
            tracing::warn!(%keeper, %errno, "failed to collect a keeper");
            None
        }
    }
}

fn is_childless(keeper: ProcIdentity) -> bool {
    table::children_of(keeper).is_ok_and(|children| children.is_empty())
}
