//! Talks to a running Drowse: every request of its HTTP API as a typed method.
//!
//! Fed by the command line and by programs that embed it; it needs a Tokio runtime around it and
//! nothing else. Each call has its own connection and a deadline; nothing is repeated behind the
//! caller's back, and an error always says whether the request may have been carried out.
//! Invariant: what comes from the other side is bounded, so a mad daemon cannot fill our memory.
//! It does not start a daemon, and knows no terminal.
//!
//! ```no_run
//! # async fn example() -> Result<(), drowse_client::ClientError> {
//! use drowse_messages::SessionEvent;
//!
//! let client = drowse_client::Client::unix("/run/user/1000/drowse/drowse.sock");
//! let mut events = client.send_streaming("fix-tests", "make them pass", None).await?;
//! while let Some(event) = events.next().await? {
//!     if let SessionEvent::Output { text, .. } = event.what {
//!         drop(text);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod call;
mod error;
mod socket;
mod sse;
mod stream;

use std::net::SocketAddr;
use std::path::PathBuf;

use drowse_messages::{
    Answer, AskReply, Event, HoldId, HoldReport, KeptReport, MessageId, NewHold, NewKeep,
    NewMessage, NewOutcome, NewSession, NewTask, RestartSession, RestartedSession, Restarting,
    SavedMessage, Sent, SessionPage, SessionReport, SessionState, StatusReport, StopSession,
    TakenHold, TaskReport, WakeSession,
};
use hyper::Method;

pub use crate::call::{ANSWER_BYTES_MAX, CALL_DEADLINE, CONNECT_DEADLINE};
use crate::call::{Call, Place};
pub use crate::error::{ClientError, Problem, Transport};
pub use crate::socket::{
    Closed, Connection, ConnectionBuilder, Events, Heard, Piece, PromptStream, REDIAL_FOR,
    REDIAL_WHILE_BUSY, REQUEST_GRACE, REQUEST_TIMEOUT, REQUEST_TIMEOUT_MAX, RESUME_VARIABLE,
    SocketError, UnknownOutcome,
};
pub use crate::sse::{EVENT_BYTES_MAX, LINE_BYTES_MAX};
pub use crate::stream::{EventStream, HEARTBEAT_DEADLINE};

/// A way to one daemon. Cheap to clone; it holds no connection.
#[derive(Clone, Debug)]
pub struct Client {
    place: Place,
    name: String,
}

/// Which part of the list of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// [`SessionPage::next`] of the page before; `None`: from the start.
    pub after: Option<String>,
    /// At most this many; `None`: as many as the daemon likes to give at once.
    pub limit: Option<usize>,
    /// Only those in this state.
    pub state: Option<SessionState>,
    /// Only those of this agent.
    pub agent: Option<String>,
}

/// Which events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsQuery {
    /// Only those of this session (id, unique prefix or name).
    pub session: Option<String>,
    /// Kept events after this number first; `None`: only what happens from now on.
    pub after: Option<u64>,
}

impl Client {
    /// The daemon behind a Unix socket. Nothing is connected yet.
    #[must_use]
    pub fn unix(socket: impl Into<PathBuf>) -> Self {
        let path = socket.into();
        Self::at(Place::Unix { path, token: None })
    }

    /// The daemon behind a Unix socket as a session's own processes reach it: with the session's
    /// token, for its tasks and holds and nothing else.
    #[must_use]
    pub fn unix_for_session(socket: impl Into<PathBuf>, token: impl Into<String>) -> Self {
        let (path, token) = (socket.into(), Some(token.into()));
        Self::at(Place::Unix { path, token })
    }

    /// The daemon behind a TCP address, with the text of its token file.
    #[must_use]
    pub fn tcp(addr: SocketAddr, token: impl Into<String>) -> Self {
        let token = token.into().trim().to_owned();
        Self::at(Place::Tcp { addr, token })
    }

