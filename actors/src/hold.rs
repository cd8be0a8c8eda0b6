//! A lease as a value: the session is held while it lives, and not a moment longer than its TTL
//! after its owner crashed.

use std::time::Duration;

use drowse_messages::{HoldId, HoldLifted, HoldTaken, Order, Refusal, SessionId};

use crate::handle::DaemonHandle;

/// Holds a session until it is dropped. [`HoldGuard::renew`] makes it last longer; what is not
/// renewed ends by itself, so an extension that crashes pins nothing.
#[derive(Debug)]
#[must_use = "dropping the guard lifts the hold"]
pub struct HoldGuard {
    daemon: DaemonHandle,
    session: SessionId,
    taken: HoldTaken,
}

impl HoldGuard {
    pub(crate) fn new(daemon: DaemonHandle, session: SessionId, taken: HoldTaken) -> Self {
        Self {
            daemon,
            session,
            taken,
        }
    }

    /// The id under which the hold is listed.
    #[must_use]
    pub fn id(&self) -> HoldId {
        self.taken.id
    }

    /// Makes the hold last this long from now.
    ///
    /// # Errors
    /// As for taking one; the session may be gone.
    pub async fn renew(&mut self, ttl: Duration) -> Result<(), Refusal> {
        self.taken.ttl = ttl;
        self.daemon
            .order(self.session, Order::TakeHold(self.taken.clone()))
            .await
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        self.daemon
            .lift(self.session, HoldLifted { id: self.taken.id });
    }
}
