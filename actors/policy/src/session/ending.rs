//! The teardown of a process tree: a ladder of rungs, each with a deadline.
//!
//! snapshot → (interrupt the turn) → close stdin → SIGTERM → freeze and SIGKILL → verify → farewell.
//! A rung ends early when its purpose is reached; a tree counts as gone only after a fresh walk that
//! finds nothing, and its keeper's word on how the agent ended is awaited then. A tree that cannot be ended is said to be stuck, shown, and tried again; nothing new
//! is started meanwhile.
//!
//! Fed by `session.rs`. Invariants: one reap request is outstanding at most; at most one SIGKILL
//! round per deadline, only after SIGTERM and its grace; admission is closed from the first step,
//! and what arrives meanwhile waits in the inbox.

use std::time::Duration;

use drowse_messages::{
    AgentStatus, ChildExited, Delivered, DeliveryResult, EndReport, ExitStatus, MessageId,
    MessageState, MonoTime, Order, ProcReport, ReapReport, ReapRequest, ReapStep, Running,
    SessionEvent, Survivor,
};

use self::found::Found;
use super::live::Live;
use super::purpose::Purpose;
use super::turn::{self, Turn};
use super::{Cx, Phase, change, host, inbox, keep, orders};
use crate::effect::{BackendOrder, Effect, Input};

mod found;
mod kept;

/// How long a teardown waits for its snapshot. 5 s: measuring memory is slow on a busy machine,
/// and a snapshot that never comes must not keep a process alive.
pub const SNAPSHOT_MAX: Duration = Duration::from_secs(5);
/// How often a tree that could not be ended is tried again.
pub const STUCK_RETRY_AFTER: Duration = Duration::from_secs(30);
/// How long a tree that is gone waits for its keeper's word on it. 1 s: the word is in a socket, or
/// the keeper is lost and will never speak.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// How long the reaper may take over an answer before the ladder goes on without it. 20 s: above
/// the reaper's own bound, so this is a last resort.
pub(super) const REAP_ANSWER_MAX: Duration = Duration::from_secs(20);

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
    Farewell,
}

/// A teardown under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    running: Running,
    purpose: Purpose,
    rung: Rung,
    /// When this rung is given up.
    until: MonoTime,
    /// The reaper owes an answer, which is waited for until then.
    awaited: Option<MonoTime>,
    /// The turn that still ran.
    turn: Option<Turn>,
    exited: bool,
    status: Option<ExitStatus>,
    emptied: bool,
    /// Everybody seen in this tree since the snapshot.
    processes: Found,
    /// Those who outlived the agent's own exit and were signalled.
    reaped: Found,
    survivors: Vec<Survivor>,
    stderr_tail: String,
    /// What is kept of it; `None` until a snapshot said what there is.
    kept: Option<Vec<ProcReport>>,
    /// The snapshot was asked for a second time.
    looked_again: bool,
}

impl Ending {
    /// Begins to end a live tree.
    pub(super) fn begin(
        live: Box<Live>,
        purpose: Purpose,
        turn: Option<Turn>,
        cx: &mut Cx<'_>,
    ) -> Phase {
        Phase::Ending(Self::enter_ladder(live, purpose, turn, cx))
    }

    /// Begins to end what is left after the agent, or all of its tree, ended by itself.
    pub(super) fn begin_after(
        end: &Input,
        live: Box<Live>,
        purpose: Purpose,
        turn: Option<Turn>,
        cx: &mut Cx<'_>,
    ) -> Phase {
        let mut ending = Self::enter_ladder(live, purpose, turn, cx);
        if let Input::ChildExited(exited) = end {
            ending.note_exit(exited);
        }
        ending.emptied = matches!(end, Input::TreeEmptied(_));
        Phase::Ending(ending)
    }

