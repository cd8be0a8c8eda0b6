//! A live agent: what it says of itself, its turns, and the limits of its life.
//!
//! Fed by `session.rs`. Whether a session at rest is idle is decided in `idle.rs`.
//! Invariant: everything an agent can grow is bounded; what does not fit is counted as a notice.

use std::collections::BTreeMap;
use std::time::Duration;

use drowse_messages::{
    AgentStatus, AnswerAsk, Ask, Busy, ChildExited, Delivered, DeliveryResult, MessageId,
    MessageState, MonoTime, Reason, Running, SessionEvent, StatusChanged, Task, TurnEnded,
    TurnOutcome, Who, millis,
};

use super::ending::{Ending, Goal};
use super::idle::{self, Rest};
use super::{Common, Cx, Phase, orders, publish_output};
use crate::effect::{BackendOrder, Input};

/// 256: an agent runs a few dozen tasks at most; more is a fault of whatever reports them.
pub const ROSTER_TASKS_MAX: usize = 256;
/// 64: each is a question a person has to answer.
pub const ASKS_MAX: usize = 64;
/// 64: commands under way at once.
pub const BUSY_MAX: usize = 64;
/// 64: timers of one agent.
pub const SCHEDULES_MAX: usize = 64;
/// How long before the hard limit its warning comes; half of a limit shorter than twice this.
pub const HARD_LIMIT_WARNING: Duration = Duration::from_secs(60);

/// A timer the agent set itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) what: String,
    pub(super) since: MonoTime,
    pub(super) due: MonoTime,
}

/// What is known of a live agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Live {
    running: Running,
    launched: MonoTime,
    /// Until when a roster that was never reported counts as work: the start of an agent that
    /// reports tasks.
    pub(super) roster_unknown_until: Option<MonoTime>,
    pub(super) tasks: Vec<(Task, MonoTime)>,
    pub(super) busy: BTreeMap<String, (Busy, MonoTime)>,
    pub(super) asks: BTreeMap<String, (Ask, MonoTime)>,
    pub(super) schedules: BTreeMap<String, Schedule>,
    pub(super) turn_ended: Option<MonoTime>,
    hard_limit_warned: bool,
}

/// A running turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// The message that caused it; `None`: the agent began by itself.
    message: Option<MessageId>,
    pub(super) since: MonoTime,
}

impl Turn {
    /// Enters the phase.
    pub(super) fn begin(live: Box<Live>, message: Option<MessageId>, cx: &mut Cx<'_>) -> Phase {
        cx.publish(SessionEvent::TurnStarted { message });
        Phase::Working(
            live,
            Self {
                message,
                since: cx.now,
            },
        )
    }

    pub(super) fn message(&self) -> Option<MessageId> {
        self.message
    }
}

impl Live {
    pub(super) fn new(running: Running, cx: &Cx<'_>) -> Self {
        let unknown = cx.common.traits.reports_tasks;
        Self {
            running,
            launched: cx.now,
            roster_unknown_until: unknown.then(|| cx.now.after(cx.common.limits.start_limit)),
            tasks: Vec::new(),
            busy: BTreeMap::new(),
            asks: BTreeMap::new(),
            schedules: BTreeMap::new(),
            turn_ended: None,
            hard_limit_warned: false,
        }
    }

    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    pub(super) fn launched(&self) -> MonoTime {
        self.launched
    }

    /// Tasks that hold; ambient ones do not (behaviour 18).
    pub(super) fn holding_tasks(&self) -> impl Iterator<Item = &(Task, MonoTime)> {
        self.tasks.iter().filter(|(task, _)| !task.ambient)
    }

    /// Takes note of what the agent says besides its turns.
    pub(super) fn note(&mut self, status: &AgentStatus, cx: &mut Cx<'_>) {
        match status {
            AgentStatus::BusyStarted(busy) => {
                if self.busy.len() < BUSY_MAX {
                    self.busy
                        .entry(busy.key.clone())
                        .or_insert((busy.clone(), cx.now));
                }
            }
            AgentStatus::BusyEnded { key } => drop(self.busy.remove(key)),
            AgentStatus::Asked(ask) => self.on_asked(ask, cx),
            AgentStatus::Settled { id } => self.settle_ask(id, Who::Outside, cx),
            AgentStatus::Scheduled { id, what, due_in } => {
                if self.schedules.len() < SCHEDULES_MAX || self.schedules.contains_key(id) {
                    let due = cx.now.after(*due_in);
                    let schedule = Schedule {
                        what: what.clone(),
                        since: cx.now,
                        due,
                    };
                    self.schedules.insert(id.clone(), schedule);
                }
            }
            AgentStatus::Unscheduled { id } => drop(self.schedules.remove(id)),
            AgentStatus::Conversation(conversation) => {
                cx.common.conversation = Some(conversation.clone());
            }
            AgentStatus::Notice { text } => cx.publish(SessionEvent::Notice { text: text.clone() }),
            AgentStatus::Ready
            | AgentStatus::TurnStarted
            | AgentStatus::TurnEnded(_)
            | AgentStatus::CannotResume { .. } => {}
        }
    }

