//! The host of a relayed session: a program that believes to have started the agent itself.
//!
//! It speaks to the agent through a gate, which is shut unless this file has had it opened. What
//! the host says while it is shut waits, and holds the session: so nothing is released with a line
//! of its host's on the way, and none is written to an agent that is being let go. The host hears
//! of an end only when the agent itself has come to one, or somebody has stopped the session; of a
//! release it does not hear.
//!
//! Fed by `session.rs`, with news of the host before the phase sees them. Invariants: a line that
//! waits is a hold, or starts an agent, or its host is told that there will be none; a host is
//! told of one end at most.

use drowse_messages::{ExitStatus, HostChanged, HostEnd, Hosted, MonoTime, Reason, SessionEvent};

use super::purpose::Purpose;
use super::starting::Starting;
use super::{Common, Cx, Phase};
use crate::effect::{BackendOrder, Effect};

/// Whom the session's agent belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// To Drowse: whoever sends a message speaks to it.
    None,
    /// To a host that is there.
    Attached(Attached),
    /// To one that is gone without a word; `None`: it is waited for without an end.
    Lost { until: Option<MonoTime> },
}

/// A host that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attached {
    pid: i32,
    /// Another process can take the released one's place without its noticing.
    resumable: bool,
    /// What it said waits, since then.
    waits: Option<MonoTime>,
    /// It will say no more.
    closed: bool,
}

impl Host {
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// What it said waits, since then.
    pub(super) fn waits(&self) -> Option<MonoTime> {
        self.attached().and_then(|attached| attached.waits)
    }

    /// The process that stands in the agent's place for it.
    pub(super) fn pid(&self) -> Option<i32> {
        self.attached().map(|attached| attached.pid)
    }

    /// When a host that is lost is given up.
    pub(super) fn deadline(&self) -> Option<MonoTime> {
        match self {
            Self::Lost { until } => *until,
            Self::None | Self::Attached(_) => None,
        }
    }

    /// True once a host that was lost is given up.
    pub(super) fn is_given_up(&self, now: MonoTime) -> bool {
        self.deadline().is_some_and(|until| now >= until)
    }

    /// A released agent's place cannot be taken by another.
    pub(super) fn is_bound_to_process(&self) -> bool {
        self.attached().is_some_and(|attached| !attached.resumable)
    }

    /// It has said all that it had to say, so that its agent may go.
    pub(super) fn is_done(&self) -> bool {
        self.attached()
            .is_some_and(|attached| attached.closed && attached.waits.is_none())
    }

    /// It would not notice that its agent is let go: it is there and may speak again.
    fn stays(&self) -> bool {
        self.attached()
            .is_some_and(|attached| !attached.closed || attached.waits.is_some())
    }

    fn attached(&self) -> Option<&Attached> {
        match self {
            Self::Attached(attached) => Some(attached),
            Self::None | Self::Lost { .. } => None,
        }
    }
}

/// Takes note of what is new, whatever the phase.
pub(super) fn note(changed: HostChanged, cx: &mut Cx<'_>) {
    if let HostChanged::Attached { pid, resumable } = changed {
        cx.common.hosted = Hosted::Now;
        cx.common.host = Host::Attached(Attached {
            pid,
            resumable,
            waits: None,
            closed: false,
        });
        return cx.publish(SessionEvent::HostAttached { pid });
    }
    let Host::Attached(attached) = &mut cx.common.host else {
        return;
    };
    match changed {
        HostChanged::Attached { .. } => {}
        HostChanged::Waits => {
            attached.waits = attached.waits.or(Some(cx.now));
            cx.common.active = cx.now;
        }
        HostChanged::Passed => attached.waits = None,
        HostChanged::Closed => attached.closed = true,
        HostChanged::Lost => {
            let pid = attached.pid;
            lose(cx);
            cx.publish(SessionEvent::HostLost { pid });
        }
    }
}

/// It is waited for as long as is configured.
fn lose(cx: &mut Cx<'_>) {
    let until = cx.common.limits.detach_hold.deadline(cx.now);
    cx.common.host = Host::Lost { until };
}

/// An agent that an earlier daemon relayed: its host is on its way back.
pub(super) fn adopt(cx: &mut Cx<'_>) {
    if cx.common.hosted == Hosted::Now && cx.common.host.is_none() {
        lose(cx);
    }
}

