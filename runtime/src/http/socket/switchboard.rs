//! Which sockets there are, and what policy says of them: the shell around
//! [`drowse_policy::connections`], one machine for each session somebody is connected to.
//!
//! Fed by sockets, by the events of those sessions and by its own timers. Decides nothing.
//! Invariants: [`Switchboard::feed`] is the only place where a machine steps; a session that nobody
//! is connected to has nothing here, no timer either; what waits for a socket is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, SpawnHandle};
use actix_web::rt;
use drowse_actors::ports::Clock;
use drowse_messages::{
    CloseWhy, Event, FailureCode, HoldId, HoldLifted, HoldTaken, MonoTime, Order, Reason, Role,
    SessionEvent, SessionId, SessionState,
};
use drowse_policy::connections::{
    CallId, ConnectionId, Connections, Effect, Farewell, Greeting, Input, Rejection, ResumeKey,
    SocketId,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::super::front::Front;
use super::tape::Tape;
use crate::clock::SystemClock;

/// 256 orders wait for a socket that is busy writing: each of its calls makes two.
pub(super) const ORDERS_MAX: usize = 256;

/// 2,048 events wait for the switchboard; it does nothing but pass them on.
const EVENTS_MAX: usize = 2048;

/// What a socket is told.
#[derive(Debug)]
pub(super) enum Told {
    Welcome {
        connection: ConnectionId,
        key: ResumeKey,
        role: Role,
        resumed: bool,
        tape: Arc<Tape>,
    },
    Rejected(Rejection),
    Run(CallId),
    Deliver(CallId),
    Fail(CallId, FailureCode),
    Ping,
    Warn(std::time::Duration),
    Close(CloseWhy, Vec<CallId>),
    Cut,
}

/// A socket says hello.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Join {
    pub(super) session: SessionId,
    pub(super) socket: SocketId,
    pub(super) greeting: Greeting,
    pub(super) orders: mpsc::Sender<Box<Told>>,
    /// The session waits for a person now.
    pub(super) person_awaited: bool,
    /// Of a tape, should there be none yet.
    pub(super) epoch: String,
}

/// Something happened on a socket.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Feed {
    pub(super) session: SessionId,
    pub(super) input: Input,
}

/// A socket is over.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Leave {
    pub(super) session: SessionId,
    pub(super) socket: SocketId,
    pub(super) farewell: Farewell,
}

/// Something happened in a session; `None`: nothing more will.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Heard(SessionId, Option<Event>);

/// A deadline of a session's connections is there.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Due(SessionId);

/// The connections to one session.
#[derive(Debug)]
struct Exchange {
    policy: Connections,
    sockets: BTreeMap<SocketId, mpsc::Sender<Box<Told>>>,
    tape: Arc<Tape>,
    pump: JoinHandle<()>,
    timer: Option<(MonoTime, SpawnHandle)>,
    hold: HoldId,
    person_awaited: bool,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Switchboard {
    daemon: Arc<dyn Front>,
    clock: SystemClock,
    exchanges: BTreeMap<SessionId, Exchange>,
}

impl Switchboard {
    pub(super) fn new(daemon: Arc<dyn Front>) -> Self {
        Self {
            daemon,
            clock: SystemClock,
            exchanges: BTreeMap::new(),
        }
    }

    fn feed(&mut self, session: SessionId, input: Input, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        let Some(exchange) = self.exchanges.get_mut(&session) else {
            return;
        };
        for effect in exchange.policy.step(input, now) {
            exchange.apply(effect, session, now, &self.daemon);
        }
        if exchange.policy.is_empty() && exchange.sockets.is_empty() {
            if let Some((_, timer)) = exchange.timer.take() {
                ctx.cancel_future(timer);
            }
            self.exchanges.remove(&session);
            return;
        }
        let next = exchange.policy.next_deadline();
        if exchange.timer.map(|(at, _)| at) == next {
            return;
        }
        if let Some((_, timer)) = exchange.timer.take() {
            ctx.cancel_future(timer);
        }
        exchange.timer = next.map(|at| (at, ctx.notify_later(Due(session), at.since(now))));
    }
}

impl Exchange {
    fn tell(&self, socket: SocketId, told: Told) {
        let Some(orders) = self.sockets.get(&socket) else {
            return;
        };
        if orders.try_send(Box::new(told)).is_err() {
            tracing::debug!(socket = socket.0, "a socket is told nothing more");
        }
    }

