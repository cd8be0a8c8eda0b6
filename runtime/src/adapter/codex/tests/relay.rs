//! The relay: a host that does not notice that its Codex is another one.

use serde_json::{Value, json};

use super::super::super::{Adapter, Pass, Relay};
use super::{Codex, OTHER, THREAD, answer, error, said};

fn line(pass: &Pass) -> Value {
    let (Pass::Instead(line) | Pass::Answered(line)) = pass else {
        panic!("{pass:?}")
    };
    assert!(line.ends_with(b"\n"));
    serde_json::from_slice(line).expect("it is one line of JSON")
}

fn lines(pass: &Pass) -> Vec<Value> {
    let Pass::Answered(lines) = pass else {
        panic!("{pass:?}")
    };
    let lines = String::from_utf8(lines.clone()).expect("JSON is UTF-8");
    let json = |line: &str| serde_json::from_str(line).expect("it is JSON");
    lines.lines().map(json).collect()
}

fn host(id: u32, method: &str, params: &Value) -> String {
    json!({ "id": id, "method": method, "params": params }).to_string()
}

/// All of these go through as they came.
fn pass(relay: &mut dyn Relay, exchanged: &[(&str, String)]) {
    for (from, line) in exchanged {
        let pass = match *from {
            "host" => relay.from_host(line.as_bytes()),
            _ => relay.from_agent(line.as_bytes()),
        };
        assert_eq!(pass, Pass::AsIs, "{line}");
    }
}

fn opened(id: u32, thread: &str) -> String {
    json!({ "id": id, "result": { "thread": { "id": thread } } }).to_string()
}

fn turn(method: &str, thread: &str) -> String {
    said(method, json!({ "threadId": thread, "turn": { "id": "t" } }))
}

