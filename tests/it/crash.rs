//! An agent that ends without being asked: noticed at once, nothing left, nothing repeated.

use std::net::TcpListener;
use std::time::Duration;

use drowse_messages::{ExitStatus, MessageState, Reason, SessionEvent, SessionState};
use drowse_tests::{ProcIdentity, daemon, wait_until};
use nix::sys::signal::Signal;

/// Behaviour 99, D06, D21, D36: killed in mid-turn while a side process holds its stdout and a
/// server of it a port. Noticed within a second, survivors ended before the next start, the message
/// unknown and not repeated, and the next one resumes with the history.
#[test]
fn a_killed_agent_is_noticed_and_its_survivors_are_ended() {
    let daemon = daemon!("killed").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    daemon.say(
        &id,
        &format!("FAKE:spawn holds-stdout\nFAKE:spawn server:{port}"),
    );
    let survivors: Vec<ProcIdentity> = daemon
        .fake()
        .wait_events("child", 2)
        .iter()
        .filter_map(|child| ProcIdentity::parse(child["who"].as_str()?))
        .collect();
    let message = daemon.post(&id, "FAKE:slow 30");
    daemon.fake().wait_events("turn", 2);
    daemon.wait_state(&id, SessionState::Working);
    daemon.agent(&id).signal(Signal::SIGKILL);
    wait_until("the end to be noticed", Duration::from_secs(1), || {
        (daemon.report(&id).state != SessionState::Working).then_some(())
    });
    let report = daemon.wait_state(&id, SessionState::Interrupted);
    let end = report.end.expect("it says why");
    assert_eq!(
        end.reason,
        Reason::Crashed {
            status: Some(ExitStatus::Signal(9))
        }
    );
    assert!(end.mid_turn && end.survivors.is_empty(), "{end:?}");
    assert_eq!(end.reaped.len(), 2, "{end:?}");
    assert!(!survivors.iter().any(ProcIdentity::is_alive));
    assert_eq!(daemon.settled(message).state, MessageState::Unknown);
    TcpListener::bind(("127.0.0.1", port)).expect("the port is free again");

    // The interrupted turn is in the agent's history; it was not said again.
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 3)"
    );
    let turns = daemon.fake().turns();
    assert_eq!(turns.iter().filter(|turn| turn.contains("slow")).count(), 1);
    daemon.fake().assert_never_two();
}

/// D21: an agent that leaves in mid-turn with a code of its own.
#[test]
fn an_exit_in_mid_turn_interrupts_and_the_next_message_resumes() {
    let daemon = daemon!("exits").start();
    let id = daemon.open("fake");
    for (text, status) in [
        ("FAKE:exit 3", ExitStatus::Code(3)),
        ("FAKE:exit 0", ExitStatus::Code(0)),
        ("FAKE:crash", ExitStatus::Signal(9)),
    ] {
        assert_eq!(
            daemon.send(&id, text).state,
            MessageState::Unknown,
            "{text}"
        );
        let report = daemon.wait_state(&id, SessionState::Interrupted);
        let end = report.end.expect("it says why");
        assert_eq!(
            end.reason,
            Reason::Crashed {
                status: Some(status)
            },
            "{text}"
        );
    }
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 4)"
    );
}

/// D21: an agent that dies at rest was not working on anything: its session sleeps, and wakes.
#[test]
fn an_agent_that_dies_at_rest_leaves_a_session_that_wakes() {
    let daemon = daemon!("rest").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:spawn setsid 2");
    daemon.agent(&id).signal(Signal::SIGKILL);
    let report = daemon.wait_state(&id, SessionState::Released);
    let end = report.end.expect("it says why");
    assert!(
        matches!(end.reason, Reason::Crashed { .. }) && !end.mid_turn,
        "{end:?}"
    );
    daemon.wait_gone(&id);
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
}

/// D53: what a dying agent said is kept, without the secrets it was started with.
#[test]
fn last_words_are_kept_without_secrets() {
    let daemon = daemon!("words").start();
    let mut new = daemon.new_session("fake");
    let secret = "hunter2-hunter2-hunter2";
    new.args = vec!["--api-key".into(), secret.into()];
    new.env.insert("FAKE_AGENT_FAIL_STARTS".into(), "99".into());
    new.env.insert(
        "FAKE_AGENT_FAIL_TEXT".into(),
        format!("bad key {secret}, giving up"),
    );
    let id = daemon.open_as(&new);
    daemon.post(&id, "FAKE:say x");
    let is_failed = |event: &SessionEvent| matches!(event, SessionEvent::StartFailed { .. });
    let SessionEvent::StartFailed { error, .. } = daemon.wait_event(&id, "failed", 1, is_failed)
    else {
        unreachable!("it was matched above")
    };
    assert!(
        error.contains("giving up") && !error.contains(secret),
        "{error}"
    );
    assert!(!daemon.log_text().contains(secret));
    daemon.get(async |client| client.stop(&id).await);
}
