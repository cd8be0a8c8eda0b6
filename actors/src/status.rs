//! The status actor: holds the newest report of every awake session and answers every reader.
//!
//! Fed by sessions (a report after each step that changed something) and by the registry (who
//! woke, who sleeps). A sleeping session costs nothing here but a place in a count; its report is
//! read from the store when somebody asks.
//!
//! Invariant: answering changes nothing and asks no session anything, so that no reader can keep a
//! session awake or be kept waiting by one.

use std::collections::{BTreeMap, BTreeSet};

use actix::{Actor, Addr, Context, Handler, Message, MessageResult, ResponseFuture};
use drowse_messages::{
    MonoTime, ProcIdentity, Refusal, SessionId, SessionPage, SessionReport, SessionState,
    StateCount, StatusReport, Usage, millis,
};

use crate::bus::{BusActor, GetSubscribers};
use crate::handle::refusal_of;
use crate::ports::{Page, Ports};

mod kept;

pub(crate) use kept::{FindKept, GetKept};

/// How the daemon is.
#[derive(Debug, Message)]
#[rtype(result = "StatusReport")]
pub struct GetStatus;

/// How one session is.
#[derive(Debug, Message)]
#[rtype(result = "Result<SessionReport, Refusal>")]
pub struct GetSession(pub SessionId);

/// How many are.
#[derive(Debug, Message)]
#[rtype(result = "Result<SessionPage, Refusal>")]
pub struct ListSessions(pub Page);

/// A session's report, as of a moment.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Reported {
    pub(crate) at: MonoTime,
    pub(crate) report: SessionReport,
    pub(crate) stale_facts: u64,
    /// Keepers above what it keeps.
    pub(crate) retired: Vec<ProcIdentity>,
}

/// A session was opened; it sleeps.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Opened;

/// A session that slept in this state is awake.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Awoke(pub(crate) SessionState);

/// A session sleeps.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Slept {
    pub(crate) id: SessionId,
    /// In this state; `None`: the one it last reported.
    pub(crate) into: Option<SessionState>,
}

/// A backend was released, and this many bytes with it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Freed(pub(crate) u64);

/// A session was removed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Forgotten(pub(crate) SessionId);

/// The daemon as a whole changed.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Phase {
    pub(crate) ready: bool,
    pub(crate) draining: bool,
}

/// The bus, which needs the status actor to begin with.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Meet(pub(crate) Addr<BusActor>);

#[derive(Debug)]
struct Awake {
    at: MonoTime,
    report: SessionReport,
    stale_facts: u64,
    retired: Vec<ProcIdentity>,
}

/// See the module.
#[derive(Debug)]
pub struct StatusActor {
    ports: Ports,
    bus: Option<Addr<BusActor>>,
    report: StatusReport,
    started: MonoTime,
    awake: BTreeMap<SessionId, Awake>,
    asleep: BTreeMap<SessionState, u64>,
    /// Removed, and not gone yet: they count for nothing.
    forgotten: BTreeSet<SessionId>,
    stale_facts_of_the_past: u64,
}

impl StatusActor {
    /// A status actor of a daemon that begins with these sleeping sessions.
    #[must_use]
    pub fn new(ports: Ports, report: StatusReport, asleep: BTreeMap<SessionState, u64>) -> Self {
        let started = ports.clock.now();
        Self {
            ports,
            bus: None,
            report,
            started,
            awake: BTreeMap::new(),
            asleep,
            forgotten: BTreeSet::new(),
            stale_facts_of_the_past: 0,
        }
    }

    fn counts(&self) -> BTreeMap<SessionState, u64> {
        let mut counts: BTreeMap<_, u64> = SessionState::ALL
            .into_iter()
            .map(|state| (state, 0))
            .collect();
        for (state, sessions) in &self.asleep {
            *counts.entry(*state).or_default() += sessions;
        }
        for awake in self.awake.values() {
            *counts.entry(awake.report.state).or_default() += 1;
        }
        counts
    }

    fn status(&self) -> StatusReport {
        let mut report = self.report.clone();
        report.uptime_ms = millis(self.ports.clock.now().since(self.started));
        report.store_failing = self.ports.store.failing();
        report.backends = self
            .awake
            .values()
            .filter(|awake| keeper_of(awake).is_some())
            .count() as u64;
        report.states = self
            .counts()
            .into_iter()
            .map(|(state, sessions)| StateCount { state, sessions })
            .collect();
        report.stale_facts_total = self.stale_facts_of_the_past
            + self
                .awake
                .values()
                .map(|awake| awake.stale_facts)
                .sum::<u64>();
        report
    }

    /// The report of an awake session as it reads now.
    fn aged(&self, id: SessionId) -> Option<SessionReport> {
        let awake = self.awake.get(&id)?;
        Some(
            awake
                .report
                .clone()
                .aged(self.ports.clock.now().since(awake.at)),
        )
    }

    fn all_aged(&self, page: &Page) -> Vec<SessionReport> {
        let fits = |report: &SessionReport| {
            page.state.is_none_or(|state| report.state == state)
                && page
                    .agent
                    .as_ref()
                    .is_none_or(|agent| &report.agent == agent)
        };
        self.awake
            .keys()
            .filter_map(|id| self.aged(*id))
            .filter(fits)
            .collect()
    }

    /// The keepers whose trees are worth measuring.
    fn keepers(&self) -> Vec<(SessionId, ProcIdentity)> {
        self.awake
            .iter()
            .filter_map(|(id, awake)| Some((*id, keeper_of(awake)?)))
            .collect()
    }
}

