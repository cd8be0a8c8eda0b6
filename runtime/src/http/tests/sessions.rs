//! Sessions, messages, orders and reports over HTTP.

use drowse_messages::{
    Answer, Order, SessionState, StateCount, StatusReport, StopHow, SubscriberReport, Who,
};
use serde_json::json;

use super::*;

/// Every refusal there is, with its status and class.
fn refusals() -> Vec<(Refusal, u16, &'static str)> {
    let text = || "x".to_owned();
    let some = || vec!["task: npm test".to_owned()];
    vec![
        (
            Refusal::NoSuchSession { session: text() },
            404,
            "terminal_session",
        ),
        (
            Refusal::Ambiguous {
                session: text(),
                candidates: some(),
            },
            409,
            "terminal_request",
        ),
        (Refusal::NameTaken { name: text() }, 409, "terminal_request"),
        (
            Refusal::UnknownAgent {
                agent: text(),
                known: some(),
            },
            422,
            "terminal_request",
        ),
        (
            Refusal::Invalid {
                field: text(),
                detail: text(),
            },
            400,
            "terminal_request",
        ),
        (Refusal::Held { held_by: some() }, 409, "retryable"),
        (
            Refusal::NotRunning { state: text() },
            409,
            "terminal_request",
        ),
        (
            Refusal::CannotResume { detail: text() },
            409,
            "terminal_session",
        ),
        (
            Refusal::NotPending { approval: text() },
            410,
            "terminal_request",
        ),
        (Refusal::InboxFull { queued: 5 }, 429, "retryable"),
        (Refusal::Draining, 503, "retryable"),
        (Refusal::StoreFailed { detail: text() }, 503, "retryable"),
        (Refusal::SessionFailed, 500, "outcome_unknown"),
    ]
}

/// Behaviour 99: every refusal says whether the session is over or the request may be repeated.
#[test]
fn refusals_become_problems() {
    let endpoint = Endpoint::start();
    endpoint.session("s");
    for (refusal, status, class) in refusals() {
        let (code, detail) = (refusal.code(), refusal.to_string());
        endpoint.refuse(refusal);
        let reply = endpoint.post("/v1/sessions/s/release", "");
        let problem = problem(&reply);
        assert_eq!(
            (reply.status, &*problem.code, problem.class.code()),
            (status, code, class)
        );
        assert_eq!(problem.detail, detail);
        assert_eq!(problem.held_by.is_empty(), code != "held");
    }
    assert!(
        endpoint.daemon.world().orders.is_empty(),
        "what was refused was not ordered"
    );
    assert_eq!(endpoint.get("/v1/sessions/other").status, 404);
}

/// D27 and design section 7: a session starts in the caller's environment with the agent's over
/// it, in the folder the agent itself will see, and with what was asked for.
#[test]
fn a_session_is_opened_as_it_was_asked_for() {
    let endpoint = Endpoint::with(
        "[agents.fake]\nenv = { A = \"agent\" }\n",
        Bounds::default(),
    );
    let program = endpoint.folder.path().join("fake");
    fs::write(&program, "").unwrap();
    make_executable(&program);
    let link = endpoint.folder.path().join("link");
    std::os::unix::fs::symlink(endpoint.folder.path(), &link).unwrap();
    let body = json!({
        "agent": "fake", "name": "mine", "cwd": link, "args": ["--model", "x"],
        "env": { "PATH": format!("/nonexistent:{}", endpoint.folder.path().display()),
                 "A": "caller", "B": "caller" },
        "limits": { "idle_after": "10m", "hard_limit": "off" },
    });
    let reply = endpoint.post("/v1/sessions", &body.to_string());
    assert_eq!(reply.status, 201, "{}", reply.text());
    let id = reply.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(
        reply.header("location"),
        Some(format!("/v1/sessions/{id}").as_str())
    );
    assert!(
        !reply.text().contains("caller"),
        "no environment in a report"
    );
    let opened = endpoint.daemon.world().opened[0].clone();
    assert_eq!(opened.id.to_string(), id);
    assert_eq!(opened.name.unwrap().as_str(), "mine");
    assert_eq!(opened.recipe.argv, ["fake", "--model", "x"]);
    assert_eq!(
        opened.recipe.cwd,
        endpoint.folder.path().canonicalize().unwrap()
    );
    assert_eq!(
        (&*opened.recipe.env["A"], &*opened.recipe.env["B"]),
        ("agent", "caller")
    );
    assert_eq!(opened.recipe.env.len(), 3);
    let limit = drowse_messages::Limit::After(std::time::Duration::from_secs(600));
    assert_eq!(opened.limits.idle_after, Some(limit));
    assert_eq!(endpoint.get("/v1/sessions/mine").json()["id"], id);
    assert_eq!(
        endpoint.get(&format!("/v1/sessions/{id}")).json()["name"],
        "mine"
    );
}

