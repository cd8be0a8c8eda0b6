//! The HTTP endpoint: JSON over a Unix socket, and over loopback TCP with a token.
//!
//! | path | methods |
//! |---|---|
//! | `/livez` `/readyz` `/metrics` | GET |
//! | `/v1/status` `/v1/events` `/v1/messages/{n}` | GET |
//! | `/v1/sessions` | GET, POST |
//! | `/v1/sessions/{id}` | GET, DELETE |
//! | `/v1/sessions/{id}/messages` | GET, POST |
//! | `/v1/sessions/{id}/log` | GET |
//! | `/v1/sessions/{id}/release` `/wake` `/stop` `/interrupt` `/asks/{ask}` | POST |
//!
//! Fed by clients; asks the daemon through its [`Front`]. Decides nothing about sessions and keeps nothing of
//! them. Invariants: no request is looked at before its sender was (`access`); every failure is a
//! problem body (`problem`); everything a client can make us hold or wait for has a bound.
//! Bounds of the protocol's own parser are not ours to set: 96 headers in 128 KiB.

mod access;
mod body;
mod front;
mod life;
mod listen;
mod metrics;
mod open;
mod problem;
mod routes;
mod stream;
#[cfg(test)]
mod tests;
mod watch;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer, middleware, rt, web};
use tokio::sync::{Semaphore, watch as signal};

use access::TcpAccess;
pub use front::{Front, Live};
pub use listen::{ListenError, TcpSocket, UnixSocket};

use crate::config::Shared;

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
    /// Time for requests under way when the endpoint stops, in whole seconds.
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
    streams: Arc<Semaphore>,
    stopping: signal::Receiver<bool>,
}

/// A running endpoint. Dropped without [`Server::stop`], it goes on until its thread ends.
#[derive(Debug)]
pub struct Server {
    handle: ServerHandle,
    running: rt::task::JoinHandle<io::Result<()>>,
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
    bounds: Bounds,
) -> Result<Server, ListenError> {
    let (stopping, stopped) = signal::channel(false);
    let access = tcp.as_ref().map(|tcp| TcpAccess {
        address: tcp.address,
        token: tcp.token.clone(),
    });
    let context = web::Data::new(Context {
        daemon,
        config,
        streams: Arc::new(Semaphore::new(bounds.streams_max)),
        bounds: bounds.clone(),
        tcp: access,
        stopping: stopped,
    });
    let app = move || {
        App::new()
            .app_data(context.clone())
            .wrap(middleware::from_fn(access::guard))
            .configure(routes::configure)
    };
    let mut server = HttpServer::new(app)
        // Requests are short and the daemon has one arbiter behind them: one thread is enough.
        .workers(1)
        .max_connections(bounds.connections_max)
        .client_request_timeout(bounds.head_timeout)
        .keep_alive(bounds.keep_alive)
        .shutdown_timeout(bounds.stop_timeout.as_secs())
        .disable_signals()
        .on_connect(access::note_peer);
    let on = socket.path().display().to_string();
    let listener = socket.listener();
    server = listener
        .and_then(|listener| server.listen_uds(listener))
        .map_err(|source| ListenError::Io { on, source })?;
    if let Some(tcp) = tcp {
        let on = tcp.address.to_string();
        server = server
            .listen(tcp.listener)
            .map_err(|source| ListenError::Io { on, source })?;
    }
    let running = server.run();
    let handle = running.handle();
    Ok(Server {
        handle,
        running: rt::spawn(running),
        stopping,
        _socket: socket,
    })
}

impl Server {
    /// Stops: nobody new is let in, streams end after what was published, requests under way get
    /// [`Bounds::stop_timeout`]. The socket's name is gone when this returns.
    pub async fn stop(self) {
        self.stopping.send_replace(true);
        self.handle.stop(true).await;
        match self.running.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the endpoint ended badly"),
            Err(error) => tracing::warn!(%error, "the endpoint panicked"),
        }
    }
}
