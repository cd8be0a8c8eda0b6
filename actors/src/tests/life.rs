//! A session's whole life, its one timer, and what happens when its actor vanishes.

use drowse_messages::{
    AgentStatus, ExitStatus, Limit, MessageState, Reason, SessionEvent, SessionState, TreeEmptied,
};

use super::steps::Steps;
use super::{HOUR, MINUTE, SECOND, World, on_paused_time, pass, settle};
use crate::testing::Fakes;

/// Behaviours 1 and 67 in one story: a message, an answer, a rest, a release, and the next
/// message takes the same conversation up. In between the session is nowhere but on disk.
#[test]
fn a_session_is_released_forgotten_and_resumed() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        assert!(world.fakes.backends.is_heard(id));
        world.until(id, SessionState::Released).await;
        settle().await;
        assert!(!world.fakes.backends.is_heard(id), "its actor is gone");
        assert_eq!(world.fakes.trees.standing(), 0);

        let (steps, loads) = (Steps::listen(), world.fakes.journal.count("store: load"));
        pass(1000 * HOUR).await;
        assert_eq!(steps.take(), Vec::<String>::new(), "no timer is left");
        assert_eq!(world.fakes.journal.count("store: load"), loads);

        let second = world.say(id, "again").await;
        world.until(id, SessionState::Resting).await;
        let orders = world.fakes.journal.of("backends: ");
        let resume = format!("launch #2 resume native-{id}");
        assert_eq!(orders[..2], ["launch #1 new", "deliver 1"]);
        assert_eq!(orders[4..], [resume, "deliver 2".to_owned()]);
        assert_eq!(world.message_state(second).await, MessageState::Answered);
        assert!(world.fakes.backends.is_heard(id));
    });
}

/// Behaviour 2: a session without a deadline arms no timer: not while it waits for its agent's turn, not at
/// rest with `idle_after` off.
#[test]
fn no_deadline_no_timer() {
    on_paused_time(async {
        let world = World::new();
        world
            .fakes
            .catalog
            .set_limits(|limits| limits.idle_after = Limit::Off);
        world.fakes.behave(|manners| manners.turn_takes = None);
        let id = world.open(1).await;
        world.say(id, "think for a month").await;
        world.until(id, SessionState::Working).await;
        let steps = Steps::listen();
        pass(720 * HOUR).await;
        // The one that was armed for the start.
        assert!(steps.take_ticks() <= 1);
        world.fakes.backends.end_turn(id, "done");
        settle().await;
        steps.take();
        pass(720 * HOUR).await;
        assert_eq!(steps.take_ticks(), 0);
        assert_eq!(world.report(id).await.state, SessionState::Resting);
    });
}

/// A busy session does not rebuild its timer: a thousand pieces of output cost it one tick per
/// window, and the tick that comes early does nothing but arm the next one (B 24: from within
/// itself, and never against itself).
#[test]
fn a_busy_session_ticks_once_per_window() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        let steps = Steps::listen();
        for _ in 0..1000 {
            world.fakes.backends.print(id, "still here");
            pass(6 * SECOND).await;
        }
        let ticks = steps.take_ticks();
        assert!((3..=5).contains(&ticks), "{ticks} ticks in 100 minutes");
        assert_eq!(world.report(id).await.state, SessionState::Resting);
    });
}

/// Activity that arrives in the very moment of the deadline is seen before the tick (design,
/// facts about actix): the session is not released.
#[test]
fn a_tick_comes_after_all_queued_activity() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        let report = world.report(id).await.awake.unwrap();
        let left = std::time::Duration::from_millis(report.releases_in_ms.unwrap());
        let steps = Steps::listen();
        // Past the deadline at once: the timer is due, and so is everything said here.
        tokio::time::advance(left + SECOND).await;
        world.fakes.backends.print(id, "a");
        world.fakes.backends.print(id, "b");
        settle().await;
        assert_eq!(steps.take_inputs(), ["activity", "activity", "tick"]);
        assert_eq!(world.report(id).await.state, SessionState::Resting);
    });
}

/// Facts of an older launch change nothing but a counter.
#[test]
fn late_facts_are_counted_and_ignored() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        let older = drowse_messages::Incarnation(0);
        let late = TreeEmptied { incarnation: older };
        world.fakes.backends.tell(id, vec![late.into()]);
        settle().await;
        let status = world.daemon.status().await.unwrap();
        assert_eq!(status.stale_facts_total, 1);
        assert_eq!(world.report(id).await.state, SessionState::Resting);
    });
}

/// An agent that dies mid-turn: the message's outcome is unknown, and it is not repeated.
#[test]
fn a_crash_mid_turn_leaves_the_message_unknown() {
    on_paused_time(async {
        let world = World::new();
        world.fakes.behave(|manners| manners.turn_takes = None);
        let id = world.open(1).await;
        let message = world.say(id, "hello").await;
        world.until(id, SessionState::Working).await;
        settle().await;
        world.fakes.backends.exit(id, ExitStatus::Signal(11));
        world.until(id, SessionState::Interrupted).await;
        assert_eq!(world.message_state(message).await, MessageState::Unknown);
        pass(HOUR).await;
        assert_eq!(world.launches(), 1);
        assert_eq!(world.fakes.journal.count("backends: deliver"), 1);
    });
}

