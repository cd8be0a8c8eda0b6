//! A session whose backend an earlier daemon left running: whether it may be taken over, and how
//! it goes on from there. And the other end of it: a session that is left to the next daemon.
//!
//! Fed by `session.rs`, with all that is known of the backend in one input, so that nothing is
//! decided on half of it. Invariants: nothing is started here; a message in flight is answered by
//! the turn it is in, or unknown, once. What is restated was told when it happened and is not told
//! again. Limits count on from where they began; only the window of the idle rule begins anew: for
//! how long it was quiet before, nobody knows.

use std::collections::BTreeMap;

use drowse_messages::{
    Adopted, AgentStatus, Ages, HoldId, Lease, MessageState, MonoTime, Order, SessionEvent,
    SessionState, Stop, StopHow, Who,
};

use super::idle::Rest;
use super::live::Live;
use super::orders::LEASE_TTL_MAX;
use super::turn::{self, Turn};
use super::{Cx, Phase, host};
use crate::effect::{Effect, Input};

/// What is kept as the answer of a message that was on its way when the daemon ended.
const ON_ITS_WAY: &str =
    "drowse ended while it handed this message over: whether the agent got it is not known";

/// Whether a session in this state may be taken over with its backend. One that was starting
/// begins anew; one that was being ended is ended.
#[must_use]
pub const fn may_be_adopted(state: SessionState) -> bool {
    match state {
        SessionState::Working
        | SessionState::NeedsYou
        | SessionState::Waiting
        | SessionState::Resting => true,
        SessionState::New
        | SessionState::Starting
        | SessionState::Releasing
        | SessionState::Released
        | SessionState::Stopping
        | SessionState::Stopped
        | SessionState::Interrupted
        | SessionState::Failing => false,
    }
}

/// A session without a process has one again: the one it had.
pub(super) fn begin(adopted: &Adopted, cx: &mut Cx<'_>) -> Phase {
    cx.common.awaits_nudge = false;
    host::adopt(cx);
    for message in &adopted.unknown {
        cx.settle(*message, MessageState::Unknown, ON_ITS_WAY);
    }
    cx.publish(SessionEvent::Adopted {
        incarnation: adopted.incarnation,
        agent_pid: adopted.running.agent.process.pid(),
    });
    let mut live = Box::new(Live::adopted(adopted.running.clone(), cx));
    if let Some(tasks) = &adopted.tasks {
        quietly(cx, |cx| live.replace_roster(tasks, cx));
    }
    let phase = if adopted.in_flight.is_empty() {
        let mut rest = Rest::from(cx.now);
        rest.pinned = adopted.ages.as_ref().and_then(|ages| ages.pinned);
        Phase::Resting(live, rest)
    } else {
        Phase::Working(
            live,
            Turn::taken_up(adopted.in_flight.clone(), adopted.on_its_way, cx),
        )
    };
    let statuses = adopted.statuses.iter();
    let mut phase = statuses.fold(phase, |phase, status| restate(phase, status, cx));
    if let Phase::Working(live, _) | Phase::Resting(live, _) = &mut phase
        && let Some(ages) = &adopted.ages
    {
        live.count_on(ages, cx.now);
        cx.common.leases = leases(ages, cx.now);
        cx.common.change.clone_from(&ages.change);
    }
    phase
}

/// A lease that ends later than any may is of another clock.
fn leases(ages: &Ages, now: MonoTime) -> BTreeMap<HoldId, Lease> {
    let mut leases = ages.leases.clone();
    for lease in leases.values_mut() {
        lease.until = lease.until.min(now.after(LEASE_TTL_MAX));
    }
    leases
}

fn restate(phase: Phase, status: &AgentStatus, cx: &mut Cx<'_>) -> Phase {
    match (phase, status) {
        // Heard by the earlier daemon, and not on disk before it ended.
        (Phase::Working(live, turn), AgentStatus::TurnEnded(ended)) => {
            turn::on_ended(live, turn, ended, cx)
        }
        (Phase::Resting(live, _), AgentStatus::TurnStarted) => {
            Phase::Working(live, Turn::taken_up(Vec::new(), false, cx))
        }
        (mut phase, status) => {
            if let Phase::Working(live, _) | Phase::Resting(live, _) = &mut phase {
                quietly(cx, |cx| live.note(status, cx));
            }
            phase
        }
    }
}

/// Notes what was told before, without telling it.
fn quietly(cx: &mut Cx<'_>, note: impl FnOnce(&mut Cx<'_>)) {
    let mut told = Vec::new();
    note(&mut Cx {
        common: &mut *cx.common,
        now: cx.now,
        fx: &mut told,
    });
}

/// Leaves the session to the next daemon: a live backend as it is, whatever it does; a start
/// undone; a teardown to its end, with nothing after it.
pub(super) fn suspend(phase: Phase, cx: &mut Cx<'_>) -> Phase {
    cx.common.suspended = true;
    match phase {
        Phase::Working(..) | Phase::Resting(..) => {
            cx.fx.push(Effect::Suspended);
            phase
        }
        Phase::Starting(starting) => {
            let (how, by) = (StopHow::Shutdown, Who::Daemon);
            starting.on(&Input::Order(Order::Stop(Stop { how, by })), cx)
        }
        Phase::Ending(mut ending) => {
            ending.suspend();
            Phase::Ending(ending)
        }
        Phase::Clearing(mut clearing) => {
            clearing.suspend();
            Phase::Clearing(clearing)
        }
        Phase::Dormant | Phase::Released | Phase::Failing | Phase::Ended => {
            cx.common.awaits_nudge = false;
            phase
        }
    }
}
