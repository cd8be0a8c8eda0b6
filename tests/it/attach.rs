//! `drowse attach`: a session at a terminal, and behind a pipe.

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

use drowse_messages::{MessageState, SessionState};
use drowse_tests::terminal::{END, INTERRUPT, QUIT};
use drowse_tests::{Terminal, TestDaemon, daemon};

fn attach(daemon: &TestDaemon, id: &str) -> Terminal {
    let terminal = Terminal::spawn(&daemon.command(&["attach", id]));
    terminal.wait_for("attached to");
    terminal
}

/// What a pipe brings, and what comes out behind it.
fn pipe(daemon: &TestDaemon, args: &[&str], text: &str) -> Output {
    let mut command = daemon.command(args);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program was built");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(text.as_bytes()).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Behaviours 115, 116: what is typed becomes messages, commands are commands, and leaving ends
/// neither the agent nor the session; who comes back sees what was said.
#[test]
fn a_session_is_talked_to_and_left() {
    let daemon = daemon!("attach").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let mut terminal = attach(&daemon, &id);
    terminal.type_line("FAKE:say one");
    terminal.wait_for("message 1 sent");
    terminal.wait_for("SAID one (user turns seen: 1)");
    terminal.wait_for("drowse: resting");
    terminal.type_line("/help");
    terminal.wait_for("/interrupt");
    terminal.type_line("/explain");
    terminal.wait_for("turn ended");
    terminal.type_line("/stopp");
    terminal.wait_for("there is no /stopp");
    terminal.type_line("//fake");
    terminal.wait_for("SAID /fake (user turns seen: 2)");
    let agent = daemon.agent(&id);
    terminal.type_line("/detach");
    assert_eq!(terminal.wait_exit().code(), Some(0));
    terminal.wait_for("detached");
    for key in [END, QUIT] {
        let mut terminal = attach(&daemon, &id);
        terminal.wait_for("> FAKE:say one\nSAID one (user turns seen: 1)\n");
        terminal.wait_for("drowse: resting");
        terminal.press(key);
        assert_eq!(terminal.wait_exit().code(), Some(0));
        terminal.wait_for("detached");
    }
    assert_eq!(daemon.agent(&id), agent);
    assert_eq!(daemon.report(&id).state, SessionState::Resting);
    let turns = daemon.fake().turns();
    assert_eq!(turns, ["FAKE:say one", "/fake"]);
}

/// Orders of a person at the terminal; a held session is not released and says why.
#[test]
fn a_session_is_released_and_stopped_from_within() {
    let daemon = daemon!("attach-order").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let mut terminal = attach(&daemon, &id);
    terminal.type_line("FAKE:bg 600");
    terminal.wait_for("drowse: waiting; held by task");
    terminal.type_line("/release");
    terminal.wait_for("held, not released");
    terminal.type_line("/stop");
    terminal.wait_for("released: stopped");
    daemon.wait_state(&id, SessionState::Stopped);
    terminal.type_line("FAKE:say awake");
    terminal.wait_for("SAID awake (user turns seen: 2)");
    terminal.wait_for("drowse: resting");
    terminal.type_line("/release");
    terminal.wait_for("released: manual");
    terminal.wait_for("drowse: released (manual)");
    daemon.get(async |client| client.remove(&id).await);
    assert_eq!(terminal.wait_exit().code(), Some(4));
    terminal.wait_for("the session was removed");
}

/// D33: the daemon is killed in the middle of a turn, and replaced; whoever is attached goes on
/// with the next one, is shown each answer once and whole, and what is typed meanwhile arrives.
#[test]
fn attached_through_the_end_of_a_daemon() {
    let mut daemon = daemon!("attach-kill").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let mut terminal = attach(&daemon, &id);
    let gate = daemon.path("gate");
    terminal.type_line("FAKE:bytewise piece-1\\");
    terminal.type_line(&format!("FAKE:wait {}\\", gate.display()));
    terminal.type_line("FAKE:say end");
    terminal.wait_for_nth("piece-1", 2);
    daemon.kill9();
    terminal.wait_for("the daemon is gone");
    terminal.type_line("FAKE:say meanwhile");
    fs::write(&gate, "").expect("the folder is ours");
    daemon.restart();
    terminal.wait_for("attached again");
    terminal.wait_for("SAID end (user turns seen: 1)");
    terminal.wait_for("SAID meanwhile (user turns seen: 2)");
    daemon.terminate();
    daemon.restart();
    terminal.wait_for_nth("attached again", 2);
    terminal.type_line("FAKE:say last");
    terminal.wait_for("SAID last (user turns seen: 3)");
    terminal.type_line("/detach");
    assert_eq!(terminal.wait_exit().code(), Some(0));
    for (text, times) in [
        // Once as it was typed.
        ("piece-1", 2),
        ("SAID end", 1),
        ("SAID meanwhile", 1),
        ("SAID last", 1),
        ("message 1 sent", 1),
        ("message 2 sent", 1),
    ] {
        assert_eq!(terminal.count(text), times, "{text}:\n{}", terminal.shown());
    }
    assert_eq!(daemon.fake().turns().len(), 3, "nothing is said twice");
}

/// D16, behaviour 115: two at once see the same; what is asked is answered by either, once, and
/// the other is told.
#[test]
fn what_is_asked_is_answered_by_one_of_two() {
    let daemon = daemon!("attach-two").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let mut first = attach(&daemon, &id);
    let mut second = attach(&daemon, &id);
    first.type_line("FAKE:approve rm -r build");
    first.wait_for("allow? [y/n]");
    second.wait_for("> FAKE:approve rm -r build");
    second.wait_for("allow? [y/n]");
    second.type_line("perhaps");
    second.wait_for_nth("allow? [y/n]", 2);
    second.type_line("y");
    first.wait_for("settled by drowse-cli");
    for terminal in [&first, &second] {
        terminal.wait_for("(user turns seen: 1)");
    }
    // Nothing is asked any more, so this is a message.
    first.type_line("y");
    second.wait_for("> y");
    second.wait_for("y (user turns seen: 2)");
    second.type_line("FAKE:question which colour");
    first.wait_for("answer:");
    // One that attaches now is asked as well.
    let mut third = attach(&daemon, &id);
    third.wait_for("answer:");
    third.type_line("blue");
    first.wait_for("(user turns seen: 3)");
    assert_eq!(daemon.fake().turns().len(), 3);
    assert_eq!(first.count("allow? [y/n]"), 1);
}

/// Ctrl-C interrupts the turn, and leaves when it is pressed again.
#[test]
fn ctrl_c_interrupts_and_then_leaves() {
    let daemon = daemon!("attach-int").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let mut terminal = attach(&daemon, &id);
    terminal.type_line("FAKE:slow 600");
    terminal.wait_for("drowse: message 1 sent");
    daemon.fake().wait_events("turn", 1);
    terminal.press(INTERRUPT);
    terminal.wait_for("interrupting the turn; Ctrl-C again leaves");
    terminal.wait_for("message 1 failed");
    terminal.wait_for("drowse: resting");
    terminal.press(INTERRUPT);
    assert_eq!(terminal.wait_exit().code(), Some(130));
    terminal.wait_for("detached");
    assert_eq!(daemon.report(&id).state, SessionState::Resting);
}

/// What a terminal has at once was pasted, and is one message.
#[test]
fn a_paste_is_one_message() {
    let daemon = daemon!("attach-paste").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let mut terminal = attach(&daemon, &id);
    terminal.type_line("FAKE:say a\nFAKE:say b\nFAKE:say c");
    terminal.wait_for("SAID a; SAID b; SAID c (user turns seen: 1)");
    assert_eq!(
        daemon.fake().turns(),
        ["FAKE:say a\nFAKE:say b\nFAKE:say c"]
    );
}

/// Behaviour 20: to be attached neither holds a session nor restarts its clock.
#[test]
fn being_attached_is_not_use() {
    let daemon = daemon!("attach-idle").limit("idle_after", "1s").start();
    let id = daemon.open("fake");
    let mut terminal = attach(&daemon, &id);
    terminal.type_line("FAKE:say one");
    terminal.wait_for("SAID one");
    terminal.type_line("/explain");
    terminal.wait_for("released: idle");
    terminal.wait_for("drowse: released (idle)");
    let report = daemon.report(&id);
    assert_eq!(report.state, SessionState::Released);
    assert_eq!(daemon.fake().events("start").len(), 1);
}

/// A terminal that can show colours gets them, unless `NO_COLOR` says no; what an agent says sets
/// none.
#[test]
fn colours_are_ours_alone() {
    let daemon = daemon!("attach-colour").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    for (text, name, value, colours) in [
        ("red", "TERM", "xterm", true),
        ("green", "NO_COLOR", "1", false),
        ("blue", "TERM", "dumb", false),
    ] {
        let mut command = daemon.command(&["attach", &id]);
        command.env("TERM", "xterm").env(name, value);
        let mut terminal = Terminal::spawn(&command);
        terminal.wait_for("attached to");
        terminal.type_line(&format!("FAKE:say \u{9b}31m{text}"));
        terminal.wait_for(&format!("SAID  31m{text}"));
        terminal.type_line("/detach");
        assert_eq!(terminal.wait_exit().code(), Some(0));
        let shown = terminal.shown();
        assert_eq!(shown.contains("\x1b[2mdrowse: "), colours, "{name}={value}");
        let rest = shown.replace("\x1b[2m", "").replace("\x1b[1m", "");
        assert!(!rest.replace("\x1b[0m", "").contains('\x1b'), "{rest:?}");
    }
}

/// Without a terminal lines are messages in their order, also those that look like commands, and
/// it ends when all are answered.
#[test]
fn behind_a_pipe_every_line_is_a_message() {
    let daemon = daemon!("attach-pipe").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let output = pipe(
        &daemon,
        &["attach", &id],
        "FAKE:say one\n/stop\nFAKE:say a\\\nFAKE:say b\n",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = "SAID one (user turns seen: 1)\n\
                    SAID /stop (user turns seen: 2)\n\
                    SAID a; SAID b (user turns seen: 3)\n";
    assert_eq!(out(&output), expected);
    assert!(output.stderr.is_empty(), "{output:?}");
    let output = pipe(
        &daemon,
        &["attach", &id],
        "FAKE:fail overloaded\nFAKE:say on\n",
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(out(&output).ends_with("\nSAID on (user turns seen: 5)\n"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("overloaded"), "{said}");
    let output = pipe(&daemon, &["attach", &id, "--json"], "FAKE:say json\n");
    let last = out(&output);
    assert!(last.lines().all(|line| line.starts_with('{')), "{last}");
    assert!(last.contains("SAID json"), "{last}");
    let output = pipe(&daemon, &["attach", "nobody"], "hello\n");
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let many: String = (0..100).map(|n| format!("FAKE:say {n}\n")).collect();
    let output = pipe(&daemon, &["attach", &id], &many);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(out(&output).lines().count(), 100);
}

/// D33: a pipe's messages are answered once each although the daemon is replaced meanwhile.
#[test]
fn a_pipe_outlives_the_daemon() {
    let mut daemon = daemon!("attach-pipe-kill")
        .limit("idle_after", "1h")
        .start();
    let id = daemon.open("fake");
    let gate = daemon.path("gate");
    let mut command = daemon.command(&["attach", &id]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program was built");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let text = format!(
        "FAKE:wait {}\\\nFAKE:say one\nFAKE:say two\n",
        gate.display()
    );
    stdin.write_all(text.as_bytes()).expect("it reads");
    drop(stdin);
    daemon.fake().wait_events("turn", 1);
    daemon.wait_report(&id, "a message that waits", |report| report.queued == 1);
    daemon.kill9();
    fs::write(&gate, "").expect("the folder is ours");
    daemon.restart();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = "SAID one (user turns seen: 1)\nSAID two (user turns seen: 2)\n";
    assert_eq!(out(&output), expected);
    let states = daemon.get(async |client| client.messages(&id, 9).await);
    assert!(
        states
            .iter()
            .all(|message| message.state == MessageState::Answered)
    );
}
