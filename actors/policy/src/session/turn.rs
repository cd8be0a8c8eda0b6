//! A running turn: from a prompt, or the agent's own beginning, to the end of its answer.
//!
//! Fed by `session.rs`. Invariants: a session with a turn is never idle, however long or silent
//! the turn is; a message that reached the agent is answered, failed or unknown, never repeated.

use drowse_messages::{
    AgentStatus, Delivered, DeliveryResult, MessageId, MessageState, MonoTime, SessionEvent,
    StatusChanged, TurnEnded, TurnOutcome, Who,
};

use super::ending::Ending;
use super::idle::Rest;
use super::live::{Live, crash};
use super::purpose::{Goal, Purpose};
use super::{Cx, Phase, host, orders, publish_output};
use crate::effect::Input;

/// What is kept as the answer of a message whose turn ended unheard.
const LOST: &str = "the turn ended while drowse was being replaced: its answer was not heard";

/// A running turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// The message that caused it; `None`: the agent began by itself.
    message: Option<MessageId>,
    pub(super) since: MonoTime,
    /// The agent itself said that a turn runs.
    heard: bool,
}

impl Turn {
    /// Enters the phase; without a message, because the agent says so.
    pub(super) fn begin(mut live: Box<Live>, message: Option<MessageId>, cx: &mut Cx<'_>) -> Phase {
        live.note_turn(cx.now);
        let heard = message.is_none();
        if heard {
            live.note_work(cx);
        }
        cx.publish(SessionEvent::TurnStarted { message });
        let since = cx.now;
        Phase::Working(
            live,
            Self {
                message,
                since,
                heard,
            },
        )
    }

    /// A turn that an earlier daemon saw begin.
    pub(super) fn taken_up(message: Option<MessageId>, cx: &Cx<'_>) -> Self {
        Self {
            message,
            since: cx.now,
            heard: true,
        }
    }

    pub(super) fn message(&self) -> Option<MessageId> {
        self.message
    }

    /// An end that answers something else leaves the message in flight where it is.
    pub(super) fn is_ended_by(&self, ended: &TurnEnded) -> bool {
        ended.answers || self.message.is_none()
    }
}

/// A turn runs: it is never released, however long or silent (behaviour 26).
pub(super) fn on(mut live: Box<Live>, turn: Turn, input: &Input, cx: &mut Cx<'_>) -> Phase {
    match input {
        Input::StatusChanged(changed) => on_status(live, turn, changed, cx),
        Input::TaskRoster(roster) => {
            live.replace_roster(&roster.tasks, cx);
            Phase::Working(live, turn)
        }
        Input::Activity(activity) => {
            publish_output(&activity.kind, turn.message, cx);
            Phase::Working(live, turn)
        }
        Input::IdleTick(_) if cx.common.suspended => Phase::Working(live, turn),
        Input::IdleTick(_) => match live.pass_time(cx) {
            Some(goal) => Ending::begin(live, Purpose::new(goal, Who::Rule), Some(turn), cx),
            None => Phase::Working(live, turn),
        },
        Input::Order(order) => orders::on_working(live, turn, order, cx),
        Input::Delivered(delivered) => on_delivered(live, turn, *delivered, cx),
        Input::ChildExited(_) | Input::TreeEmptied(_) => crash(live, Some(turn), input, cx),
        Input::Host(changed) => {
            host::on_live(*changed, cx);
            Phase::Working(live, turn)
        }
        // A message waits for the turn's end. The rest speaks of starts and teardowns.
        Input::MessageQueued(_)
        | Input::StartGranted(_)
        | Input::Launched(_)
        | Input::LaunchFailed(_)
        | Input::Adopted(_)
        | Input::Suspend(_)
        | Input::ReapReport(_)
        | Input::KeptEnded(_)
        | Input::LimitsChanged(_) => Phase::Working(live, turn),
    }
}

