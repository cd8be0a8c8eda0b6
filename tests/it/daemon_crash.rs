//! A daemon that is killed again and again at any moment, while people go on talking to it.
//!
//! Whatever becomes of the agents meanwhile, taken over or ended: nothing is unowned once the next
//! daemon is there, no session has two agents, and each message that was accepted has one fate and
//! was heard once at most. `DROWSE_SEED=n` draws other moments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use drowse_client::{Client, ClientError};
use drowse_messages::{MessageId, MessageState, ProblemClass};
use drowse_tests::daemon::MESSAGE_CEILING;
use drowse_tests::process::{ProcStat, with_env};
use drowse_tests::rng::{Rng, SEED, seed_or};
use drowse_tests::wait::{comes_true, say};
use drowse_tests::{CEILING, ProcIdentity, TestDaemon, daemon, wait_until};
use tokio::runtime::Runtime;

/// 25 kills in each of two tests, so that they spread over the processors.
const KILLS: usize = 25;
/// Sessions alive at every kill.
const SESSIONS: usize = 20;
/// Clients that talk at once, each to sessions of its own.
const CLIENTS: usize = 4;
/// 1 s: a daemon's life at most, once it takes requests. All agents are up again after half of it,
/// if they were not taken over, and a few turns fit.
const LIFE_MAX: Duration = Duration::from_secs(1);
/// One kill in five hits a daemon that is just starting.
const EARLY_KILLS_PER_MILLE: u64 = 200;

/// A message that was accepted, and what was said in it.
#[derive(Debug)]
struct Accepted {
    message: MessageId,
    text: String,
}

/// Somebody who never gives up.
struct Caller<'a> {
    client: Client,
    runtime: Runtime,
    stop: &'a AtomicBool,
}

impl<'a> Caller<'a> {
    fn new(socket: &Path, stop: &'a AtomicBool) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Self {
            client: Client::unix(socket).named("caller"),
            runtime: runtime.expect("a runtime of one thread needs nothing special"),
            stop,
        }
    }

    /// Asks until there is an answer, however many daemons that takes.
    #[track_caller]
    fn ask<T>(&self, call: impl AsyncFn(&Client) -> Result<T, ClientError>) -> T {
        wait_until("an answer of some daemon", MESSAGE_CEILING, || {
            match self.runtime.block_on(call(&self.client)) {
                Ok(answer) => Some(answer),
                Err(ClientError::Problem(problem)) => {
                    let passes = [ProblemClass::Retryable, ProblemClass::OutcomeUnknown];
                    assert!(passes.contains(&problem.class), "{problem:?}");
                    None
                }
                Err(_) => None,
            }
        })
    }

    /// Sends a message, again and again under one key, until it is accepted.
    fn send(&self, session: &str, key: &str, text: String) -> Accepted {
        let sent = self.ask(async |client| client.send(session, &text, Some(key)).await);
        Accepted {
            message: sent.message,
            text,
        }
    }

    fn wait_settled(&self, accepted: &Accepted) {
        wait_until("the fate of a message", MESSAGE_CEILING, || {
            let message = self.ask(async |client| client.message(accepted.message).await);
            (message.state.is_final() || self.stop.load(Ordering::Relaxed)).then_some(())
        });
    }

    /// Talks to these sessions until it is told to stop. The turns take 20 to 200 ms.
    fn talk(&self, name: usize, sessions: &[String], mut rng: Rng) -> Vec<Accepted> {
        let mut accepted = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let begin = accepted.len();
            for session in sessions {
                for _ in 0..=rng.below(3) {
                    let (number, millis) = (accepted.len(), 20 + rng.below(180));
                    let key = format!("{name}-{number}");
                    let text = format!("FAKE:silent 0.{millis:03}\nFAKE:say {key}");
                    accepted.push(self.send(session, &key, text));
                }
            }
            for one in &accepted[begin..] {
                self.wait_settled(one);
            }
        }
        accepted
    }
}

/// Ends the talk also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Processes of sessions that are below no keeper that the daemon knows as a session's own.
fn unowned(daemon: &TestDaemon) -> Vec<ProcIdentity> {
    let page = daemon.get(async |client| client.sessions(&Default::default()).await);
    let keepers = page.sessions.iter().filter_map(|session| {
        let keeper = session.awake.as_ref()?.keeper?;
        Some((keeper.pid(), keeper.start_ticks()))
    });
    let keepers: Vec<_> = keepers.collect();
    let parent_of = |stat: &ProcStat| ProcStat::read(stat.parent);
    let is_owned = |process: &ProcIdentity| {
        let line = std::iter::successors(ProcStat::read(process.pid), parent_of);
        line.map(|stat| (stat.identity.pid, stat.identity.start_time))
            .any(|who| keepers.contains(&who))
    };
    let mut marked = with_env("DROWSE_STATE", &daemon.state_dir().display().to_string());
    marked.retain(|process| !is_owned(process));
    marked
}

