//! What a client may be: not too large, not too slow, and about something there is.

use std::time::Duration;

use super::*;

/// A path or method there is not is a problem as any other.
#[test]
fn unknown_paths_and_methods_are_problems() {
    let endpoint = Endpoint::start();
    for path in [
        "/",
        "/v1",
        "/v1/session",
        "/v1/sessions/",
        "/v1/sessions/a/b",
        "/livez/x",
    ] {
        let reply = endpoint.get(path);
        assert_eq!(
            (reply.status, &*problem(&reply).code),
            (404, "no_such_path"),
            "{path}"
        );
    }
    for (method, path, allow) in [
        ("POST", "/livez", "GET"),
        ("PUT", "/v1/sessions", "GET, POST"),
        ("POST", "/v1/sessions/a", "DELETE, GET"),
        ("DELETE", "/v1/sessions/a/messages", "GET, POST"),
        ("GET", "/v1/sessions/a/stop", "POST"),
    ] {
        let reply = endpoint.connect().ask(method, path, &[], b"");
        assert_eq!(reply.status, 405, "{method} {path}");
        assert_eq!(reply.header("allow"), Some(allow));
        assert_eq!(problem(&reply).code, "method_not_allowed");
    }
}

/// D54: oversize bodies are refused, whether they say so beforehand or not.
#[test]
fn large_bodies_are_refused() {
    let bounds = Bounds {
        body_bytes_max: 1000,
        ..Bounds::default()
    };
    let endpoint = Endpoint::with("", bounds);
    let reply = endpoint.post("/v1/sessions", &"x".repeat(1001));
    assert_eq!(
        (reply.status, &*problem(&reply).code),
        (413, "body_too_large")
    );
    let mut client = endpoint.connect();
    client.write(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..3 {
        client.write(format!("190\r\n{}\r\n", "x".repeat(0x190)).as_bytes());
    }
    assert_eq!(problem(&client.reply()).code, "body_too_large");
    let reply = endpoint.post("/v1/sessions", &"x".repeat(1000));
    assert_eq!(reply.status, 400, "exactly the bound is only bad JSON");
}

/// D54: a slow handshake ends, on either socket, and others are served meanwhile.
#[test]
fn slow_heads_are_let_go() {
    let head_timeout = Duration::from_secs(1);
    let endpoint = Endpoint::with(
        "",
        Bounds {
            head_timeout,
            ..Bounds::default()
        },
    );
    let mut slow = [endpoint.connect(), endpoint.connect_tcp()];
    for client in &mut slow {
        client.write(b"GET /v1/status HTTP/1.1\r\nHost: ");
    }
    assert_eq!(endpoint.get("/livez").status, 200);
    for client in &mut slow {
        let answer = client.rest();
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 408"),
            "{answer}"
        );
    }
}

/// D54: so does a slow body.
#[test]
fn slow_bodies_are_let_go() {
    let body_timeout = Duration::from_millis(100);
    let endpoint = Endpoint::with(
        "",
        Bounds {
            body_timeout,
            ..Bounds::default()
        },
    );
    let mut slow = endpoint.connect();
    slow.write(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
    let reply = slow.reply();
    assert_eq!(
        (reply.status, &*problem(&reply).code),
        (408, "body_too_slow")
    );
}

/// A head that never ends is bounded by the parser.
#[test]
fn endless_heads_are_refused() {
    let endpoint = Endpoint::start();
    let mut client = endpoint.connect();
    client.write(b"GET /livez HTTP/1.1\r\n");
    client.write(format!("X: {}\r\n", "y".repeat(200_000)).as_bytes());
    let answer = client.rest();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
        "{answer}"
    );
    let mut client = endpoint.connect();
    let headers: Vec<String> = (0..200).map(|n| format!("X-{n}: y")).collect();
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    client.begin("GET", "/livez", &headers, b"");
    assert!(client.rest().starts_with("HTTP/1.1 4"));
}

/// An error in a body names the place and what was expected there.
#[test]
fn bad_json_is_refused_with_its_place() {
    let endpoint = Endpoint::start();
    for (body, start) in [
        ("", "body: EOF while parsing a value"),
        ("{", "body: EOF while parsing an object"),
        ("[1", "[0]: invalid type: integer `1`, expected a string"),
        ("{}", "body: missing field `agent`"),
        ("{\"agent\":\"A b\"}", "agent: \"A b\" is not a name"),
        (
            "{\"agent\":\"fake\",\"cwd\":5}",
            "cwd: invalid type: integer `5`, expected path string",
        ),
        (
            "{\"agent\":\"fake\",\"cwd\":\"/\",\"args\":[\"a\",1]}",
            "args[1]: invalid type: integer `1`, expected a string",
        ),
        (
            "{\"agent\":\"fake\",\"cwd\":\"/\",\"limits\":{\"idle_after\":1}}",
            "limits.idle_after: invalid type: integer `1`, expected a string",
        ),
        (
            "{\"agent\":\"fake\",\"cwt\":\"/\"}",
            "cwt: unknown field `cwt`, expected one of",
        ),
        (
            "{\"agent\":\"fake\",\"cwd\":\"/\"} x",
            "body: trailing characters",
        ),
    ] {
        let reply = endpoint.post("/v1/sessions", body);
        let problem = problem(&reply);
        assert_eq!((reply.status, &*problem.code), (400, "invalid"), "{body}");
        assert!(
            problem.detail.starts_with(start),
            "{body}: {}",
            problem.detail
        );
    }
    for query in [
        "?limit=0",
        "?limit=1001",
        "?limit=x",
        "?state=asleep",
        "?limt=1",
    ] {
        let reply = endpoint.get(&format!("/v1/sessions{query}"));
        assert_eq!(
            (reply.status, &*problem(&reply).code),
            (400, "invalid"),
            "{query}"
        );
    }
}
