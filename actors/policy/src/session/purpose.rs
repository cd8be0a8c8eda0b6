//! What a teardown is for, what joins it, and what follows it.
//!
//! One for the teardown of a process (`ending.rs`) and for a launch that was cancelled before its
//! answer came (`starting.rs`), so that orders join both alike. Invariants: the reason never
//! becomes less important; the newest wish decides what follows; while the daemon ends, nothing
//! does.

use drowse_messages::{
    EndReport, ExitStatus, HostEnd, Incarnation, Reason, SessionEvent, Stop, StopHow, Who,
};

use super::keep::Clearing;
use super::starting::{self, Starting};
use super::{Cx, Phase, host, orders};
use crate::effect::Effect;

/// What the teardown is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Free the memory; the session can be woken.
    Release(Reason),
    /// The start failed; the next try follows, or none.
    StartFailed {
        error: String,
        retry: bool,
        /// Somebody asked for a new conversation.
        fresh: bool,
    },
    /// The agent ended by itself; what it left behind is ended.
    Crash {
        status: Option<ExitStatus>,
        /// It had not begun a turn: starting it again at once could go on for ever.
        early: bool,
    },
    /// The daemon ends.
    Shutdown,
    /// Somebody stopped it.
    Stop,
    /// Somebody removed it.
    Remove,
}

impl Goal {
    pub(super) fn of(how: StopHow) -> Self {
        match how {
            StopHow::Release => Self::Release(Reason::Manual),
            StopHow::Shutdown => Self::Shutdown,
            StopHow::Stop | StopHow::StopAll => Self::Stop,
            StopHow::Remove => Self::Remove,
        }
    }

    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Release(reason) => *reason,
            Self::StartFailed { .. } => Reason::StartFailed,
            Self::Crash { status, .. } => Reason::Crashed { status: *status },
            Self::Shutdown => Reason::DaemonShutdown,
            Self::Stop => Reason::Stopped,
            Self::Remove => Reason::Removed,
        }
    }
}

/// What is wanted once nothing runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing new: only messages that wait start it again.
    Inbox,
    /// A message came meanwhile.
    Message,
    /// Somebody wants it back.
    Wake { fresh: bool },
    /// The daemon ends: whatever waits is kept for the next one.
    Nothing,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Purpose {
    goal: Goal,
    by: Who,
    next: Next,
    /// What is to be kept outlives it.
    keeps: bool,
}

impl Purpose {
    pub(super) fn new(goal: Goal, by: Who) -> Self {
        let (next, keeps) = match goal {
            Goal::Shutdown => (Next::Nothing, false),
            Goal::Remove => (Next::Inbox, false),
            Goal::Release(_) | Goal::StartFailed { .. } | Goal::Crash { .. } | Goal::Stop => {
                (Next::Inbox, true)
            }
        };
        Self {
            goal,
            by,
            next,
            keeps,
        }
    }

    /// The agent says that there is no conversation to go on with.
    pub(super) fn cannot_resume(detail: &str) -> Self {
        let goal = Goal::StartFailed {
            error: detail.to_owned(),
            retry: false,
            fresh: false,
        };
        Self::new(goal, Who::Outside)
    }

    /// The session is to go on with another environment.
    pub(super) fn change(by: &Who) -> Self {
        Self {
            next: Next::Wake { fresh: false },
            ..Self::new(Goal::Release(Reason::AccountChange), by.clone())
        }
    }

    /// A change is asked for while the teardown is under way: the agent that follows it has the
    /// other environment.
    pub(super) fn join_change(&mut self, by: &Who) {
        self.wake(false);
        let other = Self::change(by);
        if other.reason().weight() > self.reason().weight() {
            (self.goal, self.by) = (other.goal, other.by);
        }
    }

    /// Somebody asks for an end.
    pub(super) fn of(stop: &Stop) -> Self {
        let keeps = stop.how.keeps();
        Self {
            keeps,
            ..Self::new(Goal::of(stop.how), stop.by.clone())
        }
    }

    pub(super) fn reason(&self) -> Reason {
        self.goal.reason()
    }

    /// True when what is to be kept outlives it.
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    pub(super) fn is_shutdown(&self) -> bool {
        self.goal == Goal::Shutdown
    }

    pub(super) fn by(&self) -> &Who {
        &self.by
    }

    /// True for what people know as a release; the rest is a stop.
    pub(super) fn is_release(&self) -> bool {
        match self.goal {
            Goal::Release(_) => true,
            Goal::StartFailed { .. }
            | Goal::Crash { .. }
            | Goal::Shutdown
            | Goal::Stop
            | Goal::Remove => false,
        }
    }

