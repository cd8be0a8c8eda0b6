//! The words of a session's WebSocket (`/v1/sessions/{id}/ws`): JSON-RPC 2.0 in text frames.
//!
//! Fed by clients and the endpoint. `docs/protocol.md` has each of them with an example, and
//! `docs/socket.schema.json` their schema; a test compares both with these types. Invariant:
//! fields are only ever added, each with a default.

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::id::{MessageId, SessionId};
use crate::registry::Priority;
use crate::saved::MessageState;
use crate::session::Answer;
use crate::status::SessionReport;

/// The version of the protocol; a client says the one it knows.
pub const SOCKET_VERSION: u32 = 1;

/// What a client may ask on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The first request: [`Hello`], answered by [`Welcome`].
    Hello,
    /// Say something to the agent: [`Prompt`], answered by [`Prompted`].
    Prompt,
    /// Take back a message that waits: [`MessageCall`].
    Cancel,
    /// Queue a parked message again: [`MessageCall`].
    Retry,
    /// Record how it went: [`OutcomeCall`].
    RecordOutcome,
    /// Interrupt the running turn.
    Interrupt,
    /// Answer what the agent asks: [`AnswerCall`].
    Answer,
    /// Start the process without a message: [`WakeCall`].
    Wake,
    /// Free the process, keep the session.
    Release,
    /// End the process and cancel its work: [`StopCall`].
    Stop,
    /// How the session is; answered by a [`SessionReport`].
    Show,
    /// The newest messages: [`MessagesCall`].
    Messages,
    /// One message: [`MessageCall`].
    Message,
    /// Have events sent: [`Subscribe`], answered by a [`Position`].
    Subscribe,
    /// Nothing, answered at once: for clients that cannot send a ping frame.
    Ping,
    /// End the connection in good order. What the agent does goes on.
    Close,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Hello,
        Self::Prompt,
        Self::Cancel,
        Self::Retry,
        Self::RecordOutcome,
        Self::Interrupt,
        Self::Answer,
        Self::Wake,
        Self::Release,
        Self::Stop,
        Self::Show,
        Self::Messages,
        Self::Message,
        Self::Subscribe,
        Self::Ping,
        Self::Close,
    ];

    /// The wire name.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Prompt => "prompt",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::RecordOutcome => "record_outcome",
            Self::Interrupt => "interrupt",
            Self::Answer => "answer",
            Self::Wake => "wake",
            Self::Release => "release",
            Self::Stop => "stop",
            Self::Show => "show",
            Self::Messages => "messages",
            Self::Message => "message",
            Self::Subscribe => "subscribe",
            Self::Ping => "ping",
            Self::Close => "close",
        }
    }

    /// The method with this wire name.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.code() == code)
    }

    /// True when it changes nothing: it may be repeated after an unknown outcome.
    #[must_use]
    pub const fn reads(self) -> bool {
        match self {
            Self::Hello
            | Self::Show
            | Self::Messages
            | Self::Message
            | Self::Subscribe
            | Self::Ping => true,
            Self::Prompt
            | Self::Cancel
            | Self::Retry
            | Self::RecordOutcome
            | Self::Interrupt
            | Self::Answer
            | Self::Wake
            | Self::Release
            | Self::Stop
            | Self::Close => false,
        }
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks on; a session has as many watchers as like to.
    #[default]
    Watch,
    /// Gives orders; a session has one driver at most.
    Drive,
}

/// `hello`: who is there, and what for.
///
/// Token and resume key are secrets: `Debug` shows neither.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hello {
    /// The version of the protocol the client knows.
    pub version: u32,
    /// What the connection is for.
    pub role: Role,
    /// The client's name, for records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The daemon's token, for a client on TCP that cannot send a header (a browser).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// [`Welcome::resume`] of the connection that is to be taken up again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// Take the place of the session's driver.
    pub take_over: bool,
    /// False: the connection is not kept when its socket breaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
    /// Close the connection (4008) when the client says nothing and waits for nothing this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    /// Close the connection (4009) this long after its beginning, whatever happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard_timeout_ms: Option<u64>,
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello")
            .field("version", &self.version)
            .field("role", &self.role)
            .field("client", &self.client)
            .field("take_over", &self.take_over)
            .finish_non_exhaustive()
    }
}

