//! The protocol of connections once more, as simple as it can be said, and random lives of eight
//! clients in which it has to agree with the machine on every word, second by second.
//!
//! Shares no rule with `connections.rs`: budgets count down here where deadlines are moved there.

use std::time::Duration;

use drowse_messages::{CloseWhy, MonoTime, Role};
use proptest::prelude::*;

use super::{
    CallId, CallKind, ConnectionId, Connections, Effect, Farewell, Greeting, Input, ResumeKey,
    SocketId,
};

/// Eight clients: enough for two that fight, some that watch, and some that come back.
const CLIENTS: usize = 8;

/// A call somebody waits for.
struct Open {
    call: u64,
    kind: CallKind,
    /// Seconds it is still waited for; none: as long as it takes.
    budget: Option<u64>,
    age: u64,
}

/// A connection; all times in seconds.
struct Line {
    number: u64,
    role: Role,
    keep: bool,
    idle: Option<u64>,
    hard_left: Option<u64>,
    warned: bool,
    socket: Option<u64>,
    /// Since when nothing was heard, or, without a socket, since when it waits.
    silent: u64,
    quiet: u64,
    open: Vec<Open>,
    abandoned: Vec<u64>,
}

impl Line {
    fn attach(&mut self, socket: u64) {
        self.socket = Some(socket);
        self.silent = 0;
        self.quiet = 0;
    }

    fn abandon(&mut self) {
        let open = self.open.drain(..);
        self.abandoned.extend(open.map(|it| it.call));
    }

    fn warning(&mut self, socket: u64) -> Option<Said> {
        let left = self.hard_left.filter(|it| *it <= 60 && !self.warned)?;
        self.warned = true;
        Some((socket, format!("warn {left}")))
    }

    fn unknown(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.open.iter().map(|it| it.call).collect();
        all.sort_unstable();
        all
    }
}

/// What is said, and to which socket (0: to nobody on a socket).
type Said = (u64, String);

/// The model of one session's connections.
#[derive(Default)]
struct Model {
    lines: Vec<Line>,
    /// Seconds since each take-over of the present fight.
    fight: Vec<u64>,
    replaced: Vec<u64>,
    person: bool,
}

impl Model {
    fn at(&mut self, socket: u64) -> Option<&mut Line> {
        self.lines.iter_mut().find(|it| it.socket == Some(socket))
    }

    fn drop_line(&mut self, number: u64) {
        self.lines.retain(|it| it.number != number);
    }

    fn close(&mut self, number: u64, why: CloseWhy, said: &mut Vec<Said>) {
        let line = self.lines.iter().find(|it| it.number == number);
        let line = line.expect("only lines that exist are closed");
        if let Some(socket) = line.socket {
            said.push((socket, format!("close {why:?} {:?}", line.unknown())));
        }
        self.drop_line(number);
    }

    fn lose(&mut self, number: u64) {
        let line = self.lines.iter_mut().find(|it| it.number == number);
        let line = line.expect("only lines that exist are lost");
        line.abandon();
        line.socket = None;
        line.silent = 0;
        if !line.keep {
            self.drop_line(number);
        }
    }

    fn greet(&mut self, socket: u64, hello: &Hello, fresh: u64) -> Vec<Said> {
        let mut said = Vec::new();
        if self.at(socket).is_some() {
            return vec![(socket, "reject OutOfOrder".into())];
        }
        if let Some(number) = hello.resume {
            let Some(line) = self.lines.iter_mut().find(|it| it.number == number) else {
                let superseded = self.replaced.iter().rev().take(16).any(|it| *it == number);
                let how = if superseded { " superseded" } else { "" };
                return vec![(socket, format!("reject ResumeRefused{how}"))];
            };
            if let Some(old) = line.socket {
                said.push((old, "close Superseded []".into()));
            }
            line.abandon();
            line.attach(socket);
            let role = line.role;
            said.push((socket, format!("welcome {number} {role:?} resumed")));
            // Whoever was away when the warning was due gets it on coming back.
            said.extend(line.warning(socket));
            return said;
        }
        let driver = self.lines.iter().find(|it| it.role == Role::Drive);
        if let (Role::Drive, Some(driver)) = (hello.role, driver.map(|it| it.number)) {
            if !hello.take_over {
                return vec![(socket, format!("reject Driven by {driver}"))];
            }
            if self.fight.last().is_some_and(|since| *since >= 300) {
                self.fight.clear();
            }
            let pause = [0_u64, 5, 10, 20, 40, 60][self.fight.len().min(5)];
            if let Some(left) = self.fight.last().and_then(|it| pause.checked_sub(*it))
                && left > 0
            {
                let text = format!("reject TakenOverTooSoon by {driver} in {left}");
                return vec![(socket, text)];
            }
            self.fight.push(0);
            self.replaced.push(driver);
            self.close(driver, CloseWhy::Superseded, &mut said);
        }
        self.lines.push(Line {
            number: fresh,
            role: hello.role,
            keep: hello.keep,
            idle: hello.idle,
            hard_left: hello.hard,
            warned: hello.hard.is_some_and(|it| it <= 60),
            socket: Some(socket),
            silent: 0,
            quiet: 0,
            open: Vec::new(),
            abandoned: Vec::new(),
        });
        said.push((socket, format!("welcome {fresh} {:?}", hello.role)));
        said
    }

