//! A session: its phases, and which of them may follow which.
//!
//! ```text
//! Dormant ─message, wake─> Starting ─ready─> Resting <─> Working
//!                           │   ^               │ idle, limit, stop, crash
//!                 too often │   └─message──┐    v
//!                           v              └─ Ending ─> Released | Failing | Ended
//!                        Failing
//! ```
//!
//! Fed by the session actor. The idle rule is in `idle.rs`, the ladder of a teardown in
//! `ending.rs` and what it is for in `purpose.rs`, what outlives it in `keep.rs` and
//! `kept_tree.rs`, starts and their back-off in `starting.rs`, a running turn in `turn.rs`, a
//! session without one in `resting.rs`, what a live agent says besides in `live.rs`, its background
//! tasks in `roster.rs` and, where only the process tree shows them, `observe.rs`, a session without
//! a process in `asleep.rs`, a conversation that must not be taken up yet in `young.rs`, one whose
//! agent a host has in `host.rs`, what people ask for in `orders.rs` and `change.rs`, what is
//! written down in `record.rs`, messages that wait in `inbox.rs`, what passes from one daemon to the
//! next in `adopt.rs`.
//!
//! Invariants: at most one process tree exists for a session, besides what is kept of ended ones,
//! and no start is asked for before the former tree was verified to hold nothing else; a message leaves the inbox only to be delivered or
//! cancelled; facts of an older launch change nothing but a counter.

use std::collections::{BTreeMap, BTreeSet};

use drowse_messages::{
    ActivityKind, Conversation, EndReport, HoldId, Hosted, Incarnation, Lease, Limits, MessageId,
    MessageState, MonoTime, Name, Order, Outcome, Progress, Running, SavedSession, SessionEvent,
    SessionId, SessionState, WaitingChange, WallTime,
};

use crate::effect::{BackendOrder, Effect, Input};

mod adopt;
mod asleep;
mod change;
mod ending;
mod host;
mod idle;
mod inbox;
mod keep;
mod kept_tree;
mod live;
mod observe;
mod orders;
mod purpose;
mod record;
mod report;
mod resting;
mod roster;
mod starting;
mod turn;
mod young;

#[cfg(test)]
mod tests;

pub use adopt::may_be_adopted;
pub use ending::{SNAPSHOT_MAX, STUCK_RETRY_AFTER};
pub use idle::LATE_TICK_MAX;
pub use inbox::MESSAGE_TRIES_MAX;
pub use keep::{ASKED_MAX, KEEP_TTL_MAX, KEPT_MAX, RETIRED_MAX};
pub use live::{ASKS_MAX, BUSY_MAX, HARD_LIMIT_WARNING, SCHEDULES_MAX};
pub use observe::LOOK_MAX;
pub use orders::{LEASE_TTL_MAX, LEASES_MAX, OUTCOME_BYTES_MAX};
pub use report::Times;
pub use roster::{ROSTER_TASKS_MAX, TOLD_TASKS_MAX};
pub use starting::{START_PAUSE, START_PAUSE_MAX, START_TRIES_MAX};
pub use turn::TURN_MESSAGES_MAX;
pub use young::SETTLING_MAX;

use ending::Ending;
use host::Host;
use idle::Rest;
use inbox::Inbox;
use keep::{Clearing, Keepsakes};
use live::Live;
use starting::Starting;
use turn::Turn;

/// What policy must know of an agent's adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentTraits {
    /// A conversation outlives its process.
    pub can_resume: bool,
    /// The agent reports its background tasks.
    pub reports_tasks: bool,
    /// It does not, and what the process tree shows counts instead.
    pub observed: bool,
    /// It takes a message into the turn that runs.
    pub steers: bool,
}

/// What a session is besides its phase.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Common {
    id: SessionId,
    agent: Name,
    traits: AgentTraits,
    limits: Limits,
    /// The newest launch.
    incarnation: Incarnation,
    conversation: Option<Conversation>,
    /// Messages that wait.
    inbox: Inbox,
    /// Messages that were on disk when the session was loaded: they may be announced only now.
    restored: BTreeSet<MessageId>,
    /// It was loaded with messages that wait, and nothing was begun or ended since: a tick starts
    /// it.
    awaits_nudge: bool,
    leases: BTreeMap<HoldId, Lease>,
    keep: Keepsakes,
    /// It is to go on with another environment.
    change: Option<WaitingChange>,
    end: Option<EndReport>,
    /// What a client says came of it. Nothing here ever sets it by itself.
    outcome: Option<Outcome>,
    last_error: Option<String>,
    /// Starts that failed since a turn last began; the back-off grows with it.
    failed_starts: u32,
    /// Facts of older launches that were ignored.
    stale_facts: u64,
    /// The next daemon goes on with it: what is under way goes on, nothing new is begun.
    suspended: bool,
    host: Host,
    /// As it is written down.
    hosted: Hosted,
    /// When the session was last seen in use.
    active: MonoTime,
    /// When the last step was taken: a daemon that is late since then did not run.
    stepped: MonoTime,
    /// The wall clock as records show it. It decides nothing but how long a young conversation is
    /// left alone: agents that want that go by the same clock.
    wall: WallTime,
}