    /// True when the agent ended by itself.
    pub(super) fn is_crash(&self) -> bool {
        matches!(self.goal, Goal::Crash { .. })
    }

    /// True when the agent did not get ready.
    pub(super) fn is_failed_start(&self) -> bool {
        matches!(self.goal, Goal::StartFailed { .. })
    }

    /// True when what was asked for before is not wanted any more.
    pub(super) fn cancels(&self) -> bool {
        match self.goal {
            Goal::Stop | Goal::Remove => true,
            Goal::Release(_) | Goal::StartFailed { .. } | Goal::Crash { .. } | Goal::Shutdown => {
                false
            }
        }
    }

    /// A second order joins: a weightier goal takes over, and whoever wanted the session back
    /// before is overruled.
    pub(super) fn join(&mut self, stop: &Stop, cx: &mut Cx<'_>) {
        orders::cancel_for(stop.how, cx);
        let other = Self::of(stop);
        self.keeps &= other.keeps;
        if self.next != Next::Nothing {
            self.next = other.next;
        }
        if other.reason().weight() > self.reason().weight() {
            (self.goal, self.by) = (other.goal, other.by);
        }
    }

    /// What it is for stays; what follows is left to the next daemon.
    pub(super) fn suspend(&mut self) {
        self.next = Next::Nothing;
    }

    /// Somebody wants the session back.
    pub(super) fn wake(&mut self, fresh: bool) {
        self.next = match self.next {
            Next::Nothing => Next::Nothing,
            Next::Wake { fresh: already } => Next::Wake {
                fresh: fresh || already,
            },
            Next::Inbox | Next::Message => Next::Wake { fresh },
        };
    }

    /// A message came and waits.
    pub(super) fn note_message(&mut self) {
        if self.next == Next::Inbox {
            self.next = Next::Message;
        }
    }

    /// Ends a session that owns no process.
    pub(super) fn finish_without_process(self, cx: &mut Cx<'_>) -> Phase {
        let end = EndReport::new(self.reason(), self.by.clone(), cx.common.wall);
        cx.common.end = Some(end);
        self.end_host(cx);
        self.follow(cx)
    }

    /// Tells a host that there is no agent any more, and none to come.
    fn end_host(&self, cx: &mut Cx<'_>) {
        if self.is_shutdown() {
            host::end(HostEnd::Shutdown, cx);
        } else {
            host::end(HostEnd::Ended, cx);
        }
    }

    /// What comes after it: first of all, the end of what is not to be kept any more.
    pub(super) fn follow(self, cx: &mut Cx<'_>) -> Phase {
        if !self.keeps && !cx.common.keep.is_clear() {
            return Clearing::begin(self, false);
        }
        cx.common.leases.clear();
        if matches!(self.goal, Goal::Remove | Goal::Shutdown) {
            // Also one that came during the teardown.
            self.end_host(cx);
        }
        match (self.goal, self.next) {
            (Goal::Remove, _) => {
                // Also what came during the teardown: nobody is left to wait for it.
                orders::cancel_for(StopHow::Remove, cx);
                cx.publish(SessionEvent::Removed);
                cx.fx.push(Effect::Forget);
                Phase::Ended
            }
            (_, Next::Nothing) | (Goal::Shutdown, _) => asleep(cx),
            (
                Goal::StartFailed {
                    error,
                    retry,
                    fresh,
                },
                next,
            ) => {
                let phase = starting::fail(&error, retry, fresh, cx);
                let fresh = match next {
                    Next::Wake { fresh: asked } => fresh || asked,
                    Next::Message if matches!(phase, Phase::Failing) => fresh,
                    Next::Message | Next::Inbox | Next::Nothing => return phase,
                };
                // Whoever wants it now has changed something: the tries are counted anew.
                cx.common.failed_starts = 0;
                Starting::begin(fresh, cx)
            }
            (_, Next::Wake { fresh }) => Starting::begin(fresh, cx),
            (_, Next::Inbox | Next::Message)
                if cx.common.inbox.is_empty() && cx.common.host.waits().is_none() =>
            {
                asleep(cx)
            }
            (goal @ Goal::Crash { early: true, .. }, _) => {
                let error = format!("ended before its first turn: {}", goal.reason());
                starting::fail(&error, true, false, cx)
            }
            (Goal::Crash { .. } | Goal::Release(_) | Goal::Stop, _) => Starting::begin(false, cx),
        }
    }
}

fn asleep(cx: &Cx<'_>) -> Phase {
    if cx.common.incarnation == Incarnation::default() {
        Phase::Dormant
    } else {
        Phase::Released
    }
}
