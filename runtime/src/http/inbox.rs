//! Messages that wait: taking one back, and queueing a parked one again. Over HTTP and on sockets.
//!
//! Fed by `routes.rs` and `socket/calls.rs`. What can be taken back is decided by the session; what
//! is over already is told from the store, which knows how.

use actix_web::web::{self, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use drowse_messages::{
    CancelMessage, MessageId, MessageState, NewOutcome, Order, RecordOutcome, Refusal,
    SavedMessage, SessionId, Who,
};

use super::access::who;
use super::front::Front;
use super::problem::Problem;
use super::routes::{Answered, order};
use super::{Context, body};

/// Takes a message back. Again is the same.
pub(super) async fn cancel(
    daemon: &dyn Front,
    session: SessionId,
    message: MessageId,
    by: Who,
) -> Result<SavedMessage, Refusal> {
    let saved = of_session(daemon, session, message).await?;
    match saved.state {
        MessageState::Cancelled => return Ok(saved),
        MessageState::Queued | MessageState::Delivered => {}
        MessageState::Answered
        | MessageState::Failed
        | MessageState::Unknown
        | MessageState::Parked => {
            let state = saved.state.code().to_owned();
            return Err(Refusal::NotQueued { message, state });
        }
    }
    let cancel = CancelMessage { message, by };
    daemon.order(session, Order::Cancel(cancel)).await?;
    daemon.message(message).await
}

/// Queues a parked message again.
pub(super) async fn retry(
    daemon: &dyn Front,
    session: SessionId,
    message: MessageId,
) -> Result<SavedMessage, Refusal> {
    of_session(daemon, session, message).await?;
    daemon.retry(session, message).await?;
    daemon.message(message).await
}

async fn of_session(
    daemon: &dyn Front,
    session: SessionId,
    message: MessageId,
) -> Result<SavedMessage, Refusal> {
    let saved = daemon.message(message).await?;
    if saved.session == session {
        return Ok(saved);
    }
    Err(Refusal::Invalid {
        field: "message".to_owned(),
        detail: format!("message {message} is of another session, {}", saved.session),
    })
}

/// `DELETE /v1/messages/{message}`.
pub(super) async fn delete(
    context: Data<Context>,
    message: web::Path<String>,
    request: HttpRequest,
) -> Answered {
    let message = number(&message)?;
    let session = context.daemon.message(message).await?.session;
    let cancelled = cancel(&*context.daemon, session, message, who(&request)).await?;
    Ok(HttpResponse::Ok().json(cancelled))
}

/// `POST /v1/messages/{message}/retry`.
pub(super) async fn queue_again(context: Data<Context>, message: web::Path<String>) -> Answered {
    let message = number(&message)?;
    let session = context.daemon.message(message).await?.session;
    let queued = retry(&*context.daemon, session, message).await?;
    Ok(HttpResponse::Accepted().json(queued))
}

/// `PUT /v1/sessions/{session}/outcome`.
pub(super) async fn record_outcome(
    context: Data<Context>,
    session: web::Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Answered {
    let bytes = body::read(request.headers(), payload, &context.bounds).await?;
    let NewOutcome { text } = body::json(&bytes)?;
    let by = who(&request);
    let record = RecordOutcome { text, by };
    order(&context, &session, Order::RecordOutcome(record)).await
}

/// The number of a message in a path.
pub(super) fn number(text: &str) -> Result<MessageId, Problem> {
    let number = text.parse().map(MessageId);
    number.map_err(|_| {
        Problem::invalid(
            "message",
            format!("{text:?} is not the number of a message"),
        )
    })
}
