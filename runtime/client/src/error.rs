//! What can go wrong with a request, and whether it may have been carried out nevertheless.
//!
//! Two kinds: the daemon answered and said no ([`Problem`]), or there is no answer to go by
//! ([`Transport`]). Invariant: an error says [`ClientError::may_have_run`] `false` only when no
//! byte of the request reached a daemon, or the daemon itself said that it did nothing.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use drowse_messages::{ProblemBody, ProblemClass};

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The daemon answered, and said no.
    #[error(transparent)]
    Problem(#[from] Box<Problem>),
    /// There is no answer to go by.
    #[error(transparent)]
    Transport(#[from] Transport),
}

impl ClientError {
    /// True when the request may have been carried out: look before it is repeated.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.class == ProblemClass::OutcomeUnknown,
            Self::Transport(transport) => transport.may_have_run(),
        }
    }

    /// The daemon's own word for the problem; `None` when it gave no answer.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            Self::Transport(_) => None,
        }
    }

    /// True when nothing listens where the daemon should be.
    #[must_use]
    pub fn is_no_daemon(&self) -> bool {
        matches!(self, Self::Transport(Transport::NoDaemon { .. }))
    }
}

/// The daemon's own account of why it did not do as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", if .detail.is_empty() { .title } else { .detail })]
#[non_exhaustive]
pub struct Problem {
    /// The kind of problem for programs; `http_NNN` when the answer was not a Drowse problem.
    pub code: String,
    /// What it means for the sender.
    pub class: ProblemClass,
    /// The HTTP status.
    pub status: u16,
    /// The kind of problem for people.
    pub title: String,
    /// What went wrong this time.
    pub detail: String,
    /// For `held`: what holds the session.
    pub held_by: Vec<String>,
    /// True when the same request may succeed later.
    pub retryable: bool,
}

/// 400 characters of an answer that is not a problem document: enough to recognise who wrote it.
const FOREIGN_CHARS_MAX: usize = 400;

impl Problem {
    /// Reads an answer's body. One that is no problem document (a proxy's, a web server's own) is
    /// kept as text, and what it means is told from its status.
    pub(crate) fn read(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<ProblemBody>(body) {
            Ok(body) => Self {
                code: body.code,
                class: body.class,
                status,
                title: body.title,
                detail: body.detail,
                held_by: body.held_by,
                retryable: body.retryable,
            },
            Err(_) => Self::foreign(status, &String::from_utf8_lossy(body)),
        }
    }

    fn foreign(status: u16, text: &str) -> Self {
        let class = if status >= 500 {
            ProblemClass::OutcomeUnknown
        } else {
            ProblemClass::TerminalRequest
        };
        Self {
            code: format!("http_{status}"),
            class,
            status,
            title: format!("the daemon answered with status {status}"),
            detail: text.trim().chars().take(FOREIGN_CHARS_MAX).collect(),
            held_by: Vec::new(),
            retryable: false,
        }
    }
}

/// What a cause may be: of whichever library reported it.
pub(crate) type Cause = Box<dyn StdError + Send + Sync>;

/// A request without an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Transport {
    /// Nothing listens there.
    #[error("no daemon is running ({place})")]
    NoDaemon {
        /// The socket or address.
        place: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Something is there, and the connection could not be made.
    #[error("failed to connect to the daemon ({place})")]
    Connect {
        /// The socket or address.
        place: String,
        /// What stood in the way.
        #[source]
        source: Cause,
    },
    /// The request could not be put into words.
    #[error("failed to make the request {request}: {detail}")]
    NotSent {
        /// Method and path.
        request: String,
        /// What is wrong with it.
        detail: String,
    },
    /// No answer in time.
    #[error("no answer to {request} within {} s", .within.as_secs())]
    NoAnswer {
        /// Method and path.
        request: String,
        /// How long was waited.
        within: Duration,
    },
    /// The connection ended before the answer did.
    #[error("lost the connection to the daemon during {request}")]
    Lost {
        /// Method and path.
        request: String,
        /// What was seen of it.
        #[source]
        source: Cause,
    },
    /// The answer is not one of this API's, or too large.
    #[error("failed to understand the answer to {request}: {detail}")]
    BadAnswer {
        /// Method and path.
        request: String,
        /// What is wrong with it.
        detail: String,
    },
}

impl Transport {
    /// True when the request may have been carried out.
    #[must_use]
    pub const fn may_have_run(&self) -> bool {
        match self {
            Self::NoDaemon { .. } | Self::Connect { .. } | Self::NotSent { .. } => false,
            Self::NoAnswer { .. } | Self::Lost { .. } | Self::BadAnswer { .. } => true,
        }
    }
}
