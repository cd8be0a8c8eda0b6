//! A model server for tests, scripted by the text of the conversation.
//!
//! Speaks the Anthropic Messages API, OpenAI's Chat Completions and Responses, and the Gemini API;
//! another one is one more module beside `anthropic` and one more line in `route`. What it answers
//! is decided by the newest
//! `MOCK:` directive a user wrote (`script`), so a test scripts a real agent by what it sends it.
//! Fed by: agents over HTTP on loopback. Invariant: every request is in the log before it is
//! answered; on drop all threads are joined and the port is free.

mod anthropic;
mod conversation;
mod gemini;
mod http;
mod openai_chat;
mod openai_responses;
mod script;

use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use conversation::{Item, Kind};

use crate::wait::{CEILING, scaled};
use http::{Exchange, Request};
use script::Answer;

/// 64 connections at once: a few agents with a few requests each; more is a bug in a test.
const CONNECTIONS_MAX: usize = 64;

/// 10 000 requests are logged: a test that makes more is stuck in a loop.
const REQUESTS_LOGGED_MAX: usize = 10_000;

/// Pause between two pieces of a slow answer.
const TICK_EVERY: Duration = Duration::from_millis(250);

/// One logged request.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The path, with its query.
    pub path: String,
    /// Header names in lower case that name a session, thread or conversation, with their values.
    pub session_headers: Vec<(String, String)>,
    /// Names of the tools that were offered.
    pub tools: Vec<String>,
    /// The conversation, flattened, oldest first.
    pub items: Vec<Item>,
}

impl ModelRequest {
    /// What the users said, oldest first.
    pub fn user_texts(&self) -> impl Iterator<Item = &str> {
        self.items
            .iter()
            .filter(|item| item.kind == Kind::User)
            .map(|item| item.text.as_str())
    }

    /// Whether a user said something that contains `text`.
    #[must_use]
    pub fn has_user(&self, text: &str) -> bool {
        self.user_texts().any(|said| said.contains(text))
    }
}

/// A running mock model server. See the module.
#[derive(Debug)]
pub struct MockModel {
    shared: Arc<Shared>,
    port: u16,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    requests: Vec<ModelRequest>,
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    thread: JoinHandle<()>,
}

