//! The world around one session: an agent with manners, its tree, and a reaper that does what it
//! is told. It answers effects; when the answers arrive is the caller's affair.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drowse_messages::{
    AgentStatus, BootedIdentity, ChildExited, Conversation, Delivered, DeliveryResult, ExitStatus,
    HostChanged, Incarnation, Keep, KeepRule, KeptEnded, LaunchFailed, Launched, Limit, MessageId,
    MessageQueued, Order, Priority, ProcIdentity, ProcReport, Profile, Progress, ReapReport,
    ReapRequest, ReapStep, Recipe, Running, SavedSession, SessionId, StartGranted, StatusChanged,
    Survivor, Task, TreeEmptied, TurnEnded, TurnOutcome, Who,
};

use crate::{BackendOrder, Effect, Input};

/// What the fake agent and its reaper do when asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    /// The program can be executed.
    pub(super) launches: bool,
    pub(super) gets_ready: bool,
    pub(super) says_cannot_resume: bool,
    pub(super) heeds_interrupt: bool,
    pub(super) heeds_eof: bool,
    pub(super) heeds_term: bool,
    /// False: it sleeps uninterruptibly.
    pub(super) heeds_kill: bool,
    /// A child outlives the agent's exit.
    pub(super) leaves_child: bool,
    /// Another child does, and listens on port 3000.
    pub(super) serves: bool,
    pub(super) delivery: DeliveryResult,
    /// The reaper answers.
    pub(super) reaper_answers: bool,
}

pub(super) const OBEDIENT: Manners = Manners {
    launches: true,
    gets_ready: true,
    says_cannot_resume: false,
    heeds_interrupt: true,
    heeds_eof: true,
    heeds_term: true,
    heeds_kill: true,
    leaves_child: false,
    serves: false,
    delivery: DeliveryResult::Written,
    reaper_answers: true,
};

/// Ignores everything but SIGKILL.
pub(super) const DEAF: Manners = Manners {
    heeds_interrupt: false,
    heeds_eof: false,
    heeds_term: false,
    ..OBEDIENT
};

pub(super) fn saved(progress: Progress, queued: &[u64]) -> SavedSession {
    SavedSession {
        profile: Profile {
            id: SessionId::from_random(7),
            name: "story".to_owned(),
            recipe: Recipe {
                agent: "fake".parse().unwrap(),
                protocol: "fake".parse().unwrap(),
                argv: Vec::new(),
                cwd: "/".into(),
                env: BTreeMap::new(),
            },
            limits: drowse_messages::LimitOverrides::default(),
            created: drowse_messages::WallTime(0),
        },
        progress,
        queued: queued.iter().copied().map(later).collect(),
        state_since: drowse_messages::WallTime(0),
        last_active: drowse_messages::WallTime(0),
    }
}

pub(super) fn conversation(resumable: bool) -> Conversation {
    Conversation {
        native_id: "native-1".to_owned(),
        resumable,
        ..Conversation::default()
    }
}

/// The processes of each launch have the numbers of those before.
fn identity(pid: i32, of: Incarnation) -> BootedIdentity {
    BootedIdentity {
        boot_id: "boot".to_owned(),
        process: ProcIdentity::new(pid, u64::from(of.0)).unwrap(),
    }
}

fn running(of: Incarnation) -> Running {
    Running {
        agent: identity(101, of),
        keeper: identity(100, of),
        cgroup: None,
    }
}

/// The server of a launch.
pub(super) fn server(of: Incarnation) -> ProcReport {
    ProcReport {
        name: "node".to_owned(),
        listens: vec![3000],
        ..process(103, of)
    }
}

fn is_server(rule: &KeepRule, of: Incarnation) -> bool {
    match rule {
        KeepRule::Listen(port) => *port == 3000,
        KeepRule::Exe(name) => name == "node",
        KeepRule::Process(identity) => *identity == server(of).identity,
    }
}

