//! The registry among actors that load, want to start, sleep, vanish and are handed things, in
//! any order that mailboxes allow: each sender's messages keep their order, nothing else does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use drowse_messages::SessionId;
use proptest::prelude::*;

use super::super::{Effect, Input, Registry};
use super::id;

const STARTING_MAX: usize = 2;

#[derive(Clone, Debug)]
enum Act {
    /// Something arrives for a session.
    Arrive(u64),
    /// The actor of a session takes the next thing out of its mailbox.
    Handle(u64),
    /// The registry takes the next thing that a session, or the store, told it.
    Hear(u64),
    /// The same, and because of it the session wants to start.
    HandleAndWant(u64),
    /// A session does not want to start any more.
    Settle(u64),
    /// The actor of a session panics.
    Vanish(u64),
    Drain,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let session = || 0..4_u64;
    let act = prop_oneof![
        6 => session().prop_map(Act::Arrive),
        9 => session().prop_map(Act::Handle),
        9 => session().prop_map(Act::Hear),
        3 => session().prop_map(Act::HandleAndWant),
        2 => session().prop_map(Act::Settle),
        1 => session().prop_map(Act::Vanish),
    ];
    // A drain is rare: what comes after it is another life.
    let acts = prop::collection::vec(act, 1..150);
    (acts, 0..300_usize).prop_map(|(mut acts, drain)| {
        if drain < acts.len() {
            acts.insert(drain, Act::Drain);
        }
        acts
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letter {
    /// Something that arrived, by its number.
    Arrived(u64),
    Grant,
    ShutDown,
    Leave,
}

/// An actor with its mailbox.
#[derive(Debug, Default)]
struct Actor {
    mailbox: VecDeque<Letter>,
    handled: u64,
    wants: bool,
}

/// Everything around the registry.
#[derive(Debug)]
struct Model {
    registry: Option<Registry>,
    actors: BTreeMap<SessionId, Actor>,
    /// What is on its way to the registry, by sender.
    said: BTreeMap<SessionId, VecDeque<Input>>,
    kept: BTreeMap<SessionId, Vec<u64>>,
    arrivals: u64,
    /// Things that were handled, or died in the mailbox of an actor that vanished.
    done: BTreeSet<u64>,
    granted: BTreeSet<SessionId>,
    draining: bool,
    drained: bool,
}

impl Model {
    fn new() -> Self {
        Self {
            registry: Some(Registry::new(STARTING_MAX).step(Input::Recovered).0),
            actors: BTreeMap::new(),
            said: BTreeMap::new(),
            kept: BTreeMap::new(),
            arrivals: 0,
            done: BTreeSet::new(),
            granted: BTreeSet::new(),
            draining: false,
            drained: false,
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Arrive(n) => {
                self.arrivals += 1;
                let arrival = self.arrivals;
                self.feed(Input::Arrived(id(n)), Some(arrival));
            }
            Act::Handle(n) => self.handle(id(n), false),
            Act::Hear(n) => self.hear(id(n)),
            Act::HandleAndWant(n) => self.handle(id(n), true),
            Act::Settle(n) => self.want(id(n), false),
            Act::Vanish(n) => self.vanish(id(n)),
            Act::Drain => {
                self.draining = true;
                self.feed(Input::Drain, None);
            }
        }
    }

    fn say(&mut self, id: SessionId, input: Input) {
        self.said.entry(id).or_default().push_back(input);
    }

    fn hear(&mut self, id: SessionId) {
        let Some(input) = self.said.get_mut(&id).and_then(VecDeque::pop_front) else {
            return;
        };
        match input {
            Input::StartSettled(id) | Input::Gone { id, .. } => {
                self.granted.remove(&id);
            }
            Input::Loaded(id) => {
                let former = self.actors.insert(id, Actor::default());
                assert!(former.is_none(), "a second actor for one session");
            }
            Input::Recovered
            | Input::Arrived(_)
            | Input::LoadFailed(_)
            | Input::AskStart(_)
            | Input::MaySleep { .. }
            | Input::Mourned(_)
            | Input::StartingMax(_)
            | Input::Adopted(_)
            | Input::Suspend
            | Input::Suspended(_)
            | Input::HostCame(..)
            | Input::HostWent(_)
            | Input::Drain => {}
        }
        self.feed(input, None);
    }

    fn feed(&mut self, input: Input, arrival: Option<u64>) {
        let (registry, effects) = self.registry.take().unwrap().step(input);
        self.registry = Some(registry);
        for effect in effects {
            self.carry_out(effect, arrival);
        }
        assert!(self.granted.len() <= STARTING_MAX);
    }

    fn carry_out(&mut self, effect: Effect, arrival: Option<u64>) {
        match effect {
            Effect::Load(id) => self.say(id, Input::Loaded(id)),
            Effect::Keep(id) => {
                let kept = self.kept.entry(id).or_default();
                kept.extend(arrival);
            }
            Effect::Hand(id) => {
                let kept = self.kept.remove(&id).unwrap_or_default();
                for arrival in kept.into_iter().chain(arrival) {
                    if self.actors.contains_key(&id) {
                        self.post(id, Letter::Arrived(arrival));
                    } else {
                        // It has vanished, and the registry has not heard of it yet.
                        self.done.insert(arrival);
                    }
                }
            }
            Effect::Grant(id) => {
                assert!(!self.draining, "a start while draining");
                assert!(self.granted.insert(id), "granted twice");
                self.post(id, Letter::Grant);
            }
            Effect::ShutDown(id) => self.post(id, Letter::ShutDown),
            Effect::Suspend(_) | Effect::Suspended => panic!("nobody asked for it"),
            Effect::LetGo(id) => self.post(id, Letter::Leave),
            Effect::Mourn(id) => {
                assert!(!self.actors.contains_key(&id), "mourned alive");
                self.say(id, Input::Mourned(id));
            }
            Effect::Disown(_) => panic!("every session can be loaded here"),
            Effect::Drained => {
                assert!(self.draining && self.actors.is_empty());
                self.drained = true;
            }
        }
    }

    fn post(&mut self, id: SessionId, letter: Letter) {
        if let Some(actor) = self.actors.get_mut(&id) {
            actor.mailbox.push_back(letter);
        }
    }

    fn handle(&mut self, id: SessionId, wants: bool) {
        let Some(actor) = self.actors.get_mut(&id) else {
            return;
        };
        let Some(letter) = actor.mailbox.pop_front() else {
            return;
        };
        if letter == Letter::Leave {
            assert!(actor.mailbox.is_empty(), "it leaves with things unread");
            self.actors.remove(&id);
            self.say(id, Input::Gone { id, orderly: true });
            return;
        }
        actor.handled += 1;
        let settles = actor.wants && letter != Letter::Grant;
        match letter {
            Letter::Arrived(arrival) => {
                assert!(self.done.insert(arrival), "handled twice");
                if wants {
                    self.want(id, true);
                }
            }
            Letter::ShutDown if settles => self.want(id, false),
            Letter::Grant | Letter::ShutDown | Letter::Leave => {}
        }
        self.rest(id);
    }

    /// An actor that wants nothing may sleep, and says so after everything it handles.
    fn rest(&mut self, id: SessionId) {
        let actor = &self.actors[&id];
        if !actor.wants {
            let handled = actor.handled;
            self.say(id, Input::MaySleep { id, handled });
        }
    }

    fn want(&mut self, id: SessionId, wants: bool) {
        let Some(actor) = self.actors.get_mut(&id) else {
            return;
        };
        // While the daemon ends, nothing starts any more.
        if actor.wants != wants && !(wants && self.draining) {
            actor.wants = wants;
            let input = if wants {
                Input::AskStart(id)
            } else {
                Input::StartSettled(id)
            };
            self.say(id, input);
            self.rest(id);
        }
    }

    fn vanish(&mut self, id: SessionId) {
        if let Some(actor) = self.actors.remove(&id) {
            for letter in actor.mailbox {
                if let Letter::Arrived(arrival) = letter {
                    self.done.insert(arrival);
                }
            }
            self.say(id, Input::Gone { id, orderly: false });
        }
    }

    /// Every actor does what it has to, and every message is heard.
    fn settle(&mut self) {
        for _ in 0..2_000 {
            for n in 0..4 {
                self.want(id(n), false);
                self.handle(id(n), false);
                self.hear(id(n));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(512),
        ..ProptestConfig::default()
    })]

    /// Nothing that arrives is lost or handled twice; a session has one actor at most; no more
    /// than `starting_max` start at once; an actor leaves with nothing unread; and in the end
    /// everything is asleep, or drained.
    #[test]
    fn nothing_is_lost_among_actors(acts in acts()) {
        let mut model = Model::new();
        for act in &acts {
            model.act(act);
        }
        model.settle();
        let all: BTreeSet<u64> = (1..=model.arrivals).collect();
        prop_assert_eq!(&model.done, &all);
        prop_assert!(model.actors.is_empty(), "{:?}", model);
        prop_assert_eq!(model.draining, model.drained);
    }
}
