//! When a quiet session is released, and when not (behaviours A and B).

use std::time::Duration;

use drowse_messages::{
    Activity, ActivityKind, AgentStatus, IdleTick, Limit, Limits, MonoTime, SessionState, StopHow,
    TurnOutcome,
};

use super::story::{MINUTE, SECOND, Story};
use super::world::{OBEDIENT, conversation, ended, saved};

use crate::session::{AgentTraits, LATE_TICK_MAX};

const JUST: Duration = Duration::from_millis(1);

fn idle_after(limit: Limit) -> Limits {
    Limits {
        idle_after: limit,
        ..Limits::default()
    }
}

/// A 1, B 10, B 13: released 30 minutes after the end of the turn, not a moment earlier.
#[test]
fn the_window_is_full_and_begins_at_the_end_of_the_turn() {
    let mut story = Story::working(OBEDIENT);
    story.says(AgentStatus::Conversation(conversation(true)));
    story.wait(50 * MINUTE);
    assert_eq!(story.state(), SessionState::Working);
    story.turn_ends();
    story.wait(30 * MINUTE - JUST);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
    story.wait(10 * SECOND);
    assert_eq!(story.state(), SessionState::Released);
    assert_eq!(story.reason(), "idle");
}

/// B 11, D21: a turn that failed counts as an end like any other.
#[test]
fn a_failed_turn_is_released_like_any_other() {
    let mut story = Story::working(OBEDIENT);
    story.says(AgentStatus::Conversation(conversation(true)));
    let error = "overloaded".to_owned();
    story.says(ended(TurnOutcome::Failed { error }));
    assert_eq!(story.count("settle(1, failed)"), 1);
    story.wait(31 * MINUTE);
    assert_eq!(story.state(), SessionState::Released);
}

/// A 2, B 21: an idle limit that is off asks for no timer at all.
#[test]
fn off_means_no_timer() {
    let mut story = Story::resting(OBEDIENT);
    story.limit(idle_after(Limit::Off));
    assert_eq!(story.session().next_deadline(), None);
    story.wait(1000 * MINUTE);
    assert_eq!(story.state(), SessionState::Resting);
}

/// A 6, D22: neither 100,000 minutes nor the largest limit there is fires early or overflows.
#[test]
fn huge_limits_do_not_fire() {
    for limit in [
        100_000 * MINUTE,
        Duration::MAX,
        Duration::from_millis(u64::MAX),
    ] {
        let mut story = Story::resting(OBEDIENT);
        story.limit(idle_after(Limit::After(limit)));
        story.feed(IdleTick);
        story.wait(99_999 * MINUTE);
        assert_eq!(story.state(), SessionState::Resting);
    }
}

/// A 7: a session quiet for longer than a shortened limit goes in that very step; one that is not
/// gets the rest of its window.
#[test]
fn a_changed_limit_applies_at_once() {
    let mut story = Story::resting(OBEDIENT);
    story.wait(10 * MINUTE);
    story.limit(idle_after(Limit::After(11 * MINUTE)));
    assert_eq!(story.state(), SessionState::Resting);
    story.limit(idle_after(Limit::After(10 * MINUTE)));
    assert_eq!(story.state(), SessionState::Releasing);

    let mut story = Story::resting(OBEDIENT);
    story.limit(idle_after(Limit::After(90 * MINUTE)));
    story.wait(90 * MINUTE - JUST);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// B 12: whatever runs clears the countdown; the next rest begins a full window.
#[test]
fn a_turn_clears_the_countdown() {
    let mut story = Story::resting(OBEDIENT);
    story.wait(29 * MINUTE);
    story.message();
    story.wait(5 * MINUTE);
    assert_eq!(story.state(), SessionState::Working);
    story.turn_ends();
    story.wait(30 * MINUTE - JUST);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// B 14: a message 1 ms before the release prevents it, and is delivered once.
#[test]
fn a_message_just_before_the_release_prevents_it() {
    let mut story = Story::resting(OBEDIENT);
    story.wait(30 * MINUTE - JUST);
    story.message();
    story.wait(2 * MINUTE);
    assert_eq!(story.state(), SessionState::Working);
    assert_eq!(story.done(), ["deliver(2)"]);
}

/// B 15: news that is no news neither moves nor loses the countdown.
#[test]
fn repeated_news_does_not_move_the_countdown() {
    let mut story = Story::resting(OBEDIENT);
    let deadline = story.session().next_deadline();
    story.wait(10 * MINUTE);
    story.says(AgentStatus::Ready);
    story.turn_ends();
    story.roster(&[]);
    assert_eq!(story.session().next_deadline(), deadline);
}

/// B 16: the countdown of a removed session never fires.
#[test]
fn a_removed_session_has_no_countdown() {
    let mut story = Story::resting(OBEDIENT);
    story.stop(StopHow::Remove).unwrap();
    story.wait(20 * SECOND);
    assert_eq!(story.session().next_deadline(), None);
    story.forget();
    story.feed(IdleTick);
    assert!(story.done().is_empty());
}

/// B 17, B 31: once the last of several tasks has gone, a full window begins.
#[test]
fn the_countdown_begins_anew_when_work_drains() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["a", "b"]);
    story.wait(20 * MINUTE);
    story.roster(&["b"]);
    story.wait(20 * MINUTE);
    assert_eq!(story.state(), SessionState::Waiting);
    story.roster(&[]);
    story.wait(30 * MINUTE - JUST);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// B 18: ambient tasks do not hold, and when only they remain the countdown begins.
#[test]
fn ambient_tasks_do_not_hold() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["ambient-watch", "build"]);
    story.wait(20 * MINUTE);
    assert_eq!(story.state(), SessionState::Waiting);
    story.roster(&["ambient-watch"]);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(30 * MINUTE);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// B 19, B 20: whoever looks changes nothing; whoever does something begins a full window.
