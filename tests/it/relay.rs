//! `drowse run` in an agent's place: the host notices nothing of releases, restarts and crashes of
//! the daemon, and everything that it would notice of the bare agent.

use std::io::Write;
use std::time::Duration;

use drowse_client::ListQuery;
use drowse_messages::{Reason, SessionEvent, SessionReport, SessionState};
use drowse_tests::fake::Dialect;
use drowse_tests::host::Host;
use drowse_tests::{CEILING, TestDaemon, daemon, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

mod bytes;
mod ends;

/// A host of the fake agent, with these options of the shim.
fn host(daemon: &TestDaemon, dialect: Dialect, options: &[&str]) -> Host {
    let protocol = match dialect {
        Dialect::Claude => "claude",
        Dialect::Pi | Dialect::Pi073 => "pi",
    };
    let program = daemon.fake().program().display().to_string();
    let mut words = vec!["run", "--protocol", protocol];
    words.extend(options);
    words.extend(["--", &program]);
    words.extend(dialect.args());
    Host::spawn(daemon.command(&words))
}

/// A host of any program.
fn host_of(daemon: &TestDaemon, command: &[&str]) -> Host {
    Host::spawn(daemon.command(&words_of(command)))
}

fn words_of<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--"][..], command].concat()
}

fn sessions(daemon: &TestDaemon) -> Vec<SessionReport> {
    let page = daemon.get(async |client| client.sessions(&ListQuery::default()).await);
    page.sessions
}

/// The only session there is, once there is one.
fn session(daemon: &TestDaemon) -> String {
    let session = wait_until("a session of the host's", CEILING, || {
        sessions(daemon).first().map(|report| report.id.to_string())
    });
    assert_eq!(sessions(daemon).len(), 1);
    session
}

fn prompt(host: &mut Host, text: &str) {
    let content = json!([{ "type": "text", "text": text }]);
    host.send(&json!({ "type": "user", "message": { "role": "user", "content": content } }));
}

/// A turn of Claude's, to its end.
fn turn(host: &mut Host, text: &str) -> String {
    prompt(host, text);
    answer(host)
}

fn answer(host: &mut Host) -> String {
    let result = host.wait_line("a result", |line| line["type"] == "result");
    result["result"].as_str().unwrap_or_default().to_owned()
}

fn initialize(host: &mut Host) {
    let request = json!({ "subtype": "initialize", "hooks": {} });
    host.send(&json!({ "request_id": "req_1", "type": "control_request", "request": request }));
    let answered = host.wait_line("its answer", |line| line["type"] == "control_response");
    assert_eq!(answered["response"]["request_id"], "req_1");
}

/// Waits until it is on disk that the agent runs: before, it is ended with its daemon.
fn wait_written_down(daemon: &TestDaemon) {
    let rests = |event: &SessionEvent| {
        matches!(
            event,
            SessionEvent::StateChanged {
                to: SessionState::Resting,
                ..
            }
        )
    };
    daemon.wait_event(&session(daemon), "it rests", 1, rests);
}

/// Nothing is missing, and nothing doubled; else the place is shown.
fn assert_same(heard: &[u8], expected: &[u8]) {
    let differs = heard.iter().zip(expected).position(|(a, b)| a != b);
    let at = differs.unwrap_or(heard.len().min(expected.len()));
    let around = |bytes: &[u8]| {
        let range = at.saturating_sub(60).min(bytes.len())..(at + 60).min(bytes.len());
        String::from_utf8_lossy(&bytes[range]).into_owned()
    };
    assert!(
        heard == expected,
        "at byte {at} of {}: heard {:?}, expected {:?}",
        expected.len(),
        around(heard),
        around(expected)
    );
}

/// Nothing of ours reaches a host.
fn assert_clean(host: &Host) {
    let heard = String::from_utf8_lossy(&host.heard()).into_owned();
    assert!(!heard.contains("\"drowse-"), "{heard}");
}

