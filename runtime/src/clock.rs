//! The clock of the daemon: the only place that reads the time.
//!
//! CLOCK_MONOTONIC stands still while the machine sleeps and knows nothing of the wall clock
//! (behaviours 23 and 25). It counts from the machine's start, so that a moment that one daemon
//! wrote down means the same to the next. The wall clock is for records only.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use drowse_actors::ports::Clock;
use drowse_messages::{MonoTime, WallTime, millis};
use rustix::time::{ClockId, clock_gettime};

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> MonoTime {
        let now = clock_gettime(ClockId::Monotonic);
        // Neither is negative: it counts from the machine's start.
        MonoTime::from_millis(millis(Duration::try_from(now).unwrap_or_default()))
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
        let clock = SystemClock;
        let first = clock.now();
        assert!(clock.now() >= first);
        assert!(clock.wall() > WallTime(946_684_800_000));
    }

    /// Behaviour 102: what a daemon wrote down is counted on from by the next one.
    #[test]
    fn it_counts_from_the_start_of_the_machine() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds = uptime.split('.').next().unwrap().parse::<u64>().unwrap();
        // It may have been asleep, which only the uptime counts.
        let now = SystemClock.now().as_millis() / 1000;
        assert!(now > 0 && now <= seconds + 1, "{now} of {seconds} s");
    }
}