/// The answer to `hello`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Welcome {
    /// The version of the protocol that is spoken from here on.
    pub version: u32,
    /// The daemon's own version.
    pub daemon: String,
    /// The session, by its id.
    pub session: SessionId,
    /// The connection's number, for logs.
    pub connection: u64,
    /// The key with which this connection is taken up again; a secret.
    pub resume: String,
    /// True when it was taken up again: calls under way at the break are abandoned.
    pub resumed: bool,
    /// What the connection is for.
    pub role: Role,
    /// Methods the connection may use.
    pub capabilities: Vec<Method>,
    /// What is held and waited for.
    pub bounds: SocketBounds,
    /// The newest event there is.
    pub position: Position,
}

impl Welcome {
    /// A welcome to a fresh connection.
    #[must_use]
    pub fn new(session: SessionId, connection: u64, resume: String, position: Position) -> Self {
        Self {
            version: SOCKET_VERSION,
            daemon: String::new(),
            session,
            connection,
            resume,
            resumed: false,
            role: Role::Watch,
            capabilities: Vec::new(),
            bounds: SocketBounds::default(),
            position,
        }
    }
}

impl std::fmt::Debug for Welcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Welcome")
            .field("session", &self.session)
            .field("connection", &self.connection)
            .field("resumed", &self.resumed)
            .field("role", &self.role)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// What the daemon holds and waits for on a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketBounds {
    /// Bytes of a message to the daemon.
    pub message_bytes_max: u64,
    /// Calls under way at a time.
    pub calls_max: u64,
    /// A client that is silent this long is pinged; after twice this long it is gone.
    pub heartbeat_ms: u64,
    /// A broken connection can be taken up again this long.
    pub detach_hold_ms: u64,
    /// The deadline of a call that names none.
    pub call_ms: u64,
    /// What the daemon adds to the `timeout_ms` of a call.
    pub call_grace_ms: u64,
    /// The latest deadline of a call that has one.
    pub call_ms_max: u64,
}

/// A place in the stream of a session's events. Numbers of two epochs say nothing of each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Which numbering.
    pub epoch: String,
    /// The event's number; 0: before the first.
    pub seq: u64,
}

/// `prompt`: say something to the agent. The same key again is the same message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prompt {
    /// What to say.
    pub text: String,
    /// The client's own key for the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// True: answer when the message is on disk, not when the agent has answered.
    pub accepted: bool,
    /// How urgent it is.
    #[serde(skip_serializing_if = "Priority::is_ordinary")]
    pub priority: Priority,
}

/// What became of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompted {
    /// The message's number.
    pub message: MessageId,
    /// True when the key was known.
    pub duplicate: bool,
    /// How far it is: final, unless `accepted` was asked for.
    pub state: MessageState,
    /// The agent's answer, or what went wrong.
    #[serde(default)]
    pub answer: String,
}

/// `answer`: what the agent asks, answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerCall {
    /// The id it was asked with.
    pub id: String,
    /// The answer.
    pub answer: Answer,
}

/// `wake`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WakeCall {
    /// Begin a new conversation instead of resuming the old one.
    pub fresh: bool,
}

/// `stop`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StopCall {
    /// End what the session keeps, too.
    pub kept: bool,
}

/// `messages`: the newest ones, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MessagesCall {
    /// How many; 20 when it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// `record_outcome`: how what the session was for went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeCall {
    /// 1 to 4,096 bytes; `null` takes back what was recorded.
    #[serde(deserialize_with = "Option::deserialize")]
    pub text: Option<String>,
}

/// `message`, `cancel`, `retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageCall {
    /// Which.
    pub message: MessageId,
}

/// `subscribe`: have events sent from here on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Subscribe {
    /// The newest event the client has seen; what followed it is sent first. Left out: a snapshot
    /// is sent first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Position>,
}

