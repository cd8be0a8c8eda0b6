//! OpenAI Chat Completions: `POST /v1/chat/completions`, streamed or whole.
//!
//! Fed by: `route`. Words the script's answer; decides nothing.

use std::io::Result;

use serde_json::{Value, json};

use super::Reply;
use super::anthropic::unique;
use super::conversation::{Item, Kind, kind, text};
use super::http::Exchange;
use super::script::Answer;

/// The conversation of a request body.
pub(super) fn items(body: &Value) -> Vec<Item> {
    let mut items = Vec::new();
    for message in body["messages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
    {
        let said = text(&message["content"]);
        let whose = kind(&message["role"]);
        if !said.is_empty() || whose == Kind::Result {
            items.push(Item::new(whose, said));
        }
        let calls = message["tool_calls"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let call = |call: &Value| Item::new(Kind::Call, call["function"].to_string());
        items.extend(calls.iter().map(call));
    }
    items
}

/// Answers in the form the request asks for.
pub(super) fn answer(mut reply: Reply<'_>) -> Result<()> {
    if let Answer::Status(status) = reply.answer {
        let error = json!({ "message": "as the test wants it", "type": "server_error" });
        return reply.json(status, &json!({ "error": error }));
    }
    let calls = match &reply.answer {
        Answer::Tool { name, input } => {
            let function = json!({ "name": name, "arguments": input.to_string() });
            let id = unique("call");
            json!([{ "index": 0, "id": id, "type": "function", "function": function }])
        }
        Answer::Text(_) | Answer::Slow(_) | Answer::Status(_) => Value::Null,
    };
    let reason = if calls.is_null() {
        "stop"
    } else {
        "tool_calls"
    };
    if !reply.streamed() {
        return whole(reply, calls, reason);
    }
    reply.exchange.begin_events()?;
    let id = unique("chatcmpl");
    let model = reply.body["model"].clone();
    let chunk = |exchange: &mut Exchange<'_>, choices: Value| {
        let mut chunk = json!({
            "id": id, "object": "chat.completion.chunk", "created": 1, "model": model,
            "choices": choices,
        });
        if choices_end(&chunk) {
            chunk["usage"] = usage();
        }
        exchange.event(None, &chunk.to_string())
    };
    let mut first = json!({ "role": "assistant", "content": "" });
    if !calls.is_null() {
        first["tool_calls"] = calls;
    }
    chunk(&mut reply.exchange, choice(&first, None))?;
    reply.pieces(|exchange, piece| chunk(exchange, choice(&json!({ "content": piece }), None)))?;
    chunk(&mut reply.exchange, choice(&json!({}), Some(reason)))?;
    chunk(&mut reply.exchange, json!([]))?;
    reply.exchange.event(None, "[DONE]")
}

fn whole(mut reply: Reply<'_>, calls: Value, reason: &str) -> Result<()> {
    let said = if let Answer::Text(said) = &reply.answer {
        said
    } else {
        "x"
    };
    let mut message = json!({ "role": "assistant", "content": said });
    if !calls.is_null() {
        message["tool_calls"] = calls;
        message["content"] = Value::Null;
    }
    let choice = json!({ "index": 0, "message": message, "finish_reason": reason });
    let completion = json!({
        "id": unique("chatcmpl"), "object": "chat.completion", "created": 1,
        "model": reply.body["model"], "choices": [choice], "usage": usage(),
    });
    reply.json(200, &completion)
}

fn choice(delta: &Value, reason: Option<&str>) -> Value {
    json!([{ "index": 0, "delta": delta, "finish_reason": reason }])
}

/// The last chunk has no choices and carries the usage.
fn choices_end(chunk: &Value) -> bool {
    chunk["choices"].as_array().is_some_and(Vec::is_empty)
}

fn usage() -> Value {
    json!({ "prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020 })
}
