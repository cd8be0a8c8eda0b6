//! A live agent: what it says of itself besides its turns, and the limits of its life.
//!
//! Fed by `session.rs`. Turns are in `turn.rs`; whether a session at rest is idle is
//! decided in `idle.rs`.
//! Invariant: everything an agent can grow is bounded; what does not fit is counted as a notice.

use std::collections::BTreeMap;
use std::time::Duration;

use drowse_messages::{
    AgentStatus, Ages, AnswerAsk, Ask, Busy, MonoTime, Reason, Running, SessionEvent, Task, Who,
    millis,
};

use super::ending::Ending;
use super::purpose::{Goal, Purpose};
use super::roster::Roster;
use super::turn::Turn;
use super::{Common, Cx, Phase, orders};
use crate::effect::{BackendOrder, Input};

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
    pub(super) tasks: Roster,
    pub(super) busy: BTreeMap<String, (Busy, MonoTime)>,
    pub(super) asks: BTreeMap<String, (Ask, MonoTime)>,
    pub(super) schedules: BTreeMap<String, Schedule>,
    pub(super) turn_ended: Option<MonoTime>,
    /// It has begun a turn.
    has_worked: bool,
    /// When its first turn was begun, by it or by us.
    first_turn: Option<MonoTime>,
    hard_limit_warned: bool,
}

impl Live {
    pub(super) fn new(running: Running, cx: &Cx<'_>) -> Self {
        let unknown = cx.common.traits.reports_tasks;
        Self {
            running,
            launched: cx.now,
            roster_unknown_until: unknown.then(|| cx.now.after(cx.common.limits.start_limit)),
            tasks: Roster::default(),
            busy: BTreeMap::new(),
            asks: BTreeMap::new(),
            schedules: BTreeMap::new(),
            turn_ended: None,
            has_worked: false,
            first_turn: None,
            hard_limit_warned: false,
        }
    }

    /// One that an earlier daemon launched: it was ready once, so it counts as a working agent.
    pub(super) fn adopted(running: Running, cx: &Cx<'_>) -> Self {
        Self {
            has_worked: true,
            // When it was is not known. Helpers come with the start, so that is long over.
            first_turn: Some(cx.now.after(cx.common.limits.start_limit)),
            ..Self::new(running, cx)
        }
    }

    /// Goes on counting from where an earlier daemon began. A moment that lies ahead is of another
    /// clock, and begins now.
    pub(super) fn count_on(&mut self, ages: &Ages, now: MonoTime) {
        self.launched = ages.launched.min(now);
        self.hard_limit_warned = ages.hard_limit_warned;
        let since = |known: &[(String, MonoTime)], id: &str| {
            let mut known = known.iter();
            known.find_map(|(of, since)| (of == id).then_some((*since).min(now)))
        };
        for (id, (_, asked)) in &mut self.asks {
            *asked = since(&ages.asks, id).unwrap_or(*asked);
        }
        self.tasks.count_on(&ages.tasks, &ages.told, now);
        // Of a daemon that did not know when, it stays as unknown as it is.
        self.first_turn = ages.first_turn.map(|at| at.min(now)).or(self.first_turn);
    }

    /// Since when things are so, as far as they are its own.
    pub(super) fn ages(&self) -> Ages {
        Ages {
            launched: self.launched,
            hard_limit_warned: self.hard_limit_warned,
            asks: self.asks_since().map(|(id, at)| (id.clone(), at)).collect(),
            tasks: self
                .tasks_since()
                .map(|(id, at)| (id.clone(), at))
                .collect(),
            first_turn: self.first_turn,
            told: self.tasks.told(),
            ..Ages::default()
        }
    }

    /// True when these are they.
    pub(super) fn is_of(&self, ages: &Ages) -> bool {
        (self.launched, self.hard_limit_warned, self.first_turn)
            == (ages.launched, ages.hard_limit_warned, ages.first_turn)
            && self.tasks.is_told(&ages.told)
            && self
                .asks_since()
                .eq(ages.asks.iter().map(|(id, at)| (id, *at)))
            && self
                .tasks_since()
                .eq(ages.tasks.iter().map(|(id, at)| (id, *at)))
    }

    fn asks_since(&self) -> impl Iterator<Item = (&String, MonoTime)> {
        self.asks.iter().map(|(id, (_, since))| (id, *since))
    }

    fn tasks_since(&self) -> impl Iterator<Item = (&String, MonoTime)> {
        self.tasks.since()
    }

    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    pub(super) fn launched(&self) -> MonoTime {
        self.launched
    }

    /// A turn begins.
    pub(super) fn note_turn(&mut self, now: MonoTime) {
        self.first_turn.get_or_insert(now);
    }

    pub(super) fn first_turn(&self) -> Option<MonoTime> {
        self.first_turn
    }

    /// It has begun a turn.
    pub(super) fn has_worked(&self) -> bool {
        self.has_worked
    }

    /// It began a turn: it is a working agent, and its starts may fail anew.
    pub(super) fn note_work(&mut self, cx: &mut Cx<'_>) {
        self.has_worked = true;
        cx.common.failed_starts = 0;
    }

    /// True when a message may be handed over, as far as the agent is concerned.
    pub(super) fn takes_messages(&self) -> bool {
        self.busy.is_empty() && self.asks.is_empty()
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
            AgentStatus::Conversation(conversation) => cx.common.follow(conversation),
            AgentStatus::Young { settles_in } => cx.common.is_young(*settles_in),
            AgentStatus::Notice { text } => cx.publish(SessionEvent::Notice { text: text.clone() }),
            AgentStatus::Ready
            | AgentStatus::TurnStarted
            | AgentStatus::TurnEnded(_)
            | AgentStatus::CannotResume { .. }
            | AgentStatus::NotTaken { .. }
            | AgentStatus::CannotStart { .. } => {}
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
        if self.tasks.replace(tasks, cx.now) {
            self.tasks.publish(cx);
        }
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
            .chain(common.host.deadline())
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
        if cx.common.host.is_given_up(now) {
            return Some(Goal::Release(Reason::Detached));
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
    /// the process is released: it would wait for ever (behaviour 27). One whose conversation
    /// could not be taken up again goes on without the answer.
    fn expire_asks(&mut self, cx: &mut Cx<'_>) -> Option<Goal> {
        let (limit, now) = (cx.common.limits.approval_hold_max, cx.now);
        let is_over = |since: MonoTime| limit.deadline(since).is_some_and(|end| now >= end);
        let expired: Vec<String> = self
            .asks
            .iter()
            .filter(|(_, (_, since))| is_over(*since))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &expired {
            cx.tell(BackendOrder::Withdraw { id: id.clone() });
            self.settle_ask(id, Who::Rule, cx);
        }
        let ends = !expired.is_empty() && cx.common.cannot_resume().is_none();
        ends.then_some(Goal::Release(Reason::ApprovalExpired))
    }
}

/// The agent ended without being asked.
pub(super) fn crash(live: Box<Live>, turn: Option<Turn>, end: &Input, cx: &mut Cx<'_>) -> Phase {
    let status = if let Input::ChildExited(exited) = end {
        exited.status
    } else {
        None
    };
    let early = !live.has_worked;
    let goal = if cx.common.host.is_done() {
        Goal::Stop
    } else {
        Goal::Crash { status, early }
    };
    let purpose = Purpose::new(goal, Who::Outside);
    Ending::begin_after(end, live, purpose, turn, cx)
}
