//! What a link leaves for the next daemon: a checkpoint with the keeper after every change, and,
//! when that daemon is about to come, all of it at a point where nothing is half done.
//!
//! Fed by `link.rs`. Invariant: the keeper has the checkpoint before anybody else hears of what
//! changed it, so a daemon that dies at any moment has told nothing that the next one cannot know.
//! What a shim keeps, the next daemon hears again: that alone is no change.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use drowse_messages::{ActivityKind, HostChanged};
use drowse_policy::Input;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Link, Relayed};
use crate::backend::checkpoint::{About, Checkpoint};
use crate::chain::chain;
use crate::process::control::{self, ToKeeper};

/// How long a link may take to come to such a point. 5 s: an agent that reads takes a message in
/// milliseconds, and one that does not is left with the rest of it in the checkpoint.
const SUSPEND_MAX: Duration = Duration::from_secs(5);

/// 64 KiB of an unfinished line fit into a checkpoint; the end of a longer one is waited for.
const PARTIAL_KEPT_BYTES: usize = 64 * 1024;

/// The daemon is about to be replaced.
#[derive(Debug)]
pub(super) struct Suspending {
    /// Told once the backend is let go.
    done: oneshot::Sender<()>,
    pub(super) until: Instant,
    late: bool,
}

impl Link {
    /// Leaves a checkpoint with the keeper if it differs from the last one.
    pub(super) async fn keep(&mut self) {
        if let Some(relayed) = &mut self.relayed {
            relayed.remember();
        } else if !self.seen.is_empty() && self.seen.iter().all(is_output) {
            return;
        }
        let checkpoint = self.checkpoint();
        self.leave_with_keeper(&checkpoint).await;
    }

    /// True when what this turn of the loop brought has to be known by nobody else before the host
    /// hears of it.
    pub(super) fn means_nothing(&self) -> bool {
        let is_nothing =
            |input: &Input| is_output(input) || matches!(input, Input::Host(HostChanged::Passed));
        self.relayed.as_ref().is_some_and(Relayed::means_nothing)
            && self.seen.iter().all(is_nothing)
            && !self.outbox.has_ours()
    }

    /// True when it can wait for a checkpoint that it shares with what comes next. The first one
    /// cannot: without it nobody could go on.
    pub(super) fn can_wait(&self) -> bool {
        self.kept.is_some()
            && self.means_nothing()
            && self.relayed.as_ref().is_some_and(Relayed::can_wait)
    }

    /// Has the keeper know that something is being written; false while it cannot be told.
    pub(super) async fn mark_writing(&mut self) -> bool {
        if !self.outbox.has_ours() {
            return !self.is_keeper_behind();
        }
        let mut checkpoint = self.checkpoint();
        if let Some(checkpoint) = &mut checkpoint {
            checkpoint.about.writing = true;
        }
        self.leave_with_keeper(&checkpoint).await;
        !self.is_keeper_behind()
    }

    pub(super) fn is_keeper_behind(&self) -> bool {
        self.keeper
            .as_ref()
            .is_some_and(|keeper| keeper.is_behind())
    }

    /// What the next daemon must know, without what it could hear itself.
    fn checkpoint(&self) -> Option<Checkpoint> {
        // What is the host's is with its shim.
        let ours = self.outbox.pieces().filter(|piece| !piece.is_of_host());
        let outbox: Vec<_> = ours.cloned().collect();
        let relay = self.relayed.as_ref().map(|relayed| relayed.note());
        let (relay, memory) = relay.unzip();
        Some(Checkpoint {
            about: About {
                session: self.session,
                incarnation: self.incarnation,
                protocol: self.protocol.clone(),
                in_flight: self.in_flight.clone(),
                answered: self.answered.clone(),
                closing: self.closing,
                writing: false,
                relay,
            },
            observer: self.observer.checkpoint()?,
            partial: Vec::new(),
            stderr: Vec::new(),
            memory: memory.unwrap_or_default(),
            outbox,
        })
    }

    /// One that cannot be made, or is too long, is left as an empty one: it cannot be taken over.
    async fn leave_with_keeper(&mut self, checkpoint: &Option<Checkpoint>) {
        let Some(keeper) = &mut self.keeper else {
            return;
        };
        let bytes = checkpoint.as_ref().and_then(Checkpoint::encode);
        let bytes = bytes.unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let hash = Some(hasher.finish());
        if std::mem::replace(&mut self.kept, hash) == hash {
            return;
        }
        let checkpoint = ToKeeper::Checkpoint(control::Checkpoint(bytes));
        if let Err(error) = keeper.send(checkpoint).await {
            tracing::debug!(error = chain(&error), "failed to leave a checkpoint");
        }
    }

    /// From now on the link looks for a moment at which it can let go.
    pub(super) fn suspend(&mut self, done: oneshot::Sender<()>) {
        self.suspending = Some(Suspending {
            done,
            until: Instant::now() + SUSPEND_MAX,
            late: false,
        });
    }

    /// What is half done is left so.
    pub(super) fn is_late(&mut self) {
        if let Some(suspending) = &mut self.suspending {
            suspending.late = true;
        }
    }

    /// Nothing is half done, or the time for it is over.
    pub(super) fn can_let_go(&self) -> bool {
        let partial = self.lines.partial();
        let is_whole = self.delivery.is_none()
            && self.outbox.is_empty()
            && partial.is_some_and(|partial| partial.len() <= PARTIAL_KEPT_BYTES);
        let suspending = self.suspending.as_ref();
        suspending.is_some_and(|suspending| is_whole || suspending.late)
    }

    /// Leaves everything with the keeper, and the keeper to the next daemon.
    pub(super) async fn let_go(&mut self) {
        if let Some(relayed) = &mut self.relayed {
            relayed.remember();
        }
        let mut checkpoint = self.checkpoint();
        if let (Some(checkpoint), Some(partial)) = (&mut checkpoint, self.lines.partial()) {
            checkpoint.partial = partial.to_vec();
            checkpoint.stderr.clone_from(&self.stderr_tail);
        } else {
            checkpoint = None;
        }
        self.leave_with_keeper(&checkpoint).await;
        self.tell_host();
        self.tell();
        if let Some(mut keeper) = self.keeper.take() {
            let sent = tokio::time::timeout(SUSPEND_MAX, keeper.sent()).await;
            if !matches!(sent, Ok(Ok(()))) {
                tracing::warn!(session = %self.session, "a keeper takes nothing: it is left behind");
            }
        }
        if let Some(Suspending { done, .. }) = self.suspending.take() {
            // Whoever asked may have given up waiting.
            let _gone = done.send(());
        }
    }
}

/// Output alone changes nothing that the next daemon must know.
pub(super) fn is_output(input: &Input) -> bool {
    matches!(input, Input::Activity(activity) if matches!(activity.kind, ActivityKind::Output(_)))
}
