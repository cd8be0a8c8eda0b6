//! One request on its own connection, and its answer.
//!
//! Fed by the methods of [`crate::Client`]. Invariant: every wait has a deadline and every answer
//! a bound. A connection is not kept for the next call: on a Unix socket a new one costs less than
//! the bookkeeping, and a dead one is then never a question.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use drowse_messages::EVENT_STREAM;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::{Cause, ClientError, Problem, Transport};
use crate::stream::EventStream;

/// 5 s to connect: the daemon is on this machine, so a longer wait means that it is stuck.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// 30 s from request to answer: every answer is a look into memory or one write to disk; none
/// waits for an agent.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// 32 MiB in one answer: room for one message of an agent's longest line (20 MiB) with escapes,
/// and for pages of thousands of sessions.
pub const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Where the daemon is.
#[derive(Clone)]
pub(crate) enum Place {
    Unix {
        path: PathBuf,
        /// Of a session, whose processes reach no further than it.
        token: Option<String>,
    },
    Tcp {
        addr: SocketAddr,
        token: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { path, .. } => write!(f, "socket {}", path.display()),
            Self::Tcp { addr, .. } => write!(f, "address {addr}"),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret, so this says no more than a person is told.
        fmt::Display::fmt(self, f)
    }
}

/// The task that moves a connection's bytes; it ends with whoever reads the answer.
#[derive(Debug)]
pub(crate) struct Pump(JoinHandle<()>);

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A request under construction.
pub(crate) struct Call<'a> {
    place: &'a Place,
    method: Method,
    path: String,
    headers: hyper::HeaderMap,
    body: Bytes,
    bad_header: Option<String>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(place: &'a Place, name: &str, method: Method, path: String) -> Self {
        let agent = format!("{name}/{}", env!("CARGO_PKG_VERSION"));
        let mut call = Self {
            place,
            method,
            path,
            headers: hyper::HeaderMap::new(),
            body: Bytes::new(),
            bad_header: None,
        };
        call.put(USER_AGENT, &agent);
        match place {
            Place::Unix { token, .. } => {
                call.put(HOST, "localhost");
                if let Some(token) = token {
                    call.put(AUTHORIZATION, &format!("Bearer {token}"));
                }
            }
            Place::Tcp { addr, token } => {
                call.put(HOST, &addr.to_string());
                call.put(AUTHORIZATION, &format!("Bearer {token}"));
            }
        }
        call
    }

    fn put(&mut self, name: HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        } else {
            // The value may be a secret: only the name is repeated.
            self.bad_header = Some(format!(
                "the value for {name} has characters no header takes"
            ));
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.put(HeaderName::from_static(name), value);
        }
        self
    }

    pub(crate) fn query(mut self, key: &str, value: Option<impl fmt::Display>) -> Self {
        if let Some(value) = value {
            self.path
                .push(if self.path.contains('?') { '&' } else { '?' });
            self.path.push_str(key);
            self.path.push('=');
            self.path.push_str(&encoded(&value.to_string()));
        }
        self
    }

    pub(crate) fn body(mut self, body: &impl Serialize) -> Result<Self, Transport> {
        let json = serde_json::to_vec(body).map_err(|error| self.not_sent(error))?;
        self.body = json.into();
        self.put(CONTENT_TYPE, "application/json");
        Ok(self)
    }

    /// Method and path without the query, for errors.
    fn label(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }

    fn not_sent(&self, detail: impl fmt::Display) -> Transport {
        Transport::NotSent {
            request: self.label(),
            detail: detail.to_string(),
        }
    }

    /// True for a status of 2xx, whatever the body says.
    pub(crate) async fn succeeds(self) -> Result<bool, ClientError> {
        let (head, _pump) = self.exchange().await?;
        Ok(head.status().is_success())
    }

    pub(crate) async fn text(self) -> Result<String, ClientError> {
        let label = self.label();
        let body = self.success().await?;
        String::from_utf8(body.into()).map_err(|error| bad_answer(label, error).into())
    }

    pub(crate) async fn json<T: DeserializeOwned>(self) -> Result<T, ClientError> {
        let label = self.label();
        let body = self.success().await?;
        serde_json::from_slice(&body).map_err(|error| bad_answer(label, error).into())
    }

    /// For an order: accepted or refused; the object it is answered with says nothing more.
    pub(crate) async fn done(self) -> Result<(), ClientError> {
        self.json::<IgnoredAny>().await.map(|_| ())
    }

    pub(crate) async fn events(mut self) -> Result<EventStream, ClientError> {
        self.put(ACCEPT, EVENT_STREAM);
        let label = self.label();
        let (response, pump) = self.exchange().await?;
        if !response.status().is_success() {
            return Err(problem(label, response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or("nothing");
        if !kind.starts_with(EVENT_STREAM) {
            return Err(bad_answer(label, format!("it is {kind}, not {EVENT_STREAM}")).into());
        }
        Ok(EventStream::new(label, response.into_body(), pump))
    }

    /// The body of a 2xx answer.
    async fn success(self) -> Result<Bytes, ClientError> {
        let label = self.label();
        let (response, _pump) = self.exchange().await?;
        if response.status().is_success() {
            Ok(whole_body(&label, response).await?)
        } else {
            Err(problem(label, response).await)
        }
    }

    async fn exchange(self) -> Result<(Response<Incoming>, Pump), Transport> {
        let label = self.label();
        if let Some(detail) = &self.bad_header {
            return Err(self.not_sent(detail));
        }
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.parse().map_err(|error| self.not_sent(error))?;
        *request.headers_mut() = self.headers;
        let (mut sender, pump) = connect(self.place).await?;
        match timeout(CALL_DEADLINE, sender.send_request(request)).await {
            Ok(Ok(response)) => Ok((response, pump)),
            Ok(Err(error)) => Err(lost(label, error)),
            Err(_) => Err(no_answer(label)),
        }
    }
}

type Sender = http1::SendRequest<Full<Bytes>>;

async fn connect(place: &Place) -> Result<(Sender, Pump), Transport> {
    let connecting = async {
        match place {
            Place::Unix { path, .. } => {
                let stream = UnixStream::connect(path).await;
                shake_hands(place, stream.map_err(|error| refused(place, error))?).await
            }
            Place::Tcp { addr, .. } => {
                let stream = TcpStream::connect(addr).await;
                shake_hands(place, stream.map_err(|error| refused(place, error))?).await
            }
        }
    };
    timeout(CONNECT_DEADLINE, connecting)
        .await
        .unwrap_or_else(|elapsed| Err(no_connection(place, elapsed)))
}

async fn shake_hands<S>(place: &Place, stream: S) -> Result<(Sender, Pump), Transport>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| no_connection(place, error))?;
    let pump = tokio::spawn(async move {
        // Its error also reaches whoever waits for the answer, and is reported there.
        drop(connection.await);
    });
    Ok((sender, Pump(pump)))
}

