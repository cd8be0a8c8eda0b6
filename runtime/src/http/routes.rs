//! What each path does.
//!
//! A route reads the request, asks the daemon, and writes the answer; it decides nothing. Reading
//! is never activity (behaviour 19).

use actix_web::http::header::{ACCEPT, LOCATION};
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource, guard};
use drowse_actors::ports::Page;
use drowse_messages::{
    AnswerAsk, AskReply, EVENT_STREAM, Interrupt, LAST_EVENT_ID, Name, Order, Refusal, SessionId,
    SessionState, StatusReport, Stop, StopHow, StopSession, Wake, WakeSession,
};
use serde::{Deserialize, Serialize};

use super::access::who;
use super::problem::{NO_SUCH_PATH, NOT_READY, Problem};
use super::stream::Place;
use super::watch::Watch;
use super::{Context, account, body, inbox, kept, kit, metrics, open, openapi, socket};

pub(super) type Answered = Result<HttpResponse, Problem>;

/// 100 of a listing fill a screen a few times over; whoever wants more says so.
pub(super) const LIST_DEFAULT: usize = 100;
/// 1,000 reports are about a megabyte of JSON.
pub(super) const LIST_MAX: usize = 1000;

/// An answer without anything to say: the order was accepted.
#[derive(Serialize)]
pub(super) struct Ordered {}

/// All paths.
pub(super) fn configure(app: &mut ServiceConfig) {
    app.app_data(
        web::PathConfig::default()
            .error_handler(|error, _| Problem::invalid("path", error.to_string()).into()),
    )
    .service(get_only("/livez", web::get().to(live)))
    .service(get_only("/readyz", web::get().to(ready)))
    .service(get_only("/metrics", web::get().to(scrape)))
    .service(get_only("/openapi.json", web::get().to(openapi::get)))
    .service(get_only("/v1/status", web::get().to(status)))
    .service(get_only("/v1/events", web::get().to(events)))
    .service(
        web::resource("/v1/kept")
            .route(web::get().to(kept::list))
            .route(web::post().to(kept::keep))
            .default_service(refuse_method("GET, POST")),
    )
    .service(post_only("/v1/restart", web::post().to(restart)))
    .service(
        web::resource("/v1/messages/{message}")
            .route(web::get().to(inbox::message))
            .route(web::delete().to(inbox::delete))
            .default_service(refuse_method("DELETE, GET")),
    )
    .service(post_only(
        "/v1/messages/{message}/retry",
        web::post().to(inbox::queue_again),
    ))
    .service(
        web::resource("/v1/sessions")
            .route(web::get().to(list))
            .route(web::post().to(open_session))
            .default_service(refuse_method("GET, POST")),
    )
    .service(
        web::resource("/v1/sessions/{session}")
            .route(web::get().to(report))
            .route(web::delete().to(remove))
            .default_service(refuse_method("DELETE, GET")),
    )
    .service(
        web::resource("/v1/sessions/{session}/messages")
            .route(web::get().to(inbox::messages))
            .route(
                web::post()
                    .guard(guard::fn_guard(wants_stream))
                    .to(inbox::send_and_follow),
            )
            .route(web::post().to(inbox::send))
            .default_service(refuse_method("GET, POST")),
    )
    .configure(configure_orders)
    .configure(configure_kit)
    .default_service(web::to(no_such_path));
}

/// What happened to a session, what happens, and what it is told.
fn configure_orders(app: &mut ServiceConfig) {
    app.service(get_only("/v1/sessions/{session}/log", web::get().to(log)))
        .service(get_only(
            "/v1/sessions/{session}/ws",
            web::get().to(socket::open),
        ))
        .service(post_only(
            "/v1/sessions/{session}/release",
            web::post().to(release),
        ))
        .service(post_only(
            "/v1/sessions/{session}/stop",
            web::post().to(stop),
        ))
        .service(post_only(
            "/v1/sessions/{session}/interrupt",
            web::post().to(interrupt),
        ))
        .service(post_only(
            "/v1/sessions/{session}/wake",
            web::post().to(wake),
        ))
        .service(post_only(
            "/v1/sessions/{session}/restart",
            web::post().to(account::restart),
        ))
        .service(
            web::resource("/v1/sessions/{session}/outcome")
                .route(web::put().to(inbox::record_outcome))
                .default_service(refuse_method("PUT")),
        )
        .service(post_only(
            "/v1/sessions/{session}/asks/{ask}",
            web::post().to(answer),
        ));
}

