//! Nobody outside a session is signalled, however much like its processes they look, whatever
//! these do to their parents, and whatever is written in the database.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drowse_messages::SessionState;
use drowse_tests::process::{ProcStat, children};
use drowse_tests::wait::say_aloud;
use drowse_tests::{CEILING, Canary, ProcIdentity, TestDaemon, daemon, wait_until};
use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::json;

const TREE_AGENT: &str = env!("CARGO_BIN_EXE_tree-agent");
/// Names the file of one session's tree, so that the arguments of all are the same.
const FILE: &str = "TREE_FILE";

/// A tree of one session: its file, and how many of its processes watch for signals.
struct Tree {
    id: String,
    file: PathBuf,
}

/// Children of the agent that watch: one in a process session of its own, one that has killed its
/// parent, one whose name is misleading, and one below init or a subreaper.
const WATCHERS: usize = 4;

fn script() -> String {
    let branches = [
        "setsid;watch",
        "fork[orphan;setsid;watch];sleep",
        "name x) S 1 1 (y;watch",
        "setsid;fork[watch]",
    ];
    let fork = |branch: &&str| format!("fork[into ${FILE};{branch}];");
    branches.iter().map(fork).collect::<String>() + "sleep"
}

impl Tree {
    fn start(daemon: &TestDaemon, name: &str) -> Self {
        let file = daemon.path(name);
        let mut new = daemon.new_session("tree");
        new.args = vec![script()];
        new.env.insert(FILE.into(), file.display().to_string());
        let id = daemon.open_as(&new);
        daemon.post(&id, "hello");
        let tree = Self { id, file };
        wait_until("watchers that are ready", CEILING, || {
            (tree.lines().filter(|line| line == "ready").count() == WATCHERS).then_some(())
        });
        tree
    }

    fn lines(&self) -> impl Iterator<Item = String> + use<> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        text.lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .into_iter()
    }

    fn watchers(&self) -> Vec<ProcIdentity> {
        self.lines()
            .filter_map(|line| ProcIdentity::parse(&line))
            .collect()
    }

    /// Alive, running, and without a signal.
    #[track_caller]
    fn assert_untouched(&self) {
        let signals: Vec<String> = self
            .lines()
            .filter(|line| line.contains(" from "))
            .collect();
        assert!(signals.is_empty(), "{}: {signals:?}", self.file.display());
        for watcher in self.watchers() {
            let stat = ProcStat::read(watcher.pid).filter(|stat| stat.identity == watcher);
            let state = stat.map(|stat| stat.state);
            assert!(matches!(state, Some('S' | 'R')), "{watcher}: {state:?}");
        }
    }

    #[track_caller]
    fn assert_gone(&self, how: &str) {
        for watcher in self.watchers() {
            assert!(!watcher.is_alive(), "{how}: {watcher} is left");
        }
    }
}

/// Behaviour 55, D10: a session and a stranger with the same programs, names and arguments as
/// another session are untouched by every end of that one.
#[test]
fn who_looks_like_a_session_is_not_touched_by_its_end() {
    let daemon = daemon!("lookalikes")
        .limit("idle_after", "1h")
        .config(&format!(
            "[agents.tree]\nprotocol = \"raw\"\ncommand = [{TREE_AGENT:?}]\n"
        ))
        .start();
    let mut command = Command::new(TREE_AGENT);
    command
        .arg(script())
        .envs(daemon.agent_env())
        .current_dir(daemon.work());
    let canary = Canary::start(command, &daemon.path("canary"));
    canary.wait_ready();
    let neighbour = Tree::start(&daemon, "neighbour");
    type End = fn(&TestDaemon, &str);
    let ends: [(&str, End); 4] = [
        ("stop", |daemon, id| {
            daemon.get(async |client| client.stop(id).await);
        }),
        ("remove", |daemon, id| {
            daemon.get(async |client| client.remove(id).await);
        }),
        ("kill", |daemon, id| {
            daemon.agent(id).signal(Signal::SIGKILL);
        }),
        ("lost", |daemon, id| {
            daemon.keeper(id).signal(Signal::SIGKILL);
        }),
    ];
    for (how, end) in ends {
        let tree = Tree::start(&daemon, how);
        end(&daemon, &tree.id);
        wait_until(&format!("the end by {how}"), CEILING, || {
            let report = daemon.ask(async |client| client.session(&tree.id).await);
            report
                .map_or(true, |report| !report.state.is_awake())
                .then_some(())
        });
        tree.assert_gone(how);
        neighbour.assert_untouched();
        assert_eq!(canary.hurt(), None, "{how}");
    }
    daemon.get(async |client| client.stop(&neighbour.id).await);
    daemon.wait_state(&neighbour.id, SessionState::Stopped);
    neighbour.assert_gone("stop");
    assert_eq!(canary.hurt(), None);
}

