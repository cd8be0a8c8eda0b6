//! All hosts of one daemon, by their sessions.
//!
//! Fed by the server, which makes them, and by the backends, which look them up. Invariant: a host
//! is here while it is connected, or an agent of its runs.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use drowse_messages::{HostEnd, SessionId};

use super::Host;
use super::scratch::Scratch;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    hosts: RefCell<BTreeMap<SessionId, Rc<Host>>>,
    scratch: OnceCell<Option<Rc<Scratch>>>,
}

impl Hub {
    pub(crate) fn get(&self, session: SessionId) -> Option<Rc<Host>> {
        self.hosts.borrow().get(&session).cloned()
    }

    /// The host of a session, known already or made: then all before `from` is dealt with.
    pub(crate) fn get_or_make(&self, session: SessionId, from: u64, by_lines: bool) -> Rc<Host> {
        let make_scratch = || {
            let made = Scratch::new().inspect_err(|error| {
                tracing::warn!(%error, "no pipe to look at output in: a crash may lose some");
            });
            made.ok().map(Rc::new)
        };
        let scratch = self.scratch.get_or_init(make_scratch).clone();
        let mut hosts = self.hosts.borrow_mut();
        let make = || Rc::new(Host::new(session, from, by_lines, scratch));
        hosts.entry(session).or_insert_with(make).clone()
    }

    /// Tells a host that there will be no agent any more, and forgets it.
    pub(crate) fn end(&self, session: SessionId, end: HostEnd) {
        if let Some(host) = self.hosts.borrow_mut().remove(&session) {
            host.end(end);
        }
    }

    /// Forgets a host that is gone, once no agent of its runs.
    pub(crate) fn tidy(&self, session: SessionId) {
        let mut hosts = self.hosts.borrow_mut();
        if hosts.get(&session).is_some_and(|host| host.is_unused()) {
            hosts.remove(&session);
        }
    }
}
