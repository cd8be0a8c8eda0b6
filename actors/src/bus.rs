//! The event bus: numbers every event, records it, and hands it to subscribers that may be slow.
//!
//! Fed by all actors. Two kinds of subscribers: actors of extensions (`try_send` into their
//! mailbox) and streams (a bounded channel). Whoever is too slow loses events, is told so by a
//! [`SessionEvent::Gap`], and has its lag counted; nobody else waits for it.
//!
//! Invariants: events of one session arrive in the order they happened; a subscriber's first event
//! is a snapshot of the daemon, and nothing published after it subscribed is missed in between.

use std::sync::Arc;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, Recipient};
use drowse_messages::{Event, SessionEvent, SessionId, StatusReport, SubscriberReport};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::ports::{Clock, Store};
use crate::status::{Freed, GetStatus, StatusActor};

/// Tell subscribers, and keep a record.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Publish {
    pub(crate) session: Option<SessionId>,
    pub(crate) what: SessionEvent,
}

/// Hear events from now on.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Subscribe {
    pub(crate) name: String,
    pub(crate) session: Option<SessionId>,
    pub(crate) sink: Sink,
    /// Extensions are listed in the status report; passing readers are not.
    pub(crate) listed: bool,
}

/// The listed subscribers and how they keep up.
#[derive(Debug, Message)]
#[rtype(result = "Vec<SubscriberReport>")]
pub(crate) struct GetSubscribers;

/// The snapshot for the one who waits for it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Opening {
    subscription: u64,
    status: Box<StatusReport>,
}

/// Where events go.
#[derive(Debug)]
pub(crate) enum Sink {
    Actor(Recipient<Event>),
    Stream(StreamSink),
}

/// One end of an [`EventStream`]: so many events, and so many bytes, wait for its reader.
#[derive(Debug)]
pub(crate) struct StreamSink {
    pub(crate) events: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
}

/// An event and the room it takes until it is read.
#[derive(Debug)]
pub(crate) struct Waiting {
    event: Event,
    _room: OwnedSemaphorePermit,
}

/// 8 MiB of events wait for one reader: eight of the largest pieces of output there are.
const WAITING_BYTES_MAX: u32 = 8 << 20;

/// 256 bytes: what an event has besides the words of an agent.
const EVENT_BYTES: usize = 256;

impl StreamSink {
    fn send(&self, event: Event) -> Sent {
        let bytes = u32::try_from(bytes_of(&event)).unwrap_or(u32::MAX);
        let bytes = bytes.min(WAITING_BYTES_MAX);
        let Ok(room) = self.room.clone().try_acquire_many_owned(bytes) else {
            // One that is gone has no use for room.
            return if self.events.is_closed() {
                Sent::Gone
            } else {
                Sent::Full
            };
        };
        match self.events.try_send(Waiting { event, _room: room }) {
            Ok(()) => Sent::Yes,
            Err(TrySendError::Full(_)) => Sent::Full,
            Err(TrySendError::Closed(_)) => Sent::Gone,
        }
    }
}

/// What waiting costs: an agent's words are all that can be long.
fn bytes_of(event: &Event) -> usize {
    let words = if let SessionEvent::Output { text, .. }
    | SessionEvent::MessageChanged { text, .. } = &event.what
    {
        text.len()
    } else {
        0
    };
    EVENT_BYTES + words
}

enum Sent {
    Yes,
    Full,
    Gone,
}

impl Sink {
    fn send(&self, event: Event) -> Sent {
        match self {
            Self::Actor(actor) => match actor.try_send(event) {
                Ok(()) => Sent::Yes,
                Err(actix::prelude::SendError::Full(_)) => Sent::Full,
                Err(actix::prelude::SendError::Closed(_)) => Sent::Gone,
            },
            Self::Stream(stream) => stream.send(event),
        }
    }

    fn is_gone(&self) -> bool {
        match self {
            Self::Actor(actor) => !actor.connected(),
            Self::Stream(stream) => stream.events.is_closed(),
        }
    }
}

/// Events that came between the subscription and its snapshot; more would be a gap.
const EARLY_MAX: usize = 64;

#[derive(Debug)]
struct Subscriber {
    /// The how-manieth subscription it is.
    number: u64,
    name: String,
    session: Option<SessionId>,
    sink: Sink,
    listed: bool,
    /// `Some` until the snapshot was delivered.
    early: Option<Vec<Event>>,
    /// Lost since the last one that arrived.
    missed: u64,
    lagged_total: u64,
    alive: bool,
}

impl Subscriber {
    fn offer(&mut self, event: &Event) {
        let concerns = self
            .session
            .is_none_or(|id| event.session.is_none_or(|of| of == id));
        if !concerns {
            return;
        }
        if !self.alive {
            self.lagged_total += 1;
            return;
        }
        match &mut self.early {
            Some(early) if early.len() < EARLY_MAX => early.push(event.clone()),
            Some(_) => self.lag(),
            None => self.deliver(event),
        }
    }

    /// Delivers the snapshot, and then what came since the subscription.
    fn open(&mut self, mut snapshot: Event) {
        let Some(early) = self.early.take() else {
            return;
        };
        // What is not kept carries the number of the event before it, which is in the store.
        if let Some(first) = early.iter().find(|event| is_kept(&event.what)) {
            snapshot.seq = snapshot.seq.min(first.seq.saturating_sub(1));
        }
        // What found no room came after all that did, and is told of there.
        let missed = std::mem::take(&mut self.missed);
        self.deliver(&snapshot);
        early.iter().for_each(|event| self.deliver(event));
        self.missed += missed;
    }