    fn call(&mut self, socket: u64, call: u64, kind: CallKind, timeout: Option<u64>) -> Said {
        let Some(line) = self.at(socket) else {
            return (socket, format!("fail {call} OutOfOrder"));
        };
        line.attach(socket);
        if line.role == Role::Watch && kind != CallKind::Read {
            return (socket, format!("fail {call} NotDriver"));
        }
        if line.open.len() + line.abandoned.len() == 64 {
            return (socket, format!("fail {call} TooManyCalls"));
        }
        let budget = match timeout {
            _ if kind == CallKind::Prompt => None,
            Some(0) => None,
            Some(bound) => Some((bound + 30).min(3600)),
            None => Some(120),
        };
        line.open.push(Open {
            call,
            kind,
            budget,
            age: 0,
        });
        (socket, format!("run {call}"))
    }

    fn answered(&mut self, call: u64) -> Said {
        for line in &mut self.lines {
            line.abandoned.retain(|it| *it != call);
            if let Some(place) = line.open.iter().position(|it| it.call == call) {
                line.open.remove(place);
                line.quiet = 0;
                let socket = line.socket.expect("an open call has a socket");
                return (socket, format!("deliver {call}"));
            }
        }
        (0, format!("late {call}"))
    }

    /// One second goes by.
    fn second(&mut self) -> Vec<Said> {
        let mut said = Vec::new();
        self.fight.iter_mut().for_each(|it| *it += 1);
        let all: Vec<u64> = self.lines.iter().map(|it| it.number).collect();
        for number in all {
            self.second_of(number, &mut said);
        }
        said
    }

    fn second_of(&mut self, number: u64, said: &mut Vec<Said>) {
        let person = self.person;
        let line = self.lines.iter_mut().find(|it| it.number == number);
        let line = line.expect("it was there a moment ago");
        line.silent += 1;
        line.quiet += 1;
        line.hard_left = line.hard_left.map(|it| it - 1);
        if line.hard_left == Some(0) {
            return self.close(number, CloseWhy::HardTimeout, said);
        }
        let Some(socket) = line.socket else {
            if line.silent == 60 {
                self.drop_line(number);
            }
            return;
        };
        for open in &mut line.open {
            open.age += 1;
            open.budget = open.budget.map(|it| if person { it } else { it - 1 });
        }
        if line.silent == 30 {
            said.push((socket, "cut".into()));
            return self.lose(number);
        }
        if line.silent == 15 {
            said.push((socket, "ping".into()));
        }
        let (over, open): (Vec<Open>, Vec<Open>) =
            line.open.drain(..).partition(|it| it.budget == Some(0));
        line.open = open;
        for open in over {
            said.push((socket, format!("fail {} Unanswered", open.call)));
            line.abandoned.push(open.call);
            line.quiet = 0;
        }
        said.extend(line.warning(socket));
        if line.open.is_empty() && line.idle.is_some_and(|idle| line.quiet >= idle) {
            self.close(number, CloseWhy::IdleTimeout, said);
        }
    }

    /// Seconds the session must be held for, at least; none: not at all.
    fn held_for(&self) -> Option<u64> {
        let lines = self.lines.iter();
        let each = lines.flat_map(|line| {
            let expected = line.socket.is_none() && line.role == Role::Drive;
            let back = expected.then(|| 60 - line.silent);
            let acts = line.open.iter().filter(|it| it.kind == CallKind::Act);
            let acts = acts.filter(|it| it.age >= 1);
            let acts = acts.map(|it| it.budget.filter(|_| !self.person).unwrap_or(300).min(300));
            acts.chain(back).collect::<Vec<_>>()
        });
        each.max()
    }
}

