//! Who may speak to the endpoint: the first thing that happens to every request.
//!
//! On the Unix socket: our own user and root, as the kernel says (`SO_PEERCRED`). On TCP: whoever
//! has the token, or for what only looks the token of watchers, and no web page: a foreign `Host` is
//! a rebound name, a foreign `Origin` a page that was opened in a browser (D54). On both: whoever
//! shows the token of a session, who then reaches that session's tasks and holds and nothing else.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};

use actix_web::body::MessageBody;
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN, UPGRADE, USER_AGENT};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, HttpRequest, rt, web};
use drowse_messages::{SessionId, Who};

use super::Context;
use super::listen::Token;
use super::problem::{FORBIDDEN, Problem, UNAUTHORIZED};
use crate::token::{SessionTokens, is_token_of_session};

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
enum Peer {
    /// Its user; `None` when the kernel did not say.
    Unix(Option<u32>),
    Tcp,
}

/// What TCP clients are checked against.
#[derive(Clone, Debug)]
pub(super) struct TcpAccess {
    pub(super) address: SocketAddr,
    pub(super) token: Token,
    pub(super) read_token: Token,
}

/// Notes who connected; requests on the connection find it again.
pub(super) fn note_peer(connection: &dyn Any, notes: &mut Extensions) {
    let unix = connection.downcast_ref::<rt::net::UnixStream>();
    let peer = unix.map_or(Peer::Tcp, |stream| {
        Peer::Unix(stream.peer_cred().map(|credentials| credentials.uid()).ok())
    });
    notes.insert(peer);
}

/// Lets a request through, or answers it with a problem.
pub(super) async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let context = request
        .app_data::<web::Data<Context>>()
        .expect("every app has its context");
    let checked = check(request.request(), context.tcp.as_ref(), &context.tokens);
    let reach = match checked {
        Err(problem) if problem.is_unauthorized() && is_handshake(request.request()) => {
            Reach::Unproven
        }
        checked => checked?,
    };
    if let Reach::Session(id) = reach {
        confine(request.path(), id)?;
    }
    request.extensions_mut().insert(reach);
    let (method, path) = (request.method().clone(), request.path().to_owned());
    let response = next.call(request).await?;
    tracing::debug!(%method, path, status = response.status().as_u16(), "request");
    Ok(response)
}

/// How far a request reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// As far as there is anything.
    All,
    /// To a WebSocket that watches.
    Watching,
    /// What a session's own processes may do for it.
    Session(SessionId),
    /// To a WebSocket's first message, which has to show the token: browsers put none in the head
    /// of a handshake.
    Unproven,
}

/// How far this request reaches: `guard` has found out.
pub(super) fn reach(request: &HttpRequest) -> Reach {
    let found = request.extensions().get::<Reach>().copied();
    found.expect("no request comes past the guard without it")
}

/// `GET /v1/sessions/SESSION/ws`, and nothing that only looks like it: such as the session, or the
/// task, that somebody named `ws`.
fn is_handshake(request: &HttpRequest) -> bool {
    let session = request
        .path()
        .strip_prefix("/v1/sessions/")
        .and_then(|rest| rest.strip_suffix("/ws"));
    request.method() == Method::GET
        && request.headers().contains_key(UPGRADE)
        && session.is_some_and(|session| !session.contains('/'))
}

/// What the token of a session opens: `/v1/sessions/ID/tasks` and `/holds` with this very id.
fn confine(path: &str, id: SessionId) -> Result<(), Problem> {
    let own = path
        .strip_prefix("/v1/sessions/")
        .and_then(|rest| rest.strip_prefix(&id.to_string()))
        .and_then(|rest| rest.strip_prefix('/'))
        .and_then(|rest| rest.split('/').next());
    if matches!(own, Some("tasks" | "holds")) {
        return Ok(());
    }
    let detail = format!("this token is for the tasks and holds of session {id} alone");
    Err(Problem::new(FORBIDDEN, detail))
}

fn check(
    request: &HttpRequest,
    tcp: Option<&TcpAccess>,
    tokens: &SessionTokens,
) -> Result<Reach, Problem> {
    match (request.conn_data::<Peer>(), tcp) {
        (Some(Peer::Unix(Some(uid))), _) if may_connect(*uid) => {
            match session_token(request.headers()) {
                None => Ok(Reach::All),
                Some(token) => reach_of(token, tokens),
            }
        }
        (Some(Peer::Unix(_)), _) => Err(Problem::new(FORBIDDEN, "this socket is another user's")),
        (Some(Peer::Tcp), Some(tcp)) => {
            let authority = request.uri().authority().map(|it| it.as_str().to_owned());
            let looking = if is_handshake(request) {
                Some(Reach::Watching)
            } else {
                // What a connection says after an upgrade is nobody's to see here.
                let looks = matches!(*request.method(), Method::GET | Method::HEAD)
                    && !request.headers().contains_key(UPGRADE);
                looks.then_some(Reach::All)
            };
            let host = authority.as_deref();
            check_host(request.headers(), host, tcp)?;
            check_token(request.headers(), looking, tcp, tokens)
        }
        (Some(Peer::Tcp), None) | (None, _) => Err(Problem::new(FORBIDDEN, "unknown connection")),
    }
}

