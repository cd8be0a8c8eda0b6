//! The fake agent in Pi's dialect.

use drowse_tests::fake::Dialect;
use drowse_tests::{PipedAgent, TreeGuard, fake_agent};
use serde_json::{Value, json};

use super::{golden_kinds, is, kinds, pi, prompt};

#[test]
fn pi_turn_task_permission_abort_and_resume() {
    let guard = TreeGuard::new("pi_turn");
    let fake = fake_agent!();
    let mut agent = pi(&fake, &guard, &[]);
    agent.send(&json!({ "id": "g", "type": "get_state" }));
    let state = agent.wait_for("the state", is("response"));
    let file = state["data"]["sessionFile"].as_str().unwrap().to_owned();
    agent.send(&prompt("p1", "FAKE:bg 0.2"));
    let lines = agent.collect_until("agent_settled", is("agent_settled"));
    assert_eq!(lines[0]["data"]["disposition"], "started");
    assert_eq!(lines[1]["type"], "agent_start");
    let busy = agent.collect_until("the unprompted turn", is("agent_start"));
    assert_eq!(busy[0]["method"], "setStatus");
    assert_eq!(busy[0]["statusText"], Value::Null);
    agent.wait_for("its end", is("agent_settled"));

    agent.send(&prompt("p2", "FAKE:approve rm x"));
    let request = agent.wait_for("confirm", |line| line["method"] == "confirm");
    agent.send(&json!({
        "type": "extension_ui_response", "id": request["id"], "confirmed": true,
    }));
    agent.wait_for("its end", is("agent_settled"));

    agent.send(&prompt("p3", "FAKE:silent 600"));
    agent.wait_for("agent_start", is("agent_start"));
    agent.send(&prompt("p4", "FAKE:say refused"));
    let refused = agent.wait_for("the refusal", |line| line["id"] == "p4");
    assert_eq!(refused["success"], false);
    agent.send(&json!({ "id": "a", "type": "abort" }));
    let lines = agent.collect_until("the abort's answer", |line| line["id"] == "a");
    let end: Vec<&str> = lines
        .iter()
        .rev()
        .filter_map(|l| l["type"].as_str())
        .take(3)
        .collect();
    assert_eq!(end, ["response", "agent_settled", "agent_end"]);
    agent.kill();

    let mut agent = pi(&fake, &guard, &["--session", &file]);
    agent.send(&prompt("p5", "FAKE:say back"));
    let lines = agent.collect_until("agent_settled", is("agent_settled"));
    let text = Value::Array(lines).to_string();
    assert!(text.contains("SAID back (user turns seen: 4)"), "{text}");
    agent.close_stdin();
    assert_eq!(agent.wait_exit().code(), Some(0));
}

#[test]
fn pi_eof_ends_a_turn_and_old_pi_never_settles() {
    let guard = TreeGuard::new("pi_eof");
    let fake = fake_agent!();
    let mut agent = PipedAgent::spawn(fake.command(Dialect::Pi073, &[]), &guard);
    agent.send(&prompt("p1", "FAKE:say x"));
    let mut lines = agent.collect_until("agent_end", is("agent_end"));
    lines.retain(|line| line["type"] != "message_update");
    assert_eq!(
        kinds(&lines),
        golden_kinds("pi/turn", 0, |line| line["type"] == "agent_end")
    );
    agent.send(&prompt("p2", "FAKE:silent 600"));
    let next = agent.collect_until("agent_start", is("agent_start"));
    assert!(next.iter().all(|line| line["type"] != "agent_settled"));
    agent.close_stdin();
    assert_eq!(agent.wait_exit().code(), Some(0));
}
