//! Sockets and the machine that decides about them agree: thousands of random operations of eight
//! clients over real sockets, each compared with what policy says of the same operation.
//!
//! The machine itself is compared with an independent model in its own tests, so that server, machine
//! and model are one. `SEED=n` does one run again, `OPERATIONS=n` as many.

use std::time::{Duration, Instant};

use drowse_messages::{CloseWhy, FailureCode, MonoTime, Role};
use drowse_policy::connections::{
    CallId, CallKind, ConnectionId, Connections, Effect, Farewell, Greeting, Input, ResumeKey,
    SocketId,
};
use serde_json::{Value, json};

use super::socket::{Frame, Ws};
use super::*;

/// Clients of one session.
const CLIENTS: usize = 8;
/// Operations on one session: later take-overs would only be refused, for minutes.
const ROUND: u64 = 100;
/// Operations in all.
const OPERATIONS: u64 = 10_000;
/// How long the end of a socket may take to be noticed.
const NOTICED_IN: Duration = Duration::from_secs(5);

/// Xorshift: the same numbers for the same seed, everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let at = self.below(of.len().max(1) as u64);
        of.get(usize::try_from(at).unwrap()).copied()
    }
}

/// One client's socket, and whether the server greeted it.
struct Line {
    ws: Ws,
    number: SocketId,
    greeted: bool,
}

/// A session with its clients, and the machine that is told the same.
struct Round<'a> {
    endpoint: &'a Endpoint,
    path: String,
    lines: [Option<Line>; CLIENTS],
    machine: Connections,
    began: Instant,
    numbers: u64,
    /// Keys there ever were; the last is of nobody.
    keys: Vec<[u8; 16]>,
    what: Vec<String>,
}