/// A relay whose process was let go after one turn in THREAD; with `second`, a thread OTHER was
/// opened in which nothing was said.
fn released(second: bool) -> Box<dyn Relay> {
    let mut relay = Codex.relay(None).expect("codex has one");
    assert!(relay.is_open());
    let hello = json!({ "clientInfo": { "name": "host", "version": "1" } });
    let start = json!({ "cwd": "/w", "model": "a", "sandbox": "workspace-write",
        "config": { "x": 1 }, "ephemeral": false });
    let prompt = json!({ "threadId": THREAD, "input": [], "model": "b",
        "sandboxPolicy": { "type": "readOnly" } });
    let asks = json!({ "id": 0, "method": "item/commandExecution/requestApproval", "params": {} });
    let mut exchanged = vec![
        ("host", host(1, "initialize", &hello)),
        ("agent", json!({ "id": 1, "result": {} }).to_string()),
        ("host", r#"{"method":"initialized"}"#.to_owned()),
        ("host", host(2, "thread/start", &start)),
        ("agent", opened(2, THREAD)),
        ("host", host(3, "turn/start", &prompt)),
        ("agent", json!({ "id": 3, "result": {} }).to_string()),
        ("agent", turn("turn/started", THREAD)),
        ("agent", asks.to_string()),
        (
            "host",
            r#"{"id":0,"result":{"decision":"accept"}}"#.to_owned(),
        ),
        ("agent", turn("turn/completed", THREAD)),
        (
            "agent",
            said(
                "mcpServer/startupStatus/updated",
                json!({ "status": "ready" }),
            ),
        ),
    ];
    if second {
        exchanged.push(("host", host(4, "thread/start", &json!({ "model": "c" }))));
        exchanged.push(("agent", opened(4, OTHER)));
        // An ephemeral one is not remembered, nor is one that was let go.
        exchanged.push(("host", host(5, "thread/start", &json!({}))));
        let gone = json!({ "thread": { "id": "e", "ephemeral": true } });
        exchanged.push(("agent", json!({ "id": 5, "result": gone }).to_string()));
        exchanged.push(("host", host(6, "thread/start", &json!({}))));
        exchanged.push(("agent", opened(6, "closed")));
        exchanged.push((
            "agent",
            said("thread/closed", json!({ "threadId": "closed" })),
        ));
    }
    pass(&mut *relay, &exchanged);
    let memory = relay.memory();
    Codex.relay(Some(&memory)).expect("codex has one")
}

fn id_of(line: &Value) -> String {
    line["id"].as_str().expect("our ids are text").to_owned()
}

/// The host's greeting is said again, each thread is taken up again with what Codex does not write
/// down, and nothing of it reaches the host.
#[test]
fn a_woken_process_is_greeted_and_given_its_thread() {
    let mut relay = released(false);
    let hello = relay.reopen();
    assert!(!relay.is_open());
    let hello: Value = serde_json::from_slice(&hello[0]).expect("it is JSON");
    assert_eq!(hello["params"]["clientInfo"]["name"], "host");
    let remote = json!({ "method": "remoteControl/status/changed", "params": {} }).to_string();
    assert_eq!(relay.from_agent(remote.as_bytes()), Pass::Swallowed);
    let next = lines(&relay.from_agent(answer(&id_of(&hello), json!({})).as_bytes()));
    assert_eq!(next[0]["method"], "initialized");
    assert_eq!(next[1]["method"], "thread/resume");
    // The sandbox of the start is wider than what the host said last: it is left out.
    let params = json!({ "threadId": THREAD, "excludeTurns": true, "cwd": "/w", "model": "b",
        "config": { "x": 1 } });
    assert_eq!(next[1]["params"], params);
    let status = said(
        "thread/status/changed",
        json!({ "status": { "type": "idle" } }),
    );
    assert_eq!(relay.from_agent(status.as_bytes()), Pass::Swallowed);
    let thread = json!({ "thread": { "id": THREAD } });
    let next = lines(&relay.from_agent(answer(&id_of(&next[1]), thread).as_bytes()));
    assert_eq!(next[0]["method"], "thread/settings/update");
    assert_eq!(
        next[0]["params"]["sandboxPolicy"],
        json!({ "type": "readOnly" })
    );
    assert!(!relay.is_open());
    // An older Codex, or one without experiments, does not know it: what it wrote down holds.
    assert_eq!(
        relay.from_agent(error(&id_of(&next[0]), "unknown").as_bytes()),
        Pass::Swallowed
    );
    assert!(relay.is_open());

    let ready = |status: &str| {
        said(
            "mcpServer/startupStatus/updated",
            json!({ "status": status }),
        )
    };
    for echo in [ready("ready"), said("thread/tokenUsage/updated", json!({}))] {
        assert_eq!(relay.from_agent(echo.as_bytes()), Pass::Swallowed, "{echo}");
    }
    let exchanged = [
        ("agent", ready("failed")),
        (
            "host",
            host(7, "turn/start", &json!({ "threadId": THREAD, "input": [] })),
        ),
        ("agent", json!({ "id": 7, "result": {} }).to_string()),
        ("agent", status),
        ("agent", turn("turn/started", THREAD)),
        ("agent", said("thread/tokenUsage/updated", json!({}))),
        ("agent", turn("turn/completed", THREAD)),
    ];
    pass(&mut *relay, &exchanged);
}

/// D16: every process numbers what it asks from 0. An answer reaches what it was given for: not
/// one of a process that is gone, and not one of the next.
#[test]
fn an_answer_reaches_the_request_it_was_given_for() {
    let mut relay = released(false);
    let first = |relay: &mut dyn Relay| {
        drop(relay.reopen());
        let asks = r#"{"id":0,"method":"item/fileChange/requestApproval","params":{"x": 1.0}}"#;
        line(&relay.from_agent(asks.as_bytes()))
    };
    let asked = first(&mut *relay);
    assert_eq!(asked["id"], "drowse-asks-1-0");
    assert_eq!(asked["params"].to_string(), r#"{"x":1.0}"#);
    let resolved = said("serverRequest/resolved", json!({ "requestId": 0 }));
    let resolved = relay.from_agent(resolved.as_bytes());
    // It comes while the process is greeted, and that the host knows of.
    assert_eq!(line(&resolved)["params"]["requestId"], "drowse-asks-1-0");
    let decided = |id: &Value| json!({ "id": id, "result": { "decision": "accept" } }).to_string();
    let passed = relay.from_host(decided(&asked["id"]).as_bytes());
    assert_eq!(line(&passed)["id"], 0);
    let late = [
        json!(0),
        json!("0"),
        json!("drowse-asks-0-0"),
        json!("drowse-asks-2-0"),
    ];
    for late in late {
        assert_eq!(relay.from_host(decided(&late).as_bytes()), Pass::Swallowed);
    }
    let asked = first(&mut *relay);
    assert_eq!(asked["id"], "drowse-asks-2-0");
}

/// A thread in which nothing was said is on no disk: another takes its place, under its name.
#[test]
fn a_thread_without_a_turn_is_started_anew_under_its_name() {
    let mut relay = released(true);
    let hello: Value = serde_json::from_slice(&relay.reopen()[0]).expect("it is JSON");
    let next = lines(&relay.from_agent(answer(&id_of(&hello), json!({})).as_bytes()));
    let resumed: Vec<_> = next[1..]
        .iter()
        .map(|line| &line["params"]["threadId"])
        .collect();
    assert_eq!(resumed, [THREAD, OTHER]);
    let lost = error(&id_of(&next[2]), "no rollout found for thread id");
    let start = line(&relay.from_agent(lost.as_bytes()));
    assert_eq!(
        (&start["method"], &start["params"]),
        (&json!("thread/start"), &json!({ "model": "c" }))
    );
    let new = "01a22fff-0000-7000-8000-000000000000";
    let thread = json!({ "thread": { "id": new } });
    assert_eq!(
        relay.from_agent(answer(&id_of(&start), thread).as_bytes()),
        Pass::Swallowed
    );
    assert!(!relay.is_open(), "the other one is awaited");
    let prompt = host(7, "turn/start", &json!({ "threadId": OTHER, "input": [] }));
    assert_eq!(
        line(&relay.from_host(prompt.as_bytes()))["params"]["threadId"],
        new
    );
    let began = relay.from_agent(turn("thread/name/updated", new).as_bytes());
    assert_eq!(began, Pass::Swallowed, "not open yet");

    // For the spoken one nothing else will do: it never opens.
    let lost = error(&id_of(&next[1]), "no rollout found for thread id");
    assert_eq!(relay.from_agent(lost.as_bytes()), Pass::Swallowed);
    assert!(!relay.is_open());
}

/// D39: a relay passes on what it cannot read, and no memory makes it fail.
#[test]
fn noise_passes_as_it_came() {
    for memory in [None, Some(&b"[]"[..]), Some(b"{\"threads\":7}")] {
        let mut relay = Codex.relay(memory).expect("codex has one");
        for noise in [
            &b"\xff\xfe"[..],
            b"",
            b"{",
            b"[]",
            b"7",
            b"{\"method\":7}",
            b"{\"id\":1}",
        ] {
            assert_eq!(relay.from_host(noise), Pass::AsIs);
            assert_eq!(relay.from_agent(noise), Pass::AsIs);
        }
        assert!(relay.is_open());
    }
}

/// What is remembered is bounded, however many threads with whatever instructions there are.
#[test]
fn memory_is_bounded() {
    let mut relay = Codex.relay(None).expect("codex has one");
    for id in 0..200 {
        // Some that are kept, and more that are too long to be.
        let words = "x".repeat(if id % 4 == 0 { 30_000 } else { 100_000 });
        let start = host(
            id,
            "thread/start",
            &json!({ "developerInstructions": words }),
        );
        let exchanged = [
            ("host", start),
            ("agent", opened(id, &format!("thread-{id}"))),
        ];
        pass(&mut *relay, &exchanged);
        let model = json!({ "threadId": format!("thread-{id}"), "effort": if id > 100 { words.as_str() } else { "low" } });
        pass(&mut *relay, &[("host", host(id, "turn/start", &model))]);
    }
    assert!(relay.memory().len() < 1024 * 1024);
}
