//! A running turn: from a prompt, or the agent's own beginning, to the end of its answer.
//!
//! Fed by `session.rs`. Invariants: a session with a turn is never idle, however long or silent
//! the turn is; a message that reached the agent is answered, failed or unknown, never repeated; at
//! most one message is on its way to the agent.

use drowse_messages::{
    AgentStatus, Delivered, DeliveryResult, MessageId, MessageState, MonoTime, Priority,
    SessionEvent, StatusChanged, TurnEnded, TurnOutcome, Who,
};

use super::ending::Ending;
use super::idle::Rest;
use super::live::{Live, crash};
use super::purpose::{Goal, Purpose};
use super::{Cx, Phase, host, inbox, orders, publish_output};
use crate::effect::{BackendOrder, Input};

/// 16 messages in one turn: whoever adds more wants another turn, and agents keep as many.
pub const TURN_MESSAGES_MAX: usize = 16;

/// What is kept as the answer of a message whose turn ended unheard.
const LOST: &str = "the turn ended while drowse was being replaced: its answer was not heard";

/// The agent read no more in the middle of a message.
const CRASH: Goal = Goal::Crash {
    status: None,
    early: false,
};

/// A running turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// The message that caused it and those that went into it; none: the agent began by itself.
    messages: Vec<MessageId>,
    /// The last of them is being handed to the agent.
    on_its_way: bool,
    pub(super) since: MonoTime,
    /// The agent itself said that a turn runs.
    heard: bool,
    /// It was interrupted for a message that cannot wait.
    interrupted: bool,
    /// The agent's input is closed: it goes on with what it has.
    deaf: bool,
}

impl Turn {
    /// Enters the phase; without a message, because the agent says so.
    pub(super) fn begin(mut live: Box<Live>, message: Option<MessageId>, cx: &mut Cx<'_>) -> Phase {
        live.note_turn(cx.now);
        if message.is_none() {
            live.note_work(cx);
        }
        cx.publish(SessionEvent::TurnStarted { message });
        let turn = Self {
            heard: message.is_none(),
            ..Self::taken_up(message.into_iter().collect(), message.is_some(), cx)
        };
        Phase::Working(live, turn)
    }

    /// A turn that an earlier daemon saw begin.
    pub(super) fn taken_up(messages: Vec<MessageId>, on_its_way: bool, cx: &Cx<'_>) -> Self {
        Self {
            messages,
            on_its_way,
            since: cx.now,
            heard: true,
            interrupted: false,
            deaf: false,
        }
    }

    /// The message that caused it.
    pub(super) fn message(&self) -> Option<MessageId> {
        self.messages.first().copied()
    }

    pub(super) fn messages(&self) -> &[MessageId] {
        &self.messages
    }

    /// An end that answers something else leaves the messages in flight where they are.
    pub(super) fn is_ended_by(&self, ended: &TurnEnded) -> bool {
        ended.answers || self.messages.is_empty()
    }

    /// The messages that this end answers; what is left belongs to a turn that follows.
    fn split_off_left(&mut self, ended: &TurnEnded) -> Vec<MessageId> {
        let left = usize::try_from(ended.left).unwrap_or(usize::MAX);
        let left = left.saturating_add(usize::from(self.on_its_way));
        let answered = self.messages.len().saturating_sub(left);
        self.messages.split_off(answered)
    }

    /// True while the agent is at something.
    pub(super) fn runs(&self) -> bool {
        self.heard || !self.messages.is_empty()
    }

    /// The message of which it is not known yet whether the agent got it.
    pub(super) fn awaited(&self) -> Option<MessageId> {
        self.messages.last().copied().filter(|_| self.on_its_way)
    }

    /// The agent refused the last message that was written to it.
    pub(super) fn refused(&mut self, error: &str, cx: &mut Cx<'_>) {
        let written = self.messages.len() - usize::from(self.on_its_way);
        if let Some(last) = written.checked_sub(1) {
            let message = self.messages.remove(last);
            cx.settle(message, MessageState::Failed, error);
        }
    }

    /// The awaited message is not in it any more.
    pub(super) fn withdraw(&mut self) {
        if std::mem::take(&mut self.on_its_way) {
            self.messages.pop();
        }
    }
}

