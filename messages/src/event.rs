//! What subscribers hear: facts, in the past tense, in order for each session.

use serde::{Deserialize, Serialize};

use crate::host::HostEnd;
use crate::id::{HoldId, Incarnation, MessageId, SessionId};
use crate::kept::KeptProcess;
use crate::process::{ProcReport, Survivor};
use crate::reason::{EndReport, Reason, Who};
use crate::saved::MessageState;
use crate::session::{Ask, Task};
use crate::status::{SessionReport, SessionState, StatusReport};
use crate::time::WallTime;

/// One event with its place in the order of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up by one, across restarts of the daemon. Pieces of output share the number of the
    /// event before them: they are not kept.
    pub seq: u64,
    /// When it was published.
    pub at: WallTime,
    /// Whom it concerns; `None`: the daemon.
    pub session: Option<SessionId>,
    /// What happened.
    #[serde(flatten)]
    pub what: SessionEvent,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
#[non_exhaustive]
pub enum SessionEvent {
    /// The first event a subscriber gets: how things stand.
    Snapshot {
        /// The daemon.
        status: Box<StatusReport>,
    },
    /// A session was opened.
    Opened {
        /// It.
        report: Box<SessionReport>,
    },
    /// The state in the `state` column changed.
    StateChanged {
        /// From.
        from: SessionState,
        /// To.
        to: SessionState,
    },
    /// A backend was launched.
    Launched {
        /// Which launch.
        incarnation: Incarnation,
        /// The agent's pid.
        agent_pid: i32,
    },
    /// It took its conversation up again, or began one.
    Ready {
        /// Which launch.
        incarnation: Incarnation,
        /// True when an earlier conversation was resumed.
        resumed: bool,
    },
    /// This daemon took over a backend that an earlier one left running.
    Adopted {
        /// Which launch.
        incarnation: Incarnation,
        /// The agent's pid, which is the same as before.
        agent_pid: i32,
    },
    /// The host of a relayed session is there, at first or again.
    HostAttached {
        /// The process that stands in the agent's place for it.
        pid: i32,
    },
    /// The host is gone without a word; it is waited for.
    HostLost {
        /// The process that stood in the agent's place for it.
        pid: i32,
    },
    /// The host was told that its agent has ended, and how; anybody may use the session now.
    HostEnded {
        /// The process that stood in the agent's place for it.
        pid: i32,
        /// What it was told.
        end: HostEnd,
    },
    /// The agent could not be started, or did not get ready.
    StartFailed {
        /// Which launch.
        incarnation: Incarnation,
        /// Why.
        error: String,
        /// The next try, in milliseconds from now; `None`: none by itself.
        retry_in_ms: Option<u64>,
    },
    /// It is started again after this end of its last process.
    Woken {
        /// Why that ended.
        reason: Reason,
        /// Who asked for it.
        by: Who,
        /// When it was over.
        ended: WallTime,
        /// The processes that ended; of a large tree the first 64.
        processes: Vec<ProcReport>,
    },
    /// A message was accepted.
    MessageQueued {
        /// Which.
        message: MessageId,
    },
    /// What became of a message.
    MessageChanged {
        /// Which.
        message: MessageId,
        /// What it is now.
        state: MessageState,
        /// The answer, or what went wrong.
        text: String,
    },
    /// A client recorded how it went.
    OutcomeRecorded {
        /// What it says; `None`: it took back what was recorded.
        text: Option<String>,
        /// Which client.
        by: Who,
    },
    /// A turn began.
    TurnStarted {
        /// The message that caused it; `None`: the agent began by itself.
        message: Option<MessageId>,
    },
    /// A piece of the agent's answer. Not kept: late subscribers do not get it.
    Output {
        /// The message it answers.
        message: Option<MessageId>,
        /// The piece.
        text: String,
    },
    /// A turn ended.
    TurnEnded {
        /// The message that caused it.
        message: Option<MessageId>,
        /// What went wrong, if something did.
        error: Option<String>,
    },
    /// The agent asks a person.
    Asked {
        /// What.
        ask: Ask,
    },
    /// It does not ask any more.
    Settled {
        /// The id it was asked with.
        id: String,
        /// Who settled it, and how.
        by: Who,
    },
    /// The roster changed.
    TasksChanged {
        /// All background tasks there are now.
        tasks: Vec<Task>,
    },
    /// A lease was taken or renewed.
    HoldTaken {
        /// Which.
        id: HoldId,
        /// For people.
        why: String,
        /// Who.
        owner: String,
        /// How long it lasts, in milliseconds.
        ttl_ms: u64,
    },
    /// A lease was lifted or ran out.
    HoldLifted {
        /// Which.
        id: HoldId,
        /// True when nobody lifted it.
        expired: bool,
    },
    /// The idle time passed and something held the session: at most once per window.
    ReleaseDeferred {
        /// What.
        held_by: Vec<String>,
        /// For how long background work alone has pinned it, in milliseconds.
        pinned_ms: u64,
    },
    /// A limit will end the process unless something changes.
    LimitWarned {
        /// Which one.
        reason: Reason,
        /// How long from now, in milliseconds.
        in_ms: u64,
    },
    /// The process is being ended.
    Ending {
        /// Why.
        reason: Reason,
        /// Who asked.
        by: Who,
    },
    /// The whole tree is gone.
    Released {
        /// All about it.
        end: Box<EndReport>,
    },
    /// Part of the tree could not be ended; it is tried again, and nothing else is started.
    ReleaseFailed {
        /// What is left.
        survivors: Vec<Survivor>,
    },
    /// Somebody asked to keep a process, or changed how long it is kept.
    KeepAsked {
        /// Which, and why.
        kept: Box<KeptProcess>,
        /// Who asked.
        by: Who,
    },
    /// The backend has ended, and these outlive it.
    Kept {
        /// They.
        processes: Vec<KeptProcess>,
    },
    /// Kept processes have ended.
    KeptEnded {
        /// They.
        processes: Vec<KeptProcess>,
        /// Who ended them: `rule` when their time was over, `outside` when they ended by themselves.
        by: Who,
    },
    /// Worth showing, changes nothing.
    Notice {
        /// For people.
        text: String,
    },
    /// The session was removed; nothing follows.
    Removed,
    /// The daemon takes no new work and is about to be replaced; backends live on.
    Restarting,
    /// The daemon takes no new work and is ending.
    Draining,
    /// Events were lost between the last one and the next: this subscriber was too slow, or they
    /// are older than what is kept.
    Gap {
        /// How many, when that is known.
        missed: Option<u64>,
    },
}
