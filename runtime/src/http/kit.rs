//! `/v1/sessions/{id}/tasks` and `/holds`: what hooks, extensions and scripts inside an agent tell,
//! and what anybody else may tell for them.
//!
//! Invariant: what is told is bounded and on one line before it gets further than this.

use actix_web::http::header::LOCATION;
use actix_web::web::{self, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use drowse_messages::{
    EndTask, HoldId, HoldLifted, HoldTaken, NewHold, NewTask, Order, Refusal, StartTask, TakenHold,
    Task, millis,
};

use super::access::{Reach, reach, who};
use super::problem::Problem;
use super::routes::{Answered, Ordered};
use super::{Context, body};
use crate::config::keep_ttl;

/// 200 characters of a name, an owner or a reason: a line of a listing.
const TEXT_CHARS_MAX: usize = 200;

/// 40 characters of a kind: a word.
const KIND_CHARS_MAX: usize = 40;

/// What a task is called that says nothing of its kind.
const KIND: &str = "task";

/// Who tells what is told with a session's own token and without a name.
const INSIDE: &str = "inside the agent";

/// Nine digits, none of them a leading zero: short enough to be typed. A session has at most 64
/// leases, so two of them meet as good as never.
const HOLD_IDS: std::ops::Range<u64> = 100_000_000..1_000_000_000;

pub(super) async fn tasks(context: Data<Context>, session: web::Path<String>) -> Answered {
    let id = context.daemon.resolve(&session).await?;
    let awake = context.daemon.report(id).await?.awake.unwrap_or_default();
    Ok(HttpResponse::Ok().json(awake.tasks))
}

pub(super) async fn start_task(
    context: Data<Context>,
    session: web::Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Answered {
    let bytes = body::read(request.headers(), payload, &context.bounds).await?;
    let new: NewTask = body::json(&bytes)?;
    let name = text("name", &new.name, TEXT_CHARS_MAX)?;
    let kind = text("kind", new.kind.as_deref().unwrap_or(KIND), KIND_CHARS_MAX)?;
    let why = text("why", new.why.as_deref().unwrap_or(&name), TEXT_CHARS_MAX)?;
    let start = StartTask {
        task: Task {
            id: name,
            kind,
            description: why,
            ambient: new.ambient,
        },
        owner: owner(new.owner.as_deref(), &request)?,
    };
    let id = context.daemon.resolve(&session).await?;
    context.daemon.order(id, Order::StartTask(start)).await?;
    Ok(HttpResponse::Accepted().json(Ordered {}))
}

pub(super) async fn end_task(
    context: Data<Context>,
    path: web::Path<(String, String)>,
) -> Answered {
    let (session, name) = path.into_inner();
    let id = context.daemon.resolve(&session).await?;
    let end = EndTask { id: name };
    context.daemon.order(id, Order::EndTask(end)).await?;
    Ok(HttpResponse::Accepted().json(Ordered {}))
}

pub(super) async fn holds(context: Data<Context>, session: web::Path<String>) -> Answered {
    let id = context.daemon.resolve(&session).await?;
    let awake = context.daemon.report(id).await?.awake.unwrap_or_default();
    Ok(HttpResponse::Ok().json(awake.holds))
}

pub(super) async fn take_hold(
    context: Data<Context>,
    session: web::Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Answered {
    let bytes = body::read(request.headers(), payload, &context.bounds).await?;
    let new: NewHold = body::json(&bytes)?;
    let ttl = keep_ttl(&new.ttl).map_err(|wrong| Problem::invalid("ttl", wrong))?;
    let why = text("why", &new.why, TEXT_CHARS_MAX)?;
    let owner = owner(new.owner.as_deref(), &request)?;
    let session = context.daemon.resolve(&session).await?;
    let id = match new.id {
        Some(id) => id,
        None => any_hold_id()?,
    };
    let taken = HoldTaken {
        id,
        why,
        owner,
        ttl,
    };
    context
        .daemon
        .order(session, Order::TakeHold(taken))
        .await?;
    let place = (LOCATION, format!("/v1/sessions/{session}/holds/{id}"));
    let ttl_ms = millis(ttl);
    let taken = TakenHold {
        session,
        id,
        ttl_ms,
    };
    Ok(HttpResponse::Created().insert_header(place).json(taken))
}

pub(super) async fn lift_hold(
    context: Data<Context>,
    path: web::Path<(String, String)>,
) -> Answered {
    let (session, hold) = path.into_inner();
    let id = hold.parse().map(HoldId).map_err(|_| {
        let shown: String = hold.chars().take(TEXT_CHARS_MAX).collect();
        Problem::invalid("hold", format!("{shown:?} is not the number of a hold"))
    })?;
    let session = context.daemon.resolve(&session).await?;
    let lifted = HoldLifted { id };
    context
        .daemon
        .order(session, Order::LiftHold(lifted))
        .await?;
    Ok(HttpResponse::Accepted().json(Ordered {}))
}

/// Text on one line, not too long, and something in it.
fn text(field: &str, given: &str, chars_max: usize) -> Result<String, Problem> {
    if given.trim().is_empty() {
        return Err(Problem::invalid(field, "is empty"));
    }
    if given.contains(char::is_control) {
        return Err(Problem::invalid(field, "has control characters in it"));
    }
    if given.chars().count() > chars_max {
        let detail = format!("is longer than {chars_max} characters");
        return Err(Problem::invalid(field, detail));
    }
    Ok(given.to_owned())
}

fn owner(given: Option<&str>, request: &HttpRequest) -> Result<String, Problem> {
    match (given, reach(request)) {
        (Some(given), _) => text("owner", given, TEXT_CHARS_MAX),
        (None, Reach::Session(_)) => Ok(INSIDE.to_owned()),
        (None, Reach::All | Reach::Watching | Reach::Unproven) => Ok(who(request).to_string()),
    }
}

fn any_hold_id() -> Result<HoldId, Problem> {
    let mut bytes = [0; size_of::<u64>()];
    getrandom::fill(&mut bytes).map_err(|error| {
        let detail = format!("no random number: {error}");
        Problem::from(Refusal::StoreFailed { detail })
    })?;
    let size = HOLD_IDS.end - HOLD_IDS.start;
    Ok(HoldId(HOLD_IDS.start + u64::from_le_bytes(bytes) % size))
}
