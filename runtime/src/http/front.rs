//! What the endpoint asks of the daemon: the port that its routes use.
//!
//! Implemented by [`DaemonHandle`], and by a daemon from memory in the endpoint's own tests, which
//! can refuse, publish and forget whatever a test needs. Adds nothing to what it passes on.

use std::fmt;

use drowse_actors::ports::Page;
use drowse_actors::{DaemonHandle, EventStream, KeepWish};
use drowse_messages::{
    Accepted, AccountChange, Event, KeptReport, MessageId, OpenSession, Order, Refusal, Restarting,
    SavedMessage, SendMessage, SessionId, SessionPage, SessionReport, StatusReport,
};
use futures_util::future::LocalBoxFuture;

/// The name under which streams of the endpoint subscribe.
const SUBSCRIBER: &str = "http";

/// An answer of the daemon.
pub(super) type Answer<'a, T> = LocalBoxFuture<'a, Result<T, Refusal>>;

/// The daemon as the routes see it; each call is the one of [`DaemonHandle`] with its name.
pub trait Front: Send + Sync + fmt::Debug {
    /// Opens a session.
    fn open(&self, open: OpenSession) -> Answer<'_, SessionReport>;
    /// Finds a session.
    fn resolve<'a>(&'a self, text: &'a str) -> Answer<'a, SessionId>;
    /// Accepts a message.
    fn send(&self, id: SessionId, message: SendMessage) -> Answer<'_, Accepted>;
    /// Queues a parked message again.
    fn retry(&self, id: SessionId, message: MessageId) -> Answer<'_, ()>;
    /// Passes an order on.
    fn order(&self, id: SessionId, order: Order) -> Answer<'_, ()>;
    /// Has a session go on with another environment.
    fn change_account(&self, id: SessionId, change: AccountChange) -> Answer<'_, ()>;
    /// Reports one session.
    fn report(&self, id: SessionId) -> Answer<'_, SessionReport>;
    /// Lists sessions.
    fn list(&self, page: Page) -> Answer<'_, SessionPage>;
    /// Keeps a process.
    fn keep(&self, wish: KeepWish) -> Answer<'_, KeptReport>;
    /// Lists what is kept.
    fn kept(&self) -> Answer<'_, Vec<KeptReport>>;
    /// Reports the daemon; `None` once it is gone.
    fn status(&self) -> LocalBoxFuture<'_, Option<StatusReport>>;
    /// Reads one message.
    fn message(&self, id: MessageId) -> Answer<'_, SavedMessage>;
    /// Reads the newest messages of a session.
    fn messages(&self, id: SessionId, limit: usize) -> Answer<'_, Vec<SavedMessage>>;
    /// Reads kept events.
    fn events(
        &self,
        after: Option<u64>,
        limit: usize,
        session: Option<SessionId>,
    ) -> Answer<'_, Vec<Event>>;
    /// Has the daemon replaced.
    fn restart(&self) -> Answer<'_, Restarting>;
    /// Subscribes; the first event is a snapshot.
    fn subscribe(&self, capacity: usize, session: Option<SessionId>) -> Box<dyn Live>;
}

/// Events from now on.
pub trait Live: Send + fmt::Debug {
    /// The next one; `None` once the daemon has ended. Dropped while it waits, it took none.
    fn next(&mut self) -> LocalBoxFuture<'_, Option<Event>>;
}

impl Live for EventStream {
    fn next(&mut self) -> LocalBoxFuture<'_, Option<Event>> {
        Box::pin(Self::next(self))
    }
}

impl Front for DaemonHandle {
    fn open(&self, open: OpenSession) -> Answer<'_, SessionReport> {
        Box::pin(Self::open(self, open))
    }

    fn resolve<'a>(&'a self, text: &'a str) -> Answer<'a, SessionId> {
        Box::pin(Self::resolve(self, text))
    }

    fn send(&self, id: SessionId, message: SendMessage) -> Answer<'_, Accepted> {
        Box::pin(Self::send(self, id, message))
    }

    fn retry(&self, id: SessionId, message: MessageId) -> Answer<'_, ()> {
        Box::pin(Self::retry(self, id, message))
    }

    fn order(&self, id: SessionId, order: Order) -> Answer<'_, ()> {
        Box::pin(Self::order(self, id, order))
    }

    fn change_account(&self, id: SessionId, change: AccountChange) -> Answer<'_, ()> {
        Box::pin(Self::change_account(self, id, change))
    }

    fn report(&self, id: SessionId) -> Answer<'_, SessionReport> {
        Box::pin(Self::report(self, id))
    }

    fn list(&self, page: Page) -> Answer<'_, SessionPage> {
        Box::pin(Self::list(self, page))
    }

    fn keep(&self, wish: KeepWish) -> Answer<'_, KeptReport> {
        Box::pin(Self::keep(self, wish))
    }

    fn kept(&self) -> Answer<'_, Vec<KeptReport>> {
        Box::pin(Self::kept(self))
    }

    fn status(&self) -> LocalBoxFuture<'_, Option<StatusReport>> {
        Box::pin(Self::status(self))
    }

    fn message(&self, id: MessageId) -> Answer<'_, SavedMessage> {
        Box::pin(Self::message(self, id))
    }

    fn messages(&self, id: SessionId, limit: usize) -> Answer<'_, Vec<SavedMessage>> {
        Box::pin(Self::messages(self, id, limit))
    }

    fn events(
        &self,
        after: Option<u64>,
        limit: usize,
        session: Option<SessionId>,
    ) -> Answer<'_, Vec<Event>> {
        Box::pin(Self::events(self, after, limit, session))
    }

    fn restart(&self) -> Answer<'_, Restarting> {
        Box::pin(Self::restart(self))
    }

    fn subscribe(&self, capacity: usize, session: Option<SessionId>) -> Box<dyn Live> {
        Box::new(Self::subscribe(self, SUBSCRIBER, capacity, session))
    }
}
