//! Agents as little scripts, their processes, and the reaper that ends them.

use std::time::Duration;

use drowse_messages::{
    AgentStatus, BootedIdentity, ChildExited, Conversation, Delivered, DeliveryResult, ExitStatus,
    LaunchFailed, Launched, MessageId, MessageState, MonoTime, ProcIdentity, ReapReport,
    ReapRequest, ReapStep, Running, SessionId, StatusChanged, Survivor, Task, TaskRoster,
    TreeEmptied, TurnEnded, TurnOutcome,
};
use drowse_policy::{BackendOrder, Input};

use crate::table::{Process, Role};
use crate::world::{Delivery, Lane, Owner, World};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// What an agent does next by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    GetReady,
    EndTurn { turn: u64 },
    EndTask,
    Exit,
}

/// One agent.
#[derive(Debug)]
pub(crate) struct Backend {
    /// The actor it reports to.
    actor: u64,
    turns: u64,
    /// The turn that runs: of a message, or of its own.
    turn: Option<Option<MessageId>>,
    has_task: bool,
}

impl Backend {
    pub(crate) fn message(&self) -> Option<MessageId> {
        self.turn.flatten()
    }
}

impl World {
    /// Starts an agent below its keeper.
    pub(crate) fn launch(&mut self, owner: Owner, actor: u64) {
        let (id, incarnation) = owner;
        if self.rng.chance(self.faults.launch_fails) {
            let failed = LaunchFailed {
                incarnation,
                error: "no such folder".to_owned(),
                retry: self.rng.chance(800),
            };
            return self.send(Lane::Link(id), Delivery::Fact(id, actor, failed.into()));
        }
        let keeper = self.spawn(owner, Role::Keeper, 1);
        let agent = self.spawn(owner, Role::Agent, keeper.pid());
        let booted = |process| BootedIdentity {
            boot_id: "boot".to_owned(),
            process,
        };
        let backend = Backend {
            actor,
            turns: 0,
            turn: None,
            has_task: false,
        };
        self.backends.insert(owner, backend);
        let launched = Launched {
            incarnation,
            running: Running {
                agent: booted(agent),
                keeper: booted(keeper),
                cgroup: None,
            },
        };
        self.tell(owner, launched);
        if !self.rng.chance(self.faults.never_ready) {
            let delay = self.rng.time(5 * SECOND);
            self.later(delay, Delivery::Agent(owner, Move::GetReady));
        }
        if self.rng.chance(self.faults.exits) {
            let delay = self.rng.time(HOUR);
            self.later(delay, Delivery::Agent(owner, Move::Exit));
        }
    }

    fn spawn(&mut self, owner: Owner, role: Role, parent: i32) -> ProcIdentity {
        let stuck = if role != Role::Keeper && self.rng.chance(self.faults.unkillable) {
            self.rng.time(24 * HOUR)
        } else {
            Duration::ZERO
        };
        self.table.spawn(Process {
            start_ticks: 0,
            parent,
            owner,
            role,
            ignores_term: self.rng.chance(self.faults.ignores_term),
            stuck_until: self.now.after(stuck),
        })
    }

    /// A fact about a backend, in order, and sometimes twice.
    fn tell(&mut self, owner: Owner, fact: impl Into<Input>) {
        let Some(actor) = self.backends.get(&owner).map(|backend| backend.actor) else {
            return;
        };
        let fact = fact.into();
        let line = matches!(fact, Input::StatusChanged(_) | Input::TaskRoster(_));
        if line && self.rng.chance(self.faults.doubled) {
            let again = Delivery::Fact(owner.0, actor, fact.clone());
            self.send(Lane::Link(owner.0), again);
        }
        self.send(Lane::Link(owner.0), Delivery::Fact(owner.0, actor, fact));
    }

    fn say(&mut self, owner: Owner, status: AgentStatus) {
        let incarnation = owner.1;
        self.tell(
            owner,
            StatusChanged {
                incarnation,
                status,
            },
        );
    }

