//! A step as one line of text: for logs and for tests that read like a story.

use std::fmt::Write;

use drowse_messages::{AgentStatus, MonoTime, Order, SessionEvent};

use crate::{BackendOrder, Effect, Input};

/// `12.000 IdleTick -> [Publish(Ending idle), Reap(Snapshot)]`.
#[must_use]
pub fn line(now: MonoTime, input: &Input, effects: &[Effect]) -> String {
    let mut line = String::new();
    let (seconds, rest) = (now.as_millis() / 1000, now.as_millis() % 1000);
    // Writing to a `String` cannot fail.
    let _ = write!(line, "{seconds}.{rest:03} {} ->", input_in_words(input));
    for effect in effects {
        let _ = write!(line, " {}", effect_in_words(effect));
    }
    line
}

/// An input's name with the fact that matters most in it.
#[must_use]
pub fn input_in_words(input: &Input) -> String {
    match input {
        Input::Activity(_) => "activity".to_owned(),
        Input::StatusChanged(changed) => status_in_words(&changed.status),
        Input::TaskRoster(roster) => format!("roster({})", roster.tasks.len()),
        Input::IdleTick(_) => "tick".to_owned(),
        Input::Order(order) => order_in_words(order),
        Input::MessageQueued(queued) => format!("message({})", queued.message),
        Input::Delivered(d) => format!("delivered({}, {:?})", d.message, d.result).to_lowercase(),
        Input::StartGranted(_) => "start-granted".to_owned(),
        Input::Launched(launched) => format!("launched({})", launched.incarnation),
        Input::LaunchFailed(failed) => format!("launch-failed({})", failed.error),
        Input::Adopted(adopted) => format!("adopted({})", adopted.incarnation),
        Input::Suspend(_) => "suspend".to_owned(),
        Input::ChildExited(exited) => match exited.status {
            Some(status) => format!("exited({status})"),
            None => "exited".to_owned(),
        },
        Input::TreeEmptied(_) => "tree-emptied".to_owned(),
        Input::ReapReport(report) => {
            let left = if report.empty { "empty" } else { "left" };
            format!("reaped({:?}, {left})", report.step).to_lowercase()
        }
        Input::KeptEnded(ended) => format!("kept-ended({})", ended.incarnation),
        Input::Host(changed) => format!("host({changed:?})").to_lowercase(),
        Input::LimitsChanged(_) => "limits".to_owned(),
    }
}

fn status_in_words(status: &AgentStatus) -> String {
    match status {
        AgentStatus::Ready => "ready".to_owned(),
        AgentStatus::TurnStarted => "turn-started".to_owned(),
        AgentStatus::TurnEnded(_) => "turn-ended".to_owned(),
        AgentStatus::BusyStarted(busy) => format!("busy({})", busy.key),
        AgentStatus::BusyEnded { key } => format!("busy-ended({key})"),
        AgentStatus::Asked(ask) => format!("asked({})", ask.id),
        AgentStatus::Settled { id } => format!("settled({id})"),
        AgentStatus::Scheduled { id, .. } => format!("scheduled({id})"),
        AgentStatus::Unscheduled { id } => format!("unscheduled({id})"),
        AgentStatus::Conversation(_) => "conversation".to_owned(),
        AgentStatus::Young { .. } => "young".to_owned(),
        AgentStatus::CannotResume { .. } => "cannot-resume".to_owned(),
        AgentStatus::NotTaken { .. } => "not-taken".to_owned(),
        AgentStatus::CannotStart { .. } => "cannot-start".to_owned(),
        AgentStatus::Notice { .. } => "notice".to_owned(),
    }
}

fn order_in_words(order: &Order) -> String {
    match order {
        Order::Stop(stop) => format!("{:?}", stop.how).to_lowercase(),
        Order::Wake(wake) if wake.fresh => "wake(fresh)".to_owned(),
        Order::Wake(_) => "wake".to_owned(),
        Order::Interrupt(_) => "interrupt".to_owned(),
        Order::Answer(answer) => format!("answer({})", answer.id),
        Order::TakeHold(hold) => format!("hold({})", hold.id),
        Order::LiftHold(lifted) => format!("lift({})", lifted.id),
        Order::ChangeAccount(_) => "change-account".to_owned(),
        Order::StartTask(start) => format!("task({})", start.task.id),
        Order::EndTask(end) => format!("task-ended({})", end.id),
        Order::Cancel(cancel) => format!("cancel({})", cancel.message),
        Order::RecordOutcome(_) => "record-outcome".to_owned(),
        Order::Keep(keep) => format!("keep({})", keep.rule),
    }
}

/// An effect's name with the fact that matters most in it.
#[must_use]
pub fn effect_in_words(effect: &Effect) -> String {
    match effect {
        Effect::AskStart => "ask-start".to_owned(),
        Effect::StartSettled => "start-settled".to_owned(),
        Effect::Launch {
            incarnation,
            conversation,
            relayed,
            ..
        } => {
            let how = if conversation.is_some() {
                "resume"
            } else {
                "new"
            };
            let whose = if *relayed { ", relayed" } else { "" };
            format!("launch({incarnation}, {how}{whose})")
        }
        Effect::Tell { order, .. } => match order {
            BackendOrder::Deliver(message) => format!("deliver({message})"),
            BackendOrder::Interrupt => "interrupt".to_owned(),
            BackendOrder::Answer { id, .. } => format!("answer({id})"),
            BackendOrder::Withdraw { id } => format!("withdraw({id})"),
            BackendOrder::Close => "close".to_owned(),
            BackendOrder::OpenGate => "open-gate".to_owned(),
            BackendOrder::ShutGate { .. } => "shut-gate".to_owned(),
            BackendOrder::Dismiss => "dismiss".to_owned(),
            BackendOrder::Retire { .. } => "retire".to_owned(),
        },
        Effect::Watch(kept) => format!("watch({})", kept.incarnation),
        Effect::Reap(request) => format!("reap({:?})", request.step).to_lowercase(),
        Effect::Settle { message, state, .. } => format!("settle({message}, {})", state.code()),
        Effect::Save(progress) => format!("save({})", progress.state.code()),
        Effect::Forget => "forget".to_owned(),
        Effect::Publish(event) => format!("!{}", event_in_words(event)),
        Effect::Refuse(refusal) => format!("refuse({})", refusal.code()),
        Effect::EndHost(end) => format!("end-host({end:?})").to_lowercase(),
        Effect::Suspended => "suspended".to_owned(),
        Effect::Sleep => "sleep".to_owned(),
    }
}

fn event_in_words(event: &SessionEvent) -> String {
    // The enum's own names; its facts would make every line a paragraph.
    let debug = format!("{event:?}");
    debug
        .split([' ', '{', '('])
        .next()
        .unwrap_or_default()
        .to_owned()
}
