//! The agent kit: what hooks, extensions and scripts inside an agent tell, by the real command line.

use std::process::{Child, Stdio};
use std::time::Duration;

use drowse_client::Client;
use drowse_messages::{HoldKind, HoldReport, NewTask, SessionEvent, SessionState};
use drowse_tests::wait::{CEILING, wait_until};
use drowse_tests::{TestDaemon, daemon};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const DROWSE: &str = env!("CARGO_BIN_EXE_drowse-dup");

fn deferred(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::ReleaseDeferred { .. })
}

fn holds(daemon: &TestDaemon, id: &str) -> Vec<HoldReport> {
    let awake = daemon.report(id).awake;
    awake.map(|awake| awake.holds).unwrap_or_default()
}

fn leases(daemon: &TestDaemon, id: &str) -> Vec<HoldReport> {
    let mut holds = holds(daemon, id);
    holds.retain(|hold| hold.kind == HoldKind::Lease);
    holds
}

/// A script inside an agent, without any argument that says where it is, keeps its own session for
/// a task and lets it go; the names of the environment are those of the guide.
#[test]
fn a_script_inside_an_agent_tells_of_its_task() {
    let daemon = daemon!("told").start();
    let id = daemon.open("fake");
    let run = |verb: &str| daemon.say(&id, &format!("FAKE:run {DROWSE} {verb}"));
    let ran = run("task start build --kind compile --why \"cargo build\"");
    assert!(ran.starts_with("RAN 0  ("), "nothing is printed: {ran}");
    daemon.wait_event(&id, "deferred", 1, deferred);
    let report = daemon.wait_state(&id, SessionState::Waiting);
    let task = &report.awake.expect("it is awake").tasks[0];
    assert_eq!(task.owner, "inside the agent");
    assert_eq!(
        [&*task.task.id, &task.task.kind, &task.task.description],
        ["build", "compile", "cargo build"]
    );
    let listed = run("holds");
    assert!(
        listed.contains("task") && listed.contains("cargo build"),
        "{listed}"
    );
    run("task end build");
    daemon.wait_state(&id, SessionState::Released);
}

/// A token opens its own session's tasks and holds, outlives the daemon, and is nowhere but in the
/// environment.
#[test]
fn a_token_is_for_one_session_and_outlives_the_daemon() {
    let mut daemon = daemon!("token").limit("idle_after", "off").start();
    let (own, other) = (daemon.open("fake"), daemon.open("fake"));
    daemon.say(&other, "hello");
    let told = daemon.say(&own, "FAKE:run echo $DROWSE_TOKEN");
    let token = told.split_whitespace().nth(2).expect("RAN 0 TOKEN");
    let token = token.to_owned();
    let socket = daemon.state_dir().join("drowse.sock");
    let inside = Client::unix_for_session(&socket, &token);
    let build = NewTask {
        name: "build".to_owned(),
        ..NewTask::default()
    };
    daemon.get(async |_| inside.start_task(&own, &build).await);
    let code = daemon.refused(async |_| inside.start_task(&other, &build).await);
    assert_eq!(code, "forbidden");
    let code = daemon.refused(async |_| inside.stop(&own).await);
    assert_eq!(code, "forbidden");
    // On disk when this returns, and so is everything before it.
    daemon.open("fake");
    daemon.kill9();
    daemon.restart();
    let told = daemon.get(async |_| inside.tasks(&own).await);
    assert_eq!(told.len(), 1, "what was told is still so: {told:?}");
    daemon.get(async |_| inside.end_task(&own, "build").await);
    let secret = token.split_once('.').expect("an id and a secret").1;
    daemon.send(
        &own,
        "FAKE:run echo $DROWSE_TOKEN >/proc/$PPID/fd/2\nFAKE:exit 3",
    );
    let end = daemon.wait_state(&own, SessionState::Interrupted).end;
    let said = end.expect("it has ended").stderr_tail;
    assert!(said.contains("***") && !said.contains(secret), "{said}");
    assert!(!daemon.log_text().contains(secret));
}

