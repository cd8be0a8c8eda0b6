//! What people and programs ask for, answered in the same step: done, or refused with a reason.
//!
//! Invariant: a refused order changes nothing.

use std::time::Duration;

use drowse_messages::{
    AnswerAsk, HoldId, HoldTaken, HostEnd, Lease, Order, Outcome, RecordOutcome, Refusal,
    SessionEvent, Stop, StopHow, millis,
};

use super::ending::Ending;
use super::idle::Rest;
use super::keep::{self, Clearing};
use super::live::Live;
use super::purpose::Purpose;
use super::starting::Starting;
use super::turn::Turn;
use super::{Cx, Phase, change, host, inbox, report};
use crate::effect::{BackendOrder, Effect};

/// 24 h: a lease is renewed by whoever needs it; one that would last longer is forgotten.
pub const LEASE_TTL_MAX: Duration = Duration::from_secs(24 * 3600);
/// 4 KiB: an outcome is a sentence and perhaps a link, not the work itself.
pub const OUTCOME_BYTES_MAX: usize = 4 * 1024;
/// 64 leases on one session: more is a loop that forgets to lift.
pub const LEASES_MAX: usize = 64;

fn refuse(refusal: Refusal, cx: &mut Cx<'_>) {
    cx.fx.push(Effect::Refuse(refusal));
}

pub(super) fn refuse_not_running(state: &str, cx: &mut Cx<'_>) {
    refuse(
        Refusal::NotRunning {
            state: state.to_owned(),
        },
        cx,
    );
}

pub(super) fn refuse_answer(answer: &AnswerAsk, cx: &mut Cx<'_>) {
    refuse(
        Refusal::NotPending {
            approval: answer.id.clone(),
        },
        cx,
    );
}

/// Stopping cancels what waits; a shutdown and a release keep it.
pub(super) fn cancel_for(how: StopHow, cx: &mut Cx<'_>) {
    match how {
        StopHow::Stop | StopHow::StopAll => inbox::cancel_all("the session was stopped", cx),
        StopHow::Remove => inbox::cancel_all("the session was removed", cx),
        StopHow::Release | StopHow::Shutdown => {}
    }
}

/// Takes or renews a lease.
pub(super) fn take_lease(hold: &HoldTaken, cx: &mut Cx<'_>) {
    let invalid = |field: &str, detail: String| Refusal::Invalid {
        field: field.into(),
        detail,
    };
    if hold.ttl.is_zero() || hold.ttl > LEASE_TTL_MAX {
        let detail = format!("{:?} is not between 1 ms and 24 h", hold.ttl);
        return refuse(invalid("ttl", detail), cx);
    }
    let known = cx.common.leases.get(&hold.id);
    if known.is_none() && cx.common.leases.len() >= LEASES_MAX {
        return refuse(
            invalid("hold", format!("{LEASES_MAX} leases are taken already")),
            cx,
        );
    }
    let lease = Lease {
        why: hold.why.clone(),
        owner: hold.owner.clone(),
        since: known.map_or(cx.now, |lease| lease.since),
        until: cx.now.after(hold.ttl),
    };
    cx.common.leases.insert(hold.id, lease);
    cx.publish(SessionEvent::HoldTaken {
        id: hold.id,
        why: hold.why.clone(),
        owner: hold.owner.clone(),
        ttl_ms: millis(hold.ttl),
    });
}

/// A client says how it went. Drowse itself never does.
pub(super) fn record_outcome(record: &RecordOutcome, cx: &mut Cx<'_>) {
    let bytes = record.text.as_ref().map(String::len);
    if bytes.is_some_and(|bytes| bytes == 0 || bytes > OUTCOME_BYTES_MAX) {
        let detail = format!(
            "an outcome has 1 to {OUTCOME_BYTES_MAX} bytes, and this one {}",
            bytes.unwrap_or_default()
        );
        let field = "text".to_owned();
        return refuse(Refusal::Invalid { field, detail }, cx);
    }
    cx.common.outcome = record.text.clone().map(|text| Outcome {
        text,
        by: record.by.clone(),
        at: cx.common.wall,
    });
    cx.publish(SessionEvent::OutcomeRecorded {
        text: record.text.clone(),
        by: record.by.clone(),
    });
}

/// Lifts a lease; one that is gone already is fine.
pub(super) fn lift_lease(id: HoldId, expired: bool, cx: &mut Cx<'_>) {
    if cx.common.leases.remove(&id).is_some() {
        cx.publish(SessionEvent::HoldLifted { id, expired });
    }
}

pub(super) fn expire_leases(cx: &mut Cx<'_>) {
    let over: Vec<HoldId> = cx
        .common
        .leases
        .iter()
        .filter(|(_, lease)| cx.now >= lease.until)
        .map(|(id, _)| *id)
        .collect();
    for id in over {
        lift_lease(id, true, cx);
    }
}

