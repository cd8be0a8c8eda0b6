//! A lasting connection to one session: calls, prompts and events on one WebSocket that is redialled
//! when it breaks.
//!
//! Fed by programs; made by [`Client::connection`]. Invariants: every call has a deadline, unless it
//! is to have none; the client's deadline lies behind the daemon's; nothing is repeated but what
//! only reads; an error says whether the call may have run, and whether the connection lives.
//!
//! ```no_run
//! # async fn example() -> Result<(), drowse_client::SocketError> {
//! use drowse_client::Piece;
//!
//! let client = drowse_client::Client::unix("/run/user/1000/drowse/drowse.sock");
//! let connection = client.connection("fix-tests").drive().connect().await?;
//! let mut stream = connection.prompt_stream("make them pass", None).await?;
//! while let Some(piece) = stream.next().await? {
//!     if let Piece::Output(text) = piece {
//!         drop(text);
//!     }
//! }
//! connection.close().await;
//! # Ok(())
//! # }
//! ```

mod dial;
mod drive;
mod error;
mod stream;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use drowse_messages::{
    Answer, FailureCode, Hello, MessageId, Method, NewMessage, Prompted, Role, SOCKET_VERSION,
    SavedMessage, SessionReport, Welcome, millis,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

use crate::Client;
use crate::call::{Place, bad_answer};
use dial::{Line, NoLine};
use drive::{Asked, Driver, Told};
pub use drive::{REDIAL_FOR, REDIAL_WHILE_BUSY};
pub use error::{Closed, SocketError, UnknownOutcome};
pub use stream::{Events, Heard, Piece, PromptStream};

/// 180 s for a call that names no bound: the daemon's 120 s and a minute for its answer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(180);

/// 60 s are added to a bound a call names: the daemon adds 30 s itself.
pub const REQUEST_GRACE: Duration = Duration::from_secs(60);

/// 65 min at most: the daemon's hour and its answer.
pub const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(3900);

/// 64 calls wait for a connection that is being taken up again.
const ASKED_MAX: usize = 64;

/// 4,096 things are kept for a slow reader of ours, as many as the daemon keeps.
const TOLD_MAX: usize = 4096;

/// The variable that switches taking up again off (`0`), for whoever cannot change the program.
pub const RESUME_VARIABLE: &str = "DROWSE_RESUME";

/// How a connection is to be.
#[derive(Clone, Debug)]
pub struct ConnectionBuilder {
    place: Place,
    name: String,
    path: String,
    hello: Hello,
    resumes: bool,
    events: bool,
    request_timeout: Duration,
    action_timeout: Option<Duration>,
}

impl Client {
    /// A connection to one session (id, unique prefix or name), to be made. It watches, unless
    /// [`ConnectionBuilder::drive`] is asked for.
    #[must_use]
    pub fn connection(&self, session: &str) -> ConnectionBuilder {
        let hello = Hello {
            version: SOCKET_VERSION,
            client: Some(self.name.clone()),
            ..Hello::default()
        };
        ConnectionBuilder {
            place: self.place.clone(),
            name: self.name.clone(),
            path: format!("/v1/sessions/{}/ws", crate::call::encoded(session)),
            hello,
            resumes: may_resume(std::env::var_os(RESUME_VARIABLE).as_deref()),
            events: true,
            request_timeout: REQUEST_TIMEOUT,
            action_timeout: None,
        }
    }
}

/// What the variable says: only `0` switches it off.
fn may_resume(value: Option<&std::ffi::OsStr>) -> bool {
    value.is_none_or(|value| value != "0")
}

impl ConnectionBuilder {
    /// Gives orders, too; a session has one driver at most.
    #[must_use]
    pub fn drive(mut self) -> Self {
        self.hello.role = Role::Drive;
        self
    }

    /// Takes the place of another driver, if there is one.
    #[must_use]
    pub fn take_over(mut self) -> Self {
        self.hello.take_over = true;
        self.drive()
    }

    /// False: a break is the end, and the daemon keeps nothing for it. The variable `DROWSE_RESUME=0`
    /// says the same and wins.
    #[must_use]
    pub fn resume(mut self, resumes: bool) -> Self {
        self.resumes &= resumes;
        self
    }

    /// False: no events are sent.
    #[must_use]
    pub fn events(mut self, wanted: bool) -> Self {
        self.events = wanted;
        self
    }

