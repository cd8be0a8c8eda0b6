//! Ends process trees: the blocking steps of the ladder, and what is left of earlier daemons.
//!
//! Fed by: reaper.rs (the daemon's threads) and keeper.rs (when its daemon has died). Decides
//! neither when nor whether: policy does.
//! Invariant: a tree counts as empty only after a fresh walk found nobody alive in it but what is
//! kept, and every step ends within [`KILL_MAX`] whatever the processes do.
//!
//! A tree is what is below its keeper and what is in its cgroup, if it has one: a process may
//! leave either (root moves itself to another cgroup; whoever kills a keeper takes the way down
//! from it away), hardly both.
//!
//! **Nobody is signalled by a number that was noted earlier.** Between steps nothing is kept of a
//! tree but its keeper's identity and cgroup: whom a step signals it has found itself, a moment
//! ago, below that keeper or in that cgroup, and the signal goes through the `/proc` folder or the
//! pidfd that was opened when it was found. Both stay bound to that one process when its number is
//! given to another ([`table::Process`]), so that a descriptor kept from an earlier walk would
//! reach nobody whom the fresh walk does not. `kill` says what holds between two walks of the
//! same step.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use drowse_messages::{BootedIdentity, KeepRule, ProcIdentity, ProcReport, ReapStep, Survivor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::adopted;
use super::cgroup::Cgroup;
use super::listening;
use super::signal::{SignalError, Signaller, find};
use super::sweep::Mark;
use super::table::{self, Process, Stat, Visit};

mod keep;
mod kill;

/// 5 s: a process of 50 GB needs about 3 s to give its memory back after SIGKILL; one that takes
/// longer sleeps in the kernel, and waiting on does not wake it (D46).
pub const KILL_MAX: Duration = Duration::from_secs(5);

/// 2,048 processes in a report: enough for every real tree, small enough for a message.
const REPORT_PROCESSES_MAX: usize = 2048;

/// 256 processes are signalled, and awaited, through descriptors that have been open since they
/// were found; more of them are looked up again, by number and start time.
const HELD_MAX: usize = 256;

/// 4,096 steps up: deeper chains than any real one; the bound only ends a loop.
const ANCESTORS_MAX: usize = 4096;

/// Which reading of the tree a process was found in; see [`ProcReport::scan`].
const SCAN_SNAPSHOT: u32 = 0;
/// As above.
const SCAN_TERMINATE: u32 = 1;

/// How a tree hangs together from above.
#[derive(Debug)]
enum Top {
    /// Below this keeper; the keeper itself is not part of it.
    Keeper(ProcIdentity),
    /// Processes that carry a mark in their environment, and what is below them.
    Marked(Mark),
    /// The same, and what came to this process when its keeper was killed.
    Lost(Mark),
    /// Nobody is: the tree is what is in its cgroup.
    Missing,
}

/// A tree: where it hangs, and what of it is not to be ended.
#[derive(Debug)]
pub struct Scope {
    top: Top,
    cgroup: Option<Cgroup>,
    /// The agent, which no rule keeps.
    agent: Option<ProcIdentity>,
    rules: Vec<KeepRule>,
    /// The processes that the rules name.
    kept: BTreeSet<ProcIdentity>,
    /// Made when somebody is to be signalled, or might be.
    signaller: OnceCell<Signaller>,
}

impl Scope {
    fn below(top: Top) -> Self {
        Self {
            top,
            cgroup: None,
            agent: None,
            rules: Vec::new(),
            kept: BTreeSet::new(),
            signaller: OnceCell::new(),
        }
    }

    /// What is below this keeper.
    #[must_use]
    pub fn keeper(keeper: ProcIdentity) -> Self {
        Self::below(Top::Keeper(keeper))
    }

    /// Processes that carry a mark in their environment, and what is below them.
    #[must_use]
    pub fn marked(mark: Mark) -> Self {
        Self::below(Top::Marked(mark))
    }

    /// What a keeper that was killed from outside has left: the processes with its mark, those
    /// that this process has adopted, and what is below them.
    #[must_use]
    pub fn lost(mark: Mark) -> Self {
        Self::below(Top::Lost(mark))
    }

    /// And what is in this cgroup.
    #[must_use]
    pub fn in_cgroup(self, cgroup: Option<Cgroup>) -> Self {
        Self { cgroup, ..self }
    }

    /// But not what these rules mean. They never mean the agent.
    #[must_use]
    pub fn keeping(self, rules: Vec<KeepRule>, agent: Option<ProcIdentity>) -> Self {
        let named = rules.iter().filter_map(|rule| match rule {
            KeepRule::Process(process) => Some(*process),
            KeepRule::Listen(_) | KeepRule::Exe(_) => None,
        });
        let kept = named.filter(|&process| Some(process) != agent).collect();
        Self {
            agent,
            kept,
            rules,
            ..self
        }
    }

