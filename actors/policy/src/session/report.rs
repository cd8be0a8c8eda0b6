//! What readers see of a session: its state in a word, what holds it, and the evidence.
//!
//! Invariant: reading changes nothing, and everything that holds is in the list.

use drowse_messages::{
    AskKind, AwakeReport, BusyKind, Evidence, Hold, HoldKind, HoldReport, MonoTime, ProcIdentity,
    Profile, Reason, SessionReport, SessionState, WallTime, millis,
};

use super::live::Live;
use super::turn::Turn;
use super::{Common, Phase, Session, change};

/// Wall-clock facts of a session, which policy keeps out of its decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When the state last changed.
    pub state_since: WallTime,
    /// When the session was last used.
    pub last_active: WallTime,
}

impl Session {
    /// The state in one word.
    #[must_use]
    pub fn state(&self) -> SessionState {
        state(&self.phase, &self.common)
    }

    /// Everything that holds the session now.
    #[must_use]
    pub fn holds(&self, now: MonoTime) -> Vec<Hold> {
        match &self.phase {
            Phase::Working(live, turn) => holds_while_working(live, turn, &self.common),
            Phase::Resting(live, _) => holds_at_rest(live, &self.common, now),
            Phase::Starting(_)
            | Phase::Dormant
            | Phase::Ending(_)
            | Phase::Clearing(_)
            | Phase::Released
            | Phase::Failing
            | Phase::Ended => Vec::new(),
        }
    }

    /// The report of the session.
    #[must_use]
    pub fn report(&self, profile: &Profile, times: Times, now: MonoTime) -> SessionReport {
        let progress = self.progress(self.state());
        let mut report = SessionReport::new(profile, progress, self.common.inbox.len());
        report.state_since = times.state_since;
        report.last_active = times.last_active;
        report.host_pid = self.common.host.pid();
        report.awake = self.awake(now);
        report
    }

    /// The retired keepers above what it keeps.
    #[must_use]
    pub fn retired(&self) -> Vec<ProcIdentity> {
        self.common.keep.keepers()
    }

    fn awake(&self, now: MonoTime) -> Option<AwakeReport> {
        if self.is_asleep() {
            return None;
        }
        let mut awake = AwakeReport::default();
        let common = &self.common;
        awake.holds = self
            .holds(now)
            .iter()
            .map(|hold| HoldReport::new(hold, now))
            .collect();
        awake.next_deadline_ms = self.next_deadline().map(|at| millis(at.since(now)));
        if let Some(running) = self.running() {
            awake.agent_pid = Some(running.agent.process.pid());
            awake.keeper = Some(running.keeper.process);
        }
        if let Some(live) = self.live() {
            awake.tasks = live.tasks.reports(common, now);
            awake.asks = live.asks.values().map(|(ask, _)| ask.clone()).collect();
        }
        awake.account_change = common
            .change
            .as_ref()
            .map(|waits| change::report(waits, now));
        if let Phase::Resting(live, rest) = &self.phase {
            awake.idle_ms = Some(millis(now.since(rest.quiet_since)));
            awake.releases_in_ms = rest
                .releases_at(live, common)
                .map(|at| millis(at.since(now)));
            awake.cannot_resume = common.cannot_resume().map(str::to_owned);
        }
        awake.evidence = self.evidence(now);
        Some(awake)
    }

    fn live(&self) -> Option<&Live> {
        match &self.phase {
            Phase::Starting(starting) => starting.live(),
            Phase::Working(live, _) | Phase::Resting(live, _) => Some(live),
            Phase::Dormant
            | Phase::Ending(_)
            | Phase::Clearing(_)
            | Phase::Released
            | Phase::Failing
            | Phase::Ended => None,
        }
    }

    /// Newest first.
    fn evidence(&self, now: MonoTime) -> Vec<Evidence> {
        let mut seen = vec![(self.common.active, "last used".to_owned())];
        if let Some(live) = self.live() {
            seen.push((
                live.launched(),
                format!("process {} launched", self.common.incarnation),
            ));
            seen.extend(live.turn_ended.map(|at| (at, "last turn ended".to_owned())));
        }
        match &self.phase {
            Phase::Working(_, turn) => seen.push((turn.since, "turn began".to_owned())),
            Phase::Resting(_, rest) => seen.push((rest.quiet_since, "quiet since".to_owned())),
            Phase::Ending(ending) => seen.push((now, format!("ending: {}", ending.in_words()))),
            Phase::Clearing(_) => seen.push((now, "ending: what was kept".to_owned())),
            Phase::Starting(starting) => {
                seen.extend(starting.waits_for().map(|why| (now, why.to_owned())));
            }
            Phase::Dormant | Phase::Released | Phase::Failing | Phase::Ended => {}
        }
        seen.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        seen.into_iter()
            .map(|(at, what)| Evidence {
                what,
                age_ms: millis(now.since(at)),
            })
            .collect()
    }
}

pub(super) fn state(phase: &Phase, common: &Common) -> SessionState {
    match phase {
        Phase::Dormant => SessionState::New,
        Phase::Starting(starting) if starting.is_cancelled() => SessionState::Stopping,
        Phase::Starting(_) => SessionState::Starting,
        Phase::Working(live, _) if !live.asks.is_empty() => SessionState::NeedsYou,
        Phase::Working(..) => SessionState::Working,
        Phase::Resting(live, _) if !live.asks.is_empty() => SessionState::NeedsYou,
        Phase::Resting(live, _) if is_held_by_background(live) => SessionState::Waiting,
        Phase::Resting(..) => SessionState::Resting,
        Phase::Ending(ending) if ending.purpose().is_release() => SessionState::Releasing,
        Phase::Ending(_) | Phase::Clearing(_) => SessionState::Stopping,
        Phase::Released => released_state(common),
        Phase::Failing => SessionState::Failing,
        Phase::Ended => SessionState::Stopped,
    }
}

