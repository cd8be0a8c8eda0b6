//! Finds processes by a mark in their environment, for the one case in which no keeper leads to
//! them any more: it was killed from outside.
//!
//! Fed by: reap.rs (a lost keeper) and the daemon's start. The only place that scans `/proc`.
//! Invariant: processes of other users, keepers and what is below them, this process and those it
//! descends from are never found: a keeper that lives is not lost, and ends its tree itself. A
//! process that replaced its environment is found only through an ancestor that did not.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use drowse_messages::{ProcIdentity, ReapStep};

use super::reap::{Outcome, Scope, run};
use super::table;

/// 8 MiB: above the 6 MiB that the kernel allows arguments and environment to take together.
const ENVIRON_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How the arguments of every keeper begin.
const KEEPER_ARGUMENTS: &[u8] = b"drowse\0keeper\0";

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
        read_environ(pid, environ) && entries(environ).any(|one| one == self.entry.as_bytes())
    }

    /// True for a process that carries the same variable with another value.
    pub(super) fn is_of_another(&self, pid: i32) -> bool {
        let (name, _) = self.entry.split_once('=').unwrap_or((&self.entry, ""));
        let mut environ = Vec::new();
        read_environ(pid, &mut environ)
            && entries(&environ)
                .filter_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
                .any(|value| self.entry.as_bytes()[name.len() + 1..] != *value)
    }

    fn is_excluded(&self, pid: i32) -> bool {
        let line = ancestors(pid);
        let is_listed = |one: &i32| self.exclude.iter().any(|keeper| keeper.pid() == *one);
        line.iter().any(|one| is_listed(one) || is_keeper(*one))
    }
}

fn read_environ(pid: i32, environ: &mut Vec<u8>) -> bool {
    environ.clear();
    let is_read = read_into(environ, &format!("/proc/{pid}/environ"));
    if environ.is_empty() && table::stat_of(pid).is_ok_and(|stat| stat.is_leaderless()) {
        // With its first thread a process seems to have lost its memory, which the others share.
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        return threads.into_iter().flatten().flatten().any(|thread| {
            let file = thread.path().join("environ");
            read_into(environ, &file.to_string_lossy()) && !environ.is_empty()
        });
    }
    is_read
}

fn read_into(environ: &mut Vec<u8>, path: &str) -> bool {
    File::open(path)
        .and_then(|file| file.take(ENVIRON_BYTES_MAX).read_to_end(environ))
        .is_ok()
}

fn entries(environ: &[u8]) -> impl Iterator<Item = &[u8]> {
    environ.split(|&byte| byte == 0)
}

/// True for a keeper, by the arguments that it was started with.
pub(super) fn is_keeper(pid: i32) -> bool {
    let mut start = Vec::new();
    let most = u64::try_from(KEEPER_ARGUMENTS.len()).expect("a few bytes");
    File::open(format!("/proc/{pid}/cmdline"))
        .and_then(|file| file.take(most).read_to_end(&mut start))
        .is_ok_and(|_| start == KEEPER_ARGUMENTS)
}

/// `pid` itself, its parent, and so on up.
fn ancestors(pid: i32) -> Vec<i32> {
    let parent_of = |pid: &i32| table::stat_of(*pid).ok().map(|stat| stat.parent);
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
    let outcome = run(ReapStep::Kill, &Scope::marked(mark))?;
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
