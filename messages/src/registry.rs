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
use crate::session::{AnswerAsk, ChangeAccount, EndTask, Interrupt, StartTask, Stop, Wake};

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
    /// Who says it.
    pub by: Who,
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
}
