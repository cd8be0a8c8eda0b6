//! A session at rest: its last turn is over, and the next begins with a message, or by itself.
//!
//! Fed by `session.rs`. When quiet time leads to a release is decided in `idle.rs`. Invariant: a
//! message waits at rest only while the agent is busy with something else or asks a person.

use drowse_messages::{AgentStatus, StatusChanged};

use super::ending::Ending;
use super::idle::{self, Rest};
use super::live::{Live, crash};
use super::purpose::Purpose;
use super::turn::Turn;
use super::{Cx, Phase, change, host, orders, publish_output, report};
use crate::effect::{BackendOrder, Input};

pub(super) fn on(mut live: Box<Live>, mut rest: Rest, input: &Input, cx: &mut Cx<'_>) -> Phase {
    match input {
        Input::StatusChanged(changed) => on_status(live, rest, changed, cx),
        Input::TaskRoster(roster) => {
            live.replace_roster(&roster.tasks, cx);
            Phase::Resting(live, rest)
        }
        Input::Activity(activity) => {
            publish_output(&activity.kind, None, cx);
            rest.restart(cx.now);
            Phase::Resting(live, rest)
        }
        // It is the next daemon's to judge.
        Input::IdleTick(_) | Input::LimitsChanged(_) if cx.common.suspended => {
            Phase::Resting(live, rest)
        }
        Input::IdleTick(_) | Input::LimitsChanged(_) => idle::judge(live, rest, cx),
        Input::Order(order) => orders::on_resting(live, rest, order, cx),
        Input::ReapReport(look) => idle::on_look(live, rest, look, cx),
        Input::ChildExited(_) | Input::TreeEmptied(_) => crash(live, None, input, cx),
        Input::Host(changed) => {
            host::on_live(*changed, cx);
            Phase::Resting(live, rest)
        }
        // A message is handed over by `take_up`. The rest speaks of starts and teardowns.
        Input::MessageQueued(_)
        | Input::Delivered(_)
        | Input::StartGranted(_)
        | Input::Launched(_)
        | Input::LaunchFailed(_)
        | Input::Adopted(_)
        | Input::Suspend(_)
        | Input::KeptEnded(_) => Phase::Resting(live, rest),
    }
}

fn on_status(mut live: Box<Live>, rest: Rest, changed: &StatusChanged, cx: &mut Cx<'_>) -> Phase {
    match &changed.status {
        // Nobody prompted it: a background task's end woke the agent, or a timer of its own.
        AgentStatus::TurnStarted => Turn::begin(live, None, cx),
        AgentStatus::CannotResume { detail } => {
            Ending::begin(live, Purpose::cannot_resume(detail), None, cx)
        }
        // A second terminal event is harmless (behaviour 41).
        AgentStatus::TurnEnded(_)
        | AgentStatus::Ready
        | AgentStatus::BusyStarted(_)
        | AgentStatus::BusyEnded { .. }
        | AgentStatus::Asked(_)
        | AgentStatus::Settled { .. }
        | AgentStatus::Scheduled { .. }
        | AgentStatus::Unscheduled { .. }
        | AgentStatus::Conversation(_)
        | AgentStatus::Young { .. }
        | AgentStatus::NotTaken { .. }
        | AgentStatus::CannotStart { .. }
        | AgentStatus::Notice { .. } => {
            live.note(&changed.status, cx);
            Phase::Resting(live, rest)
        }
    }
}

/// What follows for a session that a step leaves at rest, whatever the step was: it is let go for
/// a change that waited, or takes up the next message, or, once whatever held it is gone, a full window begins (behaviour 17).
pub(super) fn take_up(phase: Phase, was_held: bool, cx: &mut Cx<'_>) -> Phase {
    let Phase::Resting(live, mut rest) = phase else {
        return phase;
    };
    let live = match change::take_up(live, cx) {
        Ok(live) => live,
        Err(ending) => return ending,
    };
    if live.takes_messages()
        && !cx.common.suspended
        && let Some(message) = cx.common.inbox.hand_out()
    {
        cx.tell(BackendOrder::Deliver(message));
        return Turn::begin(live, Some(message), cx);
    }
    if was_held && !report::is_held_at_rest(&live, cx.common) {
        rest.restart(cx.now);
    }
    Phase::Resting(live, rest)
}