fn keeper_of(awake: &Awake) -> Option<ProcIdentity> {
    awake.report.awake.as_ref()?.keeper
}

fn set_usage(report: &mut SessionReport, usage: &BTreeMap<SessionId, Usage>) {
    if let Some(awake) = &mut report.awake {
        awake.usage = usage.get(&report.id).copied();
    }
}

impl Actor for StatusActor {
    type Context = Context<Self>;
}

impl Handler<GetStatus> for StatusActor {
    type Result = ResponseFuture<StatusReport>;

    fn handle(&mut self, _: GetStatus, _: &mut Context<Self>) -> Self::Result {
        let (mut report, bus) = (self.status(), self.bus.clone());
        Box::pin(async move {
            if let Some(bus) = bus {
                report.subscribers = bus.send(GetSubscribers).await.unwrap_or_default();
            }
            report
        })
    }
}

impl Handler<GetSession> for StatusActor {
    type Result = ResponseFuture<Result<SessionReport, Refusal>>;

    fn handle(&mut self, GetSession(id): GetSession, _: &mut Context<Self>) -> Self::Result {
        let Ports { store, trees, .. } = self.ports.clone();
        let awake = self.aged(id);
        let keeper = self.awake.get(&id).and_then(keeper_of);
        Box::pin(async move {
            match awake {
                Some(mut report) => {
                    let keepers = keeper.map(|keeper| (id, keeper)).into_iter().collect();
                    set_usage(&mut report, &trees.measure(keepers).await);
                    kept::drop_ended(&*trees, &mut report.kept).await;
                    Ok(report)
                }
                None => {
                    let saved = store.load(id).await;
                    saved
                        .map(|saved| SessionReport::asleep(&saved))
                        .map_err(|error| refusal_of(error, &id.to_string()))
                }
            }
        })
    }
}

impl Handler<ListSessions> for StatusActor {
    type Result = ResponseFuture<Result<SessionPage, Refusal>>;

    /// Awake ones come first, on the first page; the store's pages leave them out.
    fn handle(&mut self, ListSessions(page): ListSessions, _: &mut Context<Self>) -> Self::Result {
        let Ports { store, trees, .. } = self.ports.clone();
        let mut awake = self.all_aged(&page);
        awake.sort_by_key(|report| (std::cmp::Reverse(report.last_active), report.id));
        let (keepers, first) = (self.keepers(), page.after.is_none());
        let ids: BTreeSet<SessionId> = self.awake.keys().copied().collect();
        Box::pin(async move {
            let saved = store
                .list(page)
                .await
                .map_err(|error| refusal_of(error, ""))?;
            let mut sessions = Vec::new();
            if first {
                let usage = trees.measure(keepers).await;
                awake
                    .iter_mut()
                    .for_each(|report| set_usage(report, &usage));
                kept::drop_ended_of_all(&*trees, &mut awake).await;
                sessions = awake;
            }
            let asleep = saved
                .sessions
                .iter()
                .filter(|saved| !ids.contains(&saved.profile.id));
            sessions.extend(asleep.map(SessionReport::asleep));
            Ok(SessionPage {
                sessions,
                total: saved.total,
                next: saved.next,
            })
        })
    }
}

impl Handler<Reported> for StatusActor {
    type Result = ();

    fn handle(&mut self, reported: Reported, _: &mut Context<Self>) {
        let Reported {
            at,
            report,
            stale_facts,
            retired,
        } = reported;
        if !self.forgotten.contains(&report.id) {
            self.awake.insert(
                report.id,
                Awake {
                    at,
                    report,
                    stale_facts,
                    retired,
                },
            );
        }
    }
}

impl Handler<Opened> for StatusActor {
    type Result = ();

    fn handle(&mut self, _: Opened, _: &mut Context<Self>) {
        *self.asleep.entry(SessionState::New).or_default() += 1;
    }
}

impl Handler<Awoke> for StatusActor {
    type Result = ();

    fn handle(&mut self, Awoke(from): Awoke, _: &mut Context<Self>) {
        if let Some(sessions) = self.asleep.get_mut(&from) {
            *sessions = sessions.saturating_sub(1);
        }
    }
}

impl Handler<Slept> for StatusActor {
    type Result = ();

    fn handle(&mut self, Slept { id, into }: Slept, _: &mut Context<Self>) {
        self.forgotten.remove(&id);
        if let Some(awake) = self.awake.remove(&id) {
            self.stale_facts_of_the_past += awake.stale_facts;
            let state = into.unwrap_or(awake.report.state);
            *self.asleep.entry(state).or_default() += 1;
        }
    }
}

impl Handler<Forgotten> for StatusActor {
    type Result = ();

    fn handle(&mut self, Forgotten(id): Forgotten, _: &mut Context<Self>) {
        if let Some(awake) = self.awake.remove(&id) {
            self.stale_facts_of_the_past += awake.stale_facts;
        }
        self.forgotten.insert(id);
    }
}

impl Handler<Freed> for StatusActor {
    type Result = ();

    fn handle(&mut self, Freed(bytes): Freed, _: &mut Context<Self>) {
        self.report.released_total += 1;
        self.report.released_bytes_total += bytes;
    }
}

impl Handler<Phase> for StatusActor {
    type Result = ();

    fn handle(&mut self, phase: Phase, _: &mut Context<Self>) {
        self.report.ready = phase.ready;
        self.report.draining = phase.draining;
    }
}

impl Handler<Meet> for StatusActor {
    type Result = MessageResult<Meet>;

    fn handle(&mut self, Meet(bus): Meet, _: &mut Context<Self>) -> Self::Result {
        self.bus = Some(bus);
        MessageResult(())
    }
}
