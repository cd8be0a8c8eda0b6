//! A store in memory.
//!
//! Fed by all actors. It keeps the promises of the port: calls take effect in the order they are
//! made, and only their answers take time.

use std::collections::BTreeMap;

use drowse_messages::{
    Accepted, Event, KeptRelay, MessageId, MessageQueued, MessageState, Profile, Progress, Recipe,
    SavedMessage, SavedSession, SendMessage, SessionId, SessionState,
};

use drowse_policy::session::may_be_adopted;

use super::{FakeClock, Journal, Lock, SharedManners, lock};
use crate::ports::{Clock, Page, Recovered, SavedPage, Store, StoreError, Stored};

#[derive(Debug, Default)]
struct Shelf {
    sessions: BTreeMap<SessionId, SavedSession>,
    messages: BTreeMap<MessageId, SavedMessage>,
    events: Vec<Event>,
    relays: BTreeMap<SessionId, KeptRelay>,
    /// Messages ever accepted: numbers are not used again.
    accepted: u64,
    failing: bool,
}

/// A fake store.
#[derive(Debug)]
pub struct FakeStore {
    clock: FakeClock,
    journal: Journal,
    manners: SharedManners,
    shelf: Lock<Shelf>,
}

impl FakeStore {
    pub(super) fn new(clock: FakeClock, journal: Journal, manners: SharedManners) -> Self {
        let shelf = Lock::default();
        Self {
            clock,
            journal,
            manners,
            shelf,
        }
    }

    /// From now on every call that can fail does, or none.
    pub fn set_failing(&self, failing: bool) {
        lock(&self.shelf).failing = failing;
    }

    /// Puts a session on the shelf, as an earlier daemon would have left it.
    pub fn put(&self, saved: SavedSession) {
        lock(&self.shelf).sessions.insert(saved.profile.id, saved);
    }

    /// Every event that was recorded.
    #[must_use]
    pub fn recorded(&self) -> Vec<Event> {
        lock(&self.shelf).events.clone()
    }

    /// Forgets the events recorded so far, and their memory.
    pub fn clear_recorded(&self) {
        lock(&self.shelf).events = Vec::new();
    }

    /// What was saved last.
    #[must_use]
    pub fn progress(&self, id: SessionId) -> Option<Progress> {
        let shelf = lock(&self.shelf);
        shelf.sessions.get(&id).map(|saved| saved.progress.clone())
    }

    /// How many sessions are in each state: the counts for [`Recovered::states`].
    #[must_use]
    pub fn states(&self) -> BTreeMap<SessionState, u64> {
        let mut states = BTreeMap::new();
        for saved in lock(&self.shelf).sessions.values() {
            *states.entry(saved.progress.state).or_default() += 1;
        }
        states
    }

    fn note(&self, line: &str) {
        self.journal.note(format!("store: {line}"));
    }

    fn with<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Shelf) -> Result<T, StoreError>,
    ) -> Stored<T> {
        let mut shelf = lock(&self.shelf);
        let answer = if shelf.failing {
            Err(StoreError::Failed("the disk is full".to_owned()))
        } else {
            read(&mut shelf)
        };
        Box::pin(async move { answer })
    }
}

impl Shelf {
    fn message(&mut self, id: MessageId) -> Result<&mut SavedMessage, StoreError> {
        self.messages.get_mut(&id).ok_or(StoreError::NotFound)
    }

    /// A session with the messages that wait for it.
    fn whole(&self, id: SessionId) -> Result<SavedSession, StoreError> {
        let saved = self.sessions.get(&id).ok_or(StoreError::NotFound)?;
        let waits = |message: &&SavedMessage| {
            message.session == id && message.state == MessageState::Queued
        };
        let queued = self.messages.values().filter(waits);
        Ok(SavedSession {
            queued: queued.map(queued_of).collect(),
            ..saved.clone()
        })
    }

    fn in_state(&self, id: SessionId, state: MessageState) -> Vec<MessageId> {
        let fits = |message: &&SavedMessage| message.session == id && message.state == state;
        let messages = self.messages.values().filter(fits);
        messages.map(|message| message.id).collect()
    }