fn process(pid: i32, of: Incarnation) -> ProcReport {
    let identity = identity(pid, of).process;
    ProcReport {
        pss_bytes: 1000,
        ..ProcReport::new(identity, 100, "fake".to_owned())
    }
}

/// The tree of one launch, and how it answers.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) manners: Manners,
    incarnation: Incarnation,
    agent: bool,
    child: bool,
    server: bool,
    /// Launches of which only the server is left, below a retired keeper.
    pub(super) kept: BTreeSet<Incarnation>,
    pub(super) in_turn: bool,
    /// Somebody still stands below the keeper, or could.
    pub(super) tree: bool,
    /// Others below the agent, for a look at it.
    pub(super) beside: Vec<ProcReport>,
    /// What the session asks for is checked; off where the session is lied to.
    pub(super) strict: bool,
}

impl World {
    pub(super) fn new(manners: Manners) -> Self {
        Self {
            manners,
            incarnation: Incarnation::default(),
            agent: false,
            child: false,
            server: false,
            kept: BTreeSet::new(),
            in_turn: false,
            tree: false,
            beside: Vec::new(),
            strict: true,
        }
    }

    /// What comes back for an effect, each with its delay in milliseconds.
    pub(super) fn answer(&mut self, effect: &Effect) -> Vec<(u64, Input)> {
        match effect {
            Effect::AskStart => vec![(0, StartGranted.into())],
            Effect::Launch { incarnation, .. } => self.launch(*incarnation),
            Effect::Tell { incarnation, order } if *incarnation == self.incarnation => {
                self.hear(order)
            }
            Effect::Tell {
                incarnation,
                order: BackendOrder::Dismiss,
            } => {
                assert!(
                    !(self.strict && self.kept.contains(incarnation)),
                    "dismissed with a server left"
                );
                Vec::new()
            }
            Effect::Reap(request) if self.kept.contains(&request.incarnation) => {
                self.reap_kept(request)
            }
            Effect::Reap(request) => self.reap(request),
            Effect::Watch(kept) if !self.kept.contains(&kept.incarnation) => {
                let incarnation = kept.incarnation;
                vec![(1, KeptEnded { incarnation }.into())]
            }
            Effect::Watch(_)
            | Effect::Tell { .. }
            | Effect::StartSettled
            | Effect::Settle { .. }
            | Effect::Save(_)
            | Effect::Forget
            | Effect::Publish(_)
            | Effect::Refuse(_)
            | Effect::EndHost(_)
            | Effect::Suspended
            | Effect::Sleep => Vec::new(),
        }
    }

    pub(super) fn says(&self, status: AgentStatus) -> Input {
        let incarnation = self.incarnation;
        StatusChanged {
            incarnation,
            status,
        }
        .into()
    }

    fn launch(&mut self, incarnation: Incarnation) -> Vec<(u64, Input)> {
        assert!(
            !(self.strict && self.tree),
            "a launch beside a tree that is still there"
        );
        self.incarnation = incarnation;
        if !self.manners.launches {
            let error = "no such folder".to_owned();
            let retry = true;
            let failed = LaunchFailed {
                incarnation,
                error,
                retry,
            };
            return vec![(10, failed.into())];
        }
        (self.agent, self.tree, self.in_turn) = (true, true, false);
        (self.child, self.server) = (self.manners.leaves_child, self.manners.serves);
        let running = running(incarnation);
        let launched = Launched {
            incarnation,
            running,
        };
        let mut answers = vec![(100, launched.into())];
        if self.manners.says_cannot_resume {
            let detail = "no conversation found".to_owned();
            answers.push((200, self.says(AgentStatus::CannotResume { detail })));
        } else if self.manners.gets_ready {
            answers.push((1000, self.says(AgentStatus::Ready)));
        }
        answers
    }

