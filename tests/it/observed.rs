//! Work that only the process tree shows: what an agent without a roster of its own left running.

use drowse_messages::{Reason, SessionEvent, SessionState};
use drowse_tests::{ProcIdentity, daemon};
use nix::sys::signal::Signal;

/// An agent of Pi's protocol, which reports no tasks of its own.
const AGENT: &str = "fakepi";

fn deferred(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::ReleaseDeferred { held_by, .. }
        if held_by.iter().any(|hold| hold.starts_with("task (observed: ")))
}

/// C 30: a command in a process session of its own holds while it runs, and is shown; its end lets
/// the session go.
#[test]
fn a_command_left_running_holds_the_session() {
    let daemon = daemon!("observed").start();
    let id = daemon.open(AGENT);
    let said = daemon.say(&id, "FAKE:shell exec sleep 600");
    let pid = said
        .split_whitespace()
        .nth(1)
        .and_then(|pid| pid.parse().ok());
    let shell = ProcIdentity::of(pid.expect("SHELL PID")).expect("it runs");
    daemon.wait_event(&id, "deferred", 2, deferred);
    let report = daemon.wait_state(&id, SessionState::Waiting);
    let task = report.awake.expect("it is awake").tasks.remove(0);
    assert_eq!((&*task.task.kind, &*task.owner), ("observed", "drowse"));
    shell.signal(Signal::SIGKILL);
    let report = daemon.wait_state(&id, SessionState::Released);
    assert_eq!(report.end.map(|end| end.reason), Some(Reason::Idle));
}

/// D20: helpers that are there from the start do not hold, one that uses the processor and one in a
/// process session of its own neither; with `observed = "off"` nothing of it does.
#[test]
fn helpers_from_the_start_hold_nothing() {
    let daemon = daemon!("sidecars").start();
    let id = daemon.open_behaving(AGENT, &[("sidecars", "[\"plain\",\"setsid\",\"warm\"]")]);
    daemon.say(&id, "FAKE:say one");
    let report = daemon.wait_state(&id, SessionState::Released);
    let end = report.end.expect("it was released");
    assert_eq!(end.reason, Reason::Idle);
    assert_eq!(end.processes.len(), 4, "{:?}", end.processes);
    assert_eq!(daemon.count(&id, deferred), 0);

    let mut new = daemon.new_session(AGENT);
    new.limits.insert("observed".to_owned(), "off".to_owned());
    let id = daemon.open_as(&new);
    daemon.say(&id, "FAKE:shell exec sleep 600");
    let report = daemon.wait_state(&id, SessionState::Released);
    assert_eq!(report.end.map(|end| end.reason), Some(Reason::Idle));
    assert_eq!(daemon.count(&id, deferred), 0);
}
