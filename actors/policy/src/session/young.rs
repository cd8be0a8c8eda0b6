//! A conversation that was begun, or taken up, so lately that another process would harm it by
//! taking it up.
//!
//! Fed by what the agent says (`AgentStatus::Young`), asked before every start. The agents that
//! want this go by the wall clock, so it is the one thing that is decided by it. Invariant: a
//! clock that is wrong keeps a session from starting for `SETTLING_MAX` and no longer at a time.

use std::time::Duration;

use drowse_messages::Conversation;

use super::Common;

/// 2 min: agents that want their conversations left alone at first want that for a minute.
pub const SETTLING_MAX: Duration = Duration::from_secs(120);

impl Common {
    /// The agent says where its conversation is. How young it is, is known from before.
    pub(super) fn follow(&mut self, conversation: &Conversation) {
        let same = |known: &&Conversation| known.native_id == conversation.native_id;
        let not_before = self
            .conversation
            .as_ref()
            .filter(same)
            .and_then(|it| it.not_before);
        self.conversation = Some(Conversation {
            not_before,
            ..conversation.clone()
        });
    }

    /// Any other process must leave the conversation alone for this long.
    pub(super) fn is_young(&mut self, settles_in: Duration) {
        if let Some(conversation) = &mut self.conversation {
            conversation.not_before = Some(self.wall.after(settles_in.min(SETTLING_MAX)));
        }
    }

    /// How long the conversation must still be left alone; `None`: it can be taken up, or there is
    /// none yet that could be.
    pub(super) fn settles_in(&self) -> Option<Duration> {
        let conversation = self.conversation.as_ref().filter(|it| it.resumable)?;
        let left = conversation.not_before?.since(self.wall);
        // A clock that was set back must not keep a session from starting for longer.
        (!left.is_zero()).then(|| left.min(SETTLING_MAX))
    }
}
