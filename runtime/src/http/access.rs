//! Who may speak to the endpoint: the first thing that happens to every request.
//!
//! On the Unix socket: our own user and root, as the kernel says (`SO_PEERCRED`). On TCP: whoever
//! has the token, or for what only looks the token of watchers, and no web page: a foreign `Host` is a rebound name, a foreign `Origin` a page
//! that was opened in a browser (D54).

use std::any::Any;
use std::net::{IpAddr, SocketAddr};

use actix_web::body::MessageBody;
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN, UPGRADE, USER_AGENT};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, rt, web};
use drowse_messages::Who;

use super::Context;
use super::listen::Token;
use super::problem::{FORBIDDEN, Problem, UNAUTHORIZED};

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
    check(request.request(), context.tcp.as_ref())?;
    let (method, path) = (request.method().clone(), request.path().to_owned());
    let response = next.call(request).await?;
    tracing::debug!(%method, path, status = response.status().as_u16(), "request");
    Ok(response)
}

fn check(request: &HttpRequest, tcp: Option<&TcpAccess>) -> Result<(), Problem> {
    match (request.conn_data::<Peer>(), tcp) {
        (Some(Peer::Unix(Some(uid))), _) if may_connect(*uid) => Ok(()),
        (Some(Peer::Unix(_)), _) => Err(Problem::new(FORBIDDEN, "this socket is another user's")),
        (Some(Peer::Tcp), Some(tcp)) => {
            let authority = request.uri().authority().map(|it| it.as_str().to_owned());
            // What a connection says after an upgrade is nobody's to see here.
            let looks = matches!(*request.method(), Method::GET | Method::HEAD)
                && !request.headers().contains_key(UPGRADE);
            check_tcp(request.headers(), authority.as_deref(), looks, tcp)
        }
        (Some(Peer::Tcp), None) | (None, _) => Err(Problem::new(FORBIDDEN, "unknown connection")),
    }
}

fn may_connect(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

/// `looks`: nothing is changed by the request.
fn check_tcp(
    headers: &HeaderMap,
    authority: Option<&str>,
    looks: bool,
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
    let mut tokens = headers
        .get_all(AUTHORIZATION)
        .map(|value| bearer(value.as_bytes()));
    match (tokens.next(), tokens.next()) {
        (Some(Some(token)), None) if tcp.token.is(token) => Ok(()),
        (Some(Some(token)), None) if tcp.read_token.is(token) && looks => Ok(()),
        (Some(Some(token)), None) if tcp.read_token.is(token) => Err(Problem::new(
            FORBIDDEN,
            "this token only looks; orders need that of the file \"token\"",
        )),
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