fn hold_during(daemon: &TestDaemon, id: &str, command: &[&str]) -> Child {
    let verb = ["hold", "--session", id, "--why", "deploy", "--"];
    let mut command = daemon.command(&[&verb, command].concat());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
        .stderr(Stdio::null())
        .spawn()
        .expect("it was built with the tests")
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn wait_lease(daemon: &TestDaemon, id: &str) -> HoldReport {
    wait_until("a lease", CEILING, || leases(daemon, id).pop())
}

/// Behaviour 143: a hold for a command lasts while it runs and no longer, also when it is killed;
/// the verb ends as the command did. Killed itself, it leaves a hold that is soon over.
#[test]
fn a_hold_for_a_command_ends_with_it() {
    let daemon = daemon!("hold_cmd").start();
    let id = daemon.open("fake");
    daemon.say(&id, "hello");
    let gate = daemon.path("gate");
    let waits = format!(
        "until [ -e {} ]; do sleep 0.02; done; exit 7",
        gate.display()
    );
    let mut held = hold_during(&daemon, &id, &["sh", "-c", &waits]);
    let lease = wait_lease(&daemon, &id);
    assert_eq!((&*lease.why, &*lease.owner), ("deploy", "drowse-cli"));
    assert!(lease.ends_in_ms.is_some_and(|ms| ms <= 60_000), "{lease:?}");
    daemon.wait_event(&id, "deferred", 1, deferred);
    std::fs::write(&gate, "").unwrap();
    assert_eq!(held.wait().unwrap().code(), Some(7));
    assert!(leases(&daemon, &id).is_empty());
    daemon.wait_state(&id, SessionState::Released);

    daemon.say(&id, "again");
    // SIGTERM is passed on, and what a signal ended is told as a shell tells it.
    let mut held = hold_during(&daemon, &id, &["sleep", "600"]);
    wait_lease(&daemon, &id);
    kill(pid(&held), Signal::SIGTERM).unwrap();
    assert_eq!(held.wait().unwrap().code(), Some(143));
    wait_until("no lease", CEILING, || {
        leases(&daemon, &id).is_empty().then_some(())
    });

    daemon.say(&id, "and again");
    let mut held = hold_during(&daemon, &id, &["sh", "-c", "kill -9 $$"]);
    assert_eq!(held.wait().unwrap().code(), Some(137));
    wait_until("no lease", CEILING, || {
        leases(&daemon, &id).is_empty().then_some(())
    });
}

/// What a person types: a hold for a while, its number, the list, and the end of it.
#[test]
fn a_hold_is_taken_listed_and_lifted() {
    let daemon = daemon!("hold_verb").start();
    let id = daemon.open("fake");
    let refused = daemon.run(&["hold", "--session", &id, "--for", "20m", "--why", "w"]);
    assert_eq!(
        refused.status.code(),
        Some(1),
        "it has no process: {refused:?}"
    );
    daemon.say(&id, "hello");
    let words = [
        "hold",
        "--session",
        &id,
        "--for",
        "20m",
        "--why",
        "look at it",
    ];
    let taken = daemon.run(&[&words[..], &["--owner", "me"]].concat());
    assert_eq!(taken.status.code(), Some(0), "{taken:?}");
    let number = String::from_utf8(taken.stdout).unwrap().trim().to_owned();
    let listed = daemon.run(&["holds"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let row = listed
        .lines()
        .find(|line| line.contains(&number))
        .unwrap_or_default();
    assert!(row.contains("look at it") && row.contains("me"), "{listed}");
    let ms = leases(&daemon, &id)[0].ends_in_ms.unwrap_or_default();
    assert!(
        Duration::from_millis(ms) > Duration::from_secs(19 * 60),
        "{ms}"
    );
    let lifted = daemon.run(&["unhold", &number, "--session", &id]);
    assert_eq!(lifted.status.code(), Some(0), "{lifted:?}");
    daemon.wait_state(&id, SessionState::Released);
    let nobody = daemon.run(&["hold", "--for", "20m", "--why", "w"]);
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");
}
