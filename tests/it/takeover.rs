//! The daemon dies, or is replaced, and the next one goes on with its sessions: the same processes,
//! the same conversations, no turn interrupted.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use drowse_client::EventsQuery;
use drowse_messages::{ExitStatus, MessageState, Reason, SessionEvent, SessionState};
use drowse_tests::{ProcIdentity, TestDaemon, daemon, wait_until};
use nix::sys::signal::Signal;

/// A turn that goes on until the gate is opened.
fn until_gate(daemon: &TestDaemon) -> String {
    format!("FAKE:wait {}", daemon.path("gate").display())
}

fn open_gate(daemon: &TestDaemon) {
    fs::write(daemon.path("gate"), "").expect("the folder is ours");
}

fn is_notice(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Notice { .. })
}

fn starts(daemon: &TestDaemon) -> usize {
    daemon.fake().events("start").len()
}

/// Behaviours 83 to 86, D41: killed with one session in mid-turn, one at rest, one held by a task
/// and one that asks. The next daemon has the same agents; the turn comes to its end and answers
/// its message, what was asked is answered, the task still holds, and the idle one is released on
/// time.
#[test]
fn after_a_kill_the_next_daemon_goes_on_with_every_session() {
    let mut daemon = daemon!("takeover").limit("idle_after", "2s").start();
    let [working, resting, waiting, asking] = ["fake"; 4].map(|agent| daemon.open(agent));
    let ids = [&working, &resting, &waiting, &asking];
    for id in ids {
        daemon.say(id, "FAKE:say one");
    }
    let in_flight = daemon.post(&working, &(until_gate(&daemon) + "\nFAKE:say through"));
    daemon.say(&waiting, "FAKE:bg 600");
    let asked = daemon.post(&asking, "FAKE:approve rm");
    daemon.fake().wait_events("turn", 7);
    let ask = daemon.wait_state(&asking, SessionState::NeedsYou);
    let ask = ask.awake.expect("it runs").asks[0].id.clone();
    let agents: Vec<ProcIdentity> = ids.iter().map(|id| daemon.agent(id)).collect();
    daemon.kill9();
    open_gate(&daemon);
    daemon.restart();

    assert_eq!(
        daemon.settled(in_flight).answer,
        "SAID through (user turns seen: 2)"
    );
    let now: Vec<ProcIdentity> = [&working, &waiting, &asking]
        .iter()
        .map(|id| daemon.agent(id))
        .collect();
    assert_eq!(now, [agents[0], agents[2], agents[3]]);
    assert_eq!(daemon.report(&waiting).state, SessionState::Waiting);
    let allow = drowse_messages::Answer::Allow;
    daemon.get(async |client| client.answer(&asking, &ask, allow).await);
    let answered = daemon.settled(asked);
    assert_eq!(answered.state, MessageState::Answered, "{answered:?}");
    assert_eq!(starts(&daemon), 4, "nothing was started");
    let report = daemon.wait_state(&resting, SessionState::Released);
    assert_eq!(report.end.map(|end| end.reason), Some(Reason::Idle));
    assert_eq!(daemon.report(&waiting).state, SessionState::Waiting);
    assert_eq!(
        daemon.say(&working, "FAKE:say on"),
        "SAID on (user turns seen: 3)"
    );
    daemon.fake().assert_never_two();
    // Keepers that are no children of this daemon are not missed as such.
    let log = daemon.log_text();
    assert!(!log.contains("failed to collect"), "{log}");
}

/// D36, D41: an agent that ends while no daemon runs is found ended, with its own status; what it
/// wrote before is told, and the next message resumes.
#[test]
fn an_agent_that_ended_meanwhile_is_interrupted_with_its_status() {
    let mut daemon = daemon!("meanwhile").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    let message = daemon.post(&id, &(until_gate(&daemon) + "\nFAKE:exit 3"));
    daemon.fake().wait_events("turn", 2);
    let agent = daemon.agent(&id);
    daemon.kill9();
    open_gate(&daemon);
    wait_until("the agent's end", Duration::from_secs(5), || {
        (!agent.is_alive()).then_some(())
    });
    daemon.restart();
    assert_eq!(daemon.settled(message).state, MessageState::Unknown);
    let report = daemon.wait_state(&id, SessionState::Interrupted);
    let end = report.end.expect("it says why");
    let status = Some(ExitStatus::Code(3));
    assert_eq!(end.reason, Reason::Crashed { status });
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 3)"
    );
    daemon.fake().assert_never_two();
}

