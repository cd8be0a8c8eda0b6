//! Wakes: one backend, the same conversation, and never a blank one in silence.

use std::fs;

use drowse_client::Client;
use drowse_messages::{MessageState, SessionEvent, SessionState};
use drowse_tests::{TestDaemon, daemon};

fn say_and_release(daemon: &TestDaemon, id: &str, text: &str) -> String {
    let answer = daemon.say(id, text);
    daemon.wait_state(id, SessionState::Released);
    answer
}

/// Behaviours 61, 78, D31: two clients speak to a sleeping session at once, and a third wakes it:
/// one backend, both answered.
#[test]
fn concurrent_first_messages_start_one_backend() {
    let daemon = daemon!("two").start();
    let id = daemon.open_behaving("fake", &[("start_delay_ms", "200")]);
    say_and_release(&daemon, &id, "FAKE:say one");
    let second = Client::unix(daemon.state_dir().join("drowse.sock"));
    let (a, b, woken) = daemon.get(async |client| {
        let (a, b) = (
            client.send(&id, "FAKE:say a", None),
            second.send(&id, "FAKE:say b", None),
        );
        Ok(tokio::join!(a, b, client.wake(&id, false)))
    });
    woken.expect("a wake joins the wake under way");
    for sent in [a, b] {
        let message = daemon.settled(sent.expect("both are accepted").message);
        assert_eq!(message.state, MessageState::Answered, "{message:?}");
    }
    assert_eq!(daemon.fake().events("start").len(), 2);
    assert_eq!(
        daemon.count(&id, |e| matches!(e, SessionEvent::Launched { .. })),
        2
    );
    daemon.fake().assert_never_two();
}

/// D24: a resume that fails once in passing keeps the conversation and the message.
#[test]
fn a_resume_that_fails_in_passing_is_tried_again() {
    let daemon = daemon!("passing").start();
    let id = daemon.open("fake");
    say_and_release(&daemon, &id, "FAKE:say one");
    let before = daemon.report(&id).conversation.expect("it has one");
    let file = daemon
        .fake()
        .home()
        .join(format!("sessions/{}.jsonl", before.native_id));
    let history = fs::read(&file).unwrap();
    daemon
        .fake()
        .behave(&serde_json::json!({ "fail_resumes": 1, "fail_text": "network" }));
    let message = daemon.post(&id, "FAKE:say two");
    let is_failed = |event: &SessionEvent| matches!(event, SessionEvent::StartFailed { .. });
    let SessionEvent::StartFailed {
        error, retry_in_ms, ..
    } = daemon.wait_event(&id, "failed", 1, is_failed)
    else {
        unreachable!("it was matched above")
    };
    assert!(
        error.contains("network") && retry_in_ms.is_some(),
        "{error}"
    );
    assert_eq!(fs::read(&file).unwrap(), history, "the history was touched");
    assert_eq!(
        daemon.settled(message).answer,
        "SAID two (user turns seen: 2)"
    );
    assert_eq!(daemon.report(&id).conversation, Some(before));
}

/// Behaviours 68, D25: an agent that goes on under a new id at each resume is followed.
#[test]
fn a_drifting_conversation_id_is_followed() {
    let daemon = daemon!("drift").start();
    let id = daemon.open_behaving("fake", &[("id_drift", "1")]);
    let mut seen = Vec::new();
    for round in 1..=5 {
        let answer = say_and_release(&daemon, &id, "FAKE:say on");
        assert_eq!(answer, format!("SAID on (user turns seen: {round})"));
        seen.push(
            daemon
                .report(&id)
                .conversation
                .expect("it has one")
                .native_id,
        );
    }
    let count = seen.len();
    seen.dedup();
    assert_eq!(
        seen.len(),
        count,
        "the newest id is used each time: {seen:?}"
    );
}

/// Behaviours 75, 77, D24, D25: an agent that does not know the conversation is not started blank:
/// the session says so, keeps the message, and begins anew only when told to.
#[test]
fn a_lost_conversation_is_said_and_begun_anew_only_on_request() {
    let daemon = daemon!("forget").start();
    let id = daemon.open("fake");
    say_and_release(&daemon, &id, "FAKE:say one");
    let native = daemon
        .report(&id)
        .conversation
        .expect("it has one")
        .native_id;
    daemon.fake().behave(&serde_json::json!({ "forget": true }));
    let message = daemon.post(&id, "FAKE:say two");
    let report = daemon.wait_state(&id, SessionState::Failing);
    let error = report.last_error.expect("it says why");
    assert!(error.contains(&native), "{error}");
    assert_eq!(daemon.message(message).state, MessageState::Queued);
    assert_eq!(daemon.fake().turns().len(), 1, "never a silent blank start");
    daemon.get(async |client| client.wake(&id, true).await);
    assert_eq!(
        daemon.settled(message).answer,
        "SAID two (user turns seen: 1)"
    );
}

/// Behaviour 38: a session that was never started owns nothing to release.
#[test]
fn a_session_that_never_ran_stays_new() {
    let daemon = daemon!("new").start();
    let id = daemon.open("fake");
    daemon.let_windows_pass(1);
    let report = daemon.report(&id);
    assert_eq!((report.state, report.end), (SessionState::New, None));
    assert!(daemon.processes(&id).is_empty());
}

/// Behaviour 13: a wake without a message starts the process, which then idles a full window.
#[test]
fn a_wake_without_a_message_is_released_again() {
    let daemon = daemon!("woken").start();
    let id = daemon.open("fake");
    say_and_release(&daemon, &id, "FAKE:say one");
    daemon.get(async |client| client.wake(&id, false).await);
    let is_ready =
        |event: &SessionEvent| matches!(event, SessionEvent::Ready { resumed: true, .. });
    daemon.wait_event(&id, "ready", 1, is_ready);
    daemon.wait_state(&id, SessionState::Released);
    assert_eq!(
        daemon.say(&id, "FAKE:say two"),
        "SAID two (user turns seen: 2)"
    );
}
