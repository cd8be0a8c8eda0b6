//! `drowse orphans`: who is listed, who is ended, and who never is.
//!
//! Orphans are looked for on the whole machine, and other tests make some too; so each test looks
//! for its own processes among what is listed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use drowse_messages::SessionState;
use drowse_tests::process::ProcStat;
use drowse_tests::wait::{CEILING, say_aloud};
use drowse_tests::{ProcIdentity, TestDaemon, TreeGuard, daemon, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

const TREE_AGENT: &str = env!("CARGO_BIN_EXE_tree-agent");
const DROWSE: &str = env!("CARGO_BIN_EXE_drowse-dup");

/// A process session of its own, a parent that ends, and an agent that sleeps.
const LEFT_ALONE: &str = "fork[setsid;fork[report;sleep];exit 0];exit 0";

#[track_caller]
fn object(output: &Output, code: i32) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out.lines().count(), 1, "one object: {out}");
    serde_json::from_str(&out).expect("an object")
}

#[track_caller]
fn orphans(daemon: &TestDaemon, args: &[&str]) -> Value {
    object(&daemon.run(&[&["orphans", "--json"], args].concat()), 0)
}

/// The tree that this process is in, as listed.
fn listed<'a>(report: &'a Value, process: &ProcIdentity) -> Option<&'a Value> {
    let trees = report["orphans"].as_array()?;
    trees.iter().find(|tree| {
        let members = tree["processes"].as_array().into_iter().flatten();
        members
            .clone()
            .any(|member| is(&member["identity"], process))
    })
}

fn is(identity: &Value, process: &ProcIdentity) -> bool {
    identity["pid"] == process.pid && identity["start_ticks"] == process.start_time
}

fn was_ended(report: &Value, process: &ProcIdentity) -> bool {
    let ended = report["ended"].as_array().into_iter().flatten();
    ended.clone().any(|it| is(&it["identity"], process))
}