    fn enter_ladder(
        mut live: Box<Live>,
        mut purpose: Purpose,
        turn: Option<Turn>,
        cx: &mut Cx<'_>,
    ) -> Box<Self> {
        change::join(&mut purpose, cx);
        host::shut_gate(&purpose, turn.is_some(), cx);
        live.void_asks(cx);
        cx.common.leases.clear();
        cx.publish(SessionEvent::Ending {
            reason: purpose.reason(),
            by: purpose.by().clone(),
        });
        let mut ending = Box::new(Self {
            running: live.running().clone(),
            purpose,
            rung: Rung::Snapshot,
            until: cx.now,
            awaited: None,
            turn,
            exited: false,
            status: None,
            emptied: false,
            processes: Found::default(),
            reaped: Found::default(),
            survivors: Vec::new(),
            stderr_tail: String::new(),
            kept: None,
            looked_again: false,
        });
        ending.reap(Rung::Snapshot, ReapStep::Snapshot, SNAPSHOT_MAX, cx);
        ending
    }

    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    /// The message that caused the turn that still runs.
    fn message(&self) -> Option<MessageId> {
        self.turn.as_ref().and_then(Turn::message)
    }

    /// Those the agent was given and has not answered.
    pub(super) fn messages(&self) -> &[MessageId] {
        self.turn.as_ref().map_or(&[], Turn::messages)
    }

    /// The next daemon decides what follows.
    pub(super) fn suspend(&mut self) {
        self.purpose.suspend();
    }

    pub(super) fn deadline(&self) -> MonoTime {
        self.awaited.unwrap_or(self.until)
    }

    pub(super) fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    pub(super) fn in_words(&self) -> String {
        format!("{} ({:?})", self.purpose.reason(), self.rung).to_lowercase()
    }

    pub(super) fn on(mut self: Box<Self>, input: &Input, cx: &mut Cx<'_>) -> Phase {
        match input {
            Input::ChildExited(exited) => self.note_exit(exited),
            Input::TreeEmptied(_) => self.emptied = true,
            Input::ReapReport(report) => return self.on_report(report, cx),
            Input::IdleTick(_) => {
                // An answer that is lost must not keep a tree alive.
                self.awaited = self.awaited.filter(|given_up| cx.now < *given_up);
            }
            Input::StatusChanged(changed) => self.on_status(&changed.status, cx),
            Input::Activity(activity) => super::publish_output(&activity.kind, self.message(), cx),
            Input::Order(order) => self.on_order(order, cx),
            Input::Delivered(delivered) => self.on_delivered(*delivered, cx),
            Input::StartGranted(_) => cx.fx.push(Effect::StartSettled),
            Input::MessageQueued(_) => self.purpose.note_message(),
            // What its host says waits for what follows. Its tasks end with it. The rest speaks of starts, and of other trees.
            Input::TaskRoster(_)
            | Input::Host(_)
            | Input::KeptEnded(_)
            | Input::Launched(_)
            | Input::LaunchFailed(_)
            | Input::Adopted(_)
            | Input::Suspend(_)
            | Input::LimitsChanged(_) => {}
        }
        if self.rung == Rung::Farewell && (self.is_told() || cx.now >= self.until) {
            return self.finish(cx);
        }
        self.advance(cx);
        Phase::Ending(self)
    }

    /// A turn may still come to its end, and say where its conversation is.
    fn on_status(&mut self, status: &AgentStatus, cx: &mut Cx<'_>) {
        match status {
            AgentStatus::TurnEnded(ended) => {
                let turn = self.turn.take();
                self.turn = turn.and_then(|turn| turn::end_while_ending(turn, ended, cx));
            }
            AgentStatus::NotTaken { error } => {
                if let Some(turn) = &mut self.turn {
                    turn.refused(error, cx);
                }
            }
            AgentStatus::Conversation(conversation) => cx.common.follow(conversation),
            AgentStatus::Young { settles_in } => cx.common.is_young(*settles_in),
            AgentStatus::Notice { text } => cx.publish(SessionEvent::Notice { text: text.clone() }),
            AgentStatus::Ready
            | AgentStatus::TurnStarted
            | AgentStatus::BusyStarted(_)
            | AgentStatus::BusyEnded { .. }
            | AgentStatus::Asked(_)
            | AgentStatus::Settled { .. }
            | AgentStatus::Scheduled { .. }
            | AgentStatus::Unscheduled { .. }
            | AgentStatus::CannotResume { .. }
            | AgentStatus::CannotStart { .. } => {}
        }
    }