/// What is changed in a good request, and what is said of it.
fn bad_requests() -> Vec<(serde_json::Value, &'static str)> {
    let no_path = "agent: no program \"fake\": the environment has no PATH";
    vec![
        (json!({"agent": "gpt"}), "no agent \"gpt\"; there is: mine"),
        (
            json!({}),
            "agent: no program \"fake\" on PATH (searched /nonexistent/bin)",
        ),
        (json!({"env": {"A": "b"}}), no_path),
        (json!({"env": {}}), no_path),
        (
            json!({"agent": "mine"}),
            "agent: \"/nonexistent/x\" is not a program that can be executed",
        ),
        (
            json!({"cwd": "work"}),
            "cwd: \"work\" is not an absolute path",
        ),
        (
            json!({"cwd": "/nonexistent"}),
            "cwd: \"/nonexistent\" cannot be used: No such file",
        ),
        (
            json!({"cwd": "/dev/null"}),
            "cwd: \"/dev/null\" is not a folder",
        ),
        (
            json!({"name": "0123456789ab"}),
            "name: \"0123456789ab\" reads like the id",
        ),
        (json!({"args": ["a\0b"]}), "args: one contains a NUL"),
        (
            json!({"env": {"A=B": "c"}}),
            "env: one has no name, \"=\" in its name, or a NUL",
        ),
    ]
}

/// What can be known to fail is refused before anything is written down.
#[test]
fn a_session_that_cannot_start_is_refused() {
    let config = "[agents.mine]\ncommand = [\"/nonexistent/x\"]\nprotocol = \"raw\"\n";
    let endpoint = Endpoint::with(config, Bounds::default());
    for (change, detail) in bad_requests() {
        let mut body = json!({"agent": "fake", "cwd": "/", "env": {"PATH": "/nonexistent/bin"}});
        for (key, value) in change.as_object().unwrap() {
            body[key] = value.clone();
        }
        let problem = problem(&endpoint.post("/v1/sessions", &body.to_string()));
        let unknown = change["agent"] == "gpt";
        assert_eq!(
            problem.code,
            if unknown { "unknown_agent" } else { "invalid" },
            "{body}"
        );
        assert!(
            problem.detail.starts_with(detail),
            "{body}: {}",
            problem.detail
        );
    }
    assert!(endpoint.daemon.world().opened.is_empty());
}

/// Behaviours 3 and 9 hold for the limits of one session, too.
#[test]
fn bad_limits_of_a_session_are_refused() {
    let endpoint = Endpoint::start();
    make_fake(&endpoint);
    for (limits, detail) in [
        (
            json!({"idle_after": "10"}),
            "limits.idle_after: \"10\": is a number without a unit",
        ),
        (
            json!({"idel_after": "10m"}),
            "limits.idel_after: \"10m\": unknown limit; did you mean",
        ),
        (
            json!({"hard_limit": "10m"}),
            "limits: hard_limit (10m) must be longer than idle_after",
        ),
    ] {
        let at = endpoint.folder.path();
        let body = json!({"agent": "fake", "cwd": "/", "env": {"PATH": at}, "limits": limits});
        let problem = problem(&endpoint.post("/v1/sessions", &body.to_string()));
        assert!(problem.detail.starts_with(detail), "{}", problem.detail);
    }
    assert!(endpoint.daemon.world().opened.is_empty());
}