    /// One visit of everything in the tree but what is kept.
    fn visit(&self, on_found: &mut dyn FnMut(&Process, &Stat)) -> io::Result<Visit> {
        self.visit_all(&mut |process, stat| {
            let is_kept = self.kept.contains(&stat.identity);
            if !is_kept {
                on_found(process, stat);
            }
            !is_kept
        })
    }

    /// One visit of everything in the tree, as deep as `on_found` says.
    fn visit_all(&self, on_found: &mut dyn FnMut(&Process, &Stat) -> bool) -> io::Result<Visit> {
        let roots = match &self.top {
            Top::Keeper(keeper) => table::children_of(*keeper)?,
            Top::Marked(mark) => mark.find()?,
            Top::Lost(mark) => [mark.find()?, adopted::find(mark)?].concat(),
            Top::Missing => Vec::new(),
        };
        let mut visit = Visit::default();
        visit.below(roots, on_found)?;
        let mut others = self.in_own_cgroup()?;
        others.retain(|&pid| !visit.has(pid) && !self.is_below_kept(pid));
        visit.below(others, on_found)?;
        Ok(visit)
    }

    fn signaller(&self) -> &Signaller {
        self.signaller.get_or_init(Signaller::new)
    }

    /// The pids in the cgroup. Nobody, when this process or one that it descends from is in it:
    /// somebody has moved it there, and what is below it is none of this tree.
    fn in_own_cgroup(&self) -> io::Result<Vec<i32>> {
        let Some(cgroup) = &self.cgroup else {
            return Ok(Vec::new());
        };
        let mut inside = cgroup.processes()?;
        if inside.iter().any(|&pid| self.signaller().protects(pid)) {
            inside.clear();
        }
        Ok(inside)
    }

    /// True when the way up from this process leads to one that is kept.
    fn is_below_kept(&self, pid: i32) -> bool {
        let is_kept = |stat: &Stat| self.kept.contains(&stat.identity);
        !self.kept.is_empty() && line_of(pid).any(|stat| is_kept(&stat))
    }

    /// Lists what `pick` makes of the tree without what is kept.
    fn list<T>(&self, pick: &dyn Fn(&Process, &Stat, usize) -> T) -> io::Result<Vec<T>> {
        let visit = |on_found: &mut dyn FnMut(&Process, &Stat) -> bool| {
            self.visit(&mut |process, stat| {
                on_found(process, stat);
            })
        };
        table::list(&visit, pick)
    }

    /// Lists what is kept and lives, with all that is below it.
    fn list_kept(&self) -> io::Result<Vec<Stat>> {
        if self.kept.is_empty() {
            return Ok(Vec::new());
        }
        let is_there = |process: &&ProcIdentity| find(**process).is_ok();
        let roots = self
            .kept
            .iter()
            .filter(is_there)
            .map(|process| process.pid());
        let roots: Vec<_> = roots.collect();
        let visit = |on_found: &mut dyn FnMut(&Process, &Stat) -> bool| {
            let mut visit = Visit::default();
            visit.below(roots.clone(), on_found)?;
            Ok(visit)
        };
        table::list(&visit, &|_, stat, _| stat.clone())
    }
}

/// A process, its parent, and so on up, as they are now.
fn line_of(pid: i32) -> impl Iterator<Item = Stat> {
    let first = table::stat_of(pid).ok();
    std::iter::successors(first, |stat| table::stat_of(stat.parent).ok()).take(ANCESTORS_MAX)
}

/// What a step found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The processes found, signalled or still there, depending on the step; at most 2,048.
    pub processes: Vec<ProcReport>,
    /// Those that could not be ended.
    pub survivors: Vec<Survivor>,
    /// Those that are kept, and live; at most 2,048.
    pub kept: Vec<ProcReport>,
    /// True once a fresh walk found nobody alive but those.
    pub empty: bool,
}

/// Runs one step on a tree.
///
/// # Errors
/// The tree cannot be looked at; [`table::is_gone`] when that is because its keeper is gone.
pub fn run(step: ReapStep, scope: &Scope) -> io::Result<Outcome> {
    let outcome = match step {
        ReapStep::Look => {
            return listed(scope, &|stat| ProcReport {
                process_session: stat.process_session,
                ..stat.report()
            });
        }
        ReapStep::Snapshot => return listed(scope, &measure),
        ReapStep::Terminate => terminate(scope),
        ReapStep::Kill => kill::kill(scope),
        ReapStep::Verify => verify(scope),
    }?;
    Ok(Outcome {
        kept: reports(&scope.list_kept()?, &Stat::report),
        ..outcome
    })
}

