//! An account change: the session goes on in its conversation with another environment.
//!
//! The environment itself is no concern of policy: it is in the recipe by the time this is asked
//! for, and applies to the next launch. What is left to do is to have one. A session at rest is
//! released at once, by the same path as every release, and woken; a busy one once it is at rest
//! (behaviours 44, 145). Fed by orders, and by `resting.rs` with every step that leaves a session at
//! rest. Invariants: nothing that holds is ended for it, and a stop cancels it.

use drowse_messages::{
    ChangeAccount, ChangeReport, MonoTime, Refusal, SessionEvent, WaitingChange, millis,
};

use super::ending::Ending;
use super::live::Live;
use super::purpose::Purpose;
use super::{Common, Cx, Phase, report};
use crate::effect::Effect;

pub(super) fn report(change: &WaitingChange, now: MonoTime) -> ChangeReport {
    ChangeReport {
        by: change.by.clone(),
        age_ms: millis(now.since(change.since)),
    }
}

/// Somebody asks for it while an agent lives. It is carried out by `take_up`, in the same step when
/// nothing holds the session. `works`: a turn runs, whose end is waited for.
pub(super) fn ask(order: &ChangeAccount, live: &Live, works: bool, cx: &mut Cx<'_>) {
    let why = if works && cx.common.traits.can_resume {
        None
    } else {
        what_would_be_lost(live, cx.common)
    };
    if let Some(why) = why {
        let detail = why.to_owned();
        return cx.fx.push(Effect::Refuse(Refusal::CannotResume { detail }));
    }
    cx.common.change.get_or_insert(WaitingChange {
        by: order.by.clone(),
        since: cx.now,
    });
}

/// Why the conversation could not go on in another process; `None`: it could, or there is nothing
/// in it yet.
fn what_would_be_lost(live: &Live, common: &Common) -> Option<&'static str> {
    common.cannot_resume().filter(|_| live.has_worked())
}

/// Carries out what waits, as soon as nothing but messages holds the session at rest: they are
/// for the agent that comes.
pub(super) fn take_up(live: Box<Live>, cx: &mut Cx<'_>) -> Result<Box<Live>, Phase> {
    if cx.common.suspended
        || cx.common.change.is_none()
        || report::is_held_by_more_than_messages(&live, cx.common)
    {
        return Ok(live);
    }
    let change = cx.common.change.take();
    if let Some(why) = what_would_be_lost(&live, cx.common) {
        let text = format!("not restarted with another environment: {why}");
        cx.publish(SessionEvent::Notice { text });
        return Ok(live);
    }
    match change {
        Some(change) => Err(Ending::begin(live, Purpose::change(&change.by), None, cx)),
        None => Ok(live),
    }
}

/// A teardown begins. Whatever it is for, the agent that follows it has the other environment; a
/// change that waited has it follow at once, unless somebody wants no agent any more.
pub(super) fn join(purpose: &mut Purpose, cx: &mut Cx<'_>) {
    if cx.common.change.take().is_some() && !purpose.cancels() && !purpose.is_shutdown() {
        purpose.wake(false);
    }
}
