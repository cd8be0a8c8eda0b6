//! Agent trees that nobody owns on this machine: finds them, measures them, ends our own.
//!
//! Fed by: the command line, with and without a running daemon. `rule` decides who is an orphan,
//! over a snapshot that `scan` reads.
//! Invariant: what is ended carries the mark of the one state folder that was asked for, or stands
//! below such a process, belongs to this user, and stands below no live keeper *at that moment*:
//! each walk of the ladder looks for the mark and for keepers anew, so what a daemon starts
//! meanwhile is its own.
//! Arguments are never kept nor shown: they hold secrets.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use drowse_messages::{KeepRule, ProcIdentity, ProcReport, ReapStep, Survivor};

mod rule;
mod scan;

pub use rule::{MarkFound, Orphan, Role, Row, Table, Ties, Waiting, Why};
pub use scan::{PROCESSES_MAX, Scan, scan};

use super::listening;
use super::reap::{self, Scope, wait_until_ended};
use super::signal::find;
use super::sweep::Mark;
use super::table::{self, Stat};
use crate::backend::STATE_VARIABLE;

/// 2,048 processes of a tree are measured, as many as the report of a teardown names.
const MEASURED_MAX: usize = 2048;

/// 5 s between SIGTERM and SIGKILL, as sessions have unless configured: of a tree without an owner
/// it is not known which session's limits are meant.
pub const TERM_GRACE: Duration = Duration::from_secs(5);

/// What a tree costs, as far as this user may read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Of all its processes.
    pub memory_bytes: u64,
    /// True when all of it are proportional set sizes; else some are resident sizes, which count
    /// shared pages for each process.
    pub is_pss: bool,
    /// Since the root was started.
    pub age: Duration,
    /// Where the root runs.
    pub cwd: Option<PathBuf>,
    /// The TCP ports that somebody in the tree listens on, in order.
    pub listens: Vec<u16>,
}

/// Measures a tree. What has ended meanwhile counts nothing.
#[must_use]
pub fn measure(orphan: &Orphan) -> Measured {
    let root = orphan.root().identity;
    let mut measured = Measured {
        is_pss: true,
        age: age(root),
        cwd: find(root)
            .ok()
            .and_then(|(process, _)| scan::link(&process, "cwd")),
        listens: listens(&orphan.members),
        ..Measured::default()
    };
    for member in orphan.members.iter().take(MEASURED_MAX) {
        let Ok((process, _)) = find(member.identity) else {
            continue;
        };
        let bytes = process.pss_bytes().or_else(|_| {
            measured.is_pss = false;
            scan::rss_bytes(&process).ok_or(io::ErrorKind::NotFound)
        });
        measured.memory_bytes += bytes.unwrap_or(0);
    }
    measured
}

fn listens(members: &[Stat]) -> Vec<u16> {
    let measured = members.get(..MEASURED_MAX).unwrap_or(members);
    let mut ports: Vec<u16> = listening::ports_of(measured)
        .into_values()
        .flatten()
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// How long ago a process was started.
fn age(process: ProcIdentity) -> Duration {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = uptime
        .split(' ')
        .next()
        .and_then(|text| text.parse::<f64>().ok());
    let now = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let started =
        Duration::from_millis(process.start_ticks().saturating_mul(1000) / ticks_per_second);
    now.unwrap_or_default().saturating_sub(started)
}

/// Which trees are ours to end.
#[derive(Clone, Debug)]
pub struct Ours {
    /// The state folder, as the mark has it.
    pub state_dir: String,
    /// The daemon of that folder, if one runs. What a keeper that was killed left to it is its own.
    pub daemon: Option<i32>,
}

impl Ours {
    /// True for a tree that may be ended.
    #[must_use]
    pub fn has(&self, orphan: &Orphan) -> bool {
        orphan.mark.state_dir.as_ref() == Some(&self.state_dir)
            && orphan.uid == rustix::process::geteuid().as_raw()
    }

    /// Everything with the mark, as it is found at the moment of each walk. What has an owner now
    /// is left out for the whole step: a daemon, and owners that live inside an orphan.
    fn scope(&self) -> io::Result<Scope> {
        let orphans = scan()?.table.orphans();
        let ours = orphans.into_iter().filter(|orphan| self.has(orphan));
        let owners = ours.flat_map(|orphan| orphan.owners);
        let daemon = self.daemon.and_then(|pid| table::identify(pid).ok());
        let mark = Mark {
            entry: format!("{STATE_VARIABLE}={}", self.state_dir),
            exclude: daemon.into_iter().collect(),
        };
        Ok(Scope::marked(mark).keeping(owners.map(KeepRule::Process).collect(), None))
    }
}

/// What became of the trees that were to be ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Who has ended, each with the last signal that was sent to it, by start.
    pub processes: Vec<ProcReport>,
    /// Who has not, and why.
    pub survivors: Vec<Survivor>,
}

/// Ends all trees that are ours: SIGTERM, at most [`TERM_GRACE`], SIGKILL.
///
/// # Errors
/// `/proc` cannot be read.
pub fn end(ours: &Ours) -> io::Result<Ended> {
    let asked = reap::run(ReapStep::Terminate, &ours.scope()?)?;
    let deadline = Instant::now() + TERM_GRACE;
    for process in &asked.processes {
        // Those that are left are found again by the next step.
        let _ended = wait_until_ended(process.identity, deadline);
    }
    let killed = reap::run(ReapStep::Kill, &ours.scope()?)?;
    let all = asked.processes.into_iter().chain(killed.processes);
    let mut ended: BTreeMap<_, _> = all.map(|process| (process.identity, process)).collect();
    for survivor in &killed.survivors {
        ended.remove(&survivor.process.identity);
    }
    let mut processes: Vec<_> = ended.into_values().collect();
    processes.sort_by_key(|process| process.identity.start_ticks());
    Ok(Ended {
        processes,
        survivors: killed.survivors,
    })
}