#[derive(Clone, Debug)]
struct Hello {
    role: Role,
    take_over: bool,
    resume: Option<u64>,
    keep: bool,
    idle: Option<u64>,
    hard: Option<u64>,
}

/// What one of the clients, or the world, does.
#[derive(Clone, Debug)]
enum Op {
    Hello(Hello),
    /// Comes back: with its own key, or, false, with one that may be another's or nobody's.
    Resume(bool, u64),
    /// The same socket says hello again.
    HelloAgain(Hello),
    Hear,
    Call(CallKind, Option<u64>, usize),
    Answer(u64),
    Gone(bool),
    Stuck,
    /// News of a socket it has left.
    OldSocket(u64),
    Person(bool),
    SessionHard,
    Ended,
    Wait(u64),
}

fn hello() -> impl Strategy<Value = Hello> {
    let limit = || proptest::option::weighted(0.2, 1..150_u64);
    let role = prop_oneof![Just(Role::Drive), Just(Role::Watch)];
    (
        role,
        any::<bool>(),
        prop::bool::weighted(0.8),
        limit(),
        limit(),
    )
        .prop_map(|(role, take_over, keep, idle, hard)| Hello {
            role,
            take_over,
            resume: None,
            keep,
            idle,
            hard,
        })
}

fn ops() -> impl Strategy<Value = Vec<(usize, Op)>> {
    let kind = prop_oneof![
        Just(CallKind::Read),
        Just(CallKind::Act),
        Just(CallKind::Prompt),
        Just(CallKind::End),
    ];
    let many = prop_oneof![12 => Just(1_usize), 1 => Just(40), 1 => Just(70)];
    let timeout = proptest::option::of(prop_oneof![0..5_u64, 0..100_u64, 3500..4000_u64]);
    let op = prop_oneof![
        40 => hello().prop_map(Op::Hello),
        40 => (prop::bool::weighted(0.8), 0..40_u64).prop_map(|(own, any)| Op::Resume(own, any)),
        4 => hello().prop_map(Op::HelloAgain),
        60 => Just(Op::Hear),
        80 => (kind, timeout, many).prop_map(|(kind, timeout, many)| Op::Call(kind, timeout, many)),
        60 => (0..100_u64).prop_map(Op::Answer),
        30 => prop::bool::weighted(0.2).prop_map(Op::Gone),
        6 => Just(Op::Stuck),
        10 => (0..40_u64).prop_map(Op::OldSocket),
        10 => any::<bool>().prop_map(Op::Person),
        1 => Just(Op::SessionHard),
        1 => Just(Op::Ended),
        60 => prop_oneof![8 => 1..8_u64, 2 => 1..70_u64, 1 => 1..400_u64].prop_map(Op::Wait),
    ];
    proptest::collection::vec((0..CLIENTS, op), 1..500)
}

fn key(number: u64) -> ResumeKey {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    ResumeKey(bytes)
}

/// An effect in the model's words; what holds is looked at apart.
fn said(fx: &Effect) -> Option<Said> {
    let calls = |all: &[CallId]| all.iter().map(|it| it.0).collect::<Vec<_>>();
    Some(match fx {
        Effect::Welcome {
            socket,
            connection,
            key: sent,
            role,
            resumed,
        } => {
            assert!(*sent == key(connection.0), "another's key");
            let how = if *resumed { " resumed" } else { "" };
            (socket.0, format!("welcome {} {role:?}{how}", connection.0))
        }
        Effect::Reject(socket, why) => {
            let by = why.by.iter().map(|it| format!(" by {it}"));
            let wait = why
                .retry_in
                .iter()
                .map(|it| format!(" in {}", it.as_secs()));
            let lost = why.superseded.then(|| " superseded".to_owned());
            let rest: String = by.chain(wait).chain(lost).collect();
            (socket.0, format!("reject {:?}{rest}", why.code))
        }
        Effect::Run(socket, call) => (socket.0, format!("run {}", call.0)),
        Effect::Deliver(socket, call) => (socket.0, format!("deliver {}", call.0)),
        Effect::Fail(socket, call, code) => (socket.0, format!("fail {} {code:?}", call.0)),
        Effect::DropLate(call) => (0, format!("late {}", call.0)),
        Effect::Ping(socket) => (socket.0, "ping".into()),
        Effect::Warn(socket, left) => (socket.0, format!("warn {}", left.as_secs())),
        Effect::Close(socket, why, unknown) => {
            (socket.0, format!("close {why:?} {:?}", calls(unknown)))
        }
        Effect::Cut(socket) => (socket.0, "cut".into()),
        Effect::Hold(_) | Effect::Lift => return None,
    })
}