    /// How long a call without a bound of its own is waited for; the connection is given up then.
    /// Not below the daemon's own deadline.
    #[must_use]
    pub fn request_timeout(mut self, bound: Duration) -> Self {
        self.request_timeout = bound.min(REQUEST_TIMEOUT_MAX);
        self
    }

    /// A bound for orders (interrupt, answer, wake, release, stop); the connection stays. It never
    /// applies to what can wait for a person.
    #[must_use]
    pub fn action_timeout(mut self, bound: Duration) -> Self {
        self.action_timeout = Some(bound);
        self
    }

    /// Closes the connection (`idle_timeout`) when nothing is said or waited for this long.
    #[must_use]
    pub fn idle_timeout(mut self, bound: Duration) -> Self {
        self.hello.idle_timeout_ms = Some(millis(bound));
        self
    }

    /// Closes the connection (`hard_timeout`) this long after its beginning.
    #[must_use]
    pub fn hard_timeout(mut self, bound: Duration) -> Self {
        self.hello.hard_timeout_ms = Some(millis(bound));
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`SocketError::Connect`] when nobody is there; `driven` when another client drives the
    /// session; `no_such_session`; `invalid` when the request timeout is below the daemon's.
    pub async fn connect(mut self) -> Result<Connection, SocketError> {
        self.hello.keep = Some(self.resumes);
        let dialled = Line::dial(&self.place, &self.name, &self.path, &self.hello).await;
        let (mut line, welcome) = dialled.map_err(|no_line| match no_line {
            NoLine::Again(error) | NoLine::Never(error) => error,
        })?;
        let least = Duration::from_millis(welcome.bounds.call_ms);
        if self.request_timeout <= least {
            line.close().await;
            let detail = format!(
                "request_timeout: the daemon itself waits {} s",
                least.as_secs()
            );
            let failure = drowse_messages::Failure::new(FailureCode::Invalid, detail);
            return Err(SocketError::of(failure));
        }
        let (ask, asked) = mpsc::channel(ASKED_MAX);
        let (told, first) = broadcast::channel(TOLD_MAX);
        let (connected, is_connected) = watch::channel(true);
        let closed = Arc::new(OnceLock::new());
        let mut driver = Driver {
            place: self.place,
            name: self.name,
            path: self.path.clone(),
            hello: self.hello,
            resumes: self.resumes,
            asked,
            told: told.clone(),
            connected,
            closed: closed.clone(),
            events: self.events.then_some(None),
            pending: BTreeMap::new(),
        };
        driver.resume_from(&welcome);
        if !driver.subscribe(&mut line).await {
            let lost = "the connection ended before its events began";
            return Err(crate::call::lost(self.path, lost).into());
        }
        tokio::spawn(driver.drive(line));
        let shared = Shared {
            welcome,
            path: self.path,
            ask,
            told: told.downgrade(),
            is_connected,
            closed,
            numbers: AtomicU64::new(1),
            request_timeout: self.request_timeout,
            action_timeout: self.action_timeout,
            has_events: self.events,
        };
        Ok(Connection {
            shared: Arc::new(shared),
            first: Some(Arc::new(first)),
            bound: None,
        })
    }
}

/// What all clones of a connection share.
#[derive(Debug)]
pub(crate) struct Shared {
    welcome: Welcome,
    path: String,
    ask: mpsc::Sender<Asked>,
    told: broadcast::WeakSender<Told>,
    is_connected: watch::Receiver<bool>,
    closed: Arc<OnceLock<Closed>>,
    numbers: AtomicU64,
    request_timeout: Duration,
    action_timeout: Option<Duration>,
    has_events: bool,
}

impl Shared {
    fn why_closed(&self) -> Closed {
        let unknown = || Closed::new(FailureCode::ConnectionClosed, "the connection is over");
        self.closed.get().cloned().unwrap_or_else(unknown)
    }
}

/// A connection to one session. Cheap to clone; it ends with its last clone, and what the agent
/// does goes on.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    /// Keeps what came before anybody listened.
    first: Option<Arc<broadcast::Receiver<Told>>>,
    /// The bound its calls name.
    bound: Option<Duration>,
}

impl Connection {
    /// What the daemon said to the hello.
    #[must_use]
    pub fn welcome(&self) -> &Welcome {
        &self.shared.welcome
    }

