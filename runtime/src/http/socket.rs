//! `/v1/sessions/{id}/ws`: one client on one WebSocket.
//!
//! Fed by frames, by the switchboard and by the calls it runs; writes what policy lets it. Who may
//! speak is decided before the first call: by the connection itself (`access`), or by the token in
//! `hello`. Invariants: only text is understood; a message, a handshake, a write and a farewell have
//! their bounds; a client that does not read is waited for by nobody but this task.

mod attend;
mod calls;
mod farewell;
mod gate;
mod greet;
mod switchboard;
mod tape;
mod words;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix_web::web::{self, Data, Payload};
use actix_web::{HttpRequest, HttpResponse, rt};

use super::Context;
use super::access::{reach, who};
use super::problem::Problem;
use super::sever::Sever;
use super::stream::Place;
use attend::Socket;
use switchboard::Switchboard;

/// 12 MiB: a prompt of 10 MiB with its escapes, as over HTTP.
const MESSAGE_BYTES_MAX: usize = 12 << 20;

/// 10 s from the handshake to `hello`: a client sends it at once.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// 10 s for one frame to leave: whoever reads nothing for so long, with 32 frames before it, does
/// not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// 2 s for the other side to say goodbye.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// 30 s for a client that does not read to find out why it was closed.
const SLOW_CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// What all sockets share.
#[derive(Debug)]
pub(super) struct Sockets {
    board: actix::Addr<Switchboard>,
    /// Numbers of sockets, connections and calls.
    numbers: AtomicU64,
}

impl Sockets {
    /// Starts the switchboard on the thread of the endpoint.
    pub(super) fn start(
        daemon: std::sync::Arc<dyn super::Front>,
        arbiter: &actix_rt::ArbiterHandle,
    ) -> Self {
        use actix::Actor as _;
        Self {
            board: Switchboard::start_in_arbiter(arbiter, |_| Switchboard::new(daemon)),
            numbers: AtomicU64::new(1),
        }
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// Answers the handshake and attends to the socket.
pub(super) async fn open(
    context: Data<Context>,
    session: web::Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let place = Place::take(&context)?;
    let payload = gate::guard(&request, payload).await;
    let (response, out, frames) = actix_ws::handle(&request, payload)
        .map_err(|error| Problem::invalid("handshake", error.to_string()))?;
    let reach = reach(&request);
    let sever = request.conn_data::<Sever>().cloned().unwrap_or_default();
    let frames = frames
        .max_frame_size(MESSAGE_BYTES_MAX)
        .aggregate_continuations()
        .max_continuation_size(MESSAGE_BYTES_MAX);
    let stopping = context.stopping.clone();
    // Boxed, so that neither stands in the task twice: before and while it is attended to.
    let socket = Box::new(Socket::new(
        context,
        session.into_inner(),
        who(&request),
        reach,
        out,
    ));
    let frames = Box::new(frames);
    rt::spawn(async move {
        socket.attend(frames, stopping).await;
        sever.sever();
        drop(place);
    });
    Ok(response)
}
