//! Why a session's process ended, and why a request was refused: closed lists with fixed texts.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::MessageId;
use crate::kept::KeptProcess;
use crate::process::{ExitStatus, ProcReport, Survivor};
use crate::time::WallTime;

/// Who made something happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "name")]
pub enum Who {
    /// A rule of Drowse's own: the idle rule, a limit.
    Rule,
    /// Someone at the API or the command line.
    Client(String),
    /// An actor that was added in-process.
    Extension(String),
    /// The daemon, on its way out or while it recovers.
    Daemon,
    /// Nobody of ours: the agent itself, the kernel, another user.
    Outside,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule => f.write_str("drowse"),
            Self::Client(name) | Self::Extension(name) => f.write_str(name),
            Self::Daemon => f.write_str("daemon"),
            Self::Outside => f.write_str("outside"),
        }
    }
}

/// Why a backend ended. Set once, at the decision, and the same in log, event, API, metric and
/// command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Quiet for `idle_after`, with nothing that held it.
    Idle,
    /// Somebody asked for a release.
    Manual,
    /// It goes on with another environment: another account, other credentials.
    AccountChange,
    /// Background tasks had pinned it for `task_hold_max`.
    TaskHoldExpired,
    /// Nobody answered an approval or question for `approval_hold_max`.
    ApprovalExpired,
    /// It had lived for `hard_limit`.
    HardLimit,
    /// Its host was gone without a word for `detach_hold`.
    Detached,
    /// It never became ready, or ended before it was.
    StartFailed,
    /// It ended without being asked.
    Crashed {
        /// How it ended; `None`: it stopped reading, or nobody can tell.
        status: Option<ExitStatus>,
    },
    /// The daemon ended.
    DaemonShutdown,
    /// Somebody stopped it, work and all.
    Stopped,
    /// Somebody removed the session.
    Removed,
}

impl Reason {
    /// The wire name, without its facts.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Manual => "manual",
            Self::AccountChange => "account_change",
            Self::TaskHoldExpired => "task_hold_expired",
            Self::ApprovalExpired => "approval_expired",
            Self::HardLimit => "hard_limit",
            Self::Detached => "detached",
            Self::StartFailed => "start_failed",
            Self::Crashed { .. } => "crashed",
            Self::DaemonShutdown => "daemon_shutdown",
            Self::Stopped => "stopped",
            Self::Removed => "removed",
        }
    }

    /// How much a reason weighs when a second one arrives during a teardown: the heavier stays.
    #[must_use]
    pub const fn weight(self) -> u8 {
        match self {
            Self::Idle => 0,
            Self::Manual => 1,
            Self::AccountChange => 2,
            Self::TaskHoldExpired => 3,
            Self::ApprovalExpired => 4,
            Self::HardLimit => 5,
            Self::Detached => 6,
            Self::StartFailed => 7,
            Self::Crashed { .. } => 8,
            Self::DaemonShutdown => 9,
            Self::Stopped => 10,
            Self::Removed => 11,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crashed {
                status: Some(status),
            } => write!(f, "crashed ({status})"),
            Self::Crashed { status: None } => f.write_str(self.code()),
            Self::Idle
            | Self::Manual
            | Self::AccountChange
            | Self::TaskHoldExpired
            | Self::ApprovalExpired
            | Self::HardLimit
            | Self::Detached
            | Self::StartFailed
            | Self::DaemonShutdown
            | Self::Stopped
            | Self::Removed => f.write_str(self.code()),
        }
    }
}

