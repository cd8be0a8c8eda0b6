//! Ends process trees: the blocking steps of the ladder, and what is left of earlier daemons.
//!
//! Fed by: reaper.rs (the daemon's threads) and keeper.rs (when its daemon has died). Decides
//! neither when nor whether: policy does.
//! Invariant: a tree counts as empty only after a fresh walk found nobody alive in it, and every
//! step ends within [`KILL_MAX`] whatever the processes do.
//!
//! A tree is frozen before it is killed, because processes that are killed one by one answer by
//! starting others; and processes are stopped at the moment they are seen, because one that forks
//! its successor and exits lives for less time than a whole walk takes.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use drowse_messages::{BootedIdentity, ProcIdentity, ProcReport, ReapStep, Survivor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::signal::{SignalError, Signaller, find};
use super::sweep::Mark;
use super::table::{self, Process, Seen, Stat, visit};

/// 5 s: a process of 50 GB needs about 3 s to give its memory back after SIGKILL; one that takes
/// longer sleeps in the kernel, and waiting on does not wake it (D46).
pub const KILL_MAX: Duration = Duration::from_secs(5);

/// 1 s of trying to stop everything; then it is killed as it is, and looked for again.
const FREEZE_MAX: Duration = Duration::from_secs(1);

/// Walks without a pause before the first short sleep: a stopped process is seen as stopped
/// within microseconds unless it has to leave the kernel first.
const FREEZE_ROUNDS_EAGER: u32 = 8;

/// Long enough to let a process on this very core take its SIGSTOP.
const FREEZE_PAUSE: Duration = Duration::from_micros(100);

/// 256 processes are killed and awaited through descriptors that are open already; more of them
/// are looked up again, and those that die slowly are found by the next walk.
const PIDFDS_MAX: usize = 256;

/// 2,048 processes in a report: enough for every real tree, small enough for a message.
const REPORT_PROCESSES_MAX: usize = 2048;

/// Where a tree hangs.
#[derive(Debug)]
pub enum Scope {
    /// Below this keeper; the keeper itself is not part of it.
    Keeper(ProcIdentity),
    /// Processes that carry a mark in their environment, and what is below them: all that can
    /// be found when their keeper is lost.
    Marked(Mark),
}

impl Scope {
    /// The topmost processes, listed now.
    fn roots(&self) -> io::Result<Vec<i32>> {
        match self {
            Self::Keeper(keeper) => table::children_of(*keeper),
            Self::Marked(mark) => mark.find(),
        }
    }
}

/// What a step found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The processes found, signalled or still there, depending on the step; at most 2,048.
    pub processes: Vec<ProcReport>,
    /// Those that could not be ended.
    pub survivors: Vec<Survivor>,
    /// True once a fresh walk found nobody alive.
    pub empty: bool,
}

/// Runs one step on the tree at `scope`.
///
/// # Errors
/// The tree cannot be looked at; [`table::is_gone`] when that is because its keeper is gone.
pub fn run(step: ReapStep, scope: &Scope) -> io::Result<Outcome> {
    match step {
        ReapStep::Snapshot => snapshot(scope),
        ReapStep::Terminate => terminate(scope),
        ReapStep::Kill => kill(scope),
        ReapStep::Verify => verify(scope),
    }
}

/// Lists and measures the tree.
fn snapshot(scope: &Scope) -> io::Result<Outcome> {
    let found = table::list(&|| scope.roots())?;
    let processes: Vec<_> = found
        .iter()
        .take(REPORT_PROCESSES_MAX)
        .map(measure)
        .collect();
    Ok(Outcome {
        empty: processes.is_empty(),
        processes,
        survivors: Vec::new(),
    })
}

fn measure(stat: &Stat) -> ProcReport {
    let measured = find(stat.identity)
        .ok()
        .and_then(|(process, _)| process.pss_bytes().ok());
    ProcReport {
        pss_bytes: measured.unwrap_or(0),
        ..stat.report()
    }
}

/// Asks every process of the tree to end, leaves first, so that a parent which waits for its
/// children finds them already asked.
fn terminate(scope: &Scope) -> io::Result<Outcome> {
    let signaller = Signaller::new();
    let found = table::list(&|| scope.roots())?;
    for stat in found.iter().rev() {
        if signaller.send_to(stat.identity, Signal::TERM).is_ok() {
            // SIGCONT follows, because a stopped process would not see SIGTERM. That it may have
            // ended in between is what was wanted.
            drop(signaller.send_to(stat.identity, Signal::CONT));
        }
    }
    let processes = found
        .iter()
        .take(REPORT_PROCESSES_MAX)
        .map(Stat::report)
        .collect();
    Ok(Outcome {
        processes,
        survivors: Vec::new(),
        empty: found.is_empty(),
    })
}

