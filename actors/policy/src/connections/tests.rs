//! Connections on numbers for time: the rules one by one, and random lives of many of them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const START: MonoTime = MonoTime::from_millis(1_000_000);

fn s(seconds: u64) -> MonoTime {
    START.after(Duration::from_secs(seconds))
}

fn greeting(number: u64, role: Role) -> Greeting {
    Greeting {
        role,
        name: format!("client {number}"),
        take_over: false,
        resume: None,
        keep: true,
        idle: None,
        hard: None,
        fresh: ConnectionId(number),
        key: key(number),
    }
}

fn key(number: u64) -> ResumeKey {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    ResumeKey(bytes)
}

/// Connections and a short way to speak to them.
#[derive(Default)]
struct World(Connections);

impl World {
    fn greet(&mut self, socket: u64, greeting: Greeting, at: MonoTime) -> Vec<Effect> {
        let greeted = Input::Greeted(SocketId(socket), Box::new(greeting));
        self.0.step(greeted, at)
    }

    /// Connection and socket `number` as a driver.
    fn driver(number: u64) -> Self {
        let mut world = Self::default();
        world.greet(number, greeting(number, Role::Drive), START);
        world
    }

    fn call(
        &mut self,
        call: u64,
        kind: CallKind,
        timeout: Option<u64>,
        at: MonoTime,
    ) -> Vec<Effect> {
        let called = Input::Called {
            socket: SocketId(1),
            call: CallId(call),
            kind,
            timeout: timeout.map(Duration::from_secs),
        };
        self.0.step(called, at)
    }

    fn lose(&mut self, socket: u64, at: MonoTime) -> Vec<Effect> {
        self.0
            .step(Input::Gone(SocketId(socket), Farewell::Lost), at)
    }

    fn resume(&mut self, socket: u64, number: u64, at: MonoTime) -> Vec<Effect> {
        let resume = Some(key(number));
        let greeting = Greeting {
            resume,
            ..greeting(999, Role::Watch)
        };
        self.greet(socket, greeting, at)
    }

    fn take_over(&mut self, number: u64, at: MonoTime) -> Vec<Effect> {
        let take_over = true;
        let greeting = Greeting {
            take_over,
            ..greeting(number, Role::Drive)
        };
        self.greet(number, greeting, at)
    }

    fn hear(&mut self, at: MonoTime) -> Vec<Effect> {
        self.0.step(Input::Heard(SocketId(1)), at)
    }

    fn tick(&mut self, at: MonoTime) -> Vec<Effect> {
        self.0.step(Input::Tick, at)
    }
}

fn fail(call: u64, code: FailureCode) -> Effect {
    Effect::Fail(SocketId(1), CallId(call), code)
}

/// Keeps the client of socket 1 alive until then, and collects all effects.
fn live_until(world: &mut World, from: u64, to: u64) -> Vec<(u64, Effect)> {
    let mut all = Vec::new();
    for second in from..=to {
        all.extend(world.hear(s(second)).into_iter().map(|fx| (second, fx)));
    }
    all
}

/// Behaviour 104: 120 s, the client's own bound and 30 s, 1 h at most; none for a prompt and for 0.
#[test]
fn every_call_has_its_deadline() {
    for (kind, timeout, expected) in [
        (CallKind::Read, None, Some(120)),
        (CallKind::Act, Some(10), Some(40)),
        (CallKind::Act, Some(10_000), Some(3600)),
        (CallKind::Act, Some(0), None),
        (CallKind::Prompt, Some(10), None),
    ] {
        let mut world = World::driver(1);
        assert_eq!(
            world.call(7, kind, timeout, START),
            [Effect::Run(SocketId(1), CallId(7))]
        );
        let told = live_until(&mut world, 1, 4000);
        let mut failed = told.iter().filter(|(_, fx)| matches!(fx, Effect::Fail(..)));
        assert_eq!(
            failed.next().map(|(second, _)| *second),
            expected,
            "{kind:?} {timeout:?}"
        );
        assert_eq!(failed.next(), None);
    }
}

