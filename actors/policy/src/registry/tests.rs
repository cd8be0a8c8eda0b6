//! The registry's promises, as examples and against a model of the actors around it.

mod model;

use drowse_messages::SessionId;

use super::{Effect, Input, Registry};

fn id(n: u64) -> SessionId {
    SessionId::from_random(n)
}

fn serving(starting_max: usize) -> Registry {
    Registry::new(starting_max).step(Input::Recovered).0
}

/// A registry with one session that has an actor, which was handed one thing.
fn with_one() -> Registry {
    let (registry, _) = serving(1).step(Input::Arrived(id(1)));
    registry.step(Input::Loaded(id(1))).0
}

fn may_sleep(handled: u64) -> Input {
    Input::MaySleep { id: id(1), handled }
}

fn gone(orderly: bool) -> Input {
    Input::Gone { id: id(1), orderly }
}

/// E 78, D31: whatever arrives while a session is loaded waits for the one actor.
#[test]
fn a_session_is_loaded_once() {
    let (registry, fx) = serving(4).step(Input::Arrived(id(1)));
    assert_eq!(fx, [Effect::Load(id(1)), Effect::Keep(id(1))]);
    let (registry, fx) = registry.step(Input::Arrived(id(1)));
    assert_eq!(fx, [Effect::Keep(id(1))]);
    let (registry, fx) = registry.step(Input::Loaded(id(1)));
    assert_eq!(fx, [Effect::Hand(id(1))]);
    let (_, fx) = registry.step(Input::Arrived(id(1)));
    assert_eq!(fx, [Effect::Hand(id(1))]);
}

/// What arrives for a session there is not is refused, and nothing of it is remembered.
#[test]
fn an_unknown_session_is_disowned() {
    let (registry, _) = serving(4).step(Input::Arrived(id(1)));
    let (registry, fx) = registry.step(Input::LoadFailed(id(1)));
    assert_eq!(fx, [Effect::Disown(id(1))]);
    assert_eq!(registry, serving(4));
}

/// D30: an actor that has not handled all it was handed may not leave, and what arrives while it
/// leaves makes a new one.
#[test]
fn nothing_is_lost_when_an_actor_leaves() {
    let (registry, fx) = with_one().step(may_sleep(0));
    assert_eq!(fx, [], "one thing is still in its mailbox");
    let (registry, fx) = registry.step(may_sleep(1));
    assert_eq!(fx, [Effect::LetGo(id(1))]);
    let (registry, fx) = registry.step(Input::Arrived(id(1)));
    assert_eq!(fx, [Effect::Keep(id(1))]);
    let (_, fx) = registry.step(gone(true));
    assert_eq!(fx, [Effect::Load(id(1))]);
}

/// D43: starts are paced, in the order they were asked for.
#[test]
fn starts_are_paced() {
    let mut registry = serving(2);
    let mut granted = Vec::new();
    for n in 1..=4 {
        let (next, fx) = registry.step(Input::AskStart(id(n)));
        registry = next;
        granted.extend(fx);
    }
    assert_eq!(granted, [Effect::Grant(id(1)), Effect::Grant(id(2))]);
    let (registry, fx) = registry.step(Input::StartSettled(id(3)));
    assert_eq!(fx, [], "3 gave up waiting");
    let (_, fx) = registry.step(Input::StartSettled(id(1)));
    assert_eq!(fx, [Effect::Grant(id(4))]);
}

/// Starts wait for the end of the recovery, and a raised limit lets more of them go at once.
#[test]
fn starts_wait_for_the_recovery() {
    let mut registry = Registry::new(1);
    for n in 1..=3 {
        let (next, fx) = registry.step(Input::AskStart(id(n)));
        assert_eq!(fx, []);
        registry = next;
    }
    let (registry, fx) = registry.step(Input::Recovered);
    assert_eq!(fx, [Effect::Grant(id(1))]);
    assert!(registry.is_ready());
    let (_, fx) = registry.step(Input::StartingMax(3));
    assert_eq!(fx, [Effect::Grant(id(2)), Effect::Grant(id(3))]);
}

/// A vanished actor is a failed session: its tree is ended before it is loaded again.
#[test]
fn a_vanished_actor_is_mourned_first() {
    let (registry, fx) = with_one().step(gone(false));
    assert_eq!(fx, [Effect::Mourn(id(1))]);
    let (registry, fx) = registry.step(Input::Arrived(id(1)));
    assert_eq!(fx, [Effect::Keep(id(1))]);
    let (_, fx) = registry.step(Input::Mourned(id(1)));
    assert_eq!(fx, [Effect::Load(id(1))]);
}

