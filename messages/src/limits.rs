//! The limits a session lives under, and overrides of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::process::KeepRule;
use crate::time::Limit;

/// Every limit of one session, after defaults, agent, project and session were merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Quiet time after which a session at rest is released. 30 min unless configured.
    pub idle_after: Limit,
    /// Longest life of one process, whatever it does; a warning comes before. Off.
    pub hard_limit: Limit,
    /// Longest time that background tasks alone keep a quiet session. 4 h.
    pub task_hold_max: Limit,
    /// Longest time that an unanswered approval or question keeps a session. 24 h.
    pub approval_hold_max: Limit,
    /// Time from launch to ready. 60 s.
    pub start_limit: Duration,
    /// Time between closing the agent's stdin and SIGTERM. 2 s.
    pub eof_grace: Duration,
    /// Time between SIGTERM and SIGKILL. 5 s.
    pub term_grace: Duration,
    /// How long a relayed session waits for a host that is gone without a word. 60 s.
    pub detach_hold: Limit,
    /// A command of the agent's that still runs holds, as the process tree shows it, where the
    /// agent reports none. On.
    pub observed: bool,
    /// What outlives the session's processes. Nothing.
    pub keep: Vec<KeepRule>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle_after: Limit::After(Duration::from_secs(30 * 60)),
            hard_limit: Limit::Off,
            task_hold_max: Limit::After(Duration::from_secs(4 * 3600)),
            approval_hold_max: Limit::After(Duration::from_secs(24 * 3600)),
            start_limit: Duration::from_secs(60),
            eof_grace: Duration::from_secs(2),
            term_grace: Duration::from_secs(5),
            detach_hold: Limit::After(Duration::from_secs(60)),
            observed: true,
            keep: Vec::new(),
        }
    }
}

/// Limits given for an agent, a project or one session; what is `None` is inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitOverrides {
    /// See [`Limits::idle_after`].
    pub idle_after: Option<Limit>,
    /// See [`Limits::hard_limit`].
    pub hard_limit: Option<Limit>,
    /// See [`Limits::task_hold_max`].
    pub task_hold_max: Option<Limit>,
    /// See [`Limits::approval_hold_max`].
    pub approval_hold_max: Option<Limit>,
    /// See [`Limits::start_limit`].
    pub start_limit: Option<Duration>,
    /// See [`Limits::eof_grace`].
    pub eof_grace: Option<Duration>,
    /// See [`Limits::term_grace`].
    pub term_grace: Option<Duration>,
    /// See [`Limits::detach_hold`].
    pub detach_hold: Option<Limit>,
    /// See [`Limits::observed`].
    pub observed: Option<bool>,
    /// More of [`Limits::keep`]: rules add up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<KeepRule>,
}

impl Limits {
    /// These limits with the given ones put over them, and what is to be kept added.
    #[must_use]
    pub fn with(self, over: &LimitOverrides) -> Self {
        let mut keep = self.keep;
        keep.extend(over.keep.iter().cloned());
        keep.sort();
        keep.dedup();
        Self {
            idle_after: over.idle_after.unwrap_or(self.idle_after),
            hard_limit: over.hard_limit.unwrap_or(self.hard_limit),
            task_hold_max: over.task_hold_max.unwrap_or(self.task_hold_max),
            approval_hold_max: over.approval_hold_max.unwrap_or(self.approval_hold_max),
            start_limit: over.start_limit.unwrap_or(self.start_limit),
            eof_grace: over.eof_grace.unwrap_or(self.eof_grace),
            term_grace: over.term_grace.unwrap_or(self.term_grace),
            detach_hold: over.detach_hold.unwrap_or(self.detach_hold),
            observed: over.observed.unwrap_or(self.observed),
            keep,
        }
    }
}
