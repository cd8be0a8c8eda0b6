//! The registry actor: owns the lifecycles of sessions.
//!
//! Fed by [`crate::DaemonHandle`] (requests) and by session actors. It makes a session's actor when
//! something concerns the session, lets it go when it sleeps, paces starts, and notices actors
//! that vanished: those are failed sessions, whose trees are ended before anything else.
//!
//! Invariant: decisions are `drowse_policy::registry`'s. Here, requests wait for records and trees.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use actix::{
    Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, ResponseFuture,
    WrapFuture,
};
use drowse_messages::{
    Accepted, AccountChange, HostChanged, HostEnd, MessageId, MessageQueued, OpenSession, Order,
    Profile, Progress, Refusal, SavedSession, SendMessage, SessionEvent, SessionId, SessionReport,
    StartGranted, Stop, StopHow, Suspend, Who,
};
use drowse_policy::registry::{Effect, Input, Registry};
use drowse_policy::session::{Session, Times};
use tokio::sync::oneshot;

use crate::adopt::TakenOver;
use crate::bus::Publish;
use crate::handle::{refusal_of, refusal_of_message};
use crate::leftover::{self, Mourned};
use crate::ports::{Ports, StoreError};
use crate::session::{Fence, Handed, Leave, Parcel, Peers, SessionActor};
use crate::status::{Awoke, Opened, Phase, Slept};

/// How long starts may take to be undone, and teardowns to end, before the daemon is replaced. 15 s:
/// above what the graces add up to unless configured; what takes longer is ended by the next one.
const SUSPEND_MAX: Duration = Duration::from_secs(15);

/// Open a session.
#[derive(Debug, Message)]
#[rtype(result = "Result<SessionReport, Refusal>")]
pub(crate) struct Open(pub(crate) OpenSession);

/// Accept a message: on disk when the answer comes.
#[derive(Debug, Message)]
#[rtype(result = "Result<Accepted, Refusal>")]
pub(crate) struct Send {
    pub(crate) id: SessionId,
    pub(crate) message: SendMessage,
}

/// Queue a parked message again.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub(crate) struct Retry {
    pub(crate) id: SessionId,
    pub(crate) message: MessageId,
}

/// Pass an order on.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub(crate) struct Pass {
    pub(crate) id: SessionId,
    pub(crate) order: Order,
}

/// Have a session go on with another environment.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub(crate) struct Change {
    pub(crate) id: SessionId,
    pub(crate) change: AccountChange,
}

/// Something is new about the host of a session.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct FromHost {
    pub(crate) id: SessionId,
    pub(crate) changed: HostChanged,
}

/// Shut every session down; answered when all trees are gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Drain;

/// Make the actor of a session whose backend was taken over.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Adopt(pub(crate) TakenOver);

/// Leave every session to the next daemon. Answered when each backend has come to a point where
/// that one can go on, and all that was known before is with the store.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SuspendAll;

/// Let go of the backends as they are.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct LetBackendsGo;

/// Serve, and deliver what was accepted before: these sessions have messages that wait, or keep
/// processes that are to be watched.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Serve {
    pub(crate) wanted: Vec<SessionId>,
}

/// The configuration was read again.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Reload;

/// A session says something of its own lifecycle.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct FromSession {
    pub(crate) id: SessionId,
    pub(crate) said: Said,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Said {
    AskStart,
    StartSettled,
    Suspended,
    HostEnded,
    MaySleep { handled: u64 },
    Gone { orderly: bool },
}

/// Something for a session.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Deliver {
    id: SessionId,
    parcel: Parcel,
}

/// See the module.
#[derive(Debug)]
pub struct RegistryActor {
    /// Taken out while a step runs.
    registry: Option<Registry>,
    ports: Ports,
    peers: Option<Peers>,
    sessions: BTreeMap<SessionId, Addr<SessionActor>>,
    /// What arrived for sessions whose actor is not there, in order.
    kept: BTreeMap<SessionId, Vec<Parcel>>,
    /// Who waits for the end of the drain.
    draining: Vec<oneshot::Sender<()>>,
    /// Who waits for sessions that can be left to the next daemon.
    suspending: Vec<oneshot::Sender<()>>,
}