    fn on_asked(&mut self, ask: &Ask, cx: &mut Cx<'_>) {
        if self.asks.len() < ASKS_MAX && !self.asks.contains_key(&ask.id) {
            self.asks.insert(ask.id.clone(), (ask.clone(), cx.now));
            cx.publish(SessionEvent::Asked { ask: ask.clone() });
        }
    }

    fn settle_ask(&mut self, id: &str, by: Who, cx: &mut Cx<'_>) {
        if self.asks.remove(id).is_some() {
            cx.publish(SessionEvent::Settled {
                id: id.to_owned(),
                by,
            });
        }
    }

    /// Whatever is still asked is void: nobody can answer it any more (D16).
    pub(super) fn void_asks(&mut self, cx: &mut Cx<'_>) {
        for id in std::mem::take(&mut self.asks).into_keys() {
            cx.publish(SessionEvent::Settled {
                id,
                by: Who::Outside,
            });
        }
    }

    pub(super) fn answer(&mut self, answer: &AnswerAsk, cx: &mut Cx<'_>) {
        if self.asks.contains_key(&answer.id) {
            let (id, word) = (answer.id.clone(), answer.answer.clone());
            cx.tell(BackendOrder::Answer { id, answer: word });
            self.settle_ask(&answer.id, answer.by.clone(), cx);
        } else {
            orders::refuse_answer(answer, cx);
        }
    }

    /// A level report: it replaces the set, so a missed end heals with the next one
    /// (behaviour 32). A task that was there before keeps its age.
    pub(super) fn replace_roster(&mut self, tasks: &[Task], cx: &mut Cx<'_>) {
        self.roster_unknown_until = None;
        let unchanged = self.tasks.len() == tasks.len()
            && self
                .tasks
                .iter()
                .zip(tasks)
                .all(|((old, _), new)| old == new);
        if unchanged {
            return;
        }
        let former = std::mem::take(&mut self.tasks);
        let since = |id: &str| {
            former
                .iter()
                .find(|(t, _)| t.id == id)
                .map(|(_, since)| *since)
        };
        self.tasks = tasks
            .iter()
            .take(ROSTER_TASKS_MAX)
            .map(|task| (task.clone(), since(&task.id).unwrap_or(cx.now)))
            .collect();
        let tasks = self.tasks.iter().map(|(task, _)| task.clone()).collect();
        cx.publish(SessionEvent::TasksChanged { tasks });
    }

    /// Deadlines that exist whether or not a turn runs.
    pub(super) fn next_deadline(&self, common: &Common) -> Option<MonoTime> {
        let leases = common.leases.values().map(|lease| lease.until);
        let schedules = self.schedules.values().map(|schedule| schedule.due);
        let asks = self
            .asks
            .values()
            .filter_map(|(_, since)| common.limits.approval_hold_max.deadline(*since));
        let hard_limit = common.limits.hard_limit.deadline(self.launched).map(|end| {
            if self.hard_limit_warned {
                end
            } else {
                self.hard_limit_warning(end)
            }
        });
        leases
            .chain(schedules)
            .chain(asks)
            .chain(hard_limit)
            .chain(self.roster_unknown_until)
            .min()
    }

    fn hard_limit_warning(&self, end: MonoTime) -> MonoTime {
        let life = end.since(self.launched);
        let ahead = HARD_LIMIT_WARNING.min(life / 2);
        self.launched.after(life.saturating_sub(ahead))
    }

    /// What time alone does to a live agent; `Some`: its process must end.
    pub(super) fn pass_time(&mut self, cx: &mut Cx<'_>) -> Option<Goal> {
        orders::expire_leases(cx);
        let now = cx.now;
        self.schedules.retain(|_, schedule| schedule.due > now);
        if self.roster_unknown_until.is_some_and(|until| now >= until) {
            self.roster_unknown_until = None;
        }
        if let Some(end) = cx.common.limits.hard_limit.deadline(self.launched) {
            if now >= end {
                return Some(Goal::Release(Reason::HardLimit));
            }
            if !self.hard_limit_warned && now >= self.hard_limit_warning(end) {
                self.hard_limit_warned = true;
                let in_ms = millis(end.since(now));
                cx.publish(SessionEvent::LimitWarned {
                    reason: Reason::HardLimit,
                    in_ms,
                });
            }
        }
        self.expire_asks(cx)
    }

