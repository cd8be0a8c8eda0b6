//! Adapters: one protocol each. What to launch, what a line means, what to write.
//!
//! An [`Adapter`] is a stateless factory; an [`Observer`] follows one backend. Both are pure: no
//! clock, no file, no process. Fed by the backend's link, line by line, in both directions; what
//! it understood goes to the session as [`Fact`]s, and whatever it does not know is passed over:
//! an unknown line never ends a session.

use std::collections::BTreeMap;
use std::fmt;

use drowse_messages::{AgentStatus, Answer, Conversation, Name, Recipe, Task, WallTime};

mod acp;
mod argv;
mod claude;
mod codex;
#[cfg(test)]
mod golden;
mod handed;
mod kept;
mod mcp;
mod names;
#[cfg(test)]
mod noise;
mod paragraphs;
mod pi;
mod raw;
mod relay;
mod rpc;
mod text;
mod wire;

pub use acp::Acp;
pub use claude::Claude;
pub use codex::Codex;
pub use mcp::Mcp;
pub(crate) use names::agent_of;
pub use pi::Pi;
pub use raw::Raw;
pub use relay::{Pass, Relay};

/// Which way a line went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Written to the agent.
    In,
    /// Said by the agent.
    Out,
}

/// What a line meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// See [`AgentStatus`].
    Status(AgentStatus),
    /// All background tasks there are now.
    Roster(Vec<Task>),
    /// A piece of the answer, for whoever watches.
    Output(String),
}

/// What came of one line: facts for the session, lines to write in return. Lines end in `\n`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// In the order they hold.
    pub facts: Vec<Fact>,
    /// In the order they are to be written.
    pub write: Vec<Vec<u8>>,
}

/// A program to start.
#[derive(Clone, PartialEq, Eq)]
pub struct Plan {
    /// Program and arguments; the program is looked up in the plan's own PATH.
    pub argv: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
}

impl Plan {
    /// The recipe as it is.
    #[must_use]
    pub fn of(recipe: &Recipe) -> Self {
        Self {
            argv: recipe.argv.clone(),
            env: recipe.env.clone(),
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and environment hold secrets.
        f.debug_struct("Plan")
            .field("program", &self.argv.first())
            .finish_non_exhaustive()
    }
}

/// A protocol.
pub trait Adapter: Send + Sync + fmt::Debug {
    /// Its name in the configuration (`protocol = "claude"`).
    fn protocol(&self) -> Name;
    /// Names of the programs it speaks to when nothing is configured, looked for on PATH; the
    /// first part is the agent's name, the second its command.
    fn known_agents(&self) -> Vec<(Name, Vec<String>)> {
        Vec::new()
    }
    /// True when a conversation outlives its process: only then is a session ever released.
    fn can_resume(&self) -> bool;
    /// True when the agent reports its background tasks, so that a start begins with an unknown
    /// roster.
    fn reports_tasks(&self) -> bool;
    /// True when the agent takes a prompt that is written during a turn into that turn. Its
    /// observer then says, with each end of a turn, how many prompts were left out of it.
    fn steers(&self) -> bool {
        false
    }
    /// What to start: the recipe with this protocol's arguments, for a conversation to resume or
    /// (`None`) to begin. `fresh_id` is a new random UUID, for agents whose id can be chosen.
    fn plan(&self, recipe: &Recipe, conversation: Option<&Conversation>, fresh_id: &str) -> Plan;
    /// Follows one backend started by such a plan.
    fn observe(&self, conversation: Option<&Conversation>, fresh_id: &str) -> Box<dyn Observer>;
    /// The same, for protocols that speak of the folder the agent works in, or of the command line.
    fn observe_in(
        &self,
        recipe: &Recipe,
        conversation: Option<&Conversation>,
        fresh_id: &str,
    ) -> Box<dyn Observer> {
        let _ = recipe;
        self.observe(conversation, fresh_id)
    }
    /// Follows a backend that an earlier daemon, perhaps of an earlier release, followed until it
    /// ended: what its observer last left, and the time of day. Says what holds now, in an order
    /// in which it could have happened, and what to write first. `None`, which is the default: it
    /// cannot go on from there, and the backend is ended; its session can be woken.
    fn adopt(&self, checkpoint: &[u8], now: WallTime) -> Option<(Box<dyn Observer>, Seen)> {
        let _ = (checkpoint, now);
        None
    }
    /// What to start for a host that speaks the protocol itself: its own command line, and
    /// for a conversation to take up again the arguments that do so. Nothing else is added.
    fn relay_plan(&self, recipe: &Recipe, conversation: Option<&Conversation>) -> Plan {
        let _ = conversation;
        Plan::of(recipe)
    }
    /// Stands between a host and the agent. `memory` is what the relay of the session's former
    /// process left; `None` at the first. `None`, which is the default: lines pass as they are,
    /// and a process that ended is not started again for its host.
    fn relay(&self, memory: Option<&[u8]>) -> Option<Box<dyn Relay>> {
        let _ = memory;
        None
    }
}

/// Follows one backend.
pub trait Observer: Send + fmt::Debug {
    /// Called once, after the launch: what to write first. A protocol without a handshake reports
    /// `Ready` here.
    fn open(&mut self) -> Seen;
    /// Called once instead of [`Observer::open`] when a host has the agent: the host does the
    /// handshake, and nothing is written but what its `Relay` keeps from the host. From now on the
    /// observer can be adopted at any time, by one that listens too.
    fn listen(&mut self) -> Seen {
        Seen::default()
    }
    /// One line without its end, exactly as it went by. What this observer wrote itself is shown
    /// to it too, as `Direction::In`, once it is in the agent's pipe: that is when a turn begins.
    fn observe(&mut self, direction: Direction, line: &[u8]) -> Seen;
    /// How to say this to the agent.
    fn prompt(&mut self, text: &str) -> Seen;
    /// How to interrupt the turn.
    fn interrupt(&mut self) -> Seen;
    /// How to answer what it asked; an unknown id writes nothing.
    fn answer(&mut self, id: &str, answer: &Answer) -> Seen;
    /// How to say goodbye; stdin is closed after it.
    fn close(&mut self) -> Seen;
    /// Called once, when the agent process has ended, with the last lines of its stderr: some
    /// agents say only there why they did not start ("no such conversation").
    fn exited(&mut self, stderr_tail: &str) -> Vec<Fact>;
    /// All that another observer needs to follow the same agent from here; see [`Adapter::adopt`].
    /// Asked for after every line that brought more than output; at most some KiB. `None`, which
    /// is the default: no other can.
    fn checkpoint(&self) -> Option<Vec<u8>> {
        None
    }
}
