//! The session actor: every message becomes an input, every effect a port call or a message.
//!
//! Fed by its backend's link ([`Facts`]), the registry (`Handed`) and itself ([`IdleTick`]).
//! It keeps exactly one timer, for `Session::next_deadline`, and re-arms it only when a deadline
//! moves closer: an early tick is harmless, so a busy session does not rebuild timers.
//!
//! Invariant: `feed` is the only place where a session changes. Deliberately not here: any `if`
//! about behaviour.

use std::rc::Rc;
use std::time::Duration;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, SpawnHandle};
use drowse_messages::{
    AccountChange, Activity, ActivityKind, ChildExited, Delivered, IdleTick, KeptEnded,
    LaunchFailed, Launched, MessageId, MonoTime, Order, Profile, ReapReport, Refusal, SessionEvent,
    StatusChanged, Stop, TaskRoster, TreeEmptied,
};
use drowse_policy::session::{Session, Times};
use drowse_policy::{Effect, Input, trace};
use tokio::sync::oneshot;

use crate::bus::{BusActor, Publish};
use crate::handle::refusal_of;
use crate::ports::{Launch, Ports};
use crate::reaper::{Reap, ReaperActor};
use crate::registry::{FromSession, RegistryActor, Said};
use crate::status::{Forgotten, Reported, StatusActor};

/// 1 s: readers see seconds, and a busy agent says a hundred pieces of output in each.
const OUTPUT_REPORT_EVERY: Duration = Duration::from_secs(1);

/// Facts about a backend, in order: all that one read of its output brought.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Facts(pub Vec<Input>);

/// Something the registry hands over; counted, so that nothing is lost when the actor leaves.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Handed(pub(crate) Parcel);

/// What can be handed over.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// A fact.
    Input(Input),
    /// An order, with whoever waits to hear whether it was accepted.
    Order(Order, oneshot::Sender<Result<(), Refusal>>),
    /// Another environment, and the order to go on with it.
    Change(AccountChange, oneshot::Sender<Result<(), Refusal>>),
}

impl Parcel {
    /// Tells whoever waits that nothing came of it.
    pub(crate) fn refuse(self, refusal: &Refusal) {
        if let Self::Order(_, reply) | Self::Change(_, reply) = self {
            // Whoever asked may have gone meanwhile.
            let _gone = reply.send(Err(refusal.clone()));
        }
    }

    /// The message it announces.
    pub(crate) fn message(&self) -> Option<MessageId> {
        match self {
            Self::Input(Input::MessageQueued(queued)) => Some(queued.message),
            Self::Input(_) | Self::Order(..) | Self::Change(..) => None,
        }
    }
}

/// Answered once everything that was said to the actor before is dealt with.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Fence;

/// The registry lets the actor go.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Leave;

/// The configuration was read again.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Relimit;

/// The actors a session speaks to.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub(crate) registry: Addr<RegistryActor>,
    pub(crate) reaper: Addr<ReaperActor>,
    pub(crate) status: Addr<StatusActor>,
    pub(crate) bus: Addr<BusActor>,
}

/// One awake session.
#[derive(Debug)]
pub struct SessionActor {
    /// Taken out while a step runs, so that a panic leaves nothing half changed.
    session: Option<Session>,
    profile: Rc<Profile>,
    times: Times,
    ports: Ports,
    peers: Peers,
    /// Things handed over by the registry and dealt with.
    handled: u64,
    timer: Option<(MonoTime, SpawnHandle)>,
    reported: MonoTime,
    orderly: bool,
}

impl SessionActor {
    pub(crate) fn new(
        session: Session,
        profile: Rc<Profile>,
        times: Times,
        ports: Ports,
        peers: Peers,
    ) -> Self {
        Self {
            session: Some(session),
            profile,
            times,
            ports,
            peers,
            handled: 0,
            timer: None,
            reported: MonoTime::default(),
            orderly: false,
        }
    }