    /// An approval nobody answered for `approval_hold_max` is withdrawn, for every client, and
    /// the process is released: it would wait for ever (behaviour 27).
    fn expire_asks(&mut self, cx: &mut Cx<'_>) -> Option<Goal> {
        let limit = cx.common.limits.approval_hold_max;
        let over = |since: MonoTime| {
            limit
                .deadline(since)
                .is_some_and(|deadline| cx.now >= deadline)
        };
        let expired: Vec<String> = self
            .asks
            .iter()
            .filter(|(_, (_, since))| over(*since))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &expired {
            cx.tell(BackendOrder::Withdraw { id: id.clone() });
            self.settle_ask(id, Who::Rule, cx);
        }
        (!expired.is_empty()).then_some(Goal::Release(Reason::ApprovalExpired))
    }
}

/// A turn runs: it is never released, however long or silent (behaviour 26).
pub(super) fn on_working(mut live: Box<Live>, turn: Turn, input: &Input, cx: &mut Cx<'_>) -> Phase {
    match input {
        Input::StatusChanged(changed) => on_working_status(live, turn, changed, cx),
        Input::TaskRoster(roster) => {
            live.replace_roster(&roster.tasks, cx);
            Phase::Working(live, turn)
        }
        Input::Activity(activity) => {
            publish_output(&activity.kind, turn.message, cx);
            Phase::Working(live, turn)
        }
        Input::IdleTick(_) => match live.pass_time(cx) {
            Some(goal) => Ending::begin(live, goal, Who::Rule, Some(turn), cx),
            None => Phase::Working(live, turn),
        },
        Input::Order(order) => orders::on_working(live, turn, order, cx),
        Input::Delivered(delivered) => on_delivered(live, turn, *delivered, cx),
        Input::ChildExited(exited) => crash(live, Some(turn), Some(exited), cx),
        Input::TreeEmptied(_) => crash(live, Some(turn), None, cx),
        // A message waits for the turn's end. The rest speaks of starts and teardowns.
        Input::MessageQueued(_)
        | Input::StartGranted(_)
        | Input::Launched(_)
        | Input::LaunchFailed(_)
        | Input::ReapReport(_)
        | Input::LimitsChanged(_) => Phase::Working(live, turn),
    }
}

fn on_working_status(
    mut live: Box<Live>,
    turn: Turn,
    changed: &StatusChanged,
    cx: &mut Cx<'_>,
) -> Phase {
    match &changed.status {
        AgentStatus::TurnStarted => {
            cx.common.failed_starts = 0;
            Phase::Working(live, turn)
        }
        AgentStatus::TurnEnded(ended) if !ended.answers && turn.message.is_some() => {
            Phase::Working(live, turn)
        }
        AgentStatus::TurnEnded(ended) => {
            end_turn(&turn, ended, cx);
            live.void_asks(cx);
            Rest::begin(live, cx)
        }
        AgentStatus::CannotResume { detail } => {
            // The agent found out only when it was spoken to: it has not heard the message.
            put_back(&turn, cx);
            let goal = Goal::StartFailed {
                error: detail.clone(),
                retry: false,
            };
            Ending::begin(live, goal, Who::Outside, None, cx)
        }
        AgentStatus::Ready
        | AgentStatus::BusyStarted(_)
        | AgentStatus::BusyEnded { .. }
        | AgentStatus::Asked(_)
        | AgentStatus::Settled { .. }
        | AgentStatus::Scheduled { .. }
        | AgentStatus::Unscheduled { .. }
        | AgentStatus::Conversation(_)
        | AgentStatus::Notice { .. } => {
            live.note(&changed.status, cx);
            Phase::Working(live, turn)
        }
    }
}

/// Writes the outcome of a turn down and tells.
pub(super) fn end_turn(turn: &Turn, ended: &TurnEnded, cx: &mut Cx<'_>) {
    cx.common.failed_starts = 0;
    let (state, error) = match &ended.outcome {
        TurnOutcome::Completed => (MessageState::Answered, None),
        TurnOutcome::Failed { error } => (MessageState::Failed, Some(error.clone())),
        TurnOutcome::Interrupted => (MessageState::Failed, Some("interrupted".to_owned())),
    };
    if let Some(message) = turn.message {
        cx.settle(message, state, error.as_deref().unwrap_or(&ended.text));
    }
    cx.publish(SessionEvent::TurnEnded {
        message: turn.message,
        error,
    });
}

