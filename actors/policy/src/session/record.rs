//! What is written down of a session, and whether that is so already.
//!
//! Fed by `session.rs` after each step. Invariant: what was written last is what readers see.

use drowse_messages::{Ages, Pinned, Progress, SessionState};

use super::live::Live;
use super::{Phase, Session};

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
            && saved.outcome == common.outcome
            && common.keep.is_saved(&saved.keeping)
            && self.is_aged(saved.ages.as_ref())
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
            outcome: self.common.outcome.clone(),
            ages: self.ages(),
        }
    }

    /// Since when things are so with a backend that the next daemon may take over.
    fn ages(&self) -> Option<Ages> {
        let (live, pinned) = self.counted()?;
        Some(Ages {
            pinned,
            leases: self.common.leases.clone(),
            change: self.common.change.clone(),
            ..live.ages()
        })
    }

    fn is_aged(&self, saved: Option<&Ages>) -> bool {
        match (self.counted(), saved) {
            (Some((live, pinned)), Some(saved)) => {
                live.is_of(saved)
                    && pinned == saved.pinned
                    && self.common.leases == saved.leases
                    && self.common.change == saved.change
            }
            (counted, saved) => counted.is_none() && saved.is_none(),
        }
    }

    /// What has limits of its own while it lives.
    fn counted(&self) -> Option<(&Live, Option<Pinned>)> {
        match &self.phase {
            Phase::Working(live, _) => Some((live, None)),
            Phase::Resting(live, rest) => Some((live, rest.pinned)),
            Phase::Dormant
            | Phase::Starting(_)
            | Phase::Ending(_)
            | Phase::Clearing(_)
            | Phase::Released
            | Phase::Failing
            | Phase::Ended => None,
        }
    }
}
