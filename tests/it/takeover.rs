//! The daemon dies, or is replaced, and the next one goes on with its sessions: the same processes,
//! the same conversations, no turn interrupted.

use std::fs;
use std::time::Duration;

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

    assert_eq!(daemon.settled(in_flight).answer, "SAID through (user turns seen: 2)");
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

/// Behaviour 88, D41: `drowse restart` in mid-turn, with output streaming: the same processes, the
/// daemon's pid too, and every byte of the answer.
#[test]
fn a_restart_keeps_turns_and_every_byte_of_them() {
    let daemon = daemon!("restart").limit("idle_after", "1h").start();
    let [streaming, resting] = ["fake"; 2].map(|agent| daemon.open(agent));
    daemon.say(&resting, "FAKE:say one");
    let message = daemon.post(&streaming, "FAKE:slow 2\nFAKE:say done");
    daemon.fake().wait_events("turn", 2);
    let (me, agent) = (daemon.identity(), daemon.agent(&streaming));
    let output = daemon.run(&["restart"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(said, format!("{version} -> {version}, 2 sessions kept\n"));
    assert_eq!((daemon.identity(), daemon.agent(&streaming)), (me, agent));
    let answer = daemon.settled(message);
    assert_eq!(answer.state, MessageState::Answered, "{answer:?}");
    let ticks: String = (0..20).map(|tick| format!("tick{tick} ")).collect();
    assert!(answer.answer.starts_with(&ticks), "{}", answer.answer);
    assert!(
        answer.answer.ends_with("SAID done (user turns seen: 1)"),
        "{}",
        answer.answer
    );
    assert_eq!(starts(&daemon), 2);
    let is_restarting = |event: &SessionEvent| matches!(event, SessionEvent::Adopted { .. });
    assert_eq!(daemon.count(&streaming, is_restarting), 1);
    daemon.fake().assert_never_two();
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