/// Behaviour 104: while a person is waited for, no deadline passes; afterwards what was left does.
#[test]
fn a_deadline_stands_still_while_a_person_is_waited_for() {
    let mut world = World::driver(1);
    world.call(7, CallKind::Read, None, START);
    live_until(&mut world, 1, 100);
    world.0.step(Input::PersonAwaited(true), s(100));
    assert_eq!(live_until(&mut world, 101, 5000), []);
    world.0.step(Input::PersonAwaited(false), s(5000));
    assert_eq!(live_until(&mut world, 5001, 5019), []);
    assert_eq!(world.hear(s(5020)), [fail(7, FailureCode::Unanswered)]);
}

/// Behaviour 105: past its deadline a call is abandoned; its late answer is dropped, once.
#[test]
fn a_late_answer_is_dropped() {
    let mut world = World::driver(1);
    world.call(7, CallKind::Read, None, START);
    live_until(&mut world, 1, 120);
    let late = world.0.step(Input::Answered(CallId(7)), s(121));
    assert_eq!(late, [Effect::DropLate(CallId(7))]);
    world.call(8, CallKind::Read, None, s(121));
    let answered = world.0.step(Input::Answered(CallId(8)), s(122));
    assert_eq!(answered, [Effect::Deliver(SocketId(1), CallId(8))]);
}

/// A call in flight holds its session; reading does not, and neither does what is meant to end it.
#[test]
fn what_is_under_way_holds_the_session() {
    let mut world = World::driver(1);
    world.call(7, CallKind::Act, None, START);
    assert_eq!(world.hear(s(1)), [Effect::Hold(s(120))]);
    let answered = world.0.step(Input::Answered(CallId(7)), s(2));
    assert!(answered.contains(&Effect::Lift), "{answered:?}");
    world.call(8, CallKind::Read, None, s(2));
    world.call(9, CallKind::End, None, s(2));
    assert_eq!(world.hear(s(10)), []);
}

/// A lease for a call without a deadline is renewed at half of its time and no more often.
#[test]
fn an_endless_call_renews_its_lease() {
    let mut world = World::driver(1);
    world.call(7, CallKind::Act, Some(0), START);
    let told = live_until(&mut world, 1, 900);
    let held: Vec<_> = told.iter().map(|(second, _)| *second).collect();
    assert_eq!(held, [1, 301, 601]);
    assert_eq!(world.0.held_until, Some(s(1201)));
}

/// Behaviours 108, 109, D34: the session is held 60 s for a client that dropped, and what was under
/// way is abandoned; the key takes the same connection up again.
#[test]
fn a_dropped_client_finds_its_connection_again() {
    let mut world = World::driver(1);
    world.call(7, CallKind::Act, None, START);
    assert_eq!(world.lose(1, s(3)), [Effect::Hold(s(63))]);
    let back = world.resume(2, 1, s(62));
    let welcome = Effect::Welcome {
        socket: SocketId(2),
        connection: ConnectionId(1),
        key: key(1),
        role: Role::Drive,
        resumed: true,
    };
    assert_eq!(back, [welcome, Effect::Lift]);
    let late = world.0.step(Input::Answered(CallId(7)), s(63));
    assert_eq!(late, [Effect::DropLate(CallId(7))]);
}

/// Behaviour 110: after the 60 s the key opens nothing, and the session is held no longer.
#[test]
fn nobody_is_waited_for_longer_than_that() {
    let mut world = World::driver(1);
    world.lose(1, START);
    assert_eq!(world.tick(s(60)), [Effect::Lift]);
    assert!(world.0.is_empty());
    let refused = world.resume(2, 1, s(61));
    let rejection = reject(FailureCode::ResumeRefused);
    assert_eq!(refused, [Effect::Reject(SocketId(2), rejection)]);
}

/// D34: the late close of an old socket changes nothing for the new one.
#[test]
fn a_stale_close_hurts_nobody() {
    let mut world = World::driver(1);
    let back = world.resume(2, 1, s(5));
    assert_eq!(
        back[0],
        Effect::Close(SocketId(1), CloseWhy::Superseded, Vec::new())
    );
    assert_eq!(world.lose(1, s(6)), []);
    assert_eq!(world.0.of(SocketId(2)), Some(ConnectionId(1)));
}

/// D34: a frozen client is pinged after one heartbeat and noticed after two.
#[test]
fn a_frozen_client_is_noticed_within_two_heartbeats() {
    let mut world = World::driver(1);
    assert_eq!(world.0.next_deadline(), Some(s(15)));
    assert_eq!(world.tick(s(15)), [Effect::Ping(SocketId(1))]);
    assert_eq!(world.0.next_deadline(), Some(s(30)));
    assert_eq!(
        world.tick(s(30)),
        [Effect::Cut(SocketId(1)), Effect::Hold(s(90))]
    );
    assert_eq!(world.tick(s(90)), [Effect::Lift]);
}