/// Dormant, released or failing.
pub(super) fn on_asleep(phase: Phase, order: &Order, cx: &mut Cx<'_>) -> Phase {
    match order {
        Order::Stop(stop) => on_asleep_stop(phase, stop, cx),
        Order::Wake(wake) => {
            cx.common.failed_starts = 0;
            Starting::begin(wake.fresh, cx)
        }
        // The next launch has the other environment.
        Order::ChangeAccount(_) => {
            cx.common.failed_starts = 0;
            Starting::begin(false, cx)
        }
        // The last two are dealt with already, whatever the phase.
        Order::LiftHold(_) | Order::EndTask(_) | Order::Cancel(_) | Order::RecordOutcome(_) => {
            phase
        }
        Order::Keep(wanted) => {
            let state = report::state(&phase, cx.common).code();
            keep::ask(wanted, false, state, cx);
            phase
        }
        Order::Answer(answer) => {
            refuse_answer(answer, cx);
            phase
        }
        Order::Interrupt(_) | Order::TakeHold(_) | Order::StartTask(_) => {
            refuse_not_running(report::state(&phase, cx.common).code(), cx);
            phase
        }
    }
}

/// Nothing runs: releasing and shutting down are done already, stopping forgets what waits.
fn on_asleep_stop(phase: Phase, stop: &Stop, cx: &mut Cx<'_>) -> Phase {
    cx.common.awaits_nudge &= stop.how == StopHow::Release;
    cancel_for(stop.how, cx);
    let failing = matches!(phase, Phase::Failing);
    if stop.how != StopHow::Release {
        let end = match stop.how {
            StopHow::Shutdown => HostEnd::Shutdown,
            StopHow::Release | StopHow::Stop | StopHow::StopAll | StopHow::Remove => HostEnd::Ended,
        };
        host::end(end, cx);
    }
    let has_kept = !stop.how.keeps() && !cx.common.keep.is_clear();
    match stop.how {
        StopHow::Shutdown | StopHow::StopAll if has_kept => {
            Clearing::begin(Purpose::of(stop), failing)
        }
        StopHow::Release | StopHow::Shutdown => phase,
        StopHow::Stop | StopHow::StopAll if !failing => phase,
        StopHow::Stop | StopHow::StopAll | StopHow::Remove => {
            Purpose::of(stop).finish_without_process(cx)
        }
    }
}

/// A turn runs.
pub(super) fn on_working(mut live: Box<Live>, turn: Turn, order: &Order, cx: &mut Cx<'_>) -> Phase {
    match order {
        Order::Stop(stop) if stop.how == StopHow::Release => {
            let held_by = report::holds_while_working(&live, &turn, cx.common)
                .iter()
                .map(report::hold_in_words)
                .collect();
            refuse(Refusal::Held { held_by }, cx);
        }
        Order::Stop(stop) => {
            cancel_for(stop.how, cx);
            return Ending::begin(live, Purpose::of(stop), Some(turn), cx);
        }
        Order::Interrupt(_) => cx.tell(BackendOrder::Interrupt),
        Order::Keep(wanted) => keep::ask(wanted, true, "working", cx),
        Order::Wake(_) => {}
        Order::ChangeAccount(order) => change::ask(order, &live, true, cx),
        Order::Answer(answer) => live.answer(answer, cx),
        Order::TakeHold(hold) => take_lease(hold, cx),
        Order::LiftHold(lifted) => lift_lease(lifted.id, false, cx),
        Order::StartTask(start) => live.tasks.start(start, cx),
        Order::EndTask(end) => live.tasks.end(end, cx),
        // Dealt with already, whatever the phase.
        Order::Cancel(_) | Order::RecordOutcome(_) => {}
    }
    Phase::Working(live, turn)
}

/// At rest.
pub(super) fn on_resting(mut live: Box<Live>, rest: Rest, order: &Order, cx: &mut Cx<'_>) -> Phase {
    match order {
        Order::Stop(stop) => return on_resting_stop(live, rest, stop, cx),
        Order::Interrupt(_) => refuse_not_running("resting", cx),
        Order::Keep(wanted) => keep::ask(wanted, true, "resting", cx),
        Order::Wake(_) => {}
        Order::ChangeAccount(order) => change::ask(order, &live, false, cx),
        Order::Answer(answer) => live.answer(answer, cx),
        Order::TakeHold(hold) => take_lease(hold, cx),
        Order::LiftHold(lifted) => lift_lease(lifted.id, false, cx),
        Order::StartTask(start) => live.tasks.start(start, cx),
        Order::EndTask(end) => live.tasks.end(end, cx),
        // Dealt with already, whatever the phase.
        Order::Cancel(_) | Order::RecordOutcome(_) => {}
    }
    Phase::Resting(live, rest)
}

fn on_resting_stop(live: Box<Live>, rest: Rest, stop: &Stop, cx: &mut Cx<'_>) -> Phase {
    if stop.how == StopHow::Release {
        let holds = report::holds_at_rest(&live, cx.common, cx.now);
        if !holds.is_empty() {
            let held_by = holds.iter().map(report::hold_in_words).collect();
            refuse(Refusal::Held { held_by }, cx);
            return Phase::Resting(live, rest);
        }
        if let Some(why) = cx.common.cannot_resume() {
            refuse(
                Refusal::CannotResume {
                    detail: why.to_owned(),
                },
                cx,
            );
            return Phase::Resting(live, rest);
        }
    }
    cancel_for(stop.how, cx);
    Ending::begin(live, Purpose::of(stop), None, cx)
}