/// The end of one backend: why, by whom, what was ended and what it freed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndReport {
    /// Why.
    pub reason: Reason,
    /// Who asked.
    pub by: Who,
    /// When it was over.
    #[serde(default)]
    pub at: WallTime,
    /// True when a turn was running: its outcome is unknown.
    pub mid_turn: bool,
    /// Every process seen between the snapshot before the teardown and its end, with the reading
    /// that found it and the last signal it was sent; 2,048 at most.
    pub processes: Vec<ProcReport>,
    /// Their memory (PSS) in bytes, measured by that snapshot.
    pub released_bytes: u64,
    /// Processes that outlived the agent's own exit and were ended by us.
    pub reaped: Vec<ProcReport>,
    /// How the agent itself ended, when it is known.
    pub status: Option<ExitStatus>,
    /// Processes that could not be ended; empty for a clean release.
    pub survivors: Vec<Survivor>,
    /// The last lines of the agent's stderr, redacted; only for a failure.
    pub stderr_tail: String,
    /// Those of the processes that listened on TCP ports, the agent itself left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ProcReport>,
    /// What outlived it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptProcess>,
}

/// 8 servers by name in a notice; of more the rest is counted.
const SERVERS_NAMED_MAX: usize = 8;

impl EndReport {
    /// An end of which nothing but its cause is known.
    #[must_use]
    pub const fn new(reason: Reason, by: Who, at: WallTime) -> Self {
        Self {
            reason,
            by,
            at,
            mid_turn: false,
            processes: Vec::new(),
            released_bytes: 0,
            reaped: Vec::new(),
            status: None,
            survivors: Vec::new(),
            stderr_tail: String::new(),
            servers: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Names the servers that it ended, and says how to keep such a one; `None`: there was none.
    #[must_use]
    pub fn notice(&self) -> Option<String> {
        let first = self.servers.first()?;
        let mut named: Vec<String> = self
            .servers
            .iter()
            .take(SERVERS_NAMED_MAX)
            .map(in_words)
            .collect();
        let more = self.servers.len().saturating_sub(SERVERS_NAMED_MAX);
        if more > 0 {
            named.push(format!("{more} more"));
        }
        let port = first.listens.first().copied().unwrap_or_default();
        Some(format!(
            "the {} at {} ended {}; keep such a server with keep = [\"listen:{port}\"] or drowse keep",
            occasion(self.reason),
            self.at,
            named.join(", "),
        ))
    }
}

/// What people call an end for this reason.
const fn occasion(reason: Reason) -> &'static str {
    match reason {
        Reason::Idle
        | Reason::Manual
        | Reason::AccountChange
        | Reason::TaskHoldExpired
        | Reason::ApprovalExpired
        | Reason::HardLimit
        | Reason::Detached => "release",
        Reason::StartFailed => "failed start",
        Reason::Crashed { .. } => "crash",
        Reason::DaemonShutdown => "shutdown",
        Reason::Stopped => "stop",
        Reason::Removed => "removal",
    }
}

/// `node (pid 4711, port 3000)`.
fn in_words(server: &ProcReport) -> String {
    let ports: Vec<String> = server.listens.iter().map(ToString::to_string).collect();
    let word = if ports.len() == 1 { "port" } else { "ports" };
    format!(
        "{} (pid {}, {word} {})",
        server.name,
        server.identity.pid(),
        ports.join(" ")
    )
}

/// Why a request was refused. Nothing was changed by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Refusal {
    /// No session has this id or name.
    NoSuchSession {
        /// What was asked for.
        session: String,
    },
    /// No message has this number, or not in this session.
    NoSuchMessage {
        /// What was asked for.
        message: MessageId,
    },
    /// Several sessions fit.
    Ambiguous {
        /// What was asked for.
        session: String,
        /// Some of those that fit.
        candidates: Vec<String>,
    },
    /// The name belongs to another session.
    NameTaken {
        /// The name.
        name: String,
    },
    /// No such agent is configured or found.
    UnknownAgent {
        /// The name asked for.
        agent: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The request itself is wrong.
    Invalid {
        /// Which part.
        field: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Something holds the session.
    Held {
        /// The holds, for people.
        held_by: Vec<String>,
    },
    /// The session has no process, or no turn, to do this to.
    NotRunning {
        /// What it is instead.
        state: String,
    },
    /// The agent cannot take its conversation up again.
    CannotResume {
        /// What was tried, and what the agent said.
        detail: String,
    },
    /// The approval is no longer pending.
    NotPending {
        /// Its id.
        approval: String,
    },
    /// The message no longer waits.
    NotQueued {
        /// Which.
        message: MessageId,
        /// What became of it, as far as is known.
        state: String,
    },
    /// The message was not put aside.
    NotParked {
        /// Which.
        message: MessageId,
        /// What it is instead.
        state: String,
    },
    /// The inbox is full.
    InboxFull {
        /// How many messages wait.
        queued: usize,
    },
    /// The daemon is ending, or is being replaced.
    Draining,
    /// The daemon cannot be replaced by another.
    CannotRestart {
        /// Why.
        detail: String,
    },
    /// A host has the session, and speaks to the agent itself.
    Relayed {
        /// The process that stands in the agent's place for it.
        pid: i32,
    },
    /// The store could not keep it; nothing was accepted.
    StoreFailed {
        /// What it said.
        detail: String,
    },
    /// The session failed inside Drowse; its processes are being ended.
    SessionFailed,
}

impl Refusal {
    /// The wire code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchSession { .. } => "no_such_session",
            Self::NoSuchMessage { .. } => "no_such_message",
            Self::Ambiguous { .. } => "ambiguous",
            Self::NameTaken { .. } => "name_taken",
            Self::UnknownAgent { .. } => "unknown_agent",
            Self::Invalid { .. } => "invalid",
            Self::Held { .. } => "held",
            Self::NotRunning { .. } => "not_running",
            Self::CannotResume { .. } => "cannot_resume",
            Self::NotPending { .. } => "not_pending",
            Self::NotQueued { .. } => "not_queued",
            Self::NotParked { .. } => "not_parked",
            Self::InboxFull { .. } => "inbox_full",
            Self::Draining => "draining",
            Self::CannotRestart { .. } => "cannot_restart",
            Self::Relayed { .. } => "relayed",
            Self::StoreFailed { .. } => "store_failed",
            Self::SessionFailed => "session_failed",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchSession { session } => write!(f, "no session {session:?}"),
            Self::NoSuchMessage { message } => write!(f, "no message {message}"),
            Self::Ambiguous {
                session,
                candidates,
            } => {
                write!(
                    f,
                    "{session:?} fits several sessions: {}",
                    candidates.join(", ")
                )
            }
            Self::NameTaken { name } => write!(f, "another session is named {name:?}"),
            Self::UnknownAgent { agent, known } if known.is_empty() => {
                write!(
                    f,
                    "no agent {agent:?}: none is configured and none was found on PATH"
                )
            }
            Self::UnknownAgent { agent, known } => {
                write!(f, "no agent {agent:?}; there is: {}", known.join(", "))
            }
            Self::Invalid { field, detail } => write!(f, "{field}: {detail}"),
            Self::Held { held_by } => write!(f, "held by {}", held_by.join(", ")),
            Self::NotRunning { state } => write!(f, "nothing to do this to: it is {state}"),
            Self::CannotResume { detail } => write!(f, "cannot resume: {detail}"),
            Self::NotPending { approval } => write!(f, "approval {approval} is no longer pending"),
            Self::NotQueued { message, state } => write!(
                f,
                "message {message} no longer waits: it is {state}; what the agent is at can be \
                 interrupted"
            ),
            Self::NotParked { message, state } => write!(
                f,
                "message {message} is {state}, and only a parked one is queued again"
            ),
            Self::InboxFull { queued } => write!(f, "{queued} messages are waiting already"),
            Self::Draining => f.write_str("the daemon is shutting down"),
            Self::CannotRestart { detail } => write!(f, "cannot restart: {detail}"),
            Self::Relayed { pid } => write!(
                f,
                "its host speaks to the agent itself, through drowse run (process {pid}): \
                 send there, or end that first"
            ),
            Self::StoreFailed { detail } => write!(f, "not accepted, the store failed: {detail}"),
            Self::SessionFailed => f.write_str("the session failed inside drowse"),
        }
    }
}

impl std::error::Error for Refusal {}
