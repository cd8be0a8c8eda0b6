//! The fake agent in Claude's dialect: the order of lines and the ends of the real one.

use std::fs;
use std::time::Duration;

use drowse_tests::{TreeGuard, fake_agent};
use serde_json::{Value, json};

use super::{SESSION, ask, claude, golden_kinds, is, is_idle, kinds, user};

#[test]
fn claude_turn_has_the_order_of_the_real_one_and_survives_a_kill() {
    let guard = TreeGuard::new("claude_turn");
    let fake = fake_agent!();
    let mut agent = claude(
        &fake,
        &guard,
        &["--session-id", SESSION, "--some-flag", "x"],
    );
    assert!(
        agent.is_silent_for(Duration::from_millis(200)),
        "silent until the first line"
    );
    let hello = json!({ "subtype": "initialize" });
    agent.send(&json!({ "type": "control_request", "request_id": "r1", "request": hello }));
    let ready = agent.wait_for("initialize", is("control_response"));
    assert_eq!(ready["response"]["request_id"], "r1");
    agent.send(&user("FAKE:say hello"));
    let lines = agent.collect_until("idle", |line| line["state"] == "idle");
    assert_eq!(kinds(&lines), golden_kinds("claude/turn", 0, is_idle));
    let result = &lines[4];
    assert_eq!(result["result"], "SAID hello (user turns seen: 1)");
    assert_eq!(result["session_id"], SESSION);
    agent.kill();

    let mut again = claude(&fake, &guard, &["--resume", SESSION]);
    assert_eq!(
        ask(&mut again, "FAKE:say more"),
        "SAID more (user turns seen: 2)"
    );
    again.close_stdin();
    assert_eq!(again.wait_exit().code(), Some(0));
    fake.assert_never_two();
    assert_eq!(fake.turns(), ["FAKE:say hello", "FAKE:say more"]);
}

#[test]
fn claude_task_holds_the_process_after_eof_and_ends_in_an_unprompted_turn() {
    let guard = TreeGuard::new("claude_task");
    let fake = fake_agent!();
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    agent.send(&user("FAKE:bg 0.3"));
    let lines = agent.collect_until("idle", |line| line["state"] == "idle");
    let roster = lines
        .iter()
        .find(|l| l["subtype"] == "background_tasks_changed");
    assert_eq!(roster.unwrap()["tasks"].as_array().unwrap().len(), 1);
    agent.close_stdin();
    let lines = agent.collect_until("the unprompted result", is("result"));
    // Without the last line, idle, which comes after the result.
    let golden = golden_kinds("claude/background", 1, is_idle);
    assert_eq!(kinds(&lines), golden[..golden.len() - 1]);
    assert_eq!(lines[2]["tasks"], json!([]));
    assert_eq!(lines[7]["origin"]["kind"], "task-notification");
    assert_eq!(agent.wait_exit().code(), Some(0));
}

#[test]
fn claude_task_lost_with_its_process_is_told_once_at_the_resume() {
    let guard = TreeGuard::new("claude_lost");
    let fake = fake_agent!();
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    ask(&mut agent, "FAKE:bg-lost");
    agent.kill();
    let mut agent = claude(&fake, &guard, &["--resume", SESSION]);
    agent.send(&user("FAKE:say after"));
    let first = agent.collect_until("the first result", is("result"));
    assert_eq!(first[0]["status"], "stopped");
    assert_eq!(first.last().unwrap()["origin"]["kind"], "task-notification");
    let second = agent.collect_until("the answer", is("result"));
    assert!(
        second.iter().all(|line| line["state"] != "idle"),
        "no rest between the two"
    );
    assert_eq!(
        second.last().unwrap()["result"],
        "SAID after (user turns seen: 2)"
    );
    agent.kill();
    let mut agent = claude(&fake, &guard, &["--resume", SESSION]);
    assert_eq!(
        ask(&mut agent, "FAKE:say on"),
        "SAID on (user turns seen: 3)"
    );
}