    fn deliver(&mut self, event: &Event) {
        if self.missed > 0 {
            let what = SessionEvent::Gap {
                missed: Some(self.missed),
            };
            let gap = Event {
                seq: event.seq.saturating_sub(1),
                what,
                session: None,
                ..*event
            };
            match self.sink.send(gap) {
                Sent::Yes => self.missed = 0,
                Sent::Full => return self.lag(),
                Sent::Gone => return self.die(),
            }
        }
        match self.sink.send(event.clone()) {
            Sent::Yes => {}
            Sent::Full => self.lag(),
            Sent::Gone => self.die(),
        }
    }

    fn lag(&mut self) {
        self.missed += 1;
        self.lagged_total += 1;
    }

    fn die(&mut self) {
        self.alive = false;
        self.lagged_total += 1;
    }
}

/// See the module.
#[derive(Debug)]
pub struct BusActor {
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    status: Addr<StatusActor>,
    next_seq: u64,
    subscriptions: u64,
    subscribers: Vec<Subscriber>,
}

impl BusActor {
    /// A bus that continues with this number.
    #[must_use]
    pub fn new(
        clock: Arc<dyn Clock>,
        store: Arc<dyn Store>,
        status: Addr<StatusActor>,
        next_seq: u64,
    ) -> Self {
        Self {
            clock,
            store,
            status,
            next_seq: next_seq.max(1),
            subscriptions: 0,
            subscribers: Vec::new(),
        }
    }

    fn event(&self, session: Option<SessionId>, what: SessionEvent) -> Event {
        // What is not kept takes the number of the event before it.
        let seq = if is_kept(&what) {
            self.next_seq
        } else {
            self.next_seq - 1
        };
        Event {
            seq,
            at: self.clock.wall(),
            session,
            what,
        }
    }
}

fn is_kept(what: &SessionEvent) -> bool {
    !matches!(
        what,
        SessionEvent::Output { .. } | SessionEvent::Snapshot { .. } | SessionEvent::Gap { .. }
    )
}

impl Actor for BusActor {
    type Context = Context<Self>;
}

impl Handler<Publish> for BusActor {
    type Result = ();

    fn handle(&mut self, publish: Publish, _: &mut Context<Self>) {
        let event = self.event(publish.session, publish.what);
        for subscriber in &mut self.subscribers {
            subscriber.offer(&event);
        }
        // A passing reader that is gone is forgotten; an extension stays listed as dead.
        self.subscribers
            .retain(|subscriber| subscriber.alive || subscriber.listed);
        if let SessionEvent::Released { end } = &event.what {
            self.status.do_send(Freed(end.released_bytes));
        }
        if is_kept(&event.what) {
            self.next_seq += 1;
            self.store.record(event);
        }
    }
}

impl Handler<Subscribe> for BusActor {
    type Result = ();

    fn handle(&mut self, subscribe: Subscribe, ctx: &mut Context<Self>) {
        // Readers that left while nothing happened were not noticed yet.
        self.subscribers
            .retain(|subscriber| subscriber.listed || !subscriber.sink.is_gone());
        self.subscriptions += 1;
        let subscription = self.subscriptions;
        self.subscribers.push(Subscriber {
            number: subscription,
            name: subscribe.name,
            session: subscribe.session,
            sink: subscribe.sink,
            listed: subscribe.listed,
            early: Some(Vec::new()),
            missed: 0,
            lagged_total: 0,
            alive: true,
        });
        let (status, this) = (self.status.clone(), ctx.address());
        actix_rt::spawn(async move {
            if let Ok(report) = status.send(GetStatus).await {
                let status = Box::new(report);
                this.do_send(Opening {
                    subscription,
                    status,
                });
            }
        });
    }
}

impl Handler<Opening> for BusActor {
    type Result = ();

    fn handle(&mut self, opening: Opening, _: &mut Context<Self>) {
        let Opening {
            subscription,
            status,
        } = opening;
        let snapshot = self.event(None, SessionEvent::Snapshot { status });
        let waiting = |subscriber: &&mut Subscriber| subscriber.number == subscription;
        if let Some(subscriber) = self.subscribers.iter_mut().find(waiting) {
            subscriber.open(snapshot);
        }
    }
}

impl Handler<GetSubscribers> for BusActor {
    type Result = actix::MessageResult<GetSubscribers>;

    fn handle(&mut self, _: GetSubscribers, _: &mut Context<Self>) -> Self::Result {
        let listed = self
            .subscribers
            .iter()
            .filter(|subscriber| subscriber.listed);
        actix::MessageResult(
            listed
                .map(|subscriber| SubscriberReport {
                    name: subscriber.name.clone(),
                    lagged_total: subscriber.lagged_total,
                    alive: subscriber.alive && !subscriber.sink.is_gone(),
                })
                .collect(),
        )
    }
}

/// Events as they happen, for one reader. Dropping it ends the subscription.
#[derive(Debug)]
pub struct EventStream {
    events: mpsc::Receiver<Waiting>,
}

impl EventStream {
    /// A stream and its sink; `capacity` events wait for the reader at most, and 8 MiB of them.
    pub(crate) fn new(capacity: usize) -> (Self, Sink) {
        let (sink, events) = mpsc::channel(capacity.max(2));
        let room = Arc::new(Semaphore::new(WAITING_BYTES_MAX as usize));
        let sink = StreamSink { events: sink, room };
        (Self { events }, Sink::Stream(sink))
    }

    /// The next event; `None` once the daemon has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        Some(self.events.recv().await?.event)
    }

    /// What waits by now.
    #[cfg(test)]
    pub(crate) fn try_next(&mut self) -> Option<Event> {
        Some(self.events.try_recv().ok()?.event)
    }
}
