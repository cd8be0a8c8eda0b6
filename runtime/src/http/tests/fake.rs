//! A daemon from memory: it refuses, publishes and forgets whatever a test needs.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use drowse_actors::KeepWish;
use drowse_actors::ports::Page;
use drowse_messages::{
    Accepted, AccountChange, Event, KeptReport, MessageId, MessageState, OpenSession, Order,
    Profile, Progress, Refusal, Restarting, SavedMessage, SavedSession, SendMessage, SessionEvent,
    SessionId, SessionPage, SessionReport, StatusReport, WallTime,
};
use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc;

use crate::http::front::{Answer, Front, Live};

/// Everything the fake knows.
#[derive(Debug, Default)]
pub(super) struct World {
    /// Sessions there are.
    pub(super) sessions: Vec<SessionReport>,
    /// Requests to open.
    pub(super) opened: Vec<OpenSession>,
    /// Orders taken.
    pub(super) orders: Vec<(SessionId, Order)>,
    /// Environments to go on with.
    pub(super) changes: Vec<(SessionId, AccountChange)>,
    /// Wishes to keep a process.
    pub(super) keeps: Vec<KeepWish>,
    /// Pages asked for.
    pub(super) pages: Vec<Page>,
    /// Refusals to answer the next commands with.
    pub(super) refuse: VecDeque<Refusal>,
    /// Messages accepted, with their sender.
    pub(super) messages: Vec<(SavedMessage, SendMessage)>,
    /// Kept events.
    pub(super) kept: Vec<Event>,
    /// Number of the newest event.
    pub(super) seq: u64,
    /// Published right after the next kept events were read, or before a message is accepted.
    pub(super) publish_after_read: Vec<Event>,
    /// Status to report.
    pub(super) status: Option<StatusReport>,
    subscribers: Vec<(Option<SessionId>, mpsc::Sender<Event>)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fake(Mutex<World>);

impl Fake {
    /// The fake's inside.
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("no test panics while it looks")
    }

    fn refusal(&self) -> Result<(), Refusal> {
        self.world().refuse.pop_front().map_or(Ok(()), Err)
    }

    /// How many subscribers live.
    pub(super) fn subscribers(&self) -> usize {
        let mut world = self.world();
        world.subscribers.retain(|(_, to)| !to.is_closed());
        world.subscribers.len()
    }

    /// Publishes an event, kept unless it is output or a gap, and returns it.
    pub(super) fn publish(&self, session: Option<SessionId>, what: SessionEvent) -> Event {
        let mut world = self.world();
        let kept = !matches!(what, SessionEvent::Output { .. } | SessionEvent::Gap { .. });
        world.seq += u64::from(kept);
        let event = Event {
            seq: world.seq,
            at: WallTime(1),
            session,
            what,
        };
        if kept {
            world.kept.push(event.clone());
        }
        send_all(&mut world, &event);
        event
    }

    /// Ends all subscriptions, as the end of the daemon does.
    pub(super) fn end(&self) {
        self.world().subscribers.clear();
    }
}

impl Live for mpsc::Receiver<Event> {
    fn next(&mut self) -> LocalBoxFuture<'_, Option<Event>> {
        Box::pin(self.recv())
    }
}