/// Is anybody left?
fn verify(scope: &Scope) -> io::Result<Outcome> {
    let left = look(scope)?;
    let processes = left
        .iter()
        .take(REPORT_PROCESSES_MAX)
        .map(Stat::report)
        .collect();
    Ok(Outcome {
        processes,
        survivors: Vec::new(),
        empty: left.is_empty(),
    })
}

/// Freezes, kills, waits and looks again until nobody is left or [`KILL_MAX`] is over.
fn kill(scope: &Scope) -> io::Result<Outcome> {
    let mut killing = Killing::new(scope);
    loop {
        let frozen = killing.freeze()?;
        killing.kill(&frozen);
        let left = look(scope)?;
        if killing.is_over(&left) {
            return Ok(killing.outcome(&left));
        }
    }
}

/// Lists who is alive, looking again while the picture changes: a `children` file can skip a
/// living child at the moment another one is removed from it, so finding nobody counts only when
/// no entry was there at all, or the same dead ones were there twice.
fn look(scope: &Scope) -> io::Result<Vec<Stat>> {
    let mut last = Seen::default();
    loop {
        let mut alive = Vec::new();
        let seen = visit(scope.roots()?, &mut |_, stat| alive.push(stat.clone()))?;
        if !alive.is_empty() || seen == last {
            return Ok(alive);
        }
        last = seen;
    }
}

/// One kill step under way.
struct Killing<'a> {
    scope: &'a Scope,
    signaller: Signaller,
    deadline: Instant,
    /// Everything ever seen in this tree, in the form it is reported.
    found: HashMap<ProcIdentity, ProcReport>,
    /// Descriptors of those found since the last kill, at most [`PIDFDS_MAX`].
    pidfds: HashMap<ProcIdentity, OwnedFd>,
    /// Whom the kernel did not let us signal, and what it said.
    refused: HashMap<ProcIdentity, String>,
}

impl<'a> Killing<'a> {
    fn new(scope: &'a Scope) -> Self {
        Self {
            scope,
            signaller: Signaller::new(),
            deadline: Instant::now() + KILL_MAX,
            found: HashMap::new(),
            pidfds: HashMap::new(),
            refused: HashMap::new(),
        }
    }

    /// Stops everything until a walk finds nobody new and nobody moving; returns what that walk
    /// found, parents first.
    fn freeze(&mut self) -> io::Result<Vec<ProcIdentity>> {
        let until = self.deadline.min(Instant::now() + FREEZE_MAX);
        let mut rounds = 0;
        loop {
            let mut restless = 0;
            let mut here = Vec::new();
            visit(self.scope.roots()?, &mut |process, stat| {
                restless += usize::from(self.stop(process, stat));
                here.push(stat.identity);
            })?;
            rounds += 1;
            if restless == 0 || Instant::now() >= until {
                return Ok(here);
            }
            if rounds > FREEZE_ROUNDS_EAGER {
                thread::sleep(FREEZE_PAUSE);
            }
        }
    }

    /// Stops one process; true when it is new or was still moving.
    fn stop(&mut self, process: &Process, stat: &Stat) -> bool {
        let is_new = !self.found.contains_key(&stat.identity);
        if !is_new && matches!(stat.state, 'T' | 't') {
            return false;
        }
        // The descriptor is opened before the signal is sent through the folder: if that
        // succeeds, the process still had its number when the descriptor was opened.
        let has_room = is_new && self.pidfds.len() < PIDFDS_MAX;
        let pidfd = has_room.then(|| open_pidfd(stat.identity)).flatten();
        let sent = self.signaller.send(process, stat, Signal::STOP);
        let is_refused = self.note(stat.identity, &sent);
        if is_new {
            self.found.insert(stat.identity, stat.report());
        }
        if sent.is_ok() {
            self.pidfds
                .extend(pidfd.map(|pidfd| (stat.identity, pidfd)));
        }
        is_new || (!stat.is_still() && !is_refused)
    }

