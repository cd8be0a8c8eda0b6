//! What the design rests on, as actix 0.13.5 does it. A test that fails here after an update
//! says which rule of the shells has lost its ground.

use std::sync::mpsc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, Addr, AsyncContext, AtomicResponse, Context, Handler, MailboxError,
    Message, ResponseActFuture, Running, Supervised, Supervisor, WrapFuture,
};
use tokio::time::Instant;

use super::{HOUR, MINUTE, SECOND, on_paused_time, pass, settle};

/// What the probe did, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Did {
    Started,
    Restarted,
    Began(u32),
    Ended(u32),
    Saw(u32),
    Ticked,
    Stopping,
    Stopped,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Quick(u32);

#[derive(Message)]
#[rtype(result = "()")]
struct Panic;

#[derive(Message)]
#[rtype(result = "()")]
struct Leave;

/// Takes a second, and lets others in meanwhile.
#[derive(Message)]
#[rtype(result = "()")]
struct Slow(u32);

/// Takes a second, and lets nobody in.
#[derive(Message)]
#[rtype(result = "()")]
struct Atomic(u32);

/// Arms a tick that is due at once, and then sends itself more.
#[derive(Message)]
#[rtype(result = "()")]
struct ArmAndFlood;

#[derive(Message)]
#[rtype(result = "()")]
struct Tick;

#[derive(Message)]
#[rtype(result = "()")]
struct TickEvery(Duration);

struct Probe(mpsc::Sender<Did>);

impl Probe {
    fn did(&self, what: Did) {
        self.0.send(what).unwrap();
    }
}

impl Actor for Probe {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        self.did(Did::Started);
    }

    fn stopping(&mut self, _: &mut Context<Self>) -> Running {
        self.did(Did::Stopping);
        Running::Stop
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.did(Did::Stopped);
    }
}

impl Supervised for Probe {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.did(Did::Restarted);
    }
}

impl Handler<Quick> for Probe {
    type Result = ();

    fn handle(&mut self, Quick(number): Quick, _: &mut Context<Self>) {
        self.did(Did::Saw(number));
    }
}

impl Handler<Panic> for Probe {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Context<Self>) {
        panic!("a fault on purpose");
    }
}

impl Handler<Leave> for Probe {
    type Result = ();

    fn handle(&mut self, _: Leave, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

impl Handler<Slow> for Probe {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, Slow(number): Slow, _: &mut Context<Self>) -> Self::Result {
        self.did(Did::Began(number));
        let done = self.0.clone();
        Box::pin(
            async move {
                tokio::time::sleep(SECOND).await;
                done.send(Did::Ended(number)).unwrap();
            }
            .into_actor(self),
        )
    }
}

impl Handler<Atomic> for Probe {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, Atomic(number): Atomic, ctx: &mut Context<Self>) -> Self::Result {
        AtomicResponse::new(self.handle_slowly(number, ctx))
    }
}

impl Probe {
    fn handle_slowly(
        &mut self,
        number: u32,
        ctx: &mut Context<Self>,
    ) -> ResponseActFuture<Self, ()> {
        Handler::<Slow>::handle(self, Slow(number), ctx)
    }
}

impl Handler<ArmAndFlood> for Probe {
    type Result = ();

    fn handle(&mut self, _: ArmAndFlood, ctx: &mut Context<Self>) {
        ctx.notify_later(Tick, Duration::ZERO);
        for number in 0..1000 {
            ctx.address().do_send(Quick(number));
        }
    }
}

impl Handler<Tick> for Probe {
    type Result = ();

    fn handle(&mut self, _: Tick, _: &mut Context<Self>) {
        self.did(Did::Ticked);
    }
}

impl Handler<TickEvery> for Probe {
    type Result = ();

    fn handle(&mut self, TickEvery(period): TickEvery, ctx: &mut Context<Self>) {
        ctx.run_interval(period, |probe, _| probe.did(Did::Ticked));
    }
}

fn start() -> (Addr<Probe>, mpsc::Receiver<Did>) {
    let (sender, did) = mpsc::channel();
    (Probe(sender).start(), did)
}

fn all(did: &mpsc::Receiver<Did>) -> Vec<Did> {
    did.try_iter().collect()
}