#[test]
fn reading_is_no_activity() {
    let mut story = Story::resting(OBEDIENT);
    let deadline = story.session().next_deadline();
    story.wait(10 * MINUTE);
    let before = story.session().clone();
    let profile = saved(drowse_messages::Progress::default(), &[]).profile;
    let report = before.report(&profile, crate::session::Times::default(), story.now);
    assert_eq!(report.awake.unwrap().idle_ms, Some(600_000));
    assert_eq!(before, *story.session());
    assert_eq!(story.session().next_deadline(), deadline);
    story.feed(Activity {
        incarnation: None,
        kind: ActivityKind::Client,
    });
    story.wait(30 * MINUTE - JUST);
    assert_eq!(story.state(), SessionState::Resting);
}

/// B 22: a tick that is early, doubled or meant for an older deadline does nothing.
#[test]
fn stale_ticks_do_nothing() {
    let mut story = Story::resting(OBEDIENT);
    for _ in 0..29 {
        story.wait(MINUTE);
        story.feed(IdleTick);
        story.feed(IdleTick);
    }
    assert!(story.done().is_empty());
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// B 23, D23: time in which the daemon did not run is nobody's idleness: a full window begins.
#[test]
fn a_frozen_daemon_releases_nobody_when_it_thaws() {
    let mut story = Story::resting(OBEDIENT);
    story.wait(3 * MINUTE);
    story.freeze(90 * MINUTE);
    story.feed(IdleTick);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(30 * MINUTE - JUST);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// D23: whatever is heard first after such a time, it is not taken for idleness.
#[test]
fn a_line_before_the_late_tick_changes_nothing() {
    for limits_changed in [false, true] {
        let mut story = Story::resting(OBEDIENT);
        story.freeze(90 * MINUTE);
        if limits_changed {
            story.limit(idle_after(Limit::After(20 * MINUTE)));
        } else {
            story.says(AgentStatus::Ready);
        }
        story.feed(IdleTick);
        story.wait(20 * MINUTE - JUST);
        assert_eq!(story.state(), SessionState::Resting);
    }
}

/// D23: a tick that is late as ticks are on a busy machine still counts.
#[test]
fn a_slightly_late_tick_releases() {
    let mut story = Story::resting(OBEDIENT);
    story.wait(30 * MINUTE - JUST);
    story.freeze(JUST + LATE_TICK_MAX);
    story.feed(IdleTick);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// D23: a deadline that comes up when it has passed already is not a late tick: a session that
/// can be resumed only now has been quiet all the same.
#[test]
fn a_deadline_in_the_past_is_not_a_late_tick() {
    let mut story = Story::working(OBEDIENT);
    story.turn_ends();
    story.wait(50 * MINUTE);
    assert_eq!(story.state(), SessionState::Resting);
    story.says(AgentStatus::Conversation(conversation(true)));
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// B 25: a clock that goes back neither releases nor postpones for ever.
#[test]
fn time_going_back_is_harmless() {
    let mut story = Story::resting(OBEDIENT);
    story.wait(29 * MINUTE);
    let later = story.now;
    story.now = MonoTime::from_millis(0);
    story.feed(IdleTick);
    assert_eq!(story.state(), SessionState::Resting);
    story.now = later;
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// D18: what could not be taken up again is never released, and says why.
#[test]
fn a_session_that_cannot_resume_is_never_released() {
    for (can_resume, resumable) in [(false, true), (true, false)] {
        let traits = AgentTraits {
            can_resume,
            reports_tasks: false,
            observed: false,
            steers: false,
        };
        let saved = saved(drowse_messages::Progress::default(), &[]);
        let mut story = Story::with(&saved, OBEDIENT, Limits::default(), traits);
        story.message();
        story.wait(2 * SECOND);
        story.says(AgentStatus::Conversation(conversation(resumable)));
        story.turn_ends();
        assert_eq!(story.session().next_deadline(), None);
        story.wait(500 * MINUTE);
        assert_eq!(story.state(), SessionState::Resting);
        let report =
            story
                .session()
                .report(&saved.profile, crate::session::Times::default(), story.now);
        assert!(report.awake.unwrap().cannot_resume.is_some());
        assert_eq!(
            story.stop(StopHow::Release).unwrap_err().code(),
            "cannot_resume"
        );
    }
}