/// Why it has no process decides the word for it.
fn released_state(common: &Common) -> SessionState {
    let Some(end) = &common.end else {
        return SessionState::Released;
    };
    match end.reason {
        Reason::Stopped | Reason::Removed => SessionState::Stopped,
        Reason::Idle
        | Reason::Manual
        | Reason::AccountChange
        | Reason::TaskHoldExpired
        | Reason::ApprovalExpired
        | Reason::HardLimit
        | Reason::StartFailed
        | Reason::Crashed { .. }
        | Reason::Detached
        | Reason::DaemonShutdown => {
            if end.mid_turn {
                SessionState::Interrupted
            } else {
                SessionState::Released
            }
        }
    }
}

fn is_held_by_background(live: &Live) -> bool {
    live.tasks.is_holding() || !live.busy.is_empty() || !live.schedules.is_empty()
}

/// Cheap: this runs for every line an agent says.
pub(super) fn is_held(phase: &Phase, common: &Common) -> bool {
    match phase {
        Phase::Working(..) => true,
        Phase::Resting(live, _) => is_held_at_rest(live, common),
        Phase::Starting(_)
        | Phase::Dormant
        | Phase::Ending(_)
        | Phase::Clearing(_)
        | Phase::Released
        | Phase::Failing
        | Phase::Ended => false,
    }
}

pub(super) fn is_held_at_rest(live: &Live, common: &Common) -> bool {
    live.tasks.is_holding() || is_held_besides_tasks(live, common)
}

pub(super) fn is_held_besides_tasks(live: &Live, common: &Common) -> bool {
    !common.inbox.is_empty() || is_held_by_others(live, common)
}

pub(super) fn is_held_by_more_than_messages(live: &Live, common: &Common) -> bool {
    live.tasks.is_holding() || is_held_by_others(live, common)
}

fn is_held_by_others(live: &Live, common: &Common) -> bool {
    !live.busy.is_empty()
        || !live.asks.is_empty()
        || !live.schedules.is_empty()
        || !common.leases.is_empty()
        || common.host.waits().is_some()
        || live.roster_unknown_until.is_some()
}

/// What holds a session with a turn.
pub(super) fn holds_while_working(live: &Live, turn: &Turn, common: &Common) -> Vec<Hold> {
    let why = match turn.message() {
        Some(message) => format!("answering message {message}"),
        None => "a turn of its own".to_owned(),
    };
    let mut holds = vec![agent_hold(HoldKind::Turn, why, turn.since, None, common)];
    holds.extend(holds_of_live(live, common));
    holds
}

/// What holds a session at rest.
pub(super) fn holds_at_rest(live: &Live, common: &Common, now: MonoTime) -> Vec<Hold> {
    let mut holds = holds_of_live(live, common);
    if !common.inbox.is_empty() {
        let why = format!("{} waiting", common.inbox.len());
        holds.push(agent_hold(HoldKind::Queued, why, now, None, common));
    }
    if let Some(since) = common.host.waits() {
        let why = "what its host said waits".to_owned();
        holds.push(agent_hold(HoldKind::Queued, why, since, None, common));
    }
    if let Some(until) = live.roster_unknown_until {
        let why = "background tasks not reported yet".to_owned();
        holds.push(agent_hold(
            HoldKind::Unknown,
            why,
            live.launched(),
            Some(until),
            common,
        ));
    }
    holds
}

fn holds_of_live(live: &Live, common: &Common) -> Vec<Hold> {
    let busy = live.busy.values().map(|(busy, since)| {
        let kind = match busy.kind {
            BusyKind::Compaction => HoldKind::Compaction,
            BusyKind::Command => HoldKind::Command,
        };
        agent_hold(kind, busy.what.clone(), *since, None, common)
    });
    let asks = live.asks.values().map(|(ask, since)| {
        let kind = match ask.kind {
            AskKind::Approval => HoldKind::Approval,
            AskKind::Question => HoldKind::Question,
        };
        let until = common.limits.approval_hold_max.deadline(*since);
        agent_hold(kind, ask.title.clone(), *since, until, common)
    });
    let tasks = live.tasks.holding().map(|entry| Hold {
        owner: entry.owner(common),
        ..agent_hold(
            HoldKind::Task,
            format!("{}: {}", entry.task.kind, entry.task.description),
            entry.since,
            None,
            common,
        )
    });
    let schedules = live.schedules.values().map(|schedule| {
        let why = schedule.what.clone();
        agent_hold(
            HoldKind::Schedule,
            why,
            schedule.since,
            Some(schedule.due),
            common,
        )
    });
    let leases = common.leases.iter().map(|(id, lease)| Hold {
        id: Some(*id),
        kind: HoldKind::Lease,
        why: lease.why.clone(),
        owner: lease.owner.clone(),
        since: lease.since,
        until: Some(lease.until),
    });
    busy.chain(asks)
        .chain(tasks)
        .chain(schedules)
        .chain(leases)
        .collect()
}

fn agent_hold(
    kind: HoldKind,
    why: String,
    since: MonoTime,
    until: Option<MonoTime>,
    common: &Common,
) -> Hold {
    Hold {
        id: None,
        kind,
        why,
        owner: common.agent.to_string(),
        since,
        until,
    }
}

/// `task (bash: npm test)`: how a hold reads in a refusal, a log line or an event.
pub(super) fn hold_in_words(hold: &Hold) -> String {
    format!("{} ({})", hold.kind.code(), hold.why)
}
