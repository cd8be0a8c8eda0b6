//! The client against a small server that says exactly what a test tells it to, byte by byte.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

use drowse_client::{Client, ClientError, EventsQuery, ListQuery, Transport};
use drowse_messages::{
    Answer, MessageId, MessageState, ProblemClass, SessionEvent, SessionId, SessionState,
};

/// What the server does with one connection.
enum Script {
    /// Writes these pieces, each with its own write, then closes in good order.
    Say(Vec<Vec<u8>>),
    /// Reads the request and hangs up.
    HangUp,
    /// Begins an answer that has no end, and writes it until nobody reads.
    Flood,
}

/// Serves one connection per script; joining it gives the requests as they came.
fn serve(scripts: Vec<Script>) -> (tempfile::TempDir, Client, JoinHandle<Vec<String>>) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("drowse.sock");
    let listener = UnixListener::bind(&path).expect("a free socket");
    let server = std::thread::spawn(move || {
        let play = |script| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let request = read_request(&mut stream);
            match script {
                Script::Say(pieces) => {
                    for piece in pieces {
                        stream.write_all(&piece).expect("a reader");
                    }
                }
                Script::HangUp => {}
                Script::Flood => {
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\n\r\n")
                        .expect("a reader");
                    while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
                }
            }
            request
        };
        scripts.into_iter().map(play).collect()
    });
    (dir, Client::unix(path), server)
}

fn read_request(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().expect("a number"));
            if body.len() >= length {
                return text;
            }
        }
        let count = stream.read(&mut piece).expect("a request");
        assert_ne!(count, 0, "the request ended early: {text}");
        bytes.extend_from_slice(&piece[..count]);
    }
}

fn answer(status: &str, kind: &str, body: &str) -> Script {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}");
    Script::Say(vec![format!("{head}\r\n\r\n{body}").into_bytes()])
}

/// A stream in chunked encoding, cut into chunks of `size` bytes; `whole`: with its proper end.
fn stream(body: &str, size: usize, whole: bool) -> Script {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let mut pieces = vec![head.as_bytes().to_vec()];
    for chunk in body.as_bytes().chunks(size) {
        let mut piece = format!("{:x}\r\n", chunk.len()).into_bytes();
        piece.extend_from_slice(chunk);
        piece.extend_from_slice(b"\r\n");
        pieces.push(piece);
    }
    if whole {
        pieces.push(b"0\r\n\r\n".to_vec());
    }
    Script::Say(pieces)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}

fn session() -> SessionId {
    SessionId::from_random(7)
}

fn event(seq: u64, rest: &str) -> String {
    let session = session();
    format!("id: {seq}\ndata: {{\"seq\":{seq},\"at\":1,\"session\":\"{session}\",{rest}}}\n\n")
}

const LIFE: [&str; 4] = [
    r#""event":"message_queued","message":3"#,
    r#""event":"output","message":3,"text":"grüße 漢字""#,
    r#""event":"invented_later","what":[1,2]"#,
    r#""event":"message_changed","message":3,"state":"answered","text":"done""#,
];

fn life() -> String {
    let events = (1..).zip(LIFE).map(|(seq, rest)| event(seq, rest));
    ": heartbeat\n\n".to_owned() + &events.collect::<String>()
}

/// D39: chunks that cut characters and lines change nothing; an event of a later version is
/// passed over.
#[test]
fn a_message_is_followed_to_its_end() {
    for size in [1, 2, 3, 7, 4096] {
        let (_dir, client, server) = serve(vec![stream(&life(), size, true)]);
        let events = run(async {
            let mut events = client
                .send_streaming("fix tests", "go", Some("k1"))
                .await
                .unwrap();
            let mut seen = Vec::new();
            while let Some(event) = events.next().await.unwrap() {
                seen.push(event.what);
            }
            assert_eq!((events.last_seq(), events.unknown_total()), (Some(4), 1));
            seen
        });
        let message = MessageId(3);
        assert_eq!(
            events,
            [
                SessionEvent::MessageQueued { message },
                SessionEvent::Output {
                    message: Some(message),
                    text: "grüße 漢字".to_owned()
                },
                SessionEvent::MessageChanged {
                    message,
                    state: MessageState::Answered,
                    text: "done".to_owned()
                },
            ]
        );
        let request = server.join().unwrap().remove(0);
        assert!(request.starts_with("POST /v1/sessions/fix%20tests/messages HTTP/1.1\r\n"));
        assert!(request.contains("idempotency-key: k1\r\n"), "{request}");
        assert!(
            request.contains("accept: text/event-stream\r\n"),
            "{request}"
        );
        assert!(request.ends_with("{\"text\":\"go\"}"), "{request}");
    }
}

/// Behaviour 113: a stream that is cut is an error that says the outcome is unknown, not an end.
#[test]
fn a_cut_stream_is_no_end() {
    let cut = &life()[..life().len() - 20];
    let (_dir, client, server) = serve(vec![stream(cut, 4096, false)]);
    let error = run(async {
        let mut events = client.events(&EventsQuery::default()).await.unwrap();
        loop {
            match events.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a cut stream ended as if it were whole"),
                Err(error) => break error,
            }
        }
    });
    assert!(
        matches!(error, ClientError::Transport(Transport::Lost { .. })),
        "{error:?}"
    );
    assert!(error.may_have_run());
    server.join().unwrap();
}

