//! Messages that wait, and in which order they go.
//!
//! Fed by `session.rs`. Invariants: a message is in here at most once; of two that wait the more
//! urgent goes first, and of equals the one that was accepted first; one that no agent could read
//! is parked after [`MESSAGE_TRIES_MAX`] tries, so that it does not block the next for ever. Only
//! agents that died while they read it count: a start that fails, a daemon that ends, an agent
//! that reads nothing at all say nothing of the message.

use std::collections::{BTreeMap, BTreeSet};

use drowse_messages::{
    CancelMessage, MessageId, MessageQueued, MessageState, Priority, Refusal, SessionEvent,
};

use super::{Cx, Phase};
use crate::effect::Effect;

/// 3: two deaths over one message may be bad luck. Fewer than the tries to start in a row
/// ([`super::START_TRIES_MAX`]), so the message is parked before its session fails.
pub const MESSAGE_TRIES_MAX: u32 = 3;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inbox {
    waiting: BTreeSet<(Priority, MessageId)>,
    /// How urgent those are that were handed out, should they come back.
    handed: BTreeMap<MessageId, Priority>,
    /// Agents that died while they read it.
    tries: BTreeMap<MessageId, u32>,
}

impl Inbox {
    pub(super) fn restore(queued: &[MessageQueued]) -> Self {
        let waiting = queued.iter().map(|it| (it.priority, it.message)).collect();
        Self {
            waiting,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn contains(&self, message: MessageId) -> bool {
        self.waiting.iter().any(|(_, waits)| *waits == message)
    }

    pub(super) fn insert(&mut self, queued: MessageQueued) {
        self.waiting.insert((queued.priority, queued.message));
    }

    /// How urgent the next one is.
    pub(super) fn urgency(&self) -> Option<Priority> {
        self.waiting.first().map(|(priority, _)| *priority)
    }

    /// The next one, to be handed to the agent.
    pub(super) fn hand_out(&mut self) -> Option<MessageId> {
        let (priority, message) = self.waiting.pop_first()?;
        self.handed.insert(message, priority);
        Some(message)
    }

    /// What was handed out did not reach the agent. What an earlier daemon handed out comes back as
    /// an ordinary message.
    fn take_back(&mut self, message: MessageId) {
        let priority = self.handed.remove(&message).unwrap_or_default();
        self.waiting.insert((priority, message));
    }

    /// It will not come back.
    pub(super) fn forget(&mut self, message: MessageId) {
        self.handed.remove(&message);
        self.tries.remove(&message);
    }

    fn remove(&mut self, message: MessageId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(_, waits)| *waits != message);
        self.waiting.len() < before
    }

    fn take(&mut self) -> Vec<MessageId> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|(_, message)| message).collect()
    }
}

/// The message did not reach the agent: it waits again.
pub(super) fn put_back(message: MessageId, cx: &mut Cx<'_>) {
    cx.common.inbox.take_back(message);
    cx.settle(message, MessageState::Queued, "");
}

/// The agent died while it read the message, of which it cannot have acted on a part: it waits
/// again, or is parked.
pub(super) fn cut_short(message: MessageId, cx: &mut Cx<'_>) {
    let tries = cx.common.inbox.tries.entry(message).or_default();
    *tries += 1;
    if *tries < MESSAGE_TRIES_MAX {
        return put_back(message, cx);
    }
    let why = format!("{MESSAGE_TRIES_MAX} agents ended while they read this message");
    cx.settle(message, MessageState::Parked, &why);
}

/// Cancels what waits: its senders are told, nothing is lost in silence.
pub(super) fn cancel_all(why: &str, cx: &mut Cx<'_>) {
    for message in cx.common.inbox.take() {
        cx.settle(message, MessageState::Cancelled, why);
    }
}

/// Somebody takes one back.
pub(super) fn cancel(phase: &Phase, cancel: &CancelMessage, cx: &mut Cx<'_>) {
    let message = cancel.message;
    if cx.common.inbox.remove(message) {
        let why = format!("taken back by {}", cancel.by);
        return cx.settle(message, MessageState::Cancelled, &why);
    }
    let at_work = phase.in_flight().contains(&message);
    let state = if at_work { "delivered" } else { "over" };
    cx.fx.push(Effect::Refuse(Refusal::NotQueued {
        message,
        state: state.to_owned(),
    }));
}

/// A message is on disk. It can be announced twice, or when it was on disk already as the session
/// was loaded and may be settled by now: one that is known is not taken again.
pub(super) fn accept(phase: &Phase, queued: MessageQueued, cx: &mut Cx<'_>) {
    let message = queued.message;
    let is_known = cx.common.restored.remove(&message)
        || phase.in_flight().contains(&message)
        || cx.common.inbox.contains(message);
    if !is_known {
        cx.common.inbox.insert(queued);
    }
    cx.common.active = cx.now;
    cx.publish(SessionEvent::MessageQueued { message });
}