/// D 59, F 87: draining closes admission in one step, starts nothing more, and ends when the last
/// session has.
#[test]
fn a_drain_ends_with_the_last_session() {
    let (registry, fx) = with_one().step(Input::Drain);
    assert_eq!(fx, [Effect::ShutDown(id(1))]);
    assert!(!registry.admits());
    let (registry, fx) = registry.step(Input::AskStart(id(1)));
    assert_eq!(fx, []);
    let (registry, fx) = registry.step(Input::Drain);
    assert_eq!(fx, [], "a second drain joins the first");
    let (registry, fx) = registry.step(may_sleep(2));
    assert_eq!(fx, [Effect::LetGo(id(1))]);
    let (_, fx) = registry.step(gone(true));
    assert_eq!(fx, [Effect::Drained]);
}

/// F 88: what was accepted just before a drain reaches its session with an order to shut down
/// behind it, so that it cannot wait for a start that never comes.
#[test]
fn a_message_during_a_drain_is_followed_by_a_shutdown() {
    let (registry, _) = with_one().step(Input::Drain);
    let (registry, fx) = registry.step(Input::Arrived(id(1)));
    assert_eq!(fx, [Effect::Hand(id(1)), Effect::ShutDown(id(1))]);
    let (registry, fx) = registry.step(Input::Arrived(id(2)));
    assert_eq!(fx, [Effect::Load(id(2)), Effect::Keep(id(2))]);
    let (_, fx) = registry.step(Input::Loaded(id(2)));
    assert_eq!(fx, [Effect::Hand(id(2)), Effect::ShutDown(id(2))]);
}

/// A drain of nobody is over at once.
#[test]
fn a_drain_of_nobody_is_over_at_once() {
    let (_, fx) = serving(1).step(Input::Drain);
    assert_eq!(fx, [Effect::Drained]);
}

/// F 88: a daemon that is to be replaced takes nothing new, starts nothing, and is done when each
/// session that is left can be left as it is.
#[test]
fn a_suspension_ends_when_every_session_can_be_left() {
    let (registry, fx) = with_one().step(Input::Suspend);
    assert_eq!(fx, [Effect::Suspend(id(1))]);
    assert!(!registry.admits() && !registry.takes_orders());
    let (registry, fx) = registry.step(Input::AskStart(id(1)));
    assert_eq!(fx, []);
    let (registry, fx) = registry.step(Input::Suspend);
    assert_eq!(fx, [], "a second one joins the first");
    let (registry, fx) = registry.step(Input::Suspended(id(1)));
    assert_eq!(fx, [Effect::Suspended]);
    // What was accepted just before reaches it with the news behind it.
    let (registry, fx) = registry.step(Input::Arrived(id(1)));
    assert_eq!(fx[..2], [Effect::Hand(id(1)), Effect::Suspend(id(1))]);
    let (registry, _) = registry.step(Input::Arrived(id(2)));
    let (registry, fx) = registry.step(Input::Loaded(id(2)));
    assert_eq!(fx, [Effect::Hand(id(2)), Effect::Suspend(id(2))]);
    // One that has nothing to be left goes.
    let handled = 2;
    let (registry, _) = registry.step(Input::MaySleep { id: id(2), handled });
    let gone = Input::Gone {
        id: id(2),
        orderly: true,
    };
    let (registry, fx) = registry.step(gone);
    assert_eq!(fx, [Effect::Suspended]);
    // Told to end after all, it drains.
    let (_, fx) = registry.step(Input::Drain);
    assert_eq!(fx, [Effect::ShutDown(id(1))]);
}

/// A suspension of nobody is over at once.
#[test]
fn a_suspension_of_nobody_is_over_at_once() {
    let (_, fx) = serving(1).step(Input::Suspend);
    assert_eq!(fx, [Effect::Suspended]);
}

/// D41: a session that was taken over has an actor, which is told; it may leave like any.
#[test]
fn an_adopted_session_is_here() {
    let (registry, fx) = Registry::new(1).step(Input::Adopted(id(1)));
    assert_eq!(fx, [Effect::Hand(id(1))]);
    let (registry, fx) = registry.step(Input::Recovered);
    assert_eq!(fx, []);
    let (_, fx) = registry.step(may_sleep(1));
    assert_eq!(fx, [Effect::LetGo(id(1))]);
}