    pub(crate) fn agent_does(&mut self, owner: Owner, what: Move) {
        if self.table.agent(owner).is_none() {
            return;
        }
        match what {
            Move::GetReady => {
                self.say(owner, AgentStatus::Ready);
                let conversation = Conversation {
                    native_id: owner.0.to_string(),
                    resumable: true,
                    ..Conversation::default()
                };
                self.say(owner, AgentStatus::Conversation(conversation));
                self.report_tasks(owner, false);
            }
            Move::EndTurn { turn } => {
                let runs = |backend: &&mut Backend| backend.turns == turn;
                if let Some(backend) = self.backends.get_mut(&owner).filter(runs)
                    && backend.turn.take().is_some()
                {
                    self.end_turn(owner, TurnOutcome::Completed);
                }
            }
            Move::EndTask => {
                self.report_tasks(owner, false);
                // Its end wakes the agent, unless it is at work.
                let idle = self.backends.get(&owner).is_some_and(|b| b.turn.is_none());
                if idle {
                    self.begin_turn(owner, None);
                }
            }
            Move::Exit => {
                if let Some(agent) = self.table.agent(owner) {
                    self.die(agent, ExitStatus::Code(1));
                }
            }
        }
    }

    fn report_tasks(&mut self, owner: Owner, some: bool) {
        if let Some(backend) = self.backends.get_mut(&owner) {
            backend.has_task = some;
        }
        let task = Task {
            id: "task".to_owned(),
            kind: "bash".to_owned(),
            description: "npm test".to_owned(),
            ambient: false,
        };
        let (incarnation, tasks) = (owner.1, some.then_some(task).into_iter().collect());
        self.tell(owner, TaskRoster { incarnation, tasks });
    }

    fn begin_turn(&mut self, owner: Owner, message: Option<MessageId>) {
        let Some(backend) = self.backends.get_mut(&owner) else {
            return;
        };
        backend.turns += 1;
        backend.turn = Some(message);
        let turn = backend.turns;
        self.say(owner, AgentStatus::TurnStarted);
        if !self.rng.chance(self.faults.hangs) {
            let delay = self.rng.time(HOUR);
            self.later(delay, Delivery::Agent(owner, Move::EndTurn { turn }));
        }
    }

    fn end_turn(&mut self, owner: Owner, outcome: TurnOutcome) {
        if self.rng.chance(self.faults.leaves_child)
            && let Some(agent) = self.table.agent(owner)
        {
            self.spawn(owner, Role::Child, agent.pid());
        }
        if self.rng.chance(200) {
            self.report_tasks(owner, true);
            if !self.rng.chance(self.faults.phantom_task) {
                let delay = self.rng.time(3 * HOUR);
                self.later(delay, Delivery::Agent(owner, Move::EndTask));
            }
        }
        let ended = TurnEnded {
            outcome,
            text: "done".to_owned(),
            answers: true,
            left: 0,
        };
        self.say(owner, AgentStatus::TurnEnded(ended));
    }

    /// From here on turns that hang end, and lost tasks are reported as gone.
    pub(crate) fn calm_agents(&mut self) {
        let owners: Vec<Owner> = self.backends.keys().copied().collect();
        for owner in owners {
            let turn = self.backends[&owner].turns;
            self.later(SECOND, Delivery::Agent(owner, Move::EndTurn { turn }));
        }
    }

    /// The backend is told something.
    pub(crate) fn hear(&mut self, owner: Owner, order: &BackendOrder) {
        let agent = self.table.agent(owner);
        match order {
            BackendOrder::Deliver(message) => self.deliver_message(owner, *message),
            BackendOrder::Interrupt => {
                let heeds = !self.rng.chance(self.faults.ignores_interrupt);
                let turn = self.backends.get_mut(&owner).and_then(|b| b.turn.as_ref());
                if heeds && turn.is_some() && agent.is_some() {
                    if let Some(backend) = self.backends.get_mut(&owner) {
                        backend.turn = None;
                    }
                    self.end_turn(owner, TurnOutcome::Interrupted);
                }
            }
            BackendOrder::Close => {
                let heeds = !self.rng.chance(self.faults.ignores_eof);
                if let Some(agent) = agent.filter(|_| heeds) {
                    let delay = self.rng.time(SECOND);
                    self.later(delay, Delivery::Die(agent, ExitStatus::Code(0)));
                }
            }
            BackendOrder::Dismiss => {
                if let Some(keeper) = self.table.keeper(owner) {
                    assert_eq!(self.table.below(keeper), [], "a keeper is dismissed");
                    self.table.end(keeper);
                }
                self.backends.remove(&owner);
            }
            // Nothing is kept in this world, and nobody has a host.
            BackendOrder::Retire { .. }
            | BackendOrder::OpenGate
            | BackendOrder::ShutGate { .. }
            | BackendOrder::Answer { .. }
            | BackendOrder::Withdraw { .. } => {}
        }
    }

