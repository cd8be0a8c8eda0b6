//! What readers see: snapshots of one session and of the daemon. The wire form of `/v1/status`
//! and `/v1/sessions`; new fields get defaults, so that old readers and writers keep working.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hold::HoldKind;
use crate::id::{HoldId, Incarnation, Name, SessionId};
use crate::kept::KeptReport;
use crate::process::ProcIdentity;
use crate::reason::{EndReport, Who};
use crate::saved::{Hosted, Outcome, Profile, Progress, SavedSession};
use crate::session::{Ask, Conversation, Task};
use crate::time::{WallTime, millis};

/// A session's state in one word, as people and programs see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Never started.
    New,
    /// Its process is being started, or the next try waits.
    Starting,
    /// A turn is running.
    Working,
    /// An approval or a question is pending.
    NeedsYou,
    /// At rest, and held by background work.
    Waiting,
    /// At rest.
    Resting,
    /// Its process is being ended; it can be woken.
    Releasing,
    /// No process; the next message wakes it.
    Released,
    /// Its process is being ended because somebody asked, or it crashed, or the daemon ends.
    Stopping,
    /// Stopped by request; the next message wakes it.
    Stopped,
    /// Its agent ended mid-turn; the next message resumes it.
    Interrupted,
    /// It could not be started; the message is kept, `wake` tries again.
    Failing,
}

impl SessionState {
    /// All of them, in order.
    pub const ALL: [Self; 12] = [
        Self::New,
        Self::Starting,
        Self::Working,
        Self::NeedsYou,
        Self::Waiting,
        Self::Resting,
        Self::Releasing,
        Self::Released,
        Self::Stopping,
        Self::Stopped,
        Self::Interrupted,
        Self::Failing,
    ];

    /// The wire name.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Starting => "starting",
            Self::Working => "working",
            Self::NeedsYou => "needs_you",
            Self::Waiting => "waiting",
            Self::Resting => "resting",
            Self::Releasing => "releasing",
            Self::Released => "released",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Interrupted => "interrupted",
            Self::Failing => "failing",
        }
    }

    /// The state with this wire name.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// True when a process of the session may be alive in it.
    #[must_use]
    pub const fn is_awake(self) -> bool {
        match self {
            Self::Starting
            | Self::Working
            | Self::NeedsYou
            | Self::Waiting
            | Self::Resting
            | Self::Releasing
            | Self::Stopping => true,
            Self::New | Self::Released | Self::Stopped | Self::Interrupted | Self::Failing => false,
        }
    }
}

/// One hold in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HoldReport {
    /// For holds that can be lifted by id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<HoldId>,
    /// What kind.
    pub kind: HoldKind,
    /// For people.
    pub why: String,
    /// Who is behind it.
    pub owner: String,
    /// How long it has held, in milliseconds.
    pub age_ms: u64,
    /// When it ends by itself, in milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_ms: Option<u64>,
}

impl HoldReport {
    /// A report of a hold; `ends_in` is `None` when it ends with its cause only.
    #[must_use]
    pub fn new(hold: &crate::hold::Hold, now: crate::time::MonoTime) -> Self {
        Self {
            id: hold.id,
            kind: hold.kind,
            why: hold.why.clone(),
            owner: hold.owner.clone(),
            age_ms: millis(now.since(hold.since)),
            ends_in_ms: hold.until.map(|until| millis(until.since(now))),
        }
    }
}

/// One background task in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskReport {
    /// It.
    #[serde(flatten)]
    pub task: Task,
    /// Who told of it; empty when an older daemon does not say.
    #[serde(default)]
    pub owner: String,
    /// Known for this long, in milliseconds.
    #[serde(default)]
    pub age_ms: u64,
}

impl TaskReport {
    /// A report of a task.
    #[must_use]
    pub const fn new(task: Task, owner: String, age_ms: u64) -> Self {
        Self {
            task,
            owner,
            age_ms,
        }
    }
}

/// An account change that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// Who asked for it.
    pub by: Who,
    /// How long ago, in milliseconds.
    pub age_ms: u64,
}

/// Memory and number of processes of one backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processes below the keeper.
    pub processes: u32,
    /// Their memory (PSS), in bytes.
    pub pss_bytes: u64,
}

/// The part of a report that only an awake session has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AwakeReport {
    /// Quiet for this long, in milliseconds; only at rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// The idle rule acts in this many milliseconds; `None` while something holds it, or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases_in_ms: Option<u64>,
    /// What keeps it. Empty: nothing.
    #[serde(default)]
    pub holds: Vec<HoldReport>,
    /// Why it could not be released although nothing holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_resume: Option<String>,
    /// The background tasks that are known, ambient ones too.
    #[serde(default)]
    pub tasks: Vec<TaskReport>,
    /// It is released and started again with another environment once it is at rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_change: Option<ChangeReport>,
    /// What the agent asks a person.
    #[serde(default)]
    pub asks: Vec<Ask>,
    /// The agent's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_pid: Option<i32>,
    /// The keeper above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<ProcIdentity>,
    /// Evidence, newest first: what was seen, and how long ago.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    /// Measured when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// When the session next has something to decide, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_deadline_ms: Option<u64>,
}

/// One thing seen of a session, for `explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// For people: "turn ended", "last output", "process launched".
    pub what: String,
    /// How long ago, in milliseconds.
    pub age_ms: u64,
}