/// Waits until none of the processes that are there now is unowned: those that are just starting
/// are, for a moment.
#[track_caller]
fn wait_all_owned(daemon: &TestDaemon) {
    let mut left = unowned(daemon);
    let is_over = comes_true(CEILING, || {
        if !left.is_empty() {
            let still = unowned(daemon);
            left.retain(|process| still.contains(process) && process.is_alive());
        }
        left.is_empty()
    });
    let left: Vec<String> = left.iter().map(ProcIdentity::describe).collect();
    assert!(is_over, "unowned:\n  {}", left.join("\n  "));
}

/// Lets a part of a daemon's life go by.
fn let_pass(time: Duration) {
    let end = Instant::now() + time;
    assert!(comes_true(CEILING, || Instant::now() >= end));
}

fn kill_again_and_again(daemon: &mut TestDaemon, rng: &mut Rng) {
    for _ in 0..KILLS {
        let_pass(rng.evenly(LIFE_MAX));
        daemon.kill9();
        let_pass(rng.time(LIFE_MAX / 2));
        if rng.chance(EARLY_KILLS_PER_MILLE) {
            daemon.spawn();
            let_pass(rng.time(LIFE_MAX / 4));
            daemon.kill9();
        }
        daemon.restart();
        wait_all_owned(daemon);
    }
}

/// Each message that was accepted was answered once, or is unknown and was heard once at most.
fn check_messages(daemon: &TestDaemon, accepted: &[Accepted]) {
    let mut heard: BTreeMap<String, usize> = BTreeMap::new();
    let settled: Vec<_> = accepted
        .iter()
        .map(|one| daemon.settled(one.message))
        .collect();
    for turn in daemon.fake().turns() {
        *heard.entry(turn).or_default() += 1;
    }
    for (one, message) in accepted.iter().zip(settled) {
        let times = heard.get(&one.text).copied().unwrap_or(0);
        let is_well = match message.state {
            MessageState::Answered => times == 1,
            MessageState::Unknown => times <= 1,
            MessageState::Queued
            | MessageState::Delivered
            | MessageState::Failed
            | MessageState::Cancelled
            | MessageState::Parked => false,
        };
        assert!(
            is_well && message.text == one.text,
            "heard {times} times: {message:?}"
        );
    }
}

/// Says how to see a failure again.
struct Blame(u64);

impl Drop for Blame {
    fn drop(&mut self) {
        if thread::panicking() {
            say(&format!("{SEED}={}", self.0));
        }
    }
}

fn run(test: &'static str, part: u64) {
    let seed = seed_or(1);
    let _blame = Blame(seed);
    let mut rng = Rng::new(seed.wrapping_mul(2).wrapping_add(part));
    let mut daemon = daemon!(test).limit("idle_after", "1h").start();
    let sessions: Vec<String> = (0..SESSIONS)
        .map(|nth| {
            let mut new = daemon.new_session("fake");
            if nth % 4 == 0 {
                // Some sleep now and then, so that kills also hit releases and wakes.
                new.limits.insert("idle_after".into(), "100ms".into());
            }
            daemon.open_as(&new)
        })
        .collect();
    let stop = AtomicBool::new(false);
    let socket: PathBuf = daemon.state_dir().join("drowse.sock");
    let outcome = thread::scope(|scope| {
        let stopping = Stop(&stop);
        let talks: Vec<_> = sessions
            .chunks(SESSIONS / CLIENTS)
            .enumerate()
            .map(|(name, sessions)| {
                let (rng, socket, stop) = (Rng::new(rng.below(u64::MAX)), &socket, &stop);
                scope.spawn(move || Caller::new(socket, stop).talk(name, sessions, rng))
            })
            .collect();
        kill_again_and_again(&mut daemon, &mut rng);
        drop(stopping);
        talks
            .into_iter()
            .flat_map(|talk| talk.join().expect("a talk"))
            .collect::<Vec<Accepted>>()
    });
    check_messages(&daemon, &outcome);
    for id in &sessions {
        let said = daemon.say(id, "FAKE:say still here");
        assert!(said.starts_with("SAID still here"), "{id}: {said}");
    }
    daemon.fake().assert_never_two();
    wait_all_owned(&daemon);
    let too_few = "so few messages that kills can have hit little";
    assert!(outcome.len() > 4 * KILLS, "{}: {too_few}", outcome.len());
}

/// Behaviours 83 to 86, 99, D41.
#[test]
fn killed_at_any_moment_nothing_is_unowned_and_no_message_lost() {
    run("killed1", 0);
}

#[test]
fn killed_at_other_moments_nothing_is_unowned_and_no_message_lost() {
    run("killed2", 1);
}
