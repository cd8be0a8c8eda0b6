//! From the wish for a process to its readiness, with the back-off of failed tries.
//!
//! Invariant: a place among the starting ones (`StartGranted`) is given back exactly when the try
//! is over, whichever way. `Launch` is answered exactly once, so a launch that somebody cancels
//! waits for that answer and is undone then: no process is ever left unadopted (behaviour 88).

use std::time::Duration;

use drowse_messages::{
    AgentStatus, ChangeAccount, ChildExited, HostEnd, LaunchFailed, MonoTime, Order, Reason,
    Refusal, Running, SessionEvent, StatusChanged, Stop, StopHow, Who, millis,
};

use super::ending::Ending;
use super::idle::Rest;
use super::live::Live;
use super::purpose::{Goal, Purpose};
use super::turn::Turn;
use super::{Cx, Phase, host, keep, orders};
use crate::effect::{Effect, Input};

/// 5: an agent that fails this often in a row has a lasting trouble, which a person must see.
pub const START_TRIES_MAX: u32 = 5;
/// The pause after the first failed try; it doubles with each further one.
pub const START_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
pub const START_PAUSE_MAX: Duration = Duration::from_secs(60);

/// A start under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Starting {
    stage: Stage,
    /// Begin a new conversation.
    fresh: bool,
    /// Somebody ended it while the launch was under way.
    cancelled: Option<Purpose>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Waiting for a place among the starting ones.
    Queued,
    /// The launch was asked for; its answer will come.
    Launching,
    /// The process runs and has not said that it is ready.
    Handshaking(Box<Live>),
    /// The last try failed; the next comes at this time.
    BackingOff { until: MonoTime },
    /// The conversation was begun or taken up so lately that it would be harmed: not before this
    /// time.
    Settling { until: MonoTime },
}

impl Stage {
    /// Asks for a place, once the conversation may be taken up.
    fn ask(fresh: bool, cx: &mut Cx<'_>) -> Self {
        match cx.common.settles_in().filter(|_| !fresh) {
            Some(left) => {
                let seconds = left.as_millis().div_ceil(1000);
                let agent = &cx.common.agent;
                let text = format!(
                    "{agent} would harm its conversation by taking it up again so soon: it is \
                     started in {seconds} s"
                );
                cx.publish(SessionEvent::Notice { text });
                Self::Settling {
                    until: cx.now.after(left),
                }
            }
            None => {
                cx.fx.push(Effect::AskStart);
                Self::Queued
            }
        }
    }
}

impl Starting {
    /// Asks for a place.
    pub(super) fn begin(fresh: bool, cx: &mut Cx<'_>) -> Phase {
        cx.common.awaits_nudge = false;
        Phase::Starting(Box::new(Self {
            stage: Stage::ask(fresh, cx),
            fresh,
            cancelled: None,
        }))
    }

    pub(super) fn running(&self) -> Option<&Running> {
        match &self.stage {
            Stage::Handshaking(live) => Some(live.running()),
            Stage::Queued
            | Stage::Launching
            | Stage::BackingOff { .. }
            | Stage::Settling { .. } => None,
        }
    }

    pub(super) fn live(&self) -> Option<&Live> {
        match &self.stage {
            Stage::Handshaking(live) => Some(live),
            Stage::Queued
            | Stage::Launching
            | Stage::BackingOff { .. }
            | Stage::Settling { .. } => None,
        }
    }

