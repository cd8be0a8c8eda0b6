//! What outlives a session's processes (behaviour 146, D09).

use std::time::Duration;

use drowse_messages::{
    HostChanged, Incarnation, KeepRule, Keeping, Limits, MonoTime, Order, Progress, Reason,
    Refusal, SessionEvent, SessionState, Stop, StopHow, Who,
};

use super::generate::me;
use super::story::{HOUR, MINUTE, SECOND, Story, wall};
use super::world::{DEAF, Manners, OBEDIENT, saved, server};

use crate::Effect;
use crate::session::RETIRED_MAX;

const SERVING: Manners = Manners {
    serves: true,
    ..OBEDIENT
};

const FIRST: Incarnation = Incarnation(1);

fn keeping(rule: KeepRule) -> Limits {
    Limits {
        keep: vec![rule],
        ..Limits::default()
    }
}

/// A session at rest whose configuration keeps its server.
fn keeps(manners: Manners) -> Story {
    let mut story = Story::resting(manners);
    story.limit(keeping(KeepRule::Listen(3000)));
    story.forget();
    story
}

/// The same, released.
fn released(manners: Manners) -> Story {
    let mut story = keeps(manners);
    story.wait(31 * MINUTE);
    assert_eq!(story.state(), SessionState::Released);
    story
}

fn kept(story: &Story) -> Keeping {
    story.kept()
}

fn notices(story: &Story) -> Vec<&str> {
    let notices = story.events().filter_map(|event| {
        if let SessionEvent::Notice { text } = event {
            Some(text.as_str())
        } else {
            None
        }
    });
    notices.collect()
}

/// D09: what a rule means runs on below its keeper, is listed, and the session is watched over it.
#[test]
fn a_release_leaves_what_is_kept() {
    let story = released(SERVING);
    assert_eq!(
        story.done(),
        [
            "reap(snapshot)",
            "close",
            "reap(terminate)",
            "reap(verify)",
            "retire"
        ]
    );
    assert_eq!(story.count("sleep"), 0, "it watches what it keeps");
    let kept = &kept(&story).kept[0];
    assert_eq!(kept.incarnation, FIRST);
    assert_eq!(kept.processes[0].process, server(FIRST));
    assert_eq!(kept.processes[0].rule, KeepRule::Listen(3000));
    let end = story.end().unwrap();
    assert_eq!(end.kept, kept.processes);
    assert_eq!(end.servers, [], "it was not ended");
    assert_eq!(end.notice(), None);
}

/// D09: a server that nobody declared is ended, and the next wake says so, and how to keep one.
#[test]
fn an_undeclared_server_is_named_when_the_session_wakes() {
    let mut story = Story::resting(SERVING);
    story.wait(31 * MINUTE);
    assert_eq!(story.done().last().map(String::as_str), Some("dismiss"));
    assert!(kept(&story).is_empty());
    assert_eq!(notices(&story), [""; 0], "nobody is there to read it");
    let at = story.end().unwrap().at;
    story.wait(HOUR);
    story.message();
    story.wait(2 * SECOND);
    let expected = format!(
        "the release at {at} ended node (pid 103, port 3000); keep such a server with keep = \
         [\"listen:3000\"] or drowse keep"
    );
    assert_eq!(notices(&story), [expected.as_str()]);
    let woken = story.events().find_map(|event| {
        if let SessionEvent::Woken {
            reason,
            by,
            ended,
            processes,
        } = event
        {
            Some((*reason, by.clone(), *ended, processes.len()))
        } else {
            None
        }
    });
    // D17: reason, actor, time and processes.
    assert_eq!(woken, Some((Reason::Idle, Who::Rule, at, 2)));
}

/// The session wakes beside what it keeps, and a second release adds to it.
#[test]
fn a_session_wakes_beside_what_it_keeps() {
    let mut story = released(SERVING);
    story.message();
    story.wait(2 * SECOND);
    assert_eq!(story.state(), SessionState::Working);
    story.turn_ends();
    story.wait(31 * MINUTE);
    let all = kept(&story).kept;
    assert_eq!(all.len(), 2);
    assert_eq!(all[1].incarnation, Incarnation(2));
    assert_eq!(story.world.kept.len(), 2, "both run");
}

/// There is an end to what one session keeps: later servers are ended, and named.
#[test]
fn what_a_session_keeps_is_bounded() {
    let mut story = released(SERVING);
    for _ in 0..RETIRED_MAX + 1 {
        story.message();
        story.wait(2 * SECOND);
        story.turn_ends();
        story.wait(31 * MINUTE);
    }
    assert_eq!(kept(&story).kept.len(), RETIRED_MAX);
    assert_eq!(story.end().unwrap().servers.len(), 1);
}

/// Release and stop keep, also when the agent or its start has failed.
#[test]
fn stops_and_crashes_keep() {
    let mut story = keeps(SERVING);
    story.stop(StopHow::Stop).unwrap();
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Stopped);
    assert_eq!(kept(&story).kept.len(), 1);
    let mut story = keeps(SERVING);
    story.exits(7);
    story.wait(MINUTE);
    assert_eq!(story.reason(), "crashed (exit 7)");
    assert_eq!(kept(&story).kept.len(), 1);
}

