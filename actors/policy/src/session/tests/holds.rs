//! What keeps a session (behaviours C).

use std::time::Duration;

use drowse_messages::{
    AgentStatus, Answer, AnswerAsk, Busy, BusyKind, Limits, Order, SessionEvent, SessionState,
    StopHow, TurnOutcome, Who,
};

use super::story::{HOUR, MINUTE, SECOND, Story};
use super::world::{OBEDIENT, after, conversation, ended};

const JUST: Duration = Duration::from_millis(1);

fn busy(key: &str, kind: BusyKind) -> AgentStatus {
    AgentStatus::BusyStarted(Busy {
        key: key.to_owned(),
        kind,
        what: "compacting".to_owned(),
    })
}

fn answer(id: &str) -> Order {
    Order::Answer(AnswerAsk {
        id: id.to_owned(),
        answer: Answer::Allow,
        by: Who::Client("me".to_owned()),
    })
}

fn task_hold_max(seconds: u64) -> Limits {
    Limits {
        task_hold_max: after(seconds),
        ..Limits::default()
    }
}

/// C 26, D15: a turn is never released, however long or silent; a release by hand is refused.
#[test]
fn a_turn_holds() {
    let mut story = Story::working(OBEDIENT);
    story.wait(1000 * HOUR);
    assert_eq!(story.state(), SessionState::Working);
    let refusal = story.stop(StopHow::Release).unwrap_err();
    assert_eq!(refusal.to_string(), "held by turn (answering message 1)");
}

/// C 27, D16: a pending approval holds; the answer reaches the agent once, a second answer is
/// told that it is no longer pending.
#[test]
fn an_approval_holds_until_it_is_answered() {
    let mut story = Story::working(OBEDIENT);
    story.forget();
    story.asks("a1");
    assert_eq!(story.state(), SessionState::NeedsYou);
    story.wait(2 * HOUR);
    story.order(answer("a1")).unwrap();
    assert_eq!(story.done(), ["answer(a1)"]);
    assert_eq!(story.state(), SessionState::Working);
    assert_eq!(story.order(answer("a1")).unwrap_err().code(), "not_pending");
}

/// C 27: nobody answers for `approval_hold_max`: it is withdrawn for everybody, and the reason
/// says so, in the middle of a turn too.
#[test]
fn an_unanswered_approval_expires() {
    let mut story = Story::resting(OBEDIENT);
    story.message();
    story.wait(SECOND);
    story.asks("a1");
    story.wait(24 * HOUR - JUST);
    assert_eq!(story.state(), SessionState::NeedsYou);
    story.wait(JUST);
    assert_eq!(story.count("withdraw(a1)"), 1);
    assert_eq!(story.count("!Settled"), 1);
    story.wait(20 * SECOND);
    assert_eq!(story.reason(), "approval_expired");
}

/// C 27, D18: where the conversation could not be taken up again, the question is withdrawn and
/// the turn goes on.
#[test]
fn an_expired_approval_does_not_end_what_cannot_resume() {
    let mut story = Story::working(OBEDIENT);
    story.asks("a1");
    story.wait(25 * HOUR);
    assert_eq!(story.count("withdraw(a1)"), 1);
    assert_eq!(story.state(), SessionState::Working);
}

/// D16: an agent that dies while it asks: the question is void for every client.
#[test]
fn a_question_dies_with_its_agent() {
    let mut story = Story::working(OBEDIENT);
    story.asks("a1");
    story.exits(1);
    assert_eq!(story.count("!Settled"), 1);
    assert_eq!(story.order(answer("a1")).unwrap_err().code(), "not_pending");
}

/// C 28, C 29: a question at rest holds, messages wait behind it, and its answer lets them go.
#[test]
fn messages_wait_behind_a_question() {
    let mut story = Story::resting(OBEDIENT);
    story.asks("q1");
    story.message();
    story.wait(2 * HOUR);
    assert_eq!(story.state(), SessionState::NeedsYou);
    assert!(story.done().is_empty());
    story.order(answer("q1")).unwrap();
    assert_eq!(story.done(), ["answer(q1)", "deliver(2)"]);
}

