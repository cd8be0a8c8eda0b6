//! Messages: sending one and waiting for its answer, looking at them, taking one back, queueing a
//! parked one again; and what came of a session.
//!
//! Fed by `routes.rs`, and in part by `socket/calls.rs`. What can be taken back is decided by the session; what
//! is over already is told from the store, which knows how.

use std::time::Duration;

use actix_web::http::header::LOCATION;
use actix_web::web::{self, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use drowse_messages::{
    Accepted, CancelMessage, IDEMPOTENCY_KEY, MessageId, MessageState, NewMessage, NewOutcome,
    Order, PREFER, PREFERENCE_APPLIED, RecordOutcome, Refusal, SavedMessage, SendMessage, Sent,
    SessionId, Who,
};
use serde::Deserialize;

use super::access::who;
use super::front::Front;
use super::life::Life;
use super::problem::Problem;
use super::routes::{Answered, listing_limit, order};
use super::stream::Place;
use super::{Context, body};

/// 10 MiB: a prompt with pictures in it.
pub(super) const MESSAGE_BYTES_MAX: usize = 10 << 20;

/// 256 bytes: a key is an id, and it is kept with the message.
pub(super) const KEY_BYTES_MAX: usize = 256;

/// 10 minutes of waiting for an answer in one request: proxies and clients give up before that.
/// Longer ones are asked for again, with the same key.
const WAIT_SECONDS_MAX: u64 = 600;

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
    daemon.retry(session, message).await?;
    daemon.message(message).await
}

/// A message of this session; one of another is none.
pub(super) async fn of_session(
    daemon: &dyn Front,
    session: SessionId,
    message: MessageId,
) -> Result<SavedMessage, Refusal> {
    let saved = daemon.message(message).await?;
    if saved.session == session {
        Ok(saved)
    } else {
        Err(Refusal::NoSuchMessage { message })
    }
}

async fn new_message(
    context: &Context,
    request: &HttpRequest,
    payload: Payload,
) -> Result<SendMessage, Problem> {
    let bytes = body::read(request.headers(), payload, &context.bounds).await?;
    let message: NewMessage = body::json(&bytes)?;
    if message.text.is_empty() {
        return Err(Problem::invalid("text", "is empty"));
    }
    if message.text.len() > MESSAGE_BYTES_MAX {
        return Err(Problem::invalid(
            "text",
            format!("is longer than {MESSAGE_BYTES_MAX} bytes"),
        ));
    }
    Ok(SendMessage {
        text: message.text,
        key: idempotency_key(request)?,
        priority: message.priority,
        by: who(request),
    })
}

fn idempotency_key(request: &HttpRequest) -> Result<Option<String>, Problem> {
    let Some(value) = request.headers().get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(key) if (1..=KEY_BYTES_MAX).contains(&key.len()) => Ok(Some(key.to_owned())),
        Ok(_) | Err(_) => Err(Problem::invalid(
            IDEMPOTENCY_KEY,
            format!("is not 1 to {KEY_BYTES_MAX} printable ASCII characters"),
        )),
    }
}

/// `Prefer: wait=N`; other preferences are not ours to know (RFC 7240).
fn preferred_wait(request: &HttpRequest) -> Result<Option<u64>, Problem> {
    let values = request.headers().get_all(PREFER);
    let mut all = values.flat_map(|it| it.to_str().unwrap_or_default().split(','));
    let wait = all.find_map(|one| {
        let (name, seconds) = one.split(';').next()?.split_once('=')?;
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        is_wait.then(|| seconds.trim().trim_matches('"'))
    });
    let Some(wait) = wait else { return Ok(None) };
    match wait.parse::<u64>() {
        Ok(seconds) => Ok(Some(seconds.min(WAIT_SECONDS_MAX))),
        Err(_) => Err(Problem::invalid(
            PREFER,
            format!("wait={wait:?} is not a whole number of seconds"),
        )),
    }
}

pub(super) async fn send(
    context: Data<Context>,
    session: web::Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Answered {
    let wait = preferred_wait(&request)?;
    let message = new_message(&context, &request, payload).await?;
    let session = context.daemon.resolve(&session).await?;
    if let Some(seconds) = wait {
        return send_and_wait(context, session, message, seconds).await;
    }
    let accepted = context.daemon.send(session, message).await?;
    Ok(accepted_as(&accepted, session))
}

fn accepted_as(accepted: &Accepted, session: SessionId) -> HttpResponse {
    let sent = Sent {
        message: accepted.message,
        duplicate: accepted.duplicate,
        session,
    };
    let place = (LOCATION, format!("/v1/messages/{}", accepted.message));
    HttpResponse::Accepted().insert_header(place).json(sent)
}

/// The message as it became if that is known in time, else as [`send`] answers.
async fn send_and_wait(
    context: Data<Context>,
    session: SessionId,
    message: SendMessage,
    seconds: u64,
) -> Answered {
    let place = Place::take(&context)?;
    let live = context
        .daemon
        .subscribe(context.bounds.stream_events_max, Some(session));
    let accepted = context.daemon.send(session, message).await?;
    let life = Life::new(context.daemon.clone(), live, accepted);
    if place.wait(life, Duration::from_secs(seconds)).await {
        let saved = context.daemon.message(accepted.message).await?;
        if saved.state.is_final() {
            let applied = (PREFERENCE_APPLIED, format!("wait={seconds}"));
            return Ok(HttpResponse::Ok().insert_header(applied).json(saved));
        }
    }
    Ok(accepted_as(&accepted, session))
}

pub(super) async fn send_and_follow(
    context: Data<Context>,
    session: web::Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Answered {
    let message = new_message(&context, &request, payload).await?;
    let session = context.daemon.resolve(&session).await?;
    let place = Place::take(&context)?;
    let live = context
        .daemon
        .subscribe(context.bounds.stream_events_max, Some(session));
    let accepted = context.daemon.send(session, message).await?;
    Ok(place.stream(Life::new(context.daemon.clone(), live, accepted)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitQuery {
    limit: Option<usize>,
}

pub(super) async fn messages(
    context: Data<Context>,
    session: web::Path<String>,
    request: HttpRequest,
) -> Answered {
    let query: LimitQuery = body::query(request.query_string())?;
    let limit = listing_limit(query.limit)?;
    let id = context.daemon.resolve(&session).await?;
    Ok(HttpResponse::Ok().json(context.daemon.messages(id, limit).await?))
}

pub(super) async fn message(context: Data<Context>, message: web::Path<String>) -> Answered {
    let id = number(&message)?;
    Ok(HttpResponse::Ok().json(context.daemon.message(id).await?))
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
fn number(text: &str) -> Result<MessageId, Problem> {
    let number = text.parse().map(MessageId);
    number.map_err(|_| {
        Problem::invalid(
            "message",
            format!("{text:?} is not the number of a message"),
        )
    })
}
