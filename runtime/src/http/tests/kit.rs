//! Tasks and holds over HTTP, and what the token of a session opens.

use drowse_messages::{HoldId, Order, SessionId, TakenHold};

use super::*;

fn orders(endpoint: &Endpoint) -> Vec<Order> {
    let mut world = endpoint.daemon.world();
    world.orders.drain(..).map(|(_, order)| order).collect()
}

fn session_token(endpoint: &Endpoint, id: SessionId) -> String {
    let tokens = SessionTokens::of(endpoint.folder.path()).unwrap();
    format!("Authorization: Bearer {}", tokens.token(id))
}

#[test]
fn a_task_begins_and_ends() {
    let endpoint = Endpoint::start();
    endpoint.opened("fix");
    let reply = endpoint.post("/v1/sessions/fix/tasks", r#"{"name":"build/all"}"#);
    assert_eq!(reply.status, 202, "{}", reply.text());
    let all = r#"{"name":"w","kind":"watch","why":"looks","ambient":true,"owner":"hooks"}"#;
    assert_eq!(endpoint.post("/v1/sessions/fix/tasks", all).status, 202);
    let path = "/v1/sessions/fix/tasks/build%2Fall";
    let reply = endpoint.connect().ask("DELETE", path, &[], b"");
    assert_eq!(reply.status, 202, "{}", reply.text());
    let orders = orders(&endpoint);
    let [
        Order::StartTask(first),
        Order::StartTask(second),
        Order::EndTask(end),
    ] = &orders[..]
    else {
        panic!("{orders:?}");
    };
    let told = |start: &drowse_messages::StartTask| {
        let task = &start.task;
        let texts = [&task.id, &task.kind, &task.description, &start.owner];
        (texts.map(Clone::clone), task.ambient)
    };
    let texts = |texts: [&str; 4]| texts.map(str::to_owned);
    let plain = texts(["build/all", "task", "build/all", "api"]);
    assert_eq!(told(first), (plain, false));
    assert_eq!(
        told(second),
        (texts(["w", "watch", "looks", "hooks"]), true)
    );
    assert_eq!(end.id, "build/all");
    assert_eq!(endpoint.get("/v1/sessions/fix/tasks").text(), "[]");
}

/// Behaviour 143: what, who, why, until; the same number again makes it last longer.
#[test]
fn a_hold_is_taken_renewed_and_lifted() {
    let endpoint = Endpoint::start();
    let session = endpoint.opened("fix");
    let body = r#"{"ttl":"20m","why":"deploy","owner":"ci"}"#;
    let reply = endpoint.post("/v1/sessions/fix/holds", body);
    assert_eq!(reply.status, 201, "{}", reply.text());
    let taken: TakenHold = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!((taken.session, taken.ttl_ms), (session, 1_200_000));
    let place = format!("/v1/sessions/{session}/holds/{}", taken.id);
    assert_eq!(reply.header("location"), Some(&*place));
    let body = format!(r#"{{"ttl":"1h","why":"deploy","id":{}}}"#, taken.id);
    assert_eq!(endpoint.post("/v1/sessions/fix/holds", &body).status, 201);
    let reply = endpoint.connect().ask("DELETE", &place, &[], b"");
    assert_eq!(reply.status, 202, "{}", reply.text());
    let orders = orders(&endpoint);
    let [
        Order::TakeHold(first),
        Order::TakeHold(second),
        Order::LiftHold(lifted),
    ] = &orders[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!((&*first.why, &*first.owner), ("deploy", "ci"));
    assert_eq!((second.id, lifted.id), (first.id, first.id));
    assert_ne!(first.id, HoldId(0));
    assert_eq!(endpoint.get("/v1/sessions/fix/holds").text(), "[]");
}

#[test]
fn what_is_wrong_with_a_task_or_a_hold_is_named() {
    let endpoint = Endpoint::start();
    endpoint.opened("fix");
    let long = "x".repeat(201);
    for (path, body, field) in [
        ("tasks", r#"{"name":""}"#.to_owned(), "name"),
        ("tasks", r#"{"name":"a\nb"}"#.to_owned(), "name"),
        ("tasks", format!(r#"{{"name":"{long}"}}"#), "name"),
        ("tasks", r#"{"name":"a","kind":" "}"#.to_owned(), "kind"),
        ("tasks", r#"{"nam":"a"}"#.to_owned(), "nam"),
        ("holds", r#"{"ttl":"20","why":"w"}"#.to_owned(), "ttl"),
        ("holds", r#"{"ttl":"0s","why":"w"}"#.to_owned(), "ttl"),
        ("holds", r#"{"ttl":"1h","why":""}"#.to_owned(), "why"),
        ("holds", r#"{"why":"w"}"#.to_owned(), "ttl"),
    ] {
        let reply = endpoint.post(&format!("/v1/sessions/fix/{path}"), &body);
        assert_eq!(reply.status, 400, "{body}");
        let detail = problem(&reply).detail;
        assert!(detail.contains(field), "{body}: {detail}");
    }
    let reply = endpoint
        .connect()
        .ask("DELETE", "/v1/sessions/fix/holds/x", &[], b"");
    assert_eq!(reply.status, 400);
    assert!(orders(&endpoint).is_empty());
}

/// The token of a session opens its tasks and holds, on either socket, and nothing else.
#[test]
fn a_sessions_token_reaches_no_further() {
    let endpoint = Endpoint::start();
    let (own, other) = (endpoint.opened("own"), endpoint.opened("other"));
    let token = session_token(&endpoint, own);
    let host = format!("Host: {}", endpoint.tcp);
    let task = r#"{"name":"build"}"#.as_bytes();
    let ways: [(&dyn Fn() -> Client, Vec<&str>); 2] = [
        (&|| endpoint.connect(), vec![&token]),
        (&|| endpoint.connect_tcp(), vec![&host, &token]),
    ];
    for (connect, headers) in ways {
        let status = |method: &str, path: &str| {
            let body: &[u8] = if method == "POST" { task } else { b"" };
            connect().ask(method, path, &headers, body).status
        };
        for (method, path, expected) in [
            ("POST", format!("/v1/sessions/{own}/tasks"), 202),
            ("GET", format!("/v1/sessions/{own}/holds"), 200),
            ("DELETE", format!("/v1/sessions/{own}/tasks/build"), 202),
            ("POST", format!("/v1/sessions/{other}/tasks"), 403),
            ("GET", format!("/v1/sessions/{other}/holds"), 403),
            ("POST", "/v1/sessions/own/tasks".to_owned(), 403),
            ("GET", format!("/v1/sessions/{own}"), 403),
            ("POST", format!("/v1/sessions/{own}/stop"), 403),
            ("POST", format!("/v1/sessions/{own}x/tasks"), 403),
            ("POST", format!("/v1/sessions/{own}/tasks/../stop"), 403),
            ("POST", format!("/v1/sessions//{own}/tasks"), 403),
            ("GET", "/v1/sessions".to_owned(), 403),
            ("GET", "/v1/status".to_owned(), 403),
            ("GET", "/nothing".to_owned(), 403),
        ] {
            let got = status(method, &path);
            let refused = expected == 403 && matches!(got, 403..=405);
            assert!(got == expected || refused, "{method} {path}: {got}");
        }
    }
    let made_up = format!("Authorization: Bearer {own}.{}", "0".repeat(64));
    let reply = endpoint.connect().ask(
        "GET",
        &format!("/v1/sessions/{own}/holds"),
        &[&made_up],
        b"",
    );
    assert_eq!(reply.status, 401);
    let mut owners = Vec::new();
    for order in orders(&endpoint) {
        if let Order::StartTask(start) = order {
            owners.push(start.owner);
        }
    }
    assert_eq!(owners, ["inside the agent", "inside the agent"]);
}