/// The token of a session, if one is shown; the kernel has vouched for who shows it.
fn session_token(headers: &HeaderMap) -> Option<&[u8]> {
    let shown = headers.get_all(AUTHORIZATION);
    shown
        .filter_map(|value| bearer(value.as_bytes()))
        .find(|token| is_token_of_session(token))
}

fn reach_of(token: &[u8], tokens: &SessionTokens) -> Result<Reach, Problem> {
    let session = tokens.session(token).map(Reach::Session);
    session.ok_or_else(|| Problem::new(UNAUTHORIZED, "this is no session's token"))
}

fn may_connect(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

fn check_host(
    headers: &HeaderMap,
    authority: Option<&str>,
    tcp: &TcpAccess,
) -> Result<(), Problem> {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let ours = |name: &str| is_ours(name, tcp.address);
    // Two of them never come here: the parser refuses them.
    if !ours(host) || !authority.is_none_or(ours) {
        return Err(Problem::new(
            FORBIDDEN,
            format!("Host must be {}", tcp.address),
        ));
    }
    let same = format!("http://{host}");
    if headers
        .get_all(ORIGIN)
        .any(|origin| !origin.as_bytes().eq_ignore_ascii_case(same.as_bytes()))
    {
        return Err(Problem::new(FORBIDDEN, "Origin is another one's"));
    }
    Ok(())
}

/// `looking`: how far the token of watchers reaches; `None`: something is changed by the request.
fn check_token(
    headers: &HeaderMap,
    looking: Option<Reach>,
    tcp: &TcpAccess,
    tokens: &SessionTokens,
) -> Result<Reach, Problem> {
    let mut shown = headers
        .get_all(AUTHORIZATION)
        .map(|value| bearer(value.as_bytes()));
    match (shown.next(), shown.next()) {
        (Some(Some(token)), None) if tcp.token.is(token) => Ok(Reach::All),
        (Some(Some(token)), None) if tcp.read_token.is(token) => looking.ok_or_else(|| {
            let detail = "this token only looks; orders need that of the file \"token\"";
            Problem::new(FORBIDDEN, detail)
        }),
        (Some(Some(token)), None) if is_token_of_session(token) => reach_of(token, tokens),
        _ => Err(Problem::new(
            UNAUTHORIZED,
            "send \"Authorization: Bearer TOKEN\"; the token is in the file \"token\" of the state \
             folder",
        )),
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

/// A name of this machine, as far as it reaches itself, with the port we listen on.
fn is_ours(host: &str, address: SocketAddr) -> bool {
    let Some((name, port)) = host.rsplit_once(':') else {
        return false;
    };
    let bare = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(name);
    let loopback = bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let named = loopback || name.eq_ignore_ascii_case("localhost");
    named && port.parse() == Ok(address.port())
}

/// 64 characters of what a client calls itself fit a line of a listing.
const CLIENT_CHARS_MAX: usize = 64;

/// Who asks, for records: the product a client names, `api` when it names none.
pub(super) fn who(request: &HttpRequest) -> Who {
    let agent = request
        .headers()
        .get(USER_AGENT)
        .and_then(|value| value.to_str().ok());
    let product = agent
        .unwrap_or_default()
        .split(['/', ' '])
        .next()
        .unwrap_or_default();
    let name: String = product
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        .take(CLIENT_CHARS_MAX)
        .collect();
    Who::Client(if name.is_empty() {
        "api".to_owned()
    } else {
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D54: only names that mean this machine, with our port.
    #[test]
    fn hosts_are_ours_or_not() {
        let address = "127.0.0.1:7077".parse().unwrap();
        for ours in [
            "127.0.0.1:7077",
            "localhost:7077",
            "LocalHost:7077",
            "[::1]:7077",
        ] {
            assert!(is_ours(ours, address), "{ours}");
        }
        for other in [
            "",
            "localhost",
            "127.0.0.1",
            "localhost:80",
            "evil.example:7077",
            "localhost.evil.example:7077",
            "127.0.0.1.evil.example:7077",
            "192.168.0.1:7077",
            "0.0.0.0:7077",
            "[::1]",
        ] {
            assert!(!is_ours(other, address), "{other}");
        }
    }

    #[test]
    fn only_this_user_and_root_may_connect() {
        let me = nix::unistd::geteuid().as_raw();
        assert!(may_connect(me) && may_connect(0));
        assert!(!may_connect(me + 1));
    }
}