/// C, D27: three releases in one life of a host. Its handshake is said once by it and answered once
/// to it; the conversation goes on.
#[test]
fn three_releases_pass_unnoticed() {
    let daemon = daemon!("relay-three").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    initialize(&mut host);
    let id = session(&daemon);
    for round in 1..=4 {
        let said = turn(&mut host, "FAKE:say hello");
        assert_eq!(said, format!("SAID hello (user turns seen: {round})"));
        let report = daemon.wait_state(&id, SessionState::Released);
        assert_eq!(report.end.map(|end| end.reason), Some(Reason::Idle));
        assert!(report.relayed);
        assert_eq!(report.host_pid, Some(host.identity().pid));
    }
    assert_clean(&host);
    let responses = host.lines().into_iter();
    let responses = responses.filter(|line| line["type"] == "control_response");
    assert_eq!(responses.count(), 1);
    assert_eq!(daemon.fake().wait_events("start", 4).len(), 4);
    daemon.fake().assert_never_two();
    host.close();
    host.wait_code(0);
    let ended = |event: &SessionEvent| matches!(event, SessionEvent::HostEnded { .. });
    assert_eq!(daemon.count(&id, ended), 1);
    // From now on it is anybody's.
    assert_eq!(
        daemon.say(&id, "FAKE:say mine"),
        "SAID mine (user turns seen: 5)"
    );
}

/// The same with Pi, in both of its dialects; the observer's own questions stay between it and Pi.
#[test]
fn three_releases_pass_unnoticed_by_a_host_of_pi() {
    for dialect in [Dialect::Pi, Dialect::Pi073] {
        let daemon = daemon!("relay-pi").start();
        let mut host = host(&daemon, dialect, &[]);
        for round in 1..=4 {
            let id = format!("h{round}");
            host.send(&json!({ "id": id, "type": "prompt", "message": "FAKE:say hello" }));
            let said = host.wait_line("an answer", |line| {
                line["type"] == "message_end" && line["message"]["role"] == "assistant"
            });
            let text = said["message"]["content"][0]["text"].clone();
            assert_eq!(text, format!("SAID hello (user turns seen: {round})"));
            daemon.wait_state(&session(&daemon), SessionState::Released);
        }
        assert_clean(&host);
        daemon.fake().assert_never_two();
        assert_eq!(daemon.fake().events("start").len(), 4);
        host.close();
        host.wait_code(0);
    }
}

/// D30: what a host says at any moment around the end of the window is answered, once, in order.
#[test]
fn what_is_said_around_a_release_is_answered_once() {
    let daemon = daemon!("relay-around").limit("idle_after", "200ms").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    initialize(&mut host);
    let rounds = 40;
    for round in 1..=rounds {
        let said = turn(&mut host, "FAKE:say on");
        assert_eq!(said, format!("SAID on (user turns seen: {round})"));
        // The point of the test is the moment: from before the window's end to behind the release.
        std::thread::sleep(Duration::from_millis(150 + 8 * round));
    }
    let turns = daemon.fake().turns();
    assert_eq!(turns.len() as u64, rounds);
    daemon.fake().assert_never_two();
    assert_clean(&host);
    host.close();
    host.wait_code(0);
}

/// Several lines at once to a host that sleeps: all arrive, in order, and none twice.
#[test]
fn lines_that_come_while_asleep_wait_in_order() {
    let daemon = daemon!("relay-queue").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    turn(&mut host, "FAKE:say first");
    daemon.wait_state(&session(&daemon), SessionState::Released);
    for word in ["a", "b", "c"] {
        prompt(&mut host, &format!("FAKE:say {word}"));
    }
    let said: Vec<String> = (0..3).map(|_| answer(&mut host)).collect();
    let turns = |word: &str| said.iter().filter(|said| said.contains(word)).count();
    assert_eq!(
        ["a", "b", "c"].map(|word| turns(&format!("SAID {word} "))),
        [1, 1, 1]
    );
    let texts = daemon.fake().turns();
    assert_eq!(
        texts,
        ["first", "a", "b", "c"].map(|word| format!("FAKE:say {word}"))
    );
    host.close();
    host.wait_code(0);
}

