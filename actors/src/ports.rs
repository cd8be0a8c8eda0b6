//! The outside world as the actors see it: traits, implemented in `runtime` for Linux and in
//! tests by fakes.
//!
//! Nothing here blocks: an order returns at once, and its answer comes back as a message or
//! through a [`Pending`] future. Invariant: one port call per policy effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use drowse_messages::{
    Accepted, Adopted, Conversation, Event, HostEnd, Incarnation, KeepTarget, Kept, KeptRelay,
    LimitOverrides, Limits, MessageId, MessageQueued, MessageState, MonoTime, Name, ProcIdentity,
    ProcReport, Profile, Progress, ReapReport, ReapRequest, Recipe, Running, SavedMessage,
    SavedSession, SendMessage, SessionId, SessionState, Usage, WallTime,
};

use drowse_policy::BackendOrder;
use drowse_policy::session::AgentTraits;

use crate::session::Facts;

/// An answer that takes a while: from the disk, from a tree.
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The same, of the core actors' own thread.
pub type LocalPending<T> = Pin<Box<dyn Future<Output = T>>>;

/// Reads the time; the only way to it.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The daemon's monotonic clock.
    fn now(&self) -> MonoTime;
    /// The wall clock, for records.
    fn wall(&self) -> WallTime;
}

/// Everything needed to start one backend.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Whose.
    pub session: SessionId,
    /// Which launch.
    pub incarnation: Incarnation,
    /// How.
    pub recipe: Recipe,
    /// The conversation to resume; `None`: begin one.
    pub conversation: Option<Conversation>,
    /// What the keeper waits, should it have to end the tree alone, after closing stdin.
    pub eof_grace: Duration,
    /// And after SIGTERM.
    pub term_grace: Duration,
    /// A host speaks to it, and what it says is the host's.
    pub relayed: bool,
}

/// A backend that an earlier daemon left, as the store knows it.
#[derive(Clone, Debug)]
pub struct Left {
    /// Whose.
    pub session: SessionId,
    /// Which launch.
    pub incarnation: Incarnation,
    /// Its processes.
    pub running: Running,
    /// How it was started.
    pub recipe: Recipe,
    /// Messages that the store has as delivered and not answered.
    pub delivered: Vec<MessageId>,
}

/// Starts backends and speaks to them. Facts go to the recipient given at launch, in order; all
/// that one read brought in one message.
pub trait Backends: fmt::Debug {
    /// Starts one. Answered by `Launched` or `LaunchFailed`, then by what the agent says.
    fn launch(&self, launch: Launch, facts: Recipient<Facts>);
    /// Passes an order on. One for a backend that is gone is dropped: its exit was reported.
    fn order(&self, session: SessionId, incarnation: Incarnation, order: BackendOrder);
    /// Tells a session's host that its agent has ended, behind all that it said. One that is gone is
    /// not told.
    fn end_host(&self, session: SessionId, end: HostEnd);
    /// Hears of a retired keeper that an earlier daemon left: that it is over is told as
    /// `KeptEnded`, at once when it is gone already.
    fn watch(&self, session: SessionId, kept: Kept, facts: Recipient<Facts>);
    /// Takes over what an earlier daemon left running. Nothing is heard of it before
    /// [`Backends::follow`]. Otherwise says for people why not; its tree is still to be ended.
    fn adopt(&self, left: Left) -> LocalPending<Result<Adopted, String>>;
    /// Facts of a backend that was taken over go there from now on.
    fn follow(&self, session: SessionId, incarnation: Incarnation, facts: Recipient<Facts>);
    /// Has every live backend stop where the next daemon can go on, and lets go of it. Bounded.
    fn suspend(&self) -> LocalPending<()>;
    /// Has keepers that no session owns end their trees, those of `kept` launches left out; says
    /// for people which. Bounded.
    fn end_strays(&self, kept: Vec<(SessionId, Incarnation)>) -> LocalPending<Vec<String>>;
}

