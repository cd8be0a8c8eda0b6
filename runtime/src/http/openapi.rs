//! `/openapi.json`: the API as a document for programs (OpenAPI 3.1).
//!
//! Fed by the table of operations in here, and by `types.json`, which is made from the vocabulary:
//! a test makes it anew and compares. Other tests hold each path, method, parameter and status
//! against the routes and the guide. Invariant: it is the same for everybody and for as long as
//! the program runs; nothing of a session is in it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use actix_web::HttpResponse;
use drowse_messages::{EVENT_STREAM, IDEMPOTENCY_KEY, LAST_EVENT_ID, PROBLEM_JSON};
use serde_json::{Map, Value, json};

use super::metrics::OPENMETRICS;
use parameters::{parameter, parameter_about, path_parameters};

#[cfg(test)]
mod made;
mod parameters;
#[cfg(test)]
mod tests;

/// Every method on every path that is documented.
#[cfg(test)]
pub(super) fn requests() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPERATIONS.iter().map(|it| (it.method, it.path))
}

/// The schemas of all bodies.
const TYPES: &str = include_str!("openapi/types.json");

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

pub(super) async fn get() -> HttpResponse {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string());
    HttpResponse::Ok().content_type(JSON).body(text.as_str())
}

/// One method on one path.
struct Operation {
    path: &'static str,
    method: &'static str,
    id: &'static str,
    about: &'static str,
    /// The type that its query is read into, and what of it may be said.
    query: Option<(&'static str, &'static [&'static str])>,
    headers: &'static [&'static str],
    body: Body,
    status: u16,
    answers: &'static [(&'static str, Answer)],
    /// Codes of problems besides those that any request can meet.
    problems: &'static [&'static str],
}

