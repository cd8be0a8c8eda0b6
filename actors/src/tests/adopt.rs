//! One daemon after another: backends that are still there are taken over, the others are put at
//! rest and ended, and a daemon that is to be replaced leaves everything as it can be gone on with.

use drowse_messages::{MessageState, Order, Refusal, SessionEvent, SessionState};
use tokio::time::timeout;

use super::{HOUR, MINUTE, SECOND, World, on_paused_time, pass, settle, stop, wake};
use crate::testing::{message, open};
use drowse_messages::StopHow;

/// F 84, D41: the next daemon has the same backends; a turn goes on and its message is answered,
/// the idle one is released on time, and nothing is launched.
#[test]
fn live_backends_are_taken_over() {
    on_paused_time(async {
        let mut world = World::new();
        let resting = world.rested(1).await;
        world.fakes.behave(|manners| manners.turn_takes = None);
        let working = world.open(2).await;
        let in_flight = world.say(working, "think").await;
        world.until(working, SessionState::Working).await;
        let launches = world.launches();
        world.daemon = world.fakes.serve_next().await;

        assert_eq!(world.daemon.status().await.unwrap().adopted, 2);
        assert_eq!(world.report(working).await.state, SessionState::Working);
        assert_eq!(world.report(resting).await.state, SessionState::Resting);
        assert_eq!(world.count_of(SessionState::Working).await, 1);
        world.fakes.backends.end_turn(working, "thought");
        world.until(working, SessionState::Resting).await;
        assert_eq!(world.message_state(in_flight).await, MessageState::Answered);
        world.until(resting, SessionState::Released).await;
        assert_eq!(world.launches(), launches);
        assert_eq!(world.fakes.journal.count("trees: end_leftover"), 0);
    });
}

/// A lease holds on under the next daemon, and is nobody's who takes one there.
#[test]
fn leases_are_taken_over_and_none_is_mistaken_for_another() {
    on_paused_time(async {
        let mut world = World::new();
        let id = world.rested(1).await;
        let ttl = 10 * HOUR;
        let first = world.daemon.hold(id, "ci", "first", ttl).await.unwrap();
        let kept = first.id();
        settle().await;
        // Nobody drops anything in a daemon that is killed.
        std::mem::forget(first);
        world.daemon = world.fakes.serve_next().await;
        let second = world.daemon.hold(id, "ci", "second", ttl).await.unwrap();
        assert_ne!(second.id(), kept);
        drop(second);
        settle().await;
        let holds = world.report(id).await.awake.unwrap().holds;
        let held: Vec<_> = holds.iter().map(|hold| (hold.id, &*hold.why)).collect();
        assert_eq!(held, [(Some(kept), "first")]);
        pass(9 * HOUR).await;
        assert_eq!(world.report(id).await.state, SessionState::Resting);
        pass(2 * HOUR).await;
        assert_eq!(world.report(id).await.state, SessionState::Released);
    });
}

/// F 83 to 86: a backend that is gone leaves its session at rest, its message unknown, and what it
/// may have left is ended; a second daemon after that finds nothing to do.
#[test]
fn what_is_gone_is_put_at_rest() {
    on_paused_time(async {
        let mut world = World::new();
        world.fakes.behave(|manners| manners.turn_takes = None);
        let id = world.open(1).await;
        let in_flight = world.say(id, "think").await;
        world.until(id, SessionState::Working).await;
        world.fakes.backends.vanish(id);
        for _ in 0..2 {
            world.daemon = world.fakes.serve_next().await;
            assert_eq!(world.report(id).await.state, SessionState::Interrupted);
            assert_eq!(world.message_state(in_flight).await, MessageState::Unknown);
            assert_eq!(world.fakes.journal.count("trees: end_leftover"), 1);
        }
        assert_eq!(world.launches(), 1);
    });
}

/// F 88: admission closes and nothing new is begun; a start is undone, a turn goes on, and what the
/// agent said before is with the store when it resolves.
#[test]
fn a_suspended_daemon_leaves_everything_to_the_next() {
    on_paused_time(async {
        let world = World::new();
        world.fakes.behave(|manners| manners.turn_takes = None);
        let working = world.open(1).await;
        let in_flight = world.say(working, "think").await;
        world.until(working, SessionState::Working).await;
        let waiting = world.say(working, "later").await;
        world.fakes.behave(|manners| manners.ready_takes = None);
        let starting = world.open(2).await;
        let undone = world.say(starting, "hello").await;
        world.until(starting, SessionState::Starting).await;
        settle().await;

        let daemon = world.daemon.clone();
        let suspended = actix_rt::spawn(async move { daemon.suspend().await });
        settle().await;
        let daemon = &world.daemon;
        let refused = Refusal::Draining;
        assert_eq!(daemon.open(open(3)).await.unwrap_err(), refused);
        assert_eq!(
            daemon.send(working, message("x")).await,
            Err(refused.clone())
        );
        for order in [wake(), stop(StopHow::Stop), Order::Interrupt(interrupt())] {
            assert_eq!(daemon.order(working, order).await, Err(refused.clone()));
        }
        timeout(MINUTE, suspended).await.unwrap().unwrap();
        assert_eq!(world.fakes.journal.count("backends: suspend"), 1);
        assert_eq!(world.fakes.trees.standing(), 1, "the start is undone");
        for (message, state) in [
            (in_flight, MessageState::Delivered),
            (waiting, MessageState::Queued),
            (undone, MessageState::Queued),
        ] {
            assert_eq!(world.message_state(message).await, state);
        }
        let told = world.fakes.store.recorded();
        assert!(told.iter().any(|e| e.what == SessionEvent::Restarting));
        timeout(SECOND, world.daemon.suspend()).await.unwrap();
    });
}

fn interrupt() -> drowse_messages::Interrupt {
    drowse_messages::Interrupt {
        by: super::client(),
    }
}

/// A restart that nobody can carry out is refused.
#[test]
fn a_restart_needs_somebody_to_do_it() {
    on_paused_time(async {
        let world = World::new();
        let refused = world.daemon.restart().await.unwrap_err();
        assert_eq!(refused.code(), "cannot_restart");
        world.rested(1).await;
    });
}
