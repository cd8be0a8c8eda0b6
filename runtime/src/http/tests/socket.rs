//! Sockets of sessions, frame by frame: what a client may send, and what it is told.

use drowse_messages::{MessageId, MessageState, Refusal, SessionEvent, SessionId, SessionState};
use serde_json::{Value, json};

use super::*;

const PATH: &str = "/v1/sessions/s/ws";

/// A client that writes each byte itself.
pub(super) struct Ws(Client);

/// What came in one frame.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    Json(Value),
    Ping,
    Pong,
    Close(u16),
    End,
}

impl Ws {
    pub(super) fn open(mut client: Client, path: &str, headers: &str) -> Self {
        client.write(
            format!(
                "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n\
                 {headers}\r\n",
                if headers.contains("Host") {
                    ""
                } else {
                    "localhost"
                }
            )
            .replace("Host: \r\n", "")
            .as_bytes(),
        );
        Self(client)
    }

    /// The handshake's status; the head is read.
    pub(super) fn status(&mut self) -> u16 {
        self.0.head().0
    }

    pub(super) fn on(endpoint: &Endpoint) -> Self {
        let mut ws = Self::open(endpoint.connect(), PATH, "");
        assert_eq!(ws.status(), 101);
        ws
    }

    pub(super) fn frame(&mut self, first: u8, claimed: u64, payload: &[u8]) {
        let mut bytes = vec![first];
        match claimed {
            0..126 => bytes.push(0x80 | u8::try_from(claimed).unwrap()),
            126..0x1_0000 => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(claimed).unwrap().to_be_bytes());
            }
            _ => {
                bytes.push(0x80 | 127);
                bytes.extend(claimed.to_be_bytes());
            }
        }
        // A mask of zeroes is one.
        bytes.extend([0; 4]);
        bytes.extend(payload);
        self.0.write(&bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.frame(0x81, text.len() as u64, text.as_bytes());
    }

    pub(super) fn call(&mut self, id: u64, method: &str, params: Value) {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.text(&request.to_string());
    }

    pub(super) fn next(&mut self) -> Frame {
        let Some(head) = self.0.bytes(2) else {
            return Frame::End;
        };
        let length = match head[1] {
            126 => {
                let bytes = self.0.bytes(2).unwrap();
                usize::from(u16::from_be_bytes(bytes.try_into().unwrap()))
            }
            127 => {
                let bytes = self.0.bytes(8).unwrap();
                usize::try_from(u64::from_be_bytes(bytes.try_into().unwrap())).unwrap()
            }
            length => usize::from(length),
        };
        let payload = self.0.bytes(length).unwrap();
        match head[0] & 15 {
            1 => Frame::Json(serde_json::from_slice(&payload).unwrap()),
            8 => Frame::Close(u16::from_be_bytes(payload[..2].try_into().unwrap())),
            9 => Frame::Ping,
            10 => Frame::Pong,
            other => panic!("frame of kind {other}"),
        }
    }

    pub(super) fn json(&mut self) -> Value {
        let frame = self.next();
        let Frame::Json(json) = frame else {
            panic!("not a message: {frame:?}");
        };
        json
    }

    /// The answer to this request; what comes before it is passed over.
    pub(super) fn answer(&mut self, id: u64) -> Value {
        loop {
            let json = self.json();
            if json["id"] == id {
                return json;
            }
        }
    }

    pub(super) fn hello(&mut self, params: Value) -> Value {
        let mut params = params;
        params["version"] = 1.into();
        self.call(0, "hello", params);
        self.answer(0)
    }

    pub(super) fn code(answer: &Value) -> &str {
        answer["error"]["data"]["code"].as_str().unwrap_or_default()
    }
}

fn with_session() -> Endpoint {
    let endpoint = Endpoint::start();
    endpoint.session("s");
    endpoint
}

fn id_of(endpoint: &Endpoint) -> SessionId {
    endpoint.daemon.world().sessions[0].id
}

fn drive(endpoint: &Endpoint) -> (Ws, Value) {
    let mut ws = Ws::on(endpoint);
    let welcome = ws.hello(json!({"role": "drive", "client": "test"}));
    assert_eq!(welcome["result"]["role"], "drive", "{welcome}");
    (ws, welcome["result"].clone())
}

