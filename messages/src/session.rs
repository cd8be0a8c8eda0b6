//! What a session actor is told: the five messages of its contract and the facts around them.
//!
//! Orders are imperative (`Stop`), facts are past tense (`ChildExited`). Whatever concerns a
//! process carries its [`Incarnation`], so that late news of an older process changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{Incarnation, MessageId};
use crate::process::ExitStatus;
use crate::reason::Who;
use crate::registry::Priority;
use crate::saved::{Ages, Running};
use crate::time::WallTime;

/// Evidence that the session is in use. It moves the idle clock and decides nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The launch it comes from; `None` when it comes from a client.
    pub incarnation: Option<Incarnation>,
    /// What was seen.
    pub kind: ActivityKind,
}

/// Kinds of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityKind {
    /// A piece of the agent's answer, for whoever watches.
    Output(String),
    /// A client did something on purpose (never: looked).
    Client,
}

/// What the agent says of itself, as its adapter understood it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusChanged {
    /// The launch that says so.
    pub incarnation: Incarnation,
    /// What it says.
    pub status: AgentStatus,
}

/// The words of [`StatusChanged`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// The handshake is done: it takes prompts.
    Ready,
    /// A turn began, prompted or of its own accord. Repeated news of one turn is normal.
    TurnStarted,
    /// The turn is over.
    TurnEnded(TurnEnded),
    /// The agent refused the last message it was given, and goes on with what it was at.
    NotTaken {
        /// What it said.
        error: String,
    },
    /// Something other than a turn is under way; ends with the same key.
    BusyStarted(Busy),
    /// That is over. An unknown key is harmless.
    BusyEnded {
        /// The key it started with.
        key: String,
    },
    /// It asks a person.
    Asked(Ask),
    /// The question is settled: answered, withdrawn or void.
    Settled {
        /// The id it was asked with.
        id: String,
    },
    /// It set itself a timer.
    Scheduled {
        /// Its name for it.
        id: String,
        /// For people.
        what: String,
        /// When it fires, from now.
        due_in: Duration,
    },
    /// The timer is gone.
    Unscheduled {
        /// Its name.
        id: String,
    },
    /// How to find its conversation again. A changed id is followed (D25).
    Conversation(Conversation),
    /// The conversation was begun, or is taken up, and must be left alone by any other process for
    /// this long, or it would be harmed.
    Young {
        /// From now.
        settles_in: Duration,
    },
    /// It says that there is no such conversation (not: that it failed to start).
    CannotResume {
        /// What was tried and what it said.
        detail: String,
    },
    /// It runs, and says why it cannot be used.
    CannotStart {
        /// What was tried and what it said.
        detail: String,
        /// False when another try cannot help.
        retry: bool,
    },
    /// Something worth showing that changes nothing: an unreadable line, a dropped one.
    Notice {
        /// For people.
        text: String,
    },
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEnded {
    /// How it went.
    pub outcome: TurnOutcome,
    /// The final answer as text, when the protocol has one.
    pub text: String,
    /// False when this end does not belong to the message in flight (Claude's result for a
    /// task notification): the message stays in flight.
    pub answers: bool,
    /// How many of the messages that the agent was given are left for turns that follow: it had
    /// not taken them into this one.
    #[serde(default)]
    pub left: u32,
}

/// How a turn went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    /// To its natural end.
    Completed,
    /// Into an error.
    Failed {
        /// What the agent said.
        error: String,
    },
    /// Somebody interrupted it.
    Interrupted,
    /// It is over, and its end was not heard: nobody listened when the agent told.
    Lost,
}

/// Work outside a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// Unique among what is under way.
    pub key: String,
    /// Compaction, or a command.
    pub kind: BusyKind,
    /// For people.
    pub what: String,
}

/// Kinds of work outside a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BusyKind {
    /// The conversation is being made shorter.
    Compaction,
    /// A command of the agent's protocol.
    Command,
}

/// A person is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The agent's id for it.
    pub id: String,
    /// May I, or which?
    pub kind: AskKind,
    /// One line for people.
    pub title: String,
    /// All of it, as the agent sent it, bounded.
    pub detail: String,
}

/// What sort of answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskKind {
    /// Yes or no.
    Approval,
    /// Words.
    Question,
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Go ahead.
    Allow,
    /// Do not.
    Deny,
    /// The answer to a question.
    Text(String),
}

/// 16: an agent has a model, a mode and a few options.
pub const SETTINGS_MAX: usize = 16;

/// How the agent's conversation is found again.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// The agent's own id for it. Empty: it has none, and any process is as good as another.
    pub native_id: String,
    /// Where the agent keeps it, when the adapter knows.
    pub path: Option<String>,
    /// True once the agent can resume it: at least one acknowledged turn is on its disk.
    pub resumable: bool,
    /// What was set in it since it began and has to be set again, by the adapter's own words; at
    /// most [`SETTINGS_MAX`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// No process may take it up before this; see [`AgentStatus::Young`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<WallTime>,
}

/// What most conversations do not have is left out.
impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Conversation");
        shown
            .field("native_id", &self.native_id)
            .field("path", &self.path)
            .field("resumable", &self.resumable);
        if !self.settings.is_empty() {
            shown.field("settings", &self.settings);
        }
        if let Some(not_before) = &self.not_before {
            shown.field("not_before", not_before);
        }
        shown.finish()
    }
}

