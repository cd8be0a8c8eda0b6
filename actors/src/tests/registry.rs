//! Lifecycles: races around a wake, the pace of starts, a reload, records that cannot be read.

use std::time::Duration;

use drowse_messages::{
    AgentStatus, Limit, MessageState, Name, OpenSession, Refusal, SessionState, StopHow,
};
use futures_util::future::join_all;

use super::{HOUR, MINUTE, SECOND, World, on_paused_time, pass, settle, stop, turns, wake};
use crate::testing::{message, open};

/// Behaviour 78: whatever arrives while a session is being read from disk joins one wake, and
/// nothing of it is lost.
#[test]
fn ten_messages_and_two_wakes_at_once_launch_once() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        world.until(id, SessionState::Released).await;
        settle().await;
        world.fakes.journal.clear();
        world.fakes.behave(|manners| manners.load_takes = SECOND);
        let sends = join_all((0..10).map(|n| world.daemon.send(id, message(&n.to_string()))));
        let wakes = join_all((0..2).map(|_| world.daemon.order(id, wake())));
        let (sent, woken) = futures_util::future::join(sends, wakes).await;
        assert!(sent.iter().all(Result::is_ok));
        assert!(woken.iter().all(Result::is_ok));
        pass(MINUTE).await;
        assert_eq!(world.fakes.journal.count("store: load"), 1);
        assert_eq!(world.launches(), 1);
        let answered: Vec<_> = (2..=11).map(|n| format!("{n} answered")).collect();
        assert_eq!(world.fakes.journal.of("store: settle "), answered);
    });
}

/// A stop cancels what waited before it, never what was accepted after it, also when both come
/// while the session is being read from disk.
#[test]
fn a_stop_cancels_nothing_that_came_after_it() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        world.until(id, SessionState::Released).await;
        settle().await;
        world.fakes.behave(|manners| manners.load_takes = SECOND);
        let stopping = world.daemon.order(id, stop(StopHow::Stop));
        let sending = world.daemon.send(id, message("after it"));
        let (stopped, sent) = futures_util::future::join(stopping, sending).await;
        stopped.unwrap();
        pass(MINUTE).await;
        let late = sent.unwrap().message;
        assert_eq!(world.message_state(late).await, MessageState::Answered);
    });
}

/// Behaviour 60: a message sent at any moment of a teardown is answered by the next process, also
/// in the moment when the actor leaves.
#[test]
fn a_message_at_any_moment_of_a_release_is_answered() {
    // The teardown takes a few steps of 5 ms; in between it takes turns of the actors.
    for (millis, between) in (0..30)
        .step_by(5)
        .flat_map(|m| (0..16).map(move |b| (m, b)))
    {
        on_paused_time(async {
            let world = World::new();
            world.fakes.behave(|manners| {
                manners.reap_takes = Duration::from_millis(5);
                manners.load_takes = Duration::from_millis(5);
            });
            let id = world.rested(1).await;
            let story = actix_rt::spawn(async move {
                let release = stop(StopHow::Release);
                world.daemon.order(id, release).await.unwrap();
                pass(Duration::from_millis(millis)).await;
                turns(between).await;
                let late = world.say(id, "late").await;
                pass(MINUTE).await;
                let orders = world.fakes.journal.count("backends: deliver 2");
                (world.message_state(late).await, orders)
            });
            let answered = (MessageState::Answered, 1);
            assert_eq!(story.await.unwrap(), answered, "{millis} ms, {between}");
        });
    }
}

/// `max_starting`: six sessions wake at once, at most two of them start at a time, in order.
#[test]
fn starts_are_paced() {
    on_paused_time(async {
        let world = World::new();
        world.fakes.catalog.set_starting_max(2);
        world.daemon.reload();
        world
            .fakes
            .behave(|manners| manners.ready_takes = Some(10 * SECOND));
        for number in 1..=6 {
            let id = world.open(number).await;
            world.say(id, "hello").await;
        }
        for started in [2, 4, 6] {
            pass(SECOND).await;
            assert_eq!(world.launches(), started);
            assert!(world.count_of(SessionState::Starting).await >= 6 - started as u64);
            pass(10 * SECOND).await;
        }
    });
}

/// A start that fails gives its place up, also while it pauses before the next try.
#[test]
fn a_failing_start_blocks_nobody() {
    on_paused_time(async {
        let world = World::new();
        world.fakes.catalog.set_starting_max(1);
        world.daemon.reload();
        world
            .fakes
            .behave(|manners| manners.launch_fails = Some("no such program".to_owned()));
        let failing = world.open(1).await;
        world.say(failing, "hello").await;
        settle().await;
        world.fakes.behave(|manners| manners.launch_fails = None);
        let fine = world.open(2).await;
        world.say(fine, "hello").await;
        world.until(fine, SessionState::Resting).await;
        world.until(failing, SessionState::Resting).await;
    });
}