/// What an agent's own processes may use.
fn configure_kit(app: &mut ServiceConfig) {
    app.service(
        web::resource("/v1/sessions/{session}/tasks")
            .route(web::get().to(kit::tasks))
            .route(web::post().to(kit::start_task))
            .default_service(refuse_method("GET, POST")),
    )
    .service(
        web::resource("/v1/sessions/{session}/tasks/{name}")
            .route(web::delete().to(kit::end_task))
            .default_service(refuse_method("DELETE")),
    )
    .service(
        web::resource("/v1/sessions/{session}/holds")
            .route(web::get().to(kit::holds))
            .route(web::post().to(kit::take_hold))
            .default_service(refuse_method("GET, POST")),
    )
    .service(
        web::resource("/v1/sessions/{session}/holds/{hold}")
            .route(web::delete().to(kit::lift_hold))
            .default_service(refuse_method("DELETE")),
    );
}

fn get_only(path: &str, route: actix_web::Route) -> Resource {
    web::resource(path)
        .route(route)
        .default_service(refuse_method("GET"))
}

fn post_only(path: &str, route: actix_web::Route) -> Resource {
    web::resource(path)
        .route(route)
        .default_service(refuse_method("POST"))
}

fn refuse_method(allow: &'static str) -> actix_web::Route {
    web::to(move || async move { Answered::Err(Problem::method_not_allowed(allow)) })
}

async fn no_such_path(request: HttpRequest) -> Answered {
    let path: String = request.path().chars().take(200).collect();
    Err(Problem::new(
        NO_SUCH_PATH,
        format!("there is no path {path:?}"),
    ))
}

async fn live() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain").body("ok")
}

async fn ready(context: Data<Context>) -> Answered {
    let why = match context.daemon.status().await {
        Some(report) if report.ready && !report.draining => return Ok(live().await),
        Some(report) if !report.draining => "the daemon is starting",
        Some(_) | None => "the daemon is shutting down",
    };
    Err(Problem::new(NOT_READY, why))
}

async fn scrape(context: Data<Context>) -> Answered {
    let report = current_status(&context).await?;
    let text = metrics::render(&report).expect("writing to a string cannot fail");
    Ok(HttpResponse::Ok()
        .content_type(metrics::OPENMETRICS)
        .body(text))
}

async fn status(context: Data<Context>) -> Answered {
    Ok(HttpResponse::Ok().json(current_status(&context).await?))
}

async fn restart(context: Data<Context>) -> Answered {
    Ok(HttpResponse::Accepted().json(context.daemon.restart().await?))
}

