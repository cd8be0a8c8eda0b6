//! Hundreds of starts and ends by chance: misbehaving trees, ended in every way there is.
//!
//! What a round does is decided by the seed alone; when it happens is not. `DROWSE_SEED=n` runs
//! other rounds, and the same ones again. Each round has a stranger beside it that looks like its
//! agent. Rounds run ten at a time, in one daemon.

mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use drowse_messages::{ExitStatus, Reason, SessionEvent, SessionState};
use drowse_tests::canary::Canary;
use drowse_tests::process::{ProcStat, all, command_line, with_env};
use drowse_tests::rng::{Rng, SEED, seed_or};
use drowse_tests::wait::{CEILING, comes_true, say};
use drowse_tests::{ProcIdentity, TestDaemon, daemon, wait_until};
use nix::sys::signal::Signal;

use self::tree::Tree;

const TREE_AGENT: &str = env!("CARGO_BIN_EXE_tree-agent");
/// 100 rounds in each of three tests, so that they spread over the processors.
const ROUNDS: usize = 100;
/// 10 sessions live at once: more only wait for each other.
const WAVE: usize = 10;
/// 5 descriptors and threads more than after the first wave are not a leak.
const SLACK: usize = 5;

/// What speaks, above the tree.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Agent {
    /// The first process of the tree, which reads nothing, or waits for the end of its input.
    Raw,
    /// The fake agent, which the first process becomes: it can be released.
    Fake,
    /// The first process, for an adapter that waits for its handshake in vain.
    Mute,
}

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Idle,
    Release,
    Stop,
    Remove,
    HardLimit,
    KillAgent,
    KillKeeper,
    Exit,
    FailToStart,
}

#[derive(Debug)]
struct Round {
    number: usize,
    agent: Agent,
    end: End,
    /// Ended as soon as there is something to end, and not when its tree is complete.
    early: bool,
    tree: Tree,
    /// The first process's whole script.
    script: String,
    /// Where its processes write themselves down.
    file: PathBuf,
}

impl Round {
    fn draw(number: usize, rng: &mut Rng, daemon: &TestDaemon) -> Self {
        let agent = *rng.one_of(&[
            Agent::Raw,
            Agent::Raw,
            Agent::Fake,
            Agent::Fake,
            Agent::Mute,
        ]);
        let end = *rng.one_of(match agent {
            Agent::Raw => &[
                End::Stop,
                End::Remove,
                End::HardLimit,
                End::KillAgent,
                End::KillKeeper,
                End::Exit,
            ],
            Agent::Fake => &[
                End::Idle,
                End::Release,
                End::Stop,
                End::Remove,
                End::KillAgent,
                End::KillKeeper,
                End::Exit,
            ],
            Agent::Mute => &[End::FailToStart],
        });
        let file = daemon.path(&format!("tree-{number:03}"));
        let tree = tree::draw(rng, &file.display().to_string(), end != End::KillKeeper);
        let last = match (agent, end) {
            (Agent::Fake, _) => {
                let program = daemon.fake().program().display();
                format!("become {program} --dialect claude")
            }
            (_, End::Exit) => "exit 3".to_owned(),
            (Agent::Mute, _) if rng.chance(500) => "exit 1".to_owned(),
            _ => (*rng.one_of(&["echo", "sleep", "stop"])).to_owned(),
        };
        // A release is refused before the agent has said that it can resume.
        let may_be_early = !matches!(end, End::Idle | End::Release | End::HardLimit | End::Exit);
        Self {
            number,
            agent,
            end,
            early: may_be_early && rng.chance(300),
            script: format!("{}{last}", tree.script),
            tree,
            file,
        }
    }

    /// Its process ends, or is ended by a limit, without any doing of the test.
    fn ends_by_itself(&self) -> bool {
        match self.end {
            End::Idle | End::HardLimit | End::FailToStart => true,
            End::Exit => self.agent == Agent::Raw,
            End::Release | End::Stop | End::Remove | End::KillAgent | End::KillKeeper => false,
        }
    }

    fn begin(self, daemon: &TestDaemon) -> Running {
        let mut new = daemon.new_session(match self.agent {
            Agent::Raw => "tree",
            Agent::Fake | Agent::Mute => "treefake",
        });
        new.args = vec![self.script.clone()];
        let mut limit = |name: &str, value: &str| {
            new.limits.insert(name.to_owned(), value.to_owned());
        };
        match self.end {
            End::Idle => limit("idle_after", "300ms"),
            End::HardLimit => {
                limit("idle_after", "off");
                limit("start_limit", "600ms");
                limit("hard_limit", "700ms");
            }
            End::FailToStart => limit("start_limit", "500ms"),
            End::Release
            | End::Stop
            | End::Remove
            | End::KillAgent
            | End::KillKeeper
            | End::Exit => {}
        }
        let mut command = Command::new(TREE_AGENT);
        command
            .arg(&self.script)
            .envs(daemon.agent_env())
            .current_dir(daemon.work());
        let log = daemon.path(&format!("canary-{}", self.number));
        let canary = Canary::start(command, &log);
        canary.wait_ready();
        let id = daemon.open_as(&new);
        daemon.post(&id, "FAKE:say hello");
        Running {
            round: self,
            id,
            canary,
        }
    }
}