impl Front for Fake {
    fn open(&self, open: OpenSession) -> Answer<'_, SessionReport> {
        Box::pin(async move {
            self.refusal()?;
            let mut world = self.world();
            let id = open.id;
            let name = open
                .name
                .as_ref()
                .map_or_else(|| id.to_string(), ToString::to_string);
            let saved = SavedSession {
                profile: Profile {
                    id,
                    name,
                    recipe: open.recipe.clone(),
                    limits: open.limits.clone(),
                    created: WallTime(1),
                },
                progress: Progress::default(),
                queued: Vec::new(),
                state_since: WallTime(1),
                last_active: WallTime(1),
            };
            let report = SessionReport::asleep(&saved);
            world.sessions.push(report.clone());
            world.opened.push(open);
            Ok(report)
        })
    }

    fn change_account(&self, id: SessionId, change: AccountChange) -> Answer<'_, ()> {
        Box::pin(async move {
            self.refusal()?;
            self.world().changes.push((id, change));
            Ok(())
        })
    }

    fn restart(&self) -> Answer<'_, Restarting> {
        Box::pin(async move {
            self.refusal()?;
            Ok(Restarting {
                from: "1".to_owned(),
                to: "2".to_owned(),
            })
        })
    }

    fn resolve<'a>(&'a self, text: &'a str) -> Answer<'a, SessionId> {
        Box::pin(async move {
            let world = self.world();
            let fits = |s: &&SessionReport| s.name == text || s.id.to_string() == text;
            world
                .sessions
                .iter()
                .find(fits)
                .map(|s| s.id)
                .ok_or_else(|| Refusal::NoSuchSession {
                    session: text.to_owned(),
                })
        })
    }

    fn send(&self, id: SessionId, message: SendMessage) -> Answer<'_, Accepted> {
        Box::pin(async move {
            self.refusal()?;
            publish_waiting(&mut self.world());
            {
                let world = self.world();
                let same = |(_, sent): &&(SavedMessage, SendMessage)| {
                    sent.key.is_some() && sent.key == message.key
                };
                if let Some((saved, _)) = world.messages.iter().find(same) {
                    return Ok(Accepted {
                        message: saved.id,
                        duplicate: true,
                    });
                }
            }
            let number = MessageId(self.world().messages.len() as u64 + 1);
            let saved = SavedMessage {
                id: number,
                session: id,
                key: message.key.clone(),
                text: message.text.clone(),
                priority: message.priority,
                state: MessageState::Queued,
                answer: String::new(),
                at: WallTime(1),
            };
            self.world().messages.push((saved, message));
            self.publish(Some(id), SessionEvent::MessageQueued { message: number });
            Ok(Accepted {
                message: number,
                duplicate: false,
            })
        })
    }

    fn retry(&self, session: SessionId, message: MessageId) -> Answer<'_, ()> {
        Box::pin(async move {
            self.refusal()?;
            let mut world = self.world();
            let mut known = world.messages.iter_mut().map(|(saved, _)| saved);
            let known = known.find(|it| it.id == message && it.session == session);
            let saved = known.ok_or(Refusal::NoSuchMessage { message })?;
            if saved.state != MessageState::Parked {
                let state = saved.state.code().to_owned();
                return Err(Refusal::NotParked { message, state });
            }
            saved.state = MessageState::Queued;
            Ok(())
        })
    }

    fn order(&self, id: SessionId, order: Order) -> Answer<'_, ()> {
        Box::pin(async move {
            self.refusal()?;
            self.world().orders.push((id, order));
            Ok(())
        })
    }

    fn report(&self, id: SessionId) -> Answer<'_, SessionReport> {
        Box::pin(async move {
            self.refusal()?;
            let world = self.world();
            let found = world.sessions.iter().find(|s| s.id == id).cloned();
            found.ok_or_else(|| Refusal::NoSuchSession {
                session: id.to_string(),
            })
        })
    }

    fn list(&self, page: Page) -> Answer<'_, SessionPage> {
        Box::pin(async move {
            self.refusal()?;
            let mut world = self.world();
            world.pages.push(page);
            let sessions = world.sessions.clone();
            let total = sessions.len() as u64;
            Ok(SessionPage {
                sessions,
                total,
                next: None,
            })
        })
    }

    fn keep(&self, wish: KeepWish) -> Answer<'_, KeptReport> {
        Box::pin(async move {
            self.refusal()?;
            let mut world = self.world();
            world.keeps.push(wish);
            let mut kept = world.sessions.iter().flat_map(|session| &session.kept);
            Ok(kept.next().expect("the test keeps something").clone())
        })
    }

    fn kept(&self) -> Answer<'_, Vec<KeptReport>> {
        Box::pin(async move {
            self.refusal()?;
            let world = self.world();
            let kept = world.sessions.iter().flat_map(|session| &session.kept);
            Ok(kept.cloned().collect())
        })
    }

    fn status(&self) -> LocalBoxFuture<'_, Option<StatusReport>> {
        Box::pin(async move {
            let report = self.world().status.clone();
            Some(report.unwrap_or_else(|| {
                let mut report = StatusReport::new("0.1.0", 7);
                report.ready = true;
                report
            }))
        })
    }

    fn message(&self, id: MessageId) -> Answer<'_, SavedMessage> {
        Box::pin(async move {
            let world = self.world();
            let found = world.messages.iter().find(|(saved, _)| saved.id == id);
            found
                .map(|(saved, _)| saved.clone())
                .ok_or_else(|| Refusal::Invalid {
                    field: "message".to_owned(),
                    detail: format!("there is no message {id}"),
                })
        })
    }

    fn messages(&self, id: SessionId, limit: usize) -> Answer<'_, Vec<SavedMessage>> {
        Box::pin(async move {
            let world = self.world();
            let all = world
                .messages
                .iter()
                .filter(|(saved, _)| saved.session == id);
            Ok(all.map(|(saved, _)| saved.clone()).take(limit).collect())
        })
    }

    fn events(
        &self,
        after: Option<u64>,
        limit: usize,
        session: Option<SessionId>,
    ) -> Answer<'_, Vec<Event>> {
        Box::pin(async move {
            self.refusal()?;
            let mut world = self.world();
            let behind = after.unwrap_or(0);
            let fits = |e: &&Event| e.seq > behind && (session.is_none() || e.session == session);
            let mut found: Vec<Event> = world
                .kept
                .iter()
                .filter(fits)
                .take(limit)
                .cloned()
                .collect();
            // As the store says it: what was dropped behind the number asked for.
            let dropped = world.kept.first().map_or(0, |first| first.seq - 1);
            if after.is_some_and(|after| after < dropped) {
                let missed = session.is_none().then_some(dropped - behind);
                let what = SessionEvent::Gap { missed };
                found.insert(
                    0,
                    Event {
                        seq: dropped,
                        at: WallTime(1),
                        session,
                        what,
                    },
                );
            }
            publish_waiting(&mut world);
            Ok(found)
        })
    }

    fn subscribe(&self, capacity: usize, session: Option<SessionId>) -> Box<dyn Live> {
        let mut world = self.world();
        let (to, from) = mpsc::channel(capacity);
        let status = Box::new(StatusReport::new("0.1.0", 7));
        let what = SessionEvent::Snapshot { status };
        let first = Event {
            seq: world.seq,
            at: WallTime(1),
            session: None,
            what,
        };
        to.try_send(first).expect("the channel is empty");
        world.subscribers.push((session, to));
        Box::new(from)
    }
}

fn publish_waiting(world: &mut World) {
    for event in std::mem::take(&mut world.publish_after_read) {
        world.seq = world.seq.max(event.seq);
        world.kept.push(event.clone());
        send_all(world, &event);
    }
}

fn send_all(world: &mut World, event: &Event) {
    world.subscribers.retain(|(session, to)| {
        let wanted = session.is_none() || event.session.is_none() || *session == event.session;
        !wanted
            || !matches!(
                to.try_send(event.clone()),
                Err(mpsc::error::TrySendError::Closed(_))
            )
    });
}
