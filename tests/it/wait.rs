//! `drowse wait`: until a session is as wanted, with a code for each way it can end.

use std::process::{Child, Output, Stdio};

use drowse_messages::SessionState;
use drowse_tests::{CEILING, TestDaemon, daemon, wait_until};
use serde_json::Value;

fn waiting(daemon: &TestDaemon, id: &str, what: &str) -> Child {
    let mut command = daemon.command(&["wait", id, "--for", what, "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program was built")
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// Waits until so many clients follow events: those that wait have begun.
#[track_caller]
fn followed(daemon: &TestDaemon, by: usize) {
    let what = format!("{by} that follow");
    wait_until(&what, CEILING, || {
        let asked = daemon.log_text().matches("path=\"/v1/events\"").count();
        (asked >= by).then_some(())
    });
}

/// What is so already is told at once; what cannot be any more is said to be so, and why.
#[test]
fn what_is_so_is_told_at_once() {
    let daemon = daemon!("wait-now").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    let code = |what: &str| {
        let output = daemon.run(&["wait", &id, "--for", what, "--timeout", "200ms"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or(-1), said)
    };
    assert_eq!(code("idle"), (0, String::new()));
    assert_eq!(code("turn"), (0, String::new()));
    for what in ["released", "approval", "ended"] {
        let (code, said) = code(what);
        assert_eq!(code, 124, "{what}: {said}");
        assert!(said.contains("resting"), "{said}");
    }
    daemon.get(async |client| client.stop(&id).await);
    daemon.wait_state(&id, SessionState::Stopped);
    assert_eq!(code("ended"), (0, String::new()));
    for what in ["released", "approval"] {
        let (code, said) = code(what);
        assert_eq!(code, 1, "{what}: {said}");
        assert!(said.contains("it is stopped"), "{said}");
    }
    let output = daemon.run(&["wait", "nobody", "--for", "idle"]);
    assert_eq!(output.status.code(), Some(4));
    let output = daemon.run(&["wait", &id, "--for", "idle"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "stopped\n");
}

/// Behaviours 20, 96: each is told when it comes, and waiting keeps no session awake.
#[test]
fn what_comes_is_waited_for() {
    let daemon = daemon!("wait-for")
        .limit("idle_after", "1s")
        .env("DROWSE_LOG", "debug")
        .start();
    let id = daemon.open("fake");
    let gate = daemon.path("gate");
    daemon.post(
        &id,
        &format!("FAKE:approve rm\nFAKE:wait {}", gate.display()),
    );
    let ended = |child: Child| child.wait_with_output().expect("it ends");
    let output = ended(waiting(&daemon, &id, "approval"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(object(&output)["outcome"], "reached");
    let others = ["turn", "idle", "released", "ended"].map(|what| waiting(&daemon, &id, what));
    followed(&daemon, 5);
    let ask = daemon.report(&id).awake.expect("it runs").asks[0]
        .id
        .clone();
    let allow = drowse_messages::Answer::Allow;
    daemon.get(async |client| client.answer(&id, &ask, allow).await);
    std::fs::write(gate, "").expect("the folder is ours");
    for child in others {
        let output = ended(child);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    assert_eq!(daemon.report(&id).state, SessionState::Released);
    assert_eq!(daemon.fake().events("start").len(), 1);
}

/// A session that is removed, or could not be started, will never be what is waited for.
#[test]
fn what_can_never_be_is_said_to_be_so() {
    let daemon = daemon!("wait-never").env("DROWSE_LOG", "debug").start();
    let id = daemon.open("fake");
    daemon.post(&id, "FAKE:slow 600");
    daemon.fake().wait_events("turn", 1);
    let [idle, end] = ["idle", "ended"].map(|what| waiting(&daemon, &id, what));
    followed(&daemon, 2);
    daemon.get(async |client| client.remove(&id).await);
    let output = idle.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = object(&output);
    assert_eq!(
        (&said["outcome"], &said["state"]),
        (&"never".into(), &Value::Null)
    );
    assert!(said["why"].as_str().unwrap_or_default().contains("removed"));
    let output = end.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// A daemon that is killed and followed by another is no end of a wait.
#[test]
fn a_wait_outlives_the_daemon() {
    let mut daemon = daemon!("wait-kill")
        .limit("idle_after", "1h")
        .env("DROWSE_LOG", "debug")
        .start();
    let id = daemon.open("fake");
    let gate = daemon.path("gate");
    daemon.post(&id, &format!("FAKE:wait {}", gate.display()));
    daemon.fake().wait_events("turn", 1);
    let child = waiting(&daemon, &id, "turn");
    followed(&daemon, 1);
    daemon.kill9();
    std::fs::write(gate, "").expect("the folder is ours");
    daemon.restart();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(object(&output)["for"], "turn");
}