/// What a request carries.
enum Body {
    None,
    /// A type; without a body it is what it is with all defaults.
    Optional(&'static str),
    Required(&'static str),
}

/// What a body of an answer is.
enum Answer {
    /// A string.
    Text,
    /// Server-sent events, each of them so.
    Events,
    /// An object of this type.
    One(&'static str),
    /// An array of such.
    All(&'static str),
    /// `{}`: accepted.
    Nothing,
}

/// What any request can meet on TCP.
const OF_ALL: [&str; 2] = ["unauthorized", "forbidden"];
/// What a request with a body can meet.
const OF_BODIES: [&str; 3] = ["invalid", "body_too_large", "body_too_slow"];
/// What the daemon can say to any request that reaches it.
const OF_DAEMON: [&str; 2] = ["draining", "store_failed"];
/// What a request for one session can meet.
const OF_SESSION: [&str; 3] = ["no_such_session", "ambiguous", "session_failed"];

/// The status of each code, as the problems themselves have it.
const STATUSES: [(&str, u16); 26] = [
    ("no_such_session", 404),
    ("no_such_message", 404),
    ("ambiguous", 409),
    ("name_taken", 409),
    ("unknown_agent", 422),
    ("invalid", 400),
    ("held", 409),
    ("not_running", 409),
    ("cannot_resume", 409),
    ("relayed", 409),
    ("not_queued", 409),
    ("not_parked", 409),
    ("not_pending", 410),
    ("inbox_full", 429),
    ("draining", 503),
    ("cannot_restart", 409),
    ("store_failed", 503),
    ("session_failed", 500),
    ("unauthorized", 401),
    ("forbidden", 403),
    ("no_such_path", 404),
    ("method_not_allowed", 405),
    ("body_too_large", 413),
    ("body_too_slow", 408),
    ("too_many_streams", 503),
    ("not_ready", 503),
];

/// A reader's operation, to be filled in.
const GET: Operation = Operation {
    path: "",
    method: "get",
    id: "",
    about: "",
    query: None,
    headers: &[],
    body: Body::None,
    status: 200,
    answers: &[],
    problems: &[],
};

/// An order's: accepted, and nothing more is said.
const POST: Operation = Operation {
    method: "post",
    status: 202,
    answers: &[(JSON, Answer::Nothing)],
    ..GET
};

const OPERATIONS: [Operation; 33] = [
    Operation {
        path: "/livez",
        id: "live",
        about: "200 while the endpoint answers",
        answers: &[(TEXT, Answer::Text)],
        ..GET
    },
    Operation {
        path: "/readyz",
        id: "ready",
        about: "200 while requests are served",
        answers: &[(TEXT, Answer::Text)],
        problems: &["not_ready"],
        ..GET
    },
    Operation {
        path: "/metrics",
        id: "metrics",
        about: "OpenMetrics text",
        answers: &[(OPENMETRICS, Answer::Text)],
        problems: &["draining"],
        ..GET
    },
    Operation {
        path: "/openapi.json",
        id: "openapi",
        about: "This document",
        answers: &[(JSON, Answer::Nothing)],
        ..GET
    },
    Operation {
        path: "/v1/status",
        id: "status",
        about: "The daemon: sessions by state, backends, releases, subscribers",
        answers: &[(JSON, Answer::One("StatusReport"))],
        problems: &["draining"],
        ..GET
    },
    Operation {
        path: "/v1/restart",
        id: "restart",
        about: "Has the daemon replaced by the program it was started from",
        answers: &[(JSON, Answer::One("Restarting"))],
        problems: &["cannot_restart", "draining"],
        ..POST
    },
    Operation {
        path: "/v1/events",
        id: "events",
        about: "An event stream of everything, or of one session: `id`, `event`, and `data` with an Event; first a snapshot, then kept events behind `after` or Last-Event-ID, then what happens",
        query: Some(("EventsQuery", &["session", "after"])),
        headers: &[LAST_EVENT_ID],
        answers: &[(EVENT_STREAM, Answer::Events)],
        problems: &[
            "no_such_session",
            "ambiguous",
            "invalid",
            "too_many_streams",
        ],
        ..GET
    },
    Operation {
        path: "/v1/kept",
        id: "kept",
        about: "All kept processes",
        answers: &[(JSON, Answer::All("KeptReport"))],
        problems: &["draining", "store_failed"],
        ..GET
    },
    Operation {
        path: "/v1/kept",
        id: "keep",
        about: "Keeps a process of a session that is awake",
        body: Body::Required("NewKeep"),
        status: 201,
        answers: &[(JSON, Answer::One("KeptReport"))],
        problems: &[
            "no_such_session",
            "ambiguous",
            "not_running",
            "session_failed",
        ],
        ..POST
    },
    Operation {
        path: "/v1/messages/{message}",
        id: "message",
        about: "One message and what became of it",
        answers: &[(JSON, Answer::One("SavedMessage"))],
        problems: &["no_such_message", "invalid", "store_failed", "draining"],
        ..GET
    },
    Operation {
        path: "/v1/messages/{message}",
        method: "delete",
        id: "cancel",
        about: "Takes back a message that waits. Again is the same",
        status: 200,
        answers: &[(JSON, Answer::One("SavedMessage"))],
        problems: &["no_such_message", "invalid", "not_queued", "session_failed"],
        ..POST
    },
    Operation {
        path: "/v1/messages/{message}/retry",
        id: "retry",
        about: "Queues a parked message again",
        answers: &[(JSON, Answer::One("SavedMessage"))],
        problems: &["no_such_message", "invalid", "not_parked"],
        ..POST
    },
    Operation {
        path: "/v1/sessions",
        id: "list",
        about: "A page of the sessions: awake ones first, then the most recently used",
        query: Some(("ListQuery", &["after", "limit", "state", "agent"])),
        answers: &[(JSON, Answer::One("SessionPage"))],
        problems: &["invalid", "store_failed", "draining"],
        ..GET
    },
    Operation {
        path: "/v1/sessions",
        id: "open",
        about: "Opens a session; no process is started by it. Without `env` the agent gets the usual variables of the daemon's own",
        body: Body::Required("NewSession"),
        status: 201,
        answers: &[(JSON, Answer::One("SessionReport"))],
        problems: &["unknown_agent", "name_taken"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}",
        id: "session",
        about: "One session",
        answers: &[(JSON, Answer::One("SessionReport"))],
        ..GET
    },
    Operation {
        path: "/v1/sessions/{session}",
        method: "delete",
        id: "remove",
        about: "Ends the process, and what it keeps, and forgets the session",
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/messages",
        id: "messages",
        about: "The newest messages, oldest first",
        query: Some(("LimitQuery", &["limit"])),
        answers: &[(JSON, Answer::All("SavedMessage"))],
        problems: &["invalid"],
        ..GET
    },
    Operation {
        path: "/v1/sessions/{session}/messages",
        id: "send",
        about: "Says something to the agent; the message is on disk when it is answered. The same Idempotency-Key is the same message. With `Prefer: wait=N` it is answered with 200 and the message as it became, if that is known within so many seconds. With `Accept: text/event-stream` it is answered with 200 and the events of this message's life, up to its final state",
        headers: &[IDEMPOTENCY_KEY],
        body: Body::Required("NewMessage"),
        answers: &[(JSON, Answer::One("Sent"))],
        problems: &["inbox_full", "relayed", "too_many_streams"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/outcome",
        method: "put",
        id: "record_outcome",
        about: "Records what came of the session, in the client's words; `null` takes it back",
        body: Body::Required("NewOutcome"),
        problems: &["invalid"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/log",
        id: "log",
        about: "Kept events of the session behind `after`, oldest first",
        query: Some(("LogQuery", &["limit", "after"])),
        answers: &[(JSON, Answer::All("Event"))],
        problems: &["invalid"],
        ..GET
    },
    Operation {
        path: "/v1/sessions/{session}/ws",
        id: "connect",
        about: "A WebSocket to the session, see docs/protocol.md",
        status: 101,
        problems: &["invalid", "too_many_streams"],
        ..GET
    },
    Operation {
        path: "/v1/sessions/{session}/release",
        id: "release",
        about: "Ends the process and keeps the session, unless something holds it",
        problems: &["held", "cannot_resume", "not_running"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/wake",
        id: "wake",
        about: "Starts the process without a message",
        body: Body::Optional("WakeSession"),
        problems: &["cannot_resume", "not_running"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/stop",
        id: "stop",
        about: "Ends the process and cancels its work; the session stays",
        body: Body::Optional("StopSession"),
        problems: &["not_running"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/restart",
        id: "restart_session",
        about: "Goes on in the same conversation with other variables in the environment, once nothing runs",
        body: Body::Optional("RestartSession"),
        answers: &[(JSON, Answer::One("RestartedSession"))],
        problems: &["cannot_resume", "not_running"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/tasks",
        id: "tasks",
        about: "The background tasks that are known",
        answers: &[(JSON, Answer::All("Task"))],
        ..GET
    },
    Operation {
        path: "/v1/sessions/{session}/tasks",
        id: "start_task",
        about: "A background task has begun; the same name again changes it",
        body: Body::Required("NewTask"),
        problems: &["not_running"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/tasks/{name}",
        method: "delete",
        id: "end_task",
        about: "It is over",
        problems: &["not_running", "invalid"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/holds",
        id: "holds",
        about: "Everything that holds the session",
        answers: &[(JSON, Answer::All("HoldReport"))],
        ..GET
    },
    Operation {
        path: "/v1/sessions/{session}/holds",
        id: "take_hold",
        about: "Keeps the session for a while; the same id again makes it last longer",
        body: Body::Required("NewHold"),
        status: 201,
        answers: &[(JSON, Answer::One("TakenHold"))],
        problems: &["not_running"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/holds/{hold}",
        method: "delete",
        id: "lift_hold",
        about: "Lifts a hold that was taken",
        problems: &["not_running", "invalid"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/interrupt",
        id: "interrupt",
        about: "Interrupts the turn, by the agent's protocol",
        problems: &["not_running"],
        ..POST
    },
    Operation {
        path: "/v1/sessions/{session}/asks/{ask}",
        id: "answer",
        about: "Answers what the agent asks",
        body: Body::Required("AskReply"),
        problems: &["not_pending", "not_running"],
        ..POST
    },
];

/// The whole document.
fn document() -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in &OPERATIONS {
        let item = paths.entry(operation.path).or_default();
        item.insert(operation.method.to_owned(), operation.described());
        let parameters = path_parameters(operation.path);
        if !parameters.is_empty() {
            item.insert("parameters".to_owned(), parameters.into());
        }
    }
    let schemas: Value = serde_json::from_str(TYPES).expect("a test made it");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Drowse",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Keeps AI coding agents while they work, releases them when idle, wakes them at the next message",
            "description": "JSON over a Unix socket, and over loopback TCP with a token. Objects of answers may have more fields in later versions, events more kinds; those of requests are taken strictly. Problems are RFC 9457, and their `code` says all a program needs.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        // Nothing is needed on the Unix socket: there the kernel says who asks.
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http", "scheme": "bearer",
                    "description": "The text of the file `token` in the state folder; for GET alone that of `token-read` will do.",
                },
            },
        },
    })
}

/// One event of a stream: a gap has no id.
fn event() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": { "type": "string", "pattern": "^[0-9]+$" },
            "event": { "type": "string" },
            "data": { "type": "string", "contentMediaType": JSON,
                      "contentSchema": reference("Event") },
        },
        "required": ["event", "data"],
    })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

impl Operation {
    fn described(&self) -> Value {
        let mut described = json!({
            "operationId": self.id,
            "summary": self.about,
            "responses": self.responses(),
        });
        let mut parameters = Vec::new();
        for name in self.query.iter().flat_map(|(_, names)| *names) {
            // Numbers of events, but for the list, where it is what the page before said.
            let schema = if *name == "after" && self.id != "list" {
                json!({ "type": "integer", "format": "uint64", "minimum": 0, "maximum": u64::MAX })
            } else {
                parameter(name)
            };
            parameters.push(json!({ "name": name, "in": "query", "schema": schema,
                                    "description": parameter_about(name) }));
        }
        for name in self.headers {
            parameters.push(
                json!({ "name": name, "in": "header", "schema": parameter(name),
                                    "description": parameter_about(name) }),
            );
        }
        if !parameters.is_empty() {
            described["parameters"] = parameters.into();
        }
        let (name, required) = match self.body {
            Body::None => return described,
            Body::Optional(name) => (name, false),
            Body::Required(name) => (name, true),
        };
        described["requestBody"] = json!({
            "required": required,
            "content": { JSON: { "schema": reference(name) } },
        });
        described
    }

    fn responses(&self) -> Value {
        let content = |(kind, answer): &(&str, Answer)| {
            let schema = match answer {
                Answer::Text => json!({ "type": "string" }),
                Answer::Events => event(),
                Answer::One(name) => reference(name),
                Answer::All(name) => json!({ "type": "array", "items": reference(name) }),
                Answer::Nothing => json!({ "type": "object" }),
            };
            ((*kind).to_owned(), json!({ "schema": schema }))
        };
        let content: Map<String, Value> = self.answers.iter().map(content).collect();
        let mut responses = Map::new();
        let mut success = json!({ "description": "Done", "content": content });
        if self.status == 202 {
            success["description"] = "Accepted; that it is done is an event".into();
        }
        if matches!(self.id, "open" | "send" | "take_hold") {
            let place = json!({ "schema": { "type": "string" }, "required": true });
            success["headers"] = json!({ "Location": place });
        }
        responses.insert(self.status.to_string(), success);
        if self.id == "send" {
            let stream = json!({
                EVENT_STREAM: { "schema": event() },
                JSON: { "schema": reference("SavedMessage") },
            });
            let about = "The events of the message's life, or what became of it";
            responses.insert(
                "200".to_owned(),
                json!({ "description": about, "content": stream }),
            );
        }
        for (status, codes) in self.problems() {
            let named: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
            let problem = json!({
                "description": named.join(", "),
                "content": { PROBLEM_JSON: { "schema": reference("ProblemBody") } },
            });
            responses.insert(status.to_string(), problem);
        }
        responses.into()
    }

    /// The codes it can be refused with, by status.
    fn problems(&self) -> BTreeMap<u16, Vec<&'static str>> {
        let mut codes: Vec<&str> = self.problems.to_vec();
        codes.extend(OF_ALL);
        if !matches!(self.body, Body::None) {
            codes.extend(OF_BODIES);
        }
        if self.path.contains("{session}") {
            codes.extend(OF_SESSION);
        }
        if self.path.contains("{session}") || !matches!(self.body, Body::None) {
            codes.extend(OF_DAEMON);
        }
        let mut by_status = BTreeMap::<u16, Vec<&str>>::new();
        for (code, status) in STATUSES {
            if codes.contains(&code) {
                by_status.entry(status).or_default().push(code);
            }
        }
        by_status
    }
}
