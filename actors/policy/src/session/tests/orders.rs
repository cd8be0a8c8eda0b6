//! Stop, wake, interrupt, remove and shutdown, in every phase (behaviours G, F 87 to 89).

use std::time::Duration;

use drowse_messages::{Interrupt, Order, SessionState, StopHow, Who};

use super::story::{MINUTE, SECOND, Story};
use super::world::{DEAF, OBEDIENT};

fn interrupt() -> Order {
    let by = Who::Client("me".to_owned());
    Order::Interrupt(Interrupt { by })
}

/// G 90: a stop of a waiting session ends its process, and cancels its queue.
#[test]
fn a_stop_ends_background_work() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["build"]);
    story.stop(StopHow::Stop).unwrap();
    assert_eq!(story.state(), SessionState::Stopping);
    story.wait(10 * SECOND);
    assert_eq!(story.state(), SessionState::Stopped);
    assert_eq!(story.end().unwrap().by, Who::Client("me".to_owned()));
}

/// G 91: a stop is forced in the end, also when no idle limit exists.
#[test]
fn a_stop_is_forced() {
    let mut story = Story::resting(DEAF);
    story.limit(drowse_messages::Limits {
        idle_after: drowse_messages::Limit::Off,
        ..drowse_messages::Limits::default()
    });
    story.stop(StopHow::Stop).unwrap();
    story.wait(8 * SECOND);
    assert_eq!(story.state(), SessionState::Stopped);
}

/// G 92: an order is answered in its own step; a settled turn cannot be interrupted.
#[test]
fn an_interrupt_is_answered_at_once() {
    let mut story = Story::working(OBEDIENT);
    story.forget();
    story.order(interrupt()).unwrap();
    assert_eq!(story.done(), ["interrupt"]);
    story.wait(SECOND);
    assert_eq!(story.count("settle(1, failed)"), 1);
    assert_eq!(story.order(interrupt()).unwrap_err().code(), "not_running");
}

/// G 93, J 126: a settled background task wakes the agent by itself, in one turn nobody prompted.
#[test]
fn a_turn_nobody_prompted() {
    let mut story = Story::resting(OBEDIENT);
    story.says(drowse_messages::AgentStatus::TurnStarted);
    story.says(drowse_messages::AgentStatus::TurnStarted);
    story.turn_ends();
    assert_eq!(story.count("!TurnStarted"), 1);
    assert_eq!(story.count("!TurnEnded"), 1);
    assert_eq!(story.count("settle("), 0);
}

/// G 95: an answer to something that was never asked resolves nothing and says so.
#[test]
fn an_unknown_approval_resolves_nothing() {
    let answer = Order::Answer(drowse_messages::AnswerAsk {
        id: "a9".to_owned(),
        answer: drowse_messages::Answer::Allow,
        by: Who::Client("me".to_owned()),
    });
    for mut story in [
        Story::dormant(OBEDIENT),
        Story::working(OBEDIENT),
        Story::resting(OBEDIENT),
    ] {
        story.forget();
        let refusal = story.order(answer.clone()).unwrap_err();
        assert_eq!(refusal.code(), "not_pending");
        assert_eq!(story.done(), ["refuse(not_pending)"]);
    }
}

/// D 60: what waited before a stop is cancelled, each sender told; what comes after it wakes.
#[test]
fn a_stop_cancels_what_came_before_it() {
    let mut story = Story::working(DEAF);
    story.message();
    story.message();
    story.forget();
    story.stop(StopHow::Stop).unwrap();
    story.message();
    story.wait(MINUTE);
    assert_eq!(
        story.words(|w| w.starts_with("settle") || w.starts_with("deliver")),
        [
            "settle(2, cancelled)",
            "settle(3, cancelled)",
            "settle(1, unknown)",
            "deliver(4)"
        ]
    );
}

/// The newest wish counts: stop, wake, stop again leaves the session down; stop, wake brings it
/// back.
#[test]
fn the_newest_wish_counts() {
    let mut story = Story::resting(DEAF);
    story.stop(StopHow::Stop).unwrap();
    story.wake(false);
    story.stop(StopHow::Stop).unwrap();
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Stopped);

    let mut story = Story::resting(DEAF);
    story.stop(StopHow::Stop).unwrap();
    story.wake(false);
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Resting);
}

/// A wake during a release brings the session back once it is down.
#[test]
fn a_wake_during_a_release() {
    let mut story = Story::resting(DEAF);
    story.wait(30 * MINUTE);
    assert_eq!(story.state(), SessionState::Releasing);
    story.wake(false);
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Resting);
    assert_eq!(story.count("launch(#2, resume)"), 1);
}

/// F 87, F 88: a shutdown in any phase ends with nothing running and nothing started, and keeps
/// what waits: also when it joins a stop after which messages came.
#[test]
fn a_shutdown_starts_nothing() {
    let mut story = Story::resting(DEAF);
    story.stop(StopHow::Stop).unwrap();
    story.message();
    story.stop(StopHow::Shutdown).unwrap();
    story.wake(false);
    story.wait(MINUTE);
    assert!(!story.state().is_awake());
    assert_eq!(story.count("ask-start"), 0);
    assert_eq!(story.count("settle("), 0);
}

/// F 89: a removed session is forgotten, once, and nothing is written or told of it afterwards.
#[test]
fn a_removed_session_says_nothing_more() {
    for mut story in [
        Story::dormant(OBEDIENT),
        Story::working(DEAF),
        Story::resting(OBEDIENT),
    ] {
        story.stop(StopHow::Remove).unwrap();
        story.wait(MINUTE);
        assert_eq!(story.count("forget"), 1);
        assert_eq!(story.words(|_| true).last().unwrap(), "sleep");
        story.forget();
        story.message();
        story.feed(drowse_messages::IdleTick);
        assert_eq!(story.words(|_| true), ["sleep", "sleep"]);
        assert_eq!(
            story.stop(StopHow::Stop).unwrap_err().code(),
            "no_such_session"
        );
    }
}

/// A stop of something that does not run is no error, and a failing session leaves that state.
#[test]
fn a_stop_of_what_does_not_run() {
    let mut story = Story::dormant(OBEDIENT);
    for how in [StopHow::Release, StopHow::Shutdown, StopHow::Stop] {
        story.stop(how).unwrap();
        assert_eq!(story.state(), SessionState::New);
    }
    let mut story = Story::dormant(super::world::Manners {
        launches: false,
        ..OBEDIENT
    });
    story.message();
    story.wait(Duration::from_secs(3600));
    story.stop(StopHow::Shutdown).unwrap();
    assert_eq!(story.state(), SessionState::Failing);
    story.stop(StopHow::Stop).unwrap();
    assert_eq!(story.state(), SessionState::Stopped);
    assert_eq!(story.count("settle(1, cancelled)"), 1);
}

/// F 87: a timer that was set for an earlier phase does not undo a shutdown.
#[test]
fn a_stale_tick_does_not_undo_a_shutdown() {
    let mut story = Story::working(OBEDIENT);
    story.message();
    story.stop(StopHow::Shutdown).unwrap();
    story.wait(MINUTE);
    story.forget();
    story.feed(drowse_messages::IdleTick);
    assert_eq!(story.words(|_| true), ["sleep"]);
}