/// The actors the registry speaks to; it is one of the session's peers itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Meet(pub(crate) Peers);

impl RegistryActor {
    /// A registry that serves nothing before it is told to.
    #[must_use]
    pub fn new(ports: Ports) -> Self {
        let starting_max = ports.catalog.starting_max();
        Self {
            registry: Some(Registry::new(starting_max)),
            ports,
            peers: None,
            sessions: BTreeMap::new(),
            kept: BTreeMap::new(),
            draining: Vec::new(),
            suspending: Vec::new(),
        }
    }

    fn policy(&self) -> &Registry {
        self.registry
            .as_ref()
            .expect("the registry is present: feed() puts it back")
    }

    fn peers(&self) -> &Peers {
        self.peers
            .as_ref()
            .expect("peers are met before anything is served")
    }

    /// One step; `parcel` is what arrived, if the input says so.
    fn feed(&mut self, input: Input, mut parcel: Option<Parcel>, ctx: &mut Context<Self>) {
        let registry = self
            .registry
            .take()
            .expect("the registry is present: feed() puts it back");
        let (registry, effects) = registry.step(input);
        self.registry = Some(registry);
        for effect in effects {
            self.carry_out(effect, &mut parcel, ctx);
        }
    }

    fn carry_out(&mut self, effect: Effect, parcel: &mut Option<Parcel>, ctx: &mut Context<Self>) {
        match effect {
            Effect::Load(id) => self.load(id, ctx),
            Effect::Keep(id) => self.kept.entry(id).or_default().extend(parcel.take()),
            Effect::Hand(id) => {
                let kept = self.kept.remove(&id).unwrap_or_default();
                kept.into_iter()
                    .chain(parcel.take())
                    .for_each(|parcel| self.hand(id, parcel));
            }
            Effect::Disown(id) => {
                let session = id.to_string();
                self.refuse_kept(id, &Refusal::NoSuchSession { session });
            }
            Effect::Grant(id) => self.hand(id, Parcel::Input(StartGranted.into())),
            Effect::LetGo(id) => {
                if let Some(session) = self.sessions.get(&id) {
                    session.do_send(Leave);
                }
            }
            Effect::Mourn(id) => self.mourn(id, ctx),
            Effect::Suspend(id) => self.hand(id, Parcel::Input(Suspend.into())),
            Effect::Suspended => {
                for waiting in self.suspending.drain(..) {
                    let _gone = waiting.send(());
                }
            }
            Effect::ShutDown(id) => {
                let stop = Stop {
                    how: StopHow::Shutdown,
                    by: Who::Daemon,
                };
                self.hand(id, Parcel::Input(Order::Stop(stop).into()));
            }
            Effect::Drained => {
                for waiting in self.draining.drain(..) {
                    let _gone = waiting.send(());
                }
            }
        }
    }

    fn hand(&self, id: SessionId, parcel: Parcel) {
        if let Some(session) = self.sessions.get(&id) {
            session.do_send(Handed(parcel));
        }
    }

    fn refuse_kept(&mut self, id: SessionId, refusal: &Refusal) {
        for parcel in self.kept.remove(&id).unwrap_or_default() {
            parcel.refuse(refusal);
        }
    }

    fn load(&mut self, id: SessionId, ctx: &mut Context<Self>) {
        let saved = self.ports.store.load(id);
        ctx.spawn(
            saved
                .into_actor(self)
                .map(move |saved, this, ctx| match saved {
                    Ok(saved) => this.make(saved, ctx),
                    Err(error) => {
                        if error != StoreError::NotFound {
                            tracing::error!(session = %id, %error, "failed to load a session");
                        }
                        this.refuse_kept(id, &refusal_of(error, &id.to_string()));
                        this.feed(Input::LoadFailed(id), None, ctx);
                    }
                }),
        );
    }