/// What the daemon says unasked, by its method's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "method", content = "params")]
#[non_exhaustive]
pub enum Notification {
    /// Something happened.
    Event(EventNote),
    /// Events are missing between the last one and the snapshot that follows.
    Gap(GapNote),
    /// How the session is, at this place in the stream.
    Snapshot(SnapshotNote),
    /// The connection will be closed unless something changes.
    Warning(WarningNote),
}

/// One event with its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventNote {
    /// Its place.
    #[serde(flatten)]
    pub at: Position,
    /// What happened. Its own `seq` is of the daemon's log, and counts across restarts.
    pub event: Event,
}

/// Events are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapNote {
    /// The place from which it goes on.
    #[serde(flatten)]
    pub at: Position,
    /// How many are missing, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

/// How the session is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotNote {
    /// The place it belongs to: every event up to it is in the report, later ones follow.
    #[serde(flatten)]
    pub at: Position,
    /// The session.
    pub report: Box<SessionReport>,
}

/// A limit of the connection is near.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarningNote {
    /// Which one: `hard_timeout`.
    pub limit: String,
    /// How long from now.
    pub in_ms: u64,
}

/// Why the daemon closes a socket, by the code of the close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseWhy {
    /// 1000: as asked.
    Normal,
    /// 1002: a frame, or its size, breaks the protocol.
    ProtocolError,
    /// 1003: only text is understood.
    NotText,
    /// 1009: a message is too large.
    TooLarge,
    /// 4001: no valid token.
    Unauthorized,
    /// 4003: not allowed, or no `hello` in time.
    Forbidden,
    /// 4004: there is no such session, or it was removed.
    NoSuchSession,
    /// 4008: the connection was silent for as long as it may be.
    IdleTimeout,
    /// 4009: the connection, or its session, is as old as it may become.
    HardTimeout,
    /// 4010: another socket took the place.
    Superseded,
    /// 4011: the client does not read what it is sent.
    SlowConsumer,
    /// 4012: the daemon is ending or being replaced.
    Draining,
}

impl CloseWhy {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Normal,
        Self::ProtocolError,
        Self::NotText,
        Self::TooLarge,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NoSuchSession,
        Self::IdleTimeout,
        Self::HardTimeout,
        Self::Superseded,
        Self::SlowConsumer,
        Self::Draining,
    ];

    /// The code of the close frame.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Normal => 1000,
            Self::ProtocolError => 1002,
            Self::NotText => 1003,
            Self::TooLarge => 1009,
            Self::Unauthorized => 4001,
            Self::Forbidden => 4003,
            Self::NoSuchSession => 4004,
            Self::IdleTimeout => 4008,
            Self::HardTimeout => 4009,
            Self::Superseded => 4010,
            Self::SlowConsumer => 4011,
            Self::Draining => 4012,
        }
    }

    /// The reason in the close frame.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Normal => "bye",
            Self::ProtocolError => "protocol_error",
            Self::NotText => "not_text",
            Self::TooLarge => "too_large",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NoSuchSession => "no_such_session",
            Self::IdleTimeout => "idle_timeout",
            Self::HardTimeout => "hard_timeout",
            Self::Superseded => "superseded",
            Self::SlowConsumer => "slow_consumer",
            Self::Draining => "draining",
        }
    }

    /// Why a socket with this code was closed; `None`: not by the daemon's own decision.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_are_one_to_one() {
        for method in Method::ALL {
            assert_eq!(Method::from_code(method.code()), Some(method));
            let json = serde_json::to_string(&method).unwrap();
            assert_eq!(json, format!("{:?}", method.code()));
        }
        for why in CloseWhy::ALL {
            assert_eq!(CloseWhy::from_code(why.code()), Some(why));
        }
    }

    /// D53: what opens a door is not shown.
    #[test]
    fn debug_shows_no_key_and_no_token() {
        let hello = Hello {
            token: Some("s3cr3t".to_owned()),
            resume: Some("s3cr3t".to_owned()),
            ..Hello::default()
        };
        let welcome = Welcome::new(
            SessionId::from_random(1),
            1,
            "s3cr3t".to_owned(),
            Position::default(),
        );
        assert!(!format!("{hello:?}{welcome:?}").contains("s3cr3t"));
    }
}
