//! What goes into a session's step and what comes out.

use std::time::Duration;

use drowse_messages::{
    Activity, Adopted, Answer, ChildExited, Conversation, Delivered, HostChanged, HostEnd,
    IdleTick, Incarnation, Kept, KeptEnded, LaunchFailed, Launched, Limits, MessageId,
    MessageQueued, MessageState, Order, Progress, ReapReport, ReapRequest, Refusal, SessionEvent,
    StartGranted, StatusChanged, Suspend, TaskRoster, TreeEmptied,
};

/// Everything a session can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// It is in use.
    Activity(Activity),
    /// The agent says something of itself.
    StatusChanged(StatusChanged),
    /// The agent lists its background tasks.
    TaskRoster(TaskRoster),
    /// Time has passed.
    IdleTick(IdleTick),
    /// Somebody wants something; answered in the same step, with [`Effect::Refuse`] or without.
    Order(Order),
    /// A message is on disk.
    MessageQueued(MessageQueued),
    /// A delivery came to its end.
    Delivered(Delivered),
    /// The registry lets it start.
    StartGranted(StartGranted),
    /// Its process runs.
    Launched(Launched),
    /// Its process does not.
    LaunchFailed(LaunchFailed),
    /// Its process ran before this daemon did.
    Adopted(Box<Adopted>),
    /// The next daemon goes on with it.
    Suspend(Suspend),
    /// Its process ended.
    ChildExited(ChildExited),
    /// Nothing is left below its keeper.
    TreeEmptied(TreeEmptied),
    /// The reaper took a step.
    ReapReport(ReapReport),
    /// Nothing is left below a retired keeper.
    KeptEnded(KeptEnded),
    /// Something is new about the host of a relayed session.
    Host(HostChanged),
    /// The configuration changed.
    LimitsChanged(Limits),
}

macro_rules! input_from {
    ($($variant:ident($message:ty)),* $(,)?) => {
        $(impl From<$message> for Input {
            fn from(message: $message) -> Self {
                Self::$variant(message)
            }
        })*
    };
}

input_from! {
    Activity(Activity), StatusChanged(StatusChanged), TaskRoster(TaskRoster), IdleTick(IdleTick),
    Order(Order), MessageQueued(MessageQueued), Delivered(Delivered), StartGranted(StartGranted),
    Launched(Launched), LaunchFailed(LaunchFailed), ChildExited(ChildExited),
    TreeEmptied(TreeEmptied), ReapReport(ReapReport), KeptEnded(KeptEnded),
    LimitsChanged(Limits), Suspend(Suspend), Host(HostChanged),
}

impl From<Adopted> for Input {
    fn from(adopted: Adopted) -> Self {
        Self::Adopted(Box::new(adopted))
    }
}

/// What a live backend is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendOrder {
    /// Mark the message delivered on disk, then write it. Answered by `Delivered`.
    Deliver(MessageId),
    /// Interrupt the turn by protocol.
    Interrupt,
    /// Answer what the agent asked.
    Answer {
        /// The id it asked with.
        id: String,
        /// What to say.
        answer: Answer,
    },
    /// Take a question back: nobody answered in time.
    Withdraw {
        /// The id it asked with.
        id: String,
    },
    /// Say goodbye by protocol and close stdin. No answer; the exit is one.
    Close,
    /// Give the agent what its host has said and says until all of it is passed on, which is
    /// answered by [`HostChanged::Passed`]; and the end of it, once it has said all.
    OpenGate,
    /// From now on nothing of the host's is written: what is not in the pipe whole waits for the
    /// next agent.
    ShutGate {
        /// What the agent still says is not for the host, which is not to notice this end.
        quiet: bool,
    },
    /// The tree is verified empty: let the keeper go and forget the backend.
    Dismiss,
    /// Only what is kept is left: the keeper stays above it until that ends, which is answered by
    /// `KeptEnded`, or until it is dismissed.
    Retire {
        /// When the keeper is to end it should nobody else; `None`: never.
        until: Option<Duration>,
    },
}

/// What a session wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the registry for a place among the starting ones. Answered by `StartGranted`.
    AskStart,
    /// Give the place back, or up.
    StartSettled,
    /// Start the agent. Answered by `Launched` or `LaunchFailed`, exactly once.
    Launch {
        /// Which launch.
        incarnation: Incarnation,
        /// The conversation to resume; `None`: begin one.
        conversation: Option<Conversation>,
        /// The graces, for a keeper that has to end its tree alone.
        eof_grace: Duration,
        /// After SIGTERM.
        term_grace: Duration,
        /// A host speaks to it.
        relayed: bool,
    },
    /// Tell the backend.
    Tell {
        /// Which launch.
        incarnation: Incarnation,
        /// What.
        order: BackendOrder,
    },
    /// Hear of a retired keeper that an earlier daemon left. Answered by `KeptEnded`, at once when
    /// it is gone.
    Watch(Box<Kept>),
    /// Tell the reaper. Answered by `ReapReport`, exactly once.
    Reap(ReapRequest),
    /// Write down what became of a message.
    Settle {
        /// Which.
        message: MessageId,
        /// What.
        state: MessageState,
        /// The answer, or what went wrong.
        text: String,
    },
    /// Write the session down.
    Save(Box<Progress>),
    /// Delete the session.
    Forget,
    /// Tell subscribers.
    Publish(SessionEvent),
    /// Answer the order that is being handled with a refusal.
    Refuse(Refusal),
    /// Tell the host of a relayed session that its agent has ended, behind all that it said.
    EndHost(HostEnd),
    /// Its backend can be left to the next daemon as it is.
    Suspended,
    /// Nothing is to be done for this session until somebody wants something: its actor may go.
    Sleep,
}