async fn current_status(context: &Context) -> Result<StatusReport, Problem> {
    let report = context.daemon.status().await;
    report.ok_or_else(|| Refusal::Draining.into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
    state: Option<SessionState>,
    agent: Option<Name>,
}

async fn list(context: Data<Context>, request: HttpRequest) -> Answered {
    let query: ListQuery = body::query(request.query_string())?;
    let page = Page {
        after: query.after,
        limit: listing_limit(query.limit)?,
        state: query.state,
        agent: query.agent,
    };
    Ok(HttpResponse::Ok().json(context.daemon.list(page).await?))
}

pub(super) fn listing_limit(limit: Option<usize>) -> Result<usize, Problem> {
    match limit {
        None => Ok(LIST_DEFAULT),
        Some(limit) if (1..=LIST_MAX).contains(&limit) => Ok(limit),
        Some(limit) => Err(Problem::invalid(
            "limit",
            format!("{limit} is not between 1 and {LIST_MAX}"),
        )),
    }
}

async fn open_session(context: Data<Context>, request: HttpRequest, payload: Payload) -> Answered {
    let bytes = body::read(request.headers(), payload, &context.bounds).await?;
    let (config, new) = (context.config.current(), body::json(&bytes)?);
    // A file system that hangs must not stop everybody else's requests.
    let order = web::block(move || open::open_session(&config, new)).await;
    let order = order.map_err(|_| Problem::from(Refusal::Draining))??;
    let report = context.daemon.open(order).await?;
    let place = (LOCATION, format!("/v1/sessions/{}", report.id));
    Ok(HttpResponse::Created().insert_header(place).json(report))
}

async fn report(context: Data<Context>, session: web::Path<String>) -> Answered {
    let id = context.daemon.resolve(&session).await?;
    Ok(HttpResponse::Ok().json(context.daemon.report(id).await?))
}

pub(super) async fn order(context: &Context, session: &str, order: Order) -> Answered {
    let id = context.daemon.resolve(session).await?;
    context.daemon.order(id, order).await?;
    Ok(HttpResponse::Accepted().json(Ordered {}))
}

async fn end(context: &Context, session: &str, how: StopHow, request: &HttpRequest) -> Answered {
    order(
        context,
        session,
        Order::Stop(Stop {
            how,
            by: who(request),
        }),
    )
    .await
}

async fn remove(context: Data<Context>, session: web::Path<String>, r: HttpRequest) -> Answered {
    end(&context, &session, StopHow::Remove, &r).await
}

async fn release(context: Data<Context>, session: web::Path<String>, r: HttpRequest) -> Answered {
    end(&context, &session, StopHow::Release, &r).await
}

async fn stop(
    context: Data<Context>,
    session: web::Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Answered {
    let bytes = body::read(request.headers(), payload, &context.bounds).await?;
    let wanted: StopSession = body::json_or_default(&bytes)?;
    let how = if wanted.kept {
        StopHow::StopAll
    } else {
        StopHow::Stop
    };
    end(&context, &session, how, &request).await
}

async fn interrupt(context: Data<Context>, session: web::Path<String>, r: HttpRequest) -> Answered {
    order(
        &context,
        &session,
        Order::Interrupt(Interrupt { by: who(&r) }),
    )
    .await
}

async fn wake(
    context: Data<Context>,
    session: web::Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Answered {
    let bytes = body::read(request.headers(), payload, &context.bounds).await?;
    let wanted: WakeSession = body::json_or_default(&bytes)?;
    let wake = Wake {
        fresh: wanted.fresh,
        by: who(&request),
    };
    order(&context, &session, Order::Wake(wake)).await
}

async fn answer(
    context: Data<Context>,
    path: web::Path<(String, String)>,
    request: HttpRequest,
    payload: Payload,
) -> Answered {
    let (session, id) = path.into_inner();
    let bytes = body::read(request.headers(), payload, &context.bounds).await?;
    let reply: AskReply = body::json(&bytes)?;
    let answer = AnswerAsk {
        id,
        answer: reply.answer,
        by: who(&request),
    };
    order(&context, &session, Order::Answer(answer)).await
}

fn wants_stream(request: &guard::GuardContext<'_>) -> bool {
    let accepted = request.head().headers().get_all(ACCEPT);
    accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains(EVENT_STREAM))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    limit: Option<usize>,
    after: Option<u64>,
}

async fn log(context: Data<Context>, session: web::Path<String>, request: HttpRequest) -> Answered {
    let query: LogQuery = body::query(request.query_string())?;
    let limit = listing_limit(query.limit)?;
    let id = context.daemon.resolve(&session).await?;
    let events = context.daemon.events(query.after, limit, Some(id)).await?;
    Ok(HttpResponse::Ok().json(events))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    session: Option<String>,
    after: Option<u64>,
}

async fn events(context: Data<Context>, request: HttpRequest) -> Answered {
    let query: EventsQuery = body::query(request.query_string())?;
    // A client that comes back by itself sends the header along with its first query.
    let after = last_event_id(&request)?.or(query.after);
    let session: Option<SessionId> = match &query.session {
        Some(text) => Some(context.daemon.resolve(text).await?),
        None => None,
    };
    let place = Place::take(&context)?;
    let capacity = context.bounds.stream_events_max;
    Ok(place.stream(Watch::new(context.daemon.clone(), capacity, session, after)))
}

fn last_event_id(request: &HttpRequest) -> Result<Option<u64>, Problem> {
    let Some(value) = request.headers().get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || Problem::invalid(LAST_EVENT_ID, format!("{text:?} is not the id of an event"));
    text.parse().map(Some).map_err(|_| wrong())
}