/// A world where the second delivery is a fault of ours.
async fn vanished() -> (
    World,
    drowse_messages::SessionId,
    drowse_messages::MessageId,
) {
    let world = World::new();
    let id = world.rested(1).await;
    world
        .fakes
        .behave(|manners| manners.panics_at = Some("interrupt"));
    world.fakes.behave(|manners| manners.turn_takes = None);
    let message = world.say(id, "hello?").await;
    world.until(id, SessionState::Working).await;
    settle().await;
    let order = drowse_messages::Order::Interrupt(drowse_messages::Interrupt {
        by: super::client(),
    });
    let refused = world.daemon.order(id, order).await.unwrap_err();
    assert_eq!(refused.code(), "session_failed");
    pass(SECOND).await;
    (world, id, message)
}

/// A vanished actor is a failed session: its tree is ended, its record says so, whoever sent the
/// message learns that its outcome is unknown, and subscribers hear of all that.
#[test]
fn a_vanished_session_is_mourned() {
    on_paused_time(async {
        let (world, id, message) = vanished().await;
        assert_eq!(world.fakes.journal.count("trees: end_leftover"), 1);
        assert_eq!(world.fakes.trees.standing(), 0);
        assert_eq!(world.message_state(message).await, MessageState::Unknown);
        let report = world.report(id).await;
        assert_eq!(report.state, SessionState::Interrupted);
        assert!(report.awake.is_none());
        let end = report.end.unwrap();
        assert_eq!(end.reason, Reason::Crashed { status: None });
        assert!(end.mid_turn);
        let told = world.fakes.store.recorded();
        let told = |what: &dyn Fn(&SessionEvent) -> bool| told.iter().any(|e| what(&e.what));
        assert!(told(&|what| matches!(
            what,
            SessionEvent::MessageChanged {
                state: MessageState::Unknown,
                ..
            }
        )));
        assert!(told(&|what| matches!(
            what,
            SessionEvent::StateChanged {
                to: SessionState::Interrupted,
                ..
            }
        )));
    });
}

/// The next message to it works, in the same conversation.
#[test]
fn a_vanished_session_takes_the_next_message() {
    on_paused_time(async {
        let (world, id, _) = vanished().await;
        world
            .fakes
            .behave(|manners| manners.turn_takes = Some(SECOND));
        let next = world.say(id, "hello again").await;
        world.until(id, SessionState::Resting).await;
        assert_eq!(world.message_state(next).await, MessageState::Answered);
        assert_eq!(world.launches(), 2);
        assert_eq!(world.count_of(SessionState::Resting).await, 1);
        assert_eq!(world.count_of(SessionState::Working).await, 0);
        assert_eq!(world.count_of(SessionState::Interrupted).await, 0);
    });
}

/// A fault in the launch itself: the session is not lost, and other sessions notice nothing.
#[test]
fn a_fault_at_launch_touches_no_other_session() {
    on_paused_time(async {
        let world = World::new();
        let other = world.rested(2).await;
        let id = world.open(1).await;
        world
            .fakes
            .behave(|manners| manners.panics_at = Some("launch"));
        world.say(id, "hello").await;
        pass(SECOND).await;
        assert_eq!(world.report(id).await.state, SessionState::Released);
        assert_eq!(world.report(other).await.state, SessionState::Resting);
        world.say(id, "and now?").await;
        world.until(id, SessionState::Working).await;
        pass(MINUTE).await;
        let answered = world.fakes.journal.count("store: settle");
        assert_eq!(answered, 3, "both messages and the other session's");
    });
}

/// Behaviour 6: limits are no wider than the clock: the largest limits there are do not fire.
#[test]
fn the_largest_limits_do_not_overflow() {
    on_paused_time(async {
        let world = World::new();
        let most = std::time::Duration::from_millis(u64::MAX - 10_000_000_000);
        world.fakes.catalog.set_limits(|limits| {
            limits.idle_after = Limit::After(most);
            limits.hard_limit = Limit::After(most);
        });
        let id = world.rested(1).await;
        pass(1000 * HOUR).await;
        assert_eq!(world.report(id).await.state, SessionState::Resting);
        world.fakes.backends.say(id, AgentStatus::TurnStarted);
        world.until(id, SessionState::Working).await;
    });
}

/// A daemon that finds messages on disk delivers them without being asked.
#[test]
fn messages_of_an_earlier_daemon_are_delivered() {
    on_paused_time(async {
        use crate::ports::{Recovered, Store};
        let fakes = Fakes::new();
        let earlier = fakes.serve();
        let id = earlier.open(crate::testing::open(1)).await.unwrap().id;
        let waiting = fakes.store.enqueue(id, crate::testing::message("hello"));
        let message = waiting.await.unwrap().message;
        let recovered = Recovered {
            queued: vec![id],
            states: fakes.store.states(),
            next_seq: 100,
            ..Recovered::default()
        };
        let daemon = fakes.serve_after(recovered);
        let world = World { fakes, daemon };
        world.until(id, SessionState::Resting).await;
        assert_eq!(world.message_state(message).await, MessageState::Answered);
        assert_eq!(world.count_of(SessionState::New).await, 0);
        assert_eq!(world.launches(), 1);
    });
}