/// A copy of the scripted program under another name, which is what it is known by.
fn program_named(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    fs::copy(TREE_AGENT, &path).expect("the folder is ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    path.display().to_string()
}

/// Runs a script that leaves one process behind, and returns that.
fn leave_alone(mut command: Command, guard: &TreeGuard) -> ProcIdentity {
    let (name, value) = guard.env();
    let mut child = command
        .env(name, value)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built with the tests");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("a report");
    child.wait().expect("the child is ours");
    let left = ProcIdentity::parse(line.trim()).expect("pid@start");
    wait_until("its parents to end", CEILING, || {
        is_at_init(left).then_some(())
    });
    left
}

/// True once its parent is what collects orphans here.
fn is_at_init(process: ProcIdentity) -> bool {
    let parent = ProcStat::read(process.pid).map(|stat| stat.parent);
    parent.is_some_and(|parent| parent == 1 || is_users_systemd(parent))
}

fn is_users_systemd(pid: i32) -> bool {
    drowse_tests::process::command_line(pid).ends_with("systemd --user")
}

fn end(process: ProcIdentity) {
    process.signal(Signal::SIGKILL);
    process.wait_gone();
}

fn keeper(daemon: &TestDaemon, id: &str) -> ProcIdentity {
    let awake = daemon.report(id).awake.expect("it is awake");
    let keeper = awake.keeper.expect("it has a keeper");
    ProcIdentity {
        pid: keeper.pid(),
        start_time: keeper.start_ticks(),
    }
}

fn children(daemon: &TestDaemon, count: usize) -> Vec<ProcIdentity> {
    let said = daemon.fake().wait_events("child", count);
    let who = said.iter().filter_map(|child| child["who"].as_str());
    who.filter_map(ProcIdentity::parse).collect()
}

/// Row 147, D01: what a lost keeper and a dead daemon left is listed as ours, with its session,
/// and ended, also what ignores SIGTERM.
#[test]
fn what_a_lost_keeper_left_is_ours_and_is_ended() {
    let mut daemon = daemon!("orphans-ours").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:spawn server:0\nFAKE:spawn ignore-term");
    let left = children(&daemon, 2);
    let keeper = keeper(&daemon, &id);
    // Stopped first: a keeper ends its tree once its daemon is gone.
    keeper.signal(Signal::SIGSTOP);
    daemon.kill9();
    keeper.signal(Signal::SIGKILL);
    keeper.wait_gone();

    let report = orphans(&daemon, &["--dry-run"]);
    assert_eq!(report["daemon"], Value::Null);
    for process in &left {
        let tree = listed(&report, process).unwrap_or_else(|| panic!("{process}: {report}"));
        assert_eq!(tree["owner"], "ours", "{tree}");
        assert_eq!(tree["why"], "keeper_gone", "{tree}");
        assert_eq!(tree["session"], *id, "{tree}");
        assert_eq!(tree["state_dir"], daemon.state_dir().display().to_string());
        assert!(tree["memory_bytes"].as_u64() > Some(0), "{tree}");
    }
    let server = listed(&report, &left[0]).expect("found above");
    assert_eq!(
        server["listens"].as_array().map(Vec::len),
        Some(1),
        "{server}"
    );
    let text = daemon.run(&["orphans"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("ours") && text.contains(&id), "{text}");
    let doctor = daemon.run(&["doctor", "--no-start"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let line = doctor.lines().find(|line| line.contains("orphans"));
    assert!(
        line.is_some_and(|line| !line.contains(" 0 of them ours")),
        "{doctor}"
    );
    assert!(
        left.iter().all(ProcIdentity::is_alive),
        "looking ends nobody"
    );

    let report = orphans(&daemon, &["--reap"]);
    assert!(
        left.iter().all(|process| was_ended(&report, process)),
        "{report}"
    );
    assert_eq!(report["survivors"], json!([]));
    assert!(!left.iter().any(ProcIdentity::is_alive));
    assert!(daemon.marked().is_empty());
    let again = daemon.run(&["orphans", "--reap"]);
    assert_eq!(
        String::from_utf8_lossy(&again.stdout),
        "nothing of ours to end\n"
    );
}

/// Row 147: an agent that nobody of Drowse's started is listed and left, its arguments unseen.
#[test]
fn an_agent_of_nobody_is_listed_and_left() {
    let daemon = daemon!("orphans-nobody").ready();
    let guard = TreeGuard::new("orphans-nobody");
    let mut command = Command::new(program_named(&daemon.path(""), "claude"));
    command.args([LEFT_ALONE, "--api-key=s3cr3t-s3cr3t"]);
    let left = leave_alone(command, &guard);
    let report = orphans(&daemon, &["--reap"]);
    let tree = listed(&report, &left).unwrap_or_else(|| panic!("{report}"));
    assert!(!was_ended(&report, &left) && left.is_alive());
    let out = daemon.run(&["orphans"]).stdout;
    let out = String::from_utf8_lossy(&out);
    assert!(!out.contains("s3cr3t") && !report.to_string().contains("s3cr3t"));

    let mut shown = tree.clone();
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    assert_eq!(shown["user"], user.expect("readable").expect("known").name);
    for (name, is_sane) in [
        ("memory_bytes", shown["memory_bytes"].as_u64() > Some(0)),
        ("age_ms", shown["age_ms"].as_u64() < Some(600_000)),
        ("user", true),
        ("root", is(&shown["root"], &left)),
        ("cwd", shown["cwd"].is_string()),
        (
            "processes",
            shown["processes"].as_array().map(Vec::len) == Some(1),
        ),
    ] {
        assert!(is_sane, "{name}: {tree}");
        shown[name] = "*".into();
    }
    let expected = json!({
        "root": "*", "name": "claude", "agent": "claude", "owner": "not_drowse",
        "state_dir": null, "session": null, "user": "*", "processes": "*",
        "memory_bytes": "*", "memory_kind": "pss", "age_ms": "*", "cwd": "*", "listens": [],
        "why": "parent_gone",
    });
    assert_eq!(shown, expected);
    let mut names: Vec<&String> = report.as_object().expect("an object").keys().collect();
    names.sort();
    let expected = [
        "complete",
        "daemon",
        "ended",
        "hidden",
        "orphans",
        "state_dir",
        "survivors",
        "waiting",
    ];
    assert_eq!(names, expected);
    end(left);
}

/// Row 147, D10: an agent with a living parent has an owner, and a process that only speaks of an
/// agent is none.
#[test]
fn who_has_a_parent_or_only_the_words_is_not_listed() {
    let daemon = daemon!("orphans-owned").ready();
    let guard = TreeGuard::new("orphans-owned");
    let (name, value) = guard.env();
    let mut owned = Command::new(program_named(&daemon.path(""), "codex"))
        .arg("byte;sleep")
        .env(name, value)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = owned.id().cast_signed();
    let owned_identity = ProcIdentity::of(pid).expect("it runs");
    let mut words = Command::new(TREE_AGENT);
    words.args([LEFT_ALONE, "claude", "/usr/bin/claude"]);
    let words = leave_alone(words, &guard);
    let report = orphans(&daemon, &[]);
    assert!(listed(&report, &owned_identity).is_none(), "{report}");
    assert!(listed(&report, &words).is_none(), "{report}");
    owned.kill().expect("ours");
    owned.wait().expect("ours");
    end(words);
}

/// Row 147, D10: the mark of another state folder makes a tree somebody else's.
#[test]
fn what_another_state_folder_marks_is_left() {
    let daemon = daemon!("orphans-other").ready();
    let guard = TreeGuard::new("orphans-other");
    let mut command = Command::new(TREE_AGENT);
    command
        .arg(LEFT_ALONE)
        .env(
            "DROWSE_STATE",
            format!("{}-other", daemon.state_dir().display()),
        )
        .env("DROWSE_SESSION", "-1\u{1b}[2J");
    let left = leave_alone(command, &guard);
    let report = orphans(&daemon, &["--reap"]);
    let tree = listed(&report, &left).unwrap_or_else(|| panic!("{report}"));
    assert_eq!(tree["owner"], "other_drowse");
    assert!(
        tree["state_dir"]
            .as_str()
            .is_some_and(|state| state.ends_with("-other"))
    );
    assert!(!was_ended(&report, &left) && left.is_alive());
    let out = daemon.run(&["orphans"]).stdout;
    assert!(!out.contains(&0x1b), "nothing moves a cursor");
    end(left);
}

/// D41: a keeper that lost its daemon is no orphan: it waits for the next one, and owns its tree.
#[test]
fn a_keeper_without_a_daemon_waits_and_keeps_its_tree() {
    let mut daemon = daemon!("orphans-waiting").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:spawn setsid");
    let (keeper, left) = (keeper(&daemon, &id), children(&daemon, 1));
    keeper.signal(Signal::SIGSTOP);
    daemon.kill9();
    let report = wait_until("the keeper to wait", CEILING, || {
        let report = orphans(&daemon, &["--reap"]);
        let waiting = report["waiting"].as_array().into_iter().flatten();
        let ours = waiting
            .clone()
            .find(|it| is(&it["keeper"], &keeper))
            .cloned();
        assert!(listed(&report, &left[0]).is_none(), "{report}");
        ours
    });
    assert_eq!(report["session"], *id);
    assert!(report["processes"].as_u64() >= Some(1), "{report}");
    assert!(left[0].is_alive() && keeper.is_alive());
    let text = daemon.run(&["orphans"]).stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        text.contains(&format!("keeper {} of session {id}", keeper.pid)),
        "{text}"
    );
    keeper.signal(Signal::SIGCONT);
    daemon.restart();
    daemon.terminate();
}

/// D41: `--reap` beside a running daemon ends what has no owner, and neither a session that lives
/// nor one that is started between its SIGTERM and its SIGKILL.
#[test]
fn a_session_that_starts_meanwhile_is_not_hit() {
    let daemon = daemon!("orphans-race").limit("idle_after", "1h").start();
    let guard = TreeGuard::new("orphans-race");
    let (before, meanwhile) = (daemon.open("fake"), daemon.open("fake"));
    daemon.say(&before, "FAKE:say one");
    let mut command = Command::new(TREE_AGENT);
    command
        .arg("fork[setsid;fork[ignore;report;sleep];exit 0];exit 0")
        .env("DROWSE_STATE", daemon.state_dir());
    let left = leave_alone(command, &guard);
    let mut reap = daemon.command(&["orphans", "--reap", "--json"]);
    let reap = reap.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let reap = reap.expect("the program was built with the tests");
    // Its grace is 5 s, because the orphan ignores SIGTERM.
    daemon.say(&meanwhile, "FAKE:say one");
    let agents = [daemon.agent(&before), daemon.agent(&meanwhile)];
    assert!(
        left.is_alive(),
        "the session was started too late to prove anything"
    );
    let report = object(&reap.wait_with_output().expect("it ends"), 0);
    assert!(was_ended(&report, &left), "{report}");
    left.wait_gone();
    for (id, agent) in [&before, &meanwhile].into_iter().zip(agents) {
        assert!(agent.is_alive() && !was_ended(&report, &agent), "{report}");
        assert_eq!(daemon.report(id).state, SessionState::Resting);
        assert_eq!(
            daemon.say(id, "FAKE:say on"),
            "SAID on (user turns seen: 2)"
        );
    }
}

/// D12: a state folder whose lock names what stands for a group, init or everyone makes nobody an
/// owner, and nobody is signalled.
#[test]
fn numbers_that_mean_more_than_a_process_mean_nobody() {
    let daemon = daemon!("orphans-d12").ready();
    let guard = TreeGuard::new("orphans-d12");
    let private = fs::Permissions::from_mode(0o700);
    fs::create_dir(daemon.state_dir()).expect("the folder is ours");
    fs::set_permissions(daemon.state_dir(), private).expect("ours");
    let mut command = Command::new(TREE_AGENT);
    let state = daemon.state_dir();
    command.arg(LEFT_ALONE).env("DROWSE_STATE", &state);
    let left = leave_alone(command, &guard);
    let lock = File::create(state.join("lock")).expect("ours");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("free");
    for text in ["0", "1", "-1", "-5", "2147483648", "", "x"] {
        fs::write(state.join("lock"), format!("pid {text}, socket /x\n")).expect("ours");
        let report = orphans(&daemon, &[]);
        let tree = listed(&report, &left).unwrap_or_else(|| panic!("{text:?}: {report}"));
        assert_eq!(
            [&tree["owner"], &report["daemon"]],
            [&json!("ours"), &Value::Null],
            "{text:?}"
        );
    }
    let report = orphans(&daemon, &["--reap"]);
    assert!(was_ended(&report, &left), "{report}");
    left.wait_gone();
}

/// A folder that every user can use, with the program in it.
struct Open(TempDir);

impl Open {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        fs::copy(DROWSE, folder.path().join("drowse")).expect("ours");
        Self(folder)
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn orphans(&self, mut command: Command, args: &[&str]) -> Value {
        command.arg("--state-dir").arg(self.state());
        let output = command.args(["orphans", "--json"]).args(args).output();
        object(&output.expect("it runs"), 0)
    }
}

/// A command of the user `nobody`.
fn as_nobody(program: impl AsRef<OsStr>) -> Command {
    const NOBODY: &str = "65534";
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .arg(program)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/");
    command
}

/// Rows 147 and F: without privileges, others' trees are listed as far as they can be read and
/// never touched, and one's own are ended; root does not end another user's either.
#[test]
fn an_unprivileged_user_sees_others_and_ends_its_own() {
    if !nix::unistd::geteuid().is_root() {
        say_aloud("not run: an_unprivileged_user_sees_others_and_ends_its_own needs root");
        return;
    }
    let guard = TreeGuard::new("orphans-users");
    let open = Open::new();
    let claude = program_named(open.0.path(), "claude");
    let marked = |mut command: Command| {
        command.arg(LEFT_ALONE).env("DROWSE_STATE", open.state());
        leave_alone(command, &guard)
    };
    let (roots, nobodys) = (marked(Command::new(&claude)), marked(as_nobody(&claude)));

    let report = open.orphans(as_nobody(open.0.path().join("drowse")), &["--reap"]);
    let tree = listed(&report, &roots).unwrap_or_else(|| panic!("{report}"));
    assert_eq!(
        [
            &tree["owner"],
            &tree["user"],
            &tree["memory_kind"],
            &tree["cwd"]
        ],
        [
            &json!("not_drowse"),
            &json!("root"),
            &json!("rss"),
            &Value::Null
        ],
    );
    assert!(tree["memory_bytes"].as_u64() > Some(0), "{tree}");
    assert!(report["hidden"].as_u64() > Some(0), "{report}");
    let tree = listed(&report, &nobodys).unwrap_or_else(|| panic!("{report}"));
    assert_eq!([&tree["owner"], &tree["memory_kind"]], ["ours", "pss"]);
    assert!(
        was_ended(&report, &nobodys) && !was_ended(&report, &roots),
        "{report}"
    );
    nobodys.wait_gone();

    let nobodys = marked(as_nobody(&claude));
    let report = open.orphans(Command::new(DROWSE), &["--reap"]);
    assert_eq!(
        listed(&report, &nobodys).map(|tree| &tree["owner"]),
        Some(&json!("other_drowse"))
    );
    assert!(
        was_ended(&report, &roots) && !was_ended(&report, &nobodys),
        "{report}"
    );
    assert!(nobodys.is_alive());
    end(nobodys);
}
