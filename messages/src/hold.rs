//! Holds: named reasons not to release a session.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::HoldId;
use crate::time::MonoTime;

/// What kind of thing holds a session. Order: as shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldKind {
    /// A turn is running.
    Turn,
    /// The conversation is being compacted.
    Compaction,
    /// The agent runs a command of its protocol outside a turn.
    Command,
    /// A message waits in the inbox.
    Queued,
    /// The agent asks a person whether it may.
    Approval,
    /// The agent asks a person something.
    Question,
    /// A background task of the roster.
    Task,
    /// The agent set itself a timer.
    Schedule,
    /// Taken by a client or an extension, for a limited time.
    Lease,
    /// Not known yet whether anything runs.
    Unknown,
}

impl HoldKind {
    /// The wire name.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Compaction => "compaction",
            Self::Command => "command",
            Self::Queued => "queued",
            Self::Approval => "approval",
            Self::Question => "question",
            Self::Task => "task",
            Self::Schedule => "schedule",
            Self::Lease => "lease",
            Self::Unknown => "unknown",
        }
    }
}

/// A hold as policy computes it: everything that keeps a session now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Only for a hold that can be lifted by its id.
    pub id: Option<HoldId>,
    /// What kind.
    pub kind: HoldKind,
    /// For people: "bash: npm test", "Bash wants to run rm".
    pub why: String,
    /// Who is behind it: the agent's name, a client, an extension.
    pub owner: String,
    /// Since when.
    pub since: MonoTime,
    /// When it ends by itself; `None`: not before its cause does.
    pub until: Option<MonoTime>,
}

/// Take a lease: keep the session for at most `ttl`, for the reason given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldTaken {
    /// Chosen by whoever takes it, unique in the session; the same id again renews.
    pub id: HoldId,
    /// For people.
    pub why: String,
    /// Who.
    pub owner: String,
    /// How long it lasts unless renewed. At most 24 h: a longer hold is a pin.
    pub ttl: Duration,
}

/// End a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldLifted {
    /// Which.
    pub id: HoldId,
}
