//! The calls of one connection: which are under way, until when, and which nobody waits for.
//!
//! Fed by `connections.rs`. A call past its deadline, or cut off from its client, is abandoned: what
//! it does goes on, and its answer is dropped. Invariant: a call is waited for or abandoned, never
//! both, and the sum of both is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drowse_messages::MonoTime;

use super::CallId;

/// 64 calls under way or abandoned: a client that needs more waits for none of them.
pub const CALLS_MAX: usize = 64;

/// 120 s for a call that names no bound (behaviour 104).
pub const CALL_DEADLINE: Duration = Duration::from_secs(120);

/// 30 s are added to a bound the client names, so that its own deadline comes first.
pub const CALL_GRACE: Duration = Duration::from_secs(30);

/// 1 h at most, whatever the client names.
pub const CALL_DEADLINE_MAX: Duration = Duration::from_secs(3600);

/// 1 s under way before a call holds its session by a lease: most are done by then, and each lease
/// is two events for everybody who watches.
const HOLD_AFTER: Duration = Duration::from_secs(1);

/// What sort of call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Changes nothing, and holds nothing: reading is never activity.
    Read,
    /// An order to a live session.
    Act,
    /// Says something to the agent: no deadline, and held by the message itself.
    Prompt,
    /// Ends the process: to hold the session against it would be a contradiction.
    End,
}

impl CallKind {
    /// True for what whoever only watches may ask.
    #[must_use]
    pub const fn is_for_watchers(self) -> bool {
        match self {
            Self::Read => true,
            Self::Act | Self::Prompt | Self::End => false,
        }
    }

    const fn holds(self) -> bool {
        match self {
            Self::Act => true,
            Self::Read | Self::Prompt | Self::End => false,
        }
    }
}

/// How long a call is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deadline {
    /// As long as it takes.
    Never,
    At(MonoTime),
    /// A person is waited for; so much is left afterwards.
    Suspended(Duration),
}

impl Deadline {
    fn of(kind: CallKind, timeout: Option<Duration>, now: MonoTime) -> Self {
        match (kind, timeout) {
            (CallKind::Prompt, _) | (_, Some(Duration::ZERO)) => Self::Never,
            (_, None) => Self::At(now.after(CALL_DEADLINE)),
            (_, Some(bound)) => {
                let bound = bound.saturating_add(CALL_GRACE).min(CALL_DEADLINE_MAX);
                Self::At(now.after(bound))
            }
        }
    }

    fn at(self) -> Option<MonoTime> {
        match self {
            Self::At(at) => Some(at),
            Self::Never | Self::Suspended(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    kind: CallKind,
    deadline: Deadline,
    began: MonoTime,
    /// It has been counted among what holds.
    holds: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    waiting: BTreeMap<CallId, Waiting>,
    abandoned: BTreeSet<CallId>,
    person_awaited: bool,
}

impl Calls {
    pub(super) fn new(person_awaited: bool) -> Self {
        Self {
            waiting: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            person_awaited,
        }
    }

    /// False: there is no room for it, and it must not run.
    pub(super) fn begin(
        &mut self,
        call: CallId,
        kind: CallKind,
        timeout: Option<Duration>,
        now: MonoTime,
    ) -> bool {
        if self.waiting.len() + self.abandoned.len() >= CALLS_MAX {
            return false;
        }
        let mut waiting = Waiting {
            kind,
            deadline: Deadline::of(kind, timeout, now),
            began: now,
            holds: false,
        };
        if self.person_awaited {
            waiting.suspend(now);
        }
        self.waiting.insert(call, waiting);
        true
    }

    /// True when somebody waits for the answer.
    pub(super) fn end(&mut self, call: CallId) -> bool {
        self.abandoned.remove(&call);
        self.waiting.remove(&call).is_some()
    }

    pub(super) fn under_way(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn waiting(&self) -> Vec<CallId> {
        self.waiting.keys().copied().collect()
    }

    pub(super) fn abandon_all(&mut self) {
        let all = std::mem::take(&mut self.waiting);
        self.abandoned.extend(all.into_keys());
    }

    /// The calls whose time is up; they are abandoned by it.
    pub(super) fn expire(&mut self, now: MonoTime) -> Vec<CallId> {
        let over = |waiting: &Waiting| waiting.deadline.at().is_some_and(|at| at <= now);
        let over = self.waiting.iter().filter(|(_, it)| over(it));
        let over: Vec<CallId> = over.map(|(call, _)| *call).collect();
        for call in &over {
            self.waiting.remove(call);
            self.abandoned.insert(*call);
        }
        over
    }

    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        let all = self.waiting.values();
        all.filter_map(|it| it.deadline.at()).min()
    }

    pub(super) fn person_awaited(&mut self, awaited: bool, now: MonoTime) {
        self.person_awaited = awaited;
        for waiting in self.waiting.values_mut() {
            if awaited {
                waiting.suspend(now);
            } else if let Deadline::Suspended(left) = waiting.deadline {
                waiting.deadline = Deadline::At(now.after(left));
            }
        }
    }

    /// When the next of them begins to hold.
    pub(super) fn next_hold(&self) -> Option<MonoTime> {
        let all = self.waiting.values();
        let young = all.filter(|it| it.kind.holds() && !it.holds);
        young.map(|it| it.began.after(HOLD_AFTER)).min()
    }

    /// True when one that holds has no deadline now.
    pub(super) fn hold_endless(&self) -> bool {
        let mut all = self.waiting.values();
        all.any(|it| it.holds && it.deadline.at().is_none())
    }

    /// Until when they hold; those without a deadline for `lease` from now.
    pub(super) fn holds_until(&self, now: MonoTime, lease: Duration) -> Option<MonoTime> {
        let all = self.waiting.values();
        let holding = all.filter(|it| it.is_old_enough(now));
        holding
            .map(|it| it.deadline.at().unwrap_or_else(|| now.after(lease)))
            .max()
    }

    /// Notes which of them hold from now on.
    pub(super) fn mark_holding(&mut self, now: MonoTime) {
        for waiting in self.waiting.values_mut() {
            waiting.holds = waiting.is_old_enough(now);
        }
    }
}

impl Waiting {
    fn suspend(&mut self, now: MonoTime) {
        if let Deadline::At(at) = self.deadline {
            self.deadline = Deadline::Suspended(at.since(now));
        }
    }

    fn is_old_enough(&self, now: MonoTime) -> bool {
        self.kind.holds() && (self.holds || self.began.after(HOLD_AFTER) <= now)
    }
}
