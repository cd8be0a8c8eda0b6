//! Messages: on disk before they are acknowledged, delivered once, in order.

use drowse_messages::{MessageState, SessionState};
use drowse_tests::daemon;

/// Behaviours 79, 99, D32: the same key before, during and after the turn, and after a restart of
/// the daemon, is one message, one turn, and the same answer each time.
#[test]
fn the_same_key_is_the_same_message() {
    let mut daemon = daemon!("key").start();
    let id = daemon.open_behaving("fake", &[("start_delay_ms", "200")]);
    let gate = daemon.path("gate");
    let text = format!("FAKE:wait {}\nFAKE:say done", gate.display());
    let first = daemon.post_keyed(&id, &text, "K");
    assert!(!first.duplicate);
    let before = daemon.post_keyed(&id, &text, "K");
    daemon.fake().wait_events("turn", 1);
    let during = daemon.post_keyed(&id, &text, "K");
    std::fs::write(gate, "").unwrap();
    let settled = daemon.settled(first.message);
    assert_eq!(settled.answer, "SAID done (user turns seen: 1)");
    let after = daemon.post_keyed(&id, &text, "K");
    assert!(daemon.terminate().success());
    daemon.restart();
    let restarted = daemon.post_keyed(&id, &text, "K");
    for again in [before, during, after, restarted] {
        assert!(
            again.duplicate && again.message == first.message,
            "{again:?}"
        );
        assert_eq!(daemon.message(again.message), settled);
    }
    let other = daemon.post_keyed(&id, "FAKE:say other", "L");
    assert_eq!(
        daemon.settled(other.message).answer,
        "SAID other (user turns seen: 2)"
    );
    assert_eq!(daemon.fake().turns().len(), 2);
}

/// Behaviour 29: messages that wait for a running turn are each a turn of their own, in order, and
/// none is released away.
#[test]
fn messages_to_a_busy_agent_wait_in_order() {
    let daemon = daemon!("order").start();
    let id = daemon.open("fake");
    let texts = ["FAKE:silent 1", "FAKE:say 1", "FAKE:say 2", "FAKE:say 3"];
    let sent = texts.map(|text| daemon.post(&id, text));
    daemon.wait_report(&id, "three waiting", |report| report.queued == 3);
    for message in sent {
        assert_eq!(daemon.settled(message).state, MessageState::Answered);
    }
    assert_eq!(daemon.fake().turns(), texts);
    assert_eq!(daemon.fake().events("start").len(), 1);
}

/// Behaviour 90: a stop cancels what waits; nothing of it is delivered later.
#[test]
fn a_stop_cancels_what_waits() {
    let daemon = daemon!("cancel").start();
    let id = daemon.open("fake");
    daemon.post(&id, "FAKE:slow 30");
    let waiting = [
        daemon.post(&id, "FAKE:say a"),
        daemon.post(&id, "FAKE:say b"),
    ];
    daemon.fake().wait_events("turn", 1);
    daemon.get(async |client| client.stop(&id).await);
    for message in waiting {
        assert_eq!(daemon.settled(message).state, MessageState::Cancelled);
    }
    daemon.wait_state(&id, SessionState::Stopped);
    assert_eq!(daemon.say(&id, "FAKE:say c"), "SAID c (user turns seen: 2)");
    assert_eq!(daemon.fake().turns(), ["FAKE:slow 30", "FAKE:say c"]);
}

/// Behaviours 92, 99: an interrupted turn ends as failed, and the session goes on.
#[test]
fn an_interrupt_ends_the_turn_and_not_the_session() {
    let daemon = daemon!("interrupt").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let message = daemon.post(&id, "FAKE:slow 30");
    daemon.fake().wait_events("turn", 1);
    daemon.get(async |client| client.interrupt(&id).await);
    assert_eq!(daemon.settled(message).state, MessageState::Failed);
    let idle = daemon.wait_state(&id, SessionState::Resting);
    assert_eq!(idle.queued, 0);
    let refused = daemon.refused(async |client| client.interrupt(&id).await);
    assert_eq!(refused, "not_running");
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
    assert_eq!(daemon.fake().events("start").len(), 1);
}