    fn at(place: Place) -> Self {
        let name = env!("CARGO_PKG_NAME").to_owned();
        Self { place, name }
    }

    /// The name under which the daemon remembers who gave an order, `drowse-client` unless set:
    /// printable ASCII without `/`.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    fn call(&self, method: Method, path: String) -> Call<'_> {
        Call::new(&self.place, &self.name, method, path)
    }

    fn get(&self, path: impl Into<String>) -> Call<'_> {
        self.call(Method::GET, path.into())
    }

    fn post(&self, path: impl Into<String>) -> Call<'_> {
        self.call(Method::POST, path.into())
    }

    /// `GET /readyz`: true once the daemon takes requests, false while it starts or ends.
    ///
    /// # Errors
    /// Only [`ClientError::Transport`].
    pub async fn ready(&self) -> Result<bool, ClientError> {
        self.get("/readyz").succeeds().await
    }

    /// `GET /livez`: true while the daemon is alive.
    ///
    /// # Errors
    /// Only [`ClientError::Transport`].
    pub async fn live(&self) -> Result<bool, ClientError> {
        self.get("/livez").succeeds().await
    }

    /// `GET /metrics`: the OpenMetrics text.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn metrics(&self) -> Result<String, ClientError> {
        self.get("/metrics").text().await
    }

    /// `GET /v1/status`: the daemon as a whole.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<StatusReport, ClientError> {
        self.get("/v1/status").json().await
    }

    /// `POST /v1/restart`: has the daemon replaced by the program it was started from. Returns
    /// when that begins; connections end then, and [`Client::ready`] is false until it is done.
    ///
    /// # Errors
    /// See [`ClientError`]; `cannot_restart` when nothing was changed.
    pub async fn restart(&self) -> Result<Restarting, ClientError> {
        self.post("/v1/restart").json().await
    }

    /// `GET /v1/sessions`: one page, awake ones first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn sessions(&self, query: &ListQuery) -> Result<SessionPage, ClientError> {
        self.get("/v1/sessions")
            .query("after", query.after.as_deref())
            .query("limit", query.limit)
            .query("state", query.state.map(SessionState::code))
            .query("agent", query.agent.as_deref())
            .json()
            .await
    }

    /// `POST /v1/sessions`: opens a session; no process is started by it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn open(&self, new: &NewSession) -> Result<SessionReport, ClientError> {
        self.post("/v1/sessions").body(new)?.json().await
    }

    /// `GET /v1/sessions/{id}`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn session(&self, session: &str) -> Result<SessionReport, ClientError> {
        self.get(session_path(session, "")?).json().await
    }

    /// `POST /v1/sessions/{id}/messages`: returns once the message is on disk. The same `key`
    /// again is the same message. A text alone waits for its turn; see [`NewMessage`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send(
        &self,
        session: &str,
        message: impl Into<NewMessage>,
        key: Option<&str>,
    ) -> Result<Sent, ClientError> {
        self.message_call(session, message.into(), key)?
            .json()
            .await
    }

    /// The same, followed by all that becomes of the message, up to its final state.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send_streaming(
        &self,
        session: &str,
        message: impl Into<NewMessage>,
        key: Option<&str>,
    ) -> Result<EventStream, ClientError> {
        self.message_call(session, message.into(), key)?
            .events()
            .await
    }

    fn message_call(
        &self,
        session: &str,
        message: NewMessage,
        key: Option<&str>,
    ) -> Result<Call<'_>, ClientError> {
        Ok(self
            .post(session_path(session, "/messages")?)
            .header(drowse_messages::IDEMPOTENCY_KEY, key)
            .body(&message)?)
    }

    /// `GET /v1/sessions/{id}/messages`: the newest `limit` messages, oldest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn messages(
        &self,
        session: &str,
        limit: usize,
    ) -> Result<Vec<SavedMessage>, ClientError> {
        let call = self.get(session_path(session, "/messages")?);
        call.query("limit", Some(limit)).json().await
    }

    /// `GET /v1/messages/{n}`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn message(&self, message: MessageId) -> Result<SavedMessage, ClientError> {
        self.get(format!("/v1/messages/{message}")).json().await
    }

    /// `DELETE /v1/messages/{n}`: takes back a message that waits. Again is the same.
    ///
    /// # Errors
    /// See [`ClientError`]; `not_queued` when it was delivered, or is over otherwise.
    pub async fn cancel(&self, message: MessageId) -> Result<SavedMessage, ClientError> {
        let path = format!("/v1/messages/{message}");
        self.call(Method::DELETE, path).json().await
    }

    /// `POST /v1/messages/{n}/retry`: queues a parked message again.
    ///
    /// # Errors
    /// See [`ClientError`]; `not_parked` for any other.
    pub async fn retry(&self, message: MessageId) -> Result<SavedMessage, ClientError> {
        let path = format!("/v1/messages/{message}/retry");
        self.post(path).json().await
    }

    /// `PUT /v1/sessions/{id}/outcome`: records how what the session was for went, in the client's
    /// words, readable for as long as the session is known; `None` takes it back.
    ///
    /// # Errors
    /// See [`ClientError`]; `invalid` for an empty text and for one above 4 KiB.
    pub async fn record_outcome(
        &self,
        session: &str,
        text: Option<&str>,
    ) -> Result<(), ClientError> {
        let path = session_path(session, "/outcome")?;
        let text = text.map(str::to_owned);
        let call = self.call(Method::PUT, path).body(&NewOutcome { text })?;
        call.done().await
    }

    /// `GET /v1/sessions/{id}/log`: the newest `limit` kept events of the session, oldest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn log(&self, session: &str, limit: usize) -> Result<Vec<Event>, ClientError> {
        let call = self.get(session_path(session, "/log")?);
        call.query("limit", Some(limit)).json().await
    }

    /// `GET /v1/events`: how things stand, then what happens, until the daemon ends.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self, query: &EventsQuery) -> Result<EventStream, ClientError> {
        self.get("/v1/events")
            .query("session", query.session.as_deref())
            .query("after", query.after)
            .events()
            .await
    }

    /// `POST /v1/sessions/{id}/release`: returns when the order is accepted.
    ///
    /// # Errors
    /// See [`ClientError`]; `held` when something holds the session.
    pub async fn release(&self, session: &str) -> Result<(), ClientError> {
        self.order(session, "/release").await
    }

    /// `POST /v1/sessions/{id}/stop`: returns when the order is accepted.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn stop(&self, session: &str) -> Result<(), ClientError> {
        self.order(session, "/stop").await
    }

    /// `POST /v1/sessions/{id}/stop` for what the session keeps, too: returns when the order is
    /// accepted.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn stop_all(&self, session: &str) -> Result<(), ClientError> {
        let call = self.post(session_path(session, "/stop")?);
        call.body(&StopSession { kept: true })?.done().await
    }

    /// `GET /v1/kept`: every process that is kept, or is to be, and still runs.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn kept(&self) -> Result<Vec<KeptReport>, ClientError> {
        self.get("/v1/kept").json().await
    }

    /// `POST /v1/kept`: keeps a process of a live session when its backend ends.
    ///
    /// # Errors
    /// See [`ClientError`]; `invalid` when it belongs to no session, or is an agent.
    pub async fn keep(&self, new: &NewKeep) -> Result<KeptReport, ClientError> {
        self.post("/v1/kept").body(new)?.json().await
    }

    /// `POST /v1/sessions/{id}/interrupt`: returns when the order is accepted.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn interrupt(&self, session: &str) -> Result<(), ClientError> {
        self.order(session, "/interrupt").await
    }

    /// `POST /v1/sessions/{id}/wake`: returns when the order is accepted.
    ///
    /// # Errors
    /// See [`ClientError`]; `cannot_resume` when only `fresh` would help.
    pub async fn wake(&self, session: &str, fresh: bool) -> Result<(), ClientError> {
        let call = self.post(session_path(session, "/wake")?);
        call.body(&WakeSession { fresh })?.done().await
    }

    /// `POST /v1/sessions/{id}/restart`: goes on in the same conversation with these variables put
    /// over those it has. Returns when they are on disk; a session that is busy is restarted once it
    /// is at rest.
    ///
    /// # Errors
    /// See [`ClientError`]; `cannot_resume` when the conversation would be lost.
    pub async fn restart_session(
        &self,
        session: &str,
        wanted: &RestartSession,
    ) -> Result<RestartedSession, ClientError> {
        let call = self.post(session_path(session, "/restart")?);
        call.body(wanted)?.json().await
    }

    /// `DELETE /v1/sessions/{id}`: returns when the order is accepted.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn remove(&self, session: &str) -> Result<(), ClientError> {
        let path = session_path(session, "")?;
        self.call(Method::DELETE, path).done().await
    }

    /// `POST /v1/sessions/{id}/tasks`: a background task has begun; it holds the session, unless it
    /// is ambient, until it ends or the session's process does.
    ///
    /// # Errors
    /// See [`ClientError`]; `not_running` when the session has no process.
    pub async fn start_task(&self, session: &str, new: &NewTask) -> Result<(), ClientError> {
        let path = session_path(session, "/tasks")?;
        self.post(path).body(new)?.done().await
    }

    /// `DELETE /v1/sessions/{id}/tasks/{name}`: it is over. One that is over already is fine.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn end_task(&self, session: &str, name: &str) -> Result<(), ClientError> {
        let path = session_path(session, "/tasks/")? + &call::encoded(name);
        self.call(Method::DELETE, path).done().await
    }

    /// `GET /v1/sessions/{id}/tasks`: the background tasks that are known.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn tasks(&self, session: &str) -> Result<Vec<TaskReport>, ClientError> {
        self.get(session_path(session, "/tasks")?).json().await
    }

    /// `POST /v1/sessions/{id}/holds`: keeps the session for a while, or for longer.
    ///
    /// # Errors
    /// See [`ClientError`]; `not_running` when the session has no process.
    pub async fn take_hold(&self, session: &str, new: &NewHold) -> Result<TakenHold, ClientError> {
        let path = session_path(session, "/holds")?;
        self.post(path).body(new)?.json().await
    }

    /// `DELETE /v1/sessions/{id}/holds/{hold}`: lifts a hold. One that is over already is fine.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn lift_hold(&self, session: &str, hold: HoldId) -> Result<(), ClientError> {
        let path = session_path(session, "/holds/")? + &hold.to_string();
        self.call(Method::DELETE, path).done().await
    }

    /// `GET /v1/sessions/{id}/holds`: everything that holds the session now.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn holds(&self, session: &str) -> Result<Vec<HoldReport>, ClientError> {
        self.get(session_path(session, "/holds")?).json().await
    }

    /// `POST /v1/sessions/{id}/asks/{ask}`: answers what the agent asks.
    ///
    /// # Errors
    /// See [`ClientError`]; `not_pending` when it does not ask any more.
    pub async fn answer(
        &self,
        session: &str,
        ask: &str,
        answer: Answer,
    ) -> Result<(), ClientError> {
        let path = session_path(session, "/asks/")? + &call::encoded(ask);
        self.post(path).body(&AskReply { answer })?.done().await
    }

    async fn order(&self, session: &str, verb: &str) -> Result<(), ClientError> {
        self.post(session_path(session, verb)?).done().await
    }
}

/// The path of one session's resource. An empty name would turn it into the path of the list.
fn session_path(session: &str, rest: &str) -> Result<String, Transport> {
    if session.is_empty() {
        return Err(Transport::NotSent {
            request: "/v1/sessions/{id}".to_owned(),
            detail: "the session's name is empty".to_owned(),
        });
    }
    Ok(format!("/v1/sessions/{}{rest}", call::encoded(session)))
}