    /// One step: the only way a session changes. Says how an order was answered.
    fn feed(&mut self, input: &Input, ctx: &mut Context<Self>) -> Result<(), Refusal> {
        let (now, wall) = (self.ports.clock.now(), self.ports.clock.wall());
        let session = self
            .session
            .take()
            .expect("the session is present: feed() puts it back");
        let (session, effects) = session.at(wall).step(input, now);
        tracing::debug!(session = %self.profile.id, "{}", Line { now, input, effects: &effects });
        let only_output = is_output(input) && effects.len() <= 1;
        self.session = Some(session);
        let mut answer = Ok(());
        for effect in effects {
            if let Some(refusal) = self.carry_out(effect, ctx) {
                answer = Err(refusal);
            }
        }
        if !only_output || now.since(self.reported) >= OUTPUT_REPORT_EVERY {
            self.report(now);
        }
        self.arm(now, ctx);
        answer
    }

    /// Does what a step wants done; a refusal is for whoever gave the order.
    fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) -> Option<Refusal> {
        let id = self.profile.id;
        let Ports {
            store, backends, ..
        } = &self.ports;
        match effect {
            Effect::AskStart => self.tell_registry(Said::AskStart),
            Effect::StartSettled => self.tell_registry(Said::StartSettled),
            Effect::Launch {
                incarnation,
                conversation,
                eof_grace,
                term_grace,
                relayed,
            } => {
                let recipe = self.profile.recipe.clone();
                let session = id;
                let launch = Launch {
                    session,
                    incarnation,
                    recipe,
                    conversation,
                    eof_grace,
                    term_grace,
                    relayed,
                };
                backends.launch(launch, ctx.address().recipient());
            }
            Effect::Tell { incarnation, order } => backends.order(id, incarnation, order),
            Effect::EndHost(end) => {
                backends.end_host(id, end);
                self.tell_registry(Said::HostEnded);
            }
            Effect::Watch(kept) => backends.watch(id, *kept, ctx.address().recipient()),
            Effect::Reap(request) => {
                self.peers.reaper.do_send(Reap {
                    request,
                    answer: ctx.address().recipient(),
                });
            }
            Effect::Settle {
                message,
                state,
                text,
            } => store.settle(message, state, text),
            Effect::Save(progress) => {
                self.times.last_active = self.ports.clock.wall();
                store.save(id, *progress);
            }
            Effect::Forget => {
                store.forget(id);
                self.peers.status.do_send(Forgotten(id));
            }
            Effect::Publish(what) => self.publish(what),
            Effect::Suspended => self.tell_registry(Said::Suspended),
            Effect::Sleep => self.tell_registry(Said::MaySleep {
                handled: self.handled,
            }),
            Effect::Refuse(refusal) => return Some(refusal),
        }
        None
    }

    fn publish(&mut self, what: SessionEvent) {
        if let SessionEvent::StateChanged { .. } = what {
            self.times.state_since = self.ports.clock.wall();
        }
        self.peers.bus.do_send(Publish {
            session: Some(self.profile.id),
            what,
        });
    }

    fn tell_registry(&self, said: Said) {
        self.peers.registry.do_send(FromSession {
            id: self.profile.id,
            said,
        });
    }

    fn report(&mut self, now: MonoTime) {
        self.reported = now;
        if let Some(session) = &self.session {
            let report = session.report(&self.profile, self.times, now);
            let stale_facts = session.stale_facts();
            self.peers.status.do_send(Reported {
                at: now,
                report,
                stale_facts,
                retired: session.retired(),
            });
        }
    }

    /// Makes sure that a tick comes no later than the next deadline.
    fn arm(&mut self, now: MonoTime, ctx: &mut Context<Self>) {
        let deadline = self.session.as_ref().and_then(Session::next_deadline);
        match (deadline, self.timer) {
            (None, Some((_, timer))) => {
                ctx.cancel_future(timer);
                self.timer = None;
            }
            (Some(deadline), Some((armed, _))) if armed <= deadline => {}
            (Some(deadline), timer) => {
                if let Some((_, timer)) = timer {
                    ctx.cancel_future(timer);
                }
                // One more millisecond: the clock counts whole ones, and a tick just before its
                // deadline would only come again.
                let wait = deadline.since(now) + Duration::from_millis(1);
                self.timer = Some((deadline, ctx.notify_later(IdleTick, wait)));
            }
            (None, None) => {}
        }
    }

    /// Puts the new environment in, has policy decide what follows, and writes it down; a refusal
    /// leaves everything as it was. A launch takes place in a later step at the earliest, and finds
    /// the new one.
    fn change_account(
        &mut self,
        change: AccountChange,
        reply: oneshot::Sender<Result<(), Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        let former = self.profile.clone();
        let mut profile = Profile::clone(&former);
        profile.recipe.env.extend(change.env);
        let recipe = profile.recipe.clone();
        self.profile = Rc::new(profile);
        let order = Order::ChangeAccount(change.order);
        if let Err(refusal) = self.feed(&Input::Order(order), ctx) {
            self.profile = former;
            // Whoever asked may have gone meanwhile.
            let _gone = reply.send(Err(refusal));
            return;
        }
        let id = self.profile.id;
        let resealed = self.ports.store.reseal(id, recipe);
        actix_rt::spawn(async move {
            let answer = resealed.await;
            let _gone = reply.send(answer.map_err(|error| refusal_of(error, &id.to_string())));
        });
    }

    fn take(&mut self, input: impl Into<Input>, ctx: &mut Context<Self>) {
        // Only orders are refused, and their answers go through `Handed`.
        let _answer = self.feed(&input.into(), ctx);
    }
}

