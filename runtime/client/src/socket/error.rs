//! What can go wrong on a connection, told apart by what it means for the caller.
//!
//! Invariant: what ends the connection, what leaves an outcome open and what was refused are three
//! types; only the last may say that nothing was done.

use drowse_messages::{CloseWhy, DropReason, Ends, Failure, FailureCode};

use crate::error::Transport;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The connection is over: every call on it fails from now on.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The call may have run. The connection goes on; look before it is repeated.
    #[error(transparent)]
    Unknown(#[from] UnknownOutcome),
    /// The daemon said no, and did nothing.
    #[error("{}: {}", .0.code.code(), .0.detail)]
    Refused(Box<Failure>),
    /// No connection could be made in the first place.
    #[error(transparent)]
    Connect(#[from] Transport),
}

impl SocketError {
    /// True when the call may have been carried out.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Closed(closed) => closed.code.may_have_run(),
            Self::Unknown(_) => true,
            Self::Refused(failure) => failure.may_have_run,
            Self::Connect(transport) => transport.may_have_run(),
        }
    }

    /// True when no call on this connection can succeed any more.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        match self {
            Self::Closed(_) | Self::Connect(_) => true,
            Self::Unknown(_) | Self::Refused(_) => false,
        }
    }

    /// The wire name of what went wrong; `None` when there was no connection.
    #[must_use]
    pub fn code(&self) -> Option<FailureCode> {
        match self {
            Self::Closed(closed) => Some(closed.code),
            Self::Unknown(unknown) => Some(unknown.code),
            Self::Refused(failure) => Some(failure.code),
            Self::Connect(_) => None,
        }
    }

    pub(crate) fn of(failure: Failure) -> Self {
        match (failure.ends, failure.may_have_run) {
            (Ends::Connection, _) => Closed {
                code: failure.code,
                drop_reason: failure.drop_reason,
                detail: failure.detail,
            }
            .into(),
            (Ends::Call, true) => UnknownOutcome {
                code: failure.code,
                detail: failure.detail,
            }
            .into(),
            (Ends::Call, false) => Self::Refused(Box::new(failure)),
        }
    }
}

/// The connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .code.code())]
#[non_exhaustive]
pub struct Closed {
    /// How: `request_timeout`, `connection_closed`, `idle_timeout`, `hard_timeout`, `unauthorized`,
    /// `forbidden`, `no_such_session`.
    pub code: FailureCode,
    /// For `connection_closed`: why it could not be taken up again.
    pub drop_reason: Option<DropReason>,
    /// For people.
    pub detail: String,
}

impl Closed {
    pub(crate) fn new(code: FailureCode, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self {
            code,
            drop_reason: None,
            detail,
        }
    }

    pub(crate) fn dropped(reason: DropReason, detail: impl Into<String>) -> Self {
        Self {
            drop_reason: Some(reason),
            ..Self::new(FailureCode::ConnectionClosed, detail)
        }
    }

    /// What a close frame of the daemon means; `None`: the connection can be taken up again.
    pub(crate) fn by_frame(why: Option<CloseWhy>) -> Option<Self> {
        let said = |code| Some(Self::new(code, "the daemon closed the connection"));
        match why {
            Some(CloseWhy::Unauthorized) => said(FailureCode::Unauthorized),
            Some(CloseWhy::Forbidden) => said(FailureCode::Forbidden),
            Some(CloseWhy::NoSuchSession) => said(FailureCode::NoSuchSession),
            Some(CloseWhy::IdleTimeout) => said(FailureCode::IdleTimeout),
            Some(CloseWhy::HardTimeout) => said(FailureCode::HardTimeout),
            Some(CloseWhy::Superseded) => Some(Self::dropped(
                DropReason::Superseded,
                "another client took the place",
            )),
            Some(CloseWhy::ProtocolError | CloseWhy::NotText | CloseWhy::TooLarge) => {
                Some(Self::dropped(
                    DropReason::ProxyError,
                    "the daemon could not read what was sent",
                ))
            }
            Some(CloseWhy::Normal | CloseWhy::SlowConsumer | CloseWhy::Draining) | None => None,
        }
    }
}

/// The call may have run; the connection goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .code.code())]
#[non_exhaustive]
pub struct UnknownOutcome {
    /// How: `unanswered`, `action_timeout`, `connection_resumed`, or a failure inside Drowse.
    pub code: FailureCode,
    /// For people.
    pub detail: String,
}

impl UnknownOutcome {
    pub(crate) fn new(code: FailureCode, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { code, detail }
    }
}
