//! The real agents over plain pipes: what the adapters rely on, seen on the real wire.
//!
//! Not run where the agents cannot be installed, and said so aloud; a failure in CI.

use std::fs;
use std::time::Duration;

use drowse_tests::agents::{RealAgent, or_not_run};
use drowse_tests::process::descendants;
use drowse_tests::{CEILING, MockModel, PipedAgent, TreeGuard, wait_until};
use serde_json::{Value, json};

/// A minute: a real agent takes seconds to start, and many times that beside a compiler.
const REAL_CEILING: Duration = Duration::from_secs(60);

const SESSION: &str = "bbbbbbbb-0000-4000-8000-000000000001";

fn user(text: &str) -> Value {
    let content = json!([{ "type": "text", "text": text }]);
    json!({ "type": "user", "message": { "role": "user", "content": content } })
}

fn is(kind: &str) -> impl FnMut(&Value) -> bool {
    move |line| line["type"] == kind
}

fn is_idle(line: &Value) -> bool {
    line["state"] == "idle"
}

fn spawn(agent: &RealAgent, args: &[&str], guard: &TreeGuard) -> PipedAgent {
    PipedAgent::spawn(agent.command(args), guard).with_ceiling(REAL_CEILING)
}

fn start_claude(agent: &RealAgent, guard: &TreeGuard, args: &[&str]) -> PipedAgent {
    let mut piped = spawn(agent, args, guard);
    let hello = json!({ "subtype": "initialize" });
    piped.send(&json!({ "type": "control_request", "request_id": "r1", "request": hello }));
    piped.wait_for("initialize", is("control_response"));
    piped
}

fn claude_says(agent: &mut PipedAgent, text: &str) -> Vec<Value> {
    agent.send(&user(text));
    agent.collect_until("idle", is_idle)
}

fn result(lines: &[Value]) -> &Value {
    lines
        .iter()
        .find(|line| line["type"] == "result")
        .expect("a turn has a result")
}

#[test]
fn claude_remembers_after_a_kill() {
    let guard = TreeGuard::new("real_claude_resume");
    let model = MockModel::start();
    let test = "claude_remembers_after_a_kill";
    let Some(agent) = or_not_run(test, RealAgent::claude(&model)) else {
        return;
    };
    let mut piped = start_claude(&agent, &guard, &["--session-id", SESSION]);
    let lines = claude_says(&mut piped, "MOCK:say one");
    assert_eq!(result(&lines)["result"], "SAID one (user turns seen: 1)");
    assert_eq!(result(&lines)["session_id"], SESSION);
    claude_says(&mut piped, "MOCK:say two");
    piped.kill();

    let mut piped = start_claude(&agent, &guard, &["--resume", SESSION]);
    assert!(
        piped.is_silent_for(Duration::from_millis(300)),
        "nothing of its own at a resume"
    );
    let lines = claude_says(&mut piped, "MOCK:say three");
    assert_eq!(result(&lines)["result"], "SAID three (user turns seen: 3)");
    assert_eq!(result(&lines)["session_id"], SESSION);
    assert_eq!(result(&lines)["origin"], Value::Null);
    let request = model.wait_for_request("three", |r| r.has_user("MOCK:say three"));
    assert!(request.has_user("MOCK:say one") && request.has_user("MOCK:say two"));
    let header = ("x-claude-code-session-id".to_owned(), SESSION.to_owned());
    assert!(
        request.session_headers.contains(&header),
        "{:?}",
        request.session_headers
    );
    piped.close_stdin();
    assert_eq!(piped.wait_exit().code(), Some(0));
}

#[test]
fn claude_reports_its_background_task_and_runs_an_unprompted_turn() {
    let guard = TreeGuard::new("real_claude_task");
    let model = MockModel::start();
    let test = "claude_reports_its_background_task";
    let Some(agent) = or_not_run(test, RealAgent::claude(&model)) else {
        return;
    };
    let mut piped = start_claude(&agent, &guard, &["--session-id", SESSION]);
    let gate = agent.work().join("gate");
    let wait = format!(
        "MOCK:bg until [ -e {} ]; do sleep 0.05; done",
        gate.display()
    );
    let lines = claude_says(&mut piped, &wait);
    let roster = lines
        .iter()
        .find(|line| line["subtype"] == "background_tasks_changed");
    assert_eq!(
        roster.expect("a roster")["tasks"].as_array().map(Vec::len),
        Some(1)
    );
    assert!(!descendants(piped.identity().pid).is_empty());
    fs::write(gate, "").unwrap();
    let lines = piped.collect_until("idle", is_idle);
    let rosters: Vec<&Value> = lines
        .iter()
        .filter(|line| line["subtype"] == "background_tasks_changed")
        .collect();
    assert_eq!(rosters.last().expect("a roster")["tasks"], json!([]));
    assert_eq!(result(&lines)["origin"]["kind"], "task-notification");
}

