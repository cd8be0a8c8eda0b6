//! How a keeper ends its tree by itself: the same ladder the daemon would have used.
//!
//! Fed by: keeper.rs, once its ordinary life is over. No order is heeded any more; a daemon that
//! comes to take over is told so.
//! Invariant: it returns only when there is no child.

use std::time::{Duration, Instant};

use drowse_messages::{ProcIdentity, ReapStep};

use super::connection::Connection;
use super::{Keeper, is_past};
use crate::process::cgroup::{Cgroup, place};
use crate::process::control::FromKeeper;
use crate::process::reap::{self, Scope};
use crate::process::socket::Listening;
use crate::process::table;

/// 60 s between tries to end what could not be ended: it sleeps in the kernel, or is not ours, and
/// both end by themselves or not at all.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Where on the ladder the end begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rung {
    /// The agent's input ends first.
    Close,
    /// It has ended, or nobody reads it.
    Terminate,
    /// Whatever is left is killed.
    Kill,
}

impl Keeper {
    /// Ends the tree and returns once there is nothing left of it.
    pub(super) fn leave(mut self, first: Rung) {
        self.collect();
        self.turn_away();
        let Ok(own) = table::identify(std::process::id().cast_signed()) else {
            return;
        };
        if first <= Rung::Close {
            if let Some(stdio) = &mut self.stdio {
                stdio.stdin = None;
            }
            self.wait_until_empty(self.eof_grace);
        }
        if first <= Rung::Terminate {
            self.step(ReapStep::Terminate, own);
            self.wait_until_empty(self.term_grace);
        }
        while self.has_children {
            self.step(ReapStep::Kill, own);
            self.collect();
            self.wait_until_empty(RETRY_AFTER);
        }
        if let Some(path) = &self.cgroup {
            place::remove(path);
        }
    }

    fn step(&self, step: ReapStep, own: ProcIdentity) {
        if self.has_children {
            let cgroup = self.cgroup.as_deref().map(Cgroup::open);
            let tree = Scope::keeper(own).in_cgroup(cgroup.and_then(Result::ok));
            // A failed step is tried again by `leave`; there is nobody left to tell.
            drop(reap::run(step, &tree));
        }
    }

    fn wait_until_empty(&mut self, at_most: Duration) {
        let deadline = Instant::now().checked_add(at_most);
        while self.has_children && !is_past(deadline) {
            let ready = self.wait(deadline);
            if !ready.control.is_empty() {
                self.hear(ready.control);
                // Too late as well, but a daemon that speaks must not find its socket full.
                while self.next_message().is_some() {}
            }
            if ready.connection {
                let peer = self.listening.as_ref().and_then(Listening::accept);
                self.caller = peer.map(Connection::new);
                self.turn_away();
            }
            self.collect();
        }
    }

    /// Who connected comes too late, whatever it wants.
    fn turn_away(&mut self) {
        if let Some(mut caller) = self.caller.take() {
            caller.send(&FromKeeper::Ending, None);
        }
    }
}
