//! The end of a link of whose tree only what is kept is left.
//!
//! Fed by `link.rs`. Invariant: the keeper stays, or its session hears that it is gone.

use std::time::Duration;

use drowse_messages::KeptEnded;

use super::Link;
use crate::backend::retired::Retiring;
use crate::chain::chain;
use crate::process::control::ToKeeper;

impl Link {
    /// Nobody needs the agent's pipes any more; the keeper stays above what is kept.
    pub(super) async fn retire(&mut self, until: Option<Duration>) -> Option<Retiring> {
        let cgroup = self.cgroup.take();
        if let Some(mut keeper) = self.keeper.take() {
            match keeper.send(ToKeeper::Retire { until }).await {
                Ok(()) => return Some(Retiring { keeper, cgroup }),
                Err(error) => tracing::warn!(error = chain(&error), "lost a keeper"),
            }
        }
        // What it held together is looked for, and ended, by whoever hears this.
        let incarnation = self.incarnation;
        self.seen.push(KeptEnded { incarnation }.into());
        self.tell();
        None
    }
}
