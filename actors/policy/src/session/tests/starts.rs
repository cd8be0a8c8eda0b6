//! Starts, their failures, and what comes between (behaviours E, D31, D32, D52).

use std::time::Duration;

use drowse_messages::{
    AgentStatus, Conversation, Limits, Progress, SessionEvent, SessionState, StartGranted, StopHow,
    WallTime,
};

use super::story::{HOUR, MINUTE, SECOND, Story};
use super::world::{Manners, OBEDIENT, after, conversation, saved};

use crate::session::{SETTLING_MAX, START_TRIES_MAX};

const JUST: Duration = Duration::from_millis(1);

const DIES: Manners = Manners {
    gets_ready: false,
    ..OBEDIENT
};

/// Lets a start fail: the agent exits before it is ready.
fn fail_once(story: &mut Story) {
    story.wait(200 * JUST);
    story.exits(1);
    story.wait(SECOND);
}

/// D32, D52: starts are tried again with growing pauses; the messages stay, and are delivered
/// once, in order, when one succeeds.
#[test]
fn failed_starts_keep_the_queue() {
    let mut story = Story::dormant(DIES);
    for _ in 0..3 {
        story.message();
    }
    fail_once(&mut story);
    fail_once(&mut story);
    assert_eq!(story.state(), SessionState::Starting);
    story.world.manners = OBEDIENT;
    story.wait(10 * SECOND);
    for _ in 0..3 {
        story.turn_ends();
        story.wait(SECOND);
    }
    assert_eq!(
        story.words(|w| w.starts_with("deliver") || w.starts_with("launch")),
        [
            "launch(#1, new)",
            "launch(#2, new)",
            "launch(#3, new)",
            "deliver(1)",
            "deliver(2)",
            "deliver(3)"
        ]
    );
}

/// D52: the pauses double, five tries are enough, the message is kept and the last words shown.
#[test]
fn a_lasting_trouble_is_given_up() {
    let mut story = Story::dormant(Manners {
        launches: false,
        ..OBEDIENT
    });
    story.message();
    story.wait(HOUR);
    assert_eq!(story.state(), SessionState::Failing);
    let pauses: Vec<Option<u64>> = story
        .events()
        .filter_map(|event| {
            if let SessionEvent::StartFailed { retry_in_ms, .. } = event {
                Some(*retry_in_ms)
            } else {
                None
            }
        })
        .collect();
    let expected = [Some(1000), Some(2000), Some(4000), Some(8000), None];
    assert_eq!(pauses, expected);
    assert_eq!(pauses.len(), usize::try_from(START_TRIES_MAX).unwrap());
    assert_eq!(story.count("settle("), 0, "the message waits");
    assert_eq!(story.session().next_deadline(), None);
}

/// D52, E 77: a failing session is tried again when somebody wants it: by a wake or a message.
#[test]
fn a_failing_session_recovers() {
    for by_wake in [true, false] {
        let mut story = Story::dormant(Manners {
            launches: false,
            ..OBEDIENT
        });
        story.message();
        story.wait(HOUR);
        story.world.manners = OBEDIENT;
        if by_wake {
            story.wake(false);
        } else {
            story.message();
        }
        story.wait(2 * SECOND);
        assert_eq!(story.state(), SessionState::Working);
        assert_eq!(story.count("deliver(1)"), 1);
    }
}

/// Behaviour 73: a conversation that was begun lately is left alone until it has settled, which is
/// said; the message waits for it, and once that time has passed nothing waits.
#[test]
fn a_young_conversation_is_left_alone() {
    let mut story = Story::working(OBEDIENT);
    story.says(AgentStatus::Conversation(conversation(true)));
    story.says(AgentStatus::Young { settles_in: MINUTE });
    story.turn_ends();
    story.says(AgentStatus::Conversation(conversation(true)));
    story.stop(StopHow::Release).unwrap();
    story.wait(5 * SECOND);
    story.forget();
    story.message();
    assert_eq!(story.state(), SessionState::Starting);
    let waits = |event: &SessionEvent| matches!(event, SessionEvent::Notice { text } if text.contains("would harm"));
    assert_eq!(story.events().filter(|event| waits(event)).count(), 1);
    assert_eq!(story.count("ask-start"), 0);
    story.wait(50 * SECOND);
    assert_eq!(story.count("launch("), 0);
    story.wait(10 * SECOND);
    assert_eq!(
        story
            .words(|w| w.starts_with("launch") || w.starts_with("deliver"))
            .len(),
        2
    );
    story.turn_ends();
    story.stop(StopHow::Release).unwrap();
    story.wait(5 * SECOND);
    story.forget();
    story.message();
    story.wait(SECOND);
    assert_eq!(story.count("launch("), 1, "it has settled");
}

