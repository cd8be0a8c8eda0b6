//! One WebSocket: connected, greeted, and its frames.
//!
//! Fed by `drive.rs`. Invariant: every wait has a deadline, and a message a bound.

use std::time::Duration;

use drowse_messages::{CloseWhy, Failure, FailureCode, Hello, Method, Welcome};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

use super::error::{Closed, SocketError};
use crate::call::{CONNECT_DEADLINE, Place, bad_answer, lost, no_connection, refused};

/// 64 MiB in one message: an answer of 32 MiB with escapes.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// 20 s for a frame to leave: the daemon reads all the time, so it is stuck or gone.
const WRITE_DEADLINE: Duration = Duration::from_secs(20);

/// Something to speak through.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// What came in.
#[derive(Debug)]
pub(super) enum Heard {
    /// A message.
    Message(Value),
    /// A sign of life.
    Pulse,
    /// The other side closed; `None`: it vanished, or gave no reason of ours.
    Closed(Option<CloseWhy>),
}

/// See the module.
pub(super) struct Line(WebSocketStream<Box<dyn Io>>);

/// Why nobody is at the other end yet.
#[derive(Debug)]
pub(super) enum NoLine {
    /// It may be there in a moment.
    Again(SocketError),
    /// It will not.
    Never(SocketError),
}

impl Line {
    /// Connects and says hello.
    pub(super) async fn dial(
        place: &Place,
        name: &str,
        path: &str,
        hello: &Hello,
    ) -> Result<(Self, Welcome), NoLine> {
        let connected = timeout(CONNECT_DEADLINE, Self::connect(place, name, path)).await;
        let late = |elapsed| NoLine::Again(no_connection(place, elapsed).into());
        let mut line = connected.map_err(late)??;
        let params = serde_json::to_value(hello).unwrap_or_default();
        line.call(0, Method::Hello, params)
            .await
            .map_err(|_| gone(path))?;
        let answered = timeout(CONNECT_DEADLINE, line.welcome(path)).await;
        let welcome = answered.map_err(|_| gone(path))??;
        Ok((line, welcome))
    }

    async fn connect(place: &Place, name: &str, path: &str) -> Result<Self, NoLine> {
        let no_stream = |error| NoLine::Again(refused(place, error).into());
        let (stream, host, token): (Box<dyn Io>, String, Option<&str>) = match place {
            Place::Unix {
                path: socket,
                token,
            } => {
                let stream = UnixStream::connect(socket).await.map_err(no_stream)?;
                (Box::new(stream), "localhost".to_owned(), token.as_deref())
            }
            Place::Tcp { addr, token } => {
                let stream = TcpStream::connect(addr).await.map_err(no_stream)?;
                (Box::new(stream), addr.to_string(), Some(token))
            }
        };
        let never = |detail: String| NoLine::Never(bad_answer(path.to_owned(), detail).into());
        let request = format!("ws://{host}{path}").into_client_request();
        let mut request = request.map_err(|error| never(error.to_string()))?;
        let agent = format!("{name}/{}", env!("CARGO_PKG_VERSION"));
        let bearer = token.map(|token| format!("Bearer {token}"));
        for (header, value) in [("user-agent", Some(agent)), ("authorization", bearer)] {
            let Some(value) = value else { continue };
            let value = HeaderValue::from_str(&value);
            // The value may be a secret: it is not repeated.
            let value = value.map_err(|_| never(format!("the value for {header} is none")))?;
            request.headers_mut().insert(header, value);
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let upgraded =
            tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
        match upgraded {
            Ok((stream, _)) => Ok(Self(stream)),
            Err(tungstenite::Error::Http(response)) if response.status().is_server_error() => {
                let said = format!("it is status {}", response.status());
                Err(NoLine::Again(bad_answer(path.to_owned(), said).into()))
            }
            Err(tungstenite::Error::Http(response)) => {
                let code = match response.status().as_u16() {
                    401 => FailureCode::Unauthorized,
                    _ => FailureCode::Forbidden,
                };
                let said = format!("the daemon answered with status {}", response.status());
                Err(NoLine::Never(Closed::new(code, said).into()))
            }
            Err(error) => Err(NoLine::Again(lost(path.to_owned(), error).into())),
        }
    }

    async fn welcome(&mut self, path: &str) -> Result<Welcome, NoLine> {
        loop {
            match self.next().await {
                Heard::Message(mut answer) if answer["id"] == 0 => {
                    let failure = answer["error"]["data"].take();
                    if let Ok(failure) = serde_json::from_value::<Failure>(failure) {
                        return Err(rejected(failure));
                    }
                    let welcome = serde_json::from_value(answer["result"].take());
                    return welcome
                        .map_err(|error| NoLine::Never(bad_answer(path.to_owned(), error).into()));
                }
                Heard::Message(_) | Heard::Pulse => {}
                Heard::Closed(why) => {
                    let closed = Closed::by_frame(why);
                    return Err(closed.map_or_else(|| gone(path), |it| NoLine::Never(it.into())));
                }
            }
        }
    }

    /// Sends a request.
    pub(super) async fn call(
        &mut self,
        id: u64,
        method: Method,
        params: Value,
    ) -> Result<(), tungstenite::Error> {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(Message::text(request.to_string())).await
    }

    /// Asks whether anybody is there.
    pub(super) async fn ping(&mut self) -> Result<(), tungstenite::Error> {
        self.send(Message::Ping(bytes::Bytes::new())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), tungstenite::Error> {
        timeout(WRITE_DEADLINE, self.0.send(message))
            .await
            .unwrap_or(Err(tungstenite::Error::ConnectionClosed))
    }

    /// What comes next. May be dropped before it is done.
    pub(super) async fn next(&mut self) -> Heard {
        match self.0.next().await {
            Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                Ok(message) => Heard::Message(message),
                Err(_) => Heard::Closed(Some(CloseWhy::ProtocolError)),
            },
            Some(Ok(Message::Close(frame))) => {
                let code = frame.map(|frame| u16::from(frame.code));
                Heard::Closed(code.and_then(CloseWhy::from_code))
            }
            Some(Ok(
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_),
            )) => Heard::Pulse,
            Some(Err(_)) | None => Heard::Closed(None),
        }
    }

    /// Says goodbye, and waits a moment for the other side's.
    pub(super) async fn close(mut self) {
        let goodbye = async {
            let normal = tungstenite::protocol::frame::CloseFrame {
                code: CloseWhy::Normal.code().into(),
                reason: CloseWhy::Normal.reason().into(),
            };
            if self.0.close(Some(normal)).await.is_ok() {
                while let Some(Ok(_)) = self.0.next().await {}
            }
        };
        drop(timeout(CONNECT_DEADLINE, goodbye).await);
    }
}

/// A hello was not granted.
fn rejected(failure: Failure) -> NoLine {
    let again = failure.retryable;
    let error = if failure.code == FailureCode::ResumeRefused {
        let reason = failure.drop_reason;
        let reason = reason.unwrap_or(drowse_messages::DropReason::ResumeRefused);
        Closed::dropped(reason, failure.detail).into()
    } else {
        SocketError::of(failure)
    };
    if again {
        NoLine::Again(error)
    } else {
        NoLine::Never(error)
    }
}

fn gone(path: &str) -> NoLine {
    let cause = "the connection ended before it was welcomed";
    NoLine::Again(lost(path.to_owned(), cause).into())
}