/// A process that somebody asked for, and the keeper above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// One of the keepers that were given.
    pub keeper: ProcIdentity,
    /// The process, with the ports it listens on.
    pub process: ProcReport,
}

/// Ends and measures process trees, on threads of its own.
pub trait ProcessTrees: Send + Sync + fmt::Debug {
    /// Takes one step on a tree; `answer` is called exactly once, from another thread.
    fn reap(&self, request: ReapRequest, answer: Box<dyn FnOnce(ReapReport) + Send>);
    /// Processes and memory below each keeper.
    fn measure(
        &self,
        keepers: Vec<(SessionId, ProcIdentity)>,
    ) -> Pending<BTreeMap<SessionId, Usage>>;
    /// Ends what an earlier daemon left behind: the tree of this keeper and the keeper, if they
    /// are still the same processes of the same boot. Says for people what was found.
    fn end_leftover(&self, running: Running) -> Pending<String>;
    /// Finds a process below one of these keepers; otherwise says for people why there is none.
    fn find(
        &self,
        target: KeepTarget,
        keepers: Vec<ProcIdentity>,
    ) -> Pending<Result<Found, String>>;
    /// Those of these processes that still run.
    fn living(&self, processes: Vec<ProcIdentity>) -> Pending<BTreeSet<ProcIdentity>>;
    /// Ends every process that carries this daemon's marker, or is in one of its cgroups, and
    /// belongs to none of these: what was taken over, and what is kept.
    fn sweep(&self, keep: Vec<Running>) -> Pending<Vec<String>>;
}

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// Another session has the name.
    NameTaken,
    /// No such session or message.
    NotFound,
    /// Several sessions fit; some of them.
    Ambiguous(Vec<String>),
    /// This message is not parked, but in that state.
    NotParked(MessageId, MessageState),
    /// The inbox of the session is full, with this many messages.
    InboxFull(usize),
    /// The call itself is wrong; says which part and why.
    Invalid(String),
    /// The disk, or the database, said no. Nothing was changed.
    Failed(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameTaken => f.write_str("the name is taken"),
            Self::NotFound => f.write_str("there is none"),
            Self::Ambiguous(some) => write!(f, "several fit: {}", some.join(", ")),
            Self::NotParked(message, state) => {
                write!(f, "message {message} is {}, not parked", state.code())
            }
            Self::InboxFull(queued) => write!(f, "{queued} messages wait already"),
            Self::Invalid(detail) | Self::Failed(detail) => f.write_str(detail),
        }
    }
}

impl std::error::Error for StoreError {}

/// The result of a store call that waits for the disk.
pub type Stored<T> = Pending<Result<T, StoreError>>;

/// Which part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Continue behind this cursor (the `next` of the page before).
    pub after: Option<String>,
    /// At most this many; the store caps it at 1,000.
    pub limit: usize,
    /// Only sessions in this state.
    pub state: Option<SessionState>,
    /// Only sessions of this agent.
    pub agent: Option<Name>,
}

/// Sessions of one page, most recently used first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedPage {
    /// They.
    pub sessions: Vec<SavedSession>,
    /// How many fit in all.
    pub total: u64,
    /// Cursor of the next page.
    pub next: Option<String>,
}

/// What a daemon finds on disk when it starts. Nothing in it is started by itself but sessions
/// with messages that were accepted and wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sessions that may be taken over with their backend (`may_be_adopted` of policy), each with
    /// its messages that are delivered and not answered. Their rows are as they were left.
    pub adoptable: Vec<(SessionId, Vec<MessageId>)>,
    /// Other sessions whose backend may still be running. The store has already
    /// put them at rest (`released`, or `interrupted` when a turn was running) and their message
    /// in flight, if any, at `unknown`.
    pub left_running: Vec<(SessionId, Running)>,
    /// Sessions that keep something of ended backends, and what.
    pub keeping: Vec<(SessionId, Vec<Kept>)>,
    /// Sessions with queued messages, oldest message first.
    pub queued: Vec<SessionId>,
    /// How many sessions there are in each state.
    pub states: BTreeMap<SessionState, u64>,
    /// The number the next event gets.
    pub next_seq: u64,
}