#[test]
fn claude_leaves_its_mcp_server_behind_when_killed() {
    let guard = TreeGuard::new("real_claude_mcp");
    let model = MockModel::start();
    let test = "claude_leaves_its_mcp_server_behind_when_killed";
    let Some(agent) = or_not_run(test, RealAgent::claude(&model)) else {
        return;
    };
    let mcp = agent.mcp_args();
    let mut args: Vec<&str> = mcp.iter().map(String::as_str).collect();
    args.extend(["--session-id", SESSION]);
    let mut piped = start_claude(&agent, &guard, &args);
    claude_says(&mut piped, "MOCK:tool mcp__stubborn__where");
    let tree = descendants(piped.identity().pid);
    let log = fs::read_to_string(agent.mcp_log()).unwrap_or_default();
    assert!(log.contains("start") && log.contains("call"), "{log}");
    assert!(!tree.is_empty());
    piped.kill();
    let noticed = || {
        fs::read_to_string(agent.mcp_log())
            .ok()?
            .contains("eof")
            .then_some(())
    };
    wait_until("the server's end of input", CEILING, noticed);
    assert!(
        tree.iter().any(drowse_tests::ProcIdentity::is_alive),
        "it ignores the end of input"
    );
    tree.iter()
        .for_each(|server| server.signal(nix::sys::signal::Signal::SIGKILL));
    guard.wait_empty(CEILING);
}

#[test]
fn pi_remembers_after_a_kill() {
    let guard = TreeGuard::new("real_pi_resume");
    let model = MockModel::start();
    let Some(agent) = or_not_run("pi_remembers_after_a_kill", RealAgent::pi(&model)) else {
        return;
    };
    let mut piped = spawn(&agent, &[], &guard);
    let file = pi_state(&mut piped)["sessionFile"]
        .as_str()
        .expect("a file")
        .to_owned();
    pi_says(&mut piped, "MOCK:say one");
    pi_says(&mut piped, "MOCK:say two");
    piped.kill();

    let mut piped = spawn(&agent, &["--session", &file], &guard);
    let state = pi_state(&mut piped);
    assert_eq!(state["sessionFile"], *file);
    assert_eq!(state["messageCount"], 4);
    let lines = pi_says(&mut piped, "MOCK:say three");
    assert!(
        Value::Array(lines)
            .to_string()
            .contains("SAID three (user turns seen: 3)")
    );
    let request = model.wait_for_request("three", |r| r.has_user("MOCK:say three"));
    assert!(request.has_user("MOCK:say one") && request.has_user("MOCK:say two"));
    piped.close_stdin();
    assert_eq!(piped.wait_exit().code(), Some(0));
}

#[test]
fn pi_reports_its_background_task_by_status_keys() {
    let guard = TreeGuard::new("real_pi_task");
    let model = MockModel::start();
    let test = "pi_reports_its_background_task_by_status_keys";
    let Some(agent) = or_not_run(test, RealAgent::pi(&model)) else {
        return;
    };
    let mut piped = spawn(&agent, &[], &guard);
    let gate = agent.work().join("gate");
    let wait = format!("until [ -e {} ]; do sleep 0.05; done", gate.display());
    let order = format!("MOCK:tool bg_start {}", json!({ "command": wait }));
    let lines = pi_says(&mut piped, &order);
    let set = lines
        .iter()
        .find(|line| line["method"] == "setStatus")
        .expect("a status");
    assert_eq!(set["statusKey"], "drowse:background:1");
    assert!(set["statusText"].is_string());
    fs::write(gate, "").unwrap();
    let lines = piped.collect_until("the unprompted turn", is("agent_end"));
    let cleared = lines
        .iter()
        .find(|line| line["method"] == "setStatus")
        .expect("a status");
    assert_eq!(cleared["statusText"], Value::Null);
    piped.close_stdin();
    assert_eq!(piped.wait_exit().code(), Some(0));
}

fn pi_state(agent: &mut PipedAgent) -> Value {
    agent.send(&json!({ "id": "g", "type": "get_state" }));
    agent.wait_for("the state", |line| line["id"] == "g")["data"].clone()
}

fn pi_says(agent: &mut PipedAgent, text: &str) -> Vec<Value> {
    agent.send(&json!({ "id": "p", "type": "prompt", "message": text }));
    agent.collect_until("agent_end", is("agent_end"))
}