    /// Kills these and waits until they are dead.
    fn kill(&mut self, targets: &[ProcIdentity]) {
        let pidfds = std::mem::take(&mut self.pidfds);
        for &target in targets {
            let sent = match pidfds.get(&target) {
                Some(pidfd) => self.signaller.send_through(pidfd, target, Signal::KILL),
                None => self.signaller.send_to(target, Signal::KILL),
            };
            self.note(target, &sent);
        }
        for pidfd in targets.iter().filter_map(|target| pidfds.get(target)) {
            wait_for_end(pidfd, self.deadline);
        }
    }

    /// Keeps the reason when a signal was refused; true then.
    fn note(&mut self, target: ProcIdentity, sent: &Result<(), SignalError>) -> bool {
        match sent {
            Ok(()) | Err(SignalError::Gone(_) | SignalError::IdentityDiffers(_)) => false,
            Err(
                error @ (SignalError::Protected(_)
                | SignalError::Denied(_)
                | SignalError::Failed { .. }),
            ) => {
                self.refused.insert(target, error.to_string());
                true
            }
        }
    }

    /// Nobody is left, only such as cannot be ended are, or time is up.
    fn is_over(&self, left: &[Stat]) -> bool {
        left.iter()
            .all(|stat| self.refused.contains_key(&stat.identity))
            || Instant::now() >= self.deadline
    }

    fn outcome(mut self, left: &[Stat]) -> Outcome {
        let survivors = left.iter().map(|stat| self.survivor(stat)).collect();
        let mut processes: Vec<_> = self.found.drain().map(|(_, report)| report).collect();
        processes.sort_by_key(|report| report.identity.start_ticks());
        processes.truncate(REPORT_PROCESSES_MAX);
        Outcome {
            processes,
            survivors,
            empty: left.is_empty(),
        }
    }

    fn survivor(&self, stat: &Stat) -> Survivor {
        let why = match (self.refused.get(&stat.identity), stat.state) {
            (Some(refusal), _) => refusal.clone(),
            (None, 'D') => "not killable: in uninterruptible sleep".to_owned(),
            (None, _) => format!("still there {} s after SIGKILL", KILL_MAX.as_secs()),
        };
        Survivor {
            process: stat.report(),
            state: stat.state,
            why,
        }
    }
}

fn open_pidfd(target: ProcIdentity) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(target.pid())?, PidfdFlags::empty()).ok()
}

/// Waits until the process behind `pidfd` has ended; true when it has.
fn wait_for_end(pidfd: &OwnedFd, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).unwrap_or_default();
    let mut waited = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(poll(&mut waited, Some(&timeout)), Ok(1))
}

/// Waits until the process with this identity has ended, at most until `deadline`.
///
/// True when it has ended (it may still be a zombie).
#[must_use]
pub fn wait_until_ended(target: ProcIdentity, deadline: Instant) -> bool {
    let Some(pidfd) = open_pidfd(target) else {
        return true;
    };
    // Looked at after the descriptor is open: if it still is the process meant, so is the
    // descriptor.
    match find(target) {
        Ok(_) => wait_for_end(&pidfd, deadline),
        Err(_) => true,
    }
}

/// What became of the keeper an earlier daemon left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// It has ended; nothing was signalled.
    Gone,
    /// Its number belongs to another process, or it was of another boot; nothing was signalled.
    IdentityDiffers,
    /// It was there. Its tree was ended, and then the keeper, unless something survived.
    Ended(Outcome),
}

/// Ends the tree of a keeper that an earlier daemon left behind, and the keeper itself, if it is
/// still there and still the same process of the same boot (D11).
///
/// # Errors
/// `/proc` cannot be read.
pub fn end_leftover(keeper: &BootedIdentity) -> io::Result<Leftover> {
    if keeper.boot_id != table::boot_id()? {
        return Ok(Leftover::IdentityDiffers);
    }
    match find(keeper.process) {
        Err(SignalError::IdentityDiffers(_)) => return Ok(Leftover::IdentityDiffers),
        Ok((_, stat)) if stat.is_alive() => {}
        _ => return Ok(Leftover::Gone),
    }
    let outcome = match kill(&Scope::Keeper(keeper.process)) {
        // It left by itself meanwhile, which a keeper does only when its tree is empty.
        Err(error) if table::is_gone(&error) => return Ok(Leftover::Gone),
        outcome => outcome?,
    };
    if outcome.empty
        && Signaller::new()
            .send_to(keeper.process, Signal::KILL)
            .is_ok()
    {
        let _ended = wait_until_ended(keeper.process, Instant::now() + KILL_MAX);
    }
    Ok(Leftover::Ended(outcome))
}
