//! Agents that behave as told.
//!
//! Fed by sessions. A launched agent gets ready, answers each message with `re: ` and its text,
//! and ends when its stdin is closed, each after the time set in [`super::Manners`], or when the
//! test says so. Invariant: nothing is said by an agent whose tree has fallen.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::Recipient;
use drowse_messages::{
    Activity, ActivityKind, Adopted, AgentStatus, BootedIdentity, Conversation, Delivered,
    DeliveryResult, ExitStatus, HostChanged, HostEnd, Incarnation, Kept, KeptEnded, LaunchFailed,
    Launched, MessageId, ProcIdentity, Running, SessionId, StatusChanged, TurnEnded, TurnOutcome,
};
use drowse_policy::{BackendOrder, Input};

use super::{FakeStore, FakeTrees, Journal, SharedManners, lock};
use crate::ports::{Backends, Launch, Left, LocalPending, Store};
use crate::session::Facts;

/// One agent, or what is left of it.
#[derive(Clone, Debug)]
struct Agent {
    incarnation: Incarnation,
    running: Running,
    /// Whoever follows it now.
    facts: Rc<RefCell<Recipient<Facts>>>,
    /// The message it works on.
    in_flight: Rc<Cell<Option<MessageId>>>,
    trees: Arc<FakeTrees>,
}

impl Agent {
    fn say(&self, facts: Vec<Input>) {
        if self.trees.stands(self.running.keeper.process) {
            self.tell(facts);
        }
    }

    fn tell(&self, facts: Vec<Input>) {
        self.facts.borrow().do_send(Facts(facts));
    }

    fn status(&self, status: AgentStatus) -> Input {
        let incarnation = self.incarnation;
        StatusChanged {
            incarnation,
            status,
        }
        .into()
    }
}

/// Fake backends.
#[derive(Debug)]
pub struct FakeBackends {
    journal: Journal,
    manners: SharedManners,
    store: Arc<FakeStore>,
    trees: Arc<FakeTrees>,
    agents: RefCell<BTreeMap<SessionId, Agent>>,
    /// Far above what the rule against pids of 1 and less refuses.
    next_pid: Cell<i32>,
}

impl FakeBackends {
    pub(super) fn new(
        journal: Journal,
        manners: SharedManners,
        store: Arc<FakeStore>,
        trees: Arc<FakeTrees>,
    ) -> Self {
        Self {
            journal,
            manners,
            store,
            trees,
            agents: RefCell::default(),
            next_pid: Cell::new(1000),
        }
    }

    /// The newest agent of a session says something of itself.
    ///
    /// # Panics
    /// When the session was never launched.
    pub fn say(&self, session: SessionId, status: AgentStatus) {
        let agent = self.agent(session);
        agent.say(vec![agent.status(status)]);
    }

    /// It says a piece of its answer.
    ///
    /// # Panics
    /// When the session was never launched.
    pub fn print(&self, session: SessionId, text: &str) {
        let agent = self.agent(session);
        agent.say(vec![output(agent.incarnation, text)]);
    }

    /// It ends its turn well.
    ///
    /// # Panics
    /// When the session was never launched.
    pub fn end_turn(&self, session: SessionId, text: &str) {
        let agent = self.agent(session);
        agent.say(end_of_turn(&agent, session, text));
    }

    /// Its link says this, whatever it is and whether or not the agent lives.
    ///
    /// # Panics
    /// When the session was never launched.
    pub fn tell(&self, session: SessionId, facts: Vec<Input>) {
        self.agent(session).tell(facts);
    }

    /// It ends by itself, and its tree with it.
    ///
    /// # Panics
    /// When the session was never launched.
    pub fn exit(&self, session: SessionId, status: ExitStatus) {
        let keeper = self.agent(session).running.keeper.process;
        self.trees.fell(keeper, status);
    }

    /// It is gone, and nobody was there to hear of it.
    ///
    /// # Panics
    /// When the session was never launched.
    pub fn vanish(&self, session: SessionId) {
        self.agent(session);
        self.agents.borrow_mut().remove(&session);
    }

    /// Its newest launch.
    ///
    /// # Panics
    /// When the session was never launched.
    pub fn incarnation(&self, session: SessionId) -> Incarnation {
        self.agent(session).incarnation
    }

