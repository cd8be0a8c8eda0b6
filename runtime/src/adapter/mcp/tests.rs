//! One test per rule; the transcript is in `golden.txt`.

use drowse_messages::{AgentStatus, TurnOutcome};
use serde_json::{Value, json};

use super::super::golden::{check, ends, feed, told};
use super::super::{Adapter, Direction, Fact, Observer, Pass, Relay, Seen};
use super::Mcp;

fn json_of(line: &[u8]) -> Value {
    serde_json::from_slice(line).expect("it is JSON")
}

/// Shows the observer what it wrote, and gives it back.
fn write(observer: &mut dyn Observer, seen: &Seen) -> Vec<Value> {
    let write = |line: &Vec<u8>| {
        observer.observe(Direction::In, line);
        json_of(line)
    };
    seen.write.iter().map(write).collect()
}

fn ready() -> Box<dyn Observer> {
    let mut observer = Mcp.observe(None, "");
    let open = observer.open();
    let hello = write(&mut *observer, &open);
    assert_eq!(hello[0]["method"], "initialize");
    let answer = json!({ "id": hello[0]["id"], "result": { "serverInfo": {} } });
    let seen = observer.observe(Direction::Out, answer.to_string().as_bytes());
    assert_eq!(
        json_of(&seen.write[0])["method"],
        "notifications/initialized"
    );
    let facts = observer.observe(Direction::In, &seen.write[0]).facts;
    assert!(matches!(
        &facts[..],
        [
            Fact::Status(AgentStatus::Conversation(it)),
            Fact::Status(AgentStatus::Ready)
        ] if it.resumable
    ));
    observer
}

/// A recorded transcript of the reference server, line by line.
#[test]
fn transcripts_are_understood() {
    check(&Mcp, "mcp");
}

/// Requests in flight hold, whoever made them and however many there are; a ping is none.
#[test]
fn requests_in_flight_are_a_turn() {
    let mut observer = ready();
    let ping = [r#">{"id":1,"method":"ping"}"#, r#"{"id":1,"result":{}}"#];
    assert!(feed(&mut *observer, &ping).is_empty());
    let two = [
        r#">{"id":2,"method":"tools/call","params":{}}"#,
        r#">{"id":3,"method":"tools/list"}"#,
    ];
    assert_eq!(told(&mut *observer, &two), ["TurnStarted"]);
    let progress =
        r#"{"method":"notifications/progress","params":{"progress":1,"message":"half"}}"#;
    assert_eq!(told(&mut *observer, &[progress]), [r#"Output "half\n""#]);
    assert!(feed(&mut *observer, &[r#"{"id":3,"result":{}}"#]).is_empty());
    let facts = feed(&mut *observer, &[r#"{"id":2,"result":{"a":1}}"#]);
    assert_eq!(ends(&facts)[0].outcome, TurnOutcome::Completed);
    let cancelled = [
        r#">{"id":4,"method":"tools/call"}"#,
        r#">{"method":"notifications/cancelled","params":{"requestId":4}}"#,
    ];
    let facts = feed(&mut *observer, &cancelled);
    assert_eq!(ends(&facts)[0].outcome, TurnOutcome::Interrupted);
}

/// A message is a method with its parameters; its answer is the result as it came.
#[test]
fn a_message_is_a_request() {
    let mut observer = ready();
    for (text, method, params) in [
        ("tools/list", "tools/list", json!({})),
        (
            "tools/call {\"name\": \"x\"}",
            "tools/call",
            json!({ "name": "x" }),
        ),
        ("say hello", "say", json!("hello")),
    ] {
        let seen = observer.prompt(text);
        let request = write(&mut *observer, &seen).remove(0);
        assert_eq!(
            (&request["method"], &request["params"]),
            (&method.into(), &params)
        );
        let cancel = observer.interrupt();
        assert_eq!(
            json_of(&cancel.write[0])["params"]["requestId"],
            request["id"]
        );
        let answer = json!({ "id": request["id"], "result": { "n": 1 } }).to_string();
        let facts = feed(&mut *observer, &[&answer]);
        assert_eq!(ends(&facts)[0].text, r#"{"n":1}"#);
    }
}

/// A server that asks is answered: it is there, and nothing else is lent to it.
#[test]
fn requests_of_the_server_are_answered() {
    let mut observer = ready();
    for (method, is_there) in [("ping", true), ("sampling/createMessage", false)] {
        let line = json!({ "id": 0, "method": method }).to_string();
        let seen = observer.observe(Direction::Out, line.as_bytes());
        let answer = json_of(&seen.write[0]);
        assert_eq!(answer["result"].is_object(), is_there, "{answer}");
        assert_eq!(answer["error"]["code"] == -32601, !is_there, "{answer}");
    }
}

/// D18: a server keeps something unless somebody says that it does not.
#[test]
fn a_server_is_not_released_by_itself() {
    assert!(!Mcp.can_resume());
}

fn says(relay: &mut dyn Relay, line: &Value) -> Pass {
    relay.from_agent(line.to_string().as_bytes())
}

/// The next process is greeted as the first was, logs as much, and is subscribed to the same; the
/// host hears nothing of it.
#[test]
fn a_relay_greets_the_next_process() {
    let mut relay = Mcp.relay(None).expect("it has one");
    let subscribe = |uri: &str| json!({ "uri": uri });
    for (id, (method, params)) in [
        ("initialize", json!({ "clientInfo": { "name": "host" } })),
        ("logging/setLevel", json!({ "level": "warning" })),
        ("resources/subscribe", subscribe("a")),
        ("resources/subscribe", subscribe("b")),
        ("resources/unsubscribe", subscribe("a")),
        ("tools/list", json!({})),
    ]
    .into_iter()
    .enumerate()
    {
        let line = json!({ "id": id, "method": method, "params": params }).to_string();
        assert_eq!(relay.from_host(line.as_bytes()), Pass::AsIs);
        assert_eq!(
            says(&mut *relay, &json!({ "id": id, "result": {} })),
            Pass::AsIs
        );
    }
    let mut relay = Mcp.relay(Some(&relay.memory())).expect("it has one");
    let first = relay.reopen();
    let mut asked = json_of(&first[0]);
    assert_eq!(asked["params"]["clientInfo"]["name"], "host");
    let mut heard = Vec::new();
    while let Pass::Answered(lines) = says(&mut *relay, &json!({ "id": asked["id"], "result": {} }))
    {
        assert!(!relay.is_open());
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            asked = json_of(line);
            heard.push(asked["method"].as_str().unwrap_or_default().to_owned());
        }
    }
    assert_eq!(
        heard,
        [
            "notifications/initialized",
            "logging/setLevel",
            "resources/subscribe"
        ]
    );
    assert_eq!(asked["params"]["uri"], "b");
    assert!(relay.is_open());
}

/// A ping is no use of a server, and is answered in its place while it is greeted.
#[test]
fn a_ping_is_answered_from_outside() {
    let ping = br#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let mut relay = Mcp.relay(None).expect("it has one");
    assert!(relay.is_idle_talk(ping));
    assert!(!relay.is_idle_talk(br#"{"id":1,"method":"tools/list"}"#));
    assert_eq!(relay.from_host(ping), Pass::AsIs, "it is there");
    relay.from_host(br#"{"id":0,"method":"initialize","params":{}}"#);
    relay.reopen();
    let Pass::Answered(answer) = relay.from_host(ping) else {
        panic!("it is answered")
    };
    assert_eq!(
        json_of(&answer),
        json!({ "jsonrpc": "2.0", "id": "p", "result": {} })
    );
}