    fn recovered(&self) -> Recovered {
        let mut recovered = Recovered {
            next_seq: self.events.len() as u64 + 1,
            ..Recovered::default()
        };
        for (id, saved) in &self.sessions {
            let progress = &saved.progress;
            *recovered.states.entry(progress.state).or_default() += 1;
            if !self.in_state(*id, MessageState::Queued).is_empty() {
                recovered.queued.push(*id);
            }
            let Some(running) = progress.running.clone() else {
                continue;
            };
            if may_be_adopted(progress.state) {
                let delivered = self.in_state(*id, MessageState::Delivered);
                recovered.adoptable.push((*id, delivered));
            } else {
                recovered.left_running.push((*id, running));
            }
        }
        recovered
    }

    fn put_at_rest(&mut self, id: SessionId) {
        for message in self.in_state(id, MessageState::Delivered) {
            if let Some(message) = self.messages.get_mut(&message) {
                message.state = MessageState::Unknown;
            }
        }
        if let Some(saved) = self.sessions.get_mut(&id) {
            let was = saved.progress.state;
            let mid_turn = matches!(was, SessionState::Working | SessionState::NeedsYou);
            saved.progress.state = if mid_turn {
                SessionState::Interrupted
            } else {
                SessionState::Released
            };
        }
    }

    fn page(&self, page: &Page) -> SavedPage {
        let fits = |saved: &&SavedSession| {
            let agent = &saved.profile.recipe.agent;
            page.state.is_none_or(|state| saved.progress.state == state)
                && page.agent.as_ref().is_none_or(|wanted| agent == wanted)
        };
        let mut fitting: Vec<_> = self.sessions.values().filter(fits).cloned().collect();
        fitting.sort_by_key(|saved| (std::cmp::Reverse(saved.last_active), saved.profile.id));
        let first: usize = page
            .after
            .as_ref()
            .and_then(|after| after.parse().ok())
            .unwrap_or_default();
        let total = fitting.len();
        let end = first.saturating_add(page.limit).min(total);
        SavedPage {
            sessions: fitting.drain(first.min(end)..end).collect(),
            total: total as u64,
            next: (end < total).then(|| end.to_string()),
        }
    }
}

impl Store for FakeStore {
    fn recover(&self) -> Stored<Recovered> {
        self.with(|shelf| Ok(shelf.recovered()))
    }

    fn put_at_rest(&self, sessions: Vec<SessionId>) -> Stored<Recovered> {
        self.note("put_at_rest");
        self.with(|shelf| {
            sessions.iter().for_each(|id| shelf.put_at_rest(*id));
            Ok(shelf.recovered())
        })
    }

    fn reseal(&self, id: SessionId, recipe: Recipe) -> Stored<()> {
        self.note("reseal");
        self.with(|shelf| {
            let saved = shelf.sessions.get_mut(&id).ok_or(StoreError::NotFound)?;
            saved.profile.recipe = recipe;
            Ok(())
        })
    }

    fn open(&self, profile: Profile) -> Stored<()> {
        self.note("open");
        self.with(|shelf| {
            let named = |saved: &SavedSession| saved.profile.name == profile.name;
            if shelf.sessions.values().any(named) {
                return Err(StoreError::NameTaken);
            }
            let (id, created) = (profile.id, profile.created);
            let saved = SavedSession {
                profile,
                progress: Progress::default(),
                queued: Vec::new(),
                state_since: created,
                last_active: created,
            };
            shelf.sessions.insert(id, saved);
            Ok(())
        })
    }

