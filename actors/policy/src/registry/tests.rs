//! The registry's promises.

use super::{Effect, Input, Registry};
use drowse_messages::SessionId;

fn id(n: u64) -> SessionId {
    SessionId::from_random(n)
}

fn serving(starting_max: usize) -> Registry {
    Registry::new(starting_max).step(Input::Recovered).0
}

/// Behaviour 78, D31: whatever arrives while a session is loaded waits for the one actor.
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

/// D30: an actor that has not handled all it was handed may not leave, and what arrives while it
/// leaves makes a new one.
#[test]
fn nothing_is_lost_when_an_actor_leaves() {
    let (registry, _) = serving(4).step(Input::Arrived(id(1)));
    let (registry, _) = registry.step(Input::Loaded(id(1)));
    let (registry, fx) = registry.step(Input::MaySleep {
        id: id(1),
        handled: 0,
    });
    assert_eq!(fx, [], "one thing is still in its mailbox");
    let (registry, fx) = registry.step(Input::MaySleep {
        id: id(1),
        handled: 1,
    });
    assert_eq!(fx, [Effect::LetGo(id(1))]);
    let (registry, fx) = registry.step(Input::Arrived(id(1)));
    assert_eq!(fx, [Effect::Keep(id(1))]);
    let (_, fx) = registry.step(Input::Gone {
        id: id(1),
        orderly: true,
    });
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

/// A vanished actor is a failed session: its tree is ended before it is loaded again.
#[test]
fn a_vanished_actor_is_mourned_first() {
    let (registry, _) = serving(4).step(Input::Arrived(id(1)));
    let (registry, _) = registry.step(Input::Loaded(id(1)));
    let (registry, fx) = registry.step(Input::Gone {
        id: id(1),
        orderly: false,
    });
    assert_eq!(fx, [Effect::Mourn(id(1))]);
    let (registry, fx) = registry.step(Input::Arrived(id(1)));
    assert_eq!(fx, [Effect::Keep(id(1))]);
    let (_, fx) = registry.step(Input::Mourned(id(1)));
    assert_eq!(fx, [Effect::Load(id(1))]);
}

/// Behaviours 59, 87: draining closes admission in one step, starts nothing more, and ends when
/// the last session has.
#[test]
fn a_drain_ends_with_the_last_session() {
    let (registry, _) = serving(1).step(Input::Arrived(id(1)));
    let (registry, _) = registry.step(Input::Loaded(id(1)));
    let (registry, fx) = registry.step(Input::Drain);
    assert_eq!(fx, [Effect::ShutDown(id(1))]);
    assert!(!registry.admits());
    let (registry, fx) = registry.step(Input::AskStart(id(1)));
    assert_eq!(fx, []);
    let (registry, fx) = registry.step(Input::MaySleep {
        id: id(1),
        handled: 0,
    });
    assert_eq!(fx, [Effect::LetGo(id(1))]);
    let (_, fx) = registry.step(Input::Gone {
        id: id(1),
        orderly: true,
    });
    assert_eq!(fx, [Effect::Drained]);
}
