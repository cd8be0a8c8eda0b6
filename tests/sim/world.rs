//! One daemon with its sessions, agents, processes, disk and clients, in virtual time.
//!
//! Actors are pairs of a state and its step; an effect becomes deliveries with a drawn delay. What
//! one sender tells one receiver keeps its order, everything else may be shuffled. Agents and
//! processes are in `agent.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use drowse_messages::{
    IdleTick, Incarnation, Limits, MessageId, MessageQueued, MessageState, MonoTime, Order,
    Priority, ProcIdentity, Progress, ReapRequest, SavedSession, SessionEvent, SessionId,
    SessionState, StartGranted, Stop, StopHow, Suspend, Who,
};
use drowse_policy::session::{AgentTraits, Session};
use drowse_policy::{Effect, Input, registry, trace};
use drowse_tests::rng::Rng;

use crate::agent::{Backend, Move};
use crate::checkers::{self, Heard};
use crate::client;
use crate::faults::Faults;
use crate::table::Table;

pub(crate) const STARTING_MAX: usize = 2;
pub(crate) const SESSIONS: u64 = 5;
/// Lines of the trace that are kept for a failure.
const TRACE_LINES: usize = 80;
/// More deliveries than this in one life are a loop.
const DELIVERIES_MAX: u64 = 200_000;

/// Something on its way.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    Registry(registry::Input, Option<Input>),
    /// Handed over by the registry to the actor with this number, and counted.
    Handed(SessionId, u64, Input),
    Leave(SessionId, u64),
    /// Told by a link or the reaper to the actor with this number.
    Fact(SessionId, u64, Input),
    Tick(SessionId, u64),
    Launch(SessionId, u64, Incarnation),
    Reap(ReapRequest, u64),
    Agent(Owner, Move),
    Die(ProcIdentity, drowse_messages::ExitStatus),
    Client,
    Drain,
}

pub(crate) type Owner = (SessionId, Incarnation);

/// Who speaks to whom: order is kept within one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    ToRegistry(SessionId),
    FromClients,
    FromRegistry(SessionId),
    Link(SessionId),
    Reaper(SessionId),
}

#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) session: Session,
    pub(crate) number: u64,
    handled: u64,
    armed: Option<MonoTime>,
}

