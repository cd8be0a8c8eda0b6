//! The beginning of a socket: who is there, which session is meant, and the words of the welcome.
//!
//! Fed by `attend.rs` with the first request. Invariant: nobody learns whether a session exists
//! before it has shown that it may.

use std::time::Duration;

use drowse_messages::{
    CloseWhy, Failure, FailureCode, Hello, Method, Position, Role, SOCKET_VERSION, SessionId,
    SessionState, SocketBounds, Welcome, Who, millis,
};
use drowse_policy::connections::{
    CALL_DEADLINE, CALL_DEADLINE_MAX, CALL_GRACE, CALLS_MAX, ConnectionId, DETACH_HOLD, Greeting,
    HEARTBEAT, Rejection, ResumeKey,
};

use super::super::Context;
use super::super::access::Reach;
use super::MESSAGE_BYTES_MAX;
use super::words::Request;

/// 64 characters of what a client calls itself fit a line of a listing.
const CLIENT_CHARS_MAX: usize = 64;

/// Why a hello leads nowhere.
#[derive(Debug)]
pub(super) enum NoEntry {
    /// The client may say it again, better.
    Again(Box<Failure>),
    /// The socket is closed.
    Close(CloseWhy),
}

/// What a hello leads to.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) session: SessionId,
    pub(super) by: Who,
    pub(super) greeting: Greeting,
    pub(super) person_awaited: bool,
}

/// Understands a hello.
pub(super) async fn enter(
    context: &Context,
    session: &str,
    by: &Who,
    reach: Reach,
    request: &mut Request,
    fresh: u64,
) -> Result<Entry, NoEntry> {
    if request.method != Method::Hello {
        let detail = "the first request is hello";
        let failure = Failure::new(FailureCode::OutOfOrder, detail);
        return Err(NoEntry::Again(Box::new(failure)));
    }
    let again = |failure: Failure| NoEntry::Again(Box::new(failure));
    let hello: Hello = request.params().map_err(again)?;
    let shown = hello.token.as_deref().unwrap_or_default().as_bytes();
    let tcp = context.tcp.as_ref().filter(|_| reach == Reach::Unproven);
    let may = reach == Reach::All || tcp.is_some_and(|tcp| tcp.token.is(shown));
    let may_look = reach == Reach::Watching || tcp.is_some_and(|tcp| tcp.read_token.is(shown));
    if !may && !may_look {
        return Err(NoEntry::Close(CloseWhy::Unauthorized));
    }
    if !may && hello.role == Role::Drive {
        return Err(NoEntry::Close(CloseWhy::Forbidden));
    }
    if hello.version != SOCKET_VERSION {
        let detail = format!("version: this daemon speaks {SOCKET_VERSION}");
        return Err(again(Failure::new(FailureCode::Invalid, detail)));
    }
    let no_session = |_| NoEntry::Close(CloseWhy::NoSuchSession);
    let session = context.daemon.resolve(session).await.map_err(no_session)?;
    let report = context.daemon.report(session).await.map_err(no_session)?;
    let resume = match hello.resume.as_deref().map(key) {
        Some(None) => {
            let detail = "resume: is no key of a connection";
            return Err(again(Failure::new(FailureCode::ResumeRefused, detail)));
        }
        Some(Some(key)) => Some(key),
        None => None,
    };
    let by = named(hello.client.as_deref(), by);
    let greeting = Greeting {
        role: hello.role,
        name: by_name(&by),
        take_over: hello.take_over,
        resume,
        keep: hello.keep.unwrap_or(true),
        idle: limit(hello.idle_timeout_ms),
        hard: limit(hello.hard_timeout_ms),
        fresh: ConnectionId(fresh),
        key: ResumeKey(random()?),
    };
    Ok(Entry {
        session,
        by,
        greeting,
        person_awaited: report.state == SessionState::NeedsYou,
    })
}

/// 0 switches a limit off, as everywhere.
fn limit(millis: Option<u64>) -> Option<Duration> {
    millis.filter(|&it| it > 0).map(Duration::from_millis)
}

fn named(name: Option<&str>, by: &Who) -> Who {
    let kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name
        .unwrap_or_default()
        .chars()
        .filter(kept)
        .take(CLIENT_CHARS_MAX)
        .collect();
    if name.is_empty() {
        by.clone()
    } else {
        Who::Client(name)
    }
}

fn by_name(by: &Who) -> String {
    if let Who::Client(name) = by {
        name.clone()
    } else {
        format!("{by:?}")
    }
}

/// 16 random bytes.
fn random() -> Result<[u8; 16], NoEntry> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let detail = format!("no random number for a key: {error}");
        NoEntry::Again(Box::new(Failure::new(FailureCode::StoreFailed, detail)))
    })?;
    Ok(bytes)
}

/// A name for a numbering that no other has.
pub(super) fn epoch(key: &ResumeKey, fresh: u64) -> String {
    // Half of it would do; the key itself must not be told to others, so it is only stirred in.
    let stirred = key
        .0
        .iter()
        .fold(fresh ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{stirred:016x}")
}

fn key(text: &str) -> Option<ResumeKey> {
    let text = text.as_bytes();
    let mut bytes = [0; 16];
    if text.len() != bytes.len() * 2 {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(ResumeKey(bytes))
}

/// The welcome of a connection.
pub(super) fn welcome(
    session: SessionId,
    connection: ConnectionId,
    key: &ResumeKey,
    role: Role,
    resumed: bool,
    position: Position,
) -> Welcome {
    let digits: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut welcome = Welcome::new(session, connection.0, digits, position);
    let may =
        |method: &Method| role == Role::Drive || super::calls::kind(*method).is_for_watchers();
    env!("CARGO_PKG_VERSION").clone_into(&mut welcome.daemon);
    welcome.resumed = resumed;
    welcome.role = role;
    welcome.capabilities = Method::ALL.into_iter().filter(may).collect();
    welcome.bounds = SocketBounds {
        message_bytes_max: MESSAGE_BYTES_MAX as u64,
        calls_max: CALLS_MAX as u64,
        heartbeat_ms: millis(HEARTBEAT),
        detach_hold_ms: millis(DETACH_HOLD),
        call_ms: millis(CALL_DEADLINE),
        call_grace_ms: millis(CALL_GRACE),
        call_ms_max: millis(CALL_DEADLINE_MAX),
    };
    welcome
}

/// A rejection in words.
pub(super) fn rejected(rejection: Rejection) -> Failure {
    let detail = match (&rejection.by, rejection.code) {
        (Some(by), FailureCode::Driven) => format!("{by} drives the session"),
        (Some(by), _) => format!("{by} took the driver's place a moment ago"),
        (None, _) if rejection.superseded => "another client took the place".to_owned(),
        (None, FailureCode::ResumeRefused) => "no such connection is known".to_owned(),
        (None, code) => code.code().replace('_', " "),
    };
    let mut failure = Failure::new(rejection.code, detail);
    if rejection.code == FailureCode::ResumeRefused {
        failure.drop_reason = Some(if rejection.superseded {
            drowse_messages::DropReason::Superseded
        } else {
            drowse_messages::DropReason::ResumeRefused
        });
    }
    failure.held_by = rejection.by.into_iter().collect();
    failure.retry_in_ms = rejection.retry_in.map(millis);
    failure
}
