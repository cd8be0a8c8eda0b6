//! What a session left behind when nobody of its own was there to end it: a vanished actor, or an
//! earlier daemon.
//!
//! Fed by the registry and at start. Its tree is ended, and the record says what is known: that
//! it is over, and that a message in flight has an unknown outcome. Invariant: nothing is started
//! and no message repeated here; the next message to the session wakes it.

use drowse_messages::{
    EndReport, Keeping, MessageId, MessageState, Reason, SavedSession, SessionEvent, SessionId,
    SessionState, WallTime, Who,
};

use crate::ports::{ProcessTrees, Store, StoreError};

/// 1,000 newest messages are searched for the one in flight: what waits behind it is less.
const SEARCHED_MAX: usize = 1000;

/// What is known of a vanished session once its tree is ended.
#[derive(Debug)]
pub(crate) struct Mourned {
    /// The state it sleeps in.
    pub(crate) state: SessionState,
    /// What subscribers are told, in order.
    pub(crate) told: Vec<SessionEvent>,
}

/// Ends the tree an earlier daemon left running. The store has put the rest in order already.
pub(crate) async fn end(store: &dyn Store, trees: &dyn ProcessTrees, saved: &SavedSession) {
    end_tree(trees, saved).await;
    let mut progress = saved.progress.clone();
    (progress.running, progress.ages) = (None, None);
    // What earlier backends left is kept; what was asked for in this one is gone with it.
    progress.keeping.asked.clear();
    store.save(saved.profile.id, progress);
}

/// Ends what a vanished actor left running, and writes down what became of its session.
pub(crate) async fn mourn(
    store: &dyn Store,
    trees: &dyn ProcessTrees,
    id: SessionId,
    at: WallTime,
) -> Result<Mourned, StoreError> {
    let mut saved = store.load(id).await?;
    end_tree(trees, &saved).await;
    let from = saved.progress.state;
    let mut told = Vec::new();
    end_kept(store, trees, &mut saved, &mut told).await;
    if !from.is_awake() {
        return Ok(Mourned { state: from, told });
    }
    for message in in_flight(store, id).await? {
        let (state, text) = (MessageState::Unknown, "drowse failed during it".to_owned());
        store.settle(message, state, text.clone());
        told.push(SessionEvent::MessageChanged {
            message,
            state,
            text,
        });
    }
    let mid_turn = matches!(from, SessionState::Working | SessionState::NeedsYou);
    let state = if mid_turn {
        SessionState::Interrupted
    } else {
        SessionState::Released
    };
    let mut progress = saved.progress;
    if progress.running.take().is_some() {
        let end = unseen_end(mid_turn, at);
        told.push(SessionEvent::Released {
            end: Box::new(end.clone()),
        });
        progress.end = Some(end);
    }
    (progress.state, progress.ages) = (state, None);
    progress.last_error = Some("the session failed inside drowse".to_owned());
    store.save(id, progress);
    told.push(SessionEvent::StateChanged { from, to: state });
    Ok(Mourned { state, told })
}

async fn end_tree(trees: &dyn ProcessTrees, saved: &SavedSession) {
    if let Some(running) = saved.progress.running.clone() {
        let found = trees.end_leftover(running).await;
        tracing::warn!(session = %saved.profile.id, "left running: {found}");
    }
}

/// Nobody watches over what it kept any more.
async fn end_kept(
    store: &dyn Store,
    trees: &dyn ProcessTrees,
    saved: &mut SavedSession,
    told: &mut Vec<SessionEvent>,
) {
    let keeping = std::mem::take(&mut saved.progress.keeping);
    for kept in &keeping.kept {
        let found = trees.end_leftover(kept.running.clone()).await;
        tracing::warn!(session = %saved.profile.id, "left kept: {found}");
        told.push(SessionEvent::KeptEnded {
            processes: kept.processes.clone(),
            by: Who::Daemon,
        });
    }
    if keeping != Keeping::default() {
        store.save(saved.profile.id, saved.progress.clone());
    }
}

async fn in_flight(store: &dyn Store, id: SessionId) -> Result<Vec<MessageId>, StoreError> {
    let newest = store.messages(id, SEARCHED_MAX).await?;
    let delivered = newest
        .iter()
        .filter(|message| message.state == MessageState::Delivered);
    Ok(delivered.map(|message| message.id).collect())
}

/// The end of a tree that was not walked before it.
fn unseen_end(mid_turn: bool, at: WallTime) -> EndReport {
    EndReport {
        mid_turn,
        ..EndReport::new(Reason::Crashed { status: None }, Who::Daemon, at)
    }
}
