//! Decides when a session at rest is released. The whole idle rule is here.
//!
//! A session is released when it has been quiet for `idle_after` since its turn ended or it was
//! last used, nothing holds it, and its conversation can be resumed. Something that holds it when
//! the window ends defers the release by another window. Of an agent that reports no tasks the
//! process tree is looked at first. Background tasks defer for at most
//! `task_hold_max` in all.
//!
//! Knows nothing of processes. Invariant: a session with a hold is never idle, and nothing sticky
//! is left behind by a deferral (behaviour 43).

use std::time::Duration;

use drowse_messages::{
    Limits, MonoTime, Pinned, ReapReport, ReapStep, Reason, SessionEvent, Who, millis,
};

use super::ending::Ending;
use super::live::Live;
use super::purpose::{Goal, Purpose};
use super::{Common, Cx, Phase, observe, report};

/// A deadline missed by this long proves that the daemon itself did not run (it was stopped, or
/// the machine froze): that time is nobody's idleness, and a full window begins (D23). 5 s: far
/// above the delays of a busy machine.
pub const LATE_TICK_MAX: Duration = Duration::from_secs(5);

/// The warning before `task_hold_max` comes this long ahead, or at three quarters of a shorter
/// limit.
const TASK_HOLD_WARNING: Duration = Duration::from_secs(5 * 60);

/// What holds a session whose tree could not be looked at.
const UNSEEN: &str = "unknown (what it runs could not be looked at)";

/// How long it has been quiet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// Quiet since.
    pub(super) quiet_since: MonoTime,
    /// The running window began: at `quiet_since`, or when a release was last deferred.
    window_from: MonoTime,
    /// Background tasks have deferred releases since.
    pub(super) pinned: Option<Pinned>,
    /// The tree is being looked at; given up then.
    looking: Option<MonoTime>,
}

impl Rest {
    /// Enters the phase, with a full window from the end of the turn (behaviour 10).
    pub(super) fn begin(mut live: Box<Live>, cx: &mut Cx<'_>) -> Phase {
        live.turn_ended = Some(cx.now);
        Phase::Resting(live, Self::from(cx.now))
    }

    /// Quiet from now on.
    pub(super) fn from(now: MonoTime) -> Self {
        Self {
            quiet_since: now,
            window_from: now,
            pinned: None,
            looking: None,
        }
    }

    /// The session was used: a full window begins.
    pub(super) fn restart(&mut self, now: MonoTime) {
        *self = Self::from(now);
    }

    /// When the idle rule next has something to say. `None` while it is off, and while the
    /// conversation could not be resumed and nothing holds it: waiting would change nothing.
    pub(super) fn next_deadline(&self, live: &Live, common: &Common) -> Option<MonoTime> {
        if self.looking.is_some() {
            return self.looking;
        }
        let window = common.limits.idle_after.deadline(self.window_from);
        if report::is_held_at_rest(live, common) {
            return window
                .into_iter()
                .chain(self.pin_deadline(live, common))
                .min();
        }
        window.filter(|_| common.cannot_resume().is_none())
    }

    fn pin_deadline(&self, live: &Live, common: &Common) -> Option<MonoTime> {
        let pinned = self.pinned?;
        let end = common.limits.task_hold_max.deadline(pinned.since)?;
        is_pinned_by_tasks(live, common).then(|| {
            if pinned.warned {
                end
            } else {
                warning(pinned.since, end)
            }
        })
    }

    /// When the release comes if nothing happens; for readers.
    pub(super) fn releases_at(&self, live: &Live, common: &Common) -> Option<MonoTime> {
        let held = report::is_held_at_rest(live, common);
        let free = !held && common.cannot_resume().is_none();
        free.then(|| common.limits.idle_after.deadline(self.window_from))
            .flatten()
    }

    /// For how long background tasks alone have pinned the session.
    fn pinned_for(&self, now: MonoTime) -> Duration {
        self.pinned
            .map_or(Duration::ZERO, |pinned| now.since(pinned.since))
    }

    /// Warns before the budget of background tasks ends, and says when it has.
    fn is_pin_over(&mut self, live: &Live, cx: &mut Cx<'_>) -> bool {
        if !is_pinned_by_tasks(live, cx.common) {
            return false;
        }
        let Some(pinned) = &mut self.pinned else {
            return false;
        };
        let Some(end) = cx.common.limits.task_hold_max.deadline(pinned.since) else {
            return false;
        };
        if cx.now >= end {
            return true;
        }
        if !pinned.warned && cx.now >= warning(pinned.since, end) {
            pinned.warned = true;
            let in_ms = millis(end.since(cx.now));
            cx.publish(SessionEvent::LimitWarned {
                reason: Reason::TaskHoldExpired,
                in_ms,
            });
        }
        false
    }

