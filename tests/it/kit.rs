//! The kit itself: fake agent in both dialects over plain pipes, mock model, tree guard.

mod behaviour;
mod canary;
mod claude;
mod golden;
mod mock_model;
mod pi;

use drowse_tests::fake::Dialect;
use drowse_tests::golden::Direction;
use drowse_tests::{FakeAgent, PipedAgent, TreeGuard};
use serde_json::{Value, json};

const SESSION: &str = "aaaaaaaa-0000-4000-8000-000000000001";

fn user(text: &str) -> Value {
    let content = json!([{ "type": "text", "text": text }]);
    json!({ "type": "user", "message": { "role": "user", "content": content } })
}

fn prompt(id: &str, text: &str) -> Value {
    json!({ "id": id, "type": "prompt", "message": text })
}

fn is(kind: &str) -> impl FnMut(&Value) -> bool {
    move |line| line["type"] == kind
}

fn claude(fake: &FakeAgent, guard: &TreeGuard, args: &[&str]) -> PipedAgent {
    let mut command = fake.command(Dialect::Claude, args);
    command.env("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1");
    PipedAgent::spawn(command, guard)
}

fn pi(fake: &FakeAgent, guard: &TreeGuard, args: &[&str]) -> PipedAgent {
    PipedAgent::spawn(fake.command(Dialect::Pi, args), guard)
}

/// The kinds of lines of a turn, shortened to what an adapter looks at.
fn kinds(lines: &[Value]) -> Vec<String> {
    let word = |line: &Value, key: &str| line[key].as_str().map(str::to_owned);
    let kind = |line: &Value| {
        word(line, "state")
            .or(word(line, "subtype"))
            .or(word(line, "type"))
    };
    lines.iter().filter_map(kind).collect()
}

fn ask(agent: &mut PipedAgent, text: &str) -> String {
    agent.send(&user(text));
    let result = agent.wait_for("the result", is("result"));
    result["result"].as_str().unwrap_or_default().to_owned()
}

fn is_idle(line: &Value) -> bool {
    line["state"] == "idle"
}

/// What the real agent wrote in the `nth` stretch of a transcript that ends in a line that `ends`,
/// in the terms of [`kinds`], without handshakes and partial messages.
fn golden_kinds(name: &str, nth: usize, ends: fn(&Value) -> bool) -> Vec<String> {
    let lines = drowse_tests::golden::load(name).into_iter();
    let left_out = |line: &Value| {
        let kind = line["type"].as_str().unwrap_or_default();
        ["stream_event", "control_response", "message_update"].contains(&kind)
            || line["command"] == "get_state"
    };
    let lines: Vec<Value> = lines
        .filter(|line| line.direction == Direction::Out)
        .map(|line| line.json())
        .filter(|line| !left_out(line))
        .collect();
    kinds(
        lines
            .split_inclusive(ends)
            .nth(nth)
            .expect("the transcript has that many stretches"),
    )
}