    /// True while the actor that launched it is there to hear it.
    ///
    /// # Panics
    /// When the session was never launched.
    pub fn is_heard(&self, session: SessionId) -> bool {
        self.agent(session).facts.borrow().connected()
    }

    fn agent(&self, session: SessionId) -> Agent {
        let agents = self.agents.borrow();
        agents
            .get(&session)
            .expect("the test launched it before")
            .clone()
    }

    fn note(&self, line: &str) {
        self.journal.note(format!("backends: {line}"));
        let mut manners = lock(&self.manners);
        if manners.panics_at.is_some_and(|at| line.starts_with(at)) {
            manners.panics_at = None;
            drop(manners);
            panic!("a fault on purpose at {line}");
        }
    }

    fn new_running(&self) -> Running {
        let first = self.next_pid.get();
        self.next_pid.set(first + 10);
        let identity = |pid| BootedIdentity {
            boot_id: "fake".to_owned(),
            process: ProcIdentity::new(pid, 7).expect("pids of fakes start at 1000"),
        };
        Running {
            keeper: identity(first),
            agent: identity(first + 1),
            cgroup: None,
        }
    }

    fn deliver(&self, agent: Agent, session: SessionId, message: MessageId) {
        let text = self.store.deliver(message);
        let takes = lock(&self.manners).turn_takes;
        actix_rt::spawn(async move {
            let text = text.await;
            let result = match text {
                Ok(_) => DeliveryResult::Written,
                Err(_) => DeliveryResult::Void,
            };
            let incarnation = agent.incarnation;
            let delivered = Delivered {
                incarnation,
                message,
                result,
            };
            agent.say(vec![delivered.into()]);
            let Ok(text) = text else { return };
            agent.in_flight.set(Some(message));
            agent.say(vec![agent.status(AgentStatus::TurnStarted)]);
            if let Some(takes) = takes {
                tokio::time::sleep(takes).await;
                agent.say(end_of_turn(&agent, session, &format!("re: {text}")));
            }
        });
    }
}

fn output(incarnation: Incarnation, text: &str) -> Input {
    Activity {
        incarnation: Some(incarnation),
        kind: ActivityKind::Output(text.to_owned()),
    }
    .into()
}

fn end_of_turn(agent: &Agent, session: SessionId, text: &str) -> Vec<Input> {
    let conversation = Conversation {
        native_id: format!("native-{session}"),
        resumable: true,
        ..Conversation::default()
    };
    let ended = TurnEnded {
        outcome: TurnOutcome::Completed,
        text: text.to_owned(),
        answers: true,
        left: 0,
    };
    agent.in_flight.set(None);
    vec![
        output(agent.incarnation, text),
        agent.status(AgentStatus::Conversation(conversation)),
        agent.status(AgentStatus::TurnEnded(ended)),
    ]
}

impl Backends for FakeBackends {
    fn launch(&self, launch: Launch, facts: Recipient<Facts>) {
        let how = launch.conversation.map_or_else(
            || "new".to_owned(),
            |conversation| format!("resume {}", conversation.native_id),
        );
        let incarnation = launch.incarnation;
        let relayed = if launch.relayed { " relayed" } else { "" };
        self.note(&format!("launch {incarnation} {how}{relayed}"));
        let manners = lock(&self.manners).clone();
        let agent = Agent {
            incarnation,
            running: self.new_running(),
            facts: Rc::new(RefCell::new(facts)),
            in_flight: Rc::default(),
            trees: self.trees.clone(),
        };
        self.agents
            .borrow_mut()
            .insert(launch.session, agent.clone());
        actix_rt::spawn(async move {
            tokio::time::sleep(manners.launch_takes).await;
            if let Some(error) = manners.launch_fails {
                let failed = LaunchFailed {
                    incarnation,
                    error,
                    retry: true,
                };
                return agent.tell(vec![failed.into()]);
            }
            let (trees, facts) = (&agent.trees, agent.facts.borrow().clone());
            trees.plant(&agent.running, incarnation, facts);
            let running = agent.running.clone();
            let launched = Launched {
                incarnation,
                running,
            };
            agent.say(vec![launched.into()]);
            if let Some(takes) = manners.ready_takes {
                tokio::time::sleep(takes).await;
                agent.say(vec![agent.status(AgentStatus::Ready)]);
            }
        });
    }

