//! The process trees of this machine, as the reaper actor asks for them.
//!
//! Fed by the actors, through the `ProcessTrees` port; the blocking work is done by the threads of
//! [`ReaperPool`]. Invariant: a step is answered exactly once, also when the pool is full.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use drowse_actors::ports::{Found, Pending, ProcessTrees};
use drowse_messages::{
    KeepTarget, ProcIdentity, ReapReport, ReapRequest, Running, SessionId, Usage,
};
use tokio::sync::oneshot;

use crate::process::cgroup::Cgroup;
use crate::process::cgroup::place::{self, Cgroups};
use crate::process::find::{find_below, living};
use crate::process::reap::{Leftover, end_leftover};
use crate::process::reaper::ReaperPool;
use crate::process::sweep::{Mark, sweep_marked};

/// See the module.
#[derive(Debug)]
pub(crate) struct LocalTrees {
    pool: Arc<ReaperPool>,
    /// The environment entry that marks this daemon's agents.
    mark: String,
    /// Where this daemon's cgroups are, where there are any.
    cgroups: Option<Cgroups>,
}

impl LocalTrees {
    pub(crate) fn new(pool: Arc<ReaperPool>, mark: String, cgroups: Option<Cgroups>) -> Self {
        Self {
            pool,
            mark,
            cgroups,
        }
    }

    /// A path that may come from the disk, if it is one of ours.
    fn owned(&self, path: Option<PathBuf>) -> Option<PathBuf> {
        let cgroups = self.cgroups.as_ref()?;
        path.filter(|path| cgroups.owns(path))
    }
}

/// Runs blocking work off the arbiter; `lost` stands for its answer if the thread panicked.
fn blocking<T: Send + 'static>(lost: T, work: impl FnOnce() -> T + Send + 'static) -> Pending<T> {
    let task = tokio::task::spawn_blocking(work);
    Box::pin(async move { task.await.unwrap_or(lost) })
}

impl ProcessTrees for LocalTrees {
    fn reap(&self, mut request: ReapRequest, answer: Box<dyn FnOnce(ReapReport) + Send>) {
        request.cgroup = self.owned(request.cgroup);
        self.pool.submit(request, answer);
    }

    fn measure(
        &self,
        keepers: Vec<(SessionId, ProcIdentity)>,
    ) -> Pending<BTreeMap<SessionId, Usage>> {
        if keepers.is_empty() {
            return Box::pin(std::future::ready(BTreeMap::new()));
        }
        let (reply, answer) = oneshot::channel();
        let sessions: BTreeMap<ProcIdentity, SessionId> = keepers
            .iter()
            .map(|(session, keeper)| (*keeper, *session))
            .collect();
        let trees = keepers.into_iter().map(|(_, keeper)| keeper).collect();
        let full = self.pool.measure(
            trees,
            Box::new(move |usages| {
                // Whoever asked may have gone meanwhile.
                let _gone = reply.send(usages);
            }),
        );
        if full.is_err() {
            return Box::pin(std::future::ready(BTreeMap::new()));
        }
        Box::pin(async move {
            let usages = answer.await.unwrap_or_default();
            let usage_of = |tree: crate::process::reaper::TreeUsage| {
                let processes = u32::try_from(tree.processes).unwrap_or(u32::MAX);
                let usage = Usage {
                    processes,
                    pss_bytes: tree.pss_bytes,
                };
                Some((*sessions.get(&tree.keeper)?, usage))
            };
            usages.into_iter().filter_map(usage_of).collect()
        })
    }

    fn find(
        &self,
        target: KeepTarget,
        keepers: Vec<ProcIdentity>,
    ) -> Pending<Result<Found, String>> {
        blocking(Err("looking for it failed".to_owned()), move || {
            let (keeper, process) = find_below(target, &keepers)?;
            Ok(Found { keeper, process })
        })
    }

    fn living(&self, processes: Vec<ProcIdentity>) -> Pending<BTreeSet<ProcIdentity>> {
        let lost = processes.iter().copied().collect();
        blocking(lost, move || living(processes).into_iter().collect())
    }

    fn end_leftover(&self, running: Running) -> Pending<String> {
        let path = self.owned(running.cgroup);
        blocking("ending it failed".to_owned(), move || {
            let cgroup = path.as_deref().and_then(|path| Cgroup::open(path).ok());
            let ended = end_leftover(&running.keeper, cgroup);
            if let Some(path) = path {
                place::remove(&path);
            }
            match ended {
                Ok(Leftover::Gone) => "its keeper is gone".to_owned(),
                Ok(Leftover::IdentityDiffers) => "gone, identity differs".to_owned(),
                Ok(Leftover::Ended(outcome)) => format!(
                    "ended {} processes, {} could not be ended",
                    outcome.processes.len(),
                    outcome.survivors.len()
                ),
                Err(error) => format!("failed to look for it: {error}"),
            }
        })
    }

    fn sweep(&self, keep: Vec<Running>) -> Pending<Vec<String>> {
        let (entry, cgroups) = (self.mark.clone(), self.cgroups.clone());
        blocking(Vec::new(), move || {
            let mut found = cgroups.map_or_else(Vec::new, |cgroups| end_unowned(&cgroups, &keep));
            let exclude = keep.iter().map(|kept| kept.keeper.process).collect();
            match sweep_marked(Mark { entry, exclude }) {
                Ok(outcome) => found.extend(
                    outcome
                        .processes
                        .iter()
                        .map(|process| format!("{} {}", process.identity, process.name)),
                ),
                Err(error) => found.push(format!("failed to look for marked processes: {error}")),
            }
            found
        })
    }
}

/// Ends what is in cgroups of ours and belongs to nobody in `keep`.
fn end_unowned(cgroups: &Cgroups, keep: &[Running]) -> Vec<String> {
    let kept: Vec<_> = keep.iter().filter_map(|kept| kept.cgroup.clone()).collect();
    cgroups
        .end_leftovers(&kept)
        .unwrap_or_else(|error| vec![format!("failed to look for cgroups: {error}")])
}