/// Stop with all, removal and the end of the daemon end it, whether or not it obeys, and the
/// session is gone only when it is.
#[test]
fn stop_all_removal_and_shutdown_end_what_is_kept() {
    for how in [StopHow::StopAll, StopHow::Remove, StopHow::Shutdown] {
        for awake in [true, false] {
            for obeys in [true, false] {
                let mut story = if awake {
                    keeps(SERVING)
                } else {
                    released(SERVING)
                };
                if !obeys {
                    story.world.manners = Manners {
                        serves: true,
                        ..DEAF
                    };
                }
                story.forget();
                story.stop(how).unwrap();
                if !awake {
                    assert_eq!(story.state(), SessionState::Stopping, "{how:?}");
                }
                story.wait(MINUTE);
                let what = format!("{how:?} {awake} {obeys}\n{}", story.trace());
                assert!(story.world.kept.is_empty(), "{what}");
                assert!(story.session().retired().is_empty(), "{what}");
                assert_eq!(story.count("dismiss"), 1, "{what}");
                assert_eq!(story.count("!KeptEnded"), usize::from(!awake), "{what}");
                assert_eq!(story.count("forget"), usize::from(how == StopHow::Remove));
                assert!(story.count("sleep") > 0, "{what}");
            }
        }
    }
}

/// One who joins a release under way and wants everything ended gets that.
#[test]
fn a_stop_of_all_joins_a_release_at_any_moment() {
    for moment in 0..80 {
        let mut story = keeps(Manners {
            serves: true,
            ..DEAF
        });
        story.wait(30 * MINUTE - SECOND);
        story.wait(Duration::from_millis(125 * moment));
        story.stop(StopHow::StopAll).unwrap();
        story.wait(MINUTE);
        let what = format!("moment {moment}\n{}", story.trace());
        assert!(story.world.kept.is_empty(), "{what}");
        assert!(!story.world.tree, "{what}");
        assert!(story.session().retired().is_empty(), "{what}");
        let named = story.end().unwrap().processes;
        assert!(named.iter().any(|it| it.name == "node") || story.count("!KeptEnded") == 1);
    }
}

/// Somebody asks for it by number, for a time: it ends when that is over, though the session sleeps.
#[test]
fn what_is_kept_for_a_time_ends_with_it() {
    let mut story = Story::resting(SERVING);
    story.order(story.world.keep(Some(HOUR))).unwrap();
    assert_eq!(kept(&story).asked.len(), 1);
    let until = kept(&story).asked[0].until;
    assert_eq!(until, Some(wall(story.now).after(HOUR)));
    story.wait(31 * MINUTE);
    assert_eq!(kept(&story).kept.len(), 1);
    assert_eq!(kept(&story).kept[0].processes[0].until, until);
    story.forget();
    story.wait(20 * MINUTE);
    assert_eq!(story.done(), [""; 0]);
    story.wait(10 * MINUTE);
    assert_eq!(story.done(), ["reap(terminate)", "reap(verify)", "dismiss"]);
    assert!(kept(&story).is_empty());
    let by = story.events().find_map(|event| {
        if let SessionEvent::KeptEnded { by, .. } = event {
            Some(by)
        } else {
            None
        }
    });
    assert_eq!(by, Some(&Who::Rule));
    assert!(story.count("sleep") > 0, "nothing is left to watch");
}

/// The same wish again counts anew; one that is over while the backend lives keeps nothing.
#[test]
fn a_wish_can_be_renewed_and_can_lapse() {
    let mut story = Story::resting(SERVING);
    story.order(story.world.keep(Some(MINUTE))).unwrap();
    story.order(story.world.keep(None)).unwrap();
    assert_eq!(kept(&story).asked.len(), 1);
    story.wait(31 * MINUTE);
    assert_eq!(kept(&story).kept[0].processes[0].until, None);
    // Of a process that outlives its backend, the time can be changed as well.
    story.order(story.world.keep(Some(MINUTE))).unwrap();
    story.wait(2 * MINUTE);
    assert!(kept(&story).is_empty());

    let mut story = Story::resting(SERVING);
    story.order(story.world.keep(Some(MINUTE))).unwrap();
    story.wait(31 * MINUTE);
    assert!(kept(&story).is_empty());
    assert_eq!(story.world.kept.len(), 0);
}

/// Nothing can be kept of a session without a process, nor for a time that is none.
#[test]
fn a_wish_that_cannot_be_met_is_refused() {
    let mut story = Story::resting(SERVING);
    for ttl in [Duration::ZERO, Duration::from_secs(367 * 24 * 3600)] {
        let refused = story.order(story.world.keep(Some(ttl)));
        assert!(matches!(refused, Err(Refusal::Invalid { field, .. }) if field == "ttl"));
    }
    story.wait(31 * MINUTE);
    let refused = story.order(story.world.keep(None));
    assert!(matches!(refused, Err(Refusal::NotRunning { .. })));
}

