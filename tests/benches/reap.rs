//! How long a tree of processes takes to end: `cargo bench -p drowse-tests --bench reap`.
//!
//! Floor: `cgroup.kill`, where a cgroup v2 is mounted and may be written to; it needs no list of
//! processes. Peer: a walk down `children`, one SIGKILL for each process found, as most programs
//! do that end trees; it misses what is started meanwhile. Time counts until all have ended.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use drowse::process::control::{Launch, ToKeeper};
use drowse::process::link::{AgentStdio, KeeperEvent, KeeperLink};
use drowse::process::reap::{Scope, run};
use drowse::process::spawn::KeeperProgram;
use drowse::process::table::walk;
use drowse_messages::{ProcIdentity, ReapStep, SessionId};
use drowse_tests::measure::{Samples, heading, line, row, wanted};
use nix::sys::wait::waitpid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tokio::io::AsyncReadExt;

const TREE_AGENT: &str = env!("CARGO_BIN_EXE_tree-agent");
/// Where a cgroup v2 is usually mounted: alone, or beside the first version.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Processes that have nothing to do with the tree.
const STRANGERS: usize = 10_000;

/// A tree: its name, the script of its root, how many processes it has, and rounds.
struct Shape {
    name: &'static str,
    script: String,
    processes: usize,
    rounds: usize,
}

fn shapes() -> [Shape; 4] {
    let chain = (1..10).fold(String::from("byte;sleep"), |below, _| {
        format!("fork[{below}];byte;sleep")
    });
    let shape = |name, script: &str, processes, rounds| Shape {
        name,
        script: script.to_owned(),
        processes,
        rounds,
    };
    [
        shape("chain of 10", &chain, 10, 60),
        shape(
            "31, 5 x 5 deep",
            "times 5[fork[times 5[fork[byte;sleep]];byte;sleep]];byte;sleep",
            31,
            60,
        ),
        shape(
            "201 wide",
            "times 200[fork[byte;sleep]];byte;sleep",
            201,
            20,
        ),
        shape(
            "1,000 in threes",
            "times 333[fork[times 2[fork[byte;sleep]];byte;sleep]];byte;sleep",
            1_000,
            7,
        ),
    ]
}

fn main() {
    if wanted().is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let group = Group::make();
    heading("end of a tree; floor: cgroup.kill");
    if group.is_none() {
        line("no cgroup v2 may be written to here: there is no floor");
    }
    for shape in &shapes() {
        runtime.block_on(end(shape, "", group.as_ref()));
    }
    let [_, middle, ..] = shapes();
    let strangers = Strangers::start(STRANGERS);
    runtime.block_on(end(
        &middle,
        &format!(", {STRANGERS} strangers"),
        group.as_ref(),
    ));
    drop(strangers);
}

async fn end(shape: &Shape, among: &str, group: Option<&Group>) {
    let [mut floor, mut walked, mut ours] = [const { Samples::new() }; 3];
    let mut inside = Samples::new();
    let cgroups = drowse::process::cgroup::place::Cgroups::find("bench").ok();
    for _ in 0..shape.rounds {
        if let Some(group) = group {
            let (link, tree) = grow(shape).await;
            group.kill(&tree, &mut floor);
            finish(link).await;
        }
        if let Some(cgroups) = &cgroups {
            let cgroup = cgroups
                .create(SessionId::from_random(1), drowse_messages::Incarnation(1))
                .expect("ours");
            let (link, _) = grow_in(shape, Some(cgroup.path().to_owned())).await;
            let outcome = inside.time(|| {
                let scope = Scope::keeper(link.keeper()).in_cgroup(Some(cgroup));
                run(ReapStep::Kill, &scope)
            });
            let outcome = outcome.expect("the tree can be looked at");
            assert!(outcome.empty && outcome.processes.len() == shape.processes);
            finish(link).await;
        }
        let (link, tree) = grow(shape).await;
        let pidfds = open_all(&tree);
        walked.time(|| {
            kill_by_children(tree[0].pid());
            await_all(&pidfds);
        });
        finish(link).await;
        let (link, _) = grow(shape).await;
        let outcome = ours.time(|| run(ReapStep::Kill, &Scope::keeper(link.keeper())));
        let outcome = outcome.expect("the tree can be looked at");
        assert!(outcome.empty && outcome.processes.len() == shape.processes);
        finish(link).await;
    }
    let floor = group.map(|_| floor);
    let case = |how: &str| format!("{}{among}: {how}", shape.name);
    if let Some(floor) = &floor {
        row(&case("cgroup.kill"), "ms", floor, None);
    }
    row(&case("children walk"), "ms", &walked, floor.as_ref());
    row(
        &case("in a cgroup, verified"),
        "ms",
        &inside,
        floor.as_ref(),
    );
    row(
        &case("below a keeper, verified"),
        "ms",
        &ours,
        floor.as_ref(),
    );
}