/// Machine and model, fed the same.
#[derive(Default)]
struct Pair {
    machine: Connections,
    model: Model,
    now: u64,
    held: Option<u64>,
    sockets: u64,
    numbers: u64,
    calls: u64,
    /// Each client's newest socket and connection.
    clients: [(u64, u64); CLIENTS],
}

impl Pair {
    /// Feeds the machine; what it says has to be what the model said.
    fn agree(&mut self, input: Input, mut expected: Vec<Said>) -> Result<(), TestCaseError> {
        let now = MonoTime::from_millis(self.now * 1000);
        let due = self.machine.next_deadline();
        let tick = input == Input::Tick;
        let fx = self.machine.step(input, now);
        if tick && !fx.is_empty() {
            prop_assert!(
                due.is_some_and(|at| at <= now),
                "nobody would have come: {:?}",
                fx
            );
        }
        for effect in &fx {
            match effect {
                Effect::Hold(until) => self.held = Some(until.as_millis() / 1000),
                Effect::Lift => self.held = None,
                Effect::Welcome { .. }
                | Effect::Reject(..)
                | Effect::Run(..)
                | Effect::Deliver(..)
                | Effect::Fail(..)
                | Effect::DropLate(_)
                | Effect::Ping(_)
                | Effect::Warn(..)
                | Effect::Close(..)
                | Effect::Cut(_) => {}
            }
        }
        let mut got: Vec<Said> = fx.iter().filter_map(said).collect();
        // Sockets are told side by side; the order on each of them counts.
        got.sort_by_key(|(socket, _)| *socket);
        expected.sort_by_key(|(socket, _)| *socket);
        prop_assert_eq!(got, expected, "at second {}", self.now);
        let wanted = self.model.held_for().map(|it| self.now + it);
        prop_assert_eq!(
            self.held.is_some(),
            wanted.is_some(),
            "held at {}",
            self.now
        );
        prop_assert!(
            self.held >= wanted,
            "held {:?}, wanted {:?}",
            self.held,
            wanted
        );
        Ok(())
    }

    fn hello(&mut self, client: usize, hello: &Hello) -> Result<(), TestCaseError> {
        let socket = self.clients[client].0;
        self.numbers += 1;
        let fresh = self.numbers;
        let greeting = Greeting {
            role: hello.role,
            name: fresh.to_string(),
            take_over: hello.take_over,
            resume: hello.resume.map(key),
            keep: hello.keep,
            idle: hello.idle.map(Duration::from_secs),
            hard: hello.hard.map(Duration::from_secs),
            fresh: ConnectionId(fresh),
            key: key(fresh),
        };
        let expected = self.model.greet(socket, hello, fresh);
        if expected
            .iter()
            .any(|(_, it)| *it == format!("welcome {fresh} {:?}", hello.role))
        {
            self.clients[client].1 = fresh;
        }
        self.agree(
            Input::Greeted(SocketId(socket), Box::new(greeting)),
            expected,
        )
    }

    fn dial(&mut self, client: usize) {
        self.sockets += 1;
        self.clients[client].0 = self.sockets;
    }

    fn gone(&mut self, socket: u64, goodbye: bool) -> Result<(), TestCaseError> {
        let number = self.model.at(socket).map(|it| it.number);
        match number {
            Some(number) if goodbye => self.model.drop_line(number),
            Some(number) => self.model.lose(number),
            None => {}
        }
        let how = if goodbye {
            Farewell::Said
        } else {
            Farewell::Lost
        };
        self.agree(Input::Gone(SocketId(socket), how), Vec::new())
    }

