//! Trees that stand or fall as told.
//!
//! Fed by the reaper (steps) and by the fake backends (which plant a tree at launch and fell it
//! when the agent obeys). Invariant: a tree that falls says so once, to whoever was told of its
//! launch, before the step that felled it is answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use drowse_messages::{
    BootedIdentity, ChildExited, ExitStatus, Incarnation, ProcIdentity, ProcReport, ReapReport,
    ReapRequest, ReapStep, Running, SessionId, Survivor, TreeEmptied, Usage,
};

use super::{Journal, Lock, SharedManners, lock};
use crate::ports::{Pending, ProcessTrees};
use crate::session::Facts;

/// The memory of each process of a fake tree, in bytes.
pub(super) const PSS_BYTES: u64 = 100 << 20;

#[derive(Clone, Debug)]
struct Tree {
    incarnation: Incarnation,
    processes: Vec<ProcReport>,
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
            processes: vec![process(agent, keeper), process(child, agent)],
            facts,
        };
        lock(&self.standing).insert(keeper, tree);
    }

    /// The whole tree ends: the exit and the emptiness are told.
    pub(super) fn fell(&self, keeper: ProcIdentity, status: ExitStatus) {
        let Some(tree) = lock(&self.standing).remove(&keeper) else {
            return;
        };
        let incarnation = tree.incarnation;
        let exited = ChildExited {
            incarnation,
            status: Some(status),
            stderr_tail: String::new(),
        };
        let emptied = TreeEmptied { incarnation };
        tree.facts
            .do_send(Facts(vec![exited.into(), emptied.into()]));
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
        let processes = self.processes(request.keeper);
        let manners = lock(&self.manners).clone();
        let (keeper, step) = (request.keeper, request.step);
        match step {
            ReapStep::Terminate if manners.obeys_term => self.fell(keeper, ExitStatus::Signal(15)),
            ReapStep::Kill if manners.obeys_kill => self.fell(keeper, ExitStatus::Signal(9)),
            ReapStep::Snapshot | ReapStep::Terminate | ReapStep::Kill | ReapStep::Verify => {}
        }
        let left = self.processes(keeper);
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
            kept: Vec::new(),
            empty: left.is_empty(),
            survivors: match step {
                ReapStep::Kill => left.into_iter().map(survivor).collect(),
                ReapStep::Snapshot | ReapStep::Terminate | ReapStep::Verify => Vec::new(),
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

    fn end_leftover(&self, running: Running) -> Pending<String> {
        let keeper = running.keeper.process;
        self.journal
            .note(format!("trees: end_leftover {}", keeper.pid()));
        let tree = lock(&self.standing).remove(&keeper);
        let ended = tree.map_or(0, |tree| tree.processes.len());
        Box::pin(async move { format!("{ended} processes ended") })
    }

    fn sweep(&self, _: Vec<BootedIdentity>) -> Pending<Vec<String>> {
        self.journal.note("trees: sweep".to_owned());
        Box::pin(async { Vec::new() })
    }
}
