//! Work that only the process tree shows (D20, behaviours C 30, C 42).

use std::time::Duration;

use drowse_messages::{Limits, ProcIdentity, ProcReport, Progress, SessionState};

use super::story::{HOUR, MINUTE, SECOND, Story};
use super::world::{Manners, OBEDIENT, conversation, saved};
use crate::session::{AgentTraits, LOOK_MAX};

const JUST: Duration = Duration::from_millis(100);

/// A session whose agent reports no tasks, after its first turn; that began 2 s after the launch.
fn resting(manners: Manners) -> Story {
    let traits = AgentTraits {
        can_resume: true,
        reports_tasks: false,
        observed: true,
        steers: false,
    };
    let saved = saved(Progress::default(), &[]);
    let mut story = Story::with(&saved, manners, Limits::default(), traits);
    story.wake(false);
    story.wait(2 * SECOND);
    story.message();
    story.wait(SECOND);
    story.says(drowse_messages::AgentStatus::Conversation(conversation(
        true,
    )));
    story.turn_ends();
    story.forget();
    story
}

/// A process of the tree: it began so many hundredths of a second after the agent.
fn process(pid: i32, name: &str, parent: i32, ticks: u64) -> ProcReport {
    let identity = ProcIdentity::new(pid, 1 + ticks).unwrap();
    ProcReport {
        process_session: 101,
        ..ProcReport::new(identity, parent, name.to_owned())
    }
}

fn apart(process: ProcReport) -> ProcReport {
    ProcReport {
        process_session: process.identity.pid(),
        ..process
    }
}

/// D20: helpers that were there before the first turn, whatever they are called, do not hold, and
/// the session is released on time.
#[test]
fn helpers_from_the_start_do_not_hold() {
    let mut story = resting(OBEDIENT);
    story.world.beside = vec![
        process(110, "node", 101, 5),
        apart(process(111, "node", 101, 6)),
        process(112, "sh", 101, 100),
        apart(process(113, "python3", 112, 180)),
        // Begun later, by the agent itself and not as a command: a helper of a helper.
        process(114, "node", 110, 500),
    ];
    story.wait(30 * MINUTE + JUST);
    assert_eq!(story.state(), SessionState::Releasing);
    assert_eq!(story.done()[..2], ["reap(look)", "reap(snapshot)"]);
}

/// C 30: a command that the agent started holds while it runs, in whatever shape it is left; it is
/// looked at once in each window, and its end is followed by a full one.
#[test]
fn a_command_that_still_runs_holds() {
    for work in [
        process(120, "bash", 101, 250),
        apart(process(120, "sleep", 101, 250)),
        process(120, "sleep", 100, 250),
    ] {
        let mut story = resting(OBEDIENT);
        story.world.beside = vec![process(110, "node", 101, 5), work.clone()];
        story.wait(2 * HOUR + 20 * MINUTE);
        assert_eq!(story.state(), SessionState::Waiting, "{work:?}");
        assert_eq!(story.count("reap(look)"), 4);
        assert_eq!(story.count("!ReleaseDeferred"), 4);
        let holds = story.session().holds(story.now);
        assert_eq!(holds[0].why, format!("observed: {} (pid 120)", work.name));
        assert_eq!(holds[0].owner, "drowse");
        story.world.beside.pop();
        story.wait(10 * MINUTE + JUST);
        assert_eq!(story.state(), SessionState::Resting);
        story.wait(29 * MINUTE);
        assert_eq!(story.state(), SessionState::Resting);
        story.wait(MINUTE + JUST);
        assert_eq!(story.state(), SessionState::Releasing);
    }
}

/// What a shell runs is told once, by the shell.
#[test]
fn a_command_is_one_task() {
    let mut story = resting(OBEDIENT);
    story.world.beside = vec![
        apart(process(120, "bash", 101, 250)),
        ProcReport {
            process_session: 120,
            ..process(121, "cargo", 120, 251)
        },
    ];
    story.wait(30 * MINUTE + JUST);
    assert_eq!(story.session().holds(story.now).len(), 1);
}

/// C 33, C 34: the budget of tasks counts for it.
#[test]
fn a_command_that_never_ends_is_given_up() {
    let mut story = resting(OBEDIENT);
    story.world.beside = vec![process(120, "bash", 101, 250)];
    story.wait(5 * HOUR);
    assert_eq!(story.reason(), "task_hold_expired");
}

/// C 42: the session was used while it was looked at: what was seen decides nothing.
#[test]
fn a_look_that_comes_too_late_decides_nothing() {
    let mut story = resting(OBEDIENT);
    story.wait(30 * MINUTE);
    assert_eq!(story.count("reap(look)"), 1);
    story.message();
    story.wait(SECOND);
    assert_eq!(story.state(), SessionState::Working);
    story.turn_ends();
    story.wait(30 * MINUTE - SECOND);
    assert_eq!(story.state(), SessionState::Resting);
    assert_eq!(story.count("reap(look)"), 1);
}

/// A 7: so does one that comes when the limit is a longer one.
#[test]
fn a_look_does_not_overrule_a_new_limit() {
    let mut story = resting(OBEDIENT);
    story.wait(30 * MINUTE);
    assert_eq!(story.count("reap(look)"), 1);
    story.limit(Limits {
        idle_after: super::world::after(3600),
        ..Limits::default()
    });
    story.wait(29 * MINUTE);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(MINUTE + JUST);
    assert_eq!(story.state(), SessionState::Releasing);
}

/// C 36: a look that is not answered, or shows nothing, keeps the session; that is said.
#[test]
fn what_cannot_be_looked_at_is_kept() {
    let manners = Manners {
        reaper_answers: false,
        ..OBEDIENT
    };
    let mut story = resting(manners);
    story.wait(30 * MINUTE + LOOK_MAX);
    assert_eq!(story.state(), SessionState::Resting);
    assert_eq!(story.count("!ReleaseDeferred"), 1);
    assert_eq!(story.count("reap(look)"), 1);
    story.wait(31 * MINUTE);
    assert_eq!(story.count("reap(look)"), 2);
}

/// `observed = "off"`: nothing is looked at.
#[test]
fn it_can_be_switched_off() {
    let mut story = resting(OBEDIENT);
    story.limit(Limits {
        observed: false,
        ..Limits::default()
    });
    story.world.beside = vec![process(120, "bash", 101, 250)];
    story.wait(30 * MINUTE);
    assert_eq!(story.state(), SessionState::Releasing);
    assert_eq!(story.count("reap(look)"), 0);
}
