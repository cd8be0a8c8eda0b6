//! Messages: on disk before they are acknowledged, delivered once, in order.

use drowse_messages::{FailureCode, MessageState, NewMessage, Priority, SessionState};
use drowse_tests::daemon;
use serde_json::json;

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

/// What waits can be taken back, and is never heard; what was delivered, or is over, cannot.
#[test]
fn a_message_that_waits_can_be_taken_back() {
    let daemon = daemon!("taken_back").start();
    let id = daemon.open("fake");
    let gate = daemon.path("gate");
    let first = daemon.post(
        &id,
        &format!("FAKE:wait {}\nFAKE:say first", gate.display()),
    );
    let texts = ["FAKE:say a", "FAKE:say b"];
    let [back, stays] = texts.map(|text| daemon.post(&id, text));
    daemon.fake().wait_events("turn", 1);
    for again in 0..2 {
        let cancelled = daemon.get(async |client| client.cancel(back).await);
        assert_eq!(cancelled.state, MessageState::Cancelled, "time {again}");
    }
    assert!(daemon.message(back).answer.starts_with("taken back by "));
    let refused = daemon.refused(async |client| client.cancel(first).await);
    assert_eq!(refused, "not_queued");
    std::fs::write(gate, "").unwrap();
    assert_eq!(daemon.settled(stays).answer, "SAID b (user turns seen: 2)");
    let ran = daemon.run(&["cancel", &first.to_string()]);
    assert_eq!(ran.status.code(), Some(1));
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains("no longer waits: it is answered"), "{said}");
    assert_eq!(daemon.fake().turns().len(), 2);
}

/// A message over which agents end while they read it is parked after three of them; it blocks
/// nothing, is never heard, and only a person has it tried again.
#[test]
fn a_poisonous_message_is_parked_and_the_next_goes_on() {
    let daemon = daemon!("poison").start();
    let id = daemon.open_behaving("fake", &[("chokes_at", "200000")]);
    assert_eq!(
        daemon.say(&id, "FAKE:say one"),
        "SAID one (user turns seen: 1)"
    );
    let poison = daemon.post(&id, &"x".repeat(4 << 20));
    let next = daemon.post(&id, "FAKE:say next");
    let parked = daemon.settled(poison);
    assert_eq!(parked.state, MessageState::Parked, "{}", parked.answer);
    assert_eq!(parked.answer, "3 agents ended while they read this message");
    assert_eq!(
        daemon.settled(next).answer,
        "SAID next (user turns seen: 2)"
    );
    assert_eq!(
        daemon.fake().events("start").len(),
        4,
        "the first is the first of the three"
    );
    let refused = daemon.refused(async |client| client.retry(next).await);
    assert_eq!(refused, "not_parked");
    let queued = daemon.get(async |client| client.retry(poison).await);
    assert!(!queued.state.is_final() || queued.state == MessageState::Parked);
    assert_eq!(daemon.settled(poison).state, MessageState::Parked);
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 3)"
    );
}

/// Priorities are kept over a restart of the daemon, and are those of the command line.
#[test]
fn urgent_messages_go_first_after_a_restart_too() {
    let mut daemon = daemon!("urgent").start();
    daemon.fake().behave(&json!({ "fail_starts": 1000 }));
    let id = daemon.open("fake");
    let texts = [
        ("later", "FAKE:say a"),
        ("next", "FAKE:say b"),
        ("now", "FAKE:say c"),
        ("later", "FAKE:say d"),
    ];
    for (priority, text) in texts {
        let args = ["send", &id, text, "--no-wait", "--priority", priority];
        assert!(daemon.run(&args).status.success());
    }
    let ran = daemon.run(&["send", &id, "x", "--priority", "soon"]);
    assert_eq!(ran.status.code(), Some(2));
    daemon.wait_report(&id, "four waiting", |report| report.queued == 4);
    daemon.kill9();
    daemon.fake().behave(&json!({}));
    daemon.restart();
    daemon.get(async |client| client.wake(&id, false).await);
    let message = NewMessage {
        text: "FAKE:say e".to_owned(),
        priority: Priority::Later,
    };
    let last = daemon.get(async |client| client.send(&id, message, None).await);
    assert_eq!(daemon.settled(last.message).state, MessageState::Answered);
    let order = [
        "FAKE:say c",
        "FAKE:say b",
        "FAKE:say a",
        "FAKE:say d",
        "FAKE:say e",
    ];
    assert_eq!(daemon.fake().turns(), order);
}

/// Behaviour 117: an outcome is the client's own, outlives the process and the daemon, and none is
/// made up.
#[test]
fn an_outcome_is_kept_with_its_session() {
    let mut daemon = daemon!("outcome").start();
    let id = daemon.open("fake");
    daemon.send(&id, "FAKE:fail badly");
    assert_eq!(daemon.report(&id).outcome, None, "inconclusive");
    assert!(
        daemon
            .run(&["outcome", &id, "merged as #128"])
            .status
            .success()
    );
    daemon.get(async |client| client.stop(&id).await);
    daemon.wait_state(&id, SessionState::Stopped);
    assert!(daemon.terminate().success());
    daemon.restart();
    let shown = daemon.run(&["outcome", &id]);
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), "merged as #128\n");
    let outcome = daemon.report(&id).outcome.expect("it is recorded");
    assert_eq!(outcome.text, "merged as #128");
    let long = "x".repeat(4097);
    for wrong in ["", &long] {
        let refused = daemon.refused(async |client| client.record_outcome(&id, Some(wrong)).await);
        assert_eq!(refused, "invalid");
    }
    assert!(daemon.run(&["outcome", &id, "--clear"]).status.success());
    assert_eq!(daemon.report(&id).outcome, None);
}

/// The same on a socket, for its driver alone.
#[test]
fn a_driver_takes_messages_back_and_records_the_outcome() {
    let daemon = daemon!("socket_inbox").start();
    let id = daemon.open("fake");
    let gate = daemon.path("gate");
    let first = daemon.post(&id, &format!("FAKE:wait {}", gate.display()));
    let waiting = daemon.post(&id, "FAKE:say never");
    daemon.fake().wait_events("turn", 1);
    daemon.get(async |client| {
        let watcher = client.connection(&id).connect().await.expect("a watcher");
        let refused = watcher.cancel(waiting).await.expect_err("it only looks on");
        assert_eq!(refused.code(), Some(FailureCode::NotDriver));
        let driver = client
            .connection(&id)
            .drive()
            .connect()
            .await
            .expect("a driver");
        let cancelled = driver.cancel(waiting).await.expect("it waits");
        assert_eq!(cancelled.state, MessageState::Cancelled);
        let refused = driver.cancel(first).await.expect_err("it was delivered");
        assert_eq!(refused.code(), Some(FailureCode::NotQueued));
        let refused = driver.retry(first).await.expect_err("it is not parked");
        assert_eq!(refused.code(), Some(FailureCode::NotParked));
        driver
            .record_outcome(Some("half done"))
            .await
            .expect("recorded");
        let outcome = watcher.show().await.expect("a report").outcome;
        assert_eq!(
            outcome.map(|outcome| outcome.text).as_deref(),
            Some("half done")
        );
        Ok(())
    });
    std::fs::write(gate, "").unwrap();
    assert_eq!(daemon.settled(first).state, MessageState::Answered);
    assert_eq!(daemon.fake().turns().len(), 1);
}
