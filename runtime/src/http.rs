//! The HTTP endpoint: JSON over a Unix socket, and over loopback TCP with a token.
//!
//! | path | methods |
//! |---|---|
//! | `/livez` `/readyz` `/metrics` `/openapi.json` | GET |
//! | `/v1/status` `/v1/events` `/v1/messages/{n}` | GET |
//! | `/v1/kept` | GET, POST |
//! | `/v1/sessions` | GET, POST |
//! | `/v1/sessions/{id}` | GET, DELETE |
//! | `/v1/sessions/{id}/messages` | GET, POST |
//! | `/v1/sessions/{id}/log` `/ws` | GET |
//! | `/v1/sessions/{id}/tasks` `/holds` | GET, POST |
//! | `/v1/sessions/{id}/tasks/{name}` `/holds/{hold}` | DELETE |
//! | `/v1/sessions/{id}/release` `/wake` `/restart` `/stop` `/interrupt` `/asks/{ask}` | POST |
//!
//! Fed by clients; asks the daemon through its [`Front`]. Decides nothing about sessions and keeps nothing of
//! them. Invariants: no request is looked at before its sender was (`access`); every failure is a
//! problem body (`problem`); everything a client can make us hold or wait for has a bound.
//! Bounds of the protocol's own parser are not ours to set: 96 headers in 128 KiB.

mod accept;
mod access;
mod account;
mod body;
mod front;
mod inbox;
mod kept;
mod kit;
mod life;
mod listen;
mod metrics;
mod open;
mod openapi;
mod problem;
mod routes;
mod sever;
mod socket;
mod stream;
#[cfg(test)]
mod tests;
mod watch;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{rt, web};
use tokio::sync::{Semaphore, oneshot, watch as signal};

use accept::Door;
use access::TcpAccess;
pub use front::{Front, Live};
pub use listen::{ListenError, TcpSocket, UnixSocket};
use socket::Sockets;

use crate::config::Shared;
use crate::token::SessionTokens;

/// 12 MiB: a message of 10 MiB with its escapes, and the environment of a caller.
const BODY_BYTES_MAX: usize = 12 << 20;

/// 30 s for a body: a local client needs milliseconds for the largest.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// 5 s for a request's head, so that a connection which says nothing does not stay.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// 75 s between requests: longer than a person takes between two commands.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// 2,048 connections: every stream there may be, and as many short requests.
const CONNECTIONS_MAX: usize = 2048;

/// 1,024 event streams: more than a thousand watchers of one machine are a mistake in a client.
const STREAMS_MAX: usize = 1024;

/// 1,024 events wait for a slow reader; then it gets a gap instead.
const STREAM_EVENTS_MAX: usize = 1024;

/// 15 s of silence: half of the shortest idle timeout a proxy usually has.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// 5 s for requests under way when the endpoint stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// What the endpoint holds and waits for at most.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Bytes of a body.
    pub body_bytes_max: usize,
    /// Time for a body to arrive.
    pub body_timeout: Duration,
    /// Time for the head of a request to arrive.
    pub head_timeout: Duration,
    /// Time a connection may be silent between requests.
    pub keep_alive: Duration,
    /// Connections at a time.
    pub connections_max: usize,
    /// Event streams at a time.
    pub streams_max: usize,
    /// Events that wait for one slow reader.
    pub stream_events_max: usize,
    /// Silence after which a stream says that it lives.
    pub heartbeat_every: Duration,
    /// Time for requests under way when the endpoint stops.
    pub stop_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body_bytes_max: BODY_BYTES_MAX,
            body_timeout: BODY_TIMEOUT,
            head_timeout: HEAD_TIMEOUT,
            keep_alive: KEEP_ALIVE,
            connections_max: CONNECTIONS_MAX,
            streams_max: STREAMS_MAX,
            stream_events_max: STREAM_EVENTS_MAX,
            heartbeat_every: HEARTBEAT_EVERY,
            stop_timeout: STOP_TIMEOUT,
        }
    }
}