    /// Why nothing is started yet.
    pub(super) fn waits_for(&self) -> Option<&'static str> {
        match &self.stage {
            Stage::BackingOff { .. } => Some("waiting to try again"),
            Stage::Settling { .. } => {
                Some("waiting until the conversation may be taken up by another process")
            }
            Stage::Queued => Some("waiting for other starts"),
            Stage::Launching | Stage::Handshaking(_) => None,
        }
    }

    /// Somebody ended it; that it was launched is all that is still to be heard.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.is_some()
    }

    pub(super) fn next_deadline(&self, common: &super::Common) -> Option<MonoTime> {
        let of_stage = match &self.stage {
            Stage::Queued | Stage::Launching => None,
            Stage::Handshaking(live) => Some(live.launched().after(common.limits.start_limit)),
            Stage::BackingOff { until } | Stage::Settling { until } => Some(*until),
        };
        let given_up = common.host.deadline().filter(|_| self.cancelled.is_none());
        of_stage.into_iter().chain(given_up).min()
    }

    pub(super) fn on(mut self: Box<Self>, input: &Input, cx: &mut Cx<'_>) -> Phase {
        match input {
            Input::StartGranted(_) => self.on_granted(cx),
            Input::Launched(launched) => self.on_launched(launched.running.clone(), cx),
            Input::LaunchFailed(failed) => self.on_launch_failed(failed, cx),
            Input::StatusChanged(changed) => self.on_status(changed, cx),
            Input::TaskRoster(roster) => {
                if let Stage::Handshaking(live) = &mut self.stage {
                    live.replace_roster(&roster.tasks, cx);
                }
                Phase::Starting(self)
            }
            Input::ChildExited(exited) => {
                let error = ended_early(exited);
                self.fail_handshake(error, true, Some(input), cx)
            }
            Input::TreeEmptied(_) => {
                let error = "ended before it was ready".to_owned();
                self.fail_handshake(error, true, Some(input), cx)
            }
            Input::IdleTick(_) => self.on_tick(cx),
            Input::Order(order) => self.on_order(order, cx),
            // What the host says waits until then, as messages do in the inbox; output before readiness is no use of the session.
            Input::MessageQueued(_)
            | Input::Host(_)
            | Input::Activity(_)
            | Input::Delivered(_)
            | Input::Adopted(_)
            | Input::Suspend(_)
            | Input::ReapReport(_)
            | Input::KeptEnded(_)
            | Input::LimitsChanged(_) => Phase::Starting(self),
        }
    }

    fn on_granted(mut self: Box<Self>, cx: &mut Cx<'_>) -> Phase {
        match self.stage {
            Stage::Queued => {
                let common = &mut cx.common;
                common.keep.forget_asked();
                common.incarnation = common.incarnation.next();
                if self.fresh {
                    common.conversation = None;
                }
                cx.fx.push(Effect::Launch {
                    incarnation: common.incarnation,
                    conversation: common.conversation.clone(),
                    eof_grace: common.limits.eof_grace,
                    term_grace: common.limits.term_grace,
                    relayed: !common.host.is_none(),
                });
                self.stage = Stage::Launching;
            }
            Stage::BackingOff { .. } | Stage::Settling { .. } => {
                cx.fx.push(Effect::StartSettled);
            }
            Stage::Launching | Stage::Handshaking(_) => {}
        }
        Phase::Starting(self)
    }

    fn on_launched(mut self: Box<Self>, running: Running, cx: &mut Cx<'_>) -> Phase {
        match self.stage {
            Stage::Launching => {}
            Stage::Queued
            | Stage::Handshaking(_)
            | Stage::BackingOff { .. }
            | Stage::Settling { .. } => {
                return Phase::Starting(self);
            }
        }
        cx.publish(SessionEvent::Launched {
            incarnation: cx.common.incarnation,
            agent_pid: running.agent.process.pid(),
        });
        keep::tell_of_end(cx);
        let live = Box::new(Live::new(running, cx));
        if let Some(cancelled) = self.cancelled {
            cx.fx.push(Effect::StartSettled);
            return Ending::begin(live, cancelled, None, cx);
        }
        self.stage = Stage::Handshaking(live);
        Phase::Starting(self)
    }

    fn on_launch_failed(self: Box<Self>, failed: &LaunchFailed, cx: &mut Cx<'_>) -> Phase {
        match self.stage {
            Stage::Launching => match self.cancelled {
                Some(cancelled) => {
                    cx.fx.push(Effect::StartSettled);
                    cancelled.finish_without_process(cx)
                }
                None => fail(&failed.error, failed.retry, self.fresh, cx),
            },
            Stage::Queued
            | Stage::Handshaking(_)
            | Stage::BackingOff { .. }
            | Stage::Settling { .. } => Phase::Starting(self),
        }
    }

    fn on_status(mut self: Box<Self>, changed: &StatusChanged, cx: &mut Cx<'_>) -> Phase {
        let Stage::Handshaking(mut live) = self.stage else {
            return Phase::Starting(self);
        };
        match &changed.status {
            AgentStatus::Ready => {
                ready(cx);
                Rest::begin(live, cx)
            }
            // It began a turn of its own accord before it answered the handshake.
            AgentStatus::TurnStarted => {
                ready(cx);
                Turn::begin(live, None, cx)
            }
            AgentStatus::CannotResume { detail } => {
                self.stage = Stage::Handshaking(live);
                self.fail_handshake(detail.clone(), false, None, cx)
            }
            AgentStatus::CannotStart { detail, retry } => {
                self.stage = Stage::Handshaking(live);
                self.fail_handshake(detail.clone(), *retry, None, cx)
            }
            AgentStatus::TurnEnded(_)
            | AgentStatus::NotTaken { .. }
            | AgentStatus::BusyStarted(_)
            | AgentStatus::BusyEnded { .. }
            | AgentStatus::Asked(_)
            | AgentStatus::Settled { .. }
            | AgentStatus::Scheduled { .. }
            | AgentStatus::Unscheduled { .. }
            | AgentStatus::Conversation(_)
            | AgentStatus::Young { .. }
            | AgentStatus::Notice { .. } => {
                live.note(&changed.status, cx);
                self.stage = Stage::Handshaking(live);
                Phase::Starting(self)
            }
        }
    }

    fn on_tick(mut self: Box<Self>, cx: &mut Cx<'_>) -> Phase {
        if self.cancelled.is_none() && cx.common.host.is_given_up(cx.now) {
            let goal = Goal::Release(Reason::Detached);
            return self.cancel(Purpose::new(goal, Who::Rule), cx);
        }
        match &self.stage {
            Stage::BackingOff { until } | Stage::Settling { until } if cx.now >= *until => {
                self.stage = Stage::ask(self.fresh, cx);
                Phase::Starting(self)
            }
            Stage::Handshaking(live)
                if cx.now >= live.launched().after(cx.common.limits.start_limit) =>
            {
                let limit = cx.common.limits.start_limit;
                let error = format!("not ready within {limit:?} (start_limit)");
                self.fail_handshake(error, true, None, cx)
            }
            Stage::Queued
            | Stage::Launching
            | Stage::Handshaking(_)
            | Stage::BackingOff { .. }
            | Stage::Settling { .. } => Phase::Starting(self),
        }
    }

    /// The process will not do: its tree is ended before anything else is tried.
    fn fail_handshake(
        self: Box<Self>,
        error: String,
        retry: bool,
        end: Option<&Input>,
        cx: &mut Cx<'_>,
    ) -> Phase {
        match self.stage {
            Stage::Handshaking(live) => {
                cx.fx.push(Effect::StartSettled);
                let fresh = self.fresh;
                let goal = Goal::StartFailed {
                    error,
                    retry,
                    fresh,
                };
                let purpose = Purpose::new(goal, Who::Outside);
                match end {
                    Some(end) => Ending::begin_after(end, live, purpose, None, cx),
                    None => Ending::begin(live, purpose, None, cx),
                }
            }
            Stage::Queued
            | Stage::Launching
            | Stage::BackingOff { .. }
            | Stage::Settling { .. } => Phase::Starting(self),
        }
    }

    fn on_order(mut self: Box<Self>, order: &Order, cx: &mut Cx<'_>) -> Phase {
        match order {
            Order::Stop(stop) => self.on_stop(stop, cx),
            Order::Wake(wake) => match (&mut self.cancelled, &self.stage) {
                (Some(cancelled), _) => {
                    cancelled.wake(wake.fresh);
                    Phase::Starting(self)
                }
                // Whoever asks has changed something: the tries are counted anew.
                (None, Stage::BackingOff { .. }) => {
                    cx.common.failed_starts = 0;
                    Self::begin(self.fresh || wake.fresh, cx)
                }
                // A new conversation is nothing that has to settle.
                (None, Stage::Settling { .. }) if wake.fresh => Self::begin(true, cx),
                (
                    None,
                    Stage::Queued
                    | Stage::Launching
                    | Stage::Handshaking(_)
                    | Stage::Settling { .. },
                ) => {
                    self.fresh |= wake.fresh;
                    Phase::Starting(self)
                }
            },
            Order::ChangeAccount(order) => self.on_change(order, cx),
            Order::Keep(wanted) => {
                let is_live = matches!(self.stage, Stage::Handshaking(_));
                keep::ask(wanted, is_live, "starting", cx);
                Phase::Starting(self)
            }
            Order::TakeHold(hold) => {
                orders::take_lease(hold, cx);
                Phase::Starting(self)
            }
            Order::LiftHold(lifted) => {
                orders::lift_lease(lifted.id, false, cx);
                Phase::Starting(self)
            }
            Order::Answer(answer) => {
                if let Stage::Handshaking(live) = &mut self.stage {
                    live.answer(answer, cx);
                } else {
                    orders::refuse_answer(answer, cx);
                }
                Phase::Starting(self)
            }
            Order::StartTask(start) => {
                if let Stage::Handshaking(live) = &mut self.stage {
                    live.tasks.start(start, cx);
                } else {
                    orders::refuse_not_running("starting", cx);
                }
                Phase::Starting(self)
            }
            Order::EndTask(end) => {
                if let Stage::Handshaking(live) = &mut self.stage {
                    live.tasks.end(end, cx);
                }
                Phase::Starting(self)
            }
            Order::Interrupt(_) => {
                orders::refuse_not_running("starting", cx);
                Phase::Starting(self)
            }
            // Dealt with already, whatever the phase.
            Order::Cancel(_) | Order::RecordOutcome(_) => Phase::Starting(self),
        }
    }

    /// What was launched has the former environment; what was not yet, has not.
    fn on_change(mut self: Box<Self>, order: &ChangeAccount, cx: &mut Cx<'_>) -> Phase {
        if let Some(cancelled) = &mut self.cancelled {
            cancelled.join_change(&order.by);
            return Phase::Starting(self);
        }
        match self.stage {
            Stage::Queued | Stage::Settling { .. } => Phase::Starting(self),
            Stage::BackingOff { .. } => {
                cx.common.failed_starts = 0;
                Self::begin(self.fresh, cx)
            }
            Stage::Launching => {
                self.cancelled = Some(Purpose::change(&order.by));
                Phase::Starting(self)
            }
            Stage::Handshaking(live) => {
                cx.fx.push(Effect::StartSettled);
                Ending::begin(live, Purpose::change(&order.by), None, cx)
            }
        }
    }

    fn on_stop(mut self: Box<Self>, stop: &Stop, cx: &mut Cx<'_>) -> Phase {
        if stop.how == StopHow::Release {
            let held_by = vec!["its start".to_owned()];
            cx.fx.push(Effect::Refuse(Refusal::Held { held_by }));
            return Phase::Starting(self);
        }
        if let Some(cancelled) = &mut self.cancelled {
            cancelled.join(stop, cx);
            return Phase::Starting(self);
        }
        orders::cancel_for(stop.how, cx);
        self.cancel(Purpose::of(stop), cx)
    }

    /// Ends the start, as soon as that can be done.
    fn cancel(mut self: Box<Self>, purpose: Purpose, cx: &mut Cx<'_>) -> Phase {
        match self.stage {
            Stage::Queued | Stage::BackingOff { .. } | Stage::Settling { .. } => {
                cx.fx.push(Effect::StartSettled);
                purpose.finish_without_process(cx)
            }
            Stage::Handshaking(live) => {
                cx.fx.push(Effect::StartSettled);
                Ending::begin(live, purpose, None, cx)
            }
            Stage::Launching => {
                self.cancelled = Some(purpose);
                Phase::Starting(self)
            }
        }
    }
}