fn make_fake(endpoint: &Endpoint) {
    let program = endpoint.folder.path().join("fake");
    fs::write(&program, "").unwrap();
    make_executable(&program);
}

/// Without an environment an agent gets what a login would, and nothing of the daemon's own.
#[test]
fn a_missing_environment_is_the_allow_list() {
    let endpoint = Endpoint::with(
        "[agents.here]\ncommand = [\"/bin/sh\"]\nprotocol = \"raw\"\n",
        Bounds::default(),
    );
    let reply = endpoint.post("/v1/sessions", r#"{"agent":"here","cwd":"/"}"#);
    assert_eq!(reply.status, 201, "{}", reply.text());
    let env = endpoint.daemon.world().opened[0].recipe.env.clone();
    assert_eq!(
        env.into_iter().collect::<Vec<_>>(),
        [("HOME".to_owned(), "/home/me".to_owned())]
    );
}

#[test]
fn orders_reach_the_session_with_who_gave_them() {
    let endpoint = Endpoint::start();
    endpoint.session("s");
    let order = |method: &str, path: &str, body: &str| {
        let headers = ["User-Agent: drowse-cli/0.1 (x)"];
        let reply = endpoint
            .connect()
            .ask(method, path, &headers, body.as_bytes());
        assert_eq!((reply.status, &*reply.text()), (202, "{}"), "{path}");
        endpoint.daemon.world().orders.pop().unwrap().1
    };
    let by = Who::Client("drowse-cli".to_owned());
    for (method, path, how) in [
        ("POST", "/v1/sessions/s/release", StopHow::Release),
        ("POST", "/v1/sessions/s/stop", StopHow::Stop),
        ("DELETE", "/v1/sessions/s", StopHow::Remove),
    ] {
        let stop = drowse_messages::Stop {
            how,
            by: by.clone(),
        };
        assert_eq!(order(method, path, ""), Order::Stop(stop));
    }
    for (body, fresh) in [("", false), ("{}", false), ("{\"fresh\":true}", true)] {
        let wake = drowse_messages::Wake {
            fresh,
            by: by.clone(),
        };
        assert_eq!(
            order("POST", "/v1/sessions/s/wake", body),
            Order::Wake(wake)
        );
    }
    let interrupt = order("POST", "/v1/sessions/s/interrupt", "");
    assert_eq!(
        interrupt,
        Order::Interrupt(drowse_messages::Interrupt { by: by.clone() })
    );
    let text = "{\"answer\":{\"text\":\"blue\"}}";
    let answer = drowse_messages::AnswerAsk {
        id: "a/1 x".to_owned(),
        answer: Answer::Text("blue".to_owned()),
        by,
    };
    assert_eq!(
        order("POST", "/v1/sessions/s/asks/a%2F1%20x", text),
        Order::Answer(answer)
    );
}

/// Behaviour 79: the same key is the same message.
#[test]
fn messages_are_accepted_once_for_each_key() {
    let endpoint = Endpoint::start();
    let id = endpoint.session("s").json()["id"].clone();
    let send = |headers: &[&str], body: &str| {
        endpoint
            .connect()
            .ask("POST", "/v1/sessions/s/messages", headers, body.as_bytes())
    };
    let first = send(&["Idempotency-Key: k"], "{\"text\":\"hi\"}");
    assert_eq!(first.status, 202, "{}", first.text());
    assert_eq!(first.header("location"), Some("/v1/messages/1"));
    assert_eq!(
        first.json(),
        json!({"message": 1, "duplicate": false, "session": id})
    );
    let again = send(&["Idempotency-Key: k"], "{\"text\":\"hi\"}");
    assert_eq!(
        again.json(),
        json!({"message": 1, "duplicate": true, "session": id})
    );
    assert_eq!(send(&[], "{\"text\":\"hi\"}").json()["message"], 2);
    assert_eq!(
        problem(&send(&[], "{\"text\":\"\"}")).detail,
        "text: is empty"
    );
    let long = format!("Idempotency-Key: {}", "k".repeat(257));
    for bad in ["Idempotency-Key: ", &long] {
        let problem = problem(&send(&[bad], "{\"text\":\"x\"}"));
        assert!(
            problem
                .detail
                .starts_with("idempotency-key: is not 1 to 256"),
            "{problem:?}"
        );
    }
    let large = json!({ "text": "x".repeat((10 << 20) + 1) }).to_string();
    assert_eq!(
        problem(&send(&[], &large)).detail,
        "text: is longer than 10485760 bytes"
    );
    assert_eq!(endpoint.get("/v1/messages/1").json()["text"], "hi");
    assert_eq!(endpoint.get("/v1/messages/x").status, 400);
    assert_eq!(
        endpoint
            .get("/v1/sessions/s/messages?limit=1")
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

/// Behaviours 19 and 96: reading asks for reports only.
#[test]
fn listings_logs_and_status_are_read_as_asked() {
    let endpoint = Endpoint::start();
    endpoint.session("s");
    let page = endpoint
        .get("/v1/sessions?after=c&limit=7&state=needs_you&agent=fake")
        .json();
    assert_eq!(
        (&page["total"], &page["sessions"][0]["name"]),
        (&json!(1), &json!("s"))
    );
    let asked = endpoint.daemon.world().pages[0].clone();
    assert_eq!((asked.after.as_deref(), asked.limit), (Some("c"), 7));
    assert_eq!(asked.state, Some(SessionState::NeedsYou));
    assert_eq!(asked.agent.unwrap().as_str(), "fake");
    endpoint.post("/v1/sessions/s/messages", "{\"text\":\"hi\"}");
    let log = endpoint.get("/v1/sessions/s/log?limit=5").json();
    assert_eq!(log[0]["event"], "message_queued");
    assert_eq!(endpoint.get("/v1/status").json()["version"], "0.1.0");
    assert!(endpoint.daemon.world().orders.is_empty());
}

#[test]
fn readiness_follows_the_daemon() {
    let endpoint = Endpoint::start();
    assert_eq!(endpoint.get("/readyz").text(), "ok");
    for (ready, draining, why) in [
        (false, false, "the daemon is starting"),
        (true, true, "the daemon is shutting down"),
    ] {
        let mut report = StatusReport::new("0.1.0", 7);
        (report.ready, report.draining) = (ready, draining);
        endpoint.daemon.world().status = Some(report);
        let reply = endpoint.get("/readyz");
        assert_eq!((reply.status, &*problem(&reply).detail), (503, why));
        assert_eq!(endpoint.get("/livez").status, 200);
    }
}

/// Every line of `/metrics` is OpenMetrics: a comment with a known keyword, or a sample of a
/// family that was announced.
#[test]
fn metrics_are_openmetrics() {
    let endpoint = Endpoint::start();
    let mut report = StatusReport::new("1.2.3", 7);
    report.states = vec![StateCount {
        state: SessionState::NeedsYou,
        sessions: 3,
    }];
    (report.backends, report.uptime_ms, report.store_failing) = (2, 1500, true);
    (
        report.released_total,
        report.released_bytes_total,
        report.stale_facts_total,
    ) = (4, 5, 6);
    let name = "a\"b".to_owned();
    report.subscribers = vec![SubscriberReport {
        name,
        lagged_total: 9,
        alive: true,
    }];
    endpoint.daemon.world().status = Some(report);
    let reply = endpoint.get("/metrics");
    let media = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(reply.header("content-type"), Some(media));
    let text = reply.text();
    for line in [
        "drowse_build_info{version=\"1.2.3\"} 1",
        "drowse_sessions{state=\"needs_you\"} 3",
        "drowse_backends 2",
        "drowse_released_total 4",
        "drowse_released_bytes_total 5",
        "drowse_stale_facts_total 6",
        "drowse_events_lagged_total{subscriber=\"a\\\"b\"} 9",
        "drowse_store_failing 1",
        "drowse_uptime_seconds 1.5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    let mut families = Vec::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            families.push(family.split(' ').next().unwrap());
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            assert!(
                families.iter().any(|family| name.starts_with(family)),
                "{line}"
            );
            assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
        }
    }
    for positive in ["process_resident_memory_bytes ", "process_open_fds "] {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(positive))
            .unwrap();
        assert!(line.parse::<u64>().unwrap() > 0);
    }
}
