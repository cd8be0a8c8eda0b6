//! Finds processes by a mark in their environment, for the one case in which no keeper leads to
//! them any more: it was killed from outside.
//!
//! Fed by: reap.rs (a lost keeper) and the daemon's start. The only place that scans `/proc`.
//! Invariant: processes of other users, those below a live keeper, this process and those it
//! descends from are never found. A process that replaced its environment is found only through
//! an ancestor that did not.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use drowse_messages::{ProcIdentity, ReapStep};

use super::reap::{Outcome, Scope, run};
use super::table::Process;

/// 8 MiB: above the 6 MiB that the kernel allows arguments and environment to take together.
const ENVIRON_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// 4,096 steps up: deeper chains than any real one; the bound only ends a loop.
const ANCESTORS_MAX: usize = 4096;

/// An environment entry that marks processes, and whom to leave alone.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The whole entry, `NAME=value`.
    pub entry: String,
    /// Live keepers: they and everything below them are not looked at.
    pub exclude: Vec<ProcIdentity>,
}

impl Mark {
    /// The marked processes alive now, in the order of their numbers.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub fn find(&self) -> io::Result<Vec<i32>> {
        let own_line = ancestors(rustix::process::getpid().as_raw_nonzero().get());
        let user = rustix::process::geteuid().as_raw();
        let mut environ = Vec::new();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let is_ours = entry.metadata().is_ok_and(|folder| folder.uid() == user);
            if is_ours
                && !own_line.contains(&pid)
                && self.marks(pid, &mut environ)
                && !self.is_excluded(pid)
            {
                found.push(pid);
            }
        }
        Ok(found)
    }

    fn marks(&self, pid: i32, environ: &mut Vec<u8>) -> bool {
        environ.clear();
        File::open(format!("/proc/{pid}/environ"))
            .and_then(|file| file.take(ENVIRON_BYTES_MAX).read_to_end(environ))
            .is_ok_and(|_| {
                environ
                    .split(|&byte| byte == 0)
                    .any(|e| e == self.entry.as_bytes())
            })
    }

    fn is_excluded(&self, pid: i32) -> bool {
        let line = ancestors(pid);
        self.exclude
            .iter()
            .any(|keeper| line.contains(&keeper.pid()))
    }
}

/// `pid` itself, its parent, and so on up.
fn ancestors(pid: i32) -> Vec<i32> {
    let parent_of = |pid: &i32| {
        Process::open(*pid)
            .and_then(|p| p.stat())
            .ok()
            .map(|s| s.parent)
    };
    std::iter::successors(Some(pid), parent_of)
        .take(ANCESTORS_MAX)
        .collect()
}

/// Ends every marked process and what is below them, by identity.
///
/// # Errors
/// `/proc` cannot be read.
pub fn sweep_marked(mark: Mark) -> io::Result<Outcome> {
    let started = Instant::now();
    let outcome = run(ReapStep::Kill, &Scope::Marked(mark))?;
    if !outcome.processes.is_empty() {
        tracing::warn!(
            processes = outcome.processes.len(),
            survivors = outcome.survivors.len(),
            took_ms = started.elapsed().as_millis(),
            "ended processes whose keeper was lost",
        );
    }
    Ok(outcome)
}