    fn end(&mut self, input: Input, why: CloseWhy, drivers: bool) -> Result<(), TestCaseError> {
        let lines = self.model.lines.iter();
        let lines = lines.filter(|it| !drivers || it.role == Role::Drive);
        let mut expected = Vec::new();
        for number in lines.map(|it| it.number).collect::<Vec<_>>() {
            self.model.close(number, why, &mut expected);
        }
        self.agree(input, expected)
    }

    fn act(&mut self, client: usize, op: &Op) -> Result<(), TestCaseError> {
        let (socket, own) = self.clients[client];
        match op {
            Op::Hello(hello) => {
                self.dial(client);
                self.hello(client, hello)
            }
            Op::HelloAgain(hello) => self.hello(client, hello),
            Op::Resume(with_own, any) => {
                let resume = Some(if *with_own { own } else { *any });
                self.dial(client);
                let role = Role::Watch;
                let (take_over, keep, idle, hard) = (false, true, None, None);
                let hello = Hello {
                    role,
                    take_over,
                    resume,
                    keep,
                    idle,
                    hard,
                };
                self.hello(client, &hello)
            }
            Op::Hear => {
                if let Some(line) = self.model.at(socket) {
                    line.silent = 0;
                }
                self.agree(Input::Heard(SocketId(socket)), Vec::new())
            }
            Op::Call(kind, timeout, times) => (0..*times).try_for_each(|_| {
                self.calls += 1;
                let expected = self.model.call(socket, self.calls, *kind, *timeout);
                let input = Input::Called {
                    socket: SocketId(socket),
                    call: CallId(self.calls),
                    kind: *kind,
                    timeout: timeout.map(Duration::from_secs),
                };
                self.agree(input, vec![expected])
            }),
            Op::Answer(back) => {
                let call = self.calls.saturating_sub(*back);
                let expected = self.model.answered(call);
                self.agree(Input::Answered(CallId(call)), vec![expected])
            }
            Op::Gone(goodbye) => self.gone(socket, *goodbye),
            Op::OldSocket(back) => self.gone(self.sockets.saturating_sub(*back), false),
            Op::Stuck => {
                let line = self.model.at(socket).map(|it| (it.number, it.unknown()));
                let mut expected = Vec::new();
                if let Some((number, unknown)) = line {
                    expected.push((socket, format!("close SlowConsumer {unknown:?}")));
                    self.model.lose(number);
                }
                self.agree(Input::Stuck(SocketId(socket)), expected)
            }
            Op::Person(awaited) => {
                self.model.person = *awaited;
                self.agree(Input::PersonAwaited(*awaited), Vec::new())
            }
            Op::SessionHard => self.end(Input::SessionHardLimit, CloseWhy::HardTimeout, true),
            Op::Ended => self.end(Input::Ended(CloseWhy::Draining), CloseWhy::Draining, false),
            Op::Wait(seconds) => (0..*seconds).try_for_each(|_| {
                self.now += 1;
                let expected = self.model.second();
                self.agree(Input::Tick, expected)
            }),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Behaviours 101 to 116: some 250,000 random operations by eight clients, and machine and model
    /// say the same to every socket in the same order, hold the session at the same times, and no
    /// deadline passes that nobody would have been woken for.
    #[test]
    fn the_machine_and_its_model_agree(ops in ops()) {
        let mut pair = Pair { now: 1000, ..Pair::default() };
        for (client, op) in &ops {
            pair.act(*client, op)?;
        }
    }
}

/// Behaviours 101 to 108: the numbers of the protocol, as they are when nobody sets them.
#[test]
fn the_numbers_are_those_of_the_protocol() {
    let seconds = [
        ("before a hard limit", super::HARD_LIMIT_WARNING, 60),
        ("a call's deadline", super::CALL_DEADLINE, 120),
        ("grace past its own bound", super::CALL_GRACE, 30),
        ("a call's deadline at most", super::CALL_DEADLINE_MAX, 3600),
        ("a broken connection waits", super::DETACH_HOLD, 60),
        ("heartbeat", super::HEARTBEAT, 15),
        ("first take-over pause", super::TAKE_OVER_PAUSE, 5),
        ("longest take-over pause", super::TAKE_OVER_PAUSE_MAX, 60),
        ("a fight is over", super::FIGHT_OVER_AFTER, 300),
    ];
    for (what, is, expected) in seconds {
        assert_eq!(is, Duration::from_secs(expected), "{what}");
    }
    assert_eq!(super::CALLS_MAX, 64);
}