/// What every route can reach.
#[derive(Debug)]
struct Context {
    daemon: Arc<dyn Front>,
    config: Arc<Shared>,
    bounds: Bounds,
    tcp: Option<TcpAccess>,
    tokens: SessionTokens,
    streams: Arc<Semaphore>,
    sockets: Sockets,
    stopping: signal::Receiver<bool>,
}

/// A running endpoint. Dropped without [`Server::stop`], it goes on until its thread ends.
#[derive(Debug)]
pub struct Server {
    arbiter: actix_rt::Arbiter,
    ended: oneshot::Receiver<()>,
    stopping: signal::Sender<bool>,
    /// Held for its name, which goes last.
    _socket: UnixSocket,
}

/// Starts the endpoint on bound sockets, on a thread of its own. Call it inside an actix system.
///
/// # Errors
///
/// The system does not let us listen.
pub fn serve(
    daemon: Arc<dyn Front>,
    config: Arc<Shared>,
    socket: UnixSocket,
    tcp: Option<TcpSocket>,
    tokens: SessionTokens,
    bounds: Bounds,
) -> Result<Server, ListenError> {
    let (stopping, stopped) = signal::channel(false);
    let access = tcp.as_ref().map(|tcp| TcpAccess {
        address: tcp.address,
        token: tcp.token.clone(),
        read_token: tcp.read_token.clone(),
    });
    let on = socket.path().display().to_string();
    let unix = socket
        .listener()
        .map_err(|source| ListenError::Io { on, source })?;
    let arbiter = actix_rt::Arbiter::new();
    let context = Context {
        sockets: Sockets::start(daemon.clone(), &arbiter.handle()),
        daemon,
        config,
        streams: Arc::new(Semaphore::new(bounds.streams_max)),
        bounds: bounds.clone(),
        tcp: access,
        tokens,
        stopping: stopped.clone(),
    };
    let (done, ended) = oneshot::channel();
    // Requests are short and the daemon has one arbiter behind them: one thread is enough.
    arbiter.spawn_fn(move || {
        rt::spawn(async move {
            let attended = attend(context, unix, tcp.map(|tcp| tcp.listener), stopped).await;
            if let Err(error) = &attended {
                tracing::error!(%error, "the endpoint does not listen");
            }
            // Whoever started it may not wait for its end.
            let _gone = done.send(());
        });
    });
    Ok(Server {
        arbiter,
        ended,
        stopping,
        _socket: socket,
    })
}

/// Serves both sockets until the endpoint stops and what was open then has ended, or its time is
/// up.
async fn attend(
    context: Context,
    unix: std::os::unix::net::UnixListener,
    tcp: Option<std::net::TcpListener>,
    stopping: signal::Receiver<bool>,
) -> io::Result<()> {
    let Bounds {
        connections_max,
        stop_timeout,
        ..
    } = context.bounds;
    let room = Arc::new(Semaphore::new(connections_max));
    let door = Door {
        context: web::Data::new(context),
        room: room.clone(),
        stopping,
    };
    let unix = door.clone().attend(rt::net::UnixListener::from_std(unix)?);
    match tcp.map(rt::net::TcpListener::from_std).transpose()? {
        Some(tcp) => _ = tokio::join!(unix, door.attend(tcp)),
        None => unix.await,
    }
    let all = u32::try_from(connections_max).unwrap_or(u32::MAX);
    if tokio::time::timeout(stop_timeout, room.acquire_many(all))
        .await
        .is_err()
    {
        tracing::warn!("cut connections that did not end within {stop_timeout:?}");
    }
    Ok(())
}

impl Server {
    /// Stops: nobody new is let in, streams end after what was published, requests under way get
    /// [`Bounds::stop_timeout`]. The socket's name is gone when this returns.
    pub async fn stop(self) {
        self.stopping.send_replace(true);
        if self.ended.await.is_err() {
            tracing::warn!("the endpoint panicked");
        }
        self.arbiter.stop();
    }
}