/// Behaviour 73: a new conversation has nothing to wait for, and a clock that was set back does not
/// keep a session from starting for long.
#[test]
fn a_young_conversation_is_waited_for_in_bounds() {
    let mut young = saved(Progress::default(), &[1]);
    young.progress.state = SessionState::Released;
    young.progress.conversation = Some(Conversation {
        not_before: Some(WallTime(u64::MAX)),
        ..conversation(true)
    });
    for fresh in [true, false] {
        let mut story = Story::restored(&young, OBEDIENT, Limits::default());
        story.wake(false);
        story.wait(SETTLING_MAX - SECOND);
        assert_eq!(story.count("launch("), 0);
        if fresh {
            story.wake(true);
            story.wait(JUST * 10);
            assert_eq!(story.count("launch("), 1);
        } else {
            let next = story.session().next_deadline();
            assert_eq!(next, Some(story.now.after(SECOND)));
            story.stop(StopHow::Stop).unwrap();
            assert!(story.session().is_asleep());
        }
    }
}

/// An agent that says why it cannot be used is tried again, or not, as it says.
#[test]
fn an_agent_that_cannot_start_says_so() {
    for retry in [true, false] {
        let mut story = Story::dormant(DIES);
        story.message();
        story.wait(100 * JUST);
        story.says(AgentStatus::CannotStart {
            detail: "wants a login".to_owned(),
            retry,
        });
        story.world.manners = OBEDIENT;
        story.wait(5 * SECOND);
        let expected = if retry {
            SessionState::Working
        } else {
            SessionState::Failing
        };
        assert_eq!(story.state(), expected);
        let told = story.events().any(|event| {
            matches!(event, SessionEvent::StartFailed { error, .. } if error == "wants a login")
        });
        assert!(told);
    }
}

/// D52: a wake does not wait for the pause to end.
#[test]
fn a_wake_skips_the_pause() {
    let mut story = Story::dormant(DIES);
    story.message();
    for _ in 0..4 {
        fail_once(&mut story);
        story.wait(4 * SECOND);
    }
    story.world.manners = OBEDIENT;
    story.wake(false);
    story.wait(2 * SECOND);
    assert_eq!(story.state(), SessionState::Working);
}

/// D52: what somebody wants while the last try is being ended is not forgotten.
#[test]
fn a_wish_during_the_last_failure_counts() {
    for by_wake in [true, false] {
        let mut story = Story::dormant(Manners {
            says_cannot_resume: true,
            ..OBEDIENT
        });
        story.message();
        story.wait(250 * JUST);
        assert_eq!(story.state(), SessionState::Stopping);
        story.world.manners.says_cannot_resume = false;
        if by_wake {
            story.wake(false);
        } else {
            story.message();
        }
        story.wait(5 * SECOND);
        assert_eq!(story.state(), SessionState::Working, "by wake: {by_wake}");
    }
}

/// D21: an agent that never gets ready is stopped at `start_limit`.
#[test]
fn a_start_has_a_limit() {
    let mut story = Story::dormant(DIES);
    story.limit(Limits {
        start_limit: 10 * SECOND,
        ..Limits::default()
    });
    story.message();
    story.wait(10 * SECOND + 100 * JUST - JUST);
    assert_eq!(story.state(), SessionState::Starting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Stopping);
}

/// E 75, E 77: an agent that has no such conversation is not tried again and again, nothing blank
/// is begun unasked, and the message is kept for the fresh one somebody asks for.
#[test]
fn what_cannot_be_resumed_waits_for_a_person() {
    let mut story = Story::resting(OBEDIENT);
    story.wait(31 * MINUTE);
    story.forget();
    story.world.manners.says_cannot_resume = true;
    story.message();
    story.wait(HOUR);
    assert_eq!(story.state(), SessionState::Failing);
    assert_eq!(story.count("launch("), 1);
    story.world.manners.says_cannot_resume = false;
    story.wake(true);
    story.wait(2 * SECOND);
    assert_eq!(story.count("launch(#3, new)"), 1);
    assert_eq!(story.state(), SessionState::Working);
}

/// E 77: a wish for a new conversation outlives a try that fails.
#[test]
fn a_fresh_start_stays_fresh() {
    let mut story = Story::resting(OBEDIENT);
    story.wait(31 * MINUTE);
    story.forget();
    story.world.manners.gets_ready = false;
    story.wake(false);
    story.wait(200 * JUST);
    story.wake(true);
    story.exits(1);
    story.world.manners.gets_ready = true;
    story.wait(5 * SECOND);
    assert_eq!(story.done().last().unwrap(), "launch(#3, new)");
}

/// E 75: an agent that finds out only when it is spoken to has not heard the message.
#[test]
fn a_late_cannot_resume_keeps_the_message() {
    let mut story = Story::working(OBEDIENT);
    story.says(AgentStatus::CannotResume {
        detail: "no rollout".to_owned(),
    });
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Failing);
    assert_eq!(story.count("settle(1, queued)"), 1);
}