/// Behaviour 102, D41: neither a restart nor a death begins the hard limit anew, and its warning,
/// which comes at half of such a short one, comes once.
#[test]
fn the_hard_limit_outlives_the_daemon() {
    let mut daemon = daemon!("hard")
        .limit("start_limit", "1s")
        .limit("hard_limit", "6s")
        .start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    daemon.post(&id, &until_gate(&daemon));
    let warned = |event: &SessionEvent| matches!(event, SessionEvent::LimitWarned { .. });
    daemon.wait_event(&id, "a warning", 1, warned);
    assert!(daemon.run(&["restart"]).status.success());
    daemon.kill9();
    daemon.restart();
    assert_eq!(daemon.report(&id).state, SessionState::Working);
    let report = daemon.wait_state(&id, SessionState::Released);
    assert_eq!(report.end.map(|end| end.reason), Some(Reason::HardLimit));
    let ending = |event: &SessionEvent| matches!(event, SessionEvent::Ending { .. });
    let warned_at = daemon.time_of(&id, "warned", warned);
    let after = daemon.time_of(&id, "ending", ending) - warned_at;
    assert!(
        (2_900..4_500).contains(&after),
        "{after} ms after the warning"
    );
    assert_eq!(daemon.count(&id, warned), 1);
}

/// D45: without a new daemon the keepers end everything once `orphan_grace` is over, and not
/// before.
#[test]
fn without_a_new_daemon_nothing_is_left_after_the_grace() {
    for (grace, outlives) in [("2s", true), ("0s", false)] {
        let config = format!("[server]\norphan_grace = \"{grace}\"\n");
        let mut daemon = daemon!("grace")
            .limit("idle_after", "1h")
            .config(&config)
            .start();
        let id = daemon.open("fake");
        daemon.say(&id, "FAKE:spawn setsid\nFAKE:spawn ignore-term");
        daemon.kill9();
        if outlives {
            assert_eq!(daemon.processes(&id).len(), 4, "it ended before the grace");
        }
        wait_until("the end of the tree", Duration::from_secs(8), || {
            daemon.processes(&id).is_empty().then_some(())
        });
        daemon.restart();
        assert_eq!(daemon.report(&id).state, SessionState::Released);
        assert_eq!(
            daemon.say(&id, "FAKE:say on"),
            "SAID on (user turns seen: 2)"
        );
    }
}

/// Behaviour 85, D41: killed again and again in mid-turn, the turn is still the one it was.
#[test]
fn two_deaths_in_a_row_interrupt_nothing() {
    let mut daemon = daemon!("twice").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    let message = daemon.post(&id, &until_gate(&daemon));
    daemon.fake().wait_events("turn", 2);
    let agent = daemon.agent(&id);
    for _ in 0..3 {
        daemon.kill9();
        daemon.restart();
        assert_eq!(daemon.report(&id).state, SessionState::Working);
    }
    open_gate(&daemon);
    assert_eq!(daemon.settled(message).state, MessageState::Answered);
    assert_eq!((daemon.agent(&id), starts(&daemon)), (agent, 1));
}

/// Behaviour 88, D41: `drowse restart` in mid-turn, in the middle of a line: the same processes,
/// the daemon's pid too, and every byte of what the agent says.
#[test]
fn a_restart_keeps_turns_and_every_byte_of_them() {
    let daemon = daemon!("restart").limit("idle_after", "1h").start();
    let [streaming, resting] = ["fake"; 2].map(|agent| daemon.open(agent));
    daemon.say(&resting, "FAKE:say one");
    let text = "half of this \u{1f980} came before, the rest after";
    let gate = daemon.path("gate");
    let prompt = format!("FAKE:split {} {text}\nFAKE:say done", gate.display());
    let message = daemon.post(&streaming, &prompt);
    daemon.fake().wait_events("split", 1);
    let (me, agent) = (daemon.identity(), daemon.agent(&streaming));
    let output = daemon.run(&["restart"]);
    assert!(output.status.success(), "{output:?}");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{version} -> {version}, 2 sessions kept\n")
    );
    assert_eq!((daemon.identity(), daemon.agent(&streaming)), (me, agent));
    let output = daemon.get(async |client| {
        let mut events = client.events(&EventsQuery::default()).await?;
        open_gate(&daemon);
        loop {
            let event = events.next().await?.expect("the daemon runs");
            if let SessionEvent::Output { text, message } = event.what {
                return Ok((text, message));
            }
        }
    });
    assert_eq!(output, (text.to_owned(), Some(message)));
    assert_eq!(
        daemon.settled(message).answer,
        "SAID done (user turns seen: 1)"
    );
    assert_eq!(starts(&daemon), 2);
    let is_adopted = |event: &SessionEvent| matches!(event, SessionEvent::Adopted { .. });
    assert_eq!(daemon.count(&streaming, is_adopted), 1);
    assert_eq!(daemon.count(&streaming, is_notice), 0);
    daemon.fake().assert_never_two();
}