fn on_status(
    mut live: Box<Live>,
    mut turn: Turn,
    changed: &StatusChanged,
    cx: &mut Cx<'_>,
) -> Phase {
    match &changed.status {
        AgentStatus::TurnStarted => {
            live.note_work(cx);
            turn.heard = true;
            Phase::Working(live, turn)
        }
        AgentStatus::TurnEnded(ended) => on_ended(live, turn, ended, cx),
        AgentStatus::CannotResume { detail } => {
            // The agent found out only when it was spoken to: it has not heard the message.
            put_back(&turn, cx);
            Ending::begin(live, Purpose::cannot_resume(detail), None, cx)
        }
        AgentStatus::Ready
        | AgentStatus::BusyStarted(_)
        | AgentStatus::BusyEnded { .. }
        | AgentStatus::Asked(_)
        | AgentStatus::Settled { .. }
        | AgentStatus::Scheduled { .. }
        | AgentStatus::Unscheduled { .. }
        | AgentStatus::Conversation(_)
        | AgentStatus::Young { .. }
        | AgentStatus::CannotStart { .. }
        | AgentStatus::Notice { .. } => {
            live.note(&changed.status, cx);
            Phase::Working(live, turn)
        }
    }
}

/// A turn ended: this one, or one that the agent ran besides.
pub(super) fn on_ended(
    mut live: Box<Live>,
    turn: Turn,
    ended: &TurnEnded,
    cx: &mut Cx<'_>,
) -> Phase {
    if !turn.is_ended_by(ended) {
        return Phase::Working(live, turn);
    }
    live.note_work(cx);
    end(&turn, ended, cx);
    live.void_asks(cx);
    // A whole turn went by: what runs in the background would have been reported.
    live.roster_unknown_until = None;
    Rest::begin(live, cx)
}

/// Writes the outcome of a turn down and tells.
pub(super) fn end(turn: &Turn, ended: &TurnEnded, cx: &mut Cx<'_>) {
    let (state, error) = match &ended.outcome {
        TurnOutcome::Completed => (MessageState::Answered, None),
        TurnOutcome::Failed { error } => (MessageState::Failed, Some(error.clone())),
        TurnOutcome::Interrupted => (MessageState::Failed, Some("interrupted".to_owned())),
        TurnOutcome::Lost => (MessageState::Unknown, Some(LOST.to_owned())),
    };
    if let Some(message) = turn.message {
        cx.settle(message, state, error.as_deref().unwrap_or(&ended.text));
    }
    cx.publish(SessionEvent::TurnEnded {
        message: turn.message,
        error,
    });
}

/// The message in flight did not reach the agent: it is the next one again.
pub(super) fn put_back(turn: &Turn, cx: &mut Cx<'_>) {
    if let Some(message) = turn.message {
        cx.common.inbox.insert(message);
        cx.settle(message, MessageState::Queued, "");
    }
}

fn on_delivered(live: Box<Live>, turn: Turn, delivered: Delivered, cx: &mut Cx<'_>) -> Phase {
    if turn.message != Some(delivered.message) {
        return Phase::Working(live, turn);
    }
    match delivered.result {
        DeliveryResult::Written => {
            let (message, state) = (delivered.message, MessageState::Delivered);
            cx.publish(SessionEvent::MessageChanged {
                message,
                state,
                text: String::new(),
            });
            Phase::Working(live, turn)
        }
        DeliveryResult::Void if turn.heard => {
            let message = None;
            Phase::Working(live, Turn { message, ..turn })
        }
        DeliveryResult::Void => Rest::begin(live, cx),
        DeliveryResult::NotWritten => {
            put_back(&turn, cx);
            let goal = Goal::StartFailed {
                error: "the agent does not read its input".to_owned(),
                retry: true,
                fresh: false,
            };
            Ending::begin(live, Purpose::new(goal, Who::Outside), None, cx)
        }
        DeliveryResult::PartlyWritten => {
            let goal = Goal::Crash {
                status: None,
                early: false,
            };
            Ending::begin(live, Purpose::new(goal, Who::Outside), Some(turn), cx)
        }
    }
}