    fn hear(&mut self, order: &BackendOrder) -> Vec<(u64, Input)> {
        match order {
            BackendOrder::Deliver(message) => {
                let (incarnation, result) = (self.incarnation, self.manners.delivery);
                let delivered = Delivered {
                    incarnation,
                    message: *message,
                    result,
                };
                if result == DeliveryResult::Written {
                    self.in_turn = true;
                    let started = self.says(AgentStatus::TurnStarted);
                    vec![(1, delivered.into()), (2, started)]
                } else {
                    vec![(1, delivered.into())]
                }
            }
            BackendOrder::Interrupt if self.manners.heeds_interrupt && self.in_turn => {
                self.in_turn = false;
                vec![(50, self.says(ended(TurnOutcome::Interrupted)))]
            }
            BackendOrder::Close if self.manners.heeds_eof => self.exits(ExitStatus::Code(0)),
            BackendOrder::Dismiss => {
                assert!(!(self.strict && self.tree), "dismissed with somebody left");
                Vec::new()
            }
            BackendOrder::Retire { .. } => {
                assert!(self.server || !self.strict, "retired with nothing kept");
                if std::mem::take(&mut self.server) {
                    self.kept.insert(self.incarnation);
                }
                (self.agent, self.child, self.tree) = (false, false, false);
                Vec::new()
            }
            BackendOrder::OpenGate => vec![(1, HostChanged::Passed.into())],
            BackendOrder::Interrupt
            | BackendOrder::ShutGate { .. }
            | BackendOrder::Close
            | BackendOrder::Answer { .. }
            | BackendOrder::Withdraw { .. } => Vec::new(),
        }
    }

    /// The tree of an earlier daemon.
    pub(super) fn goes_on(&mut self, incarnation: Incarnation) {
        self.incarnation = incarnation;
        (self.agent, self.tree) = (true, true);
    }

    /// Somebody else ended all of it.
    pub(super) fn is_ended(&mut self) {
        (self.agent, self.child, self.tree) = (false, false, false);
    }

    /// The agent's process ends; the tree with it unless a child stays.
    pub(super) fn exits(&mut self, status: ExitStatus) -> Vec<(u64, Input)> {
        if !self.agent {
            return Vec::new();
        }
        (self.agent, self.in_turn) = (false, false);
        let incarnation = self.incarnation;
        let exited = ChildExited {
            incarnation,
            status: Some(status),
            stderr_tail: "last words".to_owned(),
        };
        let mut answers = vec![(100, exited.into())];
        if !self.child && !self.server {
            answers.push((110, self.empties()));
        }
        answers
    }

    fn empties(&mut self) -> Input {
        (self.agent, self.child, self.tree) = (false, false, false);
        self.server = false;
        let incarnation = self.incarnation;
        TreeEmptied { incarnation }.into()
    }

    fn reap(&mut self, request: &ReapRequest) -> Vec<(u64, Input)> {
        let of = self.incarnation;
        let mut processes = Vec::new();
        processes.extend(self.agent.then(|| process(101, of)));
        processes.extend(self.child.then(|| process(102, of)));
        let spared = self.server && request.keep.iter().any(|rule| is_server(rule, of));
        processes.extend((self.server && !spared).then(|| server(of)));
        if request.step == ReapStep::Look {
            for process in &mut processes {
                process.process_session = 101;
            }
            processes.extend(self.beside.iter().cloned());
        }
        let mut answers = Vec::new();
        match request.step {
            ReapStep::Terminate if self.manners.heeds_term && self.tree => {
                if self.agent {
                    answers.extend(self.exits(ExitStatus::Signal(15)));
                }
                (self.child, self.server) = (false, spared);
                if self.tree && !spared {
                    answers.push((120, self.empties()));
                }
            }
            ReapStep::Kill if self.manners.heeds_kill && self.tree => {
                let killed = self.exits(ExitStatus::Signal(9));
                // A keeper is as quick as the kernel: it speaks before the reaper has looked again.
                answers.extend(killed.into_iter().take(1).map(|(_, exited)| (2, exited)));
                (self.child, self.server) = (false, spared);
                if !spared {
                    answers.push((3, self.empties()));
                }
            }
            ReapStep::Look
            | ReapStep::Snapshot
            | ReapStep::Terminate
            | ReapStep::Kill
            | ReapStep::Verify => {}
        }
        if self.manners.reaper_answers {
            let mut report = self.report(request, processes);
            if spared {
                report.kept = vec![ProcReport {
                    // Only a snapshot looks for ports.
                    listens: match request.step {
                        ReapStep::Look | ReapStep::Snapshot => vec![3000],
                        ReapStep::Terminate | ReapStep::Kill | ReapStep::Verify => Vec::new(),
                    },
                    ..server(of)
                }];
                report.empty = !self.agent && !self.child;
            }
            if report.empty {
                report.survivors.clear();
            }
            answers.push((20, report.into()));
        }
        answers
    }

