//! The kill: the cgroup whole where there is one, and by walks whatever is not in it.
//!
//! Fed by reap.rs. Invariant: nobody is left stopped or frozen who is not killed, except such as
//! may not be killed and stopped themselves.
//!
//! A cgroup ends as a whole whatever its processes do. It is frozen first all the same, so that the
//! report names everybody.
//!
//! Any other tree is frozen before it is killed, because processes that are killed one by one answer
//! by starting others; and processes are stopped at the moment they are seen, because one that forks
//! its successor and exits lives for less time than a whole walk takes.
//!
//! From the walk that stops a process to its SIGKILL a pidfd is held, for 256 processes of a
//! round. The rest are looked up again by number and start time, a clock tick of 10 ms. To be
//! taken for one of them, a stranger would have to be given the number of a process that we have
//! just stopped, which means that somebody else killed it and its parent collected it meanwhile;
//! and it would have to have *started* in the same tick as the process whose number it got, which
//! was over before that process was first seen unless all numbers of the machine were given out
//! within this one tick.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use drowse_messages::{ProcIdentity, ProcReport, Survivor};
use rustix::process::Signal;

use super::{
    HELD_MAX, KILL_MAX, Outcome, REPORT_PROCESSES_MAX, SCAN_TERMINATE, Scope, Top, look,
    open_pidfd, wait_for_end,
};
use crate::process::cgroup::Cgroup;
use crate::process::signal::SignalError;
use crate::process::table::{self, Children, Process, Stat};

/// 1 s of trying to stop everything; then it is killed as it is, and looked for again.
const FREEZE_MAX: Duration = Duration::from_secs(1);

/// 100 ms for a cgroup to freeze: it only makes the report complete, and one process that sleeps
/// in the kernel keeps all of it from being frozen.
const CGROUP_FREEZE_MAX: Duration = Duration::from_millis(100);

/// 2 s for a killed cgroup to be empty; whoever is left then is dealt with one by one.
const CGROUP_END_MAX: Duration = Duration::from_secs(2);

/// About 0.3 ms of looking whether a keeper has collected everybody.
const COLLECT_LOOKS: u32 = 30;

/// Walks without a pause before the first short sleep: a stopped process is seen as stopped
/// within microseconds unless it has to leave the kernel first.
const FREEZE_ROUNDS_EAGER: u32 = 8;

/// Long enough to let a process on this very core take its SIGSTOP.
const FREEZE_PAUSE: Duration = Duration::from_micros(100);

/// Kills, waits and looks again until nobody is left or [`KILL_MAX`] is over.
pub(super) fn kill(scope: &Scope) -> io::Result<Outcome> {
    let mut killing = Killing::new(scope);
    if let Some(cgroup) = &scope.cgroup
        && killing.kill_whole(cgroup)?
    {
        let left = look_again(scope)?;
        if killing.is_over(&left) {
            return Ok(killing.outcome(&left));
        }
    }
    loop {
        let frozen = killing.freeze()?;
        killing.kill(&frozen);
        let left = look_again(scope)?;
        if killing.is_over(&left) {
            return Ok(killing.outcome(&left));
        }
    }
}

/// Who is left, once their keeper had a moment to collect who is not: each entry of a dead process
/// costs a look of its own.
fn look_again(scope: &Scope) -> io::Result<Vec<Stat>> {
    if let Top::Keeper(keeper) = scope.top
        && is_soon_childless(keeper)
        && scope.in_own_cgroup()?.is_empty()
    {
        // No entry anywhere is as good as any walk.
        return Ok(Vec::new());
    }
    look(scope)
}

/// True once this keeper, which runs, has collected all its children; false when it has some
/// after a moment.
fn is_soon_childless(keeper: ProcIdentity) -> bool {
    let Ok(children) = Children::of(keeper) else {
        return false;
    };
    for _ in 0..COLLECT_LOOKS {
        match children.are_none() {
            Ok(true) => return children.have_parent(),
            Ok(false) => thread::yield_now(),
            Err(_) => return false,
        }
    }
    false
}

/// One kill step under way.
struct Killing<'a> {
    scope: &'a Scope,
    deadline: Instant,
    /// How often the tree was read, counted on from the steps before.
    scan: u32,
    /// Everything ever seen in this tree, in the form it is reported.
    found: HashMap<ProcIdentity, ProcReport>,
    /// Descriptors of those found since the last kill, at most [`HELD_MAX`].
    pidfds: HashMap<ProcIdentity, OwnedFd>,
    /// Whom the kernel did not let us signal, and what it said.
    refused: HashMap<ProcIdentity, String>,
}

impl<'a> Killing<'a> {
    fn new(scope: &'a Scope) -> Self {
        Self {
            scope,
            deadline: Instant::now() + KILL_MAX,
            scan: SCAN_TERMINATE,
            found: HashMap::new(),
            pidfds: HashMap::new(),
            refused: HashMap::new(),
        }
    }

