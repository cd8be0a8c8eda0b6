//! What the registry is asked: to open sessions, to pass orders on, to drain.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hold::{HoldLifted, HoldTaken};
use crate::id::{MessageId, Name, SessionId};
use crate::kept::Keep;
use crate::limits::LimitOverrides;
use crate::reason::Who;
use crate::saved::Recipe;
use crate::session::{
    AnswerAsk, CancelMessage, ChangeAccount, EndTask, Interrupt, RecordOutcome, StartTask, Stop,
    Wake,
};

/// Open a session. It is written down; no process is started before its first message or a wake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    /// Its id, random, made by whoever opens it.
    pub id: SessionId,
    /// Its name; must be free. `None`: its id is its name.
    pub name: Option<Name>,
    /// How its agent is started, complete.
    pub recipe: Recipe,
    /// Limits for this session alone.
    pub limits: LimitOverrides,
}

/// Accept a message for a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendMessage {
    /// What to say.
    pub text: String,
    /// Same key, same message: a repeat is acknowledged with the first one's id, not run twice.
    pub key: Option<String>,
    /// How it stands to what waits already, and to the turn that runs.
    pub priority: Priority,
    /// Who says it.
    pub by: Who,
}

/// How urgent a message is. In order: of two that wait, the one that compares less goes first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// It interrupts the turn that runs, and goes first.
    Now,
    /// It goes into the turn that runs where the agent takes messages into one, and else first of
    /// those that wait.
    Next,
    /// It waits for its turn.
    #[default]
    Later,
}

impl Priority {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Now, Self::Next, Self::Later];

    /// The wire name.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Next => "next",
            Self::Later => "later",
        }
    }

    /// True for a message that waits for its turn, as most do.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        *self == Self::Later
    }

    /// The priority with this wire name.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.code() == code)
    }
}

/// Go on with another environment, see [`ChangeAccount`].
///
/// An environment is a secret: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountChange {
    /// Variables put over those the session has.
    pub env: BTreeMap<String, String>,
    /// The order for the session.
    pub order: ChangeAccount,
}

impl fmt::Debug for AccountChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountChange")
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

/// A message was accepted: it is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Its number.
    pub message: MessageId,
    /// True when the key was known: this is the first message's number.
    pub duplicate: bool,
}

/// An order for one session, answered at once with acceptance or a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// See [`Stop`].
    Stop(Stop),
    /// See [`Wake`].
    Wake(Wake),
    /// See [`Interrupt`].
    Interrupt(Interrupt),
    /// See [`AnswerAsk`].
    Answer(AnswerAsk),
    /// See [`HoldTaken`].
    TakeHold(HoldTaken),
    /// See [`HoldLifted`].
    LiftHold(HoldLifted),
    /// See [`Keep`].
    Keep(Keep),
    /// See [`ChangeAccount`].
    ChangeAccount(ChangeAccount),
    /// See [`StartTask`].
    StartTask(StartTask),
    /// See [`EndTask`].
    EndTask(EndTask),
    /// See [`CancelMessage`].
    Cancel(CancelMessage),
    /// See [`RecordOutcome`].
    RecordOutcome(RecordOutcome),
}