    /// Makes the actor of a session as the store has it.
    fn make(&mut self, mut saved: SavedSession, ctx: &mut Context<Self>) {
        // A message whose announcement is kept joins when that is handed over, behind whatever
        // was ordered before it: a stop must not cancel what came after it.
        let kept = self.kept.get(&saved.profile.id);
        saved.queued.retain(|queued| {
            let announces = |parcel: &Parcel| parcel.message() == Some(queued.message);
            !kept.is_some_and(|kept| kept.iter().any(announces))
        });
        let id = saved.profile.id;
        match self.start_actor(saved) {
            Ok(_) => self.feed(Input::Loaded(id), None, ctx),
            Err(refusal) => {
                self.refuse_kept(id, &refusal);
                self.feed(Input::LoadFailed(id), None, ctx);
            }
        }
    }

    fn start_actor(&mut self, saved: SavedSession) -> Result<Addr<SessionActor>, Refusal> {
        let (id, recipe) = (saved.profile.id, &saved.profile.recipe);
        let catalog = &self.ports.catalog;
        let Some(traits) = catalog.traits(&recipe.agent, &recipe.protocol) else {
            let detail = format!("there is no adapter for {:?}", recipe.protocol.as_str());
            tracing::error!(session = %id, "{detail}");
            let field = "protocol".to_owned();
            return Err(Refusal::Invalid { field, detail });
        };
        let limits = catalog.limits(&recipe.agent, &recipe.cwd, &saved.profile.limits);
        let session = Session::restore(&saved, traits, limits, self.ports.clock.now());
        let times = Times {
            state_since: saved.state_since,
            last_active: saved.last_active,
        };
        let peers = self.peers().clone();
        peers.status.do_send(Awoke(saved.progress.state));
        let profile = Rc::new(saved.profile);
        let actor = SessionActor::new(session, profile, times, self.ports.clone(), peers).start();
        self.sessions.insert(id, actor.clone());
        Ok(actor)
    }

    /// A session's actor vanished: a fault of ours. Its tree is ended, and the record says so.
    fn mourn(&mut self, id: SessionId, ctx: &mut Context<Self>) {
        tracing::error!(session = %id, "the session's actor vanished; ending its processes");
        self.ports.backends.end_host(id, HostEnd::Exited(None));
        self.feed(Input::HostWent(id), None, ctx);
        let Ports { store, trees, .. } = self.ports.clone();
        let at = self.ports.clock.wall();
        let work = async move { leftover::mourn(&*store, &*trees, id, at).await };
        ctx.spawn(work.into_actor(self).map(move |mourned, this, ctx| {
            this.tell_mourned(id, mourned);
            this.feed(Input::Mourned(id), None, ctx);
        }));
    }

    fn tell_mourned(&self, id: SessionId, mourned: Result<Mourned, StoreError>) {
        let Peers { status, bus, .. } = self.peers();
        let into = match mourned {
            Ok(Mourned { state, told }) => {
                let session = Some(id);
                for what in told {
                    bus.do_send(Publish { session, what });
                }
                Some(state)
            }
            Err(error) => {
                tracing::error!(session = %id, %error, "failed to write a session's end down");
                None
            }
        };
        status.do_send(Slept { id, into });
    }

    /// Tells readers and subscribers that the daemon takes nothing new.
    fn tell_of_the_end(&self, what: SessionEvent) {
        let Peers { status, bus, .. } = self.peers();
        status.do_send(Phase {
            ready: false,
            draining: true,
        });
        let session = None;
        bus.do_send(Publish { session, what });
    }

    fn admit(&self) -> Result<(), Refusal> {
        if self.policy().admits() {
            Ok(())
        } else {
            Err(Refusal::Draining)
        }
    }
}

impl Actor for RegistryActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Facts from sessions are never refused for want of room: `do_send` ignores the capacity.
        // This one is for requests from other threads.
        ctx.set_mailbox_capacity(1024);
    }
}

impl Handler<Meet> for RegistryActor {
    type Result = ();

    fn handle(&mut self, Meet(peers): Meet, _: &mut Context<Self>) {
        self.peers = Some(peers);
    }
}

impl Handler<Serve> for RegistryActor {
    type Result = ();

    fn handle(&mut self, serve: Serve, ctx: &mut Context<Self>) {
        self.feed(Input::Recovered, None, ctx);
        self.peers().status.do_send(Phase {
            ready: true,
            draining: false,
        });
        for id in serve.wanted {
            let nudge = Parcel::Input(drowse_messages::IdleTick.into());
            self.feed(Input::Arrived(id), Some(nudge), ctx);
        }
    }
}