/// Puts a record of running processes into the database of a daemon that does not run.
fn write_record(daemon: &TestDaemon, id: &str, keeper: ProcIdentity) {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has it");
    let identity = json!({ "pid": keeper.pid, "start_ticks": keeper.start_time });
    let process = json!({ "boot_id": boot_id.trim(), "process": identity });
    let record = json!({ "keeper": process, "agent": process }).to_string();
    let id: drowse_messages::SessionId = id.parse().expect("an id");
    let database = Connection::open(daemon.state_dir().join("drowse.db")).expect("a database");
    let changed = database.execute(
        "UPDATE sessions SET running = ?2, state = 'resting' WHERE id = ?1",
        (
            i64::try_from(id.as_u64()).expect("ids are below 2^63"),
            record,
        ),
    );
    assert_eq!(changed.expect("a row"), 1);
}

/// D12: a record that is right in all but what it means, for it names a process that the daemon
/// descends from: neither that one nor anybody below it is signalled.
#[test]
fn a_record_of_the_daemons_own_line_ends_nobody() {
    let mut daemon = daemon!("ownline").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    daemon.wait_state(&id, SessionState::Released);
    assert!(daemon.terminate().success());
    let mut command = Command::new(TREE_AGENT);
    command.arg("sleep").envs(daemon.agent_env());
    let canary = Canary::start(command, &daemon.path("canary"));
    canary.wait_ready();
    // The daemon is a child of this process, as the canary is.
    write_record(&daemon, &id, ProcIdentity::me());
    daemon.restart();
    assert_eq!(canary.hurt(), None);
    let me = ProcIdentity::me();
    assert!(
        children(me.pid)
            .iter()
            .any(|child| child.identity == daemon.identity())
    );
    assert_eq!(
        daemon.say(&id, "FAKE:say two"),
        "SAID two (user turns seen: 2)"
    );
    assert_eq!(canary.hurt(), None);
}

/// What is never to be run to end something.
const KILLERS: [&str; 7] = ["kill", "pkill", "killall", "pgrep", "sh", "bash", "ps"];

/// The pid that a traced call names: `kill(12, ..)`, or the descriptor of one, `5<pid:12>` or
/// `5</proc/12>`.
fn target(call: &str) -> Option<i32> {
    let (name, rest) = call.split_once('(')?;
    let digits = |text: &str| {
        let text = text.trim_start_matches(|c: char| !c.is_ascii_digit() && c != '-');
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '-');
        text[..end.unwrap_or(text.len())].parse().ok()
    };
    match name {
        "kill" | "tkill" | "tgkill" => digits(rest),
        "pidfd_send_signal" => digits(rest.split_once('<')?.1),
        _ => None,
    }
}

/// Calls in what strace wrote, without the pid in front; signals and ends are none.
fn calls(trace: &Path) -> Vec<String> {
    let text = fs::read_to_string(trace).expect("strace wrote it");
    let calls = text.lines().filter_map(|line| {
        let rest = line
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .trim_start();
        rest.starts_with(|c: char| c.is_ascii_lowercase())
            .then(|| rest.to_owned())
    });
    calls.collect()
}

/// D10: what a daemon does to end a session whose arguments and folder name another session's
/// agent and the daemon itself, call by call: the only targets are that session's processes, and no
/// program is run to signal any.
#[test]
fn a_trace_of_a_release_names_the_sessions_processes_alone() {
    const TEST: &str = "a_trace_of_a_release_names_the_sessions_processes_alone";
    let strace = Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    if !strace.is_ok_and(|status| status.success()) {
        say_aloud(&format!("NOT RUN: {TEST}: strace on PATH is missing"));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace");
    let wanted = "trace=kill,tkill,tgkill,pidfd_send_signal,execve";
    let words = ["strace", "-D", "-f", "-qq", "-y", "-e", wanted, "-o"];
    let mut words = words.to_vec();
    words.push(trace.to_str().expect("a path of this test"));
    let mut daemon = daemon!("traced")
        .limit("idle_after", "1h")
        .through(&words)
        .start();
    let neighbour = daemon.open("fake");
    daemon.say(&neighbour, "FAKE:spawn setsid");
    let mut new = daemon.new_session("fake");
    new.cwd = daemon.work().join("fake-agent drowse-dup");
    fs::create_dir(&new.cwd).expect("the folder is ours");
    let program = daemon.fake().program().display().to_string();
    new.args = vec![
        "--note".into(),
        format!("{program} --dialect claude; drowse-dup serve"),
    ];
    let id = daemon.open_as(&new);
    daemon.say(&id, "FAKE:spawn setsid 2\nFAKE:spawn ignore-term");
    let others = daemon.processes(&neighbour);
    let own = daemon.processes(&id);
    daemon.get(async |client| client.release(&id).await);
    daemon.wait_state(&id, SessionState::Released);
    daemon.wait_gone(&id);
    let calls_so_far = calls(&trace);
    assert!(others.iter().all(ProcIdentity::is_alive));
    assert!(daemon.terminate().success());
    let targets: Vec<i32> = calls_so_far
        .iter()
        .filter_map(|call| target(call))
        .collect();
    assert!(targets.len() >= 4, "{calls_so_far:?}");
    for target in targets {
        let is_own = own.iter().any(|process| process.pid == target);
        assert!(is_own, "{target} was signalled: {calls_so_far:?}");
    }
    for call in calls(&trace)
        .iter()
        .filter(|call| call.starts_with("execve("))
    {
        let program = call.split('"').nth(1).unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        assert!(!KILLERS.contains(&name), "{call}");
    }
}
