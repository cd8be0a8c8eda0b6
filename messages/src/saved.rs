//! What the store keeps of a session and of its messages.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::{HoldId, Incarnation, MessageId, Name, SessionId};
use crate::kept::Keeping;
use crate::limits::LimitOverrides;
use crate::process::{BootedIdentity, Tier};
use crate::reason::{EndReport, Who};
use crate::registry::Priority;
use crate::session::{Conversation, MessageQueued, Task};
use crate::status::SessionState;
use crate::time::{MonoTime, WallTime};

/// How a session's agent is started, each time the same way (D27). Arguments and environment are
/// secrets: `Debug` shows neither, and on disk they are sealed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// The agent's name in the configuration.
    pub agent: Name,
    /// Which adapter speaks to it.
    pub protocol: Name,
    /// Program and arguments as configured and asked for, without what the adapter adds.
    pub argv: Vec<String>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// Its whole environment: the caller's, not the daemon's.
    pub env: BTreeMap<String, String>,
}

impl std::fmt::Debug for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recipe")
            .field("agent", &self.agent)
            .field("protocol", &self.protocol)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// The part of a session that never changes after it was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its id.
    pub id: SessionId,
    /// Its name, unique among the sessions there are; the id when none was given.
    pub name: String,
    /// How its agent is started.
    pub recipe: Recipe,
    /// Limits given for this session alone.
    pub limits: LimitOverrides,
    /// When it was opened.
    pub created: WallTime,
}

/// The part of a session that changes and must outlive the daemon. Written when it differs from
/// what was written last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// As shown to people.
    pub state: SessionState,
    /// The newest launch.
    pub incarnation: Incarnation,
    /// The keeper and the agent of a launch that is not known to be over.
    pub running: Option<Running>,
    /// How to resume; `None` before the agent said so.
    pub conversation: Option<Conversation>,
    /// Why the newest process ended.
    pub end: Option<EndReport>,
    /// The last failure to start or resume, for people.
    pub last_error: Option<String>,
    /// What outlives its backends.
    pub keeping: Keeping,
    /// Whether a host relays it.
    pub hosted: Hosted,
    /// What a client says came of it; `None`: inconclusive, not "nothing".
    pub outcome: Option<Outcome>,
    /// Since when things are so in the life of a backend that may be taken over; `None`: there is
    /// none. Kept with `running`.
    pub ages: Option<Ages>,
}

/// Whether a session is, or was, relayed to a host that believes to have started its agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hosted {
    /// It never had a host.
    #[default]
    Never,
    /// It has one, which may be on its way back after a restart of the daemon.
    Now,
    /// The host has left: anybody may use the session.
    Formerly,
}

/// How what a session was for went, in a client's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What the client says.
    pub text: String,
    /// Which client.
    pub by: Who,
    /// When it said so.
    pub at: WallTime,
}

impl Default for Progress {
    /// A session that was never started.
    fn default() -> Self {
        Self {
            state: SessionState::New,
            incarnation: Incarnation::default(),
            running: None,
            conversation: None,
            end: None,
            last_error: None,
            keeping: Keeping::default(),
            hosted: Hosted::Never,
            outcome: None,
            ages: None,
        }
    }
}

/// Since when things are so in the life of one backend, so that its limits are the same under
/// whichever daemon. The moments are those of one boot, as the processes are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ages {
    /// It was launched: `hard_limit` counts from here.
    pub launched: MonoTime,
    /// Somebody was warned of that limit.
    #[serde(default)]
    pub hard_limit_warned: bool,
    /// What is asked, by its id: `approval_hold_max` counts from here.
    #[serde(default)]
    pub asks: Vec<(String, MonoTime)>,
    /// Background tasks, by their ids.
    #[serde(default)]
    pub tasks: Vec<(String, MonoTime)>,
    /// Background tasks alone keep it.
    #[serde(default)]
    pub pinned: Option<Pinned>,
    /// Its first turn began: what its tree shows is measured by it.
    #[serde(default)]
    pub first_turn: Option<MonoTime>,
    /// Background tasks that were told one by one: nobody says them again.
    #[serde(default)]
    pub told: Vec<ToldTask>,
    /// It is to go on with another environment once it is at rest.
    #[serde(default)]
    pub change: Option<WaitingChange>,
    /// Holds that somebody took.
    #[serde(default)]
    pub leases: BTreeMap<HoldId, Lease>,
}

/// A background task that a hook, an extension or a person told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldTask {
    /// It.
    pub task: Task,
    /// Who told.
    pub owner: String,
    /// When it was first told.
    pub since: MonoTime,
}

/// An account change that waits until the session is at rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingChange {
    /// Who asked.
    pub by: Who,
    /// When.
    pub since: MonoTime,
}

/// Background tasks alone have deferred releases: `task_hold_max` counts from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// The first release that was deferred.
    pub since: MonoTime,
    /// Somebody was warned of that limit.
    pub warned: bool,
}

/// A hold that somebody took, until then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// What for.
    pub why: String,
    /// Who.
    pub owner: String,
    /// When it was first taken.
    pub since: MonoTime,
    /// When it ends by itself.
    pub until: MonoTime,
}

/// Processes of a live backend, so that a later daemon can find them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The keeper.
    pub keeper: BootedIdentity,
    /// The agent below it.
    pub agent: BootedIdentity,
    /// The cgroup made for this launch: an absolute path below the mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
}

impl Running {
    /// How its processes are held together.
    #[must_use]
    pub const fn tier(&self) -> Tier {
        match self.cgroup {
            Some(_) => Tier::Cgroup,
            None => Tier::Keeper,
        }
    }
}

/// A whole session as loaded from the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSession {
    /// What never changes.
    pub profile: Profile,
    /// What does.
    pub progress: Progress,
    /// Messages that wait, in the order in which they were accepted.
    pub queued: Vec<MessageQueued>,
    /// When the state last changed.
    pub state_since: WallTime,
    /// When it was last used.
    pub last_active: WallTime,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// On disk, waiting for its turn.
    Queued,
    /// Handed to the agent.
    Delivered,
    /// The turn it caused is over; its text is kept.
    Answered,
    /// The turn ended in an error, or was interrupted.
    Failed,
    /// The agent ended while it worked on it: whether it acted is not known. Never repeated by
    /// itself.
    Unknown,
    /// Cancelled before it was delivered.
    Cancelled,
    /// Put aside before it was delivered: no agent that was given it read it. It waits for a
    /// person, who can queue it again.
    Parked,
}

impl MessageState {
    /// The wire name.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
            Self::Parked => "parked",
        }
    }

    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Delivered,
        Self::Answered,
        Self::Failed,
        Self::Unknown,
        Self::Cancelled,
        Self::Parked,
    ];

    /// True when it will not change any more by itself.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Delivered => false,
            Self::Answered | Self::Failed | Self::Unknown | Self::Cancelled | Self::Parked => true,
        }
    }
}

/// A message and its fate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedMessage {
    /// Its number.
    pub id: MessageId,
    /// Whose.
    pub session: SessionId,
    /// The client's own key for it, if it gave one.
    pub key: Option<String>,
    /// What was said.
    pub text: String,
    /// How urgent it is.
    #[serde(default)]
    pub priority: Priority,
    /// What became of it.
    pub state: MessageState,
    /// The agent's answer, or what went wrong; empty while there is none.
    pub answer: String,
    /// When it was accepted.
    pub at: WallTime,
}