/// D24, D29: an agent that says why it does not start is started again later, in the same
/// conversation.
#[test]
fn a_start_that_the_agent_refuses_is_tried_again() {
    let mut story = Story::dormant(OBEDIENT);
    story.world.manners.gets_ready = false;
    story.wake(false);
    story.wait(200 * JUST);
    story.says(AgentStatus::CannotStart {
        detail: "already has an active writer".to_owned(),
        retry: true,
    });
    story.world.manners.gets_ready = true;
    story.wait(MINUTE);
    assert_eq!(story.count("launch(#1, new)"), 1);
    assert_eq!(story.count("launch(#2, new)"), 1);
    assert_eq!(story.state(), SessionState::Resting);
}

/// D52: an agent that gets ready and ends before it did anything, with a message waiting behind
/// its own work, is not started in a tight loop.
#[test]
fn an_early_crash_backs_off() {
    let mut story = Story::dormant(OBEDIENT);
    story.wake(false);
    story.wait(2 * SECOND);
    for _ in 0..5 {
        story.says(AgentStatus::BusyStarted(drowse_messages::Busy {
            key: "compaction".to_owned(),
            kind: drowse_messages::BusyKind::Compaction,
            what: String::new(),
        }));
        if story.count("!MessageQueued") == 0 {
            story.message();
        }
        story.exits(1);
        story.wait(100 * JUST);
        story.says(AgentStatus::Ready);
        assert_ne!(story.state(), SessionState::Released);
        story.wait(60 * SECOND);
        if story.state() == SessionState::Working {
            return;
        }
    }
    panic!("the message was never delivered");
}

/// D 60, G 90: a stop at any stage of a start undoes it and cancels what waits; what comes after
/// the stop is not cancelled, and starts the session again.
#[test]
fn a_stop_at_any_stage_of_a_start() {
    for launches in [true, false] {
        for moment in [0, 1, 50, 99, 101, 500, 999] {
            let manners = Manners {
                launches,
                ..OBEDIENT
            };
            let mut story = Story::dormant(manners);
            story.message();
            story.wait(moment * JUST);
            story.stop(StopHow::Stop).unwrap();
            assert_eq!(story.count("settle(1, cancelled)"), 1);
            story.message();
            story.world.manners.launches = true;
            story.wait(20 * SECOND);
            assert_eq!(story.count("deliver(1)"), 0);
            assert_eq!(story.count("deliver(2)"), 1, "{moment} {launches}");
        }
    }
}

/// F 88: a launch that comes true after a stop is not adopted; a wake after the stop counts.
#[test]
fn a_cancelled_launch_is_undone() {
    for how in [StopHow::Stop, StopHow::Remove, StopHow::Shutdown] {
        let mut story = Story::dormant(OBEDIENT);
        story.message();
        story.wait(50 * JUST);
        story.stop(how).unwrap();
        story.wait(20 * SECOND);
        assert_eq!(story.session().running(), None);
        assert_eq!(story.count("!Ready"), 0);
        assert_eq!(story.count("launch("), 1);
        assert!(!story.state().is_awake());
    }
    let mut story = Story::dormant(OBEDIENT);
    story.message();
    story.wait(50 * JUST);
    story.stop(StopHow::Stop).unwrap();
    assert_eq!(story.state(), SessionState::Stopping);
    story.wake(false);
    story.wait(20 * SECOND);
    assert_eq!(story.state(), SessionState::Resting);
}

/// The place among the starting ones is given back at each end of a start, and a grant that comes
/// too late is returned.
#[test]
fn a_place_is_always_given_back() {
    let mut story = Story::dormant(OBEDIENT);
    story.message();
    story.wait(2 * SECOND);
    assert_eq!(story.count("start-settled"), 1);

    let mut story = Story::dormant(OBEDIENT);
    story.feed(StartGranted);
    assert_eq!(story.count("start-settled"), 1);
    assert_eq!(story.count("launch("), 0);
}

/// Messages and holds that come during a start are not lost.
#[test]
fn a_start_takes_holds_and_messages() {
    let mut story = Story::dormant(OBEDIENT);
    story.wake(false);
    story.hold(1, HOUR).unwrap();
    story.wait(2 * SECOND);
    assert_eq!(story.session().holds(story.now).len(), 1);
    story.message();
    assert_eq!(story.count("deliver(1)"), 1);
}

/// E 68: a changed conversation is followed and written down.
#[test]
fn a_changed_conversation_is_followed() {
    let mut story = Story::resting(OBEDIENT);
    let mut changed = conversation(true);
    changed.native_id = "native-2".to_owned();
    story.says(AgentStatus::Conversation(changed));
    assert_eq!(story.count("save("), 1);
}

/// An agent may begin a turn of its own before it has answered the handshake.
#[test]
fn a_turn_can_begin_before_readiness() {
    let mut story = Story::dormant(DIES);
    story.limit(Limits {
        start_limit: 10 * SECOND,
        idle_after: after(60),
        ..Limits::default()
    });
    story.wake(false);
    story.wait(200 * JUST);
    story.says(AgentStatus::TurnStarted);
    assert_eq!(story.state(), SessionState::Working);
    story.wait(HOUR);
    assert_eq!(story.state(), SessionState::Working);
}
