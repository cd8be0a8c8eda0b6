//! Who is let in, and where the endpoint listens.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};

use super::*;
use crate::http::{ListenError, openapi};

/// D54, behaviour 100: on TCP nobody gets in without the token, from a web page, or under
/// another name; each refusal is a problem.
#[test]
fn tcp_takes_the_token_and_nothing_foreign() {
    let endpoint = Endpoint::start();
    let host = format!("Host: {}", endpoint.tcp);
    let named = format!("Host: localhost:{}", endpoint.tcp.port());
    let token = format!("Authorization: Bearer {}", endpoint.token());
    let own = format!("Origin: http://{}", endpoint.tcp);
    let almost = &token[..token.len() - 1];
    for (headers, status) in [
        (vec![&*host, &token], 200),
        (vec![&*named, &token], 200),
        (vec![&*host, &token, &own], 200),
        (vec![&*host], 401),
        (vec![&*host, almost], 401),
        (vec![&*host, "Authorization: Bearer "], 401),
        (vec![&*host, "Authorization: Basic eDp5"], 401),
        (vec![&*host, &token, "Authorization: Bearer x"], 401),
        (vec!["Host: evil.example", &token], 403),
        (vec!["Host: 192.168.0.1:80", &token], 403),
        (vec!["Host: localhost", &token], 403),
        (vec![&*host, &token, "Origin: http://evil.example"], 403),
        (vec![&*host, &token, "Origin: null"], 403),
    ] {
        let reply = endpoint
            .connect_tcp()
            .ask("GET", "/v1/status", &headers, b"");
        assert_eq!(reply.status, status, "{headers:?}: {}", reply.text());
        if status != 200 {
            let code = problem(&reply).code;
            assert_eq!(
                code,
                if status == 401 {
                    "unauthorized"
                } else {
                    "forbidden"
                }
            );
            assert_eq!(reply.header("www-authenticate").is_some(), status == 401);
        }
    }
    // A proxy's form of request names the host a second time.
    let target = "http://evil.example/v1/status";
    let reply = endpoint
        .connect_tcp()
        .ask("GET", target, &[&host, &token], b"");
    assert_eq!(reply.status, 403);
    let reply = endpoint
        .connect_tcp()
        .ask("GET", "/v1/status", &[&host, &host, &token], b"");
    assert_eq!(reply.status, 400, "the parser takes one Host");
    // The guard stands before every path, also before those there are not.
    let reply = endpoint.connect_tcp().ask("GET", "/nothing", &[&host], b"");
    assert_eq!(reply.status, 401);
}

/// D54: a WebSocket may show its token in its first message; nothing else gets past the guard by
/// looking like its handshake, such as a session or a task that is called `ws`.
#[test]
fn only_a_handshake_may_come_without_a_token() {
    let endpoint = Endpoint::start();
    endpoint.session("ws");
    let host = format!("Host: {}", endpoint.tcp);
    for (method, path) in [
        ("DELETE", "/v1/sessions/ws"),
        ("GET", "/v1/sessions/ws"),
        ("DELETE", "/v1/sessions/ws/tasks/ws"),
        ("POST", "/v1/sessions/ws/ws"),
        ("GET", "/v1/sessions/ws/x/ws"),
    ] {
        let headers = [&*host, "Upgrade: websocket", "Connection: Upgrade"];
        let reply = endpoint.connect_tcp().ask(method, path, &headers, b"");
        assert_eq!(reply.status, 401, "{method} {path}: {}", reply.text());
    }
}

