//! How a socket ends: why, what that means for the calls under way, and the words of the goodbye.
//!
//! Fed by `attend.rs`. Invariant: every wait has a bound, whatever the other side does.

use std::io::ErrorKind;

use actix_web::error::PayloadError;
use actix_ws::{AggregatedMessage, AggregatedMessageStream, CloseReason, ProtocolError, Session};
use drowse_messages::{CloseWhy, FailureCode};
use drowse_policy::connections::Farewell;
use tokio::time::timeout;

use super::{CLOSE_TIMEOUT, SLOW_CLOSE_TIMEOUT};

/// How a socket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The daemon closes it.
    Close(CloseWhy),
    /// The client has closed it, for good or not.
    Closed(Farewell),
    /// Nobody is there.
    Cut,
}

/// What a close means for the calls under way.
pub(super) fn code_of(why: CloseWhy) -> FailureCode {
    let own = [
        (CloseWhy::IdleTimeout, FailureCode::IdleTimeout),
        (CloseWhy::HardTimeout, FailureCode::HardTimeout),
    ];
    let own = own.into_iter().find(|(it, _)| *it == why);
    own.map_or(FailureCode::ConnectionClosed, |(_, code)| code)
}

/// What it means that no more frames can be read.
pub(super) fn end_by(error: &ProtocolError) -> End {
    let ProtocolError::Io(error) = error else {
        let too_large = matches!(error, ProtocolError::Overflow);
        return End::Close(if too_large {
            CloseWhy::TooLarge
        } else {
            CloseWhy::ProtocolError
        });
    };
    let payload = error.get_ref().and_then(|it| it.downcast_ref());
    match payload {
        Some(PayloadError::Overflow) => End::Close(CloseWhy::TooLarge),
        // The connection broke, if only in one direction.
        Some(_) => End::Closed(Farewell::Lost),
        None if error.kind() == ErrorKind::InvalidData => End::Close(CloseWhy::ProtocolError),
        // A message in too many pieces is told in this way.
        None => End::Close(CloseWhy::TooLarge),
    }
}

pub(super) fn detail(code: FailureCode) -> &'static str {
    const DETAILS: [(FailureCode, &str); 5] = [
        (
            FailureCode::Unanswered,
            "no answer in time: it was abandoned, not cancelled",
        ),
        (
            FailureCode::NotDriver,
            "this connection watches; a driver gives orders",
        ),
        (
            FailureCode::TooManyCalls,
            "too many calls are under way on this connection",
        ),
        (
            FailureCode::IdleTimeout,
            "the connection was silent for too long",
        ),
        (
            FailureCode::HardTimeout,
            "the connection, or its session, is as old as it may become",
        ),
    ];
    let known = DETAILS.into_iter().find(|(known, _)| *known == code);
    known.map_or(
        "the connection ended before the answer came",
        |(_, text)| text,
    )
}

/// Closes a socket in good order, with a bound on each wait.
pub(super) async fn say_goodbye(out: Session, mut frames: AggregatedMessageStream, why: CloseWhy) {
    let patience = if why == CloseWhy::SlowConsumer {
        SLOW_CLOSE_TIMEOUT
    } else {
        CLOSE_TIMEOUT
    };
    let reason = CloseReason {
        code: why.code().into(),
        description: Some(why.reason().to_owned()),
    };
    let goodbye = async {
        if out.close(Some(reason)).await.is_err() {
            return;
        }
        if matches!(why, CloseWhy::TooLarge | CloseWhy::ProtocolError) {
            // Nothing it says is understood any more; it has this long to read why.
            std::future::pending::<()>().await;
        }
        // Until the other side has read it, and said goodbye as well.
        while let Some(Ok(frame)) = frames.recv().await {
            if matches!(frame, AggregatedMessage::Close(_)) {
                return;
            }
        }
    };
    drop(timeout(patience, goodbye).await);
}