fn reports(found: &[Stat], report: &dyn Fn(&Stat) -> ProcReport) -> Vec<ProcReport> {
    found
        .iter()
        .take(REPORT_PROCESSES_MAX)
        .map(report)
        .collect()
}

/// Lists the tree, and says what of it the rules keep.
fn listed(scope: &Scope, report: &dyn Fn(&Stat) -> ProcReport) -> io::Result<Outcome> {
    let visit = |on_found: &mut dyn FnMut(&Process, &Stat) -> bool| scope.visit_all(on_found);
    let mut found = table::list(&visit, &|_, stat, _| stat.clone())?;
    let ports = listening::ports_of(&found);
    let kept_pids = keep::resolve(&found, &scope.rules, scope.agent, &ports);
    let reported = |stat: &Stat| ProcReport {
        listens: ports.get(&stat.identity).cloned().unwrap_or_default(),
        scan: SCAN_SNAPSHOT,
        ..report(stat)
    };
    let kept: Vec<_> = found
        .extract_if(.., |stat| kept_pids.contains(&stat.identity))
        .collect();
    Ok(Outcome {
        empty: found.is_empty(),
        processes: reports(&found, &reported),
        survivors: Vec::new(),
        kept: reports(&kept, &reported),
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
    if let Some(cgroup) = &scope.cgroup {
        // Somebody may have frozen it, and then nobody in it would hear.
        cgroup.thaw()?;
    }
    let signaller = scope.signaller();
    let found = scope.list(&|process, stat, count| {
        let held = (count < HELD_MAX).then(|| process.hold().ok()).flatten();
        (stat.clone(), held)
    })?;
    let mut processes = Vec::new();
    for (stat, held) in found.iter().rev() {
        let send = |signal| match held {
            Some(folder) => signaller.send_through(folder, stat.identity, signal),
            None => signaller.send_to(stat.identity, signal),
        };
        let is_sent = send(Signal::TERM).is_ok();
        if is_sent {
            // SIGCONT follows, because a stopped process would not see SIGTERM. That it may have
            // ended in between is what was wanted.
            drop(send(Signal::CONT));
        }
        processes.push(ProcReport {
            scan: SCAN_TERMINATE,
            signal: is_sent.then_some(Signal::TERM.as_raw()),
            ..stat.report()
        });
    }
    processes.reverse();
    processes.truncate(REPORT_PROCESSES_MAX);
    Ok(Outcome {
        processes,
        empty: found.is_empty(),
        ..Outcome::default()
    })
}

/// Is anybody left?
fn verify(scope: &Scope) -> io::Result<Outcome> {
    let left = look(scope)?;
    Ok(Outcome {
        processes: reports(&left, &Stat::report),
        empty: left.is_empty(),
        ..Outcome::default()
    })
}

/// Lists who is alive, looking again while the picture changes: a `children` file can skip a
/// living child at the moment another one is removed from it, so finding nobody counts only when
/// no entry was there at all, or the same dead ones were there twice.
fn look(scope: &Scope) -> io::Result<Vec<Stat>> {
    let mut last = Visit::default();
    loop {
        let mut alive = Vec::new();
        let seen = scope.visit(&mut |_, stat| alive.push(stat.clone()))?;
        if !alive.is_empty() || seen.is_like(&last) {
            return Ok(alive);
        }
        last = seen;
    }
}

fn open_pidfd(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
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
    let Some(pidfd) = open_pidfd(target.pid()) else {
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
/// still there and still the same process of the same boot (D11). `cgroup` is the tree's, and is
/// ended also when the keeper is gone.
///
/// # Errors
/// `/proc` cannot be read.
pub fn end_leftover(keeper: &BootedIdentity, cgroup: Option<Cgroup>) -> io::Result<Leftover> {
    // No keeper stands above its daemon: a record that says so means another process (D12).
    let is_above = Signaller::new().protects(keeper.process.pid());
    if is_above || keeper.boot_id != table::boot_id()? {
        return Ok(Leftover::IdentityDiffers);
    }
    let absent = match find(keeper.process) {
        Err(SignalError::IdentityDiffers(_)) => Some(Leftover::IdentityDiffers),
        Ok((_, stat)) if stat.is_alive() => None,
        _ => Some(Leftover::Gone),
    };
    let top = match absent {
        None => Top::Keeper(keeper.process),
        Some(_) if cgroup.is_some() => Top::Missing,
        Some(absent) => return Ok(absent),
    };
    let outcome = match kill::kill(&Scope::below(top).in_cgroup(cgroup)) {
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
