//! What holds a session, for how long, and how a hold ends.

use drowse_client::ClientError;
use drowse_messages::{
    Answer, MessageState, Reason, SessionEvent, SessionReport, SessionState, Who,
};
use drowse_tests::{TestDaemon, daemon};
use nix::sys::signal::Signal;

fn deferred_by(what: &str) -> impl Fn(&SessionEvent) -> bool {
    move |event| {
        matches!(event, SessionEvent::ReleaseDeferred { held_by, .. }
            if held_by.iter().any(|hold| hold.contains(what)))
    }
}

fn is_ending(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Ending { .. })
}

fn asked(daemon: &TestDaemon, id: &str) -> String {
    let report = daemon.wait_state(id, SessionState::NeedsYou);
    report.awake.expect("it is awake").asks.remove(0).id
}

/// Behaviours 27, 95, D16: nobody answers for three windows; then one answer reaches the agent, and
/// a second one finds nothing.
#[test]
fn a_pending_approval_holds_and_is_answered_once() {
    let daemon = daemon!("approval").start();
    let id = daemon.open("fake");
    let message = daemon.post(&id, "FAKE:approve rm -rf x");
    let ask = asked(&daemon, &id);
    daemon.let_windows_pass(3);
    assert_eq!(daemon.report(&id).state, SessionState::NeedsYou);
    daemon.get(async |client| client.answer(&id, &ask, Answer::Allow).await);
    let message = daemon.settled(message);
    assert_eq!(message.answer, "allowed (user turns seen: 1)");
    let again = daemon.refused(async |client| client.answer(&id, &ask, Answer::Deny).await);
    assert_eq!(again, "not_pending");
    assert_eq!(daemon.fake().events("answered").len(), 1);
    daemon.wait_state(&id, SessionState::Released);
}

/// Behaviour 28: a question holds like an approval.
#[test]
fn a_pending_question_holds() {
    let daemon = daemon!("question").start();
    let id = daemon.open("fake");
    let message = daemon.post(&id, "FAKE:question which?");
    let ask = asked(&daemon, &id);
    daemon.let_windows_pass(2);
    assert_eq!(daemon.count(&id, is_ending), 0);
    let text = Answer::Text("yes".into());
    daemon.get(async |client| client.answer(&id, &ask, text.clone()).await);
    assert_eq!(daemon.settled(message).state, MessageState::Answered);
}

/// D16: an agent that dies while it asks takes its question with it.
#[test]
fn the_question_of_a_dead_agent_is_withdrawn() {
    let daemon = daemon!("ask_dies").start();
    let id = daemon.open("fake");
    let message = daemon.post(&id, "FAKE:approve rm");
    let ask = asked(&daemon, &id);
    daemon.agent(&id).signal(Signal::SIGKILL);
    daemon.wait_state(&id, SessionState::Interrupted);
    assert_eq!(daemon.settled(message).state, MessageState::Unknown);
    assert_eq!(
        daemon.count(&id, |e| matches!(e, SessionEvent::Settled { .. })),
        1
    );
    let late = daemon.refused(async |client| client.answer(&id, &ask, Answer::Allow).await);
    assert_eq!(late, "not_pending");
}

/// Behaviour 27: after `approval_hold_max` the request is withdrawn and the process released.
#[test]
fn an_approval_nobody_answers_expires() {
    let daemon = daemon!("expires")
        .limit("approval_hold_max", "600ms")
        .start();
    let id = daemon.open("fake");
    // A conversation without a finished turn could not be resumed, so it would not be released.
    daemon.say(&id, "FAKE:say hello");
    let message = daemon.post(&id, "FAKE:approve rm");
    asked(&daemon, &id);
    let report = daemon.wait_report(&id, "asleep", |report| !report.state.is_awake());
    assert_eq!(
        report.end.map(|end| end.reason),
        Some(Reason::ApprovalExpired)
    );
    assert!(daemon.settled(message).state.is_final());
    let by_rule =
        |event: &SessionEvent| matches!(event, SessionEvent::Settled { by: Who::Rule, .. });
    assert_eq!(daemon.count(&id, by_rule), 1);
}

