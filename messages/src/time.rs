//! Time as plain numbers. No clock is read here: `runtime/src/clock.rs` does that, and only it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment on the daemon's own monotonic clock, in milliseconds since it started.
///
/// CLOCK_MONOTONIC underneath: it stands still while the host sleeps and knows no wall-clock
/// jumps, so a lid closed overnight is not idleness (behaviours 23 and 25). Arithmetic saturates:
/// no limit, however large, overflows (behaviour 6).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MonoTime(u64);

impl MonoTime {
    /// The moment `millis` after the daemon's start.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the daemon's start.
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
