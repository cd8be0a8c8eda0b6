//! Messages and a release in each other's way (behaviours D 60 to 65, E).

use std::time::Duration;

use drowse_messages::{AgentStatus, DeliveryResult, MessageId, SessionState, StopHow};

use super::story::{MINUTE, SECOND, Story};
use super::world::{DEAF, OBEDIENT, conversation, later};

/// D 60, D30: a message sent at any moment of a release is delivered once, by the next process,
/// which is started only when the former is gone.
#[test]
fn a_message_during_a_release_waits_and_wakes() {
    for manners in [OBEDIENT, DEAF] {
        for moment in 0..100 {
            let mut story = Story::resting(manners);
            story.wait(30 * MINUTE - 50 * Duration::from_millis(1));
            story.wait(Duration::from_millis(100 * moment));
            story.message();
            story.wait(MINUTE);
            assert_eq!(story.state(), SessionState::Working, "moment {moment}");
            assert_eq!(story.count("deliver(2)"), 1, "moment {moment}");
            assert!(story.count("launch(") <= 1, "moment {moment}");
        }
    }
}

/// E 67: the next message resumes the same conversation.
#[test]
fn the_next_message_resumes_the_conversation() {
    let mut story = Story::resting(OBEDIENT);
    story.wait(31 * MINUTE);
    assert_eq!(story.state(), SessionState::Released);
    story.forget();
    story.message();
    story.wait(2 * SECOND);
    assert_eq!(story.done(), ["launch(#2, resume)", "deliver(2)"]);
}

/// E 78, D31: however many messages come first, one process is started, and they are delivered
/// one after another in their order.
#[test]
fn many_first_messages_start_one_process() {
    let mut story = Story::dormant(OBEDIENT);
    for _ in 0..10 {
        story.message();
        story.wait(50 * Duration::from_millis(1));
    }
    story.wait(2 * SECOND);
    for _ in 0..10 {
        story.turn_ends();
        story.wait(SECOND);
    }
    let mut expected = vec!["launch(#1, new)".to_owned()];
    expected.extend((1..=10).map(|n| format!("deliver({n})")));
    assert_eq!(story.done(), expected);
}

/// E 79: a message announced twice is delivered once.
#[test]
fn a_message_announced_twice_is_delivered_once() {
    let mut story = Story::dormant(OBEDIENT);
    let message = MessageId(1);
    for _ in 0..3 {
        story.feed(later(message.0));
    }
    story.wait(2 * SECOND);
    story.feed(later(message.0));
    story.turn_ends();
    story.wait(SECOND);
    assert_eq!(story.count("deliver("), 1);
    assert_eq!(story.state(), SessionState::Resting);
}

/// D 60: a message that was cancelled meanwhile is void, and the session is at rest again.
#[test]
fn a_void_delivery_leaves_the_session_at_rest() {
    let mut story = Story::resting(OBEDIENT);
    story.world.manners.delivery = DeliveryResult::Void;
    story.message();
    story.wait(SECOND);
    assert_eq!(story.count("settle("), 0);
    assert_eq!(story.state(), SessionState::Resting);
}

/// C 26: a void delivery does not hide a turn that the agent began by itself.
#[test]
fn a_void_delivery_does_not_hide_a_turn() {
    let mut story = Story::resting(OBEDIENT);
    story.world.manners.delivery = DeliveryResult::Void;
    story.message();
    story.says(AgentStatus::TurnStarted);
    story.wait(60 * MINUTE);
    assert_eq!(story.state(), SessionState::Working);
    story.turn_ends();
    assert_eq!(story.count("settle("), 0);
}

/// D 60, E 80: a message that did not reach the agent goes to the next process; the deaf one is
/// ended first.
#[test]
fn an_unwritten_message_goes_to_the_next_process() {
    let mut story = Story::resting(OBEDIENT);
    story.world.manners.delivery = DeliveryResult::NotWritten;
    story.message();
    story.wait(SECOND);
    assert_eq!(story.count("settle(2, queued)"), 1);
    story.world.manners.delivery = DeliveryResult::Written;
    story.wait(20 * SECOND);
    assert_eq!(story.state(), SessionState::Working);
    assert_eq!(story.count("deliver(2)"), 2);
    assert_eq!(story.count("settle(2, unknown)"), 0);
}

