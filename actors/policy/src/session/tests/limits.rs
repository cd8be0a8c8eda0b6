//! The limits of a process's life, and of everything an agent can grow.

use std::time::Duration;

use drowse_messages::{
    AgentStatus, Busy, BusyKind, Limits, Order, Refusal, SessionState, StopHow, TaskRoster, Wake,
    Who,
};

use super::story::{HOUR, MINUTE, SECOND, Story};
use super::world::{OBEDIENT, after, task};

use crate::session::{ASKS_MAX, BUSY_MAX, ROSTER_TASKS_MAX, SCHEDULES_MAX};

const JUST: Duration = Duration::from_millis(1);

fn hard_limit(seconds: u64) -> Limits {
    Limits {
        hard_limit: after(seconds),
        ..Limits::default()
    }
}

/// I 102, D47: the hard limit ends a working agent, after a warning, whatever it does; its message
/// is unknown, and the next one resumes.
#[test]
fn the_hard_limit_ends_a_working_agent() {
    let mut story = Story::resting(OBEDIENT);
    story.limit(hard_limit(600));
    story.message();
    story.world.manners = super::world::DEAF;
    let end = story.session().next_deadline().unwrap();
    story.wait(end.since(story.now) - JUST);
    assert_eq!(story.count("!LimitWarned"), 0);
    story.wait(JUST);
    assert_eq!(story.count("!LimitWarned"), 1);
    for _ in 0..59 {
        story.output();
        story.wait(SECOND);
    }
    story.wait(SECOND - JUST);
    assert_eq!(story.state(), SessionState::Working);
    story.wait(JUST);
    assert_eq!(story.state(), SessionState::Releasing);
    story.wait(MINUTE);
    assert_eq!(story.reason(), "hard_limit");
    assert_eq!(story.count("settle(2, unknown)"), 1);
    assert_eq!(story.state(), SessionState::Interrupted);
    story.message();
    story.wait(2 * SECOND);
    assert_eq!(story.state(), SessionState::Working);
}

/// I 102: the hard limit ignores holds, and a short one warns at its half.
#[test]
fn the_hard_limit_ignores_holds() {
    let mut story = Story::resting(OBEDIENT);
    story.hold(1, HOUR).unwrap();
    story.limit(hard_limit(60));
    story.wait(40 * SECOND);
    assert_eq!(story.count("!LimitWarned"), 1);
    story.wait(MINUTE);
    assert_eq!(story.reason(), "hard_limit");
}

/// Whatever an agent reports is bounded.
#[test]
fn an_agent_grows_nothing_without_bound() {
    let mut story = Story::resting(OBEDIENT);
    let incarnation = story.session().incarnation();
    let tasks = (0..2 * ROSTER_TASKS_MAX).map(|n| task(&n.to_string()));
    story.feed(TaskRoster {
        incarnation,
        tasks: tasks.collect(),
    });
    for n in 0..1000 {
        story.asks(&n.to_string());
        story.says(AgentStatus::BusyStarted(Busy {
            key: n.to_string(),
            kind: BusyKind::Command,
            what: String::new(),
        }));
        story.says(AgentStatus::Scheduled {
            id: n.to_string(),
            what: String::new(),
            due_in: Duration::MAX,
        });
    }
    let holds = story.session().holds(story.now).len();
    assert_eq!(
        holds,
        ROSTER_TASKS_MAX + ASKS_MAX + BUSY_MAX + SCHEDULES_MAX
    );
}

/// Every order is answered in every phase: done, or refused with one reason.
#[test]
fn every_phase_answers_a_wake() {
    let stories = [
        Story::dormant(OBEDIENT),
        Story::working(OBEDIENT),
        Story::resting(OBEDIENT),
    ];
    for mut story in stories {
        let by = Who::Client("me".to_owned());
        let answer: Result<(), Refusal> = story.order(Order::Wake(Wake { fresh: false, by }));
        assert_eq!(answer, Ok(()));
        story.wait(2 * SECOND);
        assert!(story.state().is_awake());
        story.stop(StopHow::Stop).unwrap();
    }
}
