//! The world around one session: an agent with manners, its tree, and a reaper that does what it
//! is told. It answers effects; when the answers arrive is the caller's affair.

use std::collections::BTreeMap;
use std::time::Duration;

use drowse_messages::{
    AgentStatus, BootedIdentity, ChildExited, Conversation, Delivered, DeliveryResult, ExitStatus,
    Incarnation, LaunchFailed, Launched, Limit, MessageId, ProcIdentity, ProcReport, Profile,
    Progress, ReapReport, ReapRequest, ReapStep, Recipe, Running, SavedSession, SessionId,
    StartGranted, StatusChanged, Survivor, Task, TreeEmptied, TurnEnded, TurnOutcome,
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
        queued: queued.iter().copied().map(MessageId).collect(),
        state_since: drowse_messages::WallTime(0),
        last_active: drowse_messages::WallTime(0),
    }
}

pub(super) fn conversation(resumable: bool) -> Conversation {
    Conversation {
        native_id: "native-1".to_owned(),
        path: None,
        resumable,
    }
}

fn identity(pid: i32) -> BootedIdentity {
    BootedIdentity {
        boot_id: "boot".to_owned(),
        process: ProcIdentity::new(pid, 1).unwrap(),
    }
}

fn process(pid: i32) -> ProcReport {
    let identity = ProcIdentity::new(pid, 1).unwrap();
    ProcReport {
        pss_bytes: 1000,
        ..ProcReport::new(identity, 100, "fake".to_owned())
    }
}

/// The tree of one launch, and how it answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    pub(super) manners: Manners,
    incarnation: Incarnation,
    agent: bool,
    child: bool,
    pub(super) in_turn: bool,
    /// Somebody still stands below the keeper, or could.
    pub(super) tree: bool,
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
            in_turn: false,
            tree: false,
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
            Effect::Reap(request) => self.reap(request),
            Effect::Tell { .. }
            | Effect::StartSettled
            | Effect::Settle { .. }
            | Effect::Save(_)
            | Effect::Forget
            | Effect::Publish(_)
            | Effect::Refuse(_)
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
        self.child = self.manners.leaves_child;
        let launched = Launched {
            incarnation,
            running: Running {
                agent: identity(101),
                keeper: identity(100),
                cgroup: None,
            },
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
            BackendOrder::Interrupt
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
        if !self.child {
            answers.push((110, self.empties()));
        }
        answers
    }

    fn empties(&mut self) -> Input {
        (self.agent, self.child, self.tree) = (false, false, false);
        let incarnation = self.incarnation;
        TreeEmptied { incarnation }.into()
    }

    fn reap(&mut self, request: &ReapRequest) -> Vec<(u64, Input)> {
        let mut pids = Vec::new();
        pids.extend(self.agent.then_some(101));
        pids.extend(self.child.then_some(102));
        let processes: Vec<ProcReport> = pids.into_iter().map(process).collect();
        let mut answers = Vec::new();
        match request.step {
            ReapStep::Terminate if self.manners.heeds_term && self.tree => {
                if self.agent {
                    answers.extend(self.exits(ExitStatus::Signal(15)));
                }
                if self.child {
                    answers.push((120, self.empties()));
                }
            }
            ReapStep::Kill if self.manners.heeds_kill && self.tree => {
                let killed = self.exits(ExitStatus::Signal(9));
                // A keeper is as quick as the kernel: it speaks before the reaper has looked again.
                answers.extend(killed.into_iter().take(1).map(|(_, exited)| (2, exited)));
                answers.push((3, self.empties()));
            }
            ReapStep::Snapshot | ReapStep::Terminate | ReapStep::Kill | ReapStep::Verify => {}
        }
        if self.manners.reaper_answers {
            answers.push((20, self.report(request, processes).into()));
        }
        answers
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
    })
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