/// Keeps sessions, inbox and events. Calls are carried out in the order they are made; those that
/// return nothing are on disk within the next grouped commit and raise an alarm when they fail.
pub trait Store: Send + Sync + fmt::Debug {
    /// Called once, at start.
    fn recover(&self) -> Stored<Recovered>;
    /// Puts sessions at rest that could not be taken over, and says anew what there is.
    fn put_at_rest(&self, sessions: Vec<SessionId>) -> Stored<Recovered>;
    /// Writes a new session down.
    fn open(&self, profile: Profile) -> Stored<()>;
    /// Puts another recipe in a session's place of it, sealed like the first: nothing of the former
    /// is left. Durable when the answer comes.
    fn reseal(&self, id: SessionId, recipe: Recipe) -> Stored<()>;
    /// Reads one whole.
    fn load(&self, id: SessionId) -> Stored<SavedSession>;
    /// Finds one by id, unique id prefix (4 characters at least) or name.
    fn resolve(&self, text: String) -> Stored<SessionId>;
    /// Lists.
    fn list(&self, page: Page) -> Stored<SavedPage>;
    /// Accepts a message: durable when the answer comes.
    fn enqueue(&self, session: SessionId, message: SendMessage) -> Stored<Accepted>;
    /// Queues a parked message of the session again; `NotParked` for any other. Durable when the
    /// answer comes.
    fn requeue(&self, session: SessionId, message: MessageId) -> Stored<MessageQueued>;
    /// Marks a queued message delivered and returns its text: durable when the answer comes, so
    /// that a crash can only leave it `unknown`, never deliver it twice.
    fn deliver(&self, message: MessageId) -> Stored<String>;
    /// Reads one message.
    fn message(&self, message: MessageId) -> Stored<SavedMessage>;
    /// The newest messages of a session, oldest first.
    fn messages(&self, session: SessionId, limit: usize) -> Stored<Vec<SavedMessage>>;
    /// Writes progress down.
    fn save(&self, id: SessionId, progress: Progress);
    /// Writes down what became of a message.
    fn settle(&self, message: MessageId, state: MessageState, text: String);
    /// Forgets a session and all that belongs to it. A later `save` of it writes nothing
    /// (behaviour 89).
    fn forget(&self, id: SessionId);
    /// Writes down what it takes to go on with the host of a session.
    fn keep_relay(&self, id: SessionId, kept: KeptRelay);
    /// Reads that; `NotFound` for one that never had a host.
    fn relay(&self, id: SessionId) -> Stored<KeptRelay>;
    /// Appends an event.
    fn record(&self, event: Event);
    /// Kept events, oldest first: those with a number above `after`, or the newest ones. Begins
    /// with a `Gap` when some behind `after` were dropped to make room; numbers have holes for
    /// other reasons too (what is forgotten takes its events along).
    fn events(
        &self,
        after: Option<u64>,
        limit: usize,
        session: Option<SessionId>,
    ) -> Stored<Vec<Event>>;
    /// True while writes fail.
    fn failing(&self) -> bool;
}

/// What the configuration says of agents and limits.
pub trait Catalog: Send + Sync + fmt::Debug {
    /// The limits of a session.
    fn limits(&self, agent: &Name, cwd: &Path, session: &LimitOverrides) -> Limits;
    /// What policy must know of an agent, and of the adapter of its protocol; `None`: there is no
    /// such adapter.
    fn traits(&self, agent: &Name, protocol: &Name) -> Option<AgentTraits>;
    /// How many backends may be starting at once.
    fn starting_max(&self) -> usize;
}

/// All ports, as an actor carries them.
#[derive(Clone, Debug)]
pub struct Ports {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The disk.
    pub store: Arc<dyn Store>,
    /// The trees.
    pub trees: Arc<dyn ProcessTrees>,
    /// The configuration.
    pub catalog: Arc<dyn Catalog>,
    /// The backends. They live on the arbiter of the core actors.
    pub backends: Rc<dyn Backends>,
}