/// Behaviours 17, 30, 126, 130, D14: a background task defers the release; its end wakes the agent,
/// whose unprompted turn is followed by a full window.
#[test]
fn a_background_task_holds_until_its_end_and_its_turn_starts_a_full_window() {
    let daemon = daemon!("task").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:bg 1.5");
    let report = daemon.wait_state(&id, SessionState::Waiting);
    assert_eq!(report.awake.map(|awake| awake.tasks.len()), Some(1));
    daemon.wait_event(&id, "deferred", 1, deferred_by("fake task"));
    let released = daemon.wait_state(&id, SessionState::Released);
    assert_eq!(released.end.map(|end| end.reason), Some(Reason::Idle));
    let unprompted = |e: &SessionEvent| matches!(e, SessionEvent::TurnEnded { message: None, .. });
    let ended = daemon.time_of(&id, "unprompted turn", unprompted);
    assert!(
        daemon.time_of(&id, "ending", is_ending) - ended >= 350,
        "not a full window"
    );
    assert_eq!(daemon.fake().events("unprompted_turn").len(), 1);
    // 1.5 s hold three ends of a window at most.
    assert!(daemon.count(&id, deferred_by("task")) <= 3);
}

/// Behaviour 31: the last of several tasks decides.
#[test]
fn several_tasks_hold_until_the_last_has_gone() {
    let daemon = daemon!("tasks").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:bg 0.2\nFAKE:bg 1.0");
    daemon.fake().wait_events("unprompted_turn", 1);
    daemon.wait_report(&id, "one task left", |report| {
        report
            .awake
            .as_ref()
            .is_some_and(|awake| awake.tasks.len() == 1)
    });
    assert_eq!(daemon.count(&id, is_ending), 0);
    daemon.wait_state(&id, SessionState::Released);
    assert_eq!(daemon.fake().events("unprompted_turn").len(), 2);
}

/// Behaviours 33, 34, D19: a task whose end is never told pins for `task_hold_max`, with a warning.
#[test]
fn a_task_whose_end_is_lost_pins_no_longer_than_its_budget() {
    let daemon = daemon!("lost").limit("task_hold_max", "900ms").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:bg-lost");
    let report = daemon.wait_state(&id, SessionState::Released);
    assert_eq!(
        report.end.map(|end| end.reason),
        Some(Reason::TaskHoldExpired)
    );
    let warned = |event: &SessionEvent| {
        matches!(
            event,
            SessionEvent::LimitWarned {
                reason: Reason::TaskHoldExpired,
                ..
            }
        )
    };
    assert_eq!(daemon.count(&id, warned), 1);
    let deferred = daemon.time_of(&id, "warned", warned);
    assert!(daemon.time_of(&id, "ending", is_ending) > deferred);
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
}

/// Behaviour 18: ambient tasks do not hold.
#[test]
fn an_ambient_task_does_not_hold() {
    let daemon = daemon!("ambient").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:ambient");
    let report = daemon.wait_state(&id, SessionState::Released);
    assert_eq!(report.end.map(|end| end.reason), Some(Reason::Idle));
    assert_eq!(daemon.count(&id, deferred_by("")), 0);
}

/// Behaviour 37, D15: a compaction that was asked for is work, though no turn.
#[test]
fn a_compaction_between_turns_holds() {
    let daemon = daemon!("compact").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say hello");
    daemon.say(&id, "/compact 1.3");
    assert_eq!(daemon.count(&id, is_ending), 0);
    daemon.wait_state(&id, SessionState::Released);
}

/// Behaviour 98: a release that something holds is refused, with the hold named; a stop is not.
#[test]
fn a_held_release_is_refused_with_the_hold() {
    let daemon = daemon!("held").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:bg 60");
    daemon.wait_state(&id, SessionState::Waiting);
    let Err(ClientError::Problem(problem)) = daemon.ask(async |client| client.release(&id).await)
    else {
        panic!("the release was granted");
    };
    assert_eq!((problem.code.as_str(), problem.status), ("held", 409));
    assert!(
        problem
            .held_by
            .iter()
            .any(|hold| hold.contains("fake task")),
        "{problem:?}"
    );
    daemon.get(async |client| client.stop(&id).await);
    daemon.wait_state(&id, SessionState::Stopped);
    daemon.wait_gone(&id);
}

/// Behaviours 96, 20: a task's holder is shown with what it is and since when.
#[test]
fn a_hold_is_shown() {
    let daemon = daemon!("shown").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:bg 60");
    let report: SessionReport = daemon.wait_state(&id, SessionState::Waiting);
    let awake = report.awake.expect("it is awake");
    assert_eq!(awake.releases_in_ms, None);
    assert!(
        awake
            .holds
            .iter()
            .any(|hold| hold.why.contains("fake task")),
        "{:?}",
        awake.holds
    );
}