/// What ends by itself is noticed, and looked for once more before it is forgotten.
#[test]
fn a_kept_process_that_ends_is_told_of() {
    let mut story = released(SERVING);
    story.forget();
    let ended = story.world.end_server(FIRST);
    story.feed(ended);
    story.wait(SECOND);
    assert_eq!(story.done(), ["reap(verify)", "dismiss"]);
    assert_eq!(story.count("!KeptEnded"), 1);
    assert!(kept(&story).is_empty());
}

/// A keeper that is lost proves nothing about what was below it.
#[test]
fn what_a_lost_keeper_leaves_is_ended() {
    let mut story = released(SERVING);
    story.forget();
    let incarnation = FIRST;
    story.feed(drowse_messages::KeptEnded { incarnation });
    story.wait(MINUTE);
    assert_eq!(story.done(), ["reap(verify)", "reap(kill)", "dismiss"]);
    assert!(story.world.kept.is_empty());
}

/// After a restart of the daemon the record says what is kept, and the keepers are watched again.
#[test]
fn what_is_kept_is_taken_up_again() {
    let story = released(SERVING);
    let progress = story.progress();
    let later = |progress: &Progress| {
        let saved = saved(progress.clone(), &[]);
        Story::restored(&saved, SERVING, Limits::default())
    };
    let mut again = later(&progress);
    again.world.kept.insert(FIRST);
    again.feed(drowse_messages::IdleTick);
    again.wait(MINUTE);
    assert_eq!(again.done(), ["watch(#1)"]);
    assert_eq!(again.kept(), progress.keeping);
    // It ended while nobody looked.
    let mut again = later(&progress);
    again.feed(drowse_messages::IdleTick);
    again.wait(MINUTE);
    assert_eq!(again.done(), ["watch(#1)", "reap(verify)", "dismiss"]);
    assert!(again.kept().is_empty());
    // The first thing it hears may be that all is to end.
    let mut again = later(&progress);
    again.world.kept.insert(FIRST);
    again.stop(StopHow::StopAll).unwrap();
    again.wait(MINUTE);
    assert!(again.world.kept.is_empty());
    assert_eq!(again.state(), SessionState::Released);
}

/// What is left of its time runs on in the next daemon.
#[test]
fn a_time_is_kept_across_a_restart() {
    let mut story = Story::resting(SERVING);
    story.order(story.world.keep(Some(HOUR))).unwrap();
    story.wait(31 * MINUTE);
    let saved = saved(story.progress(), &[]);
    let mut again = Story::restored(&saved, SERVING, Limits::default());
    again.world.kept.insert(FIRST);
    again.now = story.now;
    again.feed(drowse_messages::IdleTick);
    again.wait(28 * MINUTE);
    assert_eq!(again.world.kept.len(), 1);
    again.wait(2 * MINUTE);
    assert!(again.world.kept.is_empty(), "{}", again.trace());
}

/// A message or a wake during the end of what is kept is not lost.
#[test]
fn a_message_during_the_end_of_what_is_kept_wakes() {
    let mut story = released(SERVING);
    story.stop(StopHow::StopAll).unwrap();
    story.message();
    story.order(story.world.keep(None)).unwrap_err();
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Working);
    assert_eq!(story.count("deliver(2)"), 1);
    assert!(matches!(story.world.keep(None), Order::Keep(_)));
}

/// A server that was sent SIGTERM was killed before its grace was over when the answer of the reaper
/// was read at an earlier moment than the order to send it was given.
#[test]
fn the_grace_of_what_is_kept_is_never_shorter() {
    let deaf = Manners {
        serves: true,
        ..DEAF
    };
    let mut story = released(deaf);
    story.forget();
    let (how, by, asked) = (StopHow::StopAll, me(), story.now);
    let effects = story.feed(Order::Stop(Stop { how, by }));
    let terminate = effects.iter().find(|it| matches!(it, Effect::Reap(_)));
    let answers = story.world.answer(terminate.expect("SIGTERM is asked for"));
    story.now = MonoTime::from_millis(asked.as_millis() - 1_000);
    for (_, answer) in answers {
        story.feed(answer);
    }
    story.wait(MINUTE);
    let killed = story.when("reap(kill)").expect("it is deaf");
    assert!(killed >= asked.after(Limits::default().term_grace));
}

/// A host that comes while the last that was kept is being ended is told that nothing follows.
#[test]
fn a_host_that_comes_to_the_end_of_a_session_is_told() {
    for how in [StopHow::Remove, StopHow::Shutdown] {
        let mut story = released(SERVING);
        story.stop(how).unwrap();
        story.feed(HostChanged::Attached {
            pid: 77,
            resumable: true,
        });
        story.feed(HostChanged::Waits);
        story.wait(MINUTE);
        let told = story.words(|word| word.starts_with("end-host"));
        assert_eq!(told.len(), 1, "{how:?}: {told:?}");
        assert!(story.session().is_asleep());
    }
}