impl MockModel {
    /// Starts a server on a free port of the loopback interface.
    ///
    /// # Panics
    /// When no port can be had.
    #[must_use]
    pub fn start() -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let port = listener
            .local_addr()
            .expect("a bound socket has an address")
            .port();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        let acceptor = Some(std::thread::spawn(move || accept(&listener, &accepting)));
        Self {
            shared,
            port,
            acceptor,
        }
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `http://127.0.0.1:PORT`, without a path.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// All requests so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.shared.state().requests.clone()
    }

    /// The first request, past or coming, that satisfies `wanted`.
    ///
    /// # Panics
    /// When it does not come within [`CEILING`]; the message lists the users' texts seen.
    #[track_caller]
    pub fn wait_for_request(
        &self,
        what: &str,
        mut wanted: impl FnMut(&ModelRequest) -> bool,
    ) -> ModelRequest {
        let end = Instant::now() + scaled(CEILING);
        let mut looked_at = 0;
        let mut state = self.shared.state();
        loop {
            if let Some(found) = state.requests[looked_at..]
                .iter()
                .find(|request| wanted(request))
            {
                return found.clone();
            }
            looked_at = state.requests.len();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seen: Vec<Vec<&str>> = state
                    .requests
                    .iter()
                    .map(|r| r.user_texts().collect())
                    .collect();
                panic!("no request for {what} reached the mock model; users said {seen:?}");
            }
            let woken = self.shared.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for MockModel {
    fn drop(&mut self) {
        self.shared.state().stopping = true;
        self.shared.changed.notify_all();
        // A connection of our own wakes the acceptor from its wait.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
        let connections = std::mem::take(&mut self.shared.state().connections);
        for connection in connections {
            drop(connection.stream.shutdown(Shutdown::Both));
            drop(connection.thread.join());
        }
    }
}

impl Shared {
    /// A test that panicked while it held the lock left a complete state behind.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rests for one tick; false when the server is to stop.
    fn tick(&self) -> bool {
        let state = self.state();
        let woken = self
            .changed
            .wait_timeout_while(state, TICK_EVERY, |state| !state.stopping);
        !woken.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    fn log(&self, request: ModelRequest) {
        let mut state = self.state();
        if state.requests.len() < REQUESTS_LOGGED_MAX {
            state.requests.push(request);
        }
        drop(state);
        self.changed.notify_all();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().flatten() {
        let mut state = shared.state();
        if state.stopping {
            return;
        }
        state
            .connections
            .retain(|connection| !connection.thread.is_finished());
        let Ok(reading) = stream.try_clone() else {
            continue;
        };
        if state.connections.len() == CONNECTIONS_MAX {
            continue;
        }
        let serving = Arc::clone(shared);
        let thread = std::thread::spawn(move || serve(reading, &serving));
        state.connections.push(Connection { stream, thread });
    }
}

/// Serves one connection: one request, one answer, closed. A client that goes away in the middle
/// is none of our business, so its errors end here.
fn serve(stream: TcpStream, shared: &Shared) {
    drop(Exchange::read(&stream).and_then(|(request, exchange)| route(&request, exchange, shared)));
    drop(stream.shutdown(Shutdown::Both));
}

fn route(request: &Request, exchange: Exchange<'_>, shared: &Shared) -> std::io::Result<()> {
    let path = request.path.split('?').next().unwrap_or_default();
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let items = if path.starts_with("/v1/messages") {
        anthropic::items(&body)
    } else if gemini::is_path(path) {
        gemini::items(&body)
    } else if path == "/v1/responses" {
        openai_responses::items(&body)
    } else {
        openai_chat::items(&body)
    };
    let tools = conversation::tools(&body);
    let answer = script::decide(&items, &tools);
    shared.log(ModelRequest {
        path: request.path.clone(),
        session_headers: request.session_headers(),
        tools,
        items,
    });
    let mut reply = Reply {
        exchange,
        shared,
        body: &body,
        answer,
    };
    match (request.method.as_str(), path) {
        ("POST", "/v1/messages/count_tokens") => reply.json(200, &json!({ "input_tokens": 10 })),
        ("POST", "/v1/messages") => anthropic::answer(reply),
        ("POST", "/v1/chat/completions") => openai_chat::answer(reply),
        ("POST", path) if gemini::is_path(path) => gemini::answer(reply, path),
        ("POST", "/v1/responses") => openai_responses::answer(reply),
        ("GET", "/v1/models") => {
            let model = json!({ "id": "mock-model", "object": "model" });
            reply.json(200, &json!({ "object": "list", "data": [model] }))
        }
        _ => reply.json(404, &json!({ "error": { "message": "not in the mock" } })),
    }
}

/// One answer on its way out.
struct Reply<'a> {
    exchange: Exchange<'a>,
    shared: &'a Shared,
    body: &'a Value,
    answer: Answer,
}

impl Reply<'_> {
    fn json(&mut self, status: u16, value: &Value) -> std::io::Result<()> {
        self.exchange.json(status, value)
    }

    fn streamed(&self) -> bool {
        self.body["stream"] == true
    }

    /// Calls `piece` with every piece of a text answer, at the pace the script wants.
    fn pieces(
        &mut self,
        mut piece: impl FnMut(&mut Exchange<'_>, &str) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        match &self.answer {
            Answer::Text(text) => piece(&mut self.exchange, text),
            Answer::Slow(duration) => {
                let ticks = (duration.as_millis() / TICK_EVERY.as_millis()).max(1);
                for tick in 0..ticks {
                    piece(&mut self.exchange, &format!("tick{tick} "))?;
                    if !self.shared.tick() {
                        return Err(std::io::ErrorKind::Interrupted.into());
                    }
                }
                Ok(())
            }
            Answer::Tool { .. } | Answer::Status(_) => Ok(()),
        }
    }
}
