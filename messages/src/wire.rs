//! Bodies of requests and answers of the HTTP API that are nothing else inside.
//!
//! Fed by clients, read by the endpoint, and the other way round. What the endpoint answers with
//! as it is (reports, events, saved messages) is defined where it belongs. Invariant: fields are
//! only ever added, each with a default, so that an older client and a newer daemon understand
//! each other. Limits come as text and are parsed by the daemon, which knows their syntax.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::{HoldId, MessageId, Name, SessionId};
use crate::registry::Priority;
use crate::session::Answer;

/// Media type of a [`ProblemBody`] (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Media type of a stream of [`crate::Event`]s.
pub const EVENT_STREAM: &str = "text/event-stream";

/// Header with the client's own key for a message: same key, same message.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Header with what a client would rather have (RFC 7240): `wait=N`, the answer itself if it comes within
/// so many seconds.
pub const PREFER: &str = "prefer";

/// Header with what of that was done.
pub const PREFERENCE_APPLIED: &str = "preference-applied";

/// Header with the number of the last event a client has seen.
pub const LAST_EVENT_ID: &str = "last-event-id";

/// Answer to `POST /v1/restart`: the daemon is being replaced by the program it was started from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarting {
    /// The version that ends.
    pub from: String,
    /// The version that begins, by that program's own word.
    pub to: String,
}

/// `POST /v1/sessions`: open a session. Answered by a [`crate::SessionReport`].
///
/// Arguments and environment are secrets: `Debug` shows neither.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// Which agent, by its name in the configuration or on PATH.
    pub agent: Name,
    /// The session's name; must be free. `None`: its id is its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Where the agent runs: an absolute path.
    pub cwd: PathBuf,
    /// Arguments put after those the configuration gives the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The agent's whole environment: the caller's, not the daemon's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Limits for this session alone, by their configuration key (`idle_after`), as a duration
    /// for people (`"10m"`) or `"off"`, `"0"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

impl fmt::Debug for NewSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSession")
            .field("agent", &self.agent)
            .field("name", &self.name)
            .field("cwd", &self.cwd)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// `POST /v1/sessions/{id}/messages`: say something to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// What to say.
    pub text: String,
    /// How urgent it is.
    #[serde(default, skip_serializing_if = "Priority::is_ordinary")]
    pub priority: Priority,
}

impl<T: Into<String>> From<T> for NewMessage {
    /// A message that waits for its turn.
    fn from(text: T) -> Self {
        let (text, priority) = (text.into(), Priority::default());
        Self { text, priority }
    }
}

/// `PUT /v1/sessions/{id}/outcome`: how what the session was for went, in the client's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewOutcome {
    /// 1 to 4,096 bytes; `null` takes back what was recorded.
    #[serde(deserialize_with = "Option::deserialize")]
    pub text: Option<String>,
}

/// A message was accepted; it is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Its number.
    pub message: MessageId,
    /// True when the key was known: this is the first message's number.
    pub duplicate: bool,
    /// The session it was sent to.
    pub session: SessionId,
}

/// `POST /v1/sessions/{id}/wake`: start the process without a message. An empty body is the
/// default one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WakeSession {
    /// Begin a new conversation instead of resuming the old one.
    pub fresh: bool,
}

/// `POST /v1/sessions/{id}/restart`: go on in the same conversation with another environment.
///
/// An environment is a secret: `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RestartSession {
    /// Variables put over those the session has.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl fmt::Debug for RestartSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestartSession").finish_non_exhaustive()
    }
}

/// Answer to it: the environment is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartedSession {
    /// True when it is restarted only once it is at rest.
    pub waits: bool,
    /// What it waits for, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
}

/// `POST /v1/sessions/{id}/tasks`: a background task has begun. The same name again changes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTask {
    /// Unique among the tasks that are told this way.
    pub name: String,
    /// What sort of work it is, in a word; `task` when it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// For people; its name when it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// A watcher that is always there; it does not hold.
    #[serde(default)]
    pub ambient: bool,
    /// Who tells of it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// `POST /v1/sessions/{id}/holds`: keep the session for a while. Answered by a [`TakenHold`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewHold {
    /// For how long: a duration (`"20m"`), at most 24 h.
    pub ttl: String,
    /// For people.
    pub why: String,
    /// Who holds it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// One that was taken before, to make it last longer; `None`: another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<HoldId>,
}

/// A hold was taken, or lasts longer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenHold {
    /// The session that it holds.
    pub session: SessionId,
    /// Which, to lift it or make it last longer.
    pub id: HoldId,
    /// How long it lasts from now, in milliseconds.
    pub ttl_ms: u64,
}

/// `POST /v1/sessions/{id}/asks/{ask}`: answer what the agent asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskReply {
    /// The answer.
    pub answer: Answer,
}

/// What a failed request means for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemClass {
    /// The session is gone or unusable: no request to it will succeed.
    TerminalSession,
    /// This request will not succeed; others may.
    TerminalRequest,
    /// The same request may succeed later. Nothing was done.
    Retryable,
    /// It is not known whether the request was carried out.
    OutcomeUnknown,
}

impl ProblemClass {
    /// The wire name.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TerminalSession => "terminal_session",
            Self::TerminalRequest => "terminal_request",
            Self::Retryable => "retryable",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}

/// An answer with a status of 400 or more (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemBody {
    /// A URI for the kind of problem; `about:blank` when `code` says it all.
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    /// The kind of problem in a few words, the same for every problem with this code.
    #[serde(default)]
    pub title: String,
    /// The HTTP status, repeated.
    pub status: u16,
    /// What went wrong this time, for people.
    #[serde(default)]
    pub detail: String,
    /// The kind of problem for programs: [`crate::Refusal::code`], or one of the endpoint's own.
    pub code: String,
    /// What it means for the sender.
    pub class: ProblemClass,
    /// True when the same request may succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// For `held`: what holds the session, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
}

fn about_blank() -> String {
    "about:blank".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms that clients in other languages write by hand.
    #[test]
    fn bodies_have_the_documented_form() {
        let new: NewSession = serde_json::from_str(
            r#"{"agent":"claude","cwd":"/w","limits":{"idle_after":"10m"},"env":{"K":"secret"}}"#,
        )
        .unwrap();
        assert_eq!(new.limits["idle_after"], "10m");
        assert!(!format!("{new:?}").contains("secret"));
        for (answer, json) in [
            (Answer::Allow, r#"{"answer":"allow"}"#),
            (Answer::Deny, r#"{"answer":"deny"}"#),
            (Answer::Text("a".into()), r#"{"answer":{"text":"a"}}"#),
        ] {
            let reply = AskReply { answer };
            assert_eq!(serde_json::to_string(&reply).unwrap(), json);
            assert_eq!(serde_json::from_str::<AskReply>(json).unwrap(), reply);
        }
        let problem: ProblemBody = serde_json::from_str(
            r#"{"status":409,"code":"held","class":"retryable","held_by":["task: npm test"]}"#,
        )
        .unwrap();
        assert_eq!(problem.kind, "about:blank");
        assert_eq!(problem.class, ProblemClass::Retryable);
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let error = serde_json::from_str::<NewSession>(r#"{"agent":"a","cwd":"/","arg":[]}"#);
        assert!(error.unwrap_err().to_string().contains("arg"));
    }
}
