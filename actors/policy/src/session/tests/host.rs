//! Relayed sessions: a host that believes to have started its agent itself.

use std::time::Duration;

use drowse_messages::{AgentStatus, HostChanged, HostEnd, SessionEvent, SessionState, StopHow};

use super::story::{MINUTE, SECOND, Story};
use super::world::{DEAF, OBEDIENT, conversation};

const CAME: HostChanged = HostChanged::Attached {
    pid: 77,
    resumable: true,
};

/// A host that came, and whose agent has answered it once.
fn hosted(manners: super::world::Manners) -> Story {
    let mut story = Story::dormant(manners);
    story.feed(CAME);
    story.wait(2 * SECOND);
    says(&mut story);
    turn(&mut story);
    story.forget();
    story
}

fn says(story: &mut Story) {
    story.feed(HostChanged::Waits);
    story.wait(Duration::from_millis(10));
}

fn turn(story: &mut Story) {
    story.says(AgentStatus::TurnStarted);
    story.says(AgentStatus::Conversation(conversation(true)));
    story.turn_ends();
}

fn ends(story: &Story) -> Vec<String> {
    story.words(|word| word.starts_with("end-host"))
}

fn gates(story: &Story) -> Vec<String> {
    story.words(|word| word.contains("gate") || word.starts_with("launch("))
}

/// A host's first connection starts its agent, as the host would have; its lines pass once the
/// agent is ready.
#[test]
fn a_host_that_comes_gets_an_agent() {
    let mut story = Story::dormant(OBEDIENT);
    story.feed(CAME);
    story.feed(HostChanged::Waits);
    assert_eq!(
        gates(&story),
        Vec::<String>::new(),
        "not before it is ready"
    );
    story.wait(2 * SECOND);
    assert_eq!(gates(&story), ["launch(#1, new, relayed)", "open-gate"]);
    assert_eq!(story.state(), SessionState::Resting);
}

/// D30: what a host says at any moment of a release goes to the next agent, which is started when
/// the former one is gone; the host hears of nothing.
#[test]
fn what_is_said_during_a_release_wakes() {
    for manners in [OBEDIENT, DEAF] {
        for moment in 0..100 {
            let mut story = hosted(manners);
            story.wait(30 * MINUTE - 50 * Duration::from_millis(1));
            story.wait(Duration::from_millis(100 * moment));
            story.feed(HostChanged::Waits);
            story.wait(MINUTE);
            let gates = gates(&story);
            let last = gates.last().map(String::as_str);
            assert_eq!(last, Some("open-gate"), "moment {moment}: {gates:?}");
            let shut = gates.iter().position(|word| word == "shut-gate");
            let launch = gates.iter().position(|word| word.starts_with("launch("));
            assert_eq!(
                shut.is_some(),
                launch.is_some(),
                "moment {moment}: {gates:?}"
            );
            assert!(shut <= launch, "moment {moment}: {gates:?}");
            assert_eq!(ends(&story), Vec::<String>::new(), "moment {moment}");
        }
    }
}

/// A line on its way is a hold: neither the idle rule nor a person releases over it.
#[test]
fn a_line_that_waits_holds() {
    let mut story = hosted(OBEDIENT);
    story.feed(HostChanged::Waits);
    assert!(story.stop(StopHow::Release).is_err());
    let holds = story.session().holds(story.now);
    assert!(
        holds.iter().any(|hold| hold.kind.code() == "queued"),
        "{holds:?}"
    );
    story.wait(SECOND);
    assert!(story.stop(StopHow::Release).is_ok(), "it has passed");
}

/// A protocol that no other process can take up for the host is never released by the idle rule.
#[test]
fn a_host_that_is_bound_to_its_process_keeps_it() {
    let mut story = Story::dormant(OBEDIENT);
    story.feed(HostChanged::Attached {
        pid: 77,
        resumable: false,
    });
    story.wait(2 * SECOND);
    turn(&mut story);
    story.wait(120 * MINUTE);
    assert_eq!(story.state(), SessionState::Resting);
    assert!(story.stop(StopHow::Release).is_err());
}

/// A host that is gone without a word is waited for; then its agent is released, reason `detached`,
/// and whoever sends a message has the session.
#[test]
fn a_lost_host_is_waited_for() {
    let mut story = hosted(OBEDIENT);
    story.says(AgentStatus::TurnStarted);
    story.feed(HostChanged::Lost);
    story.wait(59 * SECOND);
    assert_eq!(story.state(), SessionState::Working);
    story.wait(10 * SECOND);
    assert_eq!(story.reason(), "detached");
    assert_eq!(story.state(), SessionState::Interrupted);
    assert_eq!(
        ends(&story),
        Vec::<String>::new(),
        "nobody is there to be told"
    );
    story.forget();
    story.message();
    story.wait(2 * SECOND);
    assert_eq!(
        gates(&story),
        ["launch(#2, resume)"],
        "nobody's host has it"
    );
    assert_eq!(story.count("deliver(1)"), 1);
}