/// A tree below a keeper, complete: its processes, the agent first.
async fn grow(shape: &Shape) -> (KeeperLink, Vec<ProcIdentity>) {
    grow_in(shape, None).await
}

async fn grow_in(
    shape: &Shape,
    cgroup: Option<std::path::PathBuf>,
) -> (KeeperLink, Vec<ProcIdentity>) {
    let launch = Launch {
        argv: vec![TREE_AGENT.into(), shape.script.as_str().into()],
        env: Vec::new(),
        cwd: "/".into(),
        cgroup,
        socket: None,
        orphan_grace: Duration::ZERO,
        eof_grace: Duration::from_millis(100),
        term_grace: Duration::from_millis(100),
        nofile: None,
    };
    let program = KeeperProgram::at(Path::new(env!("CARGO_BIN_EXE_drowse-dup")));
    let spawned = KeeperLink::spawn(&program, SessionId::from_random(1), launch).await;
    let mut link = spawned.expect("a keeper starts");
    let AgentStdio { mut stdout, .. } = match link.next_message().await {
        Ok(Some(KeeperEvent::Started { stdio, .. })) => stdio,
        other => panic!("no agent, but {other:?}"),
    };
    let mut here = vec![0; shape.processes];
    stdout
        .read_exact(&mut here)
        .await
        .expect("every process writes a byte");
    let found = walk(link.keeper()).expect("the tree can be looked at");
    let tree: Vec<_> = found.iter().map(|stat| stat.identity).collect();
    assert_eq!(tree.len(), shape.processes);
    (link, tree)
}

/// Lets a keeper leave, and collects it.
async fn finish(mut link: KeeperLink) {
    // It may have left already; then there is nobody to tell.
    drop(link.send(ToKeeper::Leave).await);
    while let Ok(Some(_)) = link.next_message().await {}
    let keeper = nix::unistd::Pid::from_raw(link.keeper().pid());
    waitpid(keeper, None).expect("the keeper is our child");
}

/// The peer: children of all threads, one after the other, parents first.
fn kill_by_children(root: i32) {
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten();
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            next.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            );
        }
        // It may have ended meanwhile, which is what was wanted.
        _ = kill_process(pid_of(pid), Signal::KILL);
    }
}

fn pid_of(pid: i32) -> Pid {
    Pid::from_raw(pid).expect("a pid is not 0")
}

fn open_all(tree: &[ProcIdentity]) -> Vec<OwnedFd> {
    let open = |it: &ProcIdentity| pidfd_open(pid_of(it.pid()), PidfdFlags::empty());
    tree.iter()
        .map(|it| open(it).expect("the process runs"))
        .collect()
}

fn await_all(pidfds: &[OwnedFd]) {
    for pidfd in pidfds {
        poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None).expect("a pidfd can be waited for");
    }
}

/// A cgroup of our own; removed on drop.
struct Group(PathBuf);

impl Group {
    fn make() -> Option<Self> {
        MOUNTS.into_iter().find_map(|mount| {
            let folder = Path::new(mount).join(format!("drowse-bench-{}", std::process::id()));
            fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            // A folder of the first version has no such file.
            group.0.join("cgroup.kill").exists().then_some(group)
        })
    }

    fn kill(&self, tree: &[ProcIdentity], samples: &mut Samples) {
        for process in tree {
            let pid = process.pid().to_string();
            fs::write(self.0.join("cgroup.procs"), pid).expect("the group takes processes");
        }
        let pidfds = open_all(tree);
        samples.time(|| {
            fs::write(self.0.join("cgroup.kill"), "1").expect("the group is ours");
            await_all(&pidfds);
        });
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that is not collected yet keeps it busy; an empty folder does no harm.
        drop(fs::remove_dir(&self.0));
    }
}

/// Processes that sleep; ended on drop.
struct Strangers(Child);

impl Strangers {
    fn start(count: usize) -> Self {
        let mut child = Command::new(TREE_AGENT)
            .arg(format!("times {count}[fork[sleep]];byte;sleep"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program was built with the benches");
        let mut byte = [0];
        let stdout = child.stdout.as_mut().expect("it is piped");
        std::io::Read::read_exact(stdout, &mut byte).expect("it writes when all are there");
        Self(child)
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        let root = i32::try_from(self.0.id()).expect("a pid fits into i32");
        kill_by_children(root);
        self.0.wait().expect("the child is ours");
    }
}
