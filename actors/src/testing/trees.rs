//! Trees that stand or fall as told.
//!
//! Fed by the reaper (steps) and by the fake backends (which plant a tree at launch and fell it
//! when the agent obeys). Invariant: a tree that falls says so once, to whoever was told of its
//! launch, before the step that felled it is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use drowse_messages::{
    ChildExited, ExitStatus, Incarnation, KeepRule, KeepTarget, KeptEnded, ProcIdentity,
    ProcReport, ReapReport, ReapRequest, ReapStep, Running, SessionId, Survivor, TreeEmptied,
    Usage,
};

use super::{Journal, Lock, SharedManners, lock};
use crate::ports::{Found, Pending, ProcessTrees};
use crate::session::Facts;

/// The memory of each process of a fake tree, in bytes.
pub(super) const PSS_BYTES: u64 = 100 << 20;

#[derive(Clone, Debug)]
struct Tree {
    incarnation: Incarnation,
    processes: Vec<ProcReport>,
    /// Those that the steps so far were told to leave alone.
    spared: Vec<ProcIdentity>,
    /// Only what is kept is left of it.
    retired: bool,
    facts: Recipient<Facts>,
}

/// Fake process trees.
#[derive(Clone, Debug)]
pub struct FakeTrees {
    journal: Journal,
    manners: SharedManners,
    standing: Arc<Lock<BTreeMap<ProcIdentity, Tree>>>,
}

impl FakeTrees {
    pub(super) fn new(journal: Journal, manners: SharedManners) -> Self {
        let standing = Arc::default();
        Self {
            journal,
            manners,
            standing,
        }
    }

    /// An agent with one child runs below a keeper.
    pub(super) fn plant(
        &self,
        running: &Running,
        incarnation: Incarnation,
        facts: Recipient<Facts>,
    ) {
        let (keeper, agent) = (running.keeper.process, running.agent.process);
        let child = ProcIdentity::new(agent.pid() + 1, agent.start_ticks())
            .expect("pids of fakes start at 1000");
        let process = |identity, parent: ProcIdentity| ProcReport {
            pss_bytes: PSS_BYTES,
            ..ProcReport::new(identity, parent.pid(), "fake-agent".to_owned())
        };
        let tree = Tree {
            incarnation,
            processes: vec![
                process(agent, keeper),
                ProcReport {
                    listens: lock(&self.manners).serves.into_iter().collect(),
                    ..process(child, agent)
                },
            ],
            spared: Vec::new(),
            retired: false,
            facts,
        };
        lock(&self.standing).insert(keeper, tree);
    }

    /// The whole tree ends: the exit and the emptiness are told.
    pub(super) fn fell(&self, keeper: ProcIdentity, status: ExitStatus) {
        let Some(tree) = self.take(keeper) else {
            return;
        };
        let incarnation = tree.incarnation;
        if tree.retired {
            let ended = KeptEnded { incarnation };
            return tree.facts.do_send(Facts(vec![ended.into()]));
        }
        let exited = ChildExited {
            incarnation,
            status: Some(status),
            stderr_tail: String::new(),
        };
        let mut facts = vec![exited.into()];
        if !self.stands(keeper) {
            facts.push(TreeEmptied { incarnation }.into());
        }
        tree.facts.do_send(Facts(facts));
    }

    /// Takes a tree away, or what of it is not to be spared.
    fn take(&self, keeper: ProcIdentity) -> Option<Tree> {
        let mut standing = lock(&self.standing);
        let tree = standing.get_mut(&keeper)?;
        let taken = tree.clone();
        let spared = &tree.spared;
        tree.processes.retain(|it| spared.contains(&it.identity));
        if tree.processes.is_empty() {
            standing.remove(&keeper);
        }
        Some(taken)
    }

    /// Its keeper stays only for what is kept.
    pub(super) fn retire(&self, keeper: ProcIdentity) {
        if let Some(tree) = lock(&self.standing).get_mut(&keeper) {
            tree.retired = true;
        }
    }

    /// Somebody else watches over a retired tree from now on; false when it is gone.
    pub(super) fn watch(&self, keeper: ProcIdentity, facts: Recipient<Facts>) -> bool {
        let mut standing = lock(&self.standing);
        let tree = standing.get_mut(&keeper);
        tree.map(|tree| tree.facts = facts).is_some()
    }

    /// What is kept ends by itself.
    pub fn end_kept(&self) {
        let mut standing = lock(&self.standing);
        let retired = standing.iter_mut().filter(|(_, tree)| tree.retired);
        let keepers: Vec<ProcIdentity> = retired
            .map(|(keeper, tree)| {
                tree.spared.clear();
                *keeper
            })
            .collect();
        drop(standing);
        for keeper in keepers {
            self.fell(keeper, ExitStatus::Code(0));
        }
    }

