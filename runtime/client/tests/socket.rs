//! A connection against a small server that says exactly what a test tells it to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use drowse_client::{Client, Connection, ConnectionBuilder, SocketError};
use drowse_messages::{DropReason, FailureCode, Position, SessionId, Welcome};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;

/// What the server does with a request.
#[derive(Clone, Debug)]
enum Do {
    /// Answers it with this.
    Answer(Value),
    /// Says nothing.
    Nothing,
    /// Closes the socket with this code.
    Close(u16),
    /// Vanishes.
    Vanish,
}

/// For each method, what is done with each request in turn; the last one goes on.
type Script = BTreeMap<&'static str, Vec<Do>>;

/// The methods of all requests, in order.
type Seen = Rc<RefCell<Vec<String>>>;

fn welcome() -> Value {
    let session = SessionId::from_random(1);
    let mut welcome = Welcome::new(session, 1, "ab".repeat(16), Position::default());
    welcome.bounds.call_ms = 10;
    json!(welcome)
}

/// Runs a test against a server; what it has seen is in `Seen`.
fn against<T>(
    script: &[(&'static str, &[Do])],
    test: impl AsyncFnOnce(ConnectionBuilder, Seen) -> T,
) -> T {
    let mut script: Script = script
        .iter()
        .map(|(method, all)| (*method, all.to_vec()))
        .collect();
    script
        .entry("hello")
        .or_insert_with(|| vec![Do::Answer(welcome())]);
    script
        .entry("subscribe")
        .or_insert_with(|| vec![Do::Answer(json!(Position::default()))]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let tasks = tokio::task::LocalSet::new();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("d.sock");
    tasks.block_on(&runtime.expect("a runtime"), async {
        let listener = UnixListener::bind(&path).expect("a free socket");
        let seen = Seen::default();
        let server = tokio::task::spawn_local(serve(listener, script, seen.clone()));
        let client = Client::unix(&path);
        let out = tokio::time::timeout(
            Duration::from_secs(20),
            test(client.connection("s").drive(), seen),
        );
        let out = out.await.expect("it ends in time");
        server.abort();
        out
    })
}

async fn serve(listener: UnixListener, mut script: Script, seen: Seen) {
    while let Ok((stream, _)) = listener.accept().await {
        let mut socket = tokio_tungstenite::accept_async(stream)
            .await
            .expect("a handshake");
        attend(&mut socket, &mut script, &seen).await;
    }
}

async fn attend(socket: &mut WebSocketStream<UnixStream>, script: &mut Script, seen: &Seen) {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else {
            continue;
        };
        let request: Value = serde_json::from_str(&text).expect("JSON");
        let method = request["method"].as_str().expect("a request").to_owned();
        seen.borrow_mut().push(method.clone());
        let steps = script.get_mut(method.as_str());
        let step = steps.map_or(Do::Nothing, |steps| {
            if steps.len() > 1 {
                steps.remove(0)
            } else {
                steps[0].clone()
            }
        });
        let reply = match step {
            Do::Answer(result) if result.get("data").is_some() => Message::text(
                json!({"jsonrpc": "2.0", "id": request["id"], "error": result}).to_string(),
            ),
            Do::Answer(result) => Message::text(
                json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string(),
            ),
            Do::Nothing => continue,
            Do::Close(code) => Message::Close(Some(CloseFrame {
                code: code.into(),
                reason: "".into(),
            })),
            Do::Vanish => return,
        };
        if socket.send(reply).await.is_err() {
            return;
        }
    }
}

fn failure(code: FailureCode) -> Do {
    Do::Answer(
        json!({"code": -32000, "message": "", "data": drowse_messages::Failure::new(code, "x")}),
    )
}

async fn connected(builder: ConnectionBuilder) -> Connection {
    builder.connect().await.expect("a connection")
}

/// Row 107: an order has a bound of its own, and the connection stays; a prompt has none.
#[test]
fn an_action_timeout_leaves_the_connection() {
    let script: &[(_, &[Do])] = &[("messages", &[Do::Answer(json!([]))])];
    against(script, async |builder, _| {
        let connection = connected(builder.action_timeout(Duration::from_millis(50))).await;
        let error = connection.interrupt().await.expect_err("nobody answers");
        assert_eq!(error.code(), Some(FailureCode::ActionTimeout));
        assert!(error.may_have_run() && !error.is_terminal());
        let prompt = connection.prompt("x", None);
        let waits = tokio::time::timeout(Duration::from_millis(300), prompt).await;
        assert!(waits.is_err(), "it may wait for a person");
        assert!(connection.is_connected());
        assert_eq!(connection.messages(1).await.expect("it stands"), []);
    });
}

/// Row 106: past its deadline the connection is given up; one below the daemon's is refused.
#[test]
fn a_request_timeout_ends_the_connection() {
    against(&[], async |builder, _| {
        let connection = connected(builder.request_timeout(Duration::from_millis(100))).await;
        let error = connection.interrupt().await.expect_err("nobody answers");
        assert_eq!(error.code(), Some(FailureCode::RequestTimeout));
        assert!(error.is_terminal() && error.may_have_run());
        connection.close().await;
        assert!(!connection.is_connected());
        let error = connection.wake(false).await.expect_err("it is over");
        assert_eq!(
            error.code(),
            Some(FailureCode::RequestTimeout),
            "the first reason stays"
        );
    });
    against(&[], async |builder, _| {
        let refused = builder
            .request_timeout(Duration::from_millis(5))
            .connect()
            .await;
        assert_eq!(
            refused.expect_err("too short").code(),
            Some(FailureCode::Invalid)
        );
    });
}

/// Row 113: after a break a read is repeated once, and what acts is not.
#[test]
fn only_reads_are_repeated() {
    let script: &[(_, &[Do])] = &[
        ("messages", &[Do::Vanish, Do::Answer(json!([]))]),
        ("interrupt", &[Do::Vanish, Do::Answer(json!({}))]),
    ];
    against(script, async |builder, seen| {
        let connection = connected(builder).await;
        assert_eq!(connection.messages(1).await.expect("asked again"), []);
        let error = connection.interrupt().await.expect_err("it is not known");
        assert_eq!(error.code(), Some(FailureCode::ConnectionResumed));
        assert!(matches!(error, SocketError::Unknown(_)) && error.may_have_run());
        assert!(connection.is_connected());
        let count = |method: &str| seen.borrow().iter().filter(|it| *it == method).count();
        assert_eq!(
            (count("messages"), count("interrupt"), count("hello")),
            (2, 1, 3)
        );
    });
}

/// Row 108: calls made while it redials wait, and run once.
#[test]
fn calls_wait_for_a_connection_that_is_redialled() {
    let script: &[(_, &[Do])] = &[
        ("interrupt", &[Do::Vanish]),
        ("wake", &[Do::Answer(json!({}))]),
        (
            "hello",
            &[
                Do::Answer(welcome()),
                Do::Vanish,
                Do::Vanish,
                Do::Answer(welcome()),
            ],
        ),
    ];
    against(script, async |builder, seen| {
        let connection = connected(builder).await;
        let both = tokio::join!(connection.interrupt(), async {
            while connection.is_connected() {
                tokio::task::yield_now().await;
            }
            connection.wake(false).await
        });
        assert_eq!(
            both.0.expect_err("cut").code(),
            Some(FailureCode::ConnectionResumed)
        );
        both.1.expect("it has waited");
        assert_eq!(seen.borrow().iter().filter(|it| *it == "wake").count(), 1);
    });
}

/// Rows 101-103, 110: what ends a connection is a failure of its own, with the reason.
#[test]
fn every_end_has_its_failure() {
    for (code, failure, reason) in [
        (4001, FailureCode::Unauthorized, None),
        (4004, FailureCode::NoSuchSession, None),
        (4008, FailureCode::IdleTimeout, None),
        (4009, FailureCode::HardTimeout, None),
        (
            4010,
            FailureCode::ConnectionClosed,
            Some(DropReason::Superseded),
        ),
        (
            1009,
            FailureCode::ConnectionClosed,
            Some(DropReason::ProxyError),
        ),
    ] {
        against(
            &[("interrupt", &[Do::Close(code)])],
            async |builder, seen| {
                let connection = connected(builder).await;
                let error = connection.interrupt().await.expect_err("it is closed");
                let SocketError::Closed(closed) = &error else {
                    panic!("{error}");
                };
                assert_eq!(
                    (closed.code, closed.drop_reason),
                    (failure, reason),
                    "{code}"
                );
                assert!(!connection.is_connected() && connection.closed().is_some());
                let hellos = seen.borrow().iter().filter(|it| *it == "hello").count();
                assert_eq!(hellos, 1, "it does not come back by itself");
            },
        );
    }
}

/// Row 110: a daemon that does not know the connection ends it.
#[test]
fn a_refused_resume_is_the_end() {
    let script: &[(_, &[Do])] = &[
        ("interrupt", &[Do::Vanish]),
        (
            "hello",
            &[Do::Answer(welcome()), failure(FailureCode::ResumeRefused)],
        ),
    ];
    against(script, async |builder, _| {
        let connection = connected(builder).await;
        let error = connection.interrupt().await.expect_err("it is over");
        let SocketError::Closed(closed) = &error else {
            panic!("{error}");
        };
        assert_eq!(closed.drop_reason, Some(DropReason::ResumeRefused));
        assert!(error.is_terminal());
    });
}

/// Rows 111, 112: switched off, a break is the end; a second goodbye joins the first.
#[test]
fn without_resuming_a_break_is_the_end() {
    against(&[("interrupt", &[Do::Vanish])], async |builder, seen| {
        let connection = connected(builder.resume(false)).await;
        let error = connection.interrupt().await.expect_err("it is over");
        let SocketError::Closed(closed) = &error else {
            panic!("{error}");
        };
        assert_eq!(closed.drop_reason, Some(DropReason::TransportLost));
        assert_eq!(seen.borrow().iter().filter(|it| *it == "hello").count(), 1);
        tokio::join!(connection.close(), connection.close());
    });
}