/// A round under way.
#[derive(Debug)]
struct Running {
    round: Round,
    id: String,
    canary: Canary,
}

impl Running {
    /// Every process of the tree that has written itself down.
    fn reported(&self) -> BTreeSet<ProcIdentity> {
        let text = fs::read_to_string(&self.round.file).unwrap_or_default();
        text.lines().filter_map(ProcIdentity::parse).collect()
    }

    /// Waits until all of it is there, or until it has ended for the first time, if it does that
    /// by itself.
    fn wait_whole(&self, daemon: &TestDaemon) {
        if self.round.ends_by_itself() {
            let is_ended = |e: &SessionEvent| matches!(e, SessionEvent::Released { .. });
            daemon.wait_event(&self.id, "released", 1, is_ended);
            return;
        }
        let wanted = self.round.tree.reports;
        wait_until("a whole tree", CEILING, || {
            (self.reported().len() >= wanted).then_some(())
        });
        if self.round.agent == Agent::Fake {
            let is_over = |e: &SessionEvent| matches!(e, SessionEvent::TurnEnded { .. });
            daemon.wait_event(&self.id, "turn ended", 1, is_over);
        }
    }

    fn end(&self, daemon: &TestDaemon) {
        let Round { end, early, .. } = self.round;
        if !early {
            self.wait_whole(daemon);
        }
        let id = &self.id;
        match end {
            End::Idle | End::HardLimit => {}
            End::Exit if self.round.ends_by_itself() => {
                // What waits would start it again, and again.
                daemon.get(async |client| client.stop(id).await);
            }
            End::Release => daemon.get(async |client| client.release(id).await),
            End::Remove => daemon.get(async |client| client.remove(id).await),
            End::Exit => drop(daemon.post(id, "FAKE:exit 3")),
            End::KillAgent => daemon.agent(id).signal(Signal::SIGKILL),
            End::KillKeeper => daemon.keeper(id).signal(Signal::SIGKILL),
            End::Stop | End::FailToStart => daemon.get(async |client| client.stop(id).await),
        }
        if early && matches!(end, End::KillAgent | End::KillKeeper) {
            // Here too.
            daemon.get(async |client| client.stop(id).await);
        }
    }

    /// Waits for its end, and fails unless that was an end of everything, for the right reason.
    fn check(&self, daemon: &TestDaemon) {
        let id = &self.id;
        if self.round.end == End::Remove {
            let is_gone = || daemon.ask(async |client| client.session(id).await).is_err();
            assert!(comes_true(CEILING, is_gone), "{id} is still known");
        } else {
            let report = daemon.wait_report(id, "asleep", |report| !report.state.is_awake());
            let end = report.end.as_ref().filter(|_| !self.round.early);
            if let Some(end) = end {
                assert!(end.survivors.is_empty(), "{report:?}");
                assert!(self.fits(end.reason), "{report:?}");
            }
            assert_ne!(report.state, SessionState::Failing, "{report:?}");
        }
        let reported = self.reported().into_iter();
        assert_none("left behind", reported.filter(ProcIdentity::is_alive));
        self.assert_no_stranger_touched();
    }

    fn fits(&self, reason: Reason) -> bool {
        match self.round.end {
            End::Idle => reason == Reason::Idle,
            End::Release => reason == Reason::Manual,
            End::Stop => reason == Reason::Stopped,
            End::HardLimit => reason == Reason::HardLimit,
            End::KillAgent => {
                reason
                    == Reason::Crashed {
                        status: Some(ExitStatus::Signal(9)),
                    }
            }
            End::KillKeeper => matches!(reason, Reason::Crashed { .. }),
            End::Exit if self.round.agent == Agent::Raw => true,
            End::Exit => {
                reason
                    == Reason::Crashed {
                        status: Some(ExitStatus::Code(3)),
                    }
            }
            End::FailToStart => matches!(reason, Reason::StartFailed | Reason::Stopped),
            End::Remove => true,
        }
    }

    fn assert_no_stranger_touched(&self) {
        assert_eq!(self.canary.hurt(), None, "a stranger was touched");
    }
}

