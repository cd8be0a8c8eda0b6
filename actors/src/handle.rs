//! The way in: [`Daemon`] starts the core actors, [`DaemonHandle`] is what everybody else holds.
//!
//! A handle is cheap to clone and may be sent to any thread. No actor address is visible through
//! it, so an extension can ask for what the API can, and for nothing else. Commands are accepted or
//! refused at once; that they are done is an event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::{Actor, Addr, MailboxError, Recipient};
use drowse_messages::{
    Accepted, AccountChange, Event, HoldId, HoldLifted, HoldTaken, HostChanged, Kept, KeptRelay,
    MessageId, OpenSession, Order, Refusal, Restarting, Running, SavedMessage, SendMessage,
    SessionId, SessionPage, SessionReport, StatusReport,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::adopt::{Recovery, TakenOver};
use crate::bus::{BusActor, EventStream, Sink, Subscribe};
use crate::hold::HoldGuard;
use crate::leftover;
use crate::ports::{Page, Ports, ProcessTrees, Store, StoreError};
use crate::reaper::ReaperActor;
use crate::registry::{
    Adopt, Change, Drain, FromHost, Meet, Open, Pass, RegistryActor, Reload, Retry, Send, Serve,
    SuspendAll,
};
use crate::session::Peers;
use crate::status::{self, GetSession, GetStatus, ListSessions, StatusActor};

/// The core actors of one daemon.
#[derive(Debug)]
pub struct Daemon {
    handle: DaemonHandle,
    ports: Ports,
    /// Sessions with messages that wait, and such as keep something.
    wanted: Vec<SessionId>,
    left_running: Vec<SessionId>,
    /// What sessions keep of ended backends.
    keeping: Vec<(SessionId, Vec<Kept>)>,
    /// What was taken over.
    adopted: Vec<Running>,
    restarts: Option<mpsc::Receiver<RestartAsked>>,
}

/// Somebody asks that the daemon be replaced.
#[derive(Debug)]
pub struct RestartAsked {
    /// Answered once it is known whether that can be done; if so, it begins after the answer.
    pub answer: oneshot::Sender<Result<Restarting, Refusal>>,
}

/// 64 trees at once: each is a thread that mostly waits for processes to go.
const ENDED_AT_ONCE: usize = 64;

/// 4: one is enough, and the others hear the same.
const RESTARTS_MAX: usize = 4;

impl Daemon {
    /// Starts them on the current arbiter, and the sessions that were taken over. Nothing is
    /// served before [`Daemon::serve`].
    #[must_use]
    pub fn start(ports: Ports, recovery: Recovery, mut report: StatusReport) -> Self {
        let Recovery { taken, recovered } = recovery;
        report.adopted = taken.len() as u64;
        let status = StatusActor::new(ports.clone(), report, recovered.states).start();
        let (clock, store) = (ports.clock.clone(), ports.store.clone());
        let bus = BusActor::new(clock, store, status.clone(), recovered.next_seq).start();
        status.do_send(status::Meet(bus.clone()));
        let reaper = ReaperActor::new(ports.trees.clone()).start();
        let registry = RegistryActor::new(ports.clone()).start();
        let peers = Peers {
            registry: registry.clone(),
            reaper,
            status: status.clone(),
            bus: bus.clone(),
        };
        registry.do_send(Meet(peers));
        let holds = Arc::new(AtomicU64::new(first_hold(&taken)));
        let draining = Arc::new(watch::Sender::new(false));
        let (restarts, asked) = mpsc::channel(RESTARTS_MAX);
        let handle = DaemonHandle {
            registry,
            status,
            bus,
            store: ports.store.clone(),
            holds,
            draining,
            restarts,
        };
        let running = taken.iter().map(|taken| &taken.adopted.running);
        let adopted = running.cloned().collect();
        for taken in taken {
            handle.registry.do_send(Adopt(taken));
        }
        let left_running = recovered
            .left_running
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        let mut wanted = recovered.queued;
        wanted.extend(recovered.keeping.iter().map(|(id, _)| *id));
        Self {
            handle,
            ports,
            wanted,
            left_running,
            keeping: recovered.keeping,
            adopted,
            restarts: Some(asked),
        }
    }

    /// Requests to replace the daemon, for whoever can do that. Unless somebody takes them they
    /// are refused.
    ///
    /// # Panics
    /// When they were taken before.
    pub fn restarts(&mut self) -> mpsc::Receiver<RestartAsked> {
        self.restarts.take().expect("they are taken once")
    }

    /// Ends what an earlier daemon left running and this one did not take over, before anything
    /// is started.
    pub async fn end_leftovers(&self) {
        let Ports {
            store,
            trees,
            backends,
            ..
        } = &self.ports;
        for some in self.left_running.chunks(ENDED_AT_ONCE) {
            let ends: Vec<_> = some
                .iter()
                .map(|id| actix_rt::spawn(end_leftover(store.clone(), trees.clone(), *id)))
                .collect();
            for end in ends {
                if end.await.is_err() {
                    tracing::error!("ending a leftover failed inside drowse");
                }
            }
        }
        let kept = self.keeping.iter();
        let kept = kept.flat_map(|(id, all)| all.iter().map(|kept| (*id, kept)));
        let launches = kept.clone().map(|(id, kept)| (id, kept.incarnation));
        for found in backends.end_strays(launches.collect()).await {
            tracing::warn!("left behind by an earlier daemon: {found}");
        }
        let retired = kept.map(|(_, kept)| kept.running.clone());
        let known = self.adopted.iter().cloned().chain(retired);
        for found in trees.sweep(known.collect()).await {
            tracing::warn!("left behind by an earlier daemon: {found}");
        }
    }

    /// The handle for everybody else.
    #[must_use]
    pub fn handle(&self) -> DaemonHandle {
        self.handle.clone()
    }

    /// Takes requests, and delivers the messages that were accepted by an earlier daemon.
    pub fn serve(self) {
        self.handle.registry.do_send(Serve {
            wanted: self.wanted,
        });
    }
}

/// Above the number of every lease that an earlier daemon gave and that holds still: whoever lifts or
/// renews one means that one.
fn first_hold(taken: &[TakenOver]) -> u64 {
    let ages = taken.iter().filter_map(|it| it.adopted.ages.as_ref());
    let newest = ages.flat_map(|ages| ages.leases.keys()).max();
    newest.map_or(1, |newest| newest.0.saturating_add(1))
}

async fn end_leftover(store: Arc<dyn Store>, trees: Arc<dyn ProcessTrees>, id: SessionId) {
    match store.load(id).await {
        Ok(saved) => leftover::end(&*store, &*trees, &saved).await,
        Err(error) => tracing::error!(session = %id, %error, "failed to load a leftover"),
    }
}

/// What clients, the HTTP surface and extensions hold of a daemon.
#[derive(Clone, Debug)]
pub struct DaemonHandle {
    registry: Addr<RegistryActor>,
    pub(crate) status: Addr<StatusActor>,
    bus: Addr<BusActor>,
    store: Arc<dyn Store>,
    holds: Arc<AtomicU64>,
    draining: Arc<watch::Sender<bool>>,
    restarts: mpsc::Sender<RestartAsked>,
}

impl DaemonHandle {
    /// Opens a session; no process is started before its first message or a wake.
    ///
    /// # Errors
    /// `NameTaken`, `Draining`, `StoreFailed`.
    pub async fn open(&self, open: OpenSession) -> Result<SessionReport, Refusal> {
        flat(self.registry.send(Open(open)).await)
    }

    /// Finds a session by id, by a unique prefix of 4 characters or more, or by name.
    ///
    /// # Errors
    /// `NoSuchSession`, `Ambiguous`, `StoreFailed`.
    pub async fn resolve(&self, text: &str) -> Result<SessionId, Refusal> {
        self.store
            .resolve(text.to_owned())
            .await
            .map_err(|error| refusal_of(error, text))
    }

    /// Accepts a message: it is on disk when this returns.
    ///
    /// # Errors
    /// `NoSuchSession`, `InboxFull`, `Draining`, `StoreFailed`.
    pub async fn send(&self, id: SessionId, message: SendMessage) -> Result<Accepted, Refusal> {
        flat(self.registry.send(Send { id, message }).await)
    }

    /// Queues a parked message again, as it was accepted first.
    ///
    /// # Errors
    /// `NotParked`; `NoSuchMessage`, also when it is another session's; `Draining`, `StoreFailed`.
    pub async fn retry(&self, id: SessionId, message: MessageId) -> Result<(), Refusal> {
        flat(self.registry.send(Retry { id, message }).await)
    }

    /// Passes an order on; `Ok` means accepted, not done.
    ///
    /// # Errors
    /// Whatever the session says: `Held`, `NotRunning`, `CannotResume`, `NotPending`, `Invalid`;
    /// `NoSuchSession`, `Draining`.
    pub async fn order(&self, id: SessionId, order: Order) -> Result<(), Refusal> {
        flat(self.registry.send(Pass { id, order }).await)
    }

    /// Has a session go on in its conversation with other variables in its environment: at once
    /// when it is at rest, else once it is, which its report says meanwhile. `Ok`: they are on
    /// disk, and the next launch has them.
    ///
    /// # Errors
    /// `CannotResume` when its agent's conversation would be lost; `NoSuchSession`, `Draining`,
    /// `StoreFailed`.
    pub async fn change_account(
        &self,
        id: SessionId,
        change: AccountChange,
    ) -> Result<(), Refusal> {
        flat(self.registry.send(Change { id, change }).await)
    }

    /// How one session is. Never counts as use of it.
    ///
    /// # Errors
    /// `NoSuchSession`, `StoreFailed`.
    pub async fn report(&self, id: SessionId) -> Result<SessionReport, Refusal> {
        flat(self.status.send(GetSession(id)).await)
    }

    /// Lists sessions: awake ones first, then the most recently used.
    ///
    /// # Errors
    /// `StoreFailed`.
    pub async fn list(&self, page: Page) -> Result<SessionPage, Refusal> {
        flat(self.status.send(ListSessions(page)).await)
    }

    /// How the daemon is; `None` once its actors are gone.
    pub async fn status(&self) -> Option<StatusReport> {
        self.status.send(GetStatus).await.ok()
    }

    /// One message and its fate.
    ///
    /// # Errors
    /// `NoSuchMessage`, `StoreFailed`.
    pub async fn message(&self, id: MessageId) -> Result<SavedMessage, Refusal> {
        let read = self.store.message(id).await;
        read.map_err(|error| refusal_of_message(error, id))
    }

    /// The newest messages of a session, oldest first.
    ///
    /// # Errors
    /// `StoreFailed`.
    pub async fn messages(
        &self,
        id: SessionId,
        limit: usize,
    ) -> Result<Vec<SavedMessage>, Refusal> {
        let messages = self.store.messages(id, limit).await;
        messages.map_err(|error| refusal_of(error, &id.to_string()))
    }

    /// Recorded events, oldest first: those with a number above `after` (a `Gap` first if some were
    /// dropped to make room), or the newest ones.
    ///
    /// # Errors
    /// `StoreFailed`.
    pub async fn events(
        &self,
        after: Option<u64>,
        limit: usize,
        session: Option<SessionId>,
    ) -> Result<Vec<Event>, Refusal> {
        let events = self.store.events(after, limit, session).await;
        events.map_err(|error| refusal_of(error, "events"))
    }

    /// Events from now on, of one session or of all; `capacity` of them wait for a slow reader.
    /// The first is a snapshot.
    #[must_use]
    pub fn subscribe(
        &self,
        name: &str,
        capacity: usize,
        session: Option<SessionId>,
    ) -> EventStream {
        let (stream, sink) = EventStream::new(capacity);
        let name = name.to_owned();
        self.bus.do_send(Subscribe {
            name,
            session,
            sink,
            listed: false,
        });
        stream
    }

    /// Sends events to an actor, which is listed in the status report with its lag.
    pub fn subscribe_actor(&self, name: &str, actor: Recipient<Event>) {
        let (name, sink) = (name.to_owned(), Sink::Actor(actor));
        self.bus.do_send(Subscribe {
            name,
            session: None,
            sink,
            listed: true,
        });
    }

    /// Keeps a session for at most `ttl` (24 h at most), until the guard is dropped.
    ///
    /// # Errors
    /// `NotRunning` when it has no process to keep, `Invalid` for a bad `ttl`, `NoSuchSession`.
    pub async fn hold(
        &self,
        session: SessionId,
        owner: &str,
        why: &str,
        ttl: Duration,
    ) -> Result<HoldGuard, Refusal> {
        let id = HoldId(self.holds.fetch_add(1, Ordering::Relaxed));
        let taken = HoldTaken {
            id,
            why: why.to_owned(),
            owner: owner.to_owned(),
            ttl,
        };
        self.order(session, Order::TakeHold(taken.clone())).await?;
        Ok(HoldGuard::new(self.clone(), session, taken))
    }

    /// Opens a session for a host, which proves itself with `key` when it comes back.
    ///
    /// # Errors
    /// As [`DaemonHandle::open`].
    pub async fn open_relayed(
        &self,
        open: OpenSession,
        key: String,
    ) -> Result<SessionReport, Refusal> {
        let report = self.open(open).await?;
        let memory = Vec::new();
        self.store.keep_relay(report.id, KeptRelay { key, memory });
        Ok(report)
    }

    /// Tells a session what is new about its host. Call it on the arbiter of the core actors, so
    /// that nothing overtakes it.
    pub fn host_changed(&self, id: SessionId, changed: HostChanged) {
        self.registry.do_send(FromHost { id, changed });
    }

    pub(crate) fn lift(&self, session: SessionId, lifted: HoldLifted) {
        self.registry.do_send(Pass {
            id: session,
            order: Order::LiftHold(lifted),
        });
    }

    /// Applies the configuration as the catalog has it now.
    pub fn reload(&self) {
        self.registry.do_send(Reload);
    }

    /// Closes admission in one step and shuts every session down; returns when all trees are gone.
    /// A daemon that `DaemonBuilder::run` runs then ends, as after SIGTERM.
    pub async fn drain(&self) {
        self.draining.send_replace(true);
        // A registry that is gone has drained.
        let _gone = self.registry.send(Drain).await;
    }

    /// Has the daemon replaced by the program it was started from, as that is now: backends live
    /// on, and the next daemon goes on with them. Returns when it begins.
    ///
    /// # Errors
    /// `CannotRestart`, and nothing has changed; `Draining`.
    pub async fn restart(&self) -> Result<Restarting, Refusal> {
        let cannot = || Refusal::CannotRestart {
            detail: "this daemon is part of another program".to_owned(),
        };
        let (answer, answered) = oneshot::channel();
        let asked = self.restarts.try_send(RestartAsked { answer });
        asked.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refusal::Draining,
            mpsc::error::TrySendError::Closed(_) => cannot(),
        })?;
        answered.await.unwrap_or(Err(Refusal::Draining))
    }

    /// Closes admission in one step and leaves every session to the next daemon: backends live on,
    /// starts are undone, teardowns go on for a bounded time. Nothing is heard of backends after
    /// it; the daemon is to end at once.
    pub async fn suspend(&self) {
        // A registry that is gone has nothing to leave.
        let _gone = self.registry.send(SuspendAll).await;
    }

    /// Returns once somebody began a drain.
    pub async fn draining(&self) {
        let mut draining = self.draining.subscribe();
        // The sender lives in this handle, so this ends in no other way.
        drop(draining.wait_for(|draining| *draining).await);
    }
}

