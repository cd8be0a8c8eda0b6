//! `/v1/sessions/{id}/restart`: go on in the same conversation with another environment.
//!
//! Invariant: no value of an environment is repeated, neither in an answer nor in a refusal.

use actix_web::web::{self, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use drowse_messages::{AccountChange, ChangeAccount, HoldReport, RestartSession, RestartedSession};

use super::access::who;
use super::routes::Answered;
use super::{Context, body, open};

pub(super) async fn restart(
    context: Data<Context>,
    session: web::Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Answered {
    let bytes = body::read(request.headers(), payload, &context.bounds).await?;
    let wanted: RestartSession = body::json_or_default(&bytes)?;
    open::check_env(&wanted.env)?;
    let change = AccountChange {
        env: wanted.env,
        order: ChangeAccount { by: who(&request) },
    };
    let id = context.daemon.resolve(&session).await?;
    context.daemon.change_account(id, change).await?;
    let awake = context.daemon.report(id).await?.awake.unwrap_or_default();
    let waits = awake.account_change.is_some();
    let held_by = awake.holds.iter().filter(|_| waits).map(in_words);
    Ok(HttpResponse::Accepted().json(RestartedSession {
        waits,
        held_by: held_by.collect(),
    }))
}

/// As a refusal of a release words it.
fn in_words(hold: &HoldReport) -> String {
    format!("{} ({})", hold.kind.code(), hold.why)
}