/// Looks for processes of these rounds by their arguments; and by their mark, which keepers have
/// too: those may still be leaving.
fn assert_nobody_left(ended: &[Running], daemon: &TestDaemon) {
    let canaries: Vec<i32> = ended.iter().map(|one| one.canary.pid()).collect();
    let trees = daemon.path("tree-").display().to_string();
    let is_of_tree =
        |who: &ProcIdentity| !canaries.contains(&who.pid) && command_line(who.pid).contains(&trees);
    let alive = all().into_iter().filter(ProcStat::is_alive);
    let alive = alive.map(|stat| stat.identity);
    assert_none("left behind", alive.filter(is_of_tree));
    let state = daemon.state_dir().display().to_string();
    let marked = || with_env("DROWSE_STATE", &state);
    if !comes_true(CEILING, || marked().is_empty()) {
        assert_none("marked", marked());
    }
}

#[track_caller]
fn assert_none(what: &str, found: impl IntoIterator<Item = ProcIdentity>) {
    let found: Vec<String> = found.into_iter().map(|who| who.describe()).collect();
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// Says which round failed, and how to see it again.
struct Blame<'a> {
    seed: u64,
    round: &'a Round,
}

impl Drop for Blame<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(&format!("{SEED}={}: {:?}", self.seed, self.round));
        }
    }
}

/// How many descriptors and threads the daemon has.
fn size(daemon: &TestDaemon) -> (usize, usize) {
    let count = |folder: &str| {
        let path = format!("/proc/{}/{folder}", daemon.identity().pid);
        fs::read_dir(path).expect("the daemon runs").count()
    };
    (count("fd"), count("task"))
}

fn run(test: &'static str, part: u64) {
    let seed = seed_or(1);
    let mut rng = Rng::new(seed.wrapping_mul(3).wrapping_add(part));
    let agent = |name: &str, protocol: &str| {
        format!("[agents.{name}]\nprotocol = {protocol:?}\ncommand = [{TREE_AGENT:?}]\n")
    };
    let daemon = daemon!(test)
        .limit("idle_after", "1h")
        .limit("eof_grace", "150ms")
        .limit("term_grace", "150ms")
        .config(&agent("tree", "raw"))
        .config(&agent("treefake", "claude"))
        .start();
    let mut before = None;
    let mut ended = Vec::new();
    for wave in 0..ROUNDS / WAVE {
        let numbers = wave * WAVE..(wave + 1) * WAVE;
        let draw = |number| Round::draw(number, &mut rng, &daemon);
        let rounds: Vec<Round> = numbers.map(draw).collect();
        let mut running: Vec<Running> = rounds.into_iter().map(|r| r.begin(&daemon)).collect();
        rng.shuffle(&mut running);
        let each = |what: fn(&Running, &TestDaemon)| {
            for one in &running {
                let _blame = Blame {
                    seed,
                    round: &one.round,
                };
                what(one, &daemon);
            }
        };
        each(Running::end);
        each(Running::check);
        ended.extend(running);
        assert_nobody_left(&ended, &daemon);
        if before.is_none() {
            wait_settled(&daemon);
            before = Some(size(&daemon));
        }
    }
    wait_settled(&daemon);
    for one in &ended {
        let _blame = Blame {
            seed,
            round: &one.round,
        };
        one.assert_no_stranger_touched();
    }
    let before = before.expect("there was a first wave");
    let is_back = || {
        let now = size(&daemon);
        now.0 <= before.0 + SLACK && now.1 <= before.1 + SLACK
    };
    let what = || format!("{before:?} became {:?}", size(&daemon));
    assert!(
        comes_true(CEILING, is_back),
        "descriptors, threads: {}",
        what()
    );
}

/// D44: nothing lives below the daemon, and nothing waits to be collected.
fn wait_settled(daemon: &TestDaemon) {
    let settled = || {
        let status = daemon.get(async |client| client.status().await);
        status.backends == 0 && daemon.uncollected() == 0
    };
    let what = format!("{} uncollected", daemon.uncollected());
    assert!(comes_true(Duration::from_secs(2), settled), "{what}");
}

/// Behaviours 46 to 55, 97, D44, D50: all ways to escape, all ways to end.
#[test]
fn a_hundred_rounds_leave_nothing_and_touch_no_stranger() {
    run("rounds1", 0);
}

#[test]
fn another_hundred_rounds_leave_nothing_and_touch_no_stranger() {
    run("rounds2", 1);
}

#[test]
fn a_third_hundred_rounds_leave_nothing_and_touch_no_stranger() {
    run("rounds3", 2);
}
