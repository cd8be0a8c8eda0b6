//! The command line: what each verb does, prints, and exits with.

use std::fs;
use std::process::{Output, Stdio};

use drowse_messages::{MessageState, SessionState};
use drowse_tests::{TestDaemon, daemon};
use serde_json::Value;

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

#[track_caller]
fn ok(daemon: &TestDaemon, args: &[&str]) -> String {
    let output = daemon.run(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(&output), 0, "{args:?}: {said}");
    out(&output)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

/// Behaviours 65, 96 to 98: the whole life of a session by its verbs: `release` keeps it, `stop`
/// ends it, `rm` forgets it.
#[test]
fn a_session_lives_by_verbs() {
    let daemon = daemon!("verbs").limit("idle_after", "1h").start();
    let id = ok(&daemon, &["new", "fake", "--name", "fix"])
        .trim()
        .to_owned();
    let answer = ok(&daemon, &["send", "fix", "FAKE:say one"]);
    assert_eq!(answer.trim(), "SAID one (user turns seen: 1)");
    let ps = ok(&daemon, &["ps"]);
    assert!(ps.contains("fix") && ps.contains("resting"), "{ps}");
    assert!(ok(&daemon, &["show", &id[..6]]).contains("fix"));
    assert!(ok(&daemon, &["explain", "fix"]).contains("turn ended"));
    let released = ok(&daemon, &["release", "fix"]);
    assert!(
        released.contains("released") && released.contains("process"),
        "{released}"
    );
    let explained = ok(&daemon, &["explain", "fix"]);
    assert!(explained.contains("manual"), "{explained}");
    assert_eq!(
        ok(&daemon, &["send", "fix", "FAKE:say two"]).trim(),
        "SAID two (user turns seen: 2)"
    );
    ok(&daemon, &["stop", "fix"]);
    assert_eq!(daemon.report(&id).state, SessionState::Stopped);
    ok(&daemon, &["wake", "fix"]);
    daemon.wait_state(&id, SessionState::Resting);
    let logs = ok(&daemon, &["logs", "fix"]);
    assert!(logs.contains("SAID two"), "{logs}");
    ok(&daemon, &["rm", "fix"]);
    assert_eq!(code(&daemon.run(&["show", "fix"])), 4);
    daemon.wait_gone(&id);
}

/// The exit codes that scripts act on.
#[test]
fn exit_codes_say_what_happened() {
    let daemon = daemon!("codes").limit("idle_after", "1h").start();
    for verb in ["show", "explain", "logs", "release", "wake", "stop", "rm"] {
        assert_eq!(code(&daemon.run(&[verb, "nobody"])), 4, "{verb}");
    }
    assert_eq!(code(&daemon.run(&["send", "nobody", "hello"])), 4);
    assert_eq!(code(&daemon.run(&["send"])), 2);
    assert_eq!(code(&daemon.run(&["frobnicate"])), 2);
    ok(&daemon, &["new", "fake", "--name", "held"]);
    ok(&daemon, &["send", "held", "FAKE:bg 60"]);
    let held = daemon.run(&["release", "held"]);
    assert_eq!(code(&held), 6);
    assert!(String::from_utf8_lossy(&held.stderr).contains("fake task"));
    let failed = daemon.run(&["send", "held", "FAKE:fail overloaded"]);
    assert_eq!(code(&failed), 1);
    assert_ne!(code(&daemon.run(&["new", "no-such-agent"])), 0);
    assert_ne!(code(&daemon.run(&["new", "fake", "--name", "held"])), 0);
    ok(&daemon, &["stop", "held"]);
    assert_eq!(
        code(&daemon.run(&["new", "fake", "--idle-after", "soon"])),
        2
    );
}

/// With `--json`, stdout is objects and nothing else.
#[test]
fn json_is_for_programs() {
    let daemon = daemon!("json").limit("idle_after", "1h").start();
    let new = lines(&ok(&daemon, &["new", "fake", "--name", "j", "--json"]));
    assert_eq!(new[0]["name"], "j");
    let sent = lines(&ok(&daemon, &["send", "j", "FAKE:say hi", "--json"]));
    let last = sent.last().expect("it says something");
    assert_eq!(
        (&last["event"], &last["state"]),
        (&"message_changed".into(), &"answered".into())
    );
    for args in [
        ["ps", "--json"].as_slice(),
        &["show", "j", "--json"],
        &["explain", "j", "--json"],
        &["logs", "j", "--json"],
        &["events", "--json"],
        &["release", "j", "--json"],
        &["rm", "j", "--json"],
    ] {
        assert!(!lines(&ok(&daemon, args)).is_empty(), "{args:?}");
    }
}

/// Behaviours 79, 90: `--no-wait` prints a number, the same key the same one; `stop` cancels what
/// waits.
#[test]
fn a_message_is_queued_and_cancelled() {
    let daemon = daemon!("nowait").limit("idle_after", "1h").start();
    let id = ok(&daemon, &["new", "fake", "--name", "q"])
        .trim()
        .to_owned();
    ok(&daemon, &["send", "q", "FAKE:slow 30", "--no-wait"]);
    let first = ok(
        &daemon,
        &["send", "q", "FAKE:say x", "--no-wait", "--key", "K"],
    );
    let again = ok(
        &daemon,
        &["send", "q", "FAKE:say x", "--no-wait", "--key", "K"],
    );
    assert_eq!(first, again);
    let message = drowse_messages::MessageId(first.trim().parse().expect("a number"));
    ok(&daemon, &["stop", "q"]);
    assert_eq!(daemon.message(message).state, MessageState::Cancelled);
    assert!(daemon.fake().events("stop").len() <= 1);
    daemon.wait_gone(&id);
}

/// Verbs start the daemon when there is none, and two at once start one; `--no-start` does not.
#[test]
fn two_verbs_at_once_start_one_daemon() {
    let daemon = daemon!("autostart").ready();
    assert_eq!(code(&daemon.run(&["ps", "--no-start"])), 69);
    let begin = || {
        let mut command = daemon.command(&["ps", "--json"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let verbs = [begin(), begin(), begin()];
    for verb in verbs {
        let output = verb.wait_with_output().unwrap();
        assert_eq!(
            code(&output),
            0,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let serving = daemon.marked().into_iter().filter(|process| {
        let line = drowse_tests::process::command_line(process.pid);
        line.contains("serve")
    });
    assert_eq!(serving.count(), 1);
}

/// D52: a daemon that cannot start is reported with what it said, and its code.
#[test]
fn a_daemon_that_does_not_start_is_reported() {
    let daemon = daemon!("nostart").ready();
    daemon.write_config("[session]\nidle_after = \"soon\"\n");
    let output = daemon.run(&["ps"]);
    assert_eq!(code(&output), 78);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("idle_after") && said.contains("soon"),
        "{said}"
    );
}

/// D54: the state folder and everything in it are for their owner alone.
#[test]
fn the_state_folder_is_the_owners_alone() {
    use std::os::unix::fs::MetadataExt;
    let daemon = daemon!("modes")
        .config("[server]\nlisten = \"127.0.0.1:0\"\n")
        .start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    assert_eq!(
        fs::metadata(daemon.state_dir()).unwrap().mode() & 0o777,
        0o700
    );
    for entry in fs::read_dir(daemon.state_dir()).unwrap().flatten() {
        let mode = entry.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{} is {mode:o}", entry.path().display());
    }
}