/// C 30, D14: background work defers the release, once per window and visibly; a turn of its own
/// needs no message, and the full window begins after it.
#[test]
fn background_work_defers_the_release() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["build"]);
    story.wait(90 * MINUTE);
    assert_eq!(story.state(), SessionState::Waiting);
    assert_eq!(story.count("!ReleaseDeferred"), 3);
    story.says(AgentStatus::TurnStarted);
    story.roster(&[]);
    assert_eq!(story.state(), SessionState::Working);
    story.turn_ends();
    story.wait(30 * MINUTE - JUST);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// J 127: a turn that fails while a job runs says nothing of the job, and its end leaves nothing
/// waiting: a full window later the session is released.
#[test]
fn a_failed_turn_beside_a_job_leaves_nothing_waiting() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["build"]);
    story.says(AgentStatus::TurnStarted);
    story.says(ended(TurnOutcome::Failed {
        error: "overloaded".to_owned(),
    }));
    assert_eq!(story.state(), SessionState::Waiting);
    story.wait(HOUR);
    story.roster(&[]);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(30 * MINUTE - JUST);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// C 32: each roster replaces the former, so an end nobody reported heals with the next one.
#[test]
fn a_roster_replaces_the_former() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["lost", "build"]);
    story.roster(&["build"]);
    story.roster(&[]);
    assert_eq!(story.state(), SessionState::Resting);
    assert_eq!(story.count("!TasksChanged"), 3, "G 94: the empty one too");
    story.roster(&[]);
    assert_eq!(story.count("!TasksChanged"), 3);
}