    fn load(&self, id: SessionId) -> Stored<SavedSession> {
        self.note("load");
        let (saved, takes) = (
            self.with(|shelf| shelf.whole(id)),
            lock(&self.manners).load_takes,
        );
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            saved.await
        })
    }

    fn resolve(&self, text: String) -> Stored<SessionId> {
        self.with(|shelf| {
            let fits = |saved: &&SavedSession| {
                saved.profile.name == text || saved.profile.id.to_string().starts_with(&text)
            };
            let found: Vec<_> = shelf.sessions.values().filter(fits).collect();
            match found.as_slice() {
                [] => Err(StoreError::NotFound),
                [one] => Ok(one.profile.id),
                several => {
                    let names = several.iter().map(|saved| saved.profile.name.clone());
                    Err(StoreError::Ambiguous(names.collect()))
                }
            }
        })
    }

    fn list(&self, page: Page) -> Stored<SavedPage> {
        self.with(|shelf| Ok(shelf.page(&page)))
    }

    fn enqueue(&self, session: SessionId, message: SendMessage) -> Stored<Accepted> {
        self.note("enqueue");
        let at = self.clock.wall();
        self.with(|shelf| {
            shelf.whole(session)?;
            let same = |known: &&SavedMessage| known.session == session && known.key == message.key;
            let known = shelf.messages.values().find(same);
            if let (Some(known), Some(_)) = (known, &message.key) {
                let message = known.id;
                return Ok(Accepted {
                    message,
                    duplicate: true,
                });
            }
            shelf.accepted += 1;
            let id = MessageId(shelf.accepted);
            let saved = SavedMessage {
                id,
                session,
                key: message.key,
                text: message.text,
                priority: message.priority,
                state: MessageState::Queued,
                answer: String::new(),
                at,
            };
            shelf.messages.insert(id, saved);
            Ok(Accepted {
                message: id,
                duplicate: false,
            })
        })
    }

    fn requeue(&self, session: SessionId, message: MessageId) -> Stored<MessageQueued> {
        self.note(&format!("requeue {message}"));
        self.with(|shelf| {
            let saved = shelf.message(message)?;
            if saved.session != session {
                return Err(StoreError::NotFound);
            }
            if saved.state != MessageState::Parked {
                return Err(StoreError::NotParked(message, saved.state));
            }
            (saved.state, saved.answer) = (MessageState::Queued, String::new());
            Ok(queued_of(saved))
        })
    }

    fn deliver(&self, message: MessageId) -> Stored<String> {
        self.note(&format!("deliver {message}"));
        self.with(|shelf| {
            let saved = shelf.message(message)?;
            if saved.state != MessageState::Queued {
                return Err(StoreError::NotFound);
            }
            saved.state = MessageState::Delivered;
            Ok(saved.text.clone())
        })
    }

    fn message(&self, message: MessageId) -> Stored<SavedMessage> {
        self.with(|shelf| shelf.message(message).cloned())
    }

    fn messages(&self, session: SessionId, limit: usize) -> Stored<Vec<SavedMessage>> {
        self.with(|shelf| {
            let of = |message: &&SavedMessage| message.session == session;
            let mut newest: Vec<_> = shelf.messages.values().rev().filter(of).cloned().collect();
            newest.truncate(limit);
            newest.reverse();
            Ok(newest)
        })
    }

    fn save(&self, id: SessionId, progress: Progress) {
        self.note(&format!("save {}", progress.state.code()));
        let wall = self.clock.wall();
        if let Some(saved) = lock(&self.shelf).sessions.get_mut(&id) {
            if saved.progress.state != progress.state {
                saved.state_since = wall;
            }
            saved.last_active = wall;
            saved.progress = progress;
        }
    }

    fn settle(&self, message: MessageId, state: MessageState, text: String) {
        self.note(&format!("settle {message} {}", state.code()));
        if let Ok(saved) = lock(&self.shelf).message(message) {
            (saved.state, saved.answer) = (state, text);
        }
    }

    fn forget(&self, id: SessionId) {
        self.note("forget");
        let mut shelf = lock(&self.shelf);
        shelf.sessions.remove(&id);
        shelf.messages.retain(|_, message| message.session != id);
    }

    fn keep_relay(&self, id: SessionId, kept: KeptRelay) {
        lock(&self.shelf).relays.insert(id, kept);
    }

    fn relay(&self, id: SessionId) -> Stored<KeptRelay> {
        self.with(|shelf| shelf.relays.get(&id).cloned().ok_or(StoreError::NotFound))
    }

    fn record(&self, event: Event) {
        lock(&self.shelf).events.push(event);
    }

    fn events(
        &self,
        after: Option<u64>,
        limit: usize,
        session: Option<SessionId>,
    ) -> Stored<Vec<Event>> {
        self.with(|shelf| {
            let wanted = |event: &&Event| {
                event.seq > after.unwrap_or(0) && session.is_none_or(|id| event.session == Some(id))
            };
            let events = shelf.events.iter().filter(wanted).take(limit);
            Ok(events.cloned().collect())
        })
    }

    fn failing(&self) -> bool {
        lock(&self.shelf).failing
    }
}

fn queued_of(message: &SavedMessage) -> MessageQueued {
    MessageQueued {
        message: message.id,
        priority: message.priority,
    }
}
