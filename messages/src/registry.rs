//! What the registry is asked: to open sessions, to pass orders on, to drain.

use serde::{Deserialize, Serialize};

use crate::hold::{HoldLifted, HoldTaken};
use crate::id::{MessageId, Name, SessionId};
use crate::kept::Keep;
use crate::limits::LimitOverrides;
use crate::reason::Who;
use crate::saved::Recipe;
use crate::session::{AnswerAsk, EndTask, Interrupt, StartTask, Stop, Wake};

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
    /// See [`StartTask`].
    StartTask(StartTask),
    /// See [`EndTask`].
    EndTask(EndTask),
}