/// What holds an owned session holds a relayed one: a turn, a background task, a question.
#[test]
fn work_holds_a_relayed_session() {
    let daemon = daemon!("relay-holds").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    initialize(&mut host);
    turn(&mut host, "FAKE:bg 2");
    let id = session(&daemon);
    let report = daemon.wait_state(&id, SessionState::Waiting);
    let holds = report.awake.expect("it runs").holds;
    assert_eq!(holds[0].kind.code(), "task", "{holds:?}");
    prompt(&mut host, "FAKE:approve rm");
    let ask = host.wait_line("what it asks", |line| line["type"] == "control_request");
    daemon.wait_state(&id, SessionState::NeedsYou);
    let response = json!({ "subtype": "success", "request_id": ask["request_id"],
        "response": { "behavior": "allow", "updatedInput": {} } });
    host.send(&json!({ "type": "control_response", "response": response }));
    answer(&mut host);
    daemon.wait_state(&id, SessionState::Released);
    host.close();
    host.wait_code(0);
}

/// While a host has the session nobody else speaks to its agent, and is told whose it is.
#[test]
fn a_message_to_a_hosts_session_is_refused() {
    let daemon = daemon!("relay-refused").start();
    let mut host = host(&daemon, Dialect::Claude, &["--name", "mine"]);
    turn(&mut host, "FAKE:say hello");
    let refused = daemon.refused(async |client| client.send("mine", "hello", None).await);
    assert_eq!(refused, "relayed");
    let ps = daemon.run(&["ps"]);
    let ps = String::from_utf8_lossy(&ps.stdout).into_owned();
    assert!(ps.contains("relayed"), "{ps}");
    let explain = daemon.run(&["explain", "mine"]);
    let explain = String::from_utf8_lossy(&explain.stdout).into_owned();
    let pid = host.identity().pid.to_string();
    assert!(explain.contains(&pid), "{explain}");
    host.close();
    host.wait_code(0);
}

/// D41, D42: the daemon is killed and replaced again and again while an agent counts; the host
/// hears every line, once.
#[test]
fn nothing_is_lost_or_doubled_when_the_daemon_is_killed() {
    let mut daemon = daemon!("relay-kill").limit("idle_after", "1h").start();
    let count = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo line $i; done; exec cat";
    let mut host = host_of(&daemon, &["sh", "-c", count]);
    wait_written_down(&daemon);
    let expected: String = (1..=30_000).map(|i| format!("line {i}\n")).collect();
    for part in 1..=4 {
        host.wait_bytes(expected.len() * part / 6);
        daemon.kill9();
        daemon.restart();
    }
    host.wait_bytes(expected.len());
    assert_same(&host.heard(), expected.as_bytes());
    host.write(b"and on\n");
    host.wait_bytes(expected.len() + 7);
    host.close();
    host.wait_code(0);
    assert_eq!(host.heard().len(), expected.len() + 7);
}

/// D42: the same for an agent that is listened to, whose lines are the host's before a checkpoint
/// knows of them.
#[test]
fn lines_that_mean_nothing_are_heard_once_when_the_daemon_is_killed() {
    let mut daemon = daemon!("relay-kill-lines")
        .limit("idle_after", "1h")
        .start();
    let line = |i: u32| {
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"x/line\",\"params\":{{\"i\":{i}}}}}\n")
    };
    let count = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); \
        echo '{\"jsonrpc\":\"2.0\",\"method\":\"x/line\",\"params\":{\"i\":'$i'}}'; done; exec cat";
    let words = ["run", "--protocol", "acp", "--", "sh", "-c", count];
    let mut host = Host::spawn(daemon.command(&words));
    wait_written_down(&daemon);
    let expected: String = (1..=30_000).map(line).collect();
    for part in 1..=5 {
        host.wait_bytes(expected.len() * part / 7);
        daemon.kill9();
        daemon.restart();
    }
    host.wait_bytes(expected.len());
    assert_same(&host.heard(), expected.as_bytes());
    host.close();
    host.wait_code(0);
}

/// The other way: a host counts while the daemon is killed, and the agent gets every line once.
#[test]
fn nothing_a_host_says_is_lost_or_doubled() {
    let mut daemon = daemon!("relay-kill-in").limit("idle_after", "1h").start();
    let mut host = host_of(&daemon, &["cat"]);
    host.write(b"begin\n");
    host.wait_bytes(6);
    wait_written_down(&daemon);
    let expected: String = (1..=30_000).map(|i| format!("line {i}\n")).collect();
    let mut stdin = host.take_stdin();
    let said = expected.clone();
    let writer = std::thread::spawn(move || {
        for line in said.split_inclusive('\n') {
            stdin.write_all(line.as_bytes()).expect("it is read");
        }
        stdin
    });
    for part in 1..=3 {
        host.wait_bytes(expected.len() * part / 5);
        daemon.kill9();
        daemon.restart();
    }
    let stdin = writer.join().expect("it only writes");
    host.wait_bytes(6 + expected.len());
    assert_same(&host.heard()[6..], expected.as_bytes());
    drop(stdin);
    host.wait_code(0);
}

