//! Time as plain numbers. No clock is read here: `runtime/src/clock.rs` does that, and only it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment on the machine's monotonic clock, in milliseconds since it was started.
///
/// CLOCK_MONOTONIC underneath: it stands still while the host sleeps and knows no wall-clock
/// jumps, so a lid closed overnight is not idleness (behaviours 23 and 25). It goes on from one
/// daemon to the next, and means nothing after a reboot, as a process does. Arithmetic saturates:
/// no limit, however large, overflows (behaviour 6).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MonoTime(u64);

impl MonoTime {
    /// The moment `millis` after the machine's start.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the machine's start.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment `by` later.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A wall-clock moment in milliseconds since 1970, UTC: for people and records, never for
/// decisions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallTime(pub u64);

impl WallTime {
    /// The moment `by` later; saturates.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for WallTime {
    /// `2026-11-30T14:02:11Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = date(days);
        let (hour, minute) = (second / 3600, second / 60 % 60);
        let second = second % 60;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

/// Year, month and day of the day with this number since 1970.
///
/// Counted in years that begin in March, so that a leap day is the last day of its year: 400 of
/// them have 146,097 days, and the months from March on follow a line of 153 days in five.
const fn date(days: u64) -> (u64, u64, u64) {
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 {
        (year, month + 3, day)
    } else {
        (year + 1, month - 9, day)
    }
}

/// A duration in whole milliseconds, saturating at `u64::MAX`.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A configured duration that can be switched off (`0` or `"off"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The limit applies after this long. Never zero.
    After(Duration),
    /// No limit, and no timer for it.
    Off,
}

impl Limit {
    /// Zero means off, as people write it.
    #[must_use]
    pub const fn from_duration(duration: Duration) -> Self {
        if duration.is_zero() {
            Self::Off
        } else {
            Self::After(duration)
        }
    }

    /// When the limit is reached by something that began at `start`; `None` when it is off or
    /// lies beyond the end of the clock.
    #[must_use]
    pub fn deadline(self, start: MonoTime) -> Option<MonoTime> {
        match self {
            Self::After(duration) => {
                let end = start.after(duration);
                (end.0 < u64::MAX).then_some(end)
            }
            Self::Off => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_as_its_date() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_796_047_331, "2026-11-30T14:02:11Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(WallTime(seconds * 1000).to_string(), text);
        }
        assert!(WallTime(u64::MAX).to_string().ends_with('Z'), "no overflow");
    }

    /// Behaviour 6: a 100,000-minute limit, and the largest there is, neither fire early nor
    /// overflow.
    #[test]
    fn huge_limits_saturate() {
        let start = MonoTime::from_millis(5);
        let long = Limit::After(Duration::from_secs(100_000 * 60));
        assert_eq!(
            long.deadline(start),
            Some(MonoTime::from_millis(6_000_000_005))
        );
        assert_eq!(Limit::After(Duration::MAX).deadline(start), None);
        assert_eq!(Limit::from_duration(Duration::ZERO), Limit::Off);
        assert_eq!(
            MonoTime::from_millis(3).since(MonoTime::from_millis(9)),
            Duration::ZERO
        );
    }
}