/// One driver; a second one is told who, and comes in on purpose only.
#[test]
fn a_second_driver_comes_in_on_purpose_only() {
    let mut world = World::driver(1);
    let told = world.greet(2, greeting(2, Role::Drive), START);
    let by = Some("client 1".to_owned());
    let rejection = Rejection {
        by,
        ..reject(FailureCode::Driven)
    };
    assert_eq!(told, [Effect::Reject(SocketId(2), rejection)]);
    let taken = world.take_over(3, START);
    assert_eq!(
        taken[0],
        Effect::Close(SocketId(1), CloseWhy::Superseded, Vec::new())
    );
    assert_eq!(world.0.driver(), Some(ConnectionId(3)));
    let Effect::Reject(_, rejection) = &world.resume(4, 1, s(1))[0] else {
        panic!("it was replaced");
    };
    assert!(rejection.superseded);
}

/// Two clients that take over from each other for ever do so less and less often.
#[test]
fn a_fight_of_two_clients_is_damped() {
    let mut world = World::driver(1);
    let mut granted = Vec::new();
    for second in 0..300 {
        let told = world.take_over(100 + second, s(second));
        if told.iter().any(|fx| matches!(fx, Effect::Welcome { .. })) {
            granted.push(second);
        }
    }
    assert_eq!(granted, [0, 5, 15, 35, 75, 135, 195, 255]);
    world.greet(800, greeting(800, Role::Drive), s(550));
    assert!(matches!(
        world.take_over(900, s(556))[..],
        [Effect::Close(..), Effect::Welcome { .. }]
    ));
    assert_eq!(world.0.take_overs.rounds(), 1, "the fight is forgotten");
}

/// Watchers look on, as many as like to, and give no orders.
#[test]
fn a_watcher_gives_no_orders() {
    let mut world = World::default();
    for number in 1..=20 {
        let told = world.greet(number, greeting(number, Role::Watch), START);
        assert!(matches!(told[..], [Effect::Welcome { .. }]));
    }
    assert_eq!(
        world.call(7, CallKind::Prompt, None, START),
        [fail(7, FailureCode::NotDriver)]
    );
    assert_eq!(
        world.call(8, CallKind::Read, None, START),
        [Effect::Run(SocketId(1), CallId(8))]
    );
    assert_eq!(world.lose(1, START), [], "nobody holds for a watcher");
}

/// Behaviour 101: silent without a call in flight; the answer counts once more.
#[test]
fn an_idle_connection_is_closed() {
    let mut world = World::default();
    let idle = Some(Duration::from_secs(60));
    let greeting = Greeting {
        idle,
        ..greeting(1, Role::Drive)
    };
    world.greet(1, greeting, START);
    world.call(7, CallKind::Prompt, None, s(30));
    assert_eq!(live_until(&mut world, 31, 500), []);
    world.0.step(Input::Answered(CallId(7)), s(500));
    assert_eq!(live_until(&mut world, 501, 559), []);
    let closed = Effect::Close(SocketId(1), CloseWhy::IdleTimeout, Vec::new());
    assert_eq!(world.hear(s(560)), [closed]);
}

/// Behaviour 102: never reset, warned of, and it says which calls have an unknown outcome.
#[test]
fn a_hard_limit_cuts_what_runs_and_says_so() {
    let mut world = World::default();
    let hard = Some(Duration::from_secs(300));
    let greeting = Greeting {
        hard,
        ..greeting(1, Role::Drive)
    };
    world.greet(1, greeting, START);
    world.call(7, CallKind::Prompt, None, s(200));
    let told = live_until(&mut world, 201, 300);
    let warning = Effect::Warn(SocketId(1), HARD_LIMIT_WARNING);
    let closed = Effect::Close(SocketId(1), CloseWhy::HardTimeout, vec![CallId(7)]);
    assert_eq!(told, [(240, warning), (300, closed)]);
}

