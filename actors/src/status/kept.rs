//! Kept processes, as readers and those who want one kept ask for them.
//!
//! Fed by [`crate::DaemonHandle`]. A session that keeps something has an actor, so all of it is in
//! the newest reports; whether a process still runs is looked up when somebody asks. Invariant:
//! looking changes nothing, and no process is found that is not below a keeper of ours.

use std::collections::{BTreeMap, BTreeSet};

use actix::{Context, Handler, Message, ResponseFuture};
use drowse_messages::{KeepTarget, KeptReport, ProcIdentity, Refusal, SessionId, SessionReport};

use super::{Awake, StatusActor, keeper_of};
use crate::ports::{Found, ProcessTrees};

/// Everything that is kept, or is to be, and still runs.
#[derive(Debug, Message)]
#[rtype(result = "Vec<KeptReport>")]
pub(crate) struct GetKept;

/// Find a process that can be kept, and whose it is.
#[derive(Debug, Message)]
#[rtype(result = "Result<(SessionId, Found), Refusal>")]
pub(crate) struct FindKept {
    pub(crate) target: KeepTarget,
    /// Only below this session.
    pub(crate) session: Option<SessionId>,
}

/// Leaves out what has ended meanwhile.
pub(super) async fn drop_ended(trees: &dyn ProcessTrees, reports: &mut Vec<KeptReport>) {
    if reports.is_empty() {
        return;
    }
    let identity = |report: &KeptReport| report.kept.process.identity;
    let living = trees.living(reports.iter().map(identity).collect()).await;
    reports.retain(|report| living.contains(&identity(report)));
}

/// The same for the reports of many sessions at once.
pub(super) async fn drop_ended_of_all(trees: &dyn ProcessTrees, sessions: &mut [SessionReport]) {
    let all = sessions.iter().flat_map(|session| &session.kept);
    let mut living: Vec<KeptReport> = all.cloned().collect();
    drop_ended(trees, &mut living).await;
    let identity = |report: &KeptReport| report.kept.process.identity;
    let living: BTreeSet<ProcIdentity> = living.iter().map(identity).collect();
    for session in sessions {
        let is_there = |report: &KeptReport| living.contains(&identity(report));
        session.kept.retain(is_there);
    }
}

impl Handler<GetKept> for StatusActor {
    type Result = ResponseFuture<Vec<KeptReport>>;

    fn handle(&mut self, _: GetKept, _: &mut Context<Self>) -> Self::Result {
        let reports = self.awake.values().flat_map(|awake| &awake.report.kept);
        let mut reports: Vec<KeptReport> = reports.cloned().collect();
        let trees = self.ports.trees.clone();
        Box::pin(async move {
            drop_ended(&*trees, &mut reports).await;
            reports
        })
    }
}

impl Handler<FindKept> for StatusActor {
    type Result = ResponseFuture<Result<(SessionId, Found), Refusal>>;

    fn handle(&mut self, find: FindKept, _: &mut Context<Self>) -> Self::Result {
        let FindKept { target, session } = find;
        let (mut owners, mut agents) = (BTreeMap::new(), BTreeMap::new());
        let is_meant = |id: &SessionId| session.is_none_or(|only| only == *id);
        for (id, awake) in self.awake.iter().filter(|(id, _)| is_meant(id)) {
            owners.extend(keepers_of(awake).map(|keeper| (keeper, *id)));
            let agent = awake.report.awake.as_ref().and_then(|it| it.agent_pid);
            agents.extend(agent.map(|agent| (agent, *id)));
        }
        let keepers = owners.keys().copied().collect();
        let found = self.ports.trees.find(target, keepers);
        Box::pin(async move {
            let found = found.await.map_err(|detail| refusal(target, detail))?;
            let pid = found.process.identity.pid();
            if let Some(id) = agents.get(&pid) {
                let detail = format!("process {pid} is the agent of session {id}: it is not kept");
                return Err(refusal(target, detail));
            }
            let owner = owners.get(&found.keeper).copied();
            let owner = owner.ok_or_else(|| refusal(target, "belongs to no session".to_owned()))?;
            Ok((owner, found))
        })
    }
}

fn keepers_of(awake: &Awake) -> impl Iterator<Item = ProcIdentity> {
    let retired = awake.retired.iter().copied();
    keeper_of(awake).into_iter().chain(retired)
}

fn refusal(target: KeepTarget, detail: String) -> Refusal {
    let field = match target {
        KeepTarget::Pid(_) => "pid",
        KeepTarget::Listen(_) => "listen",
    };
    Refusal::Invalid {
        field: field.to_owned(),
        detail,
    }
}
