//! Retired keepers: each stays above what is kept of a backend that is over.
//!
//! Fed by the link of the backend, and at start by the session whose record names one that an
//! earlier daemon left. One task for each waits for its keeper to say that nothing is left, or to
//! be gone; nothing ticks. Invariants: that a keeper is over is told exactly once; one whose
//! session's actor vanished is let go, which ends what is below it, and so are all when the daemon
//! ends on purpose.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use actix::Recipient;
use drowse_actors::session::Facts;
use drowse_messages::{Incarnation, Kept, KeptEnded, SessionId, WallTime};
use drowse_policy::BackendOrder;
use tokio::sync::oneshot;

use super::Shared;
use super::launch::{collect, socket_of};
use crate::chain::chain;
use crate::process::cgroup::place;
use crate::process::control::ToKeeper;
use crate::process::link::{KeeperEvent, KeeperLink, TakeOverError};

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
    /// The daemon ends on purpose.
    ending: Rc<Cell<bool>>,
}

impl Retired {
    /// Those that are ended with the daemon when `ending` says so.
    pub(super) fn ending_with(ending: Rc<Cell<bool>>) -> Self {
        let dismiss = Rc::default();
        Self { dismiss, ending }
    }

    /// Watches over a keeper until it is gone or dismissed. Its end goes to `facts`.
    pub(super) fn hold(
        &self,
        shared: Rc<Shared>,
        whose: Whose,
        retiring: Retiring,
        facts: Recipient<Facts>,
    ) {
        let mut dismissed = self.enlist(whose);
        let this = self.clone();
        actix_rt::spawn(async move {
            let watched = Watched {
                keeper: Some(retiring.keeper),
                ending: this.ending.clone(),
            };
            let keeper = watched.until_over(whose.1, &facts, &mut dismissed).await;
            if let Some(mut keeper) = keeper {
                let identity = keeper.keeper();
                if let Err(error) = keeper.send(ToKeeper::Leave).await {
                    tracing::debug!(error = chain(&error), "a retired keeper had left already");
                }
                drop(keeper);
                collect(&shared, identity, retiring.cgroup.clone());
            }
            if facts.connected() {
                this.clear_up(whose, dismissed, retiring.cgroup).await;
            } else {
                this.dismiss.borrow_mut().remove(&whose);
            }
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
        let this = self.clone();
        actix_rt::spawn(async move {
            let incarnation = kept.incarnation;
            match take_over(&shared, session, &kept).await {
                Ok(keeper) => {
                    let cgroup = kept.running.cgroup;
                    let retiring = Retiring { keeper, cgroup };
                    this.hold(shared, (session, incarnation), retiring, facts);
                }
                Err(why) => {
                    tracing::warn!(%session, "what it keeps is not taken over: {why}");
                    let whose = (session, incarnation);
                    let dismissed = this.enlist(whose);
                    facts.do_send(Facts(vec![KeptEnded { incarnation }.into()]));
                    this.clear_up(whose, dismissed, kept.running.cgroup).await;
                }
            }
        });
    }

    fn enlist(&self, whose: Whose) -> oneshot::Receiver<()> {
        let (sender, dismissed) = oneshot::channel();
        self.dismiss.borrow_mut().insert(whose, sender);
        dismissed
    }

    /// A keeper that is gone cannot remove its cgroup: that is done once what it kept is ended,
    /// which is when it would be dismissed.
    async fn clear_up(
        &self,
        whose: Whose,
        dismissed: oneshot::Receiver<()>,
        cgroup: Option<PathBuf>,
    ) {
        let is_waited_for = self.dismiss.borrow().contains_key(&whose);
        if let Some(path) = cgroup.filter(|_| is_waited_for)
            && dismissed.await.is_ok()
        {
            place::remove(&path);
        }
        self.dismiss.borrow_mut().remove(&whose);
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

/// Takes over the keeper of what is kept. It is told once more that it is retired, because the
/// daemon that wrote this down may have died before it was.
async fn take_over(shared: &Shared, session: SessionId, kept: &Kept) -> Result<KeeperLink, String> {
    let keeper = &kept.running.keeper;
    if keeper.boot_id != shared.boot_id {
        return Err("the machine was started anew".to_owned());
    }
    let socket = socket_of(shared, session, kept.incarnation);
    let words = |error: TakeOverError| chain(&error).to_string();
    let taken = KeeperLink::take_over(keeper.process, &socket).await;
    let (mut link, _) = taken.map_err(words)?;
    let until = time_left(kept, shared.clock.wall());
    let retired = link.send(ToKeeper::Retire { until }).await;
    retired.map_err(|error| chain(&error).to_string())?;
    Ok(link)
}

/// What is left of the longest time; `None`: some of it is kept for ever.
fn time_left(kept: &Kept, now: WallTime) -> Option<Duration> {
    let untils: Option<Vec<WallTime>> = kept.processes.iter().map(|kept| kept.until).collect();
    untils?.into_iter().max().map(|until| until.since(now))
}

/// A keeper that is watched over.
struct Watched {
    keeper: Option<KeeperLink>,
    ending: Rc<Cell<bool>>,
}

impl Watched {
    /// Returns it once it is over or dismissed.
    async fn until_over(
        mut self,
        incarnation: Incarnation,
        facts: &Recipient<Facts>,
        dismissed: &mut oneshot::Receiver<()>,
    ) -> Option<KeeperLink> {
        let mut told = false;
        while let Some(keeper) = &mut self.keeper {
            let event = tokio::select! {
                event = keeper.next_message() => event,
                _ = &mut *dismissed => break,
            };
            let is_gone = !matches!(event, Ok(Some(_)));
            if (is_gone || matches!(event, Ok(Some(KeeperEvent::Empty))))
                && !std::mem::replace(&mut told, true)
            {
                facts.do_send(Facts(vec![KeptEnded { incarnation }.into()]));
            }
            if is_gone || !facts.connected() {
                break;
            }
        }
        self.keeper.take()
    }
}

impl Drop for Watched {
    /// A daemon that ends on purpose takes along what is left; one that dies leaves it to the next.
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take().filter(|_| self.ending.get()) {
            keeper.end();
        }
    }
}