impl Common {
    /// Why the conversation could not be taken up by another process; `None`: it could.
    fn cannot_resume(&self) -> Option<&'static str> {
        if !self.traits.can_resume {
            return Some("the agent cannot take a conversation up again");
        }
        if let Some(why) = host::cannot_resume(self) {
            return Some(why);
        }
        match &self.conversation {
            Some(conversation) if conversation.resumable => None,
            Some(_) | None => Some("no turn has been acknowledged yet"),
        }
    }
}

/// Where a session is in its life. A phase carries what exists only in it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Never started.
    Dormant,
    /// A process is wanted and not ready yet.
    Starting(Box<Starting>),
    /// A turn runs.
    Working(Box<Live>, Turn),
    /// No turn, and the last one is over.
    Resting(Box<Live>, Rest),
    /// The process tree is being ended.
    Ending(Box<Ending>),
    /// No process but kept ones, which are being ended.
    Clearing(Box<Clearing>),
    /// No process; a message wakes it. `Common::end` says why.
    Released,
    /// It could not be started. Kept until somebody asks again.
    Failing,
    /// Removed.
    Ended,
}

impl Phase {
    /// The messages that an agent was given, oldest first.
    fn in_flight(&self) -> &[MessageId] {
        match self {
            Self::Working(_, turn) => turn.messages(),
            Self::Ending(ending) => ending.messages(),
            Self::Dormant
            | Self::Starting(_)
            | Self::Resting(..)
            | Self::Clearing(_)
            | Self::Released
            | Self::Failing
            | Self::Ended => &[],
        }
    }
}

/// What a phase needs to answer an input.
struct Cx<'a> {
    common: &'a mut Common,
    now: MonoTime,
    fx: &'a mut Vec<Effect>,
}

impl Cx<'_> {
    fn publish(&mut self, event: SessionEvent) {
        self.fx.push(Effect::Publish(event));
    }

    fn tell(&mut self, order: BackendOrder) {
        self.fx.push(Effect::Tell {
            incarnation: self.common.incarnation,
            order,
        });
    }

    /// Writes down what became of a message, and tells.
    fn settle(&mut self, message: MessageId, state: MessageState, text: &str) {
        if state.is_final() {
            self.common.inbox.forget(message);
        }
        let text = text.to_owned();
        self.fx.push(Effect::Settle {
            message,
            state,
            text: text.clone(),
        });
        self.publish(SessionEvent::MessageChanged {
            message,
            state,
            text,
        });
    }
}

/// One session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    common: Common,
    phase: Phase,
    /// What was written down last; what differs from it is written in the same step.
    saved: Progress,
}

impl Session {
    /// The session as the store has it: without a process, whatever it was doing.
    #[must_use]
    pub fn restore(
        saved: &SavedSession,
        traits: AgentTraits,
        limits: Limits,
        now: MonoTime,
    ) -> Self {
        let progress = &saved.progress;
        let phase = match progress.state {
            SessionState::New => Phase::Dormant,
            SessionState::Failing => Phase::Failing,
            SessionState::Starting
            | SessionState::Working
            | SessionState::NeedsYou
            | SessionState::Waiting
            | SessionState::Resting
            | SessionState::Releasing
            | SessionState::Released
            | SessionState::Stopping
            | SessionState::Stopped
            | SessionState::Interrupted => Phase::Released,
        };
        Self {
            common: Common {
                id: saved.profile.id,
                agent: saved.profile.recipe.agent.clone(),
                traits,
                limits,
                incarnation: progress.incarnation,
                conversation: progress.conversation.clone(),
                inbox: Inbox::restore(&saved.queued),
                restored: saved.queued.iter().map(|it| it.message).collect(),
                awaits_nudge: !matches!(phase, Phase::Failing),
                leases: BTreeMap::new(),
                keep: Keepsakes::restore(&progress.keeping),
                change: None,
                end: progress.end.clone(),
                outcome: progress.outcome.clone(),
                last_error: progress.last_error.clone(),
                failed_starts: 0,
                stale_facts: 0,
                suspended: false,
                host: Host::None,
                hosted: progress.hosted,
                active: now,
                stepped: now,
                wall: WallTime::default(),
            },
            phase,
            saved: progress.clone(),
        }
    }

