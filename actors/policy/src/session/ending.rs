//! The teardown of a process tree: a ladder of rungs, each with a deadline.
//!
//! snapshot → (interrupt the turn) → close stdin → SIGTERM → freeze and SIGKILL → verify.
//! A rung ends early when its purpose is reached; the last one is always a fresh walk that finds
//! nothing. A tree that cannot be ended is said to be stuck, shown, and tried again; nothing new
//! is started meanwhile.
//!
//! Fed by `session.rs`. Invariants: one reap request is outstanding at most; at most one SIGKILL
//! round per deadline, only after SIGTERM and its grace; admission is closed from the first step,
//! and what arrives meanwhile waits in the inbox.

use std::time::Duration;

use drowse_messages::{
    AgentStatus, ChildExited, EndReport, ExitStatus, MessageId, MessageState, MonoTime, Order,
    ProcReport, ReapReport, ReapRequest, ReapStep, Reason, Running, SessionEvent, StopHow,
    Survivor, Who,
};

use super::live::{Live, Turn, end_turn};
use super::starting::{self, Starting};
use super::{Cx, Phase, orders};
use crate::effect::{BackendOrder, Effect, Input};

/// How long a teardown waits for its snapshot. 5 s: measuring memory is slow on a busy machine,
/// and a snapshot that never comes must not keep a process alive.
pub const SNAPSHOT_MAX: Duration = Duration::from_secs(5);
/// How often a tree that could not be ended is tried again.
pub const STUCK_RETRY_AFTER: Duration = Duration::from_secs(30);
/// How long the reaper may take over an answer before the ladder goes on without it. 20 s: above
/// the reaper's own bound, so this is a last resort.
const REAP_ANSWER_MAX: Duration = Duration::from_secs(20);

/// What the teardown is for, and so what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Free the memory; the session can be woken.
    Release(Reason),
    /// The start failed; the next try follows, or none.
    StartFailed { error: String, retry: bool },
    /// The agent ended by itself; what it left behind is ended.
    Crash { status: Option<ExitStatus> },
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
            StopHow::Stop => Self::Stop,
            StopHow::Remove => Self::Remove,
        }
    }

    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Release(reason) => *reason,
            Self::StartFailed { .. } => Reason::StartFailed,
            Self::Crash { status } => Reason::Crashed { status: *status },
            Self::Shutdown => Reason::DaemonShutdown,
            Self::Stop => Reason::Stopped,
            Self::Remove => Reason::Removed,
        }
    }

    /// A teardown under way takes a weightier goal over, never a lighter one.
    pub(super) fn weight(&self) -> u8 {
        self.reason().weight()
    }

    /// True for what people know as a release; the rest is a stop.
    pub(super) fn is_release(&self) -> bool {
        match self {
            Self::Release(_) => true,
            Self::StartFailed { .. }
            | Self::Crash { .. }
            | Self::Shutdown
            | Self::Stop
            | Self::Remove => false,
        }
    }
}

/// Where on the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    Snapshot,
    Interrupt,
    Close,
    Terminate,
    Kill,
    Verify,
    Stuck,
}

/// A teardown under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    running: Running,
    goal: Goal,
    by: Who,
    rung: Rung,
    /// When this rung is given up.
    until: MonoTime,
    /// The reaper owes an answer.
    awaited: bool,
    /// The turn that still ran.
    turn: Option<Turn>,
    exited: bool,
    status: Option<ExitStatus>,
    emptied: bool,
    processes: Vec<ProcReport>,
    reaped: Vec<ProcReport>,
    survivors: Vec<Survivor>,
    stderr_tail: String,
    /// Somebody wants it back.
    wake: Option<bool>,
}

impl Ending {
    /// Begins to end a live tree.
    pub(super) fn begin(
        mut live: Box<Live>,
        goal: Goal,
        by: Who,
        turn: Option<Turn>,
        cx: &mut Cx<'_>,
    ) -> Phase {
        live.void_asks(cx);
        cx.common.leases.clear();
        cx.publish(SessionEvent::Ending {
            reason: goal.reason(),
            by: by.clone(),
        });
        let mut ending = Box::new(Self {
            running: live.running().clone(),
            goal,
            by,
            rung: Rung::Snapshot,
            until: cx.now,
            awaited: false,
            turn,
            exited: false,
            status: None,
            emptied: false,
            processes: Vec::new(),
            reaped: Vec::new(),
            survivors: Vec::new(),
            stderr_tail: String::new(),
            wake: None,
        });
        ending.reap(Rung::Snapshot, ReapStep::Snapshot, SNAPSHOT_MAX, cx);
        Phase::Ending(ending)
    }