fn is_output(input: &Input) -> bool {
    matches!(
        input,
        Input::Activity(Activity {
            kind: ActivityKind::Output(_),
            ..
        })
    )
}

/// Renders a step only if somebody listens.
struct Line<'a> {
    now: MonoTime,
    input: &'a Input,
    effects: &'a [Effect],
}

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&trace::line(self.now, self.input, self.effects))
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        self.report(self.ports.clock.now());
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.tell_registry(Said::Gone {
            orderly: self.orderly,
        });
    }
}

impl Handler<Facts> for SessionActor {
    type Result = ();

    fn handle(&mut self, facts: Facts, ctx: &mut Context<Self>) {
        facts.0.into_iter().for_each(|fact| self.take(fact, ctx));
    }
}

impl Handler<Handed> for SessionActor {
    type Result = ();

    fn handle(&mut self, Handed(parcel): Handed, ctx: &mut Context<Self>) {
        self.handled += 1;
        match parcel {
            Parcel::Input(input) => self.take(input, ctx),
            Parcel::Order(order, reply) => {
                let answer = self.feed(&Input::Order(order), ctx);
                // Whoever asked may have gone meanwhile.
                let _gone = reply.send(answer);
            }
            Parcel::Change(change, reply) => self.change_account(change, reply, ctx),
        }
    }
}

impl Handler<Leave> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: Leave, ctx: &mut Context<Self>) {
        self.orderly = true;
        ctx.stop();
    }
}

impl Handler<Fence> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: Fence, _: &mut Context<Self>) {}
}

impl Handler<IdleTick> for SessionActor {
    type Result = ();

    fn handle(&mut self, tick: IdleTick, ctx: &mut Context<Self>) {
        self.timer = None;
        self.take(tick, ctx);
    }
}

impl Handler<Stop> for SessionActor {
    type Result = ();

    fn handle(&mut self, stop: Stop, ctx: &mut Context<Self>) {
        self.take(Order::Stop(stop), ctx);
    }
}

impl Handler<Relimit> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: Relimit, ctx: &mut Context<Self>) {
        let Profile { recipe, limits, .. } = &*self.profile;
        let limits = self
            .ports
            .catalog
            .limits(&recipe.agent, &recipe.cwd, limits);
        self.take(limits, ctx);
    }
}

macro_rules! facts {
    ($($fact:ty),* $(,)?) => {
        $(impl Handler<$fact> for SessionActor {
            type Result = ();

            fn handle(&mut self, fact: $fact, ctx: &mut Context<Self>) {
                self.take(fact, ctx);
            }
        })*
    };
}

facts! {
    Activity, StatusChanged, TaskRoster, Launched, LaunchFailed, ChildExited, TreeEmptied,
    Delivered, ReapReport, KeptEnded,
}
