//! The OpenAI Responses API: `POST /v1/responses`, always streamed, as Codex asks for it.
//!
//! Fed by: `route`. Words the script's answer; decides nothing. A tool that is named `SPACE/NAME`
//! is one of a namespace.

use std::io::Result;

use serde_json::{Value, json};

use super::Reply;
use super::anthropic::unique;
use super::conversation::{Item, Kind, kind, text};
use super::http::Exchange;
use super::script::Answer;

/// The conversation of a request body.
pub(super) fn items(body: &Value) -> Vec<Item> {
    if let Some(said) = body["input"].as_str() {
        return vec![Item::new(Kind::User, said)];
    }
    let items = body["input"].as_array();
    let items = items.map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(item).collect()
}

fn item(item: &Value) -> Option<Item> {
    match item["type"].as_str().unwrap_or("message") {
        "message" => Some(Item::new(kind(&item["role"]), text(&item["content"]))),
        "function_call" => {
            let call = json!({ "name": item["name"], "arguments": item["arguments"] });
            Some(Item::new(Kind::Call, call.to_string()))
        }
        "function_call_output" => Some(Item::new(Kind::Result, text(&item["output"]))),
        _ => None,
    }
}

/// Answers with a stream of events.
pub(super) fn answer(mut reply: Reply<'_>) -> Result<()> {
    if let Answer::Status(status) = reply.answer {
        let error = json!({ "message": "as the test wants it", "type": "server_error" });
        return reply.json(status, &json!({ "error": error }));
    }
    reply.exchange.begin_events()?;
    let mut events = Events::default();
    let id = unique("resp");
    let response = response(&id, "in_progress", &json!([]));
    let created = json!({ "type": "response.created", "response": response });
    events.send(&mut reply.exchange, created)?;
    let item = if let Answer::Tool { name, input } = &reply.answer {
        let call = call(name, input);
        events.item(&mut reply.exchange, "added", &call)?;
        call
    } else {
        said(&mut reply, &mut events)?
    };
    events.item(&mut reply.exchange, "done", &item)?;
    let mut whole = response_done(&id, &item);
    whole["usage"] = usage();
    let completed = json!({ "type": "response.completed", "response": whole });
    events.send(&mut reply.exchange, completed)
}

fn said(reply: &mut Reply<'_>, events: &mut Events) -> Result<Value> {
    let id = unique("msg");
    let message = |status: &str, content: Value| json!({ "type": "message", "id": id, "role": "assistant", "status": status, "content": content });
    let begun = message("in_progress", json!([]));
    events.item(&mut reply.exchange, "added", &begun)?;
    let mut whole = String::new();
    reply.pieces(|exchange, piece| {
        whole.push_str(piece);
        let delta = json!({
            "type": "response.output_text.delta", "item_id": id, "output_index": 0,
            "content_index": 0, "delta": piece,
        });
        events.send(exchange, delta)
    })?;
    let part = json!([{ "type": "output_text", "text": whole, "annotations": [] }]);
    Ok(message("completed", part))
}

fn call(name: &str, input: &Value) -> Value {
    let id = unique("fc");
    let mut call = json!({
        "type": "function_call", "id": id, "call_id": format!("call_{id}"), "name": name,
        "arguments": input.to_string(),
    });
    if let Some((space, name)) = name.split_once('/') {
        call["namespace"] = json!(space);
        call["name"] = json!(name);
    }
    call
}

fn response(id: &str, status: &str, output: &Value) -> Value {
    json!({ "id": id, "object": "response", "status": status, "output": output })
}

fn response_done(id: &str, item: &Value) -> Value {
    response(id, "completed", &json!([item]))
}

fn usage() -> Value {
    json!({
        "input_tokens": 1000, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 20, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": 1020,
    })
}

/// Events of one stream, numbered.
#[derive(Debug, Default)]
struct Events {
    sent: u64,
}

impl Events {
    fn send(&mut self, exchange: &mut Exchange<'_>, mut event: Value) -> Result<()> {
        event["sequence_number"] = json!(self.sent);
        self.sent += 1;
        exchange.event(event["type"].as_str(), &event.to_string())
    }

    fn item(&mut self, exchange: &mut Exchange<'_>, what: &str, item: &Value) -> Result<()> {
        let kind = format!("response.output_item.{what}");
        self.send(
            exchange,
            json!({ "type": kind, "output_index": 0, "item": item }),
        )
    }
}
