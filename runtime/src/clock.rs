//! The clock of the daemon: the only place that reads the time.
//!
//! `Instant` is CLOCK_MONOTONIC on Linux, which stands still while the machine sleeps and knows
//! nothing of the wall clock (behaviours 23 and 25). The wall clock is for records only.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use drowse_actors::ports::Clock;
use drowse_messages::{MonoTime, WallTime, millis};

/// Counts from its own making.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Starts at zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> MonoTime {
        MonoTime::from_millis(millis(self.start.elapsed()))
    }

    fn wall(&self) -> WallTime {
        // A clock set before 1970 reads as 1970.
        WallTime(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map(millis)
                .unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back_and_the_wall_clock_is_of_this_century() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!(clock.now() >= first);
        assert!(clock.wall() > WallTime(946_684_800_000));
    }
}
