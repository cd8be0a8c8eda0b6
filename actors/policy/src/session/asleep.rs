//! A session without a process: dormant, released, failing or removed.
//!
//! Fed by `session.rs`. Invariant: nothing happens here by itself; a process is started because
//! somebody wants one.

use drowse_messages::{HostChanged, HostEnd, Refusal};

use super::starting::Starting;
use super::{Cx, Phase, adopt, host, orders};
use crate::effect::{Effect, Input};

/// Dormant, released or failing: no process, and late news of the last one is dropped.
pub(super) fn on(phase: Phase, input: &Input, cx: &mut Cx<'_>) -> Phase {
    match input {
        Input::MessageQueued(_) if !cx.common.inbox.is_empty() => {
            cx.common.failed_starts = 0;
            Starting::begin(false, cx)
        }
        // A failing one waits for a person, and one that was shut down for the next daemon.
        Input::IdleTick(_) if cx.common.awaits_nudge && !cx.common.inbox.is_empty() => {
            Starting::begin(false, cx)
        }
        Input::Order(order) => orders::on_asleep(phase, order, cx),
        Input::Adopted(adopted) => adopt::begin(adopted, cx),
        Input::Host(changed) => host::on_asleep(phase, *changed, cx),
        Input::StartGranted(_) => {
            cx.fx.push(Effect::StartSettled);
            phase
        }
        Input::MessageQueued(_)
        | Input::Activity(_)
        | Input::StatusChanged(_)
        | Input::TaskRoster(_)
        | Input::IdleTick(_)
        | Input::Delivered(_)
        | Input::Launched(_)
        | Input::LaunchFailed(_)
        | Input::Suspend(_)
        | Input::ChildExited(_)
        | Input::TreeEmptied(_)
        | Input::ReapReport(_)
        | Input::KeptEnded(_)
        | Input::LimitsChanged(_) => phase,
    }
}

/// Removed: whatever comes, comes too late.
pub(super) fn on_ended(input: &Input, cx: &mut Cx<'_>) -> Phase {
    match input {
        Input::Order(_) => {
            let session = cx.common.id.to_string();
            cx.fx
                .push(Effect::Refuse(Refusal::NoSuchSession { session }));
        }
        Input::StartGranted(_) => cx.fx.push(Effect::StartSettled),
        Input::Host(HostChanged::Attached { .. }) => {
            cx.fx.push(Effect::EndHost(HostEnd::Ended));
        }
        Input::Host(_) => {}
        Input::Activity(_)
        | Input::StatusChanged(_)
        | Input::TaskRoster(_)
        | Input::IdleTick(_)
        | Input::MessageQueued(_)
        | Input::Delivered(_)
        | Input::Launched(_)
        | Input::LaunchFailed(_)
        | Input::Adopted(_)
        | Input::Suspend(_)
        | Input::ChildExited(_)
        | Input::TreeEmptied(_)
        | Input::ReapReport(_)
        | Input::KeptEnded(_)
        | Input::LimitsChanged(_) => {}
    }
    Phase::Ended
}