    /// Notes what a step is to leave alone, and says what of it there is.
    fn spare(&self, request: &ReapRequest) -> Vec<ProcReport> {
        let mut standing = lock(&self.standing);
        let Some(tree) = standing.get_mut(&request.keeper) else {
            return Vec::new();
        };
        let is_meant = |process: &&ProcReport| {
            request.keep.iter().any(|rule| match rule {
                KeepRule::Listen(port) => process.listens.contains(port),
                KeepRule::Exe(name) => process.name == *name,
                KeepRule::Process(identity) => process.identity == *identity,
            })
        };
        let kept: Vec<ProcReport> = tree.processes.iter().filter(is_meant).cloned().collect();
        tree.spared = kept.iter().map(|process| process.identity).collect();
        kept
    }

    pub(super) fn stands(&self, keeper: ProcIdentity) -> bool {
        lock(&self.standing).contains_key(&keeper)
    }

    /// How many trees stand.
    #[must_use]
    pub fn standing(&self) -> usize {
        lock(&self.standing).len()
    }

    fn processes(&self, keeper: ProcIdentity) -> Vec<ProcReport> {
        lock(&self.standing)
            .get(&keeper)
            .map(|tree| tree.processes.clone())
            .unwrap_or_default()
    }

    fn take_step(&self, request: &ReapRequest) -> ReapReport {
        let kept = self.spare(request);
        let others = |mut all: Vec<ProcReport>| {
            all.retain(|process| !kept.contains(process));
            all
        };
        let processes = others(self.processes(request.keeper));
        let manners = lock(&self.manners).clone();
        let (keeper, step) = (request.keeper, request.step);
        match step {
            ReapStep::Terminate if manners.obeys_term => self.fell(keeper, ExitStatus::Signal(15)),
            ReapStep::Kill if manners.obeys_kill => self.fell(keeper, ExitStatus::Signal(9)),
            ReapStep::Look
            | ReapStep::Snapshot
            | ReapStep::Terminate
            | ReapStep::Kill
            | ReapStep::Verify => {}
        }
        let left = others(self.processes(keeper));
        let survivor = |process: ProcReport| Survivor {
            process,
            state: 'D',
            why: "uninterruptible".to_owned(),
        };
        ReapReport {
            session: request.session,
            incarnation: request.incarnation,
            step,
            processes,
            kept: kept.clone(),
            empty: left.is_empty(),
            survivors: match step {
                ReapStep::Kill => left.into_iter().map(survivor).collect(),
                ReapStep::Look | ReapStep::Snapshot | ReapStep::Terminate | ReapStep::Verify => {
                    Vec::new()
                }
            },
            took: Duration::ZERO,
        }
    }
}

impl ProcessTrees for FakeTrees {
    fn reap(&self, request: ReapRequest, answer: Box<dyn FnOnce(ReapReport) + Send>) {
        self.journal
            .note(format!("trees: reap {:?}", request.step).to_lowercase());
        let (this, takes) = (self.clone(), lock(&self.manners).reap_takes);
        actix_rt::spawn(async move {
            tokio::time::sleep(takes).await;
            answer(this.take_step(&request));
        });
    }

    fn measure(
        &self,
        keepers: Vec<(SessionId, ProcIdentity)>,
    ) -> Pending<BTreeMap<SessionId, Usage>> {
        let usage = keepers.into_iter().map(|(id, keeper)| {
            let processes = self.processes(keeper);
            let usage = Usage {
                processes: u32::try_from(processes.len()).unwrap_or(u32::MAX),
                pss_bytes: processes.iter().map(|process| process.pss_bytes).sum(),
            };
            (id, usage)
        });
        let usage = usage.collect();
        Box::pin(async move { usage })
    }

    fn find(
        &self,
        target: KeepTarget,
        keepers: Vec<ProcIdentity>,
    ) -> Pending<Result<Found, String>> {
        let is_it = |process: &ProcReport| match target {
            KeepTarget::Pid(pid) => process.identity.pid() == pid,
            KeepTarget::Listen(port) => process.listens.contains(&port),
        };
        let found = keepers.into_iter().find_map(|keeper| {
            let process = self.processes(keeper).into_iter().find(is_it)?;
            Some(Found { keeper, process })
        });
        Box::pin(async move { found.ok_or_else(|| "belongs to no session".to_owned()) })
    }

    fn living(&self, processes: Vec<ProcIdentity>) -> Pending<BTreeSet<ProcIdentity>> {
        let standing = lock(&self.standing);
        let all = standing.values().flat_map(|tree| &tree.processes);
        let all: BTreeSet<ProcIdentity> = all.map(|process| process.identity).collect();
        let living = processes
            .into_iter()
            .filter(|it| all.contains(it))
            .collect();
        Box::pin(async move { living })
    }

    fn end_leftover(&self, running: Running) -> Pending<String> {
        let keeper = running.keeper.process;
        self.journal
            .note(format!("trees: end_leftover {}", keeper.pid()));
        let tree = lock(&self.standing).remove(&keeper);
        let ended = tree.map_or(0, |tree| tree.processes.len());
        Box::pin(async move { format!("{ended} processes ended") })
    }

    fn sweep(&self, _: Vec<Running>) -> Pending<Vec<String>> {
        self.journal.note("trees: sweep".to_owned());
        Box::pin(async { Vec::new() })
    }
}