    /// True while it stands, false while it is redialled and once it is over. Asks nobody.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        *self.shared.is_connected.borrow()
    }

    /// Why it is over; `None` while it is not.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        self.shared.closed.get().cloned()
    }

    /// The same connection, on which calls name this bound: the daemon waits 30 s longer, we a minute
    /// longer than that where it is more than usual. Zero: as long as it takes.
    #[must_use]
    pub fn with_timeout(&self, bound: Duration) -> Self {
        Self {
            bound: Some(bound),
            ..self.clone()
        }
    }

    fn patience(&self, method: Method) -> Option<Duration> {
        let usual = self.shared.request_timeout;
        match (method, self.bound) {
            // It may wait for a person.
            (Method::Prompt, _) | (_, Some(Duration::ZERO)) => None,
            (_, None) => Some(usual),
            (_, Some(bound)) => {
                let longer = bound.saturating_add(REQUEST_GRACE).max(usual);
                Some(longer.min(REQUEST_TIMEOUT_MAX))
            }
        }
    }

    /// All that is told from now on; the first time also what was told since the connection began,
    /// which is a snapshot of the session.
    #[must_use]
    pub fn events(&mut self) -> Events {
        let first = self.first.take().and_then(Arc::into_inner);
        let told = first.or_else(|| self.shared.told.upgrade().map(|told| told.subscribe()));
        // A channel without a sender says that the connection is over.
        let told = told.unwrap_or_else(|| broadcast::channel(1).1);
        Events::new(told, self.shared.clone())
    }

    fn listen(&self) -> Events {
        let told = self.shared.told.upgrade().map(|told| told.subscribe());
        let told = told.unwrap_or_else(|| broadcast::channel(1).1);
        Events::new(told, self.shared.clone())
    }

    /// Says something to the agent and waits for its answer. The same key again is the same message:
    /// after an unknown outcome, the same prompt with the same key finds its answer.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn prompt(
        &self,
        message: impl Into<NewMessage>,
        key: Option<&str>,
    ) -> Result<Prompted, SocketError> {
        let NewMessage { text, priority } = message.into();
        let params = json!({"text": text, "key": key, "priority": priority});
        self.call(Method::Prompt, params).await
    }

    /// Says something to the agent; what becomes of it is streamed. A break of the connection is
    /// bridged: the message is on disk.
    ///
    /// # Errors
    /// See [`SocketError`]; `invalid` when the connection has no events
    /// ([`ConnectionBuilder::events`]).
    pub async fn prompt_stream(
        &self,
        message: impl Into<NewMessage>,
        key: Option<&str>,
    ) -> Result<PromptStream, SocketError> {
        if !self.shared.has_events {
            let detail = "the connection was made without events";
            let failure = drowse_messages::Failure::new(FailureCode::Invalid, detail);
            return Err(SocketError::of(failure));
        }
        let NewMessage { text, priority } = message.into();
        let events = self.listen();
        // Known again should the answer be lost.
        let key = key.map_or_else(generate_key, ToOwned::to_owned);
        let params = json!({"text": text, "key": key, "accepted": true, "priority": priority});
        let prompted = self.call(Method::Prompt, params).await?;
        Ok(PromptStream::new(self.clone(), events, prompted))
    }

    /// Takes back a message that waits. Again is the same.
    ///
    /// # Errors
    /// See [`SocketError`]; `not_queued` when it was delivered, or is over otherwise.
    pub async fn cancel(&self, message: MessageId) -> Result<SavedMessage, SocketError> {
        let params = json!({ "message": message });
        self.call(Method::Cancel, params).await
    }

    /// Queues a parked message again.
    ///
    /// # Errors
    /// See [`SocketError`]; `not_parked` for any other.
    pub async fn retry(&self, message: MessageId) -> Result<SavedMessage, SocketError> {
        let params = json!({ "message": message });
        self.call(Method::Retry, params).await
    }

    /// Records how what the session was for went; `None` takes it back. See
    /// [`Client::record_outcome`](crate::Client::record_outcome).
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn record_outcome(&self, text: Option<&str>) -> Result<(), SocketError> {
        self.order(Method::RecordOutcome, json!({ "text": text }))
            .await
    }

    /// Interrupts the running turn.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn interrupt(&self) -> Result<(), SocketError> {
        self.order(Method::Interrupt, json!({})).await
    }

    /// Answers what the agent asks.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn answer(&self, ask: &str, answer: Answer) -> Result<(), SocketError> {
        let params = json!({"id": ask, "answer": answer});
        self.order(Method::Answer, params).await
    }

    /// Starts the process without a message.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn wake(&self, fresh: bool) -> Result<(), SocketError> {
        self.order(Method::Wake, json!({ "fresh": fresh })).await
    }

    /// Frees the process and keeps the session.
    ///
    /// # Errors
    /// See [`SocketError`]; `held` when something holds it.
    pub async fn release(&self) -> Result<(), SocketError> {
        self.order(Method::Release, json!({})).await
    }

    /// Ends the process and cancels its work; `kept`: also what the session keeps.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn stop(&self, kept: bool) -> Result<(), SocketError> {
        self.order(Method::Stop, json!({ "kept": kept })).await
    }

    /// How the session is.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn show(&self) -> Result<SessionReport, SocketError> {
        self.call(Method::Show, json!({})).await
    }

    /// Its newest messages, oldest first.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn messages(&self, limit: usize) -> Result<Vec<SavedMessage>, SocketError> {
        let params = json!({ "limit": limit });
        self.call(Method::Messages, params).await
    }

    /// One message.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn message(&self, message: MessageId) -> Result<SavedMessage, SocketError> {
        let params = json!({ "message": message });
        self.call(Method::Message, params).await
    }

    /// Ends the connection in good order. A second one joins the first.
    pub async fn close(&self) {
        let closed = Closed::new(FailureCode::ConnectionClosed, "closed by its owner");
        // One that is over is closed.
        let _over = self.shared.ask.send(Asked::End(closed)).await;
        self.shared.ask.closed().await;
    }

    async fn order(&self, method: Method, params: Value) -> Result<(), SocketError> {
        let ordered = self.call::<Value>(method, params);
        let Some(bound) = self.shared.action_timeout else {
            return ordered.await.map(drop);
        };
        timeout(bound, ordered).await.map_or_else(
            |_| {
                let detail = format!("no answer to {} within {bound:?}", method.code());
                Err(UnknownOutcome::new(FailureCode::ActionTimeout, detail).into())
            },
            |answered| answered.map(drop),
        )
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        mut params: Value,
    ) -> Result<T, SocketError> {
        if let Some(bound) = self.bound {
            params["timeout_ms"] = millis(bound).into();
        }
        let mut answer = self.ask(method, params.clone()).await;
        // What only reads may be asked once more; what acts never is.
        if method.reads()
            && let Err(SocketError::Unknown(unknown)) = &answer
            && unknown.code == FailureCode::ConnectionResumed
        {
            answer = self.ask(method, params).await;
        }
        serde_json::from_value(answer?).map_err(|error| {
            bad_answer(format!("{} {}", self.shared.path, method.code()), error).into()
        })
    }

    async fn ask(&self, method: Method, params: Value) -> Result<Value, SocketError> {
        let shared = &self.shared;
        let id = shared.numbers.fetch_add(1, Ordering::Relaxed);
        let (reply, replied) = oneshot::channel();
        let call = Asked::Call {
            id,
            method,
            params,
            reply,
        };
        let forget = Forget { shared, id };
        let answered = async {
            if shared.ask.send(call).await.is_err() {
                return Err(shared.why_closed().into());
            }
            replied
                .await
                .unwrap_or_else(|_| Err(shared.why_closed().into()))
        };
        let answer = match self.patience(method) {
            None => answered.await,
            Some(bound) => timeout(bound, answered).await.unwrap_or_else(|_| {
                let seconds = bound.as_secs();
                let detail = format!("no answer to {} within {seconds} s", method.code());
                let closed = Closed::new(FailureCode::RequestTimeout, detail);
                let _over = shared.ask.try_send(Asked::End(closed.clone()));
                Err(closed.into())
            }),
        };
        std::mem::forget(forget);
        answer
    }
}

/// Tells the driver that nobody waits any more, should the caller give up.
struct Forget<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        // A full queue is no harm: the answer is dropped when it comes.
        let _full = self.shared.ask.try_send(Asked::Forget(self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 111.
    #[test]
    fn the_variable_switches_resuming_off() {
        let resumes = [None, Some("1"), Some(""), Some("0")];
        let resumes = resumes.map(|value| may_resume(value.map(AsRef::as_ref)));
        assert_eq!(resumes, [true, true, true, false]);
    }

    /// Rows 104, 106, 108: the numbers that clients in other languages are written against.
    #[test]
    fn the_defaults_are_those_of_the_document() {
        let seconds = [
            REQUEST_TIMEOUT,
            REQUEST_GRACE,
            REQUEST_TIMEOUT_MAX,
            REDIAL_FOR,
            REDIAL_WHILE_BUSY,
        ];
        assert_eq!(seconds.map(|it| it.as_secs()), [180, 60, 65 * 60, 30, 150]);
    }
}
