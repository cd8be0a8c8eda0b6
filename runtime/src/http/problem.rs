//! Every answer with a status of 400 or more, made in one place (RFC 9457).
//!
//! Fed by refusals of the daemon and by the endpoint's own checks. Invariant: `code` decides
//! status, class and title, so a program can rely on it alone.

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, WWW_AUTHENTICATE};
use actix_web::{HttpResponse, ResponseError};
use drowse_messages::{FailureCode, PROBLEM_JSON, ProblemBody, Refusal};

/// What a code stands for.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    code: FailureCode,
    status: StatusCode,
    title: &'static str,
}

impl Kind {
    const fn new(code: FailureCode, status: StatusCode, title: &'static str) -> Self {
        Self {
            code,
            status,
            title,
        }
    }
}

pub(super) const UNAUTHORIZED: Kind = Kind::new(
    FailureCode::Unauthorized,
    StatusCode::UNAUTHORIZED,
    "No valid token",
);
pub(super) const FORBIDDEN: Kind = Kind::new(
    FailureCode::Forbidden,
    StatusCode::FORBIDDEN,
    "Not allowed from there",
);
pub(super) const NO_SUCH_PATH: Kind = Kind::new(
    FailureCode::NoSuchPath,
    StatusCode::NOT_FOUND,
    "No such path",
);
const METHOD_NOT_ALLOWED: Kind = Kind::new(
    FailureCode::MethodNotAllowed,
    StatusCode::METHOD_NOT_ALLOWED,
    "No such method on this path",
);
pub(super) const BODY_TOO_LARGE: Kind = Kind::new(
    FailureCode::BodyTooLarge,
    StatusCode::PAYLOAD_TOO_LARGE,
    "Body too large",
);
pub(super) const BODY_TOO_SLOW: Kind = Kind::new(
    FailureCode::BodyTooSlow,
    StatusCode::REQUEST_TIMEOUT,
    "Body too slow",
);
pub(super) const TOO_MANY_STREAMS: Kind = Kind::new(
    FailureCode::TooManyStreams,
    StatusCode::SERVICE_UNAVAILABLE,
    "Too many event streams are open",
);
pub(super) const NOT_READY: Kind = Kind::new(
    FailureCode::NotReady,
    StatusCode::SERVICE_UNAVAILABLE,
    "Not ready",
);

fn kind_of(refusal: &Refusal) -> Kind {
    let (status, title) = match refusal {
        Refusal::NoSuchSession { .. } => (StatusCode::NOT_FOUND, "No such session"),
        Refusal::NoSuchMessage { .. } => (StatusCode::NOT_FOUND, "No such message"),
        Refusal::Ambiguous { .. } => (StatusCode::CONFLICT, "Several sessions fit"),
        Refusal::NameTaken { .. } => (StatusCode::CONFLICT, "The name is taken"),
        Refusal::UnknownAgent { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "No such agent"),
        Refusal::Invalid { .. } => (StatusCode::BAD_REQUEST, "The request is wrong"),
        Refusal::Held { .. } => (StatusCode::CONFLICT, "Something holds the session"),
        Refusal::Relayed { .. } => (StatusCode::CONFLICT, "A host has the session"),
        Refusal::NotRunning { .. } => (StatusCode::CONFLICT, "Nothing to do this to"),
        Refusal::CannotResume { .. } => {
            (StatusCode::CONFLICT, "The conversation cannot be resumed")
        }
        Refusal::NotPending { .. } => (StatusCode::GONE, "No longer pending"),
        Refusal::NotQueued { .. } => (StatusCode::CONFLICT, "The message no longer waits"),
        Refusal::NotParked { .. } => (StatusCode::CONFLICT, "The message is not parked"),
        Refusal::InboxFull { .. } => (StatusCode::TOO_MANY_REQUESTS, "The inbox is full"),
        Refusal::Draining => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The daemon is shutting down",
        ),
        Refusal::CannotRestart { .. } => (StatusCode::CONFLICT, "The daemon cannot be replaced"),
        Refusal::StoreFailed { .. } => (StatusCode::SERVICE_UNAVAILABLE, "The store failed"),
        Refusal::SessionFailed => (StatusCode::INTERNAL_SERVER_ERROR, "The session failed"),
    };
    Kind::new(FailureCode::from_code(refusal.code()), status, title)
}

/// A problem on its way to a client.
#[derive(Debug)]
pub(super) struct Problem {
    body: Box<ProblemBody>,
    /// For 405: the methods there are.
    allow: Option<&'static str>,
}

impl Problem {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let body = ProblemBody {
            kind: "about:blank".to_owned(),
            title: kind.title.to_owned(),
            status: kind.status.as_u16(),
            detail: detail.into(),
            code: kind.code.code().to_owned(),
            class: kind.code.class(),
            retryable: kind.code.retryable(),
            held_by: Vec::new(),
        };
        Self {
            body: Box::new(body),
            allow: None,
        }
    }

    /// Part of a request is wrong.
    pub(super) fn invalid(field: &str, detail: impl Into<String>) -> Self {
        Refusal::Invalid {
            field: field.to_owned(),
            detail: detail.into(),
        }
        .into()
    }

    pub(super) fn is_unauthorized(&self) -> bool {
        self.status_code() == StatusCode::UNAUTHORIZED
    }

    pub(super) fn method_not_allowed(allow: &'static str) -> Self {
        let problem = Self::new(METHOD_NOT_ALLOWED, format!("this path takes {allow}"));
        Self {
            allow: Some(allow),
            ..problem
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let mut problem = Self::new(kind_of(&refusal), refusal.to_string());
        if let Refusal::Held { held_by } = refusal {
            problem.body.held_by = held_by;
        }
        problem
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.body.code, self.body.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        response.content_type(PROBLEM_JSON);
        if let Some(allow) = self.allow {
            response.insert_header((ALLOW, HeaderValue::from_static(allow)));
        }
        if self.status_code() == StatusCode::UNAUTHORIZED {
            response.insert_header((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        }
        response.json(&self.body)
    }
}