/// Behaviour 7: a reload reaches sessions at rest at once. One that was quiet for longer than the
/// new limit goes now, the other when the new limit is over.
#[test]
fn a_reload_changes_resting_sessions_at_once() {
    on_paused_time(async {
        let world = World::new();
        let older = world.rested(1).await;
        pass(10 * MINUTE).await;
        let newer = world.rested(2).await;
        world
            .fakes
            .catalog
            .set_limits(|limits| limits.idle_after = Limit::After(5 * MINUTE));
        world.daemon.reload();
        pass(SECOND).await;
        assert_eq!(world.report(older).await.state, SessionState::Released);
        assert_eq!(world.report(newer).await.state, SessionState::Resting);
        pass(5 * MINUTE).await;
        assert_eq!(world.report(newer).await.state, SessionState::Released);

        world
            .fakes
            .catalog
            .set_limits(|limits| limits.idle_after = Limit::Off);
        let kept = world.rested(3).await;
        pass(100 * HOUR).await;
        assert_eq!(world.report(kept).await.state, SessionState::Resting);
    });
}

/// Behaviour 80: a failing agent reaches `failing` after its tries, keeps its message, and a wake tries again.
#[test]
fn a_message_survives_failed_starts() {
    on_paused_time(async {
        let world = World::new();
        world
            .fakes
            .behave(|manners| manners.launch_fails = Some("no such program".to_owned()));
        let id = world.open(1).await;
        let message = world.say(id, "hello").await;
        world.until(id, SessionState::Failing).await;
        assert_eq!(world.launches(), 5);
        assert_eq!(world.message_state(message).await, MessageState::Queued);
        settle().await;
        world.fakes.behave(|manners| manners.launch_fails = None);
        world.daemon.order(id, wake()).await.unwrap();
        world.until(id, SessionState::Resting).await;
        assert_eq!(world.message_state(message).await, MessageState::Answered);
    });
}

/// Behaviour 79, same key, same message: a client that repeats itself is answered once, and wakes nobody when
/// it does so late.
#[test]
fn a_repeated_key_is_delivered_once() {
    on_paused_time(async {
        let world = World::new();
        let id = world.open(1).await;
        let mut keyed = message("hello");
        keyed.key = Some("k".to_owned());
        let first = world.daemon.send(id, keyed.clone()).await.unwrap();
        let second = world.daemon.send(id, keyed.clone()).await.unwrap();
        assert_eq!(first.message, second.message);
        assert!(second.duplicate);
        world.until(id, SessionState::Released).await;
        assert!(world.daemon.send(id, keyed).await.unwrap().duplicate);
        pass(MINUTE).await;
        assert_eq!(world.launches(), 1);
        assert_eq!(world.fakes.journal.count("backends: deliver"), 1);
    });
}

/// Whoever orders something hears the truth: that there is no such session, or that the disk did
/// not answer, which another try may cure.
#[test]
fn an_order_for_an_unreadable_session_says_why() {
    on_paused_time(async {
        let world = World::new();
        let nobody = crate::testing::session(99);
        let refused = world.daemon.order(nobody, wake()).await.unwrap_err();
        assert_eq!(refused.code(), "no_such_session");
        let id = world.open(1).await;
        world.fakes.store.set_failing(true);
        let refused = world.daemon.order(id, wake()).await.unwrap_err();
        assert_eq!(refused.code(), "store_failed");
        world.fakes.store.set_failing(false);
        world.daemon.order(id, wake()).await.unwrap();
    });
}

/// A session whose adapter is no longer configured is refused by that name.
#[test]
fn an_order_without_an_adapter_says_so() {
    on_paused_time(async {
        let world = World::new();
        let OpenSession { mut recipe, .. } = open(1);
        recipe.protocol = "gone".parse::<Name>().unwrap();
        let id = world
            .daemon
            .open(OpenSession { recipe, ..open(1) })
            .await
            .unwrap()
            .id;
        let refused = world.daemon.order(id, wake()).await.unwrap_err();
        assert!(matches!(refused, Refusal::Invalid { .. }), "{refused}");
        assert_eq!(world.count_of(SessionState::New).await, 1);
    });
}

/// Names are unique, and a taken one is refused by its name.
#[test]
fn a_taken_name_is_refused() {
    on_paused_time(async {
        let world = World::new();
        let named = |number| OpenSession {
            name: Some("one".parse().unwrap()),
            ..open(number)
        };
        world.daemon.open(named(1)).await.unwrap();
        let refused = world.daemon.open(named(2)).await.unwrap_err();
        let name = "one".to_owned();
        assert_eq!(refused, Refusal::NameTaken { name });
        let found = world.daemon.resolve("one").await.unwrap();
        assert_eq!(found, crate::testing::session(1));
    });
}

/// An agent that begins by itself while it rests is at work, and goes back to rest.
#[test]
fn a_turn_of_its_own_is_a_turn() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        world.fakes.backends.say(id, AgentStatus::TurnStarted);
        pass(2 * HOUR).await;
        assert_eq!(world.report(id).await.state, SessionState::Working);
        world.fakes.backends.end_turn(id, "done");
        world.until(id, SessionState::Released).await;
    });
}
