//! Agent trees that nobody owns on this machine: finds them, measures them, ends our own.
//!
//! Fed by: the command line, with and without a running daemon. `rule` decides who is an orphan,
//! over a snapshot that `scan` reads.
//! Invariant: what is ended carries the mark of the one state folder that was asked for, belongs
//! to this user, and stands below no live keeper and no live daemon *at that moment*: every walk
//! of the ladder begins with a fresh scan, so a daemon that starts something meanwhile keeps it.
//! Arguments are never kept nor shown: they hold secrets.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use drowse_messages::{ProcIdentity, ProcReport, ReapStep, Survivor};
use rustix::process::Signal;

mod rule;
mod scan;

pub use rule::{MarkFound, Orphan, Role, Row, Standing, Table, Waiting, Why};
pub use scan::{PROCESSES_MAX, Scan, scan};

use super::reap::{self, Scope, wait_until_ended};
use super::signal::find;

/// 2,048 processes of a tree are measured: each takes some 30 µs for every 10 MB that it has.
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

/// Where the trees hang that carry the mark of a state folder and that nobody owns.
#[derive(Clone, Debug)]
pub struct Unowned {
    /// The state folder, as the mark has it.
    pub state_dir: String,
}

impl Unowned {
    /// The roots of those trees now, in the order of their numbers.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub(super) fn find(&self) -> io::Result<Vec<i32>> {
        let orphans = scan()?.table.orphans();
        let ours = orphans.iter().filter(|orphan| self.is_ours(orphan));
        Ok(ours.map(|orphan| orphan.root().identity.pid()).collect())
    }

    /// True for a tree that may be ended.
    #[must_use]
    pub fn is_ours(&self, orphan: &Orphan) -> bool {
        orphan.mark.state_dir.as_ref() == Some(&self.state_dir)
            && orphan.uid == rustix::process::geteuid().as_raw()
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

/// Ends all trees of a state folder that nobody owns: SIGTERM, at most [`TERM_GRACE`], SIGKILL.
///
/// # Errors
/// `/proc` cannot be read.
pub fn end(unowned: &Unowned) -> io::Result<Ended> {
    let scope = Scope::Unowned(unowned.clone());
    let asked = reap::run(ReapStep::Terminate, &scope)?;
    let deadline = Instant::now() + TERM_GRACE;
    let mut all = BTreeMap::new();
    for process in asked.processes {
        let _ended = wait_until_ended(process.identity, deadline);
        all.insert(process.identity, signalled(process, Signal::TERM));
    }
    let killed = reap::run(ReapStep::Kill, &scope)?;
    for process in killed.processes {
        all.insert(process.identity, signalled(process, Signal::KILL));
    }
    for survivor in &killed.survivors {
        all.remove(&survivor.process.identity);
    }
    let mut processes: Vec<_> = all.into_values().collect();
    processes.sort_by_key(|process| process.identity.start_ticks());
    Ok(Ended {
        processes,
        survivors: killed.survivors,
    })
}

fn signalled(process: ProcReport, signal: Signal) -> ProcReport {
    ProcReport {
        signal: Some(signal.as_raw()),
        ..process
    }
}