/// Row 115: a prompt is answered with the agent's answer, and events come with their places.
#[test]
fn a_prompt_is_answered_when_its_message_is() {
    let endpoint = with_session();
    let session = id_of(&endpoint);
    let (mut ws, welcome) = drive(&endpoint);
    assert_eq!(welcome["bounds"]["call_ms"], 120_000);
    ws.call(1, "subscribe", json!({}));
    let epoch = ws.answer(1)["result"]["epoch"].clone();
    let snapshot = ws.json();
    assert_eq!(snapshot["method"], "snapshot");
    assert_eq!(snapshot["params"]["report"]["name"], "s");
    ws.call(2, "prompt", json!({"text": "hi", "key": "K"}));
    let queued = ws.json();
    assert_eq!(queued["params"]["event"]["event"], "message_queued");
    assert_eq!(
        (&queued["params"]["epoch"], &queued["params"]["seq"]),
        (&epoch, &json!(1))
    );
    let message = MessageId(1);
    let (text, state) = ("done".to_owned(), MessageState::Answered);
    let changed = SessionEvent::MessageChanged {
        message,
        state,
        text,
    };
    endpoint.daemon.publish(Some(session), changed);
    assert_eq!(ws.json()["params"]["seq"], 2, "told before the answer");
    let answer = ws.json();
    assert_eq!(
        answer["result"],
        json!({"message": 1, "duplicate": false, "state": "answered", "answer": "done"})
    );
}

/// D33, rows 108, 109: a client that comes back gets what it missed, once and in order; the call that
/// was under way is not answered on the new socket.
#[test]
fn a_client_that_comes_back_misses_nothing() {
    let endpoint = with_session();
    let session = id_of(&endpoint);
    let (mut ws, welcome) = drive(&endpoint);
    ws.call(1, "subscribe", json!({}));
    let at = ws.answer(1)["result"].clone();
    ws.call(2, "prompt", json!({"text": "hi"}));
    while ws.json()["params"]["event"]["event"] != "message_queued" {}
    drop(ws);
    let output = |text: &str| {
        let what = SessionEvent::Output {
            message: None,
            text: text.to_owned(),
        };
        endpoint.daemon.publish(Some(session), what);
    };
    ["a", "b", "c"].into_iter().for_each(output);
    let mut ws = Ws::on(&endpoint);
    let back = ws.hello(json!({"resume": welcome["resume"]}));
    assert_eq!(back["result"]["resumed"], true, "{back}");
    assert_eq!(back["result"]["role"], "drive");
    ws.call(3, "subscribe", json!({"after": at}));
    let mut texts = Vec::new();
    output("d");
    while texts.last().is_none_or(|last| last != "d") {
        let event = ws.json();
        assert_ne!(event["id"], 2, "its call was abandoned");
        if let Some(text) = event["params"]["event"]["text"].as_str() {
            texts.push(text.to_owned());
        }
    }
    assert_eq!(texts, ["a", "b", "c", "d"]);
}

/// Row 109: what cannot be replayed is said, and how things stand follows.
#[test]
fn a_place_of_another_epoch_is_a_gap() {
    let endpoint = with_session();
    let (mut ws, _) = drive(&endpoint);
    ws.call(
        1,
        "subscribe",
        json!({"after": {"epoch": "other", "seq": 3}}),
    );
    ws.answer(1);
    assert_eq!(ws.json()["method"], "gap");
    assert_eq!(ws.json()["method"], "snapshot");
}