/// A client that says goodbye is not waited for, and what the agent does goes on (behaviour 116).
#[test]
fn a_goodbye_leaves_nothing_behind() {
    let mut world = World::driver(1);
    world.call(7, CallKind::Prompt, None, START);
    world.0.step(Input::Gone(SocketId(1), Farewell::Said), s(1));
    assert!(world.0.is_empty());
    let late = world.0.step(Input::Answered(CallId(7)), s(9));
    assert_eq!(late, [Effect::DropLate(CallId(7))]);
}

#[test]
fn calls_are_bounded_abandoned_ones_included() {
    let mut world = World::driver(1);
    for call in 0..CALLS_MAX as u64 {
        world.call(call, CallKind::Prompt, None, START);
    }
    let refused = [fail(900, FailureCode::TooManyCalls)];
    assert_eq!(world.call(900, CallKind::Read, None, START), refused);
    world.lose(1, START);
    world.resume(1, 1, s(1));
    assert_eq!(world.call(900, CallKind::Read, None, s(1)), refused);
    world.0.step(Input::Answered(CallId(3)), s(2));
    assert_ne!(world.call(900, CallKind::Read, None, s(2)), refused);
}

#[derive(Clone, Debug)]
enum Step {
    Greet {
        role: bool,
        take_over: bool,
        keep: bool,
        limits: bool,
    },
    Resume(u64),
    Hear(u64),
    Call {
        socket: u64,
        kind: u8,
        timeout: Option<u64>,
    },
    Answer(u64),
    Lose(u64, bool),
    Stuck(u64),
    Person(bool),
    Wait(u64),
    End(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0..12_u64;
    let step = prop_oneof![
        3 => any::<(bool, bool, bool, bool)>().prop_map(|(role, take_over, keep, limits)| {
            Step::Greet { role, take_over, keep, limits }
        }),
        2 => number.clone().prop_map(Step::Resume),
        2 => number.clone().prop_map(Step::Hear),
        6 => (number.clone(), 0..4_u8, proptest::option::of(0..5000_u64))
            .prop_map(|(socket, kind, timeout)| Step::Call { socket, kind, timeout }),
        4 => (0..40_u64).prop_map(Step::Answer),
        2 => (number.clone(), any::<bool>()).prop_map(|(socket, said)| Step::Lose(socket, said)),
        1 => number.prop_map(Step::Stuck),
        1 => any::<bool>().prop_map(Step::Person),
        5 => (0..40_000_u64).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::End),
    ];
    proptest::collection::vec(step, 1..120)
}

fn input(step: &Step, sockets: &mut u64, calls: &mut u64) -> Option<Input> {
    let greet = |sockets: &mut u64, greeting: Greeting| {
        *sockets += 1;
        Input::Greeted(SocketId(*sockets), Box::new(greeting))
    };
    Some(match step {
        Step::Greet {
            role,
            take_over,
            keep,
            limits,
        } => {
            let role = if *role { Role::Drive } else { Role::Watch };
            let limit = limits.then_some(Duration::from_secs(90));
            let greeting = Greeting {
                take_over: *take_over,
                keep: *keep,
                idle: limit,
                hard: limit.map(|it| it * 2),
                ..greeting(*sockets + 1, role)
            };
            greet(sockets, greeting)
        }
        Step::Resume(number) => {
            let resume = Some(key(*number));
            let greeting = Greeting {
                resume,
                ..greeting(*sockets + 1, Role::Watch)
            };
            greet(sockets, greeting)
        }
        Step::Hear(socket) => Input::Heard(SocketId(*socket)),
        Step::Call {
            socket,
            kind,
            timeout,
        } => {
            *calls += 1;
            let kinds = [
                CallKind::Read,
                CallKind::Act,
                CallKind::Prompt,
                CallKind::End,
            ];
            Input::Called {
                socket: SocketId(*socket),
                call: CallId(*calls),
                kind: kinds[usize::from(*kind)],
                timeout: timeout.map(Duration::from_secs),
            }
        }
        Step::Answer(call) => Input::Answered(CallId(*call)),
        Step::Lose(socket, _) if *socket > *sockets => return None,
        Step::Lose(socket, said) => {
            let farewell = if *said {
                Farewell::Said
            } else {
                Farewell::Lost
            };
            Input::Gone(SocketId(*socket), farewell)
        }
        Step::Stuck(socket) => Input::Stuck(SocketId(*socket)),
        Step::Person(awaited) => Input::PersonAwaited(*awaited),
        Step::Wait(_) => return None,
        Step::End(all) if *all => Input::Ended(CloseWhy::Draining),
        Step::End(_) => Input::SessionHardLimit,
    })
}

