//! Retired keepers: each stays above what is kept of a backend that is over.
//!
//! Fed by the link of the backend, and at start by the session whose record names one that an
//! earlier daemon left. One task for each waits for its keeper to say that nothing is left, or to
//! be gone; nothing ticks. Invariants: a keeper is told of exactly once that it is over; one whose
//! session's actor vanished is let go, which ends what is below it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use actix::Recipient;
use drowse_actors::session::Facts;
use drowse_messages::{Incarnation, Kept, KeptEnded, SessionId};
use drowse_policy::BackendOrder;
use tokio::sync::oneshot;

use super::Shared;
use super::launch::collect;
use crate::chain::chain;
use crate::process::control::ToKeeper;
use crate::process::link::{KeeperEvent, KeeperLink};

/// Whose keeper it is: of which launch of which session.
type Whose = (SessionId, Incarnation);

/// A keeper that stays above what is kept, and the cgroup of its launch.
pub(super) struct Retiring {
    pub(super) keeper: KeeperLink,
    pub(super) cgroup: Option<PathBuf>,
}

/// The retired keepers of one daemon.
#[derive(Clone, Debug, Default)]
pub(super) struct Retired {
    /// How each is dismissed.
    dismiss: Rc<RefCell<BTreeMap<Whose, oneshot::Sender<()>>>>,
}

impl Retired {
    /// Watches over a keeper until it is gone or dismissed. Its end goes to `facts`.
    pub(super) fn hold(
        &self,
        shared: Rc<Shared>,
        whose: Whose,
        retiring: Retiring,
        facts: Recipient<Facts>,
    ) {
        let (sender, dismissed) = oneshot::channel();
        self.dismiss.borrow_mut().insert(whose, sender);
        let this = self.clone();
        actix_rt::spawn(async move {
            wait_for_end(&shared, whose.1, retiring, &facts, dismissed).await;
            this.dismiss.borrow_mut().remove(&whose);
        });
    }

    /// Takes a keeper over that an earlier daemon left.
    pub(super) fn watch(
        &self,
        shared: Rc<Shared>,
        session: SessionId,
        kept: Kept,
        facts: Recipient<Facts>,
    ) {
        let incarnation = kept.incarnation;
        drop((shared, session));
        facts.do_send(Facts(vec![KeptEnded { incarnation }.into()]));
    }

    /// Passes an order on; false when it is not for a retired keeper.
    pub(super) fn order(&self, session: SessionId, of: Incarnation, order: &BackendOrder) -> bool {
        let whose = (session, of);
        if *order != BackendOrder::Dismiss {
            return self.dismiss.borrow().contains_key(&whose);
        }
        let dismissed = self.dismiss.borrow_mut().remove(&whose);
        // One that left by itself meanwhile needs no order.
        dismissed.map(|dismissed| dismissed.send(())).is_some()
    }
}

async fn wait_for_end(
    shared: &Shared,
    incarnation: Incarnation,
    Retiring { mut keeper, cgroup }: Retiring,
    facts: &Recipient<Facts>,
    mut dismissed: oneshot::Receiver<()>,
) {
    let identity = keeper.keeper();
    let mut told = false;
    loop {
        let event = tokio::select! {
            event = keeper.next_message() => event,
            _ = &mut dismissed => break,
        };
        let is_over = !matches!(event, Ok(Some(_)));
        if is_over || matches!(event, Ok(Some(KeeperEvent::Empty))) {
            if !std::mem::replace(&mut told, true) {
                facts.do_send(Facts(vec![KeptEnded { incarnation }.into()]));
            }
        }
        if is_over || !facts.connected() {
            break;
        }
    }
    if let Err(error) = keeper.send(ToKeeper::Leave).await {
        tracing::debug!(error = chain(&error), "a retired keeper had left already");
    }
    drop(keeper);
    collect(shared, identity, cgroup);
}