/// Watchers look on and give no orders; a second driver comes in on purpose only, and the first one
/// is told that it was replaced (4010).
#[test]
fn one_drives_and_many_watch() {
    let endpoint = with_session();
    let (mut first, welcome) = drive(&endpoint);
    let mut watcher = Ws::on(&endpoint);
    watcher.hello(json!({"role": "watch"}));
    watcher.call(1, "show", json!({}));
    assert_eq!(watcher.answer(1)["result"]["name"], "s");
    watcher.call(2, "interrupt", json!({}));
    assert_eq!(Ws::code(&watcher.answer(2)), "not_driver");
    let mut second = Ws::on(&endpoint);
    let refused = second.hello(json!({"role": "drive"}));
    assert_eq!(Ws::code(&refused), "driven");
    assert_eq!(refused["error"]["data"]["held_by"], json!(["test"]));
    let granted = second.hello(json!({"role": "drive", "take_over": true}));
    assert_eq!(granted["result"]["role"], "drive");
    assert_eq!(first.next(), Frame::Close(4010));
    let mut again = Ws::on(&endpoint);
    let refused = again.hello(json!({"resume": welcome["resume"]}));
    assert_eq!(Ws::code(&refused), "resume_refused");
    assert_eq!(refused["error"]["data"]["drop_reason"], "superseded");
    let soon = again.hello(json!({"role": "drive", "take_over": true}));
    assert_eq!(Ws::code(&soon), "taken_over_too_soon");
    assert!(soon["error"]["data"]["retry_in_ms"].as_u64().unwrap() <= 5000);
}

/// D34: the connection is taken up again before the break of its socket was seen; the old socket's
/// end changes nothing.
#[test]
fn the_late_end_of_an_old_socket_hurts_nobody() {
    let endpoint = with_session();
    let (mut old, welcome) = drive(&endpoint);
    let mut new = Ws::on(&endpoint);
    assert_eq!(
        new.hello(json!({"resume": welcome["resume"]}))["result"]["resumed"],
        true
    );
    assert_eq!(old.next(), Frame::Close(4010));
    drop(old);
    new.call(1, "interrupt", json!({}));
    assert_eq!(new.answer(1)["result"], json!({}));
}

/// A refusal of the daemon keeps its code, and says what it means.
#[test]
fn refusals_are_failures_with_a_meaning() {
    let endpoint = with_session();
    let (mut ws, _) = drive(&endpoint);
    endpoint.refuse(Refusal::Held {
        held_by: vec!["task: x".to_owned()],
    });
    ws.call(1, "release", json!({}));
    let failure = ws.answer(1)["error"]["data"].clone();
    assert_eq!(failure["code"], "held");
    assert_eq!(failure["held_by"], json!(["task: x"]));
    assert_eq!(
        (&failure["retryable"], &failure["may_have_run"]),
        (&json!(true), &json!(false))
    );
    ws.call(2, "sow", json!({}));
    assert_eq!(ws.answer(2)["error"]["code"], -32601);
    ws.call(3, "prompt", json!({"txt": "x"}));
    assert_eq!(Ws::code(&ws.answer(3)), "invalid");
    ws.call(4, "hello", json!({}));
    assert_eq!(Ws::code(&ws.answer(4)), "out_of_order");
}

