//! The end of the daemon: admission closes in one step, and nothing is left running.

use drowse_messages::{MessageState, Refusal, SessionEvent, SessionState};
use tokio::time::timeout;

use super::{HOUR, MINUTE, SECOND, World, on_paused_time, pass, settle, wake};
use crate::testing::{message, open};

/// `Drain`: all trees are ended, whatever their sessions were doing, and then it resolves.
#[test]
fn a_drain_ends_every_tree_and_resolves() {
    on_paused_time(async {
        let world = World::new();
        let resting = world.rested(1).await;
        world.fakes.behave(|manners| manners.turn_takes = None);
        let working = world.open(2).await;
        let cut_off = world.say(working, "think").await;
        world.until(working, SessionState::Working).await;
        world.fakes.behave(|manners| manners.ready_takes = None);
        let starting = world.open(3).await;
        world.say(starting, "hello").await;
        pass(SECOND).await;
        assert_eq!(world.fakes.trees.standing(), 3);

        timeout(MINUTE, world.daemon.drain()).await.unwrap();
        assert_eq!(world.fakes.trees.standing(), 0);
        for id in [resting, working, starting] {
            assert!(!world.fakes.backends.is_heard(id));
            let saved = world.fakes.store.progress(id).unwrap();
            assert!(saved.running.is_none());
            assert!(!saved.state.is_awake(), "{:?}", saved.state);
        }
        // It was interrupted by protocol, and ended its turn well before its tree.
        assert_eq!(world.message_state(cut_off).await, MessageState::Failed);
    });
}

/// From the moment it begins, new sessions, messages and wakes are refused.
#[test]
fn a_drain_closes_admission() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        world.fakes.behave(|manners| manners.reap_takes = SECOND);
        let daemon = world.daemon.clone();
        let drain = actix_rt::spawn(async move { daemon.drain().await });
        settle().await;
        let daemon = &world.daemon;
        let refused = Refusal::Draining;
        assert_eq!(daemon.open(open(2)).await.unwrap_err(), refused);
        assert_eq!(daemon.send(id, message("x")).await.unwrap_err(), refused);
        assert_eq!(daemon.order(id, wake()).await.unwrap_err(), refused);
        let status = daemon.status().await.unwrap();
        assert!(status.draining && !status.ready);
        timeout(MINUTE, drain).await.unwrap().unwrap();
        let told = world.fakes.store.recorded();
        assert!(told.iter().any(|e| e.what == SessionEvent::Draining));
        timeout(SECOND, world.daemon.drain()).await.unwrap();
    });
}

/// A message that was accepted is kept for the next daemon, not delivered to a dying agent.
#[test]
fn what_waits_is_kept_for_the_next_daemon() {
    on_paused_time(async {
        let world = World::new();
        world.fakes.behave(|manners| manners.turn_takes = None);
        let id = world.open(1).await;
        world.say(id, "first").await;
        world.until(id, SessionState::Working).await;
        let second = world.say(id, "second").await;
        timeout(MINUTE, world.daemon.drain()).await.unwrap();
        assert_eq!(world.message_state(second).await, MessageState::Queued);
        assert_eq!(world.launches(), 1);
        assert_eq!(world.fakes.journal.count("backends: deliver"), 1);
    });
}

/// Nothing runs: there is nothing to wait for.
#[test]
fn a_drain_of_nothing_resolves_at_once() {
    on_paused_time(async {
        let world = World::new();
        world.open(1).await;
        timeout(SECOND, world.daemon.drain()).await.unwrap();
        assert_eq!(world.fakes.journal.count("trees: "), 0);
    });
}

/// A session that is being read from disk when the drain begins is ended like the others.
#[test]
fn a_session_that_loads_during_a_drain_never_starts() {
    on_paused_time(async {
        let world = World::new();
        let id = world.open(1).await;
        world.fakes.behave(|manners| manners.load_takes = MINUTE);
        world.say(id, "hello").await;
        timeout(HOUR, world.daemon.drain()).await.unwrap();
        pass(HOUR).await;
        assert_eq!(world.launches(), 0);
    });
}