    /// Begins to end what an agent that is already dead, or deaf, left behind.
    pub(super) fn begin_dead(
        live: Box<Live>,
        goal: Goal,
        turn: Option<Turn>,
        exited: Option<&ChildExited>,
        cx: &mut Cx<'_>,
    ) -> Phase {
        let phase = Self::begin(live, goal, Who::Outside, turn, cx);
        match (phase, exited) {
            (Phase::Ending(mut ending), Some(exited)) => {
                ending.note_exit(exited);
                Phase::Ending(ending)
            }
            (phase, _) => phase,
        }
    }

    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    pub(super) fn message(&self) -> Option<MessageId> {
        self.turn.as_ref().and_then(Turn::message)
    }

    pub(super) fn deadline(&self) -> MonoTime {
        self.until
    }

    pub(super) fn is_release(&self) -> bool {
        self.goal.is_release()
    }

    pub(super) fn in_words(&self) -> String {
        format!("{} ({:?})", self.goal.reason(), self.rung).to_lowercase()
    }

    pub(super) fn on(mut self: Box<Self>, input: &Input, cx: &mut Cx<'_>) -> Phase {
        match input {
            Input::ChildExited(exited) => self.note_exit(exited),
            Input::TreeEmptied(_) => self.emptied = true,
            Input::ReapReport(report) => return self.on_report(report, cx),
            Input::IdleTick(_) => {
                if self.awaited && cx.now >= self.until && self.rung != Rung::Terminate {
                    self.awaited = false;
                }
            }
            Input::StatusChanged(changed) => {
                if let AgentStatus::TurnEnded(ended) = &changed.status
                    && let Some(turn) = self.turn.take()
                {
                    end_turn(&turn, ended, cx);
                }
            }
            Input::Activity(activity) => super::publish_output(&activity.kind, self.message(), cx),
            Input::Order(order) => self.on_order(order, cx),
            Input::StartGranted(_) => cx.fx.push(Effect::StartSettled),
            // Its tasks end with it; messages wait in the inbox.
            Input::TaskRoster(_)
            | Input::MessageQueued(_)
            | Input::Delivered(_)
            | Input::Launched(_)
            | Input::LaunchFailed(_)
            | Input::LimitsChanged(_) => {}
        }
        self.advance(cx);
        Phase::Ending(self)
    }

    fn note_exit(&mut self, exited: &ChildExited) {
        self.exited = true;
        self.status = self.status.or(exited.status);
        if self.stderr_tail.is_empty() {
            self.stderr_tail.clone_from(&exited.stderr_tail);
        }
    }

    fn on_order(&mut self, order: &Order, cx: &mut Cx<'_>) {
        match order {
            Order::Stop(stop) => {
                orders::cancel_for(stop.how, cx);
                let goal = Goal::of(stop.how);
                if goal.weight() > self.goal.weight() {
                    (self.goal, self.by) = (goal, stop.by.clone());
                    self.wake = None;
                }
            }
            Order::Wake(wake) => self.wake = Some(wake.fresh),
            Order::Answer(answer) => orders::refuse_answer(answer, cx),
            Order::LiftHold(_) => {}
            Order::Interrupt(_) | Order::TakeHold(_) => {
                let state = if self.is_release() {
                    "releasing"
                } else {
                    "stopping"
                };
                orders::refuse_not_running(state, cx);
            }
        }
    }

    /// Takes the next rung when this one has done its work or its time is up.
    fn advance(&mut self, cx: &mut Cx<'_>) {
        let late = cx.now >= self.until;
        match self.rung {
            Rung::Snapshot => {
                if !self.awaited {
                    self.after_snapshot(cx);
                }
            }
            Rung::Interrupt => {
                if self.exited || self.emptied {
                    self.terminate(cx);
                } else if self.turn.is_none() || late {
                    self.close(cx);
                }
            }
            Rung::Close => {
                if self.exited || self.emptied || late {
                    self.terminate(cx);
                }
            }
            Rung::Terminate => {
                if self.awaited {
                    // Nothing is asked of the reaper before it answered.
                } else if self.emptied {
                    self.verify(cx);
                } else if late {
                    self.reap(Rung::Kill, ReapStep::Kill, REAP_ANSWER_MAX, cx);
                }
            }
            Rung::Kill | Rung::Verify => {
                if !self.awaited && late {
                    self.reap(Rung::Kill, ReapStep::Kill, REAP_ANSWER_MAX, cx);
                }
            }
            Rung::Stuck => {
                if late || self.emptied {
                    self.reap(Rung::Kill, ReapStep::Kill, REAP_ANSWER_MAX, cx);
                }
            }
        }
    }

    fn after_snapshot(&mut self, cx: &mut Cx<'_>) {
        if self.exited || self.emptied {
            self.terminate(cx);
        } else if self.turn.is_some() {
            cx.tell(BackendOrder::Interrupt);
            self.enter(Rung::Interrupt, cx.common.limits.eof_grace, cx);
        } else {
            self.close(cx);
        }
    }

    fn close(&mut self, cx: &mut Cx<'_>) {
        cx.tell(BackendOrder::Close);
        self.enter(Rung::Close, cx.common.limits.eof_grace, cx);
    }