/// What the next of those that wait wants of a turn that runs: its end, or to go into it.
pub(super) fn attend(phase: Phase, cx: &mut Cx<'_>) -> Phase {
    let Phase::Working(live, mut turn) = phase else {
        return phase;
    };
    let is_open = turn.heard && !turn.on_its_way && !turn.deaf && !cx.common.suspended;
    match cx.common.inbox.urgency().filter(|_| is_open) {
        Some(Priority::Now) if !turn.interrupted => {
            turn.interrupted = true;
            cx.tell(BackendOrder::Interrupt);
        }
        Some(Priority::Next)
            if cx.common.traits.steers
                && live.takes_messages()
                && turn.messages.len() < TURN_MESSAGES_MAX =>
        {
            if let Some(message) = cx.common.inbox.hand_out() {
                cx.tell(BackendOrder::Deliver(message));
                turn.messages.push(message);
                turn.on_its_way = true;
            }
        }
        Some(Priority::Now | Priority::Next | Priority::Later) | None => {}
    }
    Phase::Working(live, turn)
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
            publish_output(&activity.kind, turn.message(), cx);
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
        // A message waits for what `attend` makes of it. The rest speaks of starts and teardowns.
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
        AgentStatus::NotTaken { error } => {
            turn.refused(error, cx);
            Phase::Working(live, turn)
        }
        AgentStatus::CannotResume { detail } => {
            // The agent found out only when it was spoken to: it has not heard the message.
            for message in turn.messages {
                inbox::put_back(message, cx);
            }
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
    mut turn: Turn,
    ended: &TurnEnded,
    cx: &mut Cx<'_>,
) -> Phase {
    if !turn.is_ended_by(ended) {
        return Phase::Working(live, turn);
    }
    live.note_work(cx);
    let left = turn.split_off_left(ended);
    let on_its_way = turn.on_its_way;
    end(turn, ended, cx);
    live.void_asks(cx);
    // A whole turn went by: what runs in the background would have been reported.
    live.roster_unknown_until = None;
    if left.is_empty() {
        return Rest::begin(live, cx);
    }
    live.turn_ended = Some(cx.now);
    live.note_turn(cx.now);
    let message = left.first().copied();
    cx.publish(SessionEvent::TurnStarted { message });
    let next = Turn {
        heard: !on_its_way,
        ..Turn::taken_up(left, on_its_way, cx)
    };
    Phase::Working(live, next)
}

/// Writes the outcome of a turn down and tells.
fn end(turn: Turn, ended: &TurnEnded, cx: &mut Cx<'_>) {
    let (state, error) = match &ended.outcome {
        TurnOutcome::Completed => (MessageState::Answered, None),
        TurnOutcome::Failed { error } => (MessageState::Failed, Some(error.clone())),
        TurnOutcome::Interrupted => (MessageState::Failed, Some("interrupted".to_owned())),
        TurnOutcome::Lost if ended.text.is_empty() => {
            (MessageState::Unknown, Some(LOST.to_owned()))
        }
        TurnOutcome::Lost => (MessageState::Unknown, Some(ended.text.clone())),
    };
    let message = turn.message();
    for message in turn.messages {
        cx.settle(message, state, error.as_deref().unwrap_or(&ended.text));
    }
    cx.publish(SessionEvent::TurnEnded { message, error });
}

/// An end that comes while the agent is being ended: what it does not answer stays in flight.
pub(super) fn end_while_ending(mut turn: Turn, ended: &TurnEnded, cx: &mut Cx<'_>) -> Option<Turn> {
    if !turn.is_ended_by(ended) {
        return Some(turn);
    }
    let left = turn.split_off_left(ended);
    let on_its_way = turn.on_its_way;
    end(turn, ended, cx);
    (!left.is_empty()).then(|| Turn::taken_up(left, on_its_way, cx))
}

fn on_delivered(live: Box<Live>, mut turn: Turn, delivered: Delivered, cx: &mut Cx<'_>) -> Phase {
    let message = delivered.message;
    if turn.awaited() != Some(message) {
        return Phase::Working(live, turn);
    }
    // A turn that ran before this message goes on without it.
    let joins = turn.heard;
    match delivered.result {
        DeliveryResult::Written => {
            turn.on_its_way = false;
            let state = MessageState::Delivered;
            cx.publish(SessionEvent::MessageChanged {
                message,
                state,
                text: String::new(),
            });
            Phase::Working(live, turn)
        }
        DeliveryResult::Void if joins => {
            turn.withdraw();
            Phase::Working(live, turn)
        }
        DeliveryResult::Void => Rest::begin(live, cx),
        // The agent is at work, and only takes nothing more into it.
        DeliveryResult::NotWritten if joins => {
            turn.withdraw();
            turn.deaf = true;
            inbox::put_back(message, cx);
            Phase::Working(live, turn)
        }
        DeliveryResult::NotWritten => {
            inbox::put_back(message, cx);
            let goal = Goal::StartFailed {
                error: "the agent does not read its input".to_owned(),
                retry: true,
                fresh: false,
            };
            Ending::begin(live, Purpose::new(goal, Who::Outside), None, cx)
        }
        DeliveryResult::CutShort => {
            turn.withdraw();
            inbox::cut_short(message, cx);
            let turn = Some(turn).filter(Turn::runs);
            Ending::begin(live, Purpose::new(CRASH, Who::Outside), turn, cx)
        }
        DeliveryResult::PartlyWritten => {
            Ending::begin(live, Purpose::new(CRASH, Who::Outside), Some(turn), cx)
        }
    }
}
