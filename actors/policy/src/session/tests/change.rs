//! An account change (behaviours C 44, D 56, K 145).

use std::time::Duration;

use drowse_messages::{AgentStatus, ChangeAccount, Order, Refusal, SessionState, StopHow, Who};

use super::story::{HOUR, MINUTE, SECOND, Story};
use super::world::{DEAF, Manners, OBEDIENT, conversation};

fn change(story: &mut Story) -> Result<(), Refusal> {
    let by = Who::Client("me".to_owned());
    story.order(Order::ChangeAccount(ChangeAccount { by }))
}

fn waits(story: &Story) -> bool {
    let profile = super::world::saved(story.progress(), &[]).profile;
    let times = crate::session::Times::default();
    let report = story.session().report(&profile, times, story.now);
    report
        .awake
        .is_some_and(|awake| awake.account_change.is_some())
}

/// D 56, K 145: at rest it is released by the path of every release, and woken at once in the same
/// conversation.
#[test]
fn at_rest_it_is_released_and_woken() {
    let mut story = Story::resting(OBEDIENT);
    change(&mut story).unwrap();
    assert_eq!(story.state(), SessionState::Releasing);
    story.wait(10 * SECOND);
    assert_eq!(story.reason(), "account_change");
    assert_eq!(story.end().unwrap().by, Who::Client("me".to_owned()));
    assert_eq!(story.state(), SessionState::Resting);
    let done = story.done();
    assert_eq!(done.first().map(String::as_str), Some("reap(snapshot)"));
    assert_eq!(done.last().map(String::as_str), Some("launch(#2, resume)"));
}

/// C 44: a busy one goes on, and says that it waits; the change comes with its rest, before the
/// messages that wait, which the new agent gets.
#[test]
fn a_busy_one_is_released_once_it_is_at_rest() {
    let mut story = Story::resting(OBEDIENT);
    story.message();
    story.wait(SECOND);
    change(&mut story).unwrap();
    change(&mut story).unwrap();
    story.message();
    story.wait(2 * HOUR);
    assert_eq!(story.state(), SessionState::Working);
    assert!(waits(&story));
    story.forget();
    story.turn_ends();
    assert_eq!(story.state(), SessionState::Releasing);
    assert!(!waits(&story));
    story.wait(10 * SECOND);
    let order = story.words(|word| word.starts_with("launch") || word.starts_with("deliver"));
    assert_eq!(order, ["launch(#2, resume)", "deliver(3)"]);
}

/// C 44: whatever holds the session keeps it, and the last hold that goes lets the change through
/// at once.
#[test]
fn a_held_one_waits_for_the_last_hold() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["build"]);
    story.hold(1, HOUR).unwrap();
    change(&mut story).unwrap();
    assert_eq!(story.state(), SessionState::Waiting);
    story.roster(&[]);
    assert!(waits(&story));
    story.wait(59 * MINUTE);
    assert!(waits(&story));
    story.wait(2 * MINUTE);
    assert_eq!(story.reason(), "account_change");
    assert_eq!(story.state(), SessionState::Resting);
}

/// A stop cancels it; so does nothing else.
#[test]
fn a_stop_cancels_it() {
    let mut story = Story::working(OBEDIENT);
    story.says(AgentStatus::Conversation(conversation(true)));
    change(&mut story).unwrap();
    story.stop(StopHow::Stop).unwrap();
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Stopped);
    assert_eq!(story.count("launch"), 1);
    story.wake(false);
    story.wait(2 * SECOND);
    assert!(!waits(&story));
}

/// An agent that dies while the change waits is woken at once: so it was asked for.
#[test]
fn a_crash_meanwhile_does_not_forget_it() {
    let mut story = Story::resting(OBEDIENT);
    story.message();
    story.wait(SECOND);
    change(&mut story).unwrap();
    story.exits(1);
    story.wait(10 * SECOND);
    assert_eq!(story.state(), SessionState::Resting);
    assert_eq!(story.count("launch(#2, resume)"), 1);
}

/// D18: a conversation that could not go on is not given up: that is said, and nothing changes.
#[test]
fn a_conversation_is_never_lost_for_it() {
    let mut story = Story::working(OBEDIENT);
    story.turn_ends();
    let refusal = change(&mut story).unwrap_err();
    assert_eq!(refusal.code(), "cannot_resume");
    assert_eq!(story.state(), SessionState::Resting);
    // Asked for during a turn, after which it still could not go on.
    story.message();
    story.wait(SECOND);
    change(&mut story).unwrap();
    story.turn_ends();
    assert_eq!(story.state(), SessionState::Resting);
    assert!(!waits(&story));
    assert_eq!(story.count("!Notice"), 1);
}

/// Nothing was said to it yet: there is nothing to lose.
#[test]
fn one_that_has_not_worked_is_simply_started_again() {
    let mut story = Story::dormant(OBEDIENT);
    story.wake(false);
    story.wait(2 * SECOND);
    change(&mut story).unwrap();
    story.wait(10 * SECOND);
    assert_eq!(story.count("launch(#2, new)"), 1);
    assert_eq!(story.state(), SessionState::Resting);
}

/// Asleep it is started; while it starts, what was launched with the former environment is undone.
#[test]
fn what_was_launched_before_is_undone() {
    let mut story = Story::dormant(OBEDIENT);
    change(&mut story).unwrap();
    story.wait(2 * SECOND);
    assert_eq!(story.state(), SessionState::Resting);
    assert_eq!(story.count("launch"), 1);

    // Launching: its answer is still to come. Handshaking: it is not ready.
    for moment in [Duration::from_millis(50), Duration::from_millis(500)] {
        let mut story = Story::dormant(OBEDIENT);
        story.message();
        story.wait(moment);
        change(&mut story).unwrap();
        story.wait(10 * SECOND);
        assert_eq!(story.count("launch"), 2, "{moment:?}");
        assert_eq!(story.count("deliver(1)"), 1, "{moment:?}");
        assert_eq!(story.state(), SessionState::Working, "{moment:?}");
    }

    // Backing off: at once.
    let manners = Manners {
        launches: false,
        ..OBEDIENT
    };
    let mut story = Story::dormant(manners);
    story.message();
    story.wait(10 * SECOND);
    story.world.manners = OBEDIENT;
    change(&mut story).unwrap();
    story.wait(2 * SECOND);
    assert_eq!(story.state(), SessionState::Working);
}

/// One that is being released is woken afterwards; one that is being stopped, too: the newest wish
/// counts.
#[test]
fn it_joins_a_teardown() {
    for how in [StopHow::Release, StopHow::Stop] {
        let mut story = Story::resting(DEAF);
        story.stop(how).unwrap();
        change(&mut story).unwrap();
        story.wait(MINUTE);
        assert_eq!(story.state(), SessionState::Resting, "{how:?}");
        let reason = if how == StopHow::Stop {
            "stopped"
        } else {
            "account_change"
        };
        assert_eq!(story.reason(), reason);
    }
}
