//! Timers that Claude sets itself: `ScheduleWakeup` and `CronCreate`.
//!
//! Fed by the observer with tool calls and their results; there is no protocol event for them.
//! When a timer fires is taken from the result, as the agent computed it, against the time stamp
//! of the same line: no clock is read here. A call that failed sets nothing. Not followed:
//! timers of an earlier process, and next runs of a cron line other than those in [`period`].

use std::collections::BTreeMap;
use std::time::Duration;

use drowse_messages::{AgentStatus, WallTime, millis};
use serde::{Deserialize, Serialize};

use super::super::Seen;
use super::super::text::{TITLE_CHARS_MAX, one_line};
use super::super::wire::{Part, flag, number, read, text};
use super::lines::{Block, TimerInput, TimerOutcome};

/// 64: more calls without a result, or more timers, are a model gone astray.
const TIMERS_MAX: usize = 64;

/// 7 days: Claude itself forgets a recurring timer after that.
const DUE_IN_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// One minute: wake-ups fire on a full minute, so up to this much later than asked.
const ROUNDING: Duration = Duration::from_secs(60);

/// Calls without a result, and timers that are set.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Timers {
    calls: BTreeMap<String, Call>,
    set: BTreeMap<String, Timer>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Call {
    WakeUp {
        what: String,
        delay: Duration,
    },
    StopWakeUps,
    Cron {
        what: String,
        every: Option<Duration>,
    },
    Delete {
        id: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Timer {
    what: String,
    every: Option<Duration>,
    wake_up: bool,
    /// When it fires, or fired, in milliseconds since 1970; `None`: nobody can tell.
    due_ms: Option<u64>,
}

impl Timers {
    /// True when a tool result may concern a timer; else nobody needs to read it.
    pub(super) fn waiting(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The model calls a tool.
    pub(super) fn called(&mut self, block: &Block<'_>) {
        let Some(name) = text(block.name) else { return };
        let input: TimerInput<'_> = read(block.input).unwrap_or_default();
        let call = match &*name {
            "ScheduleWakeup" if flag(input.stop) => Call::StopWakeUps,
            "ScheduleWakeup" => Call::WakeUp {
                what: what(input.reason),
                delay: Duration::from_secs(
                    number(input.delay_seconds).unwrap_or(60).clamp(60, 3600),
                ),
            },
            "CronCreate" => Call::Cron {
                what: what(input.prompt),
                every: text(input.cron)
                    .filter(|_| input.recurring.is_none() || flag(input.recurring))
                    .and_then(|cron| period(&cron)),
            },
            "CronDelete" => Call::Delete {
                id: text(input.id).unwrap_or_default().into_owned(),
            },
            _ => return,
        };
        if let Some(id) = text(block.id)
            && self.calls.len() < TIMERS_MAX
        {
            self.calls.insert(id.into_owned(), call);
        }
    }

    /// A tool answers: `block` is its result for the model, `outcome` the same for programs.
    pub(super) fn answered(
        &mut self,
        seen: &mut Seen,
        block: &Block<'_>,
        outcome: Part<'_>,
        stamp: Part<'_>,
    ) {
        let Some(id) = text(block.tool_use_id) else {
            return;
        };
        let Some(call) = self.calls.remove(&*id) else {
            return;
        };
        if flag(block.is_error) {
            return;
        }
        let outcome: TimerOutcome<'_> = read(outcome).unwrap_or_default();
        let due = |at| due_in(number(at)?, &text(stamp)?);
        match call {
            // Zero: it was refused.
            Call::WakeUp { .. } if number(outcome.scheduled_for) == Some(0) => {}
            Call::WakeUp { what, delay } => {
                let due_in = due(outcome.scheduled_for).unwrap_or(delay + ROUNDING);
                let timer = Timer {
                    what,
                    every: None,
                    wake_up: true,
                    due_ms: moment(stamp, due_in),
                };
                self.set(seen, format!("wakeup:{id}"), timer, Some(due_in));
            }
            Call::StopWakeUps => self.unset(seen, |_, timer| timer.wake_up),
            Call::Cron { what, every } => {
                let Some(id) = text(outcome.id) else { return };
                let due_in = due(outcome.next_fire_at).or(every);
                let timer = Timer {
                    what,
                    every,
                    wake_up: false,
                    due_ms: due_in.and_then(|due_in| moment(stamp, due_in)),
                };
                self.set(seen, id.into_owned(), timer, due_in);
            }
            Call::Delete { id: gone } => self.unset(seen, |id, _| *id == gone),
        }
    }

    /// The timers that have not fired, for whoever did not hear of them.
    pub(super) fn restate(&self, seen: &mut Seen, now: WallTime) {
        for (id, timer) in &self.set {
            let left = timer.due_ms.and_then(|due| due.checked_sub(now.0));
            let due_in = left.map(Duration::from_millis).or(timer.every);
            if let Some(due_in) = due_in {
                seen.status(scheduled(id, timer, due_in));
            }
        }
    }

    /// A turn ended: whatever recurs fires again within its period from now.
    pub(super) fn turn_ended(&self, seen: &mut Seen) {
        for (id, timer) in &self.set {
            if let Some(every) = timer.every {
                seen.status(scheduled(id, timer, every));
            }
        }
    }

    fn set(&mut self, seen: &mut Seen, id: String, timer: Timer, due_in: Option<Duration>) {
        if self.set.len() >= TIMERS_MAX {
            // The oldest wake-up has most likely fired.
            self.set.pop_first();
        }
        if let Some(due_in) = due_in {
            seen.status(scheduled(&id, &timer, due_in));
            self.set.insert(id, timer);
        }
    }

    fn unset(&mut self, seen: &mut Seen, gone: impl Fn(&String, &Timer) -> bool) {
        for (id, _) in self.set.extract_if(.., |id, timer| gone(id, timer)) {
            seen.status(AgentStatus::Unscheduled { id });
        }
    }
}

fn scheduled(id: &str, timer: &Timer, due_in: Duration) -> AgentStatus {
    AgentStatus::Scheduled {
        id: id.to_owned(),
        what: timer.what.clone(),
        due_in: due_in.min(DUE_IN_MAX),
    }
}

fn what(part: Part<'_>) -> String {
    one_line(&text(part).unwrap_or_default(), TITLE_CHARS_MAX)
}

/// The moment that is `due_in` after a line's time stamp, in milliseconds since 1970.
fn moment(stamp: Part<'_>, due_in: Duration) -> Option<u64> {
    Some(unix_ms(&text(stamp)?)?.saturating_add(millis(due_in)))
}

/// From a line's time stamp to a moment in milliseconds since 1970; none when it has passed.
fn due_in(at_ms: u64, stamp: &str) -> Option<Duration> {
    Some(Duration::from_millis(at_ms.checked_sub(unix_ms(stamp)?)?))
}

/// `2026-11-30T19:47:18.420Z` in milliseconds since 1970.
fn unix_ms(stamp: &str) -> Option<u64> {
    let field = |from: usize, to: usize| stamp.get(from..to)?.parse::<u64>().ok();
    if stamp.get(23..) != Some("Z") {
        return None;
    }
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Counted in years that begin in March, so that the leap day is the last one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let seconds = (days.checked_sub(719_468)? * 24 + field(11, 13)?) * 3600
        + field(14, 16)? * 60
        + field(17, 19)?;
    Some(seconds * 1000 + field(20, 23)?)
}

/// The time between two runs of the cron lines that are common: every N minutes or hours, every
/// hour, every day, every week.
fn period(cron: &str) -> Option<Duration> {
    let mut fields = cron.split_ascii_whitespace();
    let mut next = || fields.next();
    let (minute, hour, day, month, weekday) = (next()?, next()?, next()?, next()?, next()?);
    let is_number = |field: &str| field.parse::<u32>().is_ok();
    let step = |field: &str| field.strip_prefix("*/").and_then(|n| n.parse::<u32>().ok());
    let minutes = match (minute, hour, weekday) {
        ("*", "*", "*") => 1,
        (m, "*", "*") if step(m).is_some() => step(m)?,
        (m, "*", "*") if is_number(m) => 60,
        (m, h, "*") if is_number(m) && step(h).is_some() => step(h)?.saturating_mul(60),
        (m, h, "*") if is_number(m) && is_number(h) => 24 * 60,
        (m, h, w) if is_number(m) && is_number(h) && is_number(w) => 7 * 24 * 60,
        _ => return None,
    };
    let every = Duration::from_secs(u64::from(minutes) * 60);
    (day == "*" && month == "*" && !every.is_zero()).then_some(every)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 40: an armed wake-up holds until it is due, by the agent's own account.
    #[test]
    fn stamps_and_periods_are_read() {
        assert_eq!(unix_ms("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(unix_ms("2026-11-30T19:47:18.293Z"), Some(1_796_068_038_293));
        assert_eq!(unix_ms("2024-02-29T23:59:59.999Z"), Some(1_709_251_199_999));
        assert_eq!(unix_ms("2026-11-30T19:47:18Z"), None);
        assert_eq!(unix_ms("2026-99-30T19:47:18.293Z"), None);
        let minutes = |cron| period(cron).map(|every| every.as_secs() / 60);
        assert_eq!(minutes("*/5 * * * *"), Some(5));
        assert_eq!(minutes("0 */2 * * *"), Some(120));
        assert_eq!(minutes("30 * * * *"), Some(60));
        assert_eq!(minutes("0 9 * * *"), Some(1440));
        assert_eq!(minutes("0 9 * * 1"), Some(10080));
        assert_eq!(minutes("0 9 1 * *"), None);
        assert_eq!(minutes("*/0 * * * *"), None);
        assert_eq!(minutes("0 9 * * 1-5"), None);
    }
}
