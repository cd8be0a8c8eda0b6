//! Everything that can go wrong with a request, as one closed list shared by daemon and clients.
//!
//! Fed by refusals, by the endpoint and by clients themselves. Invariants: a code decides what the
//! failure means for its sender; no code claims that a request ran, only whether it may have; a
//! code that ends a connection never stands for a mere call, and the other way round.

use serde::{Deserialize, Serialize};

use crate::wire::ProblemClass;

use ProblemClass::{OutcomeUnknown, Retryable, TerminalRequest, TerminalSession};

/// What a failure ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// Nothing but the call: the connection and the session go on.
    Call,
    /// The connection: no call on it can succeed.
    Connection,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $class:ident, $ends:ident;)+) => {
        /// A kind of failure, by its wire name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum FailureCode {
            $($(#[doc = $doc])+ #[serde(rename = $code)] $name,)+
        }

        impl FailureCode {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The wire name.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code),+ }
            }

            /// What it means for whoever sent the request.
            #[must_use]
            pub const fn class(self) -> ProblemClass {
                match self { $(Self::$name => $class),+ }
            }

            /// What it ends.
            #[must_use]
            pub const fn ends(self) -> Ends {
                match self { $(Self::$name => Ends::$ends),+ }
            }
        }
    };
}

codes! {
    /// No answer within the client's own deadline; the client gave the connection up.
    RequestTimeout = "request_timeout", OutcomeUnknown, Connection;
    /// The connection is gone for good; [`DropReason`] says why.
    ConnectionClosed = "connection_closed", OutcomeUnknown, Connection;
    /// Nothing was said on the connection for as long as it may be silent.
    IdleTimeout = "idle_timeout", OutcomeUnknown, Connection;
    /// The connection, or its session, is as old as it may become.
    HardTimeout = "hard_timeout", OutcomeUnknown, Connection;
    /// No valid token.
    Unauthorized = "unauthorized", TerminalRequest, Connection;
    /// Not allowed from there.
    Forbidden = "forbidden", TerminalRequest, Connection;
    /// The daemon's deadline for the call passed: it is abandoned, not cancelled.
    Unanswered = "unanswered", OutcomeUnknown, Call;
    /// The client's bound for one action passed; the connection stays.
    ActionTimeout = "action_timeout", OutcomeUnknown, Call;
    /// The connection broke while the call was under way, and was taken up again.
    ConnectionResumed = "connection_resumed", OutcomeUnknown, Call;
    /// The daemon does not know the connection that was to be taken up again.
    ResumeRefused = "resume_refused", TerminalRequest, Call;
    /// Another client drives the session; `take_over` takes its place.
    Driven = "driven", Retryable, Call;
    /// The driver was replaced a moment ago: two clients fight.
    TakenOverTooSoon = "taken_over_too_soon", Retryable, Call;
    /// Whoever watches does not give orders.
    NotDriver = "not_driver", TerminalRequest, Call;
    /// As many calls are under way on the connection as there may be.
    TooManyCalls = "too_many_calls", Retryable, Call;
    /// As many connections to the session are known as there may be.
    TooManyConnections = "too_many_connections", Retryable, Call;
    /// There is no such method.
    NoSuchMethod = "no_such_method", TerminalRequest, Call;
    /// What was sent is no JSON-RPC 2.0 request.
    NotARequest = "not_a_request", TerminalRequest, Call;
    /// The first request of a connection is `hello`, and only the first.
    OutOfOrder = "out_of_order", TerminalRequest, Call;
    /// The answer is longer than what is sent on a socket.
    AnswerTooLarge = "answer_too_large", OutcomeUnknown, Call;
    /// No session has this id or name.
    NoSuchSession = "no_such_session", TerminalSession, Call;
    /// No message has this number, or not in this session.
    NoSuchMessage = "no_such_message", TerminalRequest, Call;
    /// Several sessions fit.
    Ambiguous = "ambiguous", TerminalRequest, Call;
    /// The name belongs to another session.
    NameTaken = "name_taken", TerminalRequest, Call;
    /// No such agent is configured or found.
    UnknownAgent = "unknown_agent", TerminalRequest, Call;
    /// Part of the request is wrong.
    Invalid = "invalid", TerminalRequest, Call;
    /// Something holds the session.
    Held = "held", Retryable, Call;
    /// The session has no process, or no turn, to do this to.
    NotRunning = "not_running", TerminalRequest, Call;
    /// The agent cannot take its conversation up again.
    CannotResume = "cannot_resume", TerminalSession, Call;
    /// A host has the session, and speaks to its agent itself.
    Relayed = "relayed", TerminalRequest, Call;
    /// The approval is no longer pending.
    NotPending = "not_pending", TerminalRequest, Call;
    /// The message no longer waits: it was delivered, or is over.
    NotQueued = "not_queued", TerminalRequest, Call;
    /// The message was not put aside.
    NotParked = "not_parked", TerminalRequest, Call;
    /// The inbox is full.
    InboxFull = "inbox_full", Retryable, Call;
    /// The daemon is ending, or is being replaced.
    Draining = "draining", Retryable, Call;
    /// The daemon cannot be replaced by another.
    CannotRestart = "cannot_restart", TerminalRequest, Call;
    /// The store could not keep it.
    StoreFailed = "store_failed", Retryable, Call;
    /// The session failed inside Drowse.
    SessionFailed = "session_failed", OutcomeUnknown, Call;
    /// There is no such path.
    NoSuchPath = "no_such_path", TerminalRequest, Call;
    /// The path does not take this method.
    MethodNotAllowed = "method_not_allowed", TerminalRequest, Call;
    /// The body is too large.
    BodyTooLarge = "body_too_large", TerminalRequest, Call;
    /// The body did not arrive in time.
    BodyTooSlow = "body_too_slow", Retryable, Call;
    /// As many streams are open as there may be.
    TooManyStreams = "too_many_streams", Retryable, Call;
    /// The daemon is starting or ending.
    NotReady = "not_ready", Retryable, Call;
    /// A code of a newer daemon.
    Unknown = "unknown", OutcomeUnknown, Call;
}