    /// The window ended and something holds: another window (behaviours 43, 130).
    fn defer(&mut self, live: &Live, cx: &mut Cx<'_>) {
        let held_by = report::holds_at_rest(live, cx.common, cx.now)
            .iter()
            .map(report::hold_in_words)
            .collect();
        self.defer_for(held_by, live, cx);
    }

    fn defer_for(&mut self, held_by: Vec<String>, live: &Live, cx: &mut Cx<'_>) {
        self.window_from = cx.now;
        // The budget of tasks runs while nothing else holds.
        self.pinned = is_pinned_by_tasks(live, cx.common).then(|| {
            self.pinned.unwrap_or(Pinned {
                since: cx.now,
                warned: false,
            })
        });
        let pinned_ms = millis(self.pinned_for(cx.now));
        cx.publish(SessionEvent::ReleaseDeferred { held_by, pinned_ms });
    }
}

/// Applies the rule now: time has passed, or limits changed. These are judged without waiting for a tick, so that a session
/// quiet for longer than a shorter limit goes at once (behaviour 7).
pub(super) fn judge(mut live: Box<Live>, mut rest: Rest, cx: &mut Cx<'_>) -> Phase {
    let was_held = report::is_held_at_rest(&live, cx.common);
    if let Some(goal) = live.pass_time(cx) {
        return Ending::begin(live, Purpose::new(goal, Who::Rule), None, cx);
    }
    let held = report::is_held_at_rest(&live, cx.common);
    if was_held && !held {
        rest.restart(cx.now);
    }
    let reason = if rest.is_pin_over(&live, cx) {
        Reason::TaskHoldExpired
    } else if rest.looking.is_some_and(|until| cx.now < until) {
        return Phase::Resting(live, rest);
    } else if window_is_open(&rest, &cx.common.limits, cx.now) {
        // Whatever a look would show, it is for the end of a window.
        rest.looking = None;
        return Phase::Resting(live, rest);
    } else if rest.looking.take().is_some() {
        rest.defer_for(vec![UNSEEN.to_owned()], &live, cx);
        return Phase::Resting(live, rest);
    } else if held && !is_held_by_observed(&live, cx.common) {
        rest.defer(&live, cx);
        return Phase::Resting(live, rest);
    } else if cx.common.cannot_resume().is_some() {
        return Phase::Resting(live, rest);
    } else if observe::applies(cx.common) {
        rest.looking = Some(observe::look(&live, cx));
        return Phase::Resting(live, rest);
    } else {
        Reason::Idle
    };
    let purpose = Purpose::new(Goal::Release(reason), Who::Rule);
    Ending::begin(live, purpose, None, cx)
}

/// What the tree shows decides the release that waited for it. One that comes when the session was
/// used meanwhile decides nothing (behaviour 42).
pub(super) fn on_look(
    mut live: Box<Live>,
    mut rest: Rest,
    look: &ReapReport,
    cx: &mut Cx<'_>,
) -> Phase {
    if look.step != ReapStep::Look || rest.looking.is_none() || cx.common.suspended {
        return Phase::Resting(live, rest);
    }
    rest.looking = None;
    // The limit may be another one by now.
    if window_is_open(&rest, &cx.common.limits, cx.now) {
        return Phase::Resting(live, rest);
    }
    let Some(tasks) = observe::work(look, &live) else {
        rest.defer_for(vec![UNSEEN.to_owned()], &live, cx);
        return Phase::Resting(live, rest);
    };
    let was_held = report::is_held_at_rest(&live, cx.common);
    if live.tasks.observe(&tasks, cx.now) {
        live.tasks.publish(cx);
    }
    if report::is_held_at_rest(&live, cx.common) {
        rest.defer(&live, cx);
        return Phase::Resting(live, rest);
    }
    if was_held || cx.common.cannot_resume().is_some() {
        // When it ended nobody knows: a full window begins (behaviour 17).
        rest.restart(cx.now);
        return Phase::Resting(live, rest);
    }
    let purpose = Purpose::new(Goal::Release(Reason::Idle), Who::Rule);
    Ending::begin(live, purpose, None, cx)
}

/// Held by nothing but what an earlier look has shown, which may be over.
fn is_held_by_observed(live: &Live, common: &Common) -> bool {
    observe::applies(common)
        && live.tasks.is_only_observed()
        && !report::is_held_besides_tasks(live, common)
}

fn window_is_open(rest: &Rest, limits: &Limits, now: MonoTime) -> bool {
    limits
        .idle_after
        .deadline(rest.window_from)
        .is_none_or(|end| now < end)
}

fn warning(since: MonoTime, end: MonoTime) -> MonoTime {
    let budget = end.since(since);
    since.after(budget.saturating_sub(TASK_HOLD_WARNING.min(budget / 4)))
}

/// Nothing but background tasks keeps the session from being released.
fn is_pinned_by_tasks(live: &Live, common: &Common) -> bool {
    live.tasks.is_holding()
        && !report::is_held_besides_tasks(live, common)
        && common.cannot_resume().is_none()
}