fn ended_early(exited: &ChildExited) -> String {
    let how = exited
        .status
        .map_or("without a trace".to_owned(), |s| s.to_string());
    let said = exited.stderr_tail.trim();
    let colon = if said.is_empty() { "" } else { ": " };
    format!("ended before it was ready ({how}){colon}{said}")
}

/// The agent takes prompts now.
fn ready(cx: &mut Cx<'_>) {
    cx.fx.push(Effect::StartSettled);
    cx.common.last_error = None;
    host::open_gate(cx);
    let resumed = cx.common.conversation.as_ref().is_some_and(|c| c.resumable);
    cx.publish(SessionEvent::Ready {
        incarnation: cx.common.incarnation,
        resumed,
    });
}

/// A try is over and nothing of it is left: the next one later, or none.
pub(super) fn fail(error: &str, retry: bool, fresh: bool, cx: &mut Cx<'_>) -> Phase {
    cx.common.failed_starts = cx.common.failed_starts.saturating_add(1);
    cx.common.last_error = Some(error.to_owned());
    cx.fx.push(Effect::StartSettled);
    let pause = (retry && cx.common.failed_starts < START_TRIES_MAX).then(|| pause(cx));
    cx.publish(SessionEvent::StartFailed {
        incarnation: cx.common.incarnation,
        error: error.to_owned(),
        retry_in_ms: pause.map(millis),
    });
    match pause {
        Some(pause) => {
            let stage = Stage::BackingOff {
                until: cx.now.after(pause),
            };
            Phase::Starting(Box::new(Starting {
                stage,
                fresh,
                cancelled: None,
            }))
        }
        None => {
            cx.common.leases.clear();
            let error = error.to_owned();
            host::end(HostEnd::Failed { error }, cx);
            Phase::Failing
        }
    }
}

fn pause(cx: &Cx<'_>) -> Duration {
    let doublings = cx.common.failed_starts.saturating_sub(1).min(16);
    START_PAUSE
        .saturating_mul(1 << doublings)
        .min(START_PAUSE_MAX)
}