    /// The session with the wall clock as the records of its next step show it.
    #[must_use]
    pub fn at(mut self, wall: WallTime) -> Self {
        self.common.wall = wall;
        self
    }

    /// Applies one input. Total, and by value: a panic cannot leave a half-changed session.
    #[must_use]
    pub fn step(self, input: &Input, now: MonoTime) -> (Self, Vec<Effect>) {
        let overslept = self.has_overslept(now);
        let Self {
            mut common,
            phase,
            saved,
        } = self;
        let mut fx = Vec::new();
        let of_kept = keep::is_meant(input, &common);
        let other = |incarnation| incarnation != common.incarnation;
        if !of_kept && incarnation_of(input).is_some_and(other) {
            common.stale_facts += 1;
            return (
                Self {
                    common,
                    phase,
                    saved,
                },
                fx,
            );
        }
        let was_held = report::is_held(&phase, &common);
        let mut cx = Cx {
            common: &mut common,
            now,
            fx: &mut fx,
        };
        keep::drive(input, &mut cx);
        note(&phase, input, &mut cx);
        let phase = match phase {
            phase if of_kept => phase,
            phase if matches!(input, Input::Suspend(_)) => adopt::suspend(phase, &mut cx),
            Phase::Dormant | Phase::Released | Phase::Failing => asleep::on(phase, input, &mut cx),
            Phase::Starting(starting) => starting.on(input, &mut cx),
            Phase::Working(live, turn) => turn::on(live, turn, input, &mut cx),
            Phase::Resting(live, mut rest) => {
                if overslept {
                    rest.restart(now);
                }
                resting::on(live, rest, input, &mut cx)
            }
            Phase::Ending(ending) => ending.on(input, &mut cx),
            Phase::Clearing(clearing) => clearing.on(input, &mut cx),
            Phase::Ended => asleep::on_ended(input, &mut cx),
        };
        let phase = keep::settle(phase, &mut cx);
        let phase = resting::take_up(phase, was_held, &mut cx);
        let phase = turn::attend(phase, &mut cx);
        common.stepped = now;
        let mut session = Self {
            common,
            phase,
            saved,
        };
        session.conclude(&mut fx);
        (session, fx)
    }

    /// True when a deadline was missed by so much that the daemon cannot have run meanwhile. One
    /// that had passed when it came up is not missed: it counts from the last step.
    fn has_overslept(&self, now: MonoTime) -> bool {
        self.next_deadline()
            .map(|deadline| deadline.max(self.common.stepped))
            .is_some_and(|due| now.since(due) > LATE_TICK_MAX)
    }