#[test]
fn claude_permission_question_and_interrupt() {
    let guard = TreeGuard::new("claude_ask");
    let fake = fake_agent!();
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    for behaviour in ["allow", "deny"] {
        agent.send(&user("FAKE:approve rm x"));
        agent.wait_for("requires_action", |line| line["state"] == "requires_action");
        let request = agent.wait_for("the request", is("control_request"));
        assert_eq!(request["request"]["subtype"], "can_use_tool");
        let response = json!({
            "subtype": "success", "request_id": request["request_id"],
            "response": { "behavior": behaviour },
        });
        agent.send(&json!({ "type": "control_response", "response": response }));
        let result = agent.wait_for("the result", is("result"));
        assert!(
            result["result"]
                .as_str()
                .unwrap()
                .starts_with(match behaviour {
                    "allow" => "allowed",
                    _ => "denied",
                })
        );
    }
    agent.send(&user("FAKE:question which?"));
    let request = agent.wait_for("the question", is("control_request"));
    assert_eq!(request["request"]["tool_name"], "AskUserQuestion");
    let interrupt = json!({ "subtype": "interrupt" });
    agent.send(&json!({ "type": "control_request", "request_id": "i", "request": interrupt }));
    let lines = agent.collect_until("the result", is("result"));
    assert_eq!(
        kinds(&lines)[..2],
        ["control_response", "control_cancel_request"]
    );
    assert_eq!(
        lines.last().unwrap()["terminal_reason"],
        "aborted_streaming"
    );
}

#[test]
fn claude_message_while_busy_is_a_turn_of_its_own_without_idle_between() {
    let guard = TreeGuard::new("claude_busy");
    let fake = fake_agent!();
    let gate = fake.home().join("gate");
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    agent.send(&user(&format!("FAKE:wait {}", gate.display())));
    agent.send(&user("FAKE:say second"));
    fake.wait_events("heard", 2);
    fs::write(gate, "").unwrap();
    let lines = agent.collect_until("idle", |line| line["state"] == "idle");
    let results: Vec<&Value> = lines.iter().filter(|l| l["type"] == "result").collect();
    assert_eq!(results.len(), 2);
    assert_eq!(results[1]["result"], "SAID second (user turns seen: 2)");
    assert_eq!(
        kinds(&lines)
            .iter()
            .filter(|kind| *kind == "running")
            .count(),
        1
    );
}

#[test]
fn claude_eof_in_mid_turn_lets_the_turn_end() {
    let guard = TreeGuard::new("claude_eof");
    let fake = fake_agent!();
    let gate = fake.home().join("gate");
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    agent.send(&user(&format!(
        "FAKE:wait {}\nFAKE:say whole",
        gate.display()
    )));
    agent.close_stdin();
    fake.wait_events("eof", 1);
    fs::write(gate, "").unwrap();
    let result = agent.wait_for("the result", is("result"));
    assert_eq!(result["result"], "SAID whole (user turns seen: 1)");
    assert_eq!(agent.wait_exit().code(), Some(0));
}

#[test]
fn claude_refuses_as_the_real_one() {
    let guard = TreeGuard::new("claude_refuse");
    let fake = fake_agent!();
    let mut unknown = claude(&fake, &guard, &["--resume", SESSION]);
    let result = unknown.wait_for("the error", is("result"));
    assert_eq!(result["subtype"], "error_during_execution");
    assert_eq!(unknown.wait_exit().code(), Some(1));

    let mut first = claude(&fake, &guard, &["--session-id", SESSION]);
    ask(&mut first, "FAKE:say x");
    first.send_raw("{\"type\":");
    assert_eq!(first.wait_exit().code(), Some(1));
    first.wait_stderr("Error parsing streaming input line");

    let mut taken = claude(&fake, &guard, &["--session-id", SESSION]);
    assert_eq!(taken.wait_exit().code(), Some(1));
    taken.wait_stderr("already in use");
}