/// A socket of one session reaches no message of another, and learns nothing of it.
#[test]
fn a_message_of_another_session_is_none() {
    let endpoint = with_session();
    let other = endpoint.opened("other");
    let sent = endpoint.post("/v1/sessions/other/messages", r#"{"text":"a secret"}"#);
    assert_eq!(sent.status, 202, "{}", sent.text());
    endpoint.daemon.world().messages[0].0.state = MessageState::Parked;
    let (mut ws, _) = drive(&endpoint);
    for (id, method) in [(1, "message"), (2, "cancel"), (3, "retry")] {
        ws.call(id, method, json!({"message": 1}));
        let answer = ws.answer(id);
        assert_eq!(Ws::code(&answer), "no_such_message", "{method}: {answer}");
        assert!(!answer.to_string().contains(&other.to_string()), "{answer}");
    }
    let world = endpoint.daemon.world();
    assert_eq!(world.messages[0].0.state, MessageState::Parked);
}

/// Rows 103, D54: no token, a wrong one, a foreign page, a session there is not.
#[test]
fn whoever_may_not_is_sent_away_with_the_right_code() {
    let endpoint = with_session();
    let host = format!("Host: {}\r\n", endpoint.tcp);
    let tcp = |headers: &str| Ws::open(endpoint.connect_tcp(), PATH, &format!("{host}{headers}"));
    assert_eq!(tcp("Origin: http://evil.example\r\n").status(), 403);
    for headers in ["", "Authorization: Bearer wrong\r\n"] {
        for token in [Value::Null, "wrong".into()] {
            let mut ws = tcp(headers);
            assert_eq!(ws.status(), 101);
            ws.call(0, "hello", json!({"version": 1, "token": token}));
            assert_eq!(ws.next(), Frame::Close(4001));
        }
    }
    let mut ws = tcp("");
    ws.status();
    assert_eq!(
        ws.hello(json!({"token": endpoint.token()}))["result"]["role"],
        "watch"
    );
    let watchers = fs::read_to_string(endpoint.folder.path().join("token-read")).unwrap();
    let watchers = watchers.trim();
    let mut ws = tcp("");
    ws.status();
    ws.call(
        0,
        "hello",
        json!({"version": 1, "token": watchers, "role": "drive"}),
    );
    assert_eq!(ws.next(), Frame::Close(4003), "it only looks");
    let mut ws = tcp("");
    ws.status();
    let looks = ws.hello(json!({ "token": watchers }));
    assert_eq!(looks["result"]["role"], "watch");
    for (role, seen) in [("watch", true), ("drive", false)] {
        let mut ws = tcp(&format!("Authorization: Bearer {watchers}\r\n"));
        ws.status();
        ws.call(0, "hello", json!({"version": 1, "role": role}));
        let closed = ws.next() == Frame::Close(4003);
        assert_eq!(closed, !seen, "{role}, with the token in the head");
    }
    let mut ws = tcp(&format!("Authorization: Bearer {}\r\n", endpoint.token()));
    ws.status();
    assert_eq!(ws.hello(json!({}))["result"]["role"], "watch");
    let mut ws = Ws::open(endpoint.connect(), "/v1/sessions/other/ws", "");
    ws.status();
    ws.call(0, "hello", json!({"version": 1}));
    assert_eq!(ws.next(), Frame::Close(4004));
    let plain = endpoint.get(PATH);
    assert_eq!((plain.status, &*problem(&plain).code), (400, "invalid"));
}

/// Bad frames are answered with a code; a claim of 1 GB is believed by nobody.
#[test]
fn bad_frames_close_the_socket() {
    let endpoint = with_session();
    for (first, claimed, payload, code) in [
        (0x82, 2, &b"{}"[..], 1003),
        (0x81, 1 << 30, b"{", 1009),
        (0x81, u64::MAX, b"{", 1009),
        // Kinds of frames there are not.
        (0x83, 2, b"{}", 1002),
        (0x8b, 0, b"", 1002),
        // Control frames are short and whole.
        (0x89, 126, &[0; 126], 1002),
        (0x8a, 200, &[0; 200], 1002),
        (0x09, 0, b"", 1002),
        // A continuation of nothing.
        (0x80, 2, b"{}", 1002),
        (0x00, 2, b"{}", 1002),
        // Reserved bits.
        (0xc1, 2, b"{}", 1002),
        (0xa1, 2, b"{}", 1002),
        (0x91, 2, b"{}", 1002),
    ] {
        let mut ws = Ws::on(&endpoint);
        ws.hello(json!({"role": "drive", "keep": false}));
        ws.frame(first, claimed, payload);
        assert_eq!(ws.next(), Frame::Close(code), "{first:x} {claimed}");
    }
}

/// A client masks what it sends; text is UTF-8.
#[test]
fn unmasked_frames_and_bad_text_close_the_socket() {
    let endpoint = with_session();
    for (bytes, codes) in [
        (&b"\x81\x02{}"[..], [1002, 1002]),
        (b"\x81\x82\0\0\0\0\xff\xfe", [1007, 1002]),
        (b"\x01\x81\0\0\0\0a\x81\x81\0\0\0\0b", [1002, 1002]),
    ] {
        let mut ws = Ws::on(&endpoint);
        ws.hello(json!({"role": "drive", "keep": false}));
        ws.0.write(bytes);
        let closed = ws.next();
        assert!(
            codes.map(Frame::Close).contains(&closed),
            "{bytes:x?}: {closed:?}"
        );
    }
}

/// Fragments without end are as long as one message may be, together; bytes that drip are a message
/// in the end, and ten thousand pings are answered by pongs.
#[test]
fn fragments_have_a_bound_and_drops_make_a_message() {
    let endpoint = with_session();
    let mut ws = Ws::on(&endpoint);
    ws.hello(json!({"keep": false}));
    let mebibyte = vec![b'a'; 1 << 20];
    ws.frame(0x01, 1 << 20, &mebibyte);
    for _ in 0..13 {
        ws.frame(0x00, 1 << 20, &mebibyte);
    }
    assert_eq!(ws.next(), Frame::Close(1009));
    let mut ws = Ws::on(&endpoint);
    ws.hello(json!({}));
    let text = br#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
    let length = u8::try_from(text.len()).unwrap();
    ws.0.write(&[0x81]);
    ws.0.write(&[0x80 | length]);
    [0; 4]
        .iter()
        .chain(text)
        .for_each(|byte| ws.0.write(&[*byte]));
    assert!(ws.answer(9)["error"].is_null());
    for _ in 0..100 {
        (0..100).for_each(|_| ws.frame(0x89, 0, b""));
        (0..100).for_each(|_| assert_eq!(ws.next(), Frame::Pong));
    }
}

/// Text that is no request is answered, and the connection lives.
#[test]
fn nonsense_is_answered() {
    let endpoint = with_session();
    let (mut ws, _) = drive(&endpoint);
    for text in [
        "",
        "[]",
        "{",
        "\"x\"",
        "{\"jsonrpc\":\"2.0\",\"method\":\"show\"}",
    ] {
        ws.text(text);
        assert_eq!(Ws::code(&ws.json()), "not_a_request", "{text}");
    }
    ws.frame(0x89, 1, b"x");
    assert_eq!(ws.next(), Frame::Pong);
    ws.call(1, "ping", json!({}));
    assert_eq!(ws.answer(1)["result"], json!({}));
}

/// Row 112: a goodbye is answered; the connection is not kept, and its driver's place is free.
#[test]
fn a_goodbye_frees_the_place() {
    let endpoint = with_session();
    let (mut ws, _) = drive(&endpoint);
    ws.call(1, "close", json!({}));
    assert_eq!(ws.answer(1)["result"], json!({}));
    assert_eq!(ws.next(), Frame::Close(1000));
    drop(ws);
    drop(drive(&endpoint));
}

/// The end of the daemon is said (4012), and so is the end of the session (4004), after everything
/// that came before it.
#[test]
fn the_end_is_said() {
    let mut endpoint = with_session();
    let (mut ws, _) = drive(&endpoint);
    ws.call(1, "subscribe", json!({}));
    ws.answer(1);
    assert_eq!(ws.json()["method"], "snapshot");
    endpoint
        .daemon
        .publish(Some(id_of(&endpoint)), SessionEvent::Removed);
    assert_eq!(ws.json()["params"]["event"]["event"], "removed");
    assert_eq!(ws.next(), Frame::Close(4004));
    let (mut ws, _) = drive(&endpoint);
    let ended = std::thread::spawn(move || endpoint.stop());
    assert_eq!(ws.next(), Frame::Close(4012));
    drop(ws);
    ended.join().unwrap();
}

/// Row 104: a limit of the connection itself closes it (4008).
#[test]
fn a_silent_connection_with_a_limit_is_closed() {
    let endpoint = with_session();
    let mut ws = Ws::on(&endpoint);
    ws.hello(json!({"idle_timeout_ms": 50}));
    assert_eq!(ws.next(), Frame::Close(4008));
    let mut ws = Ws::on(&endpoint);
    ws.hello(json!({"role": "drive", "hard_timeout_ms": 50}));
    ws.call(1, "prompt", json!({"text": "never answered"}));
    let answer = ws.answer(1);
    assert_eq!(Ws::code(&answer), "hard_timeout");
    assert_eq!(answer["error"]["data"]["may_have_run"], true);
    assert_eq!(ws.next(), Frame::Close(4009));
}

/// Reading is never activity: no order and no hold comes of watching (behaviour 19).
#[test]
fn watching_changes_nothing() {
    let endpoint = with_session();
    let mut ws = Ws::on(&endpoint);
    ws.hello(json!({}));
    for (id, method) in [(1, "subscribe"), (2, "show"), (3, "messages")] {
        ws.call(id, method, json!({}));
        ws.answer(id);
    }
    drop(ws);
    let state = SessionState::Working;
    let what = SessionEvent::StateChanged {
        from: state,
        to: state,
    };
    endpoint.daemon.publish(Some(id_of(&endpoint)), what);
    assert!(endpoint.daemon.world().orders.is_empty());
}