/// The message in flight did not reach the agent: it is the next one again.
fn put_back(turn: &Turn, cx: &mut Cx<'_>) {
    if let Some(message) = turn.message {
        cx.common.inbox.push_front(message);
        cx.settle(message, MessageState::Queued, "");
    }
}

fn on_delivered(live: Box<Live>, turn: Turn, delivered: Delivered, cx: &mut Cx<'_>) -> Phase {
    if turn.message != Some(delivered.message) {
        return Phase::Working(live, turn);
    }
    match delivered.result {
        DeliveryResult::Written => {
            let (message, state) = (delivered.message, MessageState::Delivered);
            cx.publish(SessionEvent::MessageChanged {
                message,
                state,
                text: String::new(),
            });
            Phase::Working(live, turn)
        }
        DeliveryResult::Void => Rest::begin(live, cx),
        DeliveryResult::NotWritten => {
            put_back(&turn, cx);
            let error = "the agent does not read its input".to_owned();
            Ending::begin(
                live,
                Goal::StartFailed { error, retry: true },
                Who::Outside,
                None,
                cx,
            )
        }
        DeliveryResult::PartlyWritten => crash(live, Some(turn), None, cx),
    }
}

/// The process ended, or is of no use any more, without being asked.
fn crash(
    live: Box<Live>,
    turn: Option<Turn>,
    exited: Option<&ChildExited>,
    cx: &mut Cx<'_>,
) -> Phase {
    let status = exited.and_then(|exited| exited.status);
    Ending::begin_dead(live, Goal::Crash { status }, turn, exited, cx)
}

/// At rest: a message is delivered at once, and quiet time counts.
pub(super) fn on_resting(
    mut live: Box<Live>,
    mut rest: Rest,
    input: &Input,
    cx: &mut Cx<'_>,
) -> Phase {
    match input {
        Input::StatusChanged(changed) => on_resting_status(live, rest, changed, cx),
        Input::TaskRoster(roster) => {
            live.replace_roster(&roster.tasks, cx);
            Phase::Resting(live, rest)
        }
        Input::Activity(activity) => {
            publish_output(&activity.kind, None, cx);
            rest.restart(cx.now);
            Phase::Resting(live, rest)
        }
        Input::MessageQueued(_) => deliver_next(live, rest, cx),
        Input::IdleTick(_) => idle::on_tick(live, rest, cx),
        Input::LimitsChanged(_) => idle::judge(live, rest, cx),
        Input::Order(order) => orders::on_resting(live, rest, order, cx),
        Input::ChildExited(exited) => crash(live, None, Some(exited), cx),
        Input::TreeEmptied(_) => crash(live, None, None, cx),
        Input::Delivered(_)
        | Input::StartGranted(_)
        | Input::Launched(_)
        | Input::LaunchFailed(_)
        | Input::ReapReport(_) => Phase::Resting(live, rest),
    }
}

fn on_resting_status(
    mut live: Box<Live>,
    rest: Rest,
    changed: &StatusChanged,
    cx: &mut Cx<'_>,
) -> Phase {
    match &changed.status {
        // Nobody prompted it: a background task's end woke the agent, or a timer of its own.
        AgentStatus::TurnStarted => Turn::begin(live, None, cx),
        AgentStatus::CannotResume { detail } => {
            let goal = Goal::StartFailed {
                error: detail.clone(),
                retry: false,
            };
            Ending::begin(live, goal, Who::Outside, None, cx)
        }
        // A second terminal event is harmless (behaviour 41).
        AgentStatus::TurnEnded(_)
        | AgentStatus::Ready
        | AgentStatus::BusyStarted(_)
        | AgentStatus::BusyEnded { .. }
        | AgentStatus::Asked(_)
        | AgentStatus::Settled { .. }
        | AgentStatus::Scheduled { .. }
        | AgentStatus::Unscheduled { .. }
        | AgentStatus::Conversation(_)
        | AgentStatus::Notice { .. } => {
            live.note(&changed.status, cx);
            deliver_next(live, rest, cx)
        }
    }
}

/// Hands the next message over, unless something must end first.
pub(super) fn deliver_next(live: Box<Live>, rest: Rest, cx: &mut Cx<'_>) -> Phase {
    if !live.busy.is_empty() || !live.asks.is_empty() {
        return Phase::Resting(live, rest);
    }
    match cx.common.inbox.pop_front() {
        Some(message) => {
            cx.tell(BackendOrder::Deliver(message));
            Turn::begin(live, Some(message), cx)
        }
        None => Phase::Resting(live, rest),
    }
}