    /// The rest of the tree is asked by signal; what is empty already is only verified.
    fn terminate(&mut self, cx: &mut Cx<'_>) {
        if self.emptied {
            self.verify(cx);
        } else {
            let grace = cx.common.limits.term_grace;
            self.reap(Rung::Terminate, ReapStep::Terminate, grace, cx);
        }
    }

    fn verify(&mut self, cx: &mut Cx<'_>) {
        self.reap(Rung::Verify, ReapStep::Verify, REAP_ANSWER_MAX, cx);
    }

    fn enter(&mut self, rung: Rung, at_most: Duration, cx: &Cx<'_>) {
        self.rung = rung;
        self.until = cx.now.after(at_most);
    }

    fn reap(&mut self, rung: Rung, step: ReapStep, at_most: Duration, cx: &mut Cx<'_>) {
        self.enter(rung, at_most, cx);
        self.awaited = true;
        cx.fx.push(Effect::Reap(ReapRequest {
            session: cx.common.id,
            incarnation: cx.common.incarnation,
            keeper: self.running.keeper.process,
            step,
        }));
    }

    fn on_report(mut self: Box<Self>, report: &ReapReport, cx: &mut Cx<'_>) -> Phase {
        let expected = match self.rung {
            Rung::Snapshot => ReapStep::Snapshot,
            Rung::Terminate => ReapStep::Terminate,
            Rung::Kill | Rung::Stuck => ReapStep::Kill,
            Rung::Verify => ReapStep::Verify,
            Rung::Interrupt | Rung::Close => return Phase::Ending(self),
        };
        if report.step != expected {
            return Phase::Ending(self);
        }
        self.awaited = false;
        match report.step {
            ReapStep::Snapshot => self.processes.clone_from(&report.processes),
            ReapStep::Terminate => {
                if self.exited {
                    self.note_reaped(&report.processes);
                }
                self.emptied |= report.empty;
            }
            ReapStep::Kill => {
                self.note_reaped(&report.processes);
                if report.empty {
                    return self.finish(cx);
                }
                self.give_up(report, cx);
                return Phase::Ending(self);
            }
            ReapStep::Verify => {
                if report.empty {
                    return self.finish(cx);
                }
                // The keeper said empty, the walk found somebody: the walk is right.
                self.emptied = false;
                self.reap(Rung::Kill, ReapStep::Kill, REAP_ANSWER_MAX, cx);
                return Phase::Ending(self);
            }
        }
        self.advance(cx);
        Phase::Ending(self)
    }

    fn note_reaped(&mut self, processes: &[ProcReport]) {
        for process in processes {
            if !self
                .reaped
                .iter()
                .any(|known| known.identity == process.identity)
            {
                self.reaped.push(process.clone());
            }
        }
    }

    fn give_up(&mut self, report: &ReapReport, cx: &mut Cx<'_>) {
        if self.survivors != report.survivors {
            self.survivors.clone_from(&report.survivors);
            let survivors = report.survivors.clone();
            cx.publish(SessionEvent::ReleaseFailed { survivors });
        }
        self.emptied = false;
        self.enter(Rung::Stuck, STUCK_RETRY_AFTER, cx);
    }

    /// A fresh walk found nothing: the tree is gone.
    fn finish(mut self: Box<Self>, cx: &mut Cx<'_>) -> Phase {
        cx.tell(BackendOrder::Dismiss);
        if let Some(message) = self.message() {
            let why = format!(
                "the agent ended while it worked on this: {}",
                self.goal.reason()
            );
            cx.settle(message, MessageState::Unknown, &why);
        }
        let end = EndReport {
            reason: self.goal.reason(),
            by: self.by.clone(),
            mid_turn: self.turn.is_some(),
            released_bytes: self.processes.iter().map(|process| process.pss_bytes).sum(),
            processes: std::mem::take(&mut self.processes),
            reaped: std::mem::take(&mut self.reaped),
            status: self.status,
            survivors: Vec::new(),
            stderr_tail: if self.goal.is_release() {
                String::new()
            } else {
                std::mem::take(&mut self.stderr_tail)
            },
        };
        cx.publish(SessionEvent::Released {
            end: Box::new(end.clone()),
        });
        cx.common.end = Some(end);
        self.follow(cx)
    }

    /// What comes after it.
    fn follow(self: Box<Self>, cx: &mut Cx<'_>) -> Phase {
        match self.goal {
            Goal::Remove => {
                cx.publish(SessionEvent::Removed);
                cx.fx.push(Effect::Forget);
                Phase::Ended
            }
            Goal::Shutdown => Phase::Released,
            Goal::StartFailed { error, retry } => starting::fail(&error, retry, false, cx),
            Goal::Release(_) | Goal::Crash { .. } | Goal::Stop => {
                if cx.common.inbox.is_empty() && self.wake.is_none() {
                    Phase::Released
                } else {
                    Starting::begin(self.wake.unwrap_or(false), cx)
                }
            }
        }
    }
}