    /// When the session next has something to decide; `None`: never by itself, and no timer is
    /// needed.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonoTime> {
        let kept = self.common.keep.next_deadline();
        self.phase_deadline().into_iter().chain(kept).min()
    }

    fn phase_deadline(&self) -> Option<MonoTime> {
        match &self.phase {
            Phase::Starting(starting) => starting.next_deadline(&self.common),
            Phase::Working(..) | Phase::Resting(..) if self.common.suspended => None,
            Phase::Working(live, _) => live.next_deadline(&self.common),
            Phase::Resting(live, rest) => [
                live.next_deadline(&self.common),
                rest.next_deadline(live, &self.common),
            ]
            .into_iter()
            .flatten()
            .min(),
            Phase::Ending(ending) => Some(ending.deadline()),
            Phase::Dormant
            | Phase::Clearing(_)
            | Phase::Released
            | Phase::Failing
            | Phase::Ended => None,
        }
    }

    /// What follows from the step as a whole: a changed word for the state, a changed record, and
    /// whether the actor is still needed.
    fn conclude(&mut self, fx: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Ended) {
            fx.push(Effect::Sleep);
            return;
        }
        let (from, to) = (self.saved.state, self.state());
        if from != to {
            fx.push(Effect::Publish(SessionEvent::StateChanged { from, to }));
        }
        if !self.is_saved(to) {
            self.saved = self.progress(to);
            fx.push(Effect::Save(Box::new(self.saved.clone())));
        }
        if self.is_asleep() && self.common.keep.is_clear() && self.common.host.is_none() {
            fx.push(Effect::Sleep);
        } else if self.is_asleep() && self.common.suspended {
            // What it keeps is watched, also while it sleeps, and its host listened to; from now
            // on by the next daemon.
            fx.push(Effect::Suspended);
        }
    }

    /// The processes of the live backend.
    #[must_use]
    pub fn running(&self) -> Option<&Running> {
        match &self.phase {
            Phase::Starting(starting) => starting.running(),
            Phase::Working(live, _) | Phase::Resting(live, _) => Some(live.running()),
            Phase::Ending(ending) => Some(ending.running()),
            Phase::Dormant
            | Phase::Clearing(_)
            | Phase::Released
            | Phase::Failing
            | Phase::Ended => None,
        }
    }

    /// True when nothing happens before somebody wants something.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        match self.phase {
            Phase::Dormant | Phase::Released | Phase::Failing | Phase::Ended => true,
            Phase::Starting(_)
            | Phase::Working(..)
            | Phase::Resting(..)
            | Phase::Ending(_)
            | Phase::Clearing(_) => false,
        }
    }

    /// The newest launch.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.common.incarnation
    }

    /// Facts of older launches that were ignored.
    #[must_use]
    pub fn stale_facts(&self) -> u64 {
        self.common.stale_facts
    }
}

/// The launch a fact speaks of; `None` for what concerns the session whatever runs.
fn incarnation_of(input: &Input) -> Option<Incarnation> {
    match input {
        Input::Activity(activity) => activity.incarnation,
        Input::StatusChanged(changed) => Some(changed.incarnation),
        Input::TaskRoster(roster) => Some(roster.incarnation),
        Input::Delivered(delivered) => Some(delivered.incarnation),
        Input::Launched(launched) => Some(launched.incarnation),
        Input::LaunchFailed(failed) => Some(failed.incarnation),
        Input::ChildExited(exited) => Some(exited.incarnation),
        Input::TreeEmptied(emptied) => Some(emptied.incarnation),
        Input::Adopted(adopted) => Some(adopted.incarnation),
        Input::ReapReport(report) => Some(report.incarnation),
        Input::IdleTick(_)
        | Input::Order(_)
        | Input::MessageQueued(_)
        | Input::StartGranted(_)
        | Input::Host(_)
        | Input::KeptEnded(_)
        | Input::Suspend(_)
        | Input::LimitsChanged(_) => None,
    }
}

/// What every phase does alike: a message joins or leaves the inbox, new limits apply, use and
/// outcome are noted.
fn note(phase: &Phase, input: &Input, cx: &mut Cx<'_>) {
    match input {
        // It was deleted with the session.
        Input::MessageQueued(_) if matches!(phase, Phase::Ended) => {}
        Input::MessageQueued(queued) => inbox::accept(phase, *queued, cx),
        Input::Activity(_) => cx.common.active = cx.now,
        Input::LimitsChanged(limits) => cx.common.limits = limits.clone(),
        Input::Order(_) if matches!(phase, Phase::Ended) => {}
        Input::Order(Order::Cancel(cancel)) => inbox::cancel(phase, cancel, cx),
        Input::Order(Order::RecordOutcome(record)) => orders::record_outcome(record, cx),
        Input::Order(order) => keep::note_order(order, cx),
        Input::Host(_) if matches!(phase, Phase::Ended) => {}
        Input::Host(changed) => host::note(*changed, cx),
        Input::StatusChanged(_)
        | Input::TaskRoster(_)
        | Input::IdleTick(_)
        | Input::KeptEnded(_)
        | Input::Delivered(_)
        | Input::StartGranted(_)
        | Input::Launched(_)
        | Input::LaunchFailed(_)
        | Input::Adopted(_)
        | Input::Suspend(_)
        | Input::ChildExited(_)
        | Input::TreeEmptied(_)
        | Input::ReapReport(_) => {}
    }
}

/// Passes a piece of the answer on to whoever watches.
fn publish_output(kind: &ActivityKind, message: Option<MessageId>, cx: &mut Cx<'_>) {
    match kind {
        ActivityKind::Output(text) => {
            cx.publish(SessionEvent::Output {
                message,
                text: text.clone(),
            });
        }
        ActivityKind::Client => {}
    }
}
