//! What a handle can say of kept processes: that one is to be kept, and which are.
//!
//! Finding the process (the status actor) and keeping it (its session) are two steps; a process
//! that ends in between is told to have ended, and nothing is kept.

use std::time::Duration;

use drowse_messages::{
    Keep, KeepRule, KeepTarget, KeptReport, Order, ProcIdentity, Refusal, SessionId, Who,
};

use crate::DaemonHandle;
use crate::handle::flat;
use crate::ports::Found;
use crate::status::{FindKept, GetKept};

/// Which process somebody wants kept, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepWish {
    /// Which one.
    pub target: KeepTarget,
    /// Only below this session.
    pub session: Option<SessionId>,
    /// At most 366 days; `None`: as long as the session.
    pub ttl: Option<Duration>,
    /// Who wants it.
    pub by: Who,
}

impl DaemonHandle {
    /// Keeps a process of a live session when its backend ends, or changes how long it is kept.
    ///
    /// # Errors
    /// `Invalid` when the process belongs to no session, or is an agent or a keeper, or the time
    /// is out of range; `NotRunning` when the session is ending; `Draining`.
    pub async fn keep(&self, wish: KeepWish) -> Result<KeptReport, Refusal> {
        let KeepWish {
            target,
            session,
            ttl,
            by,
        } = wish;
        let find = FindKept { target, session };
        let (session, found) = flat(self.status.send(find).await)?;
        let Found { keeper, process } = found;
        let identity = process.identity;
        let rule = match target {
            KeepTarget::Pid(_) => KeepRule::Process(identity),
            KeepTarget::Listen(port) => KeepRule::Listen(port),
        };
        let keep = Keep {
            process,
            keeper,
            rule,
            ttl,
            by,
        };
        self.order(session, Order::Keep(keep)).await?;
        let kept = self.report(session).await?.kept;
        let is_it = |report: &KeptReport| report.kept.process.identity == identity;
        kept.into_iter().find(is_it).ok_or_else(|| ended(identity))
    }

    /// Everything that is kept, or is to be, and still runs.
    ///
    /// # Errors
    /// `Draining`.
    pub async fn kept(&self) -> Result<Vec<KeptReport>, Refusal> {
        let kept = self.status.send(GetKept).await;
        kept.map_err(|_| Refusal::Draining)
    }
}

fn ended(process: ProcIdentity) -> Refusal {
    Refusal::Invalid {
        field: "pid".to_owned(),
        detail: format!("process {} has ended", process.pid()),
    }
}