    /// Notes who is in the cgroup, kills it whole, and waits for its end. Not done, and false, when
    /// something in it is to live, or nobody is in it.
    fn kill_whole(&mut self, cgroup: &Cgroup) -> io::Result<bool> {
        let first = match self.scope.kept.is_empty() {
            true => self.scope.in_own_cgroup()?,
            false => Vec::new(),
        };
        let Some(newest) = first.iter().copied().max() else {
            cgroup.thaw()?;
            return Ok(false);
        };
        self.scan += 1;
        let mut inside = HashMap::with_capacity(first.len());
        // It freezes while its processes are looked at.
        let frozen = cgroup.freeze()?;
        self.look_at(first, &mut inside);
        let newest_end = open_pidfd(newest);
        let _all = frozen.wait(self.deadline.min(Instant::now() + CGROUP_FREEZE_MAX))?;
        self.look_at(cgroup.processes()?, &mut inside);
        // It was in the cgroup before and after the descriptor was opened.
        let newest_end = newest_end.filter(|_| inside.contains_key(&newest));
        cgroup.kill()?;
        self.note_killed(inside.into_values());
        let until = self.deadline.min(Instant::now() + CGROUP_END_MAX);
        // Asleep until most have ended: whoever looks at the events meanwhile takes a core from
        // those that end.
        let _most = newest_end.map(|pidfd| wait_for_end(&pidfd, until));
        let _empty = cgroup.wait_until_empty(until)?;
        // SIGKILL ends the frozen, too.
        drop(frozen);
        Ok(true)
    }

    /// Notes these, who are in the cgroup; those that `inside` has already are not looked at again.
    fn look_at(&mut self, pids: Vec<i32>, inside: &mut HashMap<i32, Stat>) {
        for &pid in &pids {
            if !inside.contains_key(&pid)
                && let Ok(stat) = table::stat_of(pid)
            {
                self.note_found(&stat);
                inside.insert(pid, stat);
            }
        }
        // Whoever has left meanwhile was not killed with it.
        let pids: HashSet<i32> = pids.into_iter().collect();
        inside.retain(|pid, _| pids.contains(pid));
    }

    fn note_killed(&mut self, inside: impl Iterator<Item = Stat>) {
        for stat in inside {
            self.note_found(&stat).signal = Some(Signal::KILL.as_raw());
            // The kernel signals the first thread of each process, and a dead one passes nothing
            // on.
            if stat.is_leaderless() {
                let sent = self.scope.signaller().send_to(stat.identity, Signal::KILL);
                self.note(stat.identity, &sent);
            }
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
            self.scan = self.scan.saturating_add(1);
            self.scope.visit(&mut |process, stat| {
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
        let has_room = is_new && self.pidfds.len() < HELD_MAX;
        let pidfd = has_room.then(|| open_pidfd(stat.identity.pid())).flatten();
        let sent = self.scope.signaller().send(process, stat, Signal::STOP);
        let is_refused = self.note(stat.identity, &sent);
        self.note_found(stat);
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
                Some(pidfd) => self
                    .scope
                    .signaller()
                    .send_through(pidfd, target, Signal::KILL),
                None => self.scope.signaller().send_to(target, Signal::KILL),
            };
            if sent.is_ok()
                && let Some(report) = self.found.get_mut(&target)
            {
                report.signal = Some(Signal::KILL.as_raw());
            }
            self.note(target, &sent);
        }
        for pidfd in targets.iter().filter_map(|target| pidfds.get(target)) {
            wait_for_end(pidfd, self.deadline);
        }
    }

    fn note_found(&mut self, stat: &Stat) -> &mut ProcReport {
        let scan = self.scan;
        self.found
            .entry(stat.identity)
            .or_insert_with(|| ProcReport {
                scan,
                ..stat.report()
            })
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
        let survivors: Vec<_> = left.iter().map(|stat| self.survivor(stat)).collect();
        let mut processes: Vec<_> = self.found.drain().map(|(_, report)| report).collect();
        processes.sort_by_key(|report| report.identity.start_ticks());
        processes.truncate(REPORT_PROCESSES_MAX);
        Outcome {
            processes,
            empty: survivors.is_empty(),
            survivors,
            ..Outcome::default()
        }
    }

    fn survivor(&self, stat: &Stat) -> Survivor {
        let why = match (self.refused.get(&stat.identity), stat.state) {
            (Some(refusal), _) => refusal.clone(),
            (None, 'D') => "not killable: in uninterruptible sleep".to_owned(),
            (None, _) => format!("still there {} s after SIGKILL", KILL_MAX.as_secs()),
        };
        let known = self.found.get(&stat.identity);
        Survivor {
            process: known.cloned().unwrap_or_else(|| stat.report()),
            state: stat.state,
            why,
        }
    }
}