    /// A message that did not reach the agent is not lost with it.
    fn on_delivered(&mut self, delivered: Delivered, cx: &mut Cx<'_>) {
        let message = delivered.message;
        let Some(turn) = self
            .turn
            .as_mut()
            .filter(|turn| turn.awaited() == Some(message))
        else {
            return;
        };
        match delivered.result {
            DeliveryResult::Written | DeliveryResult::PartlyWritten => return,
            DeliveryResult::Void => {}
            DeliveryResult::NotWritten | DeliveryResult::CutShort if self.purpose.cancels() => {
                let why = self.purpose.reason().to_string();
                cx.settle(message, MessageState::Cancelled, &why);
            }
            DeliveryResult::CutShort if self.purpose.is_crash() => inbox::cut_short(message, cx),
            DeliveryResult::NotWritten | DeliveryResult::CutShort => inbox::put_back(message, cx),
        }
        turn.withdraw();
        self.turn = self.turn.take().filter(Turn::runs);
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
            Order::Stop(stop) => self.purpose.join(stop, cx),
            Order::Wake(wake) => self.purpose.wake(wake.fresh),
            Order::ChangeAccount(change) => self.purpose.join_change(&change.by),
            Order::Answer(answer) => orders::refuse_answer(answer, cx),
            Order::LiftHold(_) | Order::EndTask(_) | Order::Cancel(_) | Order::RecordOutcome(_) => {
            }
            Order::Keep(wanted) => keep::ask(wanted, false, self.state(), cx),
            Order::Interrupt(_) | Order::TakeHold(_) | Order::StartTask(_) => {
                orders::refuse_not_running(self.state(), cx);
            }
        }
    }

    fn state(&self) -> &'static str {
        if self.purpose.is_release() {
            "releasing"
        } else {
            "stopping"
        }
    }

    /// Takes the next rung when this one has done its work or its time is up. Nothing is asked of
    /// the reaper while it owes an answer.
    fn advance(&mut self, cx: &mut Cx<'_>) {
        if self.awaited.is_some() {
            return;
        }
        let late = cx.now >= self.until;
        let gone = self.is_told();
        match self.rung {
            Rung::Snapshot if self.must_look_again(cx) => self.look_again(cx),
            Rung::Snapshot => self.after_snapshot(cx),
            Rung::Interrupt if gone => self.terminate(cx),
            Rung::Interrupt => {
                if self.turn.is_none() || late {
                    self.close(cx);
                }
            }
            Rung::Close => {
                if gone || late {
                    self.terminate(cx);
                }
            }
            Rung::Terminate | Rung::Stuck if self.emptied => self.verify(cx),
            // A verification without an answer proves nothing: it is asked for again.
            Rung::Verify => self.verify(cx),
            Rung::Terminate | Rung::Stuck => {
                if late {
                    self.kill(cx);
                }
            }
            Rung::Kill => self.kill(cx),
            Rung::Farewell => {}
        }
    }

    fn after_snapshot(&mut self, cx: &mut Cx<'_>) {
        if self.is_told() {
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
            self.reap(Rung::Terminate, ReapStep::Terminate, REAP_ANSWER_MAX, cx);
            self.until = cx.now.after(cx.common.limits.term_grace);
        }
    }

    fn kill(&mut self, cx: &mut Cx<'_>) {
        self.reap(Rung::Kill, ReapStep::Kill, REAP_ANSWER_MAX, cx);
    }

    fn verify(&mut self, cx: &mut Cx<'_>) {
        self.reap(Rung::Verify, ReapStep::Verify, REAP_ANSWER_MAX, cx);
    }

    fn enter(&mut self, rung: Rung, at_most: Duration, cx: &Cx<'_>) {
        self.rung = rung;
        self.until = cx.now.after(at_most);
    }

    fn reap(&mut self, rung: Rung, step: ReapStep, answer_max: Duration, cx: &mut Cx<'_>) {
        self.enter(rung, answer_max, cx);
        self.awaited = Some(self.until);
        cx.fx.push(Effect::Reap(ReapRequest {
            session: cx.common.id,
            incarnation: cx.common.incarnation,
            keeper: self.running.keeper.process,
            agent: Some(self.running.agent.process),
            cgroup: self.running.cgroup.clone(),
            keep: self.spared(cx),
            step,
        }));
    }

    fn on_report(mut self: Box<Self>, report: &ReapReport, cx: &mut Cx<'_>) -> Phase {
        let expected = match self.rung {
            Rung::Snapshot => ReapStep::Snapshot,
            Rung::Terminate => ReapStep::Terminate,
            Rung::Kill | Rung::Stuck => ReapStep::Kill,
            Rung::Verify => ReapStep::Verify,
            Rung::Interrupt | Rung::Close | Rung::Farewell => return Phase::Ending(self),
        };
        if report.step != expected {
            return Phase::Ending(self);
        }
        self.awaited = None;
        self.note_kept(report);
        match report.step {
            // Asked for before the teardown began.
            ReapStep::Look => {}
            ReapStep::Snapshot => self.processes.note(&report.processes),
            ReapStep::Terminate => {
                self.processes.note(&report.processes);
                if self.exited {
                    self.reaped.note(&report.processes);
                }
                self.emptied |= report.empty;
                // The signals have only now been sent: the reaper may have been busy before.
                let grace = cx.common.limits.term_grace;
                self.until = self.until.max(cx.now.after(grace));
            }
            ReapStep::Kill => {
                self.processes.note(&report.processes);
                self.reaped.note(&report.processes);
                if report.empty {
                    return self.farewell(cx);
                }
                self.give_up(report, cx);
                return Phase::Ending(self);
            }
            ReapStep::Verify => {
                if report.empty {
                    return self.farewell(cx);
                }
                // The keeper said empty, the walk found somebody: the walk is right.
                self.emptied = false;
                self.kill(cx);
                return Phase::Ending(self);
            }
        }
        self.advance(cx);
        Phase::Ending(self)
    }

    fn give_up(&mut self, report: &ReapReport, cx: &mut Cx<'_>) {
        // Told once, and again when there are others or other reasons.
        let is_known = |one: &Survivor| {
            self.survivors
                .iter()
                .any(|known| known.process.identity == one.process.identity && known.why == one.why)
        };
        let is_same = self.survivors.len() == report.survivors.len();
        if !is_same || !report.survivors.iter().all(is_known) {
            self.survivors.clone_from(&report.survivors);
            let survivors = report.survivors.clone();
            cx.publish(SessionEvent::ReleaseFailed { survivors });
        }
        self.emptied = false;
        self.enter(Rung::Stuck, STUCK_RETRY_AFTER, cx);
    }

    /// A fresh walk found nothing: the tree is gone. How the agent ended, and what it said last,
    /// may still be on its way.
    fn farewell(mut self: Box<Self>, cx: &mut Cx<'_>) -> Phase {
        if self.is_told() {
            return self.finish(cx);
        }
        self.enter(Rung::Farewell, FAREWELL_MAX, cx);
        Phase::Ending(self)
    }

    /// A keeper says how the agent ended before it says that nothing is left.
    fn is_told(&self) -> bool {
        self.exited || self.emptied
    }

    /// All that can be known of the end is known.
    fn finish(mut self: Box<Self>, cx: &mut Cx<'_>) -> Phase {
        if self.goes_back_for_kept(cx) {
            return Phase::Ending(self);
        }
        let left = self.kept.take().unwrap_or_default();
        let kept = keep::retire(&self.running, &left, cx);
        let why = format!(
            "the agent ended while it worked on this: {}",
            self.purpose.reason()
        );
        for message in self.messages() {
            cx.settle(*message, MessageState::Unknown, &why);
        }
        let processes = self.processes.take();
        let end = EndReport {
            reason: self.purpose.reason(),
            by: self.purpose.by().clone(),
            at: cx.common.wall,
            mid_turn: self.turn.is_some(),
            released_bytes: processes.iter().map(|process| process.pss_bytes).sum(),
            servers: self.servers(&processes),
            kept,
            processes,
            reaped: self.reaped.take(),
            status: self.status,
            survivors: Vec::new(),
            stderr_tail: if self.purpose.is_release() {
                String::new()
            } else {
                std::mem::take(&mut self.stderr_tail)
            },
        };
        cx.publish(SessionEvent::Released {
            end: Box::new(end.clone()),
        });
        cx.common.end = Some(end);
        host::after_end(&self.purpose, self.status, self.turn.is_some(), cx);
        self.purpose.follow(cx)
    }
}