/// I 99: a message of which a part was written is unknown, and not repeated.
#[test]
fn a_partly_written_message_is_unknown() {
    let mut story = Story::resting(OBEDIENT);
    story.world.manners.delivery = DeliveryResult::PartlyWritten;
    story.message();
    story.wait(20 * SECOND);
    assert_eq!(story.count("settle(2, unknown)"), 1);
    assert_eq!(story.count("deliver(2)"), 1);
    assert_eq!(story.state(), SessionState::Interrupted);
}

/// D 60: news that a message was not written can come when the teardown has begun already: after
/// a shutdown the message is kept, after a stop it is cancelled.
#[test]
fn an_unwritten_message_survives_a_teardown() {
    for (how, state) in [
        (StopHow::Shutdown, "settle(2, queued)"),
        (StopHow::Stop, "settle(2, cancelled)"),
    ] {
        let mut story = Story::resting(OBEDIENT);
        story.world.manners.delivery = DeliveryResult::NotWritten;
        story.message();
        story.stop(how).unwrap();
        story.wait(MINUTE);
        assert_eq!(story.words(|w| w.starts_with("settle(2")), [state]);
        assert_eq!(story.count("launch("), 0);
    }
}

/// I 99: a crash in a turn makes its message unknown; the ones behind it are delivered by the
/// next process, in order.
#[test]
fn a_crash_loses_nothing_that_waits() {
    let mut story = Story::resting(OBEDIENT);
    for _ in 0..3 {
        story.message();
    }
    story.wait(SECOND);
    story.exits(1);
    story.wait(5 * SECOND);
    assert_eq!(story.count("settle(2, unknown)"), 1);
    assert_eq!(story.state(), SessionState::Working);
    story.turn_ends();
    assert_eq!(
        story.words(|w| w.starts_with("deliver")),
        ["deliver(2)", "deliver(3)", "deliver(4)"]
    );
}

/// D21: an agent that exits in a turn leaves an interrupted session, which the next message
/// resumes.
#[test]
fn an_interrupted_session_is_resumed() {
    let mut story = Story::working(OBEDIENT);
    story.says(AgentStatus::Conversation(conversation(true)));
    story.exits(1);
    story.wait(5 * SECOND);
    assert_eq!(story.state(), SessionState::Interrupted);
    story.message();
    story.wait(2 * SECOND);
    assert_eq!(story.count("launch(#2, resume)"), 1);
    assert_eq!(story.state(), SessionState::Working);
}

/// E 83, F 84: a restored session starts nothing by itself, whatever it was doing.
#[test]
fn a_restored_session_starts_nothing() {
    for state in SessionState::ALL {
        let progress = drowse_messages::Progress {
            state,
            incarnation: drowse_messages::Incarnation(3),
            ..drowse_messages::Progress::default()
        };
        let saved = super::world::saved(progress, &[]);
        let limits = drowse_messages::Limits::default();
        let mut story = Story::restored(&saved, OBEDIENT, limits);
        story.feed(drowse_messages::IdleTick);
        story.wait(100 * MINUTE);
        assert!(story.done().is_empty(), "{state:?}");
        assert!(!story.state().is_awake(), "{state:?}");
    }
}

/// E 80: messages that were accepted before a restart of the daemon start the session when it is
/// nudged, unless it was failing.
#[test]
fn a_nudge_delivers_what_was_accepted_before() {
    for (state, delivered) in [(SessionState::Released, 1), (SessionState::Failing, 0)] {
        let progress = drowse_messages::Progress {
            state,
            ..drowse_messages::Progress::default()
        };
        let saved = super::world::saved(progress, &[1]);
        let limits = drowse_messages::Limits::default();
        let mut story = Story::restored(&saved, OBEDIENT, limits);
        story.feed(drowse_messages::IdleTick);
        story.wait(2 * SECOND);
        assert_eq!(story.count("deliver(1)"), delivered, "{state:?}");
    }
}

/// D 60: a message that was on disk when its session was loaded may be settled before it is
/// announced; the announcement does not bring it back.
#[test]
fn a_late_announcement_brings_nothing_back() {
    let saved = super::world::saved(drowse_messages::Progress::default(), &[1]);
    let limits = drowse_messages::Limits::default();
    let mut story = Story::restored(&saved, OBEDIENT, limits);
    story.stop(StopHow::Stop).unwrap();
    let message = MessageId(1);
    story.feed(later(message.0));
    story.wait(MINUTE);
    assert_eq!(story.count("settle(1, cancelled)"), 1);
    assert_eq!(story.count("ask-start"), 0);
}