/// What the outside has seen, to hold effects against.
#[derive(Default)]
struct Seen {
    running: BTreeMap<CallId, SocketId>,
    settled: BTreeSet<CallId>,
    over: BTreeSet<SocketId>,
    held: Option<MonoTime>,
}

impl Seen {
    fn take(&mut self, fx: &Effect, now: MonoTime) {
        match fx {
            Effect::Run(socket, call) => {
                assert!(
                    self.running.insert(*call, *socket).is_none(),
                    "ran twice: {call:?}"
                );
            }
            Effect::Deliver(socket, call) => {
                assert!(
                    self.running.contains_key(call) && self.settled.insert(*call),
                    "{fx:?}"
                );
                assert_eq!(self.running[call], *socket, "delivered elsewhere");
            }
            Effect::Fail(_, call, code) => {
                assert!(self.settled.insert(*call), "settled twice: {fx:?}");
                let ran = self.running.contains_key(call);
                assert_eq!(
                    ran,
                    code.may_have_run() && *code == FailureCode::Unanswered,
                    "{fx:?}"
                );
            }
            Effect::Close(socket, _, unknown) => {
                assert!(self.over.insert(*socket), "closed twice");
                for call in unknown {
                    assert!(self.settled.insert(*call), "settled twice: {call:?}");
                }
            }
            Effect::Cut(socket) => assert!(self.over.insert(*socket), "closed twice"),
            Effect::Hold(until) => {
                assert!(*until > now, "a lease of no time");
                self.held = Some(*until);
            }
            Effect::Lift => assert!(self.held.take().is_some(), "lifted what was not taken"),
            Effect::Welcome { socket, .. }
            | Effect::Reject(socket, _)
            | Effect::Ping(socket)
            | Effect::Warn(socket, _) => assert!(!self.over.contains(socket), "{fx:?}"),
            Effect::DropLate(_) => {}
        }
    }
}

proptest! {
    /// Whatever comes in whatever order: one driver, one end of each call, nothing to a socket that
    /// is over, a deadline that lies ahead, and the same effects for the same inputs.
    #[test]
    fn the_invariants_hold(steps in steps()) {
        let (mut world, mut twin) = (Connections::default(), Connections::default());
        let (mut now, mut sockets, mut calls) = (START, 0, 0);
        let mut seen = Seen::default();
        for step in &steps {
            if let Step::Wait(millis) = step {
                now = now.after(Duration::from_millis(*millis));
            }
            let input = input(step, &mut sockets, &mut calls).unwrap_or(Input::Tick);
            if let Input::Gone(socket, _) = &input {
                seen.over.insert(*socket);
            }
            let fx = world.step(input.clone(), now);
            prop_assert_eq!(&fx, &twin.step(input, now));
            for effect in &fx {
                if let (Step::Lose(..), Effect::Close(..) | Effect::Cut(_)) = (step, effect) {
                    continue;
                }
                seen.take(effect, now);
            }
            let drivers = world.connections.values().filter(|it| it.role == Role::Drive).count();
            prop_assert!(drivers <= 1);
            let live: Vec<_> = world.connections.values().filter_map(Connection::socket).collect();
            let distinct: BTreeSet<_> = live.iter().collect();
            prop_assert_eq!(distinct.len(), live.len());
            prop_assert_eq!(seen.held, world.held_until);
            let next = world.next_deadline();
            prop_assert!(next.is_none_or(|at| at > now), "{:?} at {:?}", next, now);
        }
    }

    /// Left alone, everything is forgotten: no connection and no lease stays for ever.
    #[test]
    fn left_alone_everything_ends(steps in steps()) {
        let mut world = Connections::default();
        let (mut now, mut sockets, mut calls) = (START, 0, 0);
        for step in &steps {
            if let Some(input) = input(step, &mut sockets, &mut calls) {
                world.step(input, now);
            }
        }
        let mut ticks = 0;
        while let Some(at) = world.next_deadline() {
            now = at;
            world.step(Input::Tick, now);
            ticks += 1;
            prop_assert!(ticks < 1000, "it goes on and on");
        }
        prop_assert!(world.is_empty());
    }
}
