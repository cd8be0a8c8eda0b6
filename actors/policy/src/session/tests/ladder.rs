//! The teardown of a tree, rung by rung (behaviours D).

use std::time::Duration;

use drowse_messages::{ExitStatus, Reason, SessionEvent, SessionState, StopHow};

use super::story::{HOUR, MINUTE, SECOND, Story};
use super::world::{DEAF, Manners, OBEDIENT, conversation};

use crate::session::STUCK_RETRY_AFTER;

const JUST: Duration = Duration::from_millis(1);

/// Rungs and their times, in milliseconds after the begin.
fn rungs(story: &Story) -> Vec<(String, u64)> {
    let begin = story.when("!Ending").unwrap();
    story
        .done()
        .into_iter()
        .map(|rung| {
            let at = story.when(&rung).unwrap().since(begin);
            (rung, u64::try_from(at.as_millis()).unwrap())
        })
        .collect()
}

fn stopped(manners: Manners) -> Story {
    let mut story = Story::resting(manners);
    story.stop(StopHow::Stop).unwrap();
    story.wait(MINUTE);
    story
}

/// D 57: an obedient agent ends when its stdin does, and is verified to have left nothing.
#[test]
fn an_obedient_agent_is_only_asked() {
    let story = stopped(OBEDIENT);
    assert_eq!(
        story.done(),
        [
            "reap(snapshot)",
            "close",
            "reap(terminate)",
            "reap(verify)",
            "dismiss"
        ]
    );
    assert_eq!(story.state(), SessionState::Stopped);
}

/// D 50, D05: one that heeds nothing meets every rung in order, each after its grace, in bounded
/// time, and the end is the one that was asked for.
#[test]
fn a_deaf_agent_meets_every_rung() {
    let story = stopped(DEAF);
    let expected = [
        ("reap(snapshot)", 0),
        ("close", 20),
        ("reap(terminate)", 2020),
        ("reap(kill)", 7040),
        ("dismiss", 7060),
    ];
    let rungs = rungs(&story);
    let rungs: Vec<(&str, u64)> = rungs.iter().map(|(rung, at)| (&**rung, *at)).collect();
    assert_eq!(rungs, expected);
    assert_eq!(story.reason(), "stopped");
}

/// The whole ladder as its log reads.
#[test]
fn the_ladder_reads_like_this() {
    let mut story = Story::resting(Manners {
        leaves_child: true,
        heeds_term: false,
        ..OBEDIENT
    });
    story.stop(StopHow::Release).unwrap();
    story.wait(MINUTE);
    insta::assert_snapshot!(story.trace(), @r"
    2.000 release -> !Ending reap(snapshot) !StateChanged save(releasing)
    2.020 reaped(snapshot, left) -> close
    2.120 exited(exit 0) -> reap(terminate)
    2.140 reaped(terminate, left) ->
    7.140 tick -> reap(kill)
    7.143 tree-emptied ->
    7.160 reaped(kill, empty) -> dismiss !Released !StateChanged save(released) sleep
    ");
}

/// D 47, D 49: what outlives the agent is ended too, and named.
#[test]
fn what_the_agent_leaves_behind_is_reaped() {
    let mut story = Story::resting(Manners {
        leaves_child: true,
        ..OBEDIENT
    });
    story.exits(3);
    story.wait(MINUTE);
    let end = story.end().unwrap();
    let status = Some(ExitStatus::Code(3));
    assert_eq!(end.reason, Reason::Crashed { status });
    let reaped: Vec<i32> = end.reaped.iter().map(|p| p.identity.pid()).collect();
    assert_eq!(reaped, [102]);
    assert_eq!(end.stderr_tail, "last words");
}

/// D 45: the snapshot comes before anything is asked or signalled, and counts what is freed.
#[test]
fn the_snapshot_comes_first() {
    let story = stopped(Manners {
        leaves_child: true,
        ..DEAF
    });
    assert_eq!(story.done()[0], "reap(snapshot)");
    assert_eq!(story.end().unwrap().released_bytes, 2000);
}

/// F 87: a running turn is interrupted once, by protocol, and has a moment to end.
#[test]
fn a_turn_is_interrupted_first() {
    let mut story = Story::working(OBEDIENT);
    story.forget();
    story.stop(StopHow::Shutdown).unwrap();
    story.wait(MINUTE);
    assert_eq!(
        story.done(),
        [
            "reap(snapshot)",
            "interrupt",
            "close",
            "reap(terminate)",
            "reap(verify)",
            "dismiss"
        ]
    );
    assert_eq!(story.count("settle(1, failed)"), 1);
    assert!(!story.end().unwrap().mid_turn);
}

/// D 66, D 58: a process listing that hangs delays a release by its bound, no more.
#[test]
fn a_lost_snapshot_is_not_waited_for() {
    let mut story = Story::resting(DEAF);
    story.world.manners.reaper_answers = false;
    story.stop(StopHow::Stop).unwrap();
    story.wait(5 * SECOND - JUST);
    assert_eq!(story.done(), ["reap(snapshot)"]);
    story.wait(JUST);
    assert_eq!(story.done(), ["reap(snapshot)", "close"]);
}

/// D 58: whichever answer of the reaper is lost, the ladder goes on and ends.
#[test]
fn lost_answers_do_not_stop_the_ladder() {
    for heeds_term in [true, false] {
        let mut story = Story::resting(Manners { heeds_term, ..DEAF });
        story.world.manners.reaper_answers = false;
        story.stop(StopHow::Stop).unwrap();
        story.wait(3 * MINUTE);
        assert_eq!(story.state(), SessionState::Stopping);
        assert!(story.count("reap(") < 12, "{:?}", story.done());
        story.world.manners.reaper_answers = true;
        story.wait(MINUTE);
        assert_eq!(story.state(), SessionState::Stopped);
    }
}

/// The grace between SIGTERM and SIGKILL counts from the signal, not from the order: a reaper
/// that is busy takes none of it away.
#[test]
fn a_busy_reaper_shortens_no_grace() {
    let mut story = Story::resting(DEAF);
    story.stop(StopHow::Stop).unwrap();
    story.wait(3 * SECOND);
    assert_eq!(story.count("reap(terminate)"), 1);
    let answered = story.now;
    story.wait(20 * SECOND);
    let killed = story.when("reap(kill)").unwrap();
    let signalled = story.when("reap(terminate)").unwrap();
    assert!(signalled < answered);
    assert_eq!(killed.since(signalled), 5 * SECOND + 20 * JUST);
}

/// D 62: a tree that cannot be ended is shown, tried again, and nothing else is started.
#[test]
fn an_unkillable_tree_is_shown_and_tried_again() {
    let mut story = Story::resting(Manners {
        heeds_kill: false,
        ..DEAF
    });
    story.stop(StopHow::Stop).unwrap();
    story.message();
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Stopping);
    assert_eq!(
        story.count("!ReleaseFailed"),
        1,
        "once, as long as it stays the same"
    );
    assert_eq!(story.count("launch("), 0);
    let kills = story.count("reap(kill)");
    story.wait(STUCK_RETRY_AFTER * 10);
    assert_eq!(story.count("reap(kill)"), kills + 10);
    assert_eq!(story.count("!Released"), 0);
    story.world.manners.heeds_kill = true;
    story.wait(STUCK_RETRY_AFTER + 10 * SECOND);
    assert_eq!(story.count("!Released"), 1);
    assert_eq!(story.state(), SessionState::Working);
}