/// One session as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionReport {
    /// Its id.
    pub id: SessionId,
    /// Its name; the id when none was given.
    pub name: String,
    /// Its agent.
    pub agent: Name,
    /// The adapter's protocol.
    pub protocol: Name,
    /// Where the agent runs.
    pub cwd: PathBuf,
    /// Its state.
    pub state: SessionState,
    /// When the state last changed.
    pub state_since: WallTime,
    /// When it was opened.
    pub created: WallTime,
    /// When it was last used.
    pub last_active: WallTime,
    /// The newest launch; 0: never launched.
    pub incarnation: Incarnation,
    /// Messages that wait.
    pub queued: usize,
    /// How its conversation is found again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Conversation>,
    /// Why its newest process ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<EndReport>,
    /// The last failure to start or resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What a client recorded as its outcome; absent means inconclusive, never "nothing came of
    /// it".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What outlives its processes, or is to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptReport>,
    /// A host relays it, or did: its agent was started by `drowse run`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relayed: bool,
    /// The process that stands in the agent's place for its host, while that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pid: Option<i32>,
    /// Only while it is awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awake: Option<AwakeReport>,
}

impl SessionReport {
    /// The report of a session as the store has it: asleep.
    #[must_use]
    pub fn asleep(saved: &SavedSession) -> Self {
        let mut report = Self::new(&saved.profile, saved.progress.clone(), saved.queued.len());
        report.state_since = saved.state_since;
        report.last_active = saved.last_active;
        report
    }

    /// A report without its wall-clock times and without what only an awake session has.
    #[must_use]
    pub fn new(profile: &Profile, progress: Progress, queued: usize) -> Self {
        Self {
            id: profile.id,
            name: profile.name.clone(),
            agent: profile.recipe.agent.clone(),
            protocol: profile.recipe.protocol.clone(),
            cwd: profile.recipe.cwd.clone(),
            state: progress.state,
            state_since: profile.created,
            created: profile.created,
            last_active: profile.created,
            incarnation: progress.incarnation,
            queued,
            conversation: progress.conversation,
            end: progress.end,
            last_error: progress.last_error,
            outcome: progress.outcome,
            kept: KeptReport::all(profile.id, &profile.name, &progress.keeping),
            relayed: progress.hosted != Hosted::Never,
            host_pid: None,
            awake: None,
        }
    }

    /// The report as it reads `by` later, when nothing else has changed since.
    #[must_use]
    pub fn aged(mut self, by: Duration) -> Self {
        let by = millis(by);
        if let Some(awake) = &mut self.awake {
            awake.idle_ms = awake.idle_ms.map(|age| age.saturating_add(by));
            awake.releases_in_ms = awake.releases_in_ms.map(|left| left.saturating_sub(by));
            awake.next_deadline_ms = awake.next_deadline_ms.map(|left| left.saturating_sub(by));
            for hold in &mut awake.holds {
                hold.age_ms = hold.age_ms.saturating_add(by);
                hold.ends_in_ms = hold.ends_in_ms.map(|left| left.saturating_sub(by));
            }
            if let Some(change) = &mut awake.account_change {
                change.age_ms = change.age_ms.saturating_add(by);
            }
            for task in &mut awake.tasks {
                task.age_ms = task.age_ms.saturating_add(by);
            }
            for seen in &mut awake.evidence {
                seen.age_ms = seen.age_ms.saturating_add(by);
            }
        }
        self
    }
}

/// How many sessions are in each state; every state is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCount {
    /// The state.
    pub state: SessionState,
    /// How many.
    pub sessions: u64,
}

/// What an extension is and how well it keeps up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberReport {
    /// Its name.
    pub name: String,
    /// Events it was too slow for, or too dead.
    pub lagged_total: u64,
    /// False once it is gone.
    pub alive: bool,
}

/// The daemon as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StatusReport {
    /// Drowse's version.
    pub version: String,
    /// The daemon's pid.
    pub pid: u32,
    /// How long it has run, in milliseconds.
    pub uptime_ms: u64,
    /// True once it takes requests.
    pub ready: bool,
    /// True once it is shutting down.
    pub draining: bool,
    /// Sessions by state.
    pub states: Vec<StateCount>,
    /// Live backends.
    pub backends: u64,
    /// Backends this daemon took over from an earlier one when it started.
    #[serde(default)]
    pub adopted: u64,
    /// Backends released since the daemon started.
    pub released_total: u64,
    /// Bytes those releases freed.
    pub released_bytes_total: u64,
    /// Facts of older launches that were ignored.
    pub stale_facts_total: u64,
    /// True while the store refuses writes (a full disk); nothing is accepted meanwhile.
    pub store_failing: bool,
    /// Extensions and other subscribers.
    pub subscribers: Vec<SubscriberReport>,
}

impl StatusReport {
    /// An empty report of a daemon that has just begun.
    #[must_use]
    pub fn new(version: &str, pid: u32) -> Self {
        Self {
            version: version.to_owned(),
            pid,
            uptime_ms: 0,
            ready: false,
            draining: false,
            states: Vec::new(),
            backends: 0,
            adopted: 0,
            released_total: 0,
            released_bytes_total: 0,
            stale_facts_total: 0,
            store_failing: false,
            subscribers: Vec::new(),
        }
    }
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPage {
    /// Awake ones first, then the most recently used.
    pub sessions: Vec<SessionReport>,
    /// How many there are in all.
    pub total: u64,
    /// Give it back as `after` for the next page; `None`: this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