/// One that comes back within the time finds its agent as it was.
#[test]
fn a_host_that_comes_back_has_its_agent() {
    let mut story = hosted(OBEDIENT);
    story.feed(HostChanged::Lost);
    story.wait(30 * SECOND);
    story.feed(CAME);
    story.wait(5 * MINUTE);
    assert_eq!(story.state(), SessionState::Resting);
    says(&mut story);
    assert_eq!(gates(&story), ["open-gate"]);
}

/// The end of what a host says is passed on; its agent's exit is the host's end, and no crash.
#[test]
fn a_host_that_closes_hears_the_exit() {
    let mut story = hosted(OBEDIENT);
    story.feed(HostChanged::Closed);
    assert_eq!(gates(&story), ["open-gate"]);
    story.exits(3);
    story.wait(MINUTE);
    assert_eq!(ends(&story), ["end-host(exited(some(code(3))))"]);
    assert_eq!(story.reason(), "stopped");
    assert_eq!(story.state(), SessionState::Stopped);
}

/// Asleep, nothing is started to be ended.
#[test]
fn a_host_that_closes_while_it_sleeps_starts_nothing() {
    let mut story = hosted(OBEDIENT);
    story.wait(31 * MINUTE);
    assert_eq!(story.state(), SessionState::Released);
    story.forget();
    story.feed(HostChanged::Closed);
    story.wait(MINUTE);
    assert_eq!(ends(&story), ["end-host(ended)"]);
    assert_eq!(story.count("ask-start"), 0);
    assert_eq!(story.count("sleep"), 1, "nothing is left to listen to");
}

/// An agent that ends by itself is the host's affair, as it would have been.
#[test]
fn a_crash_is_the_hosts() {
    let mut story = hosted(OBEDIENT);
    story.says(AgentStatus::TurnStarted);
    story.exits(1);
    story.wait(MINUTE);
    assert_eq!(ends(&story), ["end-host(exited(some(code(1))))"]);
    assert_eq!(story.count("launch("), 0);
}

/// Stopped, removed, or shut down with the daemon: the host is told, also when there is no agent.
#[test]
fn an_end_that_somebody_asked_for_is_told() {
    for (how, asleep) in [
        (StopHow::Stop, "end-host(ended)"),
        (StopHow::Remove, "end-host(ended)"),
        (StopHow::Shutdown, "end-host(shutdown)"),
    ] {
        let mut story = hosted(OBEDIENT);
        story.stop(how).unwrap();
        story.wait(MINUTE);
        assert_eq!(ends(&story), ["end-host(exited(some(code(0))))"], "{how:?}");
        let mut story = hosted(OBEDIENT);
        story.wait(31 * MINUTE);
        story.forget();
        story.stop(how).unwrap();
        story.wait(MINUTE);
        assert_eq!(ends(&story), [asleep], "{how:?}");
    }
}

/// An agent that cannot be started again is told, with why, once the tries are used up.
#[test]
fn a_wake_that_fails_is_told() {
    let mut story = hosted(OBEDIENT);
    story.wait(31 * MINUTE);
    story.world.manners.launches = false;
    story.feed(HostChanged::Waits);
    story.wait(10 * MINUTE);
    assert_eq!(story.state(), SessionState::Failing);
    let ended = story.events().find_map(|event| {
        if let SessionEvent::HostEnded { end, .. } = event {
            Some(end.clone())
        } else {
            None
        }
    });
    let error = "no such folder".to_owned();
    assert_eq!(ended, Some(HostEnd::Failed { error }));
}

/// Behaviour 99: an agent that was lost with the daemon may have taken an answer along: the host is
/// told, as of a crash. One that was released is started again by the next line.
#[test]
fn a_host_whose_agent_was_lost_is_told() {
    use drowse_messages::{EndReport, Limits, Progress, Reason, WallTime, Who};
    let status = None;
    for (reason, mid_turn, told) in [
        (Reason::DaemonShutdown, true, 1),
        (Reason::Crashed { status }, false, 1),
        (Reason::DaemonShutdown, false, 1),
        (Reason::Idle, false, 0),
    ] {
        let end = EndReport {
            mid_turn,
            ..EndReport::new(reason, Who::Daemon, WallTime(0))
        };
        let progress = Progress {
            state: SessionState::Released,
            incarnation: drowse_messages::Incarnation(3),
            conversation: Some(conversation(true)),
            end: Some(end),
            hosted: drowse_messages::Hosted::Now,
            ..Progress::default()
        };
        let saved = super::world::saved(progress, &[]);
        let mut story = Story::restored(&saved, OBEDIENT, Limits::default());
        story.feed(CAME);
        assert_eq!(story.count("end-host("), told, "{reason}");
        if told == 0 {
            story.feed(HostChanged::Waits);
            story.wait(2 * SECOND);
            assert_eq!(gates(&story), ["launch(#4, resume, relayed)", "open-gate"]);
        }
    }
}