    fn order(&self, session: SessionId, incarnation: Incarnation, order: BackendOrder) {
        self.note(&in_words(&order));
        let agent = self.agent(session);
        if agent.incarnation != incarnation {
            return;
        }
        let obeys_close = lock(&self.manners).obeys_close;
        match order {
            BackendOrder::Deliver(message) => self.deliver(agent, session, message),
            BackendOrder::Interrupt => {
                let ended = TurnEnded {
                    outcome: TurnOutcome::Interrupted,
                    text: String::new(),
                    answers: true,
                    left: 0,
                };
                agent.say(vec![agent.status(AgentStatus::TurnEnded(ended))]);
            }
            BackendOrder::Close if obeys_close => {
                let keeper = agent.running.keeper.process;
                self.trees.fell(keeper, ExitStatus::Code(0));
            }
            BackendOrder::Close
            | BackendOrder::Answer { .. }
            | BackendOrder::Withdraw { .. }
            | BackendOrder::ShutGate { .. }
            | BackendOrder::Dismiss => {}
            // A host of a test says nothing but what the test itself makes of it.
            BackendOrder::OpenGate => agent.say(vec![HostChanged::Passed.into()]),
            BackendOrder::Retire { .. } => self.trees.retire(agent.running.keeper.process),
        }
    }

    fn end_host(&self, _: SessionId, end: HostEnd) {
        self.note(&format!("end host {end:?}").to_lowercase());
    }

    fn watch(&self, _: SessionId, kept: Kept, facts: Recipient<Facts>) {
        self.note(&format!("watch {}", kept.incarnation));
        if !self.trees.watch(kept.running.keeper.process, facts.clone()) {
            let incarnation = kept.incarnation;
            facts.do_send(Facts(vec![KeptEnded { incarnation }.into()]));
        }
    }

    fn adopt(&self, left: Left) -> LocalPending<Result<Adopted, String>> {
        self.note(&format!("adopt {}", left.incarnation));
        let agent = self.agents.borrow().get(&left.session).cloned();
        let lives = |agent: &Agent| self.trees.stands(agent.running.keeper.process);
        let agent = agent.filter(|agent| agent.incarnation == left.incarnation && lives(agent));
        let adopted = agent.ok_or_else(|| "it is gone".to_owned()).map(|agent| {
            let in_flight = agent.in_flight.get();
            let known = |message: &MessageId| in_flight == Some(*message);
            let (got, unknown): (Vec<_>, Vec<_>) = left.delivered.into_iter().partition(known);
            Adopted {
                incarnation: left.incarnation,
                running: left.running,
                ages: None,
                in_flight: got,
                on_its_way: false,
                unknown,
                tasks: None,
                statuses: Vec::new(),
            }
        });
        Box::pin(std::future::ready(adopted))
    }

    fn follow(&self, session: SessionId, incarnation: Incarnation, facts: Recipient<Facts>) {
        let agent = self.agent(session);
        agent.facts.replace(facts.clone());
        self.trees.plant(&agent.running, incarnation, facts);
    }

    fn suspend(&self) -> LocalPending<()> {
        self.note("suspend");
        Box::pin(std::future::ready(()))
    }

    fn end_strays(&self, _: Vec<(SessionId, Incarnation)>) -> LocalPending<Vec<String>> {
        self.note("end_strays");
        Box::pin(std::future::ready(Vec::new()))
    }
}

fn in_words(order: &BackendOrder) -> String {
    match order {
        BackendOrder::Deliver(message) => format!("deliver {message}"),
        BackendOrder::Interrupt => "interrupt".to_owned(),
        BackendOrder::Answer { id, answer } => format!("answer {id} {answer:?}").to_lowercase(),
        BackendOrder::Withdraw { id } => format!("withdraw {id}"),
        BackendOrder::Close => "close".to_owned(),
        BackendOrder::OpenGate => "open gate".to_owned(),
        BackendOrder::ShutGate { quiet: true } => "shut gate quietly".to_owned(),
        BackendOrder::ShutGate { quiet: false } => "shut gate".to_owned(),
        BackendOrder::Dismiss => "dismiss".to_owned(),
        BackendOrder::Retire { until } => format!("retire {until:?}"),
    }
}