/// There is no agent: the host has one started by its first connection, and by what it says.
pub(super) fn on_asleep(phase: Phase, changed: HostChanged, cx: &mut Cx<'_>) -> Phase {
    match changed {
        HostChanged::Lost => forget(cx),
        HostChanged::Closed if cx.common.host.waits().is_none() => end(HostEnd::Ended, cx),
        HostChanged::Attached { .. } | HostChanged::Waits | HostChanged::Closed
            if cx.common.suspended => {}
        HostChanged::Attached { .. } if matches!(phase, Phase::Dormant) => {
            return Starting::begin(false, cx);
        }
        HostChanged::Attached { .. } if is_agent_lost(cx.common) => {
            let status = cx.common.end.as_ref().and_then(|end| end.status);
            end(HostEnd::Exited(status), cx);
        }
        HostChanged::Waits if cx.common.host.waits().is_some() => {
            cx.common.failed_starts = 0;
            return Starting::begin(false, cx);
        }
        HostChanged::Attached { .. }
        | HostChanged::Waits
        | HostChanged::Passed
        | HostChanged::Closed => {}
    }
    phase
}

/// There is an agent that takes lines.
pub(super) fn on_live(changed: HostChanged, cx: &mut Cx<'_>) {
    match changed {
        HostChanged::Waits | HostChanged::Closed => open_gate(cx),
        HostChanged::Attached { .. } | HostChanged::Passed | HostChanged::Lost => {}
    }
}

/// Lets through what waits, and the end of it; what comes while the daemon is being replaced is
/// let through by the next one.
pub(super) fn open_gate(cx: &mut Cx<'_>) {
    let has_something = cx
        .common
        .host
        .attached()
        .is_some_and(|attached| attached.waits.is_some() || attached.closed);
    if has_something && !cx.common.suspended {
        cx.tell(BackendOrder::OpenGate);
    }
}

/// Its agent is being ended. A host that stays is not to notice, unless a turn is cut short.
pub(super) fn shut_gate(purpose: &Purpose, mid_turn: bool, cx: &mut Cx<'_>) {
    if cx.common.host.is_none() {
        return;
    }
    let quiet = purpose.is_release() && !mid_turn && cx.common.host.stays();
    cx.tell(BackendOrder::ShutGate { quiet });
}

/// Its agent was ended: a release between two turns is nothing to the host, and so is a start that
/// will be tried again. Everything else is the end of its agent.
pub(super) fn after_end(
    purpose: &Purpose,
    status: Option<ExitStatus>,
    mid_turn: bool,
    cx: &mut Cx<'_>,
) {
    match &cx.common.host {
        Host::None => {}
        Host::Lost { .. } => forget(cx),
        Host::Attached(_) if purpose.is_failed_start() => {}
        Host::Attached(_) if purpose.is_release() && !mid_turn && cx.common.host.stays() => {}
        Host::Attached(_) => end(HostEnd::Exited(status), cx),
    }
}

/// Nobody will give it an agent again.
pub(super) fn end(end: HostEnd, cx: &mut Cx<'_>) {
    let pid = cx.common.host.pid();
    forget(cx);
    if let Some(pid) = pid {
        cx.fx.push(Effect::EndHost(end.clone()));
        cx.publish(SessionEvent::HostEnded { pid, end });
    }
}

/// The host came back, and its agent has come to an end meanwhile that is no release: with a
/// turn that is never begun again by itself, or by its own will.
fn is_agent_lost(common: &Common) -> bool {
    common.end.as_ref().is_some_and(|end| match end.reason {
        Reason::Idle
        | Reason::Manual
        | Reason::AccountChange
        | Reason::TaskHoldExpired
        | Reason::ApprovalExpired
        | Reason::HardLimit => end.mid_turn,
        // What it was doing was perhaps not on disk yet.
        Reason::DaemonShutdown
        | Reason::Detached
        | Reason::StartFailed
        | Reason::Crashed { .. }
        | Reason::Stopped
        | Reason::Removed => true,
    })
}

fn forget(cx: &mut Cx<'_>) {
    if !cx.common.host.is_none() {
        cx.common.host = Host::None;
        cx.common.hosted = Hosted::Formerly;
    }
}

/// Why a host keeps the session's process, if it does.
pub(super) fn cannot_resume(common: &Common) -> Option<&'static str> {
    let is_bound = common.host.is_bound_to_process();
    is_bound.then_some("its host's protocol cannot be taken up by another process")
}