pub(crate) fn refused(place: &Place, source: io::Error) -> Transport {
    if matches!(
        source.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    ) {
        let place = place.to_string();
        Transport::NoDaemon { place, source }
    } else {
        no_connection(place, source)
    }
}

pub(crate) fn no_connection(place: &Place, source: impl Into<Cause>) -> Transport {
    Transport::Connect {
        place: place.to_string(),
        source: source.into(),
    }
}

pub(crate) fn lost(request: String, source: impl Into<Cause>) -> Transport {
    let source = source.into();
    Transport::Lost { request, source }
}

pub(crate) fn bad_answer(request: String, detail: impl fmt::Display) -> Transport {
    let detail = detail.to_string();
    Transport::BadAnswer { request, detail }
}

fn no_answer(request: String) -> Transport {
    Transport::NoAnswer {
        request,
        within: CALL_DEADLINE,
    }
}

async fn whole_body(label: &str, response: Response<Incoming>) -> Result<Bytes, Transport> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    match timeout(CALL_DEADLINE, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(bad_answer(
            label.to_owned(),
            format!("it is longer than {ANSWER_BYTES_MAX} bytes"),
        )),
        Ok(Err(error)) => Err(lost(label.to_owned(), error)),
        Err(_) => Err(no_answer(label.to_owned())),
    }
}

async fn problem(label: String, response: Response<Incoming>) -> ClientError {
    let status: StatusCode = response.status();
    match whole_body(&label, response).await {
        Ok(body) => Box::new(Problem::read(status.as_u16(), &body)).into(),
        Err(error) => error.into(),
    }
}

/// The text as one segment of a path or one value of a query: all but letters, digits, `-` and
/// `_` is escaped, dots too, so that no text can be taken for a step up.
pub(crate) fn encoded(text: &str) -> String {
    use fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    out
}