/// D 61: a keeper's word is not enough: a walk that finds somebody after all is right.
#[test]
fn a_walk_overrules_the_keeper() {
    let mut story = Story::resting(DEAF);
    story.stop(StopHow::Stop).unwrap();
    story.wait(3 * SECOND);
    let incarnation = story.session().incarnation();
    story.feed(drowse_messages::TreeEmptied { incarnation });
    story.wait(10 * SECOND);
    assert_eq!(
        story.done(),
        [
            "reap(snapshot)",
            "close",
            "reap(terminate)",
            "reap(verify)",
            "reap(kill)",
            "dismiss"
        ]
    );
}

/// An empty tree, said before the agent's exit was, needs neither goodbye nor signal.
#[test]
fn an_empty_tree_is_only_verified() {
    let mut story = Story::resting(OBEDIENT);
    story.world.tree = false;
    let incarnation = story.session().incarnation();
    story.feed(drowse_messages::TreeEmptied { incarnation });
    story.wait(SECOND);
    assert_eq!(story.done(), ["reap(snapshot)", "reap(verify)", "dismiss"]);
}

/// D 59: a second stop, and a shutdown, join the teardown; the weightier reason stays.
#[test]
fn orders_join_one_teardown() {
    let mut story = Story::resting(DEAF);
    for how in [
        StopHow::Release,
        StopHow::Stop,
        StopHow::Shutdown,
        StopHow::Stop,
    ] {
        story.stop(how).unwrap();
        story.wait(SECOND);
    }
    story.wait(MINUTE);
    assert_eq!(story.count("!Ending"), 1);
    assert_eq!(story.count("reap(kill)"), 1);
    assert_eq!(story.reason(), "stopped");
}

/// D 64: what the old process says after its end changes nothing but a counter.
#[test]
fn late_facts_of_an_old_launch_are_dropped() {
    let mut story = stopped(OBEDIENT);
    let old = story.session().incarnation();
    story.message();
    story.wait(MINUTE);
    let before = story.session().clone();
    story.forget();
    story.feed(drowse_messages::ChildExited {
        incarnation: old,
        status: None,
        stderr_tail: String::new(),
    });
    story.feed(drowse_messages::TreeEmptied { incarnation: old });
    assert_eq!(story.words(|_| true), Vec::<String>::new());
    assert_eq!(story.session().stale_facts(), before.stale_facts() + 2);
    assert_eq!(story.state(), SessionState::Working);
}

/// D 65, E 68: where the conversation is, the agent may say until the very end.
#[test]
fn a_conversation_named_during_the_teardown_is_kept() {
    let mut story = Story::working(DEAF);
    story.stop(StopHow::Shutdown).unwrap();
    story.says(drowse_messages::AgentStatus::Conversation(conversation(
        true,
    )));
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Interrupted);
    story.forget();
    story.message();
    story.wait(SECOND);
    assert_eq!(story.count("launch(#2, resume)"), 1);
}

/// D 63: a teardown forgets the background work of the process it ends.
#[test]
fn a_teardown_forgets_background_work() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["build"]);
    story.hold(1, HOUR).unwrap();
    story.stop(StopHow::Stop).unwrap();
    story.wait(MINUTE);
    story.wake(false);
    story.wait(2 * SECOND);
    assert_eq!(story.state(), SessionState::Resting);
    assert!(story.session().holds(story.now).is_empty());
}

/// D 62: the same survivors are not announced twice, other ones are.
#[test]
fn survivors_are_named() {
    let mut story = Story::resting(Manners {
        heeds_kill: false,
        ..DEAF
    });
    story.stop(StopHow::Stop).unwrap();
    story.wait(MINUTE);
    let named = story.events().find_map(|event| {
        if let SessionEvent::ReleaseFailed { survivors } = event {
            Some(survivors.clone())
        } else {
            None
        }
    });
    assert_eq!(named.unwrap()[0].why, "uninterruptible");
}
