//! What is written down of a session, and whether that is so already.
//!
//! Fed by `session.rs` after each step. Invariant: what was written last is what readers see.

use drowse_messages::{Progress, SessionState};

use super::Session;

impl Session {
    /// Compares without copying: this runs for every line an agent says.
    pub(super) fn is_saved(&self, state: SessionState) -> bool {
        let (saved, common) = (&self.saved, &self.common);
        saved.state == state
            && saved.incarnation == common.incarnation
            && saved.running.as_ref() == self.running()
            && saved.conversation == common.conversation
            && saved.end == common.end
            && saved.last_error == common.last_error
            && saved.hosted == common.hosted
            && common.keep.is_saved(&saved.keeping)
    }

    pub(super) fn progress(&self, state: SessionState) -> Progress {
        Progress {
            state,
            incarnation: self.common.incarnation,
            running: self.running().cloned(),
            conversation: self.common.conversation.clone(),
            end: self.common.end.clone(),
            last_error: self.common.last_error.clone(),
            keeping: self.common.keep.keeping(),
            hosted: self.common.hosted,
        }
    }
}
