//! Trees of processes to be ended: each below a keeper, in a cgroup of its own where one is asked
//! for; and processes that have nothing to do with them.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use drowse::process::cgroup::place::Cgroups;
use drowse::process::spawn::KeeperProgram;
use drowse::process::table::walk;
use drowse_messages::ProcIdentity;
use drowse_tests::measure::backend::Backend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::AsyncReadExt;

const TREE_AGENT: &str = env!("CARGO_BIN_EXE_tree-agent");

/// 30 s for all of a tree to end: the slowest peer takes 20 for 1,000 processes.
const END_MAX: Duration = Duration::from_secs(30);

/// A tree to grow: its name, its root's script, and how many of its processes write a byte once
/// they are there.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) script: String,
    pub(crate) bytes: usize,
}

impl Shape {
    pub(crate) fn new(name: &'static str, script: impl Into<String>, bytes: usize) -> Self {
        let script = script.into();
        Self {
            name,
            script,
            bytes,
        }
    }

    /// Each process the parent of the next.
    pub(crate) fn chain(name: &'static str, length: usize) -> Self {
        let grow = |below, _| format!("fork[{below}];byte;sleep");
        Self::new(
            name,
            (1..length).fold("byte;sleep".to_owned(), grow),
            length,
        )
    }
}

/// Starts a tree and waits until all who are to write have written.
pub(crate) async fn grow(
    program: &KeeperProgram,
    shape: &Shape,
    place: Option<&Cgroups>,
) -> Backend {
    let mut tree = Backend::start(program, &[TREE_AGENT, &shape.script], place).await;
    let mut here = vec![0; shape.bytes];
    let written = tree.stdio.stdout.read_exact(&mut here).await;
    written.expect("every process writes a byte");
    tree
}

/// Everybody in a tree now.
pub(crate) fn processes(tree: &Backend) -> Vec<ProcIdentity> {
    let found = walk(tree.link.keeper()).expect("the keeper runs");
    found.iter().map(|stat| stat.identity).collect()
}

/// Descriptors that tell when these processes have ended.
pub(crate) fn open_all(tree: &[ProcIdentity]) -> Vec<OwnedFd> {
    let open = |process: &ProcIdentity| {
        let pid = Pid::from_raw(process.pid()).expect("a pid is not 0");
        pidfd_open(pid, PidfdFlags::empty()).expect("the process runs")
    };
    tree.iter().map(open).collect()
}

/// Waits until all have ended; how many have not within [`END_MAX`].
pub(crate) fn await_all(pidfds: &[OwnedFd]) -> usize {
    let deadline = Instant::now() + END_MAX;
    let has_ended = |pidfd: &&OwnedFd| {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("seconds");
        let mut waited = [PollFd::new(*pidfd, PollFlags::IN)];
        poll(&mut waited, Some(&timeout)) == Ok(1)
    };
    pidfds.iter().filter(|pidfd| !has_ended(pidfd)).count()
}

/// Processes that sleep; ended on drop.
pub(crate) struct Strangers(Child);

impl Strangers {
    /// Starts so many, or says why there is no room for them.
    pub(crate) fn start(count: usize) -> Result<Self, String> {
        let number = |path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.trim().parse::<usize>().unwrap_or(0)
        };
        let taken = fs::read_dir("/proc").map_or(0, Iterator::count);
        let most = number("/proc/sys/kernel/pid_max").min(number("/proc/sys/kernel/threads-max"));
        if most < taken + 2 * count {
            return Err(format!("{most} processes are possible, {taken} are there"));
        }
        // The kernel collects them as they end: no init has ten thousand zombies to look after,
        // and whoever is listed still lives.
        let mut child = Command::new(TREE_AGENT)
            .arg(format!("forget;times {count}[fork[sleep]];byte;sleep"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program was built with the benches");
        let mut byte = [0];
        let stdout = child.stdout.as_mut().expect("it is piped");
        let written = stdout.read_exact(&mut byte);
        let strangers = Self(child);
        match written {
            Ok(()) => Ok(strangers),
            Err(_) => Err("the machine refused to start them".to_owned()),
        }
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        let root = self.0.id();
        let children = || {
            let text = fs::read_to_string(format!("/proc/{root}/task/{root}/children"));
            let text = text.unwrap_or_default();
            let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.collect::<Vec<i32>>()
        };
        loop {
            let left = children();
            if left.is_empty() {
                break;
            }
            left.into_iter().for_each(super::ways::kill);
            std::thread::yield_now();
        }
        self.0.kill().expect("the child is ours");
        self.0.wait().expect("the child is ours");
    }
}