impl Handler<Adopt> for RegistryActor {
    type Result = ();

    fn handle(&mut self, Adopt(taken): Adopt, ctx: &mut Context<Self>) {
        let TakenOver { saved, adopted } = taken;
        let (id, incarnation) = (saved.profile.id, adopted.incarnation);
        // Its adapter is there: it has just taken the backend over.
        if let Ok(actor) = self.start_actor(saved) {
            let parcel = Parcel::Input(adopted.into());
            self.feed(Input::Adopted(id), Some(parcel), ctx);
            let facts = actor.recipient();
            self.ports.backends.follow(id, incarnation, facts);
        }
    }
}

impl Handler<SuspendAll> for RegistryActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: SuspendAll, ctx: &mut Context<Self>) -> Self::Result {
        let (done, suspended) = oneshot::channel();
        self.suspending.push(done);
        self.tell_of_the_end(SessionEvent::Restarting);
        self.feed(Input::Suspend, None, ctx);
        let this = ctx.address();
        Box::pin(async move {
            if tokio::time::timeout(SUSPEND_MAX, suspended).await.is_err() {
                tracing::warn!("some sessions are left in the middle of a start or a teardown");
            }
            // A registry that is gone has nothing to let go of.
            let _gone = this.send(LetBackendsGo).await;
        })
    }
}

impl Handler<LetBackendsGo> for RegistryActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: LetBackendsGo, _: &mut Context<Self>) -> Self::Result {
        let backends = self.ports.backends.suspend();
        let sessions: Vec<_> = self.sessions.values().cloned().collect();
        let store = self.ports.store.clone();
        Box::pin(async move {
            backends.await;
            for session in sessions {
                // One that is gone has dealt with everything.
                let _gone = session.send(Fence).await;
            }
            // Answered once all that was written before is on the disk.
            if let Err(error) = store.put_at_rest(Vec::new()).await {
                tracing::error!(%error, "the last writes may not have reached the disk");
            }
        })
    }
}

impl Handler<Reload> for RegistryActor {
    type Result = ();

    fn handle(&mut self, _: Reload, ctx: &mut Context<Self>) {
        self.feed(
            Input::StartingMax(self.ports.catalog.starting_max()),
            None,
            ctx,
        );
        for session in self.sessions.values() {
            session.do_send(crate::session::Relimit);
        }
    }
}

impl Handler<Open> for RegistryActor {
    type Result = ResponseFuture<Result<SessionReport, Refusal>>;

    fn handle(&mut self, Open(open): Open, _: &mut Context<Self>) -> Self::Result {
        if let Err(refusal) = self.admit() {
            return Box::pin(async move { Err(refusal) });
        }
        let created = self.ports.clock.wall();
        let name = open
            .name
            .map_or_else(|| open.id.to_string(), |name| name.to_string());
        let profile = Profile {
            id: open.id,
            name,
            recipe: open.recipe,
            limits: open.limits,
            created,
        };
        let stored = self.ports.store.open(profile.clone());
        let Peers { status, bus, .. } = self.peers().clone();
        Box::pin(async move {
            stored
                .await
                .map_err(|error| refusal_of(error, &profile.name))?;
            let report = SessionReport::new(&profile, Progress::default(), 0);
            status.do_send(Opened);
            let what = SessionEvent::Opened {
                report: Box::new(report.clone()),
            };
            bus.do_send(Publish {
                session: Some(profile.id),
                what,
            });
            Ok(report)
        })
    }
}

impl Handler<Send> for RegistryActor {
    type Result = ResponseFuture<Result<Accepted, Refusal>>;

    fn handle(&mut self, send: Send, ctx: &mut Context<Self>) -> Self::Result {
        let Send { id, message } = send;
        let priority = message.priority;
        if let Err(refusal) = self.policy().admits_message(id) {
            return Box::pin(async move { Err(refusal) });
        }
        let (stored, this) = (self.ports.store.enqueue(id, message), ctx.address());
        Box::pin(async move {
            let accepted = stored
                .await
                .map_err(|error| refusal_of(error, &id.to_string()))?;
            if !accepted.duplicate {
                let queued = MessageQueued {
                    message: accepted.message,
                    priority,
                };
                this.do_send(Deliver {
                    id,
                    parcel: Parcel::Input(queued.into()),
                });
            }
            Ok(accepted)
        })
    }
}

