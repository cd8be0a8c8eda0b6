//! `/v1/kept`: which processes are kept, and that one is to be.
//!
//! Invariant: a number that is no process's, or no port's, never gets further than this.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use drowse_actors::KeepWish;
use drowse_messages::{KeepTarget, NewKeep};

use super::access::who;
use super::problem::Problem;
use super::routes::Answered;
use super::{Context, body};
use crate::config::keep_ttl;

pub(super) async fn list(context: Data<Context>) -> Answered {
    Ok(HttpResponse::Ok().json(context.daemon.kept().await?))
}

pub(super) async fn keep(
    context: Data<Context>,
    request: HttpRequest,
    payload: Payload,
) -> Answered {
    let bytes = body::read(request.headers(), payload, &context.bounds).await?;
    let new: NewKeep = body::json(&bytes)?;
    let target = target(&new)?;
    let ttl = new.ttl.as_deref().map(keep_ttl).transpose();
    let ttl = ttl.map_err(|wrong| Problem::invalid("ttl", wrong))?;
    let session = match &new.session {
        Some(text) => Some(context.daemon.resolve(text).await?),
        None => None,
    };
    let wish = KeepWish {
        target,
        session,
        ttl,
        by: who(&request),
    };
    Ok(HttpResponse::Created().json(context.daemon.keep(wish).await?))
}

/// D12: 0, 1 and negative numbers mean more than a process to the kernel.
fn target(new: &NewKeep) -> Result<KeepTarget, Problem> {
    match (new.pid, new.listen) {
        (Some(pid), None) => i32::try_from(pid)
            .ok()
            .filter(|&pid| pid > 1)
            .map(KeepTarget::Pid)
            .ok_or_else(|| Problem::invalid("pid", format!("{pid} is no pid of a process"))),
        (None, Some(port)) => u16::try_from(port)
            .ok()
            .filter(|&port| port > 0)
            .map(KeepTarget::Listen)
            .ok_or_else(|| Problem::invalid("listen", format!("{port} is no TCP port"))),
        (Some(_), Some(_)) | (None, None) => {
            let detail = "needs either pid or listen";
            Err(Problem::invalid("body", detail))
        }
    }
}