/// Behaviour 113: the same for a request whose answer never came.
#[test]
fn a_connection_cut_before_the_answer_leaves_the_outcome_unknown() {
    let (_dir, client, server) = serve(vec![Script::HangUp]);
    let error = run(client.release("a")).unwrap_err();
    assert!(
        matches!(error, ClientError::Transport(Transport::Lost { .. })),
        "{error:?}"
    );
    assert!(error.may_have_run());
    server.join().unwrap();
}

#[test]
fn without_a_daemon_nothing_has_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drowse.sock");
    let error = run(Client::unix(&path).status()).unwrap_err();
    assert!(error.is_no_daemon() && !error.may_have_run());
    assert_eq!(
        error.to_string(),
        format!("no daemon is running (socket {})", path.display())
    );
    // A socket file that a dead daemon left behind is no daemon either.
    drop(UnixListener::bind(&path).unwrap());
    assert!(
        run(Client::unix(&path).status())
            .unwrap_err()
            .is_no_daemon()
    );
}

#[test]
fn a_problem_comes_through_whole() {
    let body = r#"{"type":"about:blank","title":"held","status":409,"detail":"held by task: npm",
        "code":"held","class":"retryable","retryable":true,"held_by":["task: npm"]}"#;
    let (_dir, client, server) = serve(vec![
        answer("409 Conflict", "application/problem+json", body),
        answer("413 Payload Too Large", "text/plain", "too much"),
    ]);
    let ClientError::Problem(problem) = run(client.release("a")).unwrap_err() else {
        panic!("a problem document is a problem");
    };
    assert_eq!((problem.code.as_str(), problem.status), ("held", 409));
    assert_eq!(problem.class, ProblemClass::Retryable);
    assert_eq!(problem.held_by, ["task: npm"]);
    assert_eq!(problem.to_string(), "held by task: npm");

    let error = run(client.send("a", "text", None)).unwrap_err();
    assert_eq!(
        (error.code(), error.may_have_run()),
        (Some("http_413"), false)
    );
    assert_eq!(error.to_string(), "too much");
    server.join().unwrap();
}

/// What a person types is one segment of a path, whatever it looks like.
#[test]
fn names_cannot_become_other_paths() {
    let (_dir, client, server) = serve(vec![
        answer("202 Accepted", "application/json", "{}"),
        answer("202 Accepted", "application/json", "{}"),
    ]);
    run(client.clone().named("web").remove("../x?y")).unwrap();
    run(client.answer("a", "toolu/1", Answer::Text("yes".into()))).unwrap();
    let requests = server.join().unwrap();
    assert!(requests[0].starts_with("DELETE /v1/sessions/%2E%2E%2Fx%3Fy HTTP/1.1\r\n"));
    assert!(requests[0].contains("user-agent: web/"), "{}", requests[0]);
    assert!(requests[1].starts_with("POST /v1/sessions/a/asks/toolu%2F1 HTTP/1.1\r\n"));
    assert!(
        requests[1].ends_with(r#"{"answer":{"text":"yes"}}"#),
        "{}",
        requests[1]
    );
    let error = run(client.remove("")).unwrap_err();
    assert!(
        matches!(error, ClientError::Transport(Transport::NotSent { .. })),
        "{error:?}"
    );
}

#[test]
fn a_list_is_asked_for_page_by_page() {
    let page = r#"{"sessions":[],"total":0}"#;
    let (_dir, client, server) = serve(vec![answer("200 OK", "application/json", page)]);
    let query = ListQuery {
        after: Some("a b".into()),
        limit: Some(5),
        state: Some(SessionState::NeedsYou),
        agent: None,
    };
    assert_eq!(run(client.sessions(&query)).unwrap().total, 0);
    let request = server.join().unwrap().remove(0);
    assert!(request.starts_with("GET /v1/sessions?after=a%20b&limit=5&state=needs_you HTTP"));
}

#[test]
fn readiness_is_told_from_the_status() {
    let (_dir, client, server) = serve(vec![
        answer("503 Service Unavailable", "text/plain", "starting"),
        answer("200 OK", "text/plain", "ok"),
    ]);
    assert!(!run(client.ready()).unwrap());
    assert!(run(client.ready()).unwrap());
    server.join().unwrap();
}

/// An answer that never ends does not fill our memory.
#[test]
fn an_answer_too_large_is_refused() {
    let (_dir, client, server) = serve(vec![Script::Flood]);
    let error = run(client.status()).unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
    server.join().unwrap();
}

#[test]
fn the_token_is_sent_and_never_shown() {
    let addr = "127.0.0.1:1".parse().unwrap();
    let client = Client::tcp(addr, "s3cret\n");
    assert!(!format!("{client:?}").contains("s3cret"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::tcp(listener.local_addr().unwrap(), "s3cret\n");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        let mut byte = [0; 1];
        while !bytes.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .unwrap();
        String::from_utf8(bytes).unwrap()
    });
    assert!(run(client.live()).unwrap());
    let request = server.join().unwrap();
    assert!(
        request.contains("authorization: Bearer s3cret\r\n"),
        "{request}"
    );
}