/// Behaviour 100: who has the token of watchers sees everything, streams too, and changes nothing,
/// whatever the order.
#[test]
fn the_token_of_watchers_only_looks() {
    let endpoint = Endpoint::start();
    endpoint.session("n");
    let token = fs::read_to_string(endpoint.folder.path().join("token-read")).unwrap();
    let host = format!("Host: {}", endpoint.tcp);
    let token = format!("Authorization: Bearer {}", token.trim());
    assert!(!token.ends_with(&endpoint.token()));
    let ask = |method: &str, path: &str| {
        let mut client = endpoint.connect_tcp();
        client.ask(method, path, &[&host, &token], b"")
    };
    for path in [
        "/livez",
        "/metrics",
        "/openapi.json",
        "/v1/kept",
        "/v1/sessions",
        "/v1/sessions/n",
        "/v1/sessions/n/messages",
        "/v1/sessions/n/log",
    ] {
        let reply = ask("GET", path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    }
    for (method, path) in [
        ("POST", "/v1/sessions"),
        ("DELETE", "/v1/sessions/n"),
        ("POST", "/v1/sessions/n/messages"),
        ("POST", "/v1/sessions/n/stop"),
        ("POST", "/v1/sessions/n/asks/a"),
        ("POST", "/v1/restart"),
        ("POST", "/v1/kept"),
        ("POST", "/v1/events"),
        ("PUT", "/nothing"),
    ] {
        let reply = ask(method, path);
        assert_eq!(problem(&reply).code, "forbidden", "{method} {path}");
    }
    let mut watcher = endpoint.connect_tcp();
    watcher.follow("/v1/events", &[&host, &token]);
    assert_eq!(
        watcher.frame().map(|frame| frame.event).as_deref(),
        Some("snapshot")
    );
    let upgrade = [&*host, &token, "Connection: Upgrade", "Upgrade: websocket"];
    let reply = endpoint
        .connect_tcp()
        .ask("GET", "/v1/status", &upgrade, b"");
    assert_eq!(reply.status, 403);
    assert_eq!(endpoint.get("/v1/sessions/n").status, 200, "it is there");
    let foreign = [&*host, &token, "Origin: http://evil.example"];
    let reply = endpoint
        .connect_tcp()
        .ask("GET", "/v1/status", &foreign, b"");
    assert_eq!(reply.status, 403);
}

/// Behaviour 100: every documented request, with every kind of token: nobody reaches further than his
/// token does.
#[test]
fn each_request_takes_the_tokens_it_should() {
    let endpoint = Endpoint::start();
    let of = |name: &str| {
        endpoint.session(name);
        endpoint.daemon.world().sessions.last().unwrap().id
    };
    let (own, other) = (of("own"), of("other"));
    let tokens = SessionTokens::of(endpoint.folder.path()).unwrap();
    let read = fs::read_to_string(endpoint.folder.path().join("token-read")).unwrap();
    let host = format!("Host: {}", endpoint.tcp);
    let code_with = |method: &str, path: &str, token: Option<&str>| {
        let shown = token.map(|token| format!("Authorization: Bearer {}", token.trim()));
        let headers: Vec<&str> = std::iter::once(&*host).chain(shown.as_deref()).collect();
        let mut client = endpoint.connect_tcp();
        let reply = client.ask(&method.to_uppercase(), path, &headers, b"");
        let refused = matches!(reply.status, 401 | 403);
        refused.then(|| problem(&reply).code)
    };
    let mut confined = 0;
    for (method, path) in openapi::requests() {
        // Streams that do not end are looked at elsewhere.
        if path == "/v1/events" {
            continue;
        }
        let path = path
            .replace("{session}", &own.to_string())
            .replace("{message}", "1");
        let path = path.replace("{name}", "a").replace("{hold}", "1");
        let path = path.replace("{ask}", "a");
        let code = |token: Option<&str>| code_with(method, &path, token);
        let what = format!("{method} {path}");
        assert_eq!(code(None).as_deref(), Some("unauthorized"), "{what}");
        assert_eq!(
            code(Some("guess")).as_deref(),
            Some("unauthorized"),
            "{what}"
        );
        assert_eq!(code(Some(&endpoint.token())), None, "{what}");
        let looks = (method != "get").then_some("forbidden");
        assert_eq!(code(Some(&read)).as_deref(), looks, "{what}");
        let is_kit = path.contains("/tasks") || path.contains("/holds");
        confined += u32::from(is_kit);
        let reached = (!is_kit).then_some("forbidden");
        assert_eq!(code(Some(&tokens.token(own))).as_deref(), reached, "{what}");
        let foreign = code(Some(&tokens.token(other)));
        assert_eq!(foreign.as_deref(), Some("forbidden"), "{what}");
    }
    assert_eq!(confined, 6, "the agent kit's own");
}

/// Behaviour 100: the token is for us alone, before anybody can connect, and stays the same.
#[test]
fn the_token_is_private_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let read = || fs::read_to_string(&path).unwrap();
    drop(TcpSocket::bind(any, &path).unwrap());
    let first = read();
    assert_eq!(first.len(), 65);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    drop(TcpSocket::bind(any, &path).unwrap());
    assert_eq!(read(), first);
    // One that others could have read, or that is damaged, is worth nothing.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    drop(TcpSocket::bind(any, &path).unwrap());
    assert_ne!(read(), first);
    fs::write(&path, "short").unwrap();
    drop(TcpSocket::bind(any, &path).unwrap());
    assert_eq!(read().len(), 65);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert!(TcpSocket::bind("0.0.0.0:0".parse().unwrap(), &path).is_err());
    let watchers = fs::metadata(folder.path().join("token-read")).unwrap();
    assert_eq!(watchers.mode() & 0o777, 0o600);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        2,
        "nothing is left beside them"
    );
}

/// D54: the Unix socket is ours alone, and its name goes with the endpoint.
#[test]
fn the_socket_is_private_and_goes_with_the_endpoint() {
    let mut endpoint = Endpoint::start();
    let meta = fs::metadata(endpoint.socket()).unwrap();
    assert_eq!(meta.mode() & 0o777, 0o600);
    assert_eq!(endpoint.get("/livez").text(), "ok");
    endpoint.stop();
    assert!(!endpoint.socket().exists());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new").join("d.sock");
    let first = UnixSocket::bind(&path).unwrap();
    assert_eq!(
        fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777,
        0o700
    );
    assert!(matches!(
        UnixSocket::bind(&path),
        Err(ListenError::InUse { .. })
    ));
    drop(first);
    assert!(!path.exists());
    drop(UnixListener::bind(&path).unwrap());
    let replaced = UnixSocket::bind(&path).unwrap();
    UnixStream::connect(&path).unwrap();
    // Somebody else's socket under our name is not ours to remove.
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    drop(replaced);
    assert!(path.exists());
    drop(other);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    assert!(matches!(
        UnixSocket::bind(&path),
        Err(ListenError::NotASocket { .. })
    ));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_socket_is_only_bound_where_nobody_else_writes() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o775)).unwrap();
    let error = UnixSocket::bind(&open.join("d.sock"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("others may write to it (mode 775); chmod 700 ends that"),
        "{error}"
    );
    let link = folder.path().join("link");
    symlink(folder.path(), &link).unwrap();
    let error = UnixSocket::bind(&link.join("d.sock"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("a link to one"), "{error}");
    let long = folder.path().join("x".repeat(108));
    let error = UnixSocket::bind(&long).unwrap_err().to_string();
    assert!(error.contains("107 are possible"), "{error}");
}