/// C 33, C 34, C 35, D19: the budget starts at the first deferral, a warning comes before its
/// end, each deferral says for how long, and the reason is its own.
#[test]
fn a_phantom_task_is_given_up_after_its_budget() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["phantom"]);
    story.wait(30 * MINUTE + 4 * HOUR - 5 * MINUTE - JUST);
    assert_eq!(story.count("!LimitWarned"), 0);
    story.wait(JUST);
    assert_eq!(story.count("!LimitWarned"), 1);
    story.wait(5 * MINUTE - JUST);
    assert_eq!(story.state(), SessionState::Waiting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
    let pinned: Vec<u64> = story
        .events()
        .filter_map(|event| {
            if let SessionEvent::ReleaseDeferred { pinned_ms, .. } = event {
                Some(pinned_ms / 60_000)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(pinned, [0, 30, 60, 90, 120, 150, 180, 210]);
    story.wait(20 * SECOND);
    assert_eq!(story.reason(), "task_hold_expired");
}

/// C 33: a new turn gives a new budget.
#[test]
fn a_turn_clears_the_budget() {
    let mut story = Story::resting(OBEDIENT);
    story.limit(task_hold_max(3600));
    story.roster(&["build"]);
    story.wait(80 * MINUTE);
    story.says(AgentStatus::TurnStarted);
    story.turn_ends();
    story.wait(89 * MINUTE);
    assert_eq!(story.state(), SessionState::Waiting);
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// C 33: the budget counts what tasks alone hold: a lease beside them stops it.
#[test]
fn a_lease_stops_the_budget_of_tasks() {
    let mut story = Story::resting(OBEDIENT);
    story.limit(task_hold_max(3600));
    story.roster(&["build"]);
    story.hold(1, 5 * HOUR).unwrap();
    story.wait(6 * HOUR - JUST);
    assert_eq!(story.state(), SessionState::Waiting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// A 8: a budget of tasks that is off never ends.
#[test]
fn a_budget_that_is_off_never_ends() {
    let mut story = Story::resting(OBEDIENT);
    story.limit(Limits {
        task_hold_max: drowse_messages::Limit::Off,
        ..Limits::default()
    });
    story.roster(&["build"]);
    story.wait(100 * HOUR);
    assert_eq!(story.state(), SessionState::Waiting);
}

/// D18: the budget of tasks ends nothing that could not be taken up again.
#[test]
fn a_spent_budget_does_not_end_what_cannot_resume() {
    let mut story = Story::working(OBEDIENT);
    story.turn_ends();
    story.roster(&["build"]);
    story.wait(100 * HOUR);
    assert_eq!(story.state(), SessionState::Waiting);
}

/// C 36: until an agent that reports tasks has reported any, it is not known to be idle.
#[test]
fn an_unknown_roster_holds() {
    let saved = super::world::saved(drowse_messages::Progress::default(), &[]);
    let traits = crate::session::AgentTraits {
        can_resume: true,
        reports_tasks: true,
        observed: false,
        steers: false,
    };
    let limits = Limits {
        idle_after: after(5),
        ..Limits::default()
    };
    let mut story = Story::with(&saved, OBEDIENT, limits, traits);
    story.wake(false);
    story.wait(2 * SECOND);
    story.says(AgentStatus::Conversation(conversation(true)));
    story.wait(30 * SECOND);
    assert_eq!(story.state(), SessionState::Resting);
    assert_eq!(
        story.stop(StopHow::Release).unwrap_err().to_string(),
        "held by unknown (background tasks not reported yet)"
    );
    story.roster(&[]);
    story.wait(5 * SECOND);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// C 37, D15: compaction and commands outside a turn hold and keep messages waiting; the full
/// window begins at their end.
#[test]
fn work_outside_a_turn_holds() {
    for kind in [BusyKind::Compaction, BusyKind::Command] {
        let mut story = Story::resting(OBEDIENT);
        story.says(busy("b1", kind));
        story.message();
        story.wait(90 * MINUTE);
        assert_eq!(story.state(), SessionState::Waiting);
        assert!(story.done().is_empty());
        story.says(AgentStatus::BusyEnded {
            key: "b1".to_owned(),
        });
        assert_eq!(story.done(), ["deliver(2)"]);
    }
}

/// C 38: a session that was never started is not released.
#[test]
fn what_never_started_is_not_released() {
    let mut story = Story::dormant(OBEDIENT);
    story.stop(StopHow::Release).unwrap();
    story.wait(HOUR);
    assert_eq!(story.state(), SessionState::New);
    assert!(story.done().is_empty());
}

/// C 40: a timer the agent set itself holds until it is due.
#[test]
fn a_schedule_holds_until_it_is_due() {
    let mut story = Story::resting(OBEDIENT);
    story.says(AgentStatus::Scheduled {
        id: "s1".to_owned(),
        what: "look again".to_owned(),
        due_in: HOUR,
    });
    story.wait(89 * MINUTE);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// C 41: a turn's end removes only the turn; a second end is harmless.
#[test]
fn a_turn_end_leaves_other_work_alone() {
    let mut story = Story::working(OBEDIENT);
    story.says(busy("b1", BusyKind::Command));
    story.turn_ends();
    story.turn_ends();
    assert_eq!(story.state(), SessionState::Waiting);
    assert_eq!(story.count("settle(1, answered)"), 1);
}

/// C 41: an end that answers something else leaves the message in flight, during a teardown too.
#[test]
fn a_foreign_turn_end_settles_nothing() {
    let foreign = || {
        AgentStatus::TurnEnded(drowse_messages::TurnEnded {
            outcome: TurnOutcome::Completed,
            text: "a task ended".to_owned(),
            answers: false,
            left: 0,
        })
    };
    let mut story = Story::working(super::world::DEAF);
    story.says(foreign());
    assert_eq!(story.state(), SessionState::Working);
    story.stop(StopHow::Stop).unwrap();
    story.says(foreign());
    story.wait(MINUTE);
    assert_eq!(story.count("settle(1, answered)"), 0);
    assert_eq!(story.count("settle(1, unknown)"), 1);
}

/// C 42, C 43: a release that found the session busy leaves nothing behind: the next rest has
/// a full window.
#[test]
fn a_deferral_leaves_nothing_behind() {
    let mut story = Story::resting(OBEDIENT);
    story.hold(1, 45 * MINUTE).unwrap();
    story.wait(40 * MINUTE);
    assert_eq!(story.count("!ReleaseDeferred"), 1);
    story.lift(1);
    story.wait(30 * MINUTE - JUST);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// Leases end by themselves, can be renewed, and are refused where they make no sense.
#[test]
fn leases_are_bounded() {
    let mut story = Story::resting(OBEDIENT);
    assert_eq!(story.hold(1, Duration::ZERO).unwrap_err().code(), "invalid");
    assert_eq!(story.hold(1, 25 * HOUR).unwrap_err().code(), "invalid");
    story.hold(1, MINUTE).unwrap();
    story.wait(50 * SECOND);
    story.hold(1, MINUTE).unwrap();
    story.wait(50 * SECOND);
    assert_eq!(story.count("!HoldLifted"), 0);
    story.wait(10 * SECOND);
    assert_eq!(story.count("!HoldLifted"), 1);
    for id in 0..64 {
        story.hold(id, MINUTE).unwrap();
    }
    assert_eq!(story.hold(64, MINUTE).unwrap_err().code(), "invalid");
    let mut story = Story::dormant(OBEDIENT);
    assert_eq!(story.hold(1, MINUTE).unwrap_err().code(), "not_running");
}
