//! Pi, in both of its ways to end a run (1.6 and 0.73), through the real daemon.

use drowse_messages::{Answer, MessageState, SessionEvent, SessionState};
use drowse_tests::daemon;

/// Both agents of Pi's protocol.
const BOTH: [&str; 2] = ["fakepi", "fakepi073"];

/// Behaviours 67, 72: a turn, a release, and the same conversation again.
#[test]
fn a_pi_session_is_released_and_resumed() {
    let daemon = daemon!("pi").start();
    for agent in BOTH {
        let id = daemon.open(agent);
        assert_eq!(
            daemon.say(&id, "FAKE:say one"),
            "SAID one (user turns seen: 1)",
            "{agent}"
        );
        daemon.wait_state(&id, SessionState::Released);
        daemon.wait_gone(&id);
        assert_eq!(
            daemon.say(&id, "FAKE:say two"),
            "SAID two (user turns seen: 2)",
            "{agent}"
        );
    }
    daemon.fake().assert_never_two();
}

/// Behaviour 29: messages to a busy Pi are each answered, in order.
#[test]
fn messages_to_a_busy_pi_are_answered_in_order() {
    let daemon = daemon!("pibusy").start();
    for agent in BOTH {
        let id = daemon.open(agent);
        let sent = ["FAKE:slow 1", "FAKE:say a", "FAKE:say b"].map(|text| daemon.post(&id, text));
        let answers = sent.map(|message| daemon.settled(message));
        assert!(
            answers.iter().all(|m| m.state == MessageState::Answered),
            "{answers:?}"
        );
        assert!(
            answers[1].answer.starts_with("SAID a "),
            "{agent}: {answers:?}"
        );
        assert!(
            answers[2].answer.starts_with("SAID b "),
            "{agent}: {answers:?}"
        );
        assert_eq!(
            daemon.fake().events("start").len(),
            1 + usize::from(agent == "fakepi073")
        );
    }
}

/// Behaviours 30, 121, 125: a status of an extension is a background task, and holds; its end lets
/// the session go.
#[test]
fn a_pi_status_holds_until_it_is_cleared() {
    let daemon = daemon!("pistatus").start();
    for agent in BOTH {
        let id = daemon.open(agent);
        daemon.say(&id, "FAKE:bg 1.3");
        let report = daemon.wait_state(&id, SessionState::Waiting);
        assert_eq!(
            report.awake.map(|awake| awake.tasks.len()),
            Some(1),
            "{agent}"
        );
        let is_deferred =
            |event: &SessionEvent| matches!(event, SessionEvent::ReleaseDeferred { .. });
        daemon.wait_event(&id, "deferred", 1, is_deferred);
        daemon.wait_state(&id, SessionState::Released);
        let deferrals = daemon.count(&id, is_deferred);
        assert!((1..=3).contains(&deferrals), "{agent}: {deferrals}");
    }
}

/// Behaviour 28: a dialog of an extension holds, and its answer goes back.
#[test]
fn a_pi_dialog_holds_until_it_is_answered() {
    let daemon = daemon!("pidialog").start();
    for agent in BOTH {
        let id = daemon.open(agent);
        let message = daemon.post(&id, "FAKE:approve rm");
        let report = daemon.wait_state(&id, SessionState::NeedsYou);
        let ask = report.awake.expect("it is awake").asks.remove(0).id;
        daemon.let_windows_pass(2);
        assert_eq!(daemon.report(&id).state, SessionState::NeedsYou, "{agent}");
        daemon.get(async |client| client.answer(&id, &ask, Answer::Allow).await);
        let answer = daemon.settled(message).answer;
        assert!(answer.starts_with("allowed"), "{agent}: {answer}");
        daemon.wait_state(&id, SessionState::Released);
    }
}

/// Behaviour 99: a Pi that dies in mid-turn leaves an unknown message and wakes with its history.
#[test]
fn a_pi_that_dies_in_mid_turn_is_interrupted() {
    let daemon = daemon!("picrash").start();
    for agent in BOTH {
        let id = daemon.open(agent);
        daemon.say(&id, "FAKE:say one");
        assert_eq!(
            daemon.send(&id, "FAKE:crash").state,
            MessageState::Unknown,
            "{agent}"
        );
        daemon.wait_state(&id, SessionState::Interrupted);
        assert_eq!(
            daemon.say(&id, "FAKE:say on"),
            "SAID on (user turns seen: 3)",
            "{agent}"
        );
    }
}