impl FailureCode {
    /// The code with this wire name; a name that is not known is [`FailureCode::Unknown`].
    #[must_use]
    pub fn from_code(code: &str) -> Self {
        let known = Self::ALL.iter().copied().find(|it| it.code() == code);
        known.unwrap_or(Self::Unknown)
    }

    /// True when the same request may succeed later. Nothing was done.
    #[must_use]
    pub const fn retryable(self) -> bool {
        matches!(self.class(), Retryable)
    }

    /// True when the request may have been carried out: look before it is repeated.
    #[must_use]
    pub const fn may_have_run(self) -> bool {
        matches!(self.class(), OutcomeUnknown)
    }
}

/// Why a connection is gone for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// The bytes stopped, and the daemon could not be reached again in time.
    TransportLost,
    /// The daemon, or what stands before it, is ending or being replaced.
    ProxyRestart,
    /// The other side broke the protocol, or failed.
    ProxyError,
    /// Another client took the place on purpose.
    Superseded,
    /// The daemon does not know the connection any more.
    ResumeRefused,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::TransportLost,
        Self::ProxyRestart,
        Self::ProxyError,
        Self::Superseded,
        Self::ResumeRefused,
    ];

    /// The wire name.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TransportLost => "transport_lost",
            Self::ProxyRestart => "proxy_restart",
            Self::ProxyError => "proxy_error",
            Self::Superseded => "superseded",
            Self::ResumeRefused => "resume_refused",
        }
    }
}

/// A failure with what is known of it: the `data` of a JSON-RPC error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Its kind.
    #[serde(deserialize_with = "lenient")]
    pub code: FailureCode,
    /// What it means for the sender.
    pub class: ProblemClass,
    /// What it ends.
    pub ends: Ends,
    /// True when the same request may succeed later.
    pub retryable: bool,
    /// True when the request may have been carried out.
    pub may_have_run: bool,
    /// What went wrong this time, for people.
    pub detail: String,
    /// For `connection_closed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_reason: Option<DropReason>,
    /// For `held` and `driven`: by what, or by whom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
    /// For what may succeed later, when that is known: in so many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
}

impl Failure {
    /// A failure of this kind.
    #[must_use]
    pub fn new(code: FailureCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            class: code.class(),
            ends: code.ends(),
            retryable: code.retryable(),
            may_have_run: code.may_have_run(),
            detail: detail.into(),
            drop_reason: None,
            held_by: Vec::new(),
            retry_in_ms: None,
        }
    }
}

impl From<crate::reason::Refusal> for Failure {
    fn from(refusal: crate::reason::Refusal) -> Self {
        let mut failure = Self::new(FailureCode::from_code(refusal.code()), refusal.to_string());
        if let crate::reason::Refusal::Held { held_by } = refusal {
            failure.held_by = held_by;
        }
        failure
    }
}

/// A daemon may be newer than its client.
fn lenient<'de, D: serde::Deserializer<'de>>(from: D) -> Result<FailureCode, D::Error> {
    let code = std::borrow::Cow::<'de, str>::deserialize(from)?;
    Ok(FailureCode::from_code(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_names_are_one_to_one_and_no_code_is_both_retryable_and_unknown() {
        for code in FailureCode::ALL {
            assert_eq!(FailureCode::from_code(code.code()), *code);
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("{:?}", code.code()));
            assert!(!(code.retryable() && code.may_have_run()), "{code:?}");
        }
        for reason in DropReason::ALL {
            assert_eq!(
                serde_json::to_string(&reason).unwrap(),
                format!("{:?}", reason.code())
            );
        }
    }

    /// Behaviour 113: the codes that end a connection and those that do not are as documented, and
    /// none of them claims that the call did not run.
    #[test]
    fn terminal_and_other_codes_are_told_apart() {
        use FailureCode as C;
        for code in [
            C::RequestTimeout,
            C::ConnectionClosed,
            C::IdleTimeout,
            C::HardTimeout,
        ] {
            assert!(
                code.ends() == Ends::Connection && code.may_have_run(),
                "{code:?}"
            );
        }
        for code in [C::Unanswered, C::ActionTimeout, C::ConnectionResumed] {
            assert!(code.ends() == Ends::Call && code.may_have_run(), "{code:?}");
        }
    }

    #[test]
    fn a_code_of_a_newer_daemon_is_understood_as_unknown() {
        let mut json = serde_json::to_value(Failure::new(FailureCode::Held, "x")).unwrap();
        json["code"] = "invented_later".into();
        let failure: Failure = serde_json::from_value(json).unwrap();
        assert_eq!(failure.code, FailureCode::Unknown);
        assert_eq!(failure.class, Retryable);
    }
}