impl Round<'_> {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn now(&self) -> MonoTime {
        MonoTime::default().after(self.began.elapsed())
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let now = self.now();
        self.machine.step(input, now)
    }

    fn act(&mut self, dice: &mut Dice) {
        let client = usize::try_from(dice.below(CLIENTS as u64)).unwrap();
        let what = match (&self.lines[client], dice.below(10)) {
            (None, _) => "connect",
            (Some(line), 0..4) if !line.greeted => "hello",
            (Some(_), 0) => "hello",
            (Some(_), 1) => "drop",
            (Some(line), 2) if line.greeted => "close",
            (Some(_), 3) => "ping",
            (Some(_), 4) => "no_such",
            (Some(_), 5..7) => "show",
            (Some(_), _) => "wake",
        };
        self.what.push(format!("{client} {what}"));
        match what {
            "connect" => {
                let mut ws = Ws::open(self.endpoint.connect(), &self.path, "");
                assert_eq!(ws.status(), 101);
                let number = SocketId(self.number());
                let greeted = false;
                self.lines[client] = Some(Line {
                    ws,
                    number,
                    greeted,
                });
                self.hello(client, dice);
            }
            "hello" => self.hello(client, dice),
            "drop" => {
                let line = self.lines[client].take().unwrap();
                drop(line.ws);
                let effects = self.step(Input::Gone(line.number, Farewell::Lost));
                self.follow(&effects);
            }
            "close" => {
                let line = self.lines[client].as_mut().unwrap();
                line.ws.call(7, "close", json!({}));
                assert_eq!(line.ws.answer(7)["result"], json!({}));
                assert_eq!(line.ws.next(), Frame::Close(1000));
                let line = self.lines[client].take().unwrap();
                let effects = self.step(Input::Gone(line.number, Farewell::Said));
                self.follow(&effects);
            }
            method => self.call(client, method),
        }
    }

    /// Says hello, and has the machine hear the same: with the key that the server gave, since it is
    /// random.
    fn hello(&mut self, client: usize, dice: &mut Dice) {
        let role = dice.pick(&[Role::Watch, Role::Drive, Role::Drive]).unwrap();
        let (take_over, keep) = (dice.below(3) == 0, dice.below(4) > 0);
        let resume = (dice.below(3) == 0)
            .then(|| dice.pick(&self.keys))
            .flatten();
        let hex = resume.map(|key| {
            key.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        });
        let params = json!({
            "version": 1, "role": role, "take_over": take_over, "keep": keep, "resume": hex,
        });
        let began = Instant::now();
        loop {
            let line = self.lines[client].as_mut().unwrap();
            line.ws.call(0, "hello", params.clone());
            let answer = line.ws.answer(0);
            let greeting = Greeting {
                role,
                name: "http".to_owned(),
                take_over,
                resume: resume.map(ResumeKey),
                keep,
                idle: None,
                hard: None,
                fresh: ConnectionId(answer["result"]["connection"].as_u64().unwrap_or(u64::MAX)),
                key: ResumeKey(key_of(&answer).unwrap_or_default()),
            };
            let (socket, now) = (line.number, self.now());
            // A hello that is refused changes nothing, so it can be said again.
            let mut machine = self.machine.clone();
            let effects = machine.step(Input::Greeted(socket, Box::new(greeting)), now);
            let greeted = effects.iter().find_map(greeted);
            let said = match answer.get("result") {
                Some(welcome) => Ok((
                    welcome["resumed"].as_bool().unwrap(),
                    serde_json::from_value(welcome["role"].clone()).unwrap(),
                )),
                None => Err(FailureCode::from_code(Ws::code(&answer))),
            };
            // That a socket is gone is noticed a moment later.
            if greeted != Some(said) && said.is_err() && began.elapsed() < NOTICED_IN {
                std::thread::yield_now();
                continue;
            }
            assert_eq!(greeted, Some(said), "{params}: {answer}");
            self.machine = machine;
            if let Some(key) = key_of(&answer) {
                self.keys.push(key);
                self.lines[client].as_mut().unwrap().greeted = true;
            }
            return self.follow(&effects);
        }
    }

    fn call(&mut self, client: usize, method: &str) {
        let line = self.lines[client].as_mut().unwrap();
        let (socket, greeted) = (line.number, line.greeted);
        line.ws.call(3, method, json!({}));
        let answer = line.ws.answer(3);
        let code = Some(Ws::code(&answer)).filter(|code| !code.is_empty());
        let kind = match method {
            "show" => CallKind::Read,
            "wake" => CallKind::Act,
            // Answered where the socket is; only that something came in counts.
            _ => {
                let known = method == "ping";
                let expected = match (greeted, known) {
                    (_, false) => Some("no_such_method"),
                    (false, true) => Some("out_of_order"),
                    (true, true) => None,
                };
                assert_eq!(code, expected, "{answer}");
                let effects = self.step(Input::Heard(socket));
                return self.follow(&effects);
            }
        };
        let call = CallId(self.number());
        let called = Input::Called {
            socket,
            call,
            kind,
            timeout: None,
        };
        let effects = self.step(called);
        let failed = effects.iter().find_map(|effect| {
            let Effect::Fail(_, _, code) = effect else {
                return None;
            };
            Some(code.code())
        });
        assert_eq!(code, failed, "{answer}");
        self.follow(&effects);
        if failed.is_none() {
            let effects = self.step(Input::Answered(call));
            assert!(
                effects.contains(&Effect::Deliver(socket, call)),
                "{effects:?}"
            );
            self.follow(&effects);
        }
    }

    /// Whom the machine has closed, the server has closed, with the same code.
    fn follow(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Close(socket, why, _) = effect {
                let is_it = |line: &&mut Option<Line>| {
                    line.as_ref().is_some_and(|line| line.number == *socket)
                };
                let line = self.lines.iter_mut().find(is_it).and_then(Option::take);
                let mut line = line.expect("only open sockets are closed");
                assert_eq!(*why, CloseWhy::Superseded);
                assert_eq!(line.ws.next(), Frame::Close(why.code()));
            }
        }
    }
}

/// How a hello was answered: taken up again or not, and as what.
fn greeted(effect: &Effect) -> Option<Result<(bool, Role), FailureCode>> {
    if let Effect::Welcome { resumed, role, .. } = effect {
        return Some(Ok((*resumed, *role)));
    }
    if let Effect::Reject(_, rejection) = effect {
        return Some(Err(rejection.code));
    }
    None
}

fn key_of(answer: &Value) -> Option<[u8; 16]> {
    let hex = answer["result"]["resume"].as_str()?;
    let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
    Some(std::array::from_fn(byte))
}

/// Behaviours 103, 108, 110, 112, 115: 10,000 operations of 8 clients; server and machine agree on each.
#[test]
fn server_and_machine_agree() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let operations = number("OPERATIONS").unwrap_or(OPERATIONS);
    let only = number("SEED");
    let endpoint = Endpoint::start();
    for seed in 1..=operations.div_ceil(ROUND) {
        if only.is_some_and(|only| only != seed) {
            continue;
        }
        let name = format!("s{seed}");
        endpoint.session(&name);
        let mut round = Round {
            endpoint: &endpoint,
            path: format!("/v1/sessions/{name}/ws"),
            lines: Default::default(),
            machine: Connections::default(),
            began: Instant::now(),
            numbers: 0,
            keys: vec![[7; 16]],
            what: Vec::new(),
        };
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..ROUND).for_each(|_| round.act(&mut dice));
        }));
        if let Err(panic) = outcome {
            let done = round.what.join(", ");
            std::panic::resume_unwind(Box::new(format!("SEED={seed}: {done}: {panic:?}")));
        }
    }
}