/// A verb that waits for an answer goes on with the next daemon, and so does one that follows
/// events.
#[test]
fn verbs_go_on_with_the_next_daemon() {
    let daemon = daemon!("verbs").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    let prompt = until_gate(&daemon) + "\nFAKE:say through";
    let verb = |args: &[&str]| {
        let mut command = daemon.command(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
            .stderr(Stdio::null())
            .spawn()
            .expect("the program was built with the tests")
    };
    let sending = verb(&["send", &id, &prompt]);
    let mut following = verb(&["events", "--follow", "--json"]);
    daemon.fake().wait_events("turn", 2);
    assert!(daemon.run(&["restart"]).status.success());
    open_gate(&daemon);
    let sent = sending.wait_with_output().expect("it is ours");
    let said = String::from_utf8_lossy(&sent.stdout).into_owned();
    assert!(sent.status.success(), "{sent:?}");
    assert!(
        said.ends_with("SAID through (user turns seen: 2)\n"),
        "{said}"
    );
    let lines = BufReader::new(following.stdout.take().expect("it is piped")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(
        lines.any(|line| line.contains("\"adopted\"")),
        "it broke off"
    );
    assert!(lines.any(|line| line.contains("SAID through")));
    following.kill().expect("it is ours");
    following.wait().expect("it is ours");
}

/// Behaviour 87, D28: 24 sessions, half of them working, are ended at once when the daemon is told
/// to end: each turn is interrupted once, nothing is left, and the code says so.
#[test]
fn two_dozen_sessions_end_together() {
    let mut daemon = daemon!("dozens").limit("idle_after", "1h").start();
    let ids: Vec<String> = (0..24).map(|_| daemon.open("fake")).collect();
    for (number, id) in ids.iter().enumerate() {
        let text = if number % 2 == 0 {
            "FAKE:slow 60"
        } else {
            "FAKE:say one"
        };
        daemon.post(id, &format!("FAKE:spawn setsid\n{text}"));
    }
    daemon.fake().wait_events("turn_end", 12);
    daemon.fake().wait_events("turn", 24);
    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(daemon.marked().is_empty(), "a tree outlived the daemon");
    let ends = daemon.fake().events("turn_end");
    let failed = ends.iter().filter(|end| end["failed"] == true).count();
    assert_eq!((ends.len(), failed), (24, 12));
}

/// D39, D41: a line that was cut in two by the death of a daemon is passed over, and the turn is
/// answered.
#[test]
fn half_a_line_of_a_dead_daemon_is_passed_over() {
    let mut daemon = daemon!("half").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let gate = daemon.path("gate");
    let prompt = format!("FAKE:split {} lost\nFAKE:say done", gate.display());
    let message = daemon.post(&id, &prompt);
    daemon.fake().wait_events("split", 1);
    // Its half of the line is read once what it says of the start was.
    daemon.wait_state(&id, SessionState::Working);
    daemon.kill9();
    daemon.restart();
    open_gate(&daemon);
    assert_eq!(
        daemon.settled(message).answer,
        "SAID done (user turns seen: 1)"
    );
    assert_eq!(starts(&daemon), 1);
}

/// Behaviours 60, 88: a restart while a session starts undoes the start, and while one is being
/// released lets that come to its end; what waits is delivered by the next daemon.
#[test]
fn a_restart_undoes_starts_and_completes_releases() {
    let daemon = daemon!("undone").limit("idle_after", "1h").start();
    let starting = daemon.open_behaving("fake", &[("start_delay_ms", "600")]);
    let releasing = daemon.open_behaving("fake", &[("ignore_eof", "true")]);
    daemon.say(&releasing, "FAKE:say one");
    let waiting = daemon.post(&starting, "FAKE:say two");
    daemon.wait_state(&starting, SessionState::Starting);
    daemon.get(async |client| client.release(&releasing).await);
    let output = daemon.run(&["restart", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(told["kept"], 0, "{told}");
    let report = daemon.wait_state(&releasing, SessionState::Released);
    assert_eq!(report.end.map(|end| end.reason), Some(Reason::Manual));
    assert_eq!(
        daemon.settled(waiting).answer,
        "SAID two (user turns seen: 1)"
    );
    daemon.fake().assert_never_two();
}

/// A program that will not do is refused, and nothing changes; so is a restart that would end the
/// agents.
#[test]
fn a_restart_that_would_fail_is_refused() {
    let config = "[server]\norphan_grace = \"off\"\n";
    let daemon = daemon!("refused").config(config).start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    let output = daemon.run(&["restart"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("orphan_grace is off"), "{said}");
    daemon.say(&id, "FAKE:say two");
}

/// The keeper that a message had no time to be written down with is found by its socket.
#[test]
fn a_keeper_nobody_knows_of_is_ended() {
    let mut daemon = daemon!("stray").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:spawn setsid");
    daemon.kill9();
    let database = rusqlite::Connection::open(daemon.state_dir().join("drowse.db")).unwrap();
    let sql = "UPDATE sessions SET running = NULL, state = 'starting'";
    assert_eq!(database.execute(sql, []).unwrap(), 1);
    drop(database);
    daemon.restart();
    assert!(daemon.processes(&id).is_empty());
    assert_eq!(daemon.report(&id).state, SessionState::Released);
    daemon.identity().signal(Signal::SIGTERM);
    assert!(daemon.wait_exit().success());
}