    fn apply(&self, effect: Effect, session: SessionId, now: MonoTime, daemon: &Arc<dyn Front>) {
        match effect {
            Effect::Welcome {
                socket,
                connection,
                key,
                role,
                resumed,
            } => {
                tracing::debug!(%session, connection = connection.0, resumed, "a client connected");
                let tape = self.tape.clone();
                let welcome = Told::Welcome {
                    connection,
                    key,
                    role,
                    resumed,
                    tape,
                };
                self.tell(socket, welcome);
            }
            Effect::Reject(socket, rejection) => self.tell(socket, Told::Rejected(rejection)),
            Effect::Run(socket, call) => self.tell(socket, Told::Run(call)),
            Effect::Deliver(socket, call) => self.tell(socket, Told::Deliver(call)),
            Effect::Fail(socket, call, code) => self.tell(socket, Told::Fail(call, code)),
            Effect::DropLate(call) => {
                tracing::info!(%session, call = call.0, "dropped a late answer: nobody waits for it");
            }
            Effect::Ping(socket) => self.tell(socket, Told::Ping),
            Effect::Warn(socket, left) => self.tell(socket, Told::Warn(left)),
            Effect::Close(socket, why, unknown) => self.tell(socket, Told::Close(why, unknown)),
            Effect::Cut(socket) => self.tell(socket, Told::Cut),
            Effect::Hold(until) => {
                let taken = HoldTaken {
                    id: self.hold,
                    why: "a client is connected, or expected back".to_owned(),
                    owner: "connections".to_owned(),
                    ttl: until.since(now),
                };
                pass_on(daemon.clone(), session, Order::TakeHold(taken));
            }
            Effect::Lift => {
                let lifted = HoldLifted { id: self.hold };
                pass_on(daemon.clone(), session, Order::LiftHold(lifted));
            }
        }
    }
}

/// Orders of one exchange reach the registry in the order they were given: each is in its mailbox
/// at the first poll.
fn pass_on(daemon: Arc<dyn Front>, session: SessionId, order: Order) {
    rt::spawn(async move {
        // A session without a process needs no hold.
        if let Err(refusal) = daemon.order(session, order).await {
            tracing::debug!(%session, %refusal, "no hold for a client");
        }
    });
}

impl Actor for Switchboard {
    type Context = Context<Self>;
}

impl Handler<Join> for Switchboard {
    type Result = ();

    fn handle(&mut self, join: Join, ctx: &mut Context<Self>) {
        let session = join.session;
        let exchange = self.exchanges.entry(session).or_insert_with(|| Exchange {
            policy: Connections::default(),
            sockets: BTreeMap::new(),
            tape: Arc::new(Tape::new(join.epoch)),
            pump: pump(&self.daemon, session, ctx.address()),
            timer: None,
            hold: hold_id(join.socket),
            person_awaited: false,
        });
        exchange.sockets.insert(join.socket, join.orders);
        let changed = exchange.person_awaited != join.person_awaited;
        exchange.person_awaited = join.person_awaited;
        if changed {
            self.feed(session, Input::PersonAwaited(join.person_awaited), ctx);
        }
        let greeted = Input::Greeted(join.socket, Box::new(join.greeting));
        self.feed(session, greeted, ctx);
    }
}

/// Unlike those that are counted up from 1; a number that a script can read (below 2^53).
const fn hold_id(socket: SocketId) -> HoldId {
    HoldId((1 << 52) + socket.0)
}

fn pump(
    daemon: &Arc<dyn Front>,
    session: SessionId,
    board: actix::Addr<Switchboard>,
) -> JoinHandle<()> {
    let mut live = daemon.subscribe(EVENTS_MAX, Some(session));
    rt::spawn(async move {
        loop {
            let event = live.next().await;
            let over = event.is_none();
            // Awaited, so that events wait in the subscription, which is bounded.
            if board.send(Heard(session, event)).await.is_err() || over {
                return;
            }
        }
    })
}

impl Handler<Heard> for Switchboard {
    type Result = ();

    fn handle(&mut self, Heard(session, event): Heard, ctx: &mut Context<Self>) {
        let Some(exchange) = self.exchanges.get_mut(&session) else {
            return;
        };
        let Some(event) = event else {
            return self.feed(session, Input::Ended(CloseWhy::Draining), ctx);
        };
        let mut input = None;
        if let SessionEvent::Snapshot { .. } = event.what {
            // Of the whole daemon, and of no use to whoever watches one session.
            return;
        } else if let SessionEvent::Gap { missed } = event.what {
            return exchange.tape.lose(missed);
        } else if let SessionEvent::StateChanged { to, .. } = event.what {
            let awaited = to == SessionState::NeedsYou;
            let changed = exchange.person_awaited != awaited;
            exchange.person_awaited = awaited;
            input = changed.then_some(Input::PersonAwaited(awaited));
        } else if let SessionEvent::Ending { reason, .. } = event.what {
            input = (reason == Reason::HardLimit).then_some(Input::SessionHardLimit);
        } else if let SessionEvent::Removed = event.what {
            input = Some(Input::Ended(CloseWhy::NoSuchSession));
        }
        exchange.tape.push(event);
        if let Some(input) = input {
            self.feed(session, input, ctx);
        }
    }
}

impl Handler<Feed> for Switchboard {
    type Result = ();

    fn handle(&mut self, Feed { session, input }: Feed, ctx: &mut Context<Self>) {
        self.feed(session, input, ctx);
    }
}

impl Handler<Leave> for Switchboard {
    type Result = ();

    fn handle(&mut self, leave: Leave, ctx: &mut Context<Self>) {
        let Some(exchange) = self.exchanges.get_mut(&leave.session) else {
            return;
        };
        exchange.sockets.remove(&leave.socket);
        let gone = Input::Gone(leave.socket, leave.farewell);
        self.feed(leave.session, gone, ctx);
    }
}

impl Handler<Due> for Switchboard {
    type Result = ();

    fn handle(&mut self, Due(session): Due, ctx: &mut Context<Self>) {
        if let Some(exchange) = self.exchanges.get_mut(&session) {
            exchange.timer = None;
        }
        self.feed(session, Input::Tick, ctx);
    }
}