/// The background tasks the agent says are running: the whole set, replacing the former.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRoster {
    /// The launch that says so.
    pub incarnation: Incarnation,
    /// All of them; empty: none.
    pub tasks: Vec<Task>,
}

/// One background task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The agent's name for it.
    pub id: String,
    /// `local_bash`, `local_agent`, a status key: the agent's word.
    pub kind: String,
    /// For people; bounded, without control characters.
    pub description: String,
    /// A watcher that is always there; it does not hold.
    pub ambient: bool,
}

/// A background task has begun, told by the task itself, a hook or an extension, and not by the
/// adapter. The same id again changes it and keeps its age.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartTask {
    /// It.
    pub task: Task,
    /// Who tells, for people.
    pub owner: String,
}

/// Such a task is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndTask {
    /// The id it was begun with; an unknown one is harmless.
    pub id: String,
}

/// Time has passed. It carries no decision: the session compares its deadlines with the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleTick;

/// End the session's process, in one of five ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Which way.
    pub how: StopHow,
    /// Who asks.
    pub by: Who,
}

/// The ways to end a process. Never overload one with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopHow {
    /// Free its memory, keep the session; refused while something holds it.
    Release,
    /// The daemon ends: interrupt once, wait a little, end the tree; keep everything.
    Shutdown,
    /// End the process and cancel its work; the conversation can be resumed.
    Stop,
    /// Stop, and end what the session keeps, too.
    StopAll,
    /// Stop, and forget the session.
    Remove,
}

impl StopHow {
    /// True when what is to be kept outlives it.
    #[must_use]
    pub const fn keeps(self) -> bool {
        match self {
            Self::Release | Self::Stop => true,
            Self::Shutdown | Self::StopAll | Self::Remove => false,
        }
    }
}

/// Start the session's process without a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// Begin a new conversation instead of resuming the old one. Never done unasked.
    pub fresh: bool,
    /// Who asks.
    pub by: Who,
}

/// Release the session and start its process again, in the same conversation: its recipe has
/// another environment. One that is busy goes on until it is at rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeAccount {
    /// Who asks.
    pub by: Who,
}

/// Interrupt the running turn by the agent's protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Who asks.
    pub by: Who,
}

/// A person's answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerAsk {
    /// The id it was asked with.
    pub id: String,
    /// The answer.
    pub answer: Answer,
    /// Who answers.
    pub by: Who,
}

/// Take back a message that waits. One that was delivered is refused: its turn can be interrupted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelMessage {
    /// Which.
    pub message: MessageId,
    /// Who asks.
    pub by: Who,
}

/// Write down how what the session was for went. Drowse never does so by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordOutcome {
    /// In the client's own words; `None`: nothing is known any more.
    pub text: Option<String>,
    /// Who says so.
    pub by: Who,
}

/// A message was accepted and is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueued {
    /// Which.
    pub message: MessageId,
    /// How urgent it is.
    pub priority: Priority,
}

/// A queued message was written to the agent, or could not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// The launch it was written to.
    pub incarnation: Incarnation,
    /// Which message.
    pub message: MessageId,
    /// `Written`, or why not.
    pub result: DeliveryResult,
}

/// How far a delivery got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryResult {
    /// All of it is in the agent's pipe.
    Written,
    /// Not one byte was written: it can be delivered to the next process.
    NotWritten,
    /// A part was written: whether the agent acts on it is unknown.
    PartlyWritten,
    /// A part of its one line of JSON was written, and the agent read no more: it cannot have
    /// acted on it.
    CutShort,
    /// The message no longer waits (it was cancelled, or delivered before): nothing to do.
    Void,
}

/// The registry lets the session start its process now (`max_starting`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartGranted;

/// The agent's process runs under its keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    /// Which launch.
    pub incarnation: Incarnation,
    /// Its processes.
    pub running: Running,
}

/// A backend that an earlier daemon left running was taken over: the same processes, in the same
/// conversation. Says at once how things stand with it, so that nothing is decided in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// Which launch.
    pub incarnation: Incarnation,
    /// Its processes.
    pub running: Running,
    /// Since when things are so with it, as written down last; `None`: nobody knows.
    pub ages: Option<Ages>,
    /// The messages that the agent was given and has not been heard to answer, oldest first.
    pub in_flight: Vec<MessageId>,
    /// The last of them is still being written, and a [`Delivered`] will tell of it.
    pub on_its_way: bool,
    /// Messages marked delivered of which the agent is not known to have got all.
    pub unknown: Vec<MessageId>,
    /// All background tasks there are; `None`: not known yet.
    pub tasks: Option<Vec<Task>>,
    /// What else holds now, in an order in which it could have been said.
    pub statuses: Vec<AgentStatus>,
}

/// The daemon is about to be replaced by another that takes the backends over: whatever is not
/// under way already is left to that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspend;

/// The agent could not be started at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchFailed {
    /// Which launch.
    pub incarnation: Incarnation,
    /// What was being done, to what, and what the system said.
    pub error: String,
    /// False when another try cannot help: the folder or the program is missing.
    pub retry: bool,
}

/// The agent process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildExited {
    /// Which launch.
    pub incarnation: Incarnation,
    /// How; `None` when its keeper vanished and nobody can tell.
    pub status: Option<ExitStatus>,
    /// The last lines of its stderr, redacted.
    pub stderr_tail: String,
}

/// The keeper collected its last child: nothing of the tree is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEmptied {
    /// Which launch.
    pub incarnation: Incarnation,
}
