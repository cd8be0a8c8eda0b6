//! Ways to end a tree: the kernel's, ours, and those of others.
//!
//! Programs in other languages run once and are told one pid after the other, so that the start of
//! an interpreter is not measured. A program named in `DROWSE_BENCH_PEERS` (`name=path`, several
//! with commas) takes part too: it writes a line once it is ready, then reads a pid from each line
//! of its stdin, ends that process and all below it, and writes a line.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use drowse::process::reap::{Scope, run};
use drowse_messages::ReapStep;
use drowse_tests::measure::backend::Backend;
use rustix::process::{Pid, Signal, kill_process};
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

/// Programs to compare with, besides those known here.
const PEERS_VARIABLE: &str = "DROWSE_BENCH_PEERS";
/// The folder in whose `node_modules` tree-kill is.
const NODE_VARIABLE: &str = "DROWSE_BENCH_NODE";

const PSUTIL: &str = "
import sys, psutil
print(flush=True)
for line in sys.stdin:
    try:
        root = psutil.Process(int(line))
        for process in root.children(recursive=True) + [root]:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
    except psutil.NoSuchProcess:
        pass
    print(flush=True)
";

const TREE_KILL: &str = "
const kill = require('tree-kill');
console.log();
require('readline').createInterface({ input: process.stdin })
    .on('line', pid => kill(Number(pid), 'SIGKILL', () => console.log()));
";

/// A way to end a tree.
pub(crate) enum Way {
    /// The floor: one write, and the kernel does the rest.
    Kernel,
    /// Ours, in the tree's cgroup, verified.
    CgroupTier,
    /// Ours, by walks from the keeper, verified.
    KeeperTier,
    /// One SIGKILL for each process found by a walk down the `children` files of all threads.
    Children,
    /// The same by the parents that the crate sysinfo lists.
    Sysinfo,
    /// A program of somebody else's.
    Program(Program),
}

impl Way {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Kernel => "cgroup.kill",
            Self::CgroupTier => "drowse, cgroup",
            Self::KeeperTier => "drowse, keeper",
            Self::Children => "children walk",
            Self::Sysinfo => "sysinfo",
            Self::Program(program) => &program.name,
        }
    }

    /// True for the ways that need the tree to be in a cgroup.
    pub(crate) fn needs_cgroup(&self) -> bool {
        matches!(self, Self::Kernel | Self::CgroupTier)
    }

    /// Ends the tree as well as this way can. Returns once it believes to be done.
    pub(crate) fn end(&mut self, tree: &Backend) {
        let cgroup = || tree.cgroup.as_ref().expect("asked for");
        match self {
            Self::Kernel => cgroup().kill().expect("the cgroup is ours"),
            Self::CgroupTier => {
                let opened = drowse::process::cgroup::Cgroup::open(cgroup().path());
                let opened = opened.expect("it is there");
                end_by(&Scope::keeper(tree.link.keeper()).in_cgroup(Some(opened)));
            }
            Self::KeeperTier => end_by(&Scope::keeper(tree.link.keeper())),
            Self::Children => kill_by_children(tree.agent.pid()),
            Self::Sysinfo => kill_by_sysinfo(tree.agent.pid()),
            Self::Program(program) => program.end(tree.agent.pid()),
        }
    }
}

/// All ways there are on this machine; those that are not are named with the reason.
pub(crate) fn all(has_cgroup: bool) -> (Vec<Way>, Vec<String>) {
    let mut ways = Vec::new();
    let mut missing = Vec::new();
    if has_cgroup {
        ways.extend([Way::Kernel, Way::CgroupTier]);
    }
    ways.extend([Way::KeeperTier, Way::Children, Way::Sysinfo]);
    let node_folder = env::var_os(NODE_VARIABLE).unwrap_or_default();
    let mut node = Command::new("node");
    node.args(["-e", TREE_KILL]).env("NODE_PATH", {
        let mut path = node_folder;
        path.push("/node_modules");
        path
    });
    let mut python = Command::new("python3");
    python.args(["-c", PSUTIL]);
    let mut programs = vec![
        ("psutil".to_owned(), python),
        ("tree-kill".to_owned(), node),
    ];
    let named = env::var(PEERS_VARIABLE).unwrap_or_default();
    programs.extend(named.split(',').filter_map(|one| {
        let (name, path) = one.split_once('=')?;
        Some((name.to_owned(), Command::new(path)))
    }));
    if !programs.iter().any(|(name, _)| name == "kill_tree") {
        missing.push(format!("kill_tree: not among {PEERS_VARIABLE}, not run"));
    }
    for (name, command) in programs {
        match Program::start(&name, command) {
            Some(program) => ways.push(Way::Program(program)),
            None => missing.push(format!("{name}: not found, not run")),
        }
    }
    (ways, missing)
}

fn end_by(scope: &Scope) {
    let outcome = run(ReapStep::Kill, scope).expect("the tree can be looked at");
    assert!(outcome.empty, "left behind: {:?}", outcome.survivors);
}

/// Children of all threads, one after the other, parents first.
fn kill_by_children(root: i32) {
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            next.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            );
        }
        kill(pid);
    }
}

/// Kills a process. It may have ended meanwhile, which is what was wanted.
pub(crate) fn kill(pid: i32) {
    _ = kill_process(Pid::from_raw(pid).expect("a pid is not 0"), Signal::KILL);
}

/// Lists all processes with their parents, as the crate does it, and kills whom that leads to.
fn kill_by_sysinfo(root: i32) {
    let mut system = System::new().expect("Linux is supported");
    let kind = ProcessRefreshKind::nothing().without_tasks();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
    let mut next = vec![sysinfo::Pid::from_u32(root.cast_unsigned())];
    while let Some(pid) = next.pop() {
        let is_child = |process: &&sysinfo::Process| process.parent() == Some(pid);
        let children = system.processes().values().filter(is_child);
        next.extend(children.map(sysinfo::Process::pid));
        if let Some(process) = system.process(pid) {
            // As in `kill`.
            _ = process.kill();
        }
    }
}

/// A running program of somebody else's.
pub(crate) struct Program {
    name: String,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    /// `None`: it cannot be run, or lacks something.
    fn start(name: &str, mut command: Command) -> Option<Self> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.stderr(Stdio::null()).spawn().ok()?;
        let stdin = child.stdin.take()?;
        let stdout = child.stdout.take()?;
        let mut program = Self {
            name: name.to_owned(),
            child,
            stdin,
            stdout: BufReader::new(stdout),
        };
        program.has_answered().then_some(program)
    }

    fn end(&mut self, root: i32) {
        writeln!(self.stdin, "{root}").expect("the program runs");
        assert!(self.has_answered(), "{} ended", self.name);
    }

    fn has_answered(&mut self) -> bool {
        self.stdout
            .read_line(&mut String::new())
            .is_ok_and(|length| length > 0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It ends with its stdin; a child that is killed already is collected all the same.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