/// `drowse restart` with a turn running, one released and one that is spoken to at that moment.
#[test]
fn a_restart_passes_unnoticed() {
    let daemon = daemon!("relay-restart").limit("idle_after", "1s").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    initialize(&mut host);
    turn(&mut host, "FAKE:say one");
    let gate = daemon.path("gate");
    prompt(
        &mut host,
        &format!("FAKE:wait {}\nFAKE:say two", gate.display()),
    );
    daemon.fake().wait_events("turn", 2);
    let restarted = daemon.run(&["restart"]);
    assert!(restarted.status.success(), "{restarted:?}");
    std::fs::write(&gate, "").expect("the folder is ours");
    assert_eq!(answer(&mut host), "SAID two (user turns seen: 2)");
    assert_eq!(daemon.fake().events("start").len(), 1);
    let id = session(&daemon);
    daemon.wait_state(&id, SessionState::Released);
    let restarted = daemon.run(&["restart"]);
    assert!(restarted.status.success(), "{restarted:?}");
    assert_eq!(
        turn(&mut host, "FAKE:say three"),
        "SAID three (user turns seen: 3)"
    );
    daemon.fake().assert_never_two();
    assert_clean(&host);
    host.close();
    host.wait_code(0);
}

/// A daemon that dies with a turn running, and is followed by another: the turn goes on.
#[test]
fn a_turn_outlives_the_daemon() {
    let mut daemon = daemon!("relay-crash").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    initialize(&mut host);
    turn(&mut host, "FAKE:say one");
    let gate = daemon.path("gate");
    prompt(
        &mut host,
        &format!("FAKE:wait {}\nFAKE:say two", gate.display()),
    );
    daemon.fake().wait_events("turn", 2);
    daemon.kill9();
    std::fs::write(&gate, "").expect("the folder is ours");
    daemon.restart();
    assert_eq!(answer(&mut host), "SAID two (user turns seen: 2)");
    let id = session(&daemon);
    daemon.wait_state(&id, SessionState::Released);
    assert_eq!(
        turn(&mut host, "FAKE:say three"),
        "SAID three (user turns seen: 3)"
    );
    daemon.fake().assert_never_two();
    assert_clean(&host);
    host.close();
    host.wait_code(0);
}

/// One daemon for two hosts that find none.
#[test]
fn two_hosts_at_once_start_one_daemon() {
    let daemon = daemon!("relay-two").ready();
    let mut hosts = [(); 2].map(|()| host(&daemon, Dialect::Claude, &[]));
    for host in &mut hosts {
        assert_eq!(
            turn(host, "FAKE:say hello"),
            "SAID hello (user turns seen: 1)"
        );
    }
    assert_eq!(sessions(&daemon).len(), 2);
    for host in &mut hosts {
        host.close();
        host.wait_code(0);
    }
}

/// A shim that is killed says nothing: its agent is kept for `detach_hold`, then let go.
#[test]
fn a_host_that_is_gone_without_a_word_is_waited_for() {
    let daemon = daemon!("relay-lost")
        .limit("idle_after", "1h")
        .limit("detach_hold", "700ms")
        .start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    turn(&mut host, "FAKE:say hello");
    let id = session(&daemon);
    host.signal(Signal::SIGKILL);
    host.wait_exit();
    let lost = |event: &SessionEvent| matches!(event, SessionEvent::HostLost { .. });
    daemon.wait_event(&id, "the host is lost", 1, lost);
    assert_eq!(daemon.report(&id).state, SessionState::Resting);
    let report = daemon.wait_state(&id, SessionState::Released);
    assert_eq!(report.end.map(|end| end.reason), Some(Reason::Detached));
    assert_eq!(
        daemon.say(&id, "FAKE:say mine"),
        "SAID mine (user turns seen: 2)"
    );
}