/// A session on disk.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) saved: SavedSession,
    pub(crate) progress: Progress,
    pub(crate) messages: BTreeMap<MessageId, MessageState>,
    /// Its actor has panicked: what waits then waits for the next thing that concerns it.
    pub(crate) vanished: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: MonoTime,
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    pub(crate) table: Table,
    pub(crate) store: BTreeMap<SessionId, Record>,
    pub(crate) actors: BTreeMap<SessionId, Actor>,
    pub(crate) backends: BTreeMap<Owner, Backend>,
    pub(crate) granted: BTreeSet<SessionId>,
    pub(crate) heard: Heard,
    pub(crate) messages: u64,
    pub(crate) draining: bool,
    pub(crate) drained: bool,
    pub(crate) trace: VecDeque<String>,
    pub(crate) deliveries: u64,
    registry: Option<registry::Registry>,
    kept: BTreeMap<SessionId, Vec<Input>>,
    agenda: BTreeMap<(MonoTime, u64), Delivery>,
    lanes: BTreeMap<Lane, MonoTime>,
    numbers: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let faults = Faults::draw(&mut rng);
        let sessions = (1..=SESSIONS).map(SessionId::from_random);
        let store = sessions.map(|id| (id, client::new_record(id))).collect();
        let mut world = Self {
            now: MonoTime::from_millis(0),
            rng,
            faults,
            table: Table::default(),
            store,
            actors: BTreeMap::new(),
            backends: BTreeMap::new(),
            granted: BTreeSet::new(),
            heard: Heard::default(),
            messages: 0,
            draining: false,
            drained: false,
            trace: VecDeque::new(),
            deliveries: 0,
            registry: Some(registry::Registry::new(STARTING_MAX)),
            kept: BTreeMap::new(),
            agenda: BTreeMap::new(),
            lanes: BTreeMap::new(),
            numbers: 0,
        };
        world.feed_registry(registry::Input::Recovered, None);
        client::plan(&mut world);
        world
    }

    /// Faults all the time, then none: everything must settle.
    pub(crate) fn live(&mut self) {
        let mut calm = false;
        while let Some(((at, _), delivery)) = self.agenda.pop_first() {
            self.now = self.now.max(at);
            if !calm && self.rng.chance(self.faults.freezes) {
                self.now = self.now.after(Duration::from_secs(3 * 3600));
            }
            self.deliveries += 1;
            assert!(self.deliveries < DELIVERIES_MAX, "a loop");
            self.deliver(delivery);
            checkers::after_each(self);
            let over = !self
                .agenda
                .values()
                .any(|next| matches!(next, Delivery::Client | Delivery::Drain));
            if over && !calm {
                calm = true;
                self.faults = Faults::default();
                self.calm_agents();
            }
        }
        checkers::at_the_end(self);
    }

    pub(crate) fn later(&mut self, delay: Duration, delivery: Delivery) {
        self.numbers += 1;
        let at = self.now.after(delay);
        self.agenda.insert((at, self.numbers), delivery);
    }

    /// Sends in order with whatever went the same way before.
    pub(crate) fn send(&mut self, lane: Lane, delivery: Delivery) {
        let most = if self.rng.chance(self.faults.slow) {
            Duration::from_secs(15)
        } else {
            Duration::from_millis(20)
        };
        let delay = self.rng.time(most);
        let at = self.now.after(delay);
        let last = self.lanes.get(&lane).copied().unwrap_or_default();
        let at = at.max(last);
        self.lanes.insert(lane, at);
        self.later(at.since(self.now), delivery);
    }

    pub(crate) fn note(&mut self, line: String) {
        if self.trace.len() == TRACE_LINES {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    pub(crate) fn admits(&self) -> bool {
        self.registry
            .as_ref()
            .is_some_and(registry::Registry::admits)
    }

    fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Registry(input, parcel) => self.feed_registry(input, parcel),
            Delivery::Handed(id, number, input) => {
                if self.is_actor(id, number) {
                    self.handed(id, &input);
                }
            }
            Delivery::Leave(id, number) => {
                if self.is_actor(id, number) {
                    self.actors.remove(&id);
                    self.tell_registry(id, registry::Input::Gone { id, orderly: true });
                }
            }
            Delivery::Fact(id, number, input) => {
                if self.is_actor(id, number) {
                    self.feed(id, &input);
                }
            }
            Delivery::Tick(id, number) => {
                if self.is_actor(id, number) {
                    if let Some(actor) = self.actors.get_mut(&id) {
                        actor.armed = None;
                    }
                    self.feed(id, &IdleTick.into());
                }
            }
            Delivery::Launch(id, number, incarnation) => {
                if self.is_actor(id, number) {
                    self.launch((id, incarnation), number);
                }
            }
            Delivery::Reap(request, number) => self.reap(&request, number),
            Delivery::Agent(owner, what) => self.agent_does(owner, what),
            Delivery::Die(process, status) => self.die(process, status),
            Delivery::Client => client::act(self),
            Delivery::Drain => {
                self.draining = true;
                self.feed_registry(registry::Input::Drain, None);
            }
        }
    }

    fn is_actor(&self, id: SessionId, number: u64) -> bool {
        self.actors
            .get(&id)
            .is_some_and(|actor| actor.number == number)
    }

    fn handed(&mut self, id: SessionId, input: &Input) {
        if self.actors.contains_key(&id) && self.rng.chance(self.faults.vanishes) {
            self.actors.remove(&id);
            if let Some(record) = self.store.get_mut(&id) {
                record.vanished = true;
            }
            self.tell_registry(id, registry::Input::Gone { id, orderly: false });
        }
        if let Some(actor) = self.actors.get_mut(&id) {
            actor.handled += 1;
            self.feed(id, input);
        }
    }

    fn feed(&mut self, id: SessionId, input: &Input) {
        let Some(mut actor) = self.actors.remove(&id) else {
            return;
        };
        let (session, effects) = actor.session.step(input, self.now);
        self.note(format!("{id} {}", trace::line(self.now, input, &effects)));
        actor.session = session;
        for effect in effects {
            self.carry_out(id, &actor, effect);
        }
        let deadline = actor.session.next_deadline();
        if let Some(deadline) = deadline
            && actor.armed.is_none_or(|armed| armed > deadline)
        {
            actor.armed = Some(deadline);
            let late = self.rng.time(Duration::from_millis(200));
            let delay = deadline.since(self.now) + late;
            self.later(delay, Delivery::Tick(id, actor.number));
        }
        self.actors.insert(id, actor);
    }

    fn tell_registry(&mut self, id: SessionId, input: registry::Input) {
        self.send(Lane::ToRegistry(id), Delivery::Registry(input, None));
    }

    fn carry_out(&mut self, id: SessionId, actor: &Actor, effect: Effect) {
        let handled = actor.handled;
        match effect {
            Effect::AskStart => self.tell_registry(id, registry::Input::AskStart(id)),
            Effect::StartSettled => self.tell_registry(id, registry::Input::StartSettled(id)),
            Effect::Suspended => self.tell_registry(id, registry::Input::Suspended(id)),
            Effect::Sleep => self.tell_registry(id, registry::Input::MaySleep { id, handled }),
            Effect::Launch { incarnation, .. } => {
                let launch = Delivery::Launch(id, actor.number, incarnation);
                self.send(Lane::Link(id), launch);
            }
            Effect::Tell { incarnation, order } => self.hear((id, incarnation), &order),
            Effect::Reap(request) => {
                self.send(Lane::Reaper(id), Delivery::Reap(request, actor.number));
            }
            Effect::Settle { message, state, .. } => {
                if let Some(record) = self.store.get_mut(&id) {
                    let former = record.messages.get(&message).copied();
                    // One that is over can be announced so late that another actor hears of it, and
                    // cancels it. The store lets it be.
                    let again = former.is_some_and(|former| former.is_final());
                    assert!(
                        !again || state == MessageState::Cancelled,
                        "{message} ends twice"
                    );
                    if !again {
                        record.messages.insert(message, state);
                    }
                }
            }
            Effect::Save(progress) => {
                if let Some(record) = self.store.get_mut(&id) {
                    record.progress = *progress;
                }
            }
            Effect::Forget => drop(self.store.remove(&id)),
            Effect::Publish(event) => self.check_event(id, actor, &event),
            Effect::Refuse(_) | Effect::Watch(_) | Effect::EndHost(_) => {}
        }
    }

    fn check_event(&self, id: SessionId, actor: &Actor, event: &SessionEvent) {
        let owner = (id, actor.session.incarnation());
        if let SessionEvent::Released { .. } = event {
            let left = self.table.living().filter(|process| process.owner == owner);
            assert_eq!(left.count(), 0, "{id} is said to be released");
        }
        if let SessionEvent::Ending { reason, .. } = event
            && *reason == drowse_messages::Reason::Idle
        {
            let turn = self.backends.get(&owner).and_then(Backend::message);
            assert_eq!(turn, None, "{id} is said to be idle");
        }
    }

    fn feed_registry(&mut self, input: registry::Input, parcel: Option<Input>) {
        if let registry::Input::StartSettled(id) | registry::Input::Gone { id, .. } = input {
            self.granted.remove(&id);
        }
        if let registry::Input::Loaded(id) = input {
            self.make_actor(id);
        }
        let Some(registry) = self.registry.take() else {
            return;
        };
        let (registry, effects) = registry.step(input);
        self.registry = Some(registry);
        let mut parcel = parcel;
        for effect in effects {
            self.carry_out_for_registry(effect, &mut parcel);
        }
    }

    fn carry_out_for_registry(&mut self, effect: registry::Effect, parcel: &mut Option<Input>) {
        match effect {
            registry::Effect::Load(id) => {
                let found = self.store.contains_key(&id);
                let answer = if found {
                    registry::Input::Loaded(id)
                } else {
                    registry::Input::LoadFailed(id)
                };
                self.tell_registry(id, answer);
            }
            registry::Effect::Keep(id) => self.kept.entry(id).or_default().extend(parcel.take()),
            registry::Effect::Disown(id) => drop(self.kept.remove(&id)),
            registry::Effect::Hand(id) => {
                let kept = self.kept.remove(&id).unwrap_or_default();
                for input in kept.into_iter().chain(parcel.take()) {
                    self.hand(id, input);
                }
            }
            registry::Effect::Grant(id) => {
                self.granted.insert(id);
                self.hand(id, StartGranted);
            }
            registry::Effect::Suspend(id) => self.hand(id, Suspend),
            registry::Effect::Suspended => {}
            registry::Effect::ShutDown(id) => {
                let stop = Stop {
                    how: StopHow::Shutdown,
                    by: Who::Daemon,
                };
                self.hand(id, Order::Stop(stop));
            }
            registry::Effect::LetGo(id) => {
                if let Some(number) = self.actors.get(&id).map(|actor| actor.number) {
                    self.send(Lane::FromRegistry(id), Delivery::Leave(id, number));
                }
            }
            registry::Effect::Mourn(id) => self.mourn(id),
            registry::Effect::Drained => {
                assert!(self.actors.is_empty(), "drained with somebody awake");
                self.drained = true;
            }
        }
    }

    /// Into the mailbox of the actor there is now.
    fn hand(&mut self, id: SessionId, input: impl Into<Input>) {
        if let Some(number) = self.actors.get(&id).map(|actor| actor.number) {
            let handed = Delivery::Handed(id, number, input.into());
            self.send(Lane::FromRegistry(id), handed);
        }
    }

    fn make_actor(&mut self, id: SessionId) {
        let Some(record) = self.store.get(&id) else {
            return;
        };
        // What is kept will be handed over, in its place among the orders.
        let kept = self.kept.get(&id).map_or(&[][..], Vec::as_slice);
        let is_kept = |message| kept.contains(&announced(message).into());
        let waiting = record
            .messages
            .iter()
            .filter(|(message, state)| **state == MessageState::Queued && !is_kept(**message));
        let saved = SavedSession {
            progress: record.progress.clone(),
            queued: waiting.map(|(message, _)| announced(*message)).collect(),
            ..record.saved.clone()
        };
        let traits = AgentTraits {
            can_resume: true,
            reports_tasks: id.as_u64().is_multiple_of(2),
            observed: id.as_u64() % 4 == 1,
            steers: id.as_u64() % 3 == 1,
        };
        self.numbers += 1;
        let actor = Actor {
            session: Session::restore(&saved, traits, Limits::default(), self.now),
            number: self.numbers,
            handled: 0,
            armed: None,
        };
        let former = self.actors.insert(id, actor);
        assert!(former.is_none(), "a second actor for {id}");
    }

    /// The processes of a session whose actor vanished are ended, and that is written down.
    fn mourn(&mut self, id: SessionId) {
        self.end_all(id);
        if let Some(record) = self.store.get_mut(&id) {
            record.progress.running = None;
            if record.progress.state.is_awake() {
                record.progress.state = SessionState::Interrupted;
            }
            for state in record.messages.values_mut() {
                if *state == MessageState::Delivered {
                    *state = MessageState::Unknown;
                }
            }
        }
        self.tell_registry(id, registry::Input::Mourned(id));
    }
}

/// The announcement of a message. Its number decides how urgent it is.
pub(crate) fn announced(message: MessageId) -> MessageQueued {
    let priority = match message.0 % 8 {
        0 => Priority::Now,
        1..3 => Priority::Next,
        _ => Priority::Later,
    };
    MessageQueued { message, priority }
}
