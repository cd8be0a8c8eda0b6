//! Kept processes: what is meant to outlive the backend that started it.
//!
//! Rules ([`KeepRule`]) come from the configuration, orders ([`Keep`]) from people. What they mean
//! is found out when the backend is ended; its keeper stays above what is left, retired, until
//! that ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{Incarnation, SessionId};
use crate::process::{KeepRule, ProcIdentity, ProcReport};
use crate::reason::Who;
use crate::saved::Running;
use crate::time::WallTime;

/// A process that outlives its backend, with all that is below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptProcess {
    /// The topmost process that is kept. Its ports are those of all that is below it, too.
    pub process: ProcReport,
    /// Why it is kept.
    pub rule: KeepRule,
    /// Since when.
    pub since: WallTime,
    /// When it is ended; `None`: with the session, or when somebody stops it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallTime>,
}

/// What one backend left behind on purpose: processes below its keeper, which stays for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The launch it is left of.
    pub incarnation: Incarnation,
    /// Its keeper and cgroup; the agent is gone.
    pub running: Running,
    /// What is kept; never empty.
    pub processes: Vec<KeptProcess>,
}

/// All that a session keeps, or is to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Keeping {
    /// What is left of ended backends, oldest first.
    pub kept: Vec<Kept>,
    /// What somebody asked to keep of the backend that runs.
    pub asked: Vec<KeptProcess>,
}

impl Keeping {
    /// True when there is nothing to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.asked.is_empty()
    }
}

/// Keep a process of the live backend when that ends, or change how long one is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// Which process is meant now.
    pub process: ProcReport,
    /// The keeper it was found below.
    pub keeper: ProcIdentity,
    /// What is kept: this very process, or whatever listens on its port by then.
    pub rule: KeepRule,
    /// How long, from now; `None`: as long as the session.
    pub ttl: Option<Duration>,
    /// Who asks.
    pub by: Who,
}

/// Nothing is left below a retired keeper, or the keeper is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEnded {
    /// The launch it was the keeper of.
    pub incarnation: Incarnation,
}

/// Which process is to be kept, as people say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepTarget {
    /// The one with this number.
    Pid(i32),
    /// The one that listens on this TCP port.
    Listen(u16),
}

/// `POST /v1/kept`: keep one process. Answered by a [`KeptReport`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKeep {
    /// The process with this number; either this or `listen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// The process that listens on this TCP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<i64>,
    /// How long, as a duration for people (`"2h"`); `None`: as long as the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// Look only below this session (id, unique prefix or name).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// `POST /v1/sessions/{id}/stop`: an empty body is the default one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StopSession {
    /// End what the session keeps, too.
    pub kept: bool,
}

/// One kept process as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeptReport {
    /// Whose it is.
    pub session: SessionId,
    /// That session's name.
    pub session_name: String,
    /// The process, and why and how long it is kept.
    #[serde(flatten)]
    pub kept: KeptProcess,
    /// True once its backend has ended; before, it is one of the session's processes.
    pub outlives: bool,
}

impl KeptReport {
    /// The reports of all that a session keeps, oldest first.
    #[must_use]
    pub fn all(session: SessionId, session_name: &str, keeping: &Keeping) -> Vec<Self> {
        let report = |kept: &KeptProcess, outlives| Self {
            session,
            session_name: session_name.to_owned(),
            kept: kept.clone(),
            outlives,
        };
        let left = keeping.kept.iter().flat_map(|kept| &kept.processes);
        left.map(|kept| report(kept, true))
            .chain(keeping.asked.iter().map(|kept| report(kept, false)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wire form of a kept process is flat: programs read `rule` and `until` beside `session`.
    #[test]
    fn a_kept_process_reads_back_as_written() {
        let identity = ProcIdentity::new(4711, 7).unwrap();
        let kept = KeptProcess {
            process: ProcReport {
                listens: vec![3000],
                ..ProcReport::new(identity, 1, "node".to_owned())
            },
            rule: KeepRule::Listen(3000),
            since: WallTime(5),
            until: None,
        };
        let keeping = Keeping {
            kept: Vec::new(),
            asked: vec![kept],
        };
        let reports = KeptReport::all(SessionId::from_random(7), "fix-tests", &keeping);
        let json = serde_json::to_value(&reports[0]).unwrap();
        assert_eq!(json["rule"], "listen:3000");
        assert_eq!(json["process"]["listens"][0], 3000);
        assert_eq!(json["outlives"], false);
        let back: KeptReport = serde_json::from_value(json).unwrap();
        assert_eq!(back, reports[0]);
    }
}