impl Handler<Retry> for RegistryActor {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, retry: Retry, ctx: &mut Context<Self>) -> Self::Result {
        let Retry { id, message } = retry;
        if let Err(refusal) = self.policy().admits_message(id) {
            return Box::pin(async move { Err(refusal) });
        }
        let (stored, this) = (self.ports.store.requeue(id, message), ctx.address());
        Box::pin(async move {
            let queued = stored
                .await
                .map_err(|error| refusal_of_message(error, message))?;
            this.do_send(Deliver {
                id,
                parcel: Parcel::Input(queued.into()),
            });
            Ok(())
        })
    }
}

impl Handler<Pass> for RegistryActor {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, Pass { id, order }: Pass, ctx: &mut Context<Self>) -> Self::Result {
        if let (Order::Wake(_), Err(refusal)) = (&order, self.admit()) {
            return Box::pin(async move { Err(refusal) });
        }
        if !self.policy().takes_orders() {
            return Box::pin(async move { Err(Refusal::Draining) });
        }
        let (reply, answer) = oneshot::channel();
        self.feed(Input::Arrived(id), Some(Parcel::Order(order, reply)), ctx);
        Box::pin(async move { answer.await.unwrap_or(Err(Refusal::SessionFailed)) })
    }
}

impl Handler<Change> for RegistryActor {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, Change { id, change }: Change, ctx: &mut Context<Self>) -> Self::Result {
        if let Err(refusal) = self.admit() {
            return Box::pin(async move { Err(refusal) });
        }
        let (reply, answer) = oneshot::channel();
        let parcel = Parcel::Change(change, reply);
        self.feed(Input::Arrived(id), Some(parcel), ctx);
        Box::pin(async move { answer.await.unwrap_or(Err(Refusal::SessionFailed)) })
    }
}

impl Handler<Deliver> for RegistryActor {
    type Result = ();

    fn handle(&mut self, Deliver { id, parcel }: Deliver, ctx: &mut Context<Self>) {
        self.feed(Input::Arrived(id), Some(parcel), ctx);
    }
}

impl Handler<FromHost> for RegistryActor {
    type Result = ();

    fn handle(&mut self, FromHost { id, changed }: FromHost, ctx: &mut Context<Self>) {
        match changed {
            HostChanged::Attached { pid, .. } => self.feed(Input::HostCame(id, pid), None, ctx),
            HostChanged::Lost => self.feed(Input::HostWent(id), None, ctx),
            HostChanged::Waits | HostChanged::Passed | HostChanged::Closed => {}
        }
        let parcel = Parcel::Input(changed.into());
        self.feed(Input::Arrived(id), Some(parcel), ctx);
    }
}

impl Handler<FromSession> for RegistryActor {
    type Result = ();

    fn handle(&mut self, FromSession { id, said }: FromSession, ctx: &mut Context<Self>) {
        let input = match said {
            Said::AskStart => Input::AskStart(id),
            Said::StartSettled => Input::StartSettled(id),
            Said::Suspended => Input::Suspended(id),
            Said::HostEnded => Input::HostWent(id),
            Said::MaySleep { handled } => Input::MaySleep { id, handled },
            Said::Gone { orderly } => {
                self.sessions.remove(&id);
                if orderly {
                    let into = None;
                    self.peers().status.do_send(Slept { id, into });
                }
                Input::Gone { id, orderly }
            }
        };
        self.feed(input, None, ctx);
    }
}

impl Handler<Drain> for RegistryActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Drain, ctx: &mut Context<Self>) -> Self::Result {
        let (done, drained) = oneshot::channel();
        self.draining.push(done);
        self.tell_of_the_end(SessionEvent::Draining);
        self.feed(Input::Drain, None, ctx);
        Box::pin(async move {
            // A registry that is gone has nothing left to drain.
            let _gone = drained.await;
        })
    }
}