pub(crate) fn flat<T>(answer: Result<Result<T, Refusal>, MailboxError>) -> Result<T, Refusal> {
    // The core actors outlive everything but the daemon's end.
    answer.unwrap_or(Err(Refusal::Draining))
}

/// What a store error means to whoever asked for this message.
pub(crate) fn refusal_of_message(error: StoreError, message: MessageId) -> Refusal {
    match error {
        StoreError::NotFound => Refusal::NoSuchMessage { message },
        error @ (StoreError::NameTaken
        | StoreError::Ambiguous(_)
        | StoreError::NotParked(..)
        | StoreError::InboxFull(_)
        | StoreError::Invalid(_)
        | StoreError::Failed(_)) => refusal_of(error, "the message"),
    }
}

/// What a store error means to whoever asked for `what`.
pub(crate) fn refusal_of(error: StoreError, what: &str) -> Refusal {
    match error {
        StoreError::NameTaken => Refusal::NameTaken {
            name: what.to_owned(),
        },
        StoreError::NotFound => Refusal::NoSuchSession {
            session: what.to_owned(),
        },
        StoreError::Ambiguous(candidates) => Refusal::Ambiguous {
            session: what.to_owned(),
            candidates,
        },
        StoreError::NotParked(message, state) => Refusal::NotParked {
            message,
            state: state.code().to_owned(),
        },
        StoreError::InboxFull(queued) => Refusal::InboxFull { queued },
        StoreError::Invalid(detail) => Refusal::Invalid {
            field: "request".to_owned(),
            detail,
        },
        StoreError::Failed(detail) => Refusal::StoreFailed { detail },
    }
}