    /// A step on what is below a retired keeper.
    fn reap_kept(&mut self, request: &ReapRequest) -> Vec<(u64, Input)> {
        let of = request.incarnation;
        let spared = request.keep.iter().any(|rule| is_server(rule, of));
        let ends = match request.step {
            ReapStep::Terminate => self.manners.heeds_term,
            ReapStep::Kill => self.manners.heeds_kill,
            ReapStep::Look | ReapStep::Snapshot | ReapStep::Verify => false,
        };
        let mut answers = Vec::new();
        if ends && !spared {
            answers.push((5, self.end_server(of)));
        }
        if self.manners.reaper_answers {
            let mut report = self.report(request, Vec::new());
            report.empty = spared || !self.kept.contains(&of);
            if spared {
                report.kept.push(server(of));
            } else if !report.empty {
                report.processes.push(server(of));
            }
            answers.push((20, report.into()));
        }
        answers
    }

    /// A kept server ends: its keeper says that nothing is left.
    pub(super) fn end_server(&mut self, of: Incarnation) -> Input {
        self.kept.remove(&of);
        KeptEnded { incarnation: of }.into()
    }

    /// Somebody wants the server of the newest launch kept.
    pub(super) fn keep(&self, ttl: Option<Duration>) -> Order {
        let of = self.incarnation;
        Order::Keep(Keep {
            process: server(of),
            keeper: running(of).keeper.process,
            rule: KeepRule::Process(server(of).identity),
            ttl,
            by: Who::Client("me".to_owned()),
        })
    }

    pub(super) fn report(&self, request: &ReapRequest, processes: Vec<ProcReport>) -> ReapReport {
        let survivors = processes
            .iter()
            .filter(|_| request.step == ReapStep::Kill && self.tree)
            .map(|process| Survivor {
                process: process.clone(),
                state: 'D',
                why: "uninterruptible".to_owned(),
            })
            .collect();
        ReapReport {
            session: request.session,
            incarnation: request.incarnation,
            step: request.step,
            processes,
            survivors,
            kept: Vec::new(),
            empty: !self.tree,
            took: Duration::ZERO,
        }
    }
}

pub(super) fn ended(outcome: TurnOutcome) -> AgentStatus {
    AgentStatus::TurnEnded(TurnEnded {
        outcome,
        text: "done".to_owned(),
        answers: true,
        left: 0,
    })
}

/// A message of the ordinary kind.
pub(super) fn later(number: u64) -> MessageQueued {
    MessageQueued {
        message: MessageId(number),
        priority: Priority::Later,
    }
}

pub(super) fn task(id: &str) -> Task {
    Task {
        id: id.to_owned(),
        kind: "bash".to_owned(),
        description: format!("task {id}"),
        ambient: id.starts_with("ambient"),
    }
}

pub(super) fn after(seconds: u64) -> Limit {
    Limit::After(Duration::from_secs(seconds))
}