/// So the registry hears of a vanished session from its own last words.
#[test]
fn a_panic_ends_one_actor_and_its_last_words_are_said() {
    on_paused_time(async {
        let ((broken, of_broken), (healthy, of_healthy)) = (start(), start());
        assert_eq!(broken.send(Panic).await, Err(MailboxError::Closed));
        assert!(!broken.connected());
        assert_eq!(healthy.send(Quick(1)).await, Ok(()));
        assert_eq!(all(&of_broken), [Did::Started, Did::Stopping, Did::Stopped]);
        assert_eq!(all(&of_healthy), [Did::Started, Did::Saw(1)]);
    });
}

/// So the registry is the supervisor, not `actix::Supervisor`.
#[test]
fn a_supervisor_restarts_after_a_stop_and_not_after_a_panic() {
    on_paused_time(async {
        let (sender, did) = mpsc::channel();
        let supervised = Supervisor::start(|_| Probe(sender));
        supervised.send(Leave).await.unwrap();
        settle().await;
        assert!(all(&did).contains(&Did::Restarted));
        assert_eq!(supervised.send(Panic).await, Err(MailboxError::Closed));
        settle().await;
        assert!(!all(&did).contains(&Did::Restarted));
        assert!(!supervised.connected());
    });
}

/// So decisions are made in synchronous handlers.
#[test]
fn an_async_handler_lets_other_messages_in_between() {
    on_paused_time(async {
        let (probe, did) = start();
        probe.do_send(Slow(1));
        probe.do_send(Quick(2));
        pass(2 * SECOND).await;
        let order = [Did::Started, Did::Began(1), Did::Saw(2), Did::Ended(1)];
        assert_eq!(all(&did), order);
    });
}

/// So `AtomicResponse` is no way out: an order to stop would wait for it.
#[test]
fn an_atomic_response_keeps_even_a_stop_waiting() {
    on_paused_time(async {
        let (probe, did) = start();
        probe.do_send(Atomic(1));
        probe.do_send(Leave);
        pass(SECOND / 2).await;
        assert_eq!(all(&did), [Did::Started, Did::Began(1)]);
        pass(SECOND).await;
        assert_eq!(all(&did), [Did::Ended(1), Did::Stopping, Did::Stopped]);
    });
}

/// So draining is a state, and a session's actor leaves only after all it was handed.
#[test]
fn stopping_drops_what_is_queued() {
    on_paused_time(async {
        let (probe, did) = start();
        probe.do_send(Quick(1));
        probe.do_send(Leave);
        probe.do_send(Quick(2));
        settle().await;
        let end = [Did::Started, Did::Saw(1), Did::Stopping, Did::Stopped];
        assert_eq!(all(&did), end);
    });
}

/// So facts are sent with `do_send`, and extensions get `try_send` and a count of what they lost.
#[test]
fn do_send_ignores_the_capacity_and_try_send_keeps_it() {
    on_paused_time(async {
        let (probe, did) = start();
        settle().await;
        all(&did);
        let accepted = (0..100).filter(|n| probe.try_send(Quick(*n)).is_ok());
        let accepted = accepted.count();
        assert!((16..=18).contains(&accepted), "{accepted}");
        for number in 0..100 {
            probe.do_send(Quick(number));
        }
        settle().await;
        assert_eq!(all(&did).len(), accepted + 100);
    });
}

/// So a tick that the session scheduled itself sees all activity that was queued before.
#[test]
fn the_mailbox_is_emptied_before_timers() {
    on_paused_time(async {
        let (probe, did) = start();
        probe.send(ArmAndFlood).await.unwrap();
        pass(SECOND).await;
        let did = all(&did);
        assert_eq!(did.len(), 1002);
        assert_eq!(did.last(), Some(&Did::Ticked));
    });
}

/// So shell tests run on virtual time, by sleeping: after one big `advance`, ten ticks that were
/// due in it come in one moment.
#[test]
fn paused_time_reaches_actors_and_an_advance_makes_timers_late() {
    on_paused_time(async {
        let (began, (probe, did)) = (Instant::now(), start());
        probe.do_send(Slow(1));
        pass(24 * HOUR).await;
        assert!(began.elapsed() >= 24 * HOUR);
        assert_eq!(all(&did).last(), Some(&Did::Ended(1)));

        probe.send(TickEvery(MINUTE)).await.unwrap();
        tokio::time::advance(10 * MINUTE).await;
        settle().await;
        assert_eq!(all(&did).len(), 10, "ten minutes at once");
        for _ in 0..10 {
            pass(MINUTE).await;
            assert_eq!(all(&did), [Did::Ticked]);
        }
    });
}