    /// Marked delivered on disk first, then written.
    fn deliver_message(&mut self, owner: Owner, message: MessageId) {
        let (id, incarnation) = owner;
        let state = self
            .store
            .get_mut(&id)
            .and_then(|record| record.messages.get_mut(&message))
            .filter(|state| **state == MessageState::Queued);
        let alive = self.table.agent(owner).is_some();
        let result = match state {
            None => DeliveryResult::Void,
            Some(state) => {
                *state = MessageState::Delivered;
                if alive {
                    DeliveryResult::Written
                } else {
                    DeliveryResult::NotWritten
                }
            }
        };
        self.tell(
            owner,
            Delivered {
                incarnation,
                message,
                result,
            },
        );
        if result == DeliveryResult::Written {
            self.heard.note(id, message);
            self.begin_turn(owner, Some(message));
        }
    }

    /// A process ends, and its keeper tells.
    pub(crate) fn die(&mut self, process: ProcIdentity, status: ExitStatus) {
        let Some(dead) = self.table.end(process) else {
            return;
        };
        let owner = dead.owner;
        let incarnation = owner.1;
        if dead.role == Role::Agent {
            if let Some(backend) = self.backends.get_mut(&owner) {
                backend.turn = None;
            }
            let exited = ChildExited {
                incarnation,
                status: Some(status),
                stderr_tail: String::new(),
            };
            self.tell(owner, exited);
        }
        if let Some(keeper) = self.table.keeper(owner)
            && self.table.below(keeper).is_empty()
        {
            self.tell(owner, TreeEmptied { incarnation });
        }
    }

    /// One step of the reaper, and its answer.
    pub(crate) fn reap(&mut self, request: &ReapRequest, actor: u64) {
        let owner = (request.session, request.incarnation);
        let processes = self.table.below(request.keeper);
        if let Some(first) = processes.first()
            && self.rng.chance(self.faults.forks_in_walk)
        {
            self.spawn(owner, Role::Child, first.identity.pid());
        }
        match request.step {
            ReapStep::Look | ReapStep::Snapshot | ReapStep::Verify => {}
            ReapStep::Terminate => {
                for process in &processes {
                    let heeds = self.table.get(process.identity);
                    if heeds.is_some_and(|process| !process.ignores_term) {
                        let delay = self.rng.time(2 * SECOND);
                        let death = Delivery::Die(process.identity, ExitStatus::Signal(15));
                        self.later(delay, death);
                    }
                }
            }
            ReapStep::Kill => self.kill_below(request.keeper),
        }
        let left = self.table.below(request.keeper);
        let killed = request.step == ReapStep::Kill;
        let survivors = left.iter().filter(|_| killed).map(|process| Survivor {
            process: process.clone(),
            state: 'D',
            why: "uninterruptible".to_owned(),
        });
        let report = ReapReport {
            session: request.session,
            incarnation: request.incarnation,
            step: request.step,
            processes,
            survivors: survivors.collect(),
            kept: Vec::new(),
            empty: left.is_empty(),
            took: Duration::ZERO,
        };
        if !self.rng.chance(self.faults.lost_answer) {
            let answer = Delivery::Fact(request.session, actor, report.into());
            self.send(Lane::Reaper(request.session), answer);
        }
    }

    fn kill_below(&mut self, keeper: ProcIdentity) {
        for process in self.table.below(keeper) {
            let now: MonoTime = self.now;
            let found = self.table.get(process.identity);
            if found.is_some_and(|process| process.stuck_until <= now) {
                self.die(process.identity, ExitStatus::Signal(9));
            }
        }
    }

    /// Ends whatever runs for a session.
    pub(crate) fn end_all(&mut self, id: SessionId) {
        let owners: Vec<Owner> = self.backends.keys().copied().collect();
        for owner in owners.into_iter().filter(|owner| owner.0 == id) {
            self.backends.remove(&owner);
            if let Some(keeper) = self.table.keeper(owner) {
                for process in self.table.below(keeper) {
                    self.table.end(process.identity);
                }
                self.table.end(keeper);
            }
        }
    }
}
