//! Background tasks that are told one by one, beside those the agent reports (behaviours J, the
//! agent kit).

use drowse_messages::{EndTask, Order, SessionState, StartTask, StopHow};

use super::story::{HOUR, MINUTE, SECOND, Story};
use super::world::{OBEDIENT, task};

fn start(story: &mut Story, id: &str) -> Result<(), drowse_messages::Refusal> {
    story.order(Order::StartTask(StartTask {
        task: task(id),
        owner: "hook".to_owned(),
    }))
}

fn end(story: &mut Story, id: &str) {
    let id = id.to_owned();
    story.order(Order::EndTask(EndTask { id })).unwrap();
}

fn owners(story: &Story) -> Vec<(String, String)> {
    let holds = story.session().holds(story.now).into_iter();
    holds.map(|hold| (hold.why, hold.owner)).collect()
}

/// C 31, C 32: each source has its own set: what the agent reports replaces nothing that was told,
/// and the last one of either decides.
#[test]
fn what_is_told_stands_beside_what_is_reported() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["build"]);
    start(&mut story, "build").unwrap();
    let (reported, told) = (("bash: task build", "fake"), ("bash: task build", "hook"));
    let own = |pair: (&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
    assert_eq!(owners(&story), [own(reported), own(told)]);
    story.roster(&[]);
    assert_eq!(owners(&story), [own(told)]);
    story.wait(HOUR);
    assert_eq!(story.state(), SessionState::Waiting);
    end(&mut story, "build");
    end(&mut story, "build");
    assert_eq!(story.count("!TasksChanged"), 4);
    story.wait(30 * MINUTE - SECOND);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(SECOND);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// B 18: an ambient one is shown and holds nothing; telling it again is not news.
#[test]
fn an_ambient_task_that_is_told_does_not_hold() {
    let mut story = Story::resting(OBEDIENT);
    start(&mut story, "ambient").unwrap();
    start(&mut story, "ambient").unwrap();
    assert_eq!(story.count("!TasksChanged"), 1);
    story.wait(30 * MINUTE);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// C 33, C 34: one that is never ended is given up after the budget of tasks.
#[test]
fn a_task_that_is_told_has_the_budget_of_all() {
    let mut story = Story::resting(OBEDIENT);
    start(&mut story, "lost").unwrap();
    story.wait(5 * HOUR);
    assert_eq!(story.reason(), "task_hold_expired");
}

/// A task ends with its backend; nothing can be told of a session without one.
#[test]
fn what_is_told_ends_with_the_backend() {
    let mut story = Story::resting(OBEDIENT);
    start(&mut story, "build").unwrap();
    story.exits(1);
    story.wait(MINUTE);
    assert_eq!(
        start(&mut story, "build").unwrap_err().code(),
        "not_running"
    );
    end(&mut story, "build");
    story.wake(false);
    story.wait(2 * SECOND);
    assert_eq!(story.state(), SessionState::Resting);
    assert!(owners(&story).is_empty());
}

/// A hook may tell while the agent still starts.
#[test]
fn a_hook_tells_before_the_agent_is_ready() {
    let mut story = Story::dormant(OBEDIENT);
    story.wake(false);
    story.wait(SECOND / 2);
    assert_eq!(story.state(), SessionState::Starting);
    start(&mut story, "build").unwrap();
    story.wait(SECOND);
    assert_eq!(story.state(), SessionState::Waiting);
    story.stop(StopHow::Stop).unwrap();
    assert_eq!(start(&mut story, "late").unwrap_err().code(), "not_running");
}

/// A hook that forgets to end its tasks fills nothing.
#[test]
fn what_is_told_is_bounded() {
    let mut story = Story::resting(OBEDIENT);
    for id in 0..64 {
        start(&mut story, &id.to_string()).unwrap();
    }
    assert_eq!(start(&mut story, "64").unwrap_err().code(), "invalid");
    start(&mut story, "63").unwrap();
    end(&mut story, "63");
    start(&mut story, "64").unwrap();
}
