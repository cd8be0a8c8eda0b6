//! How often the driver of a session may be replaced, so that two clients that both come back by
//! themselves do not throw each other out for ever.
//!
//! Fed by `connections.rs`. The first take-over is granted at once: a person may always move from
//! one window to another. Each one after it has to wait longer, until there was peace for a while.

use std::time::Duration;

use drowse_messages::MonoTime;

/// 5 s between the first two take-overs: longer than a client needs to come back by itself.
pub const TAKE_OVER_PAUSE: Duration = Duration::from_secs(5);

/// 60 s between two take-overs at most: a person who means it can wait a minute.
pub const TAKE_OVER_PAUSE_MAX: Duration = Duration::from_secs(60);

/// 5 min without one, and the fight is forgotten.
pub const FIGHT_OVER_AFTER: Duration = Duration::from_secs(300);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TakeOvers {
    last: Option<MonoTime>,
    rounds: u32,
}

impl TakeOvers {
    /// Counts one, or says how long it has to wait.
    pub(super) fn grant(&mut self, now: MonoTime) -> Result<(), Duration> {
        if let Some(last) = self.last {
            let since = now.since(last);
            if since >= FIGHT_OVER_AFTER {
                self.rounds = 0;
            }
            let pause = self.pause();
            if since < pause {
                return Err(pause.saturating_sub(since));
            }
        }
        self.last = Some(now);
        self.rounds = self.rounds.saturating_add(1);
        Ok(())
    }

    #[cfg(test)]
    pub(super) const fn rounds(self) -> u32 {
        self.rounds
    }

    fn pause(self) -> Duration {
        let Some(doublings) = self.rounds.checked_sub(1) else {
            return Duration::ZERO;
        };
        // 2^16 pauses are past the longest one.
        let factor = 1_u32 << doublings.min(16);
        TAKE_OVER_PAUSE
            .saturating_mul(factor)
            .min(TAKE_OVER_PAUSE_MAX)
    }
}
