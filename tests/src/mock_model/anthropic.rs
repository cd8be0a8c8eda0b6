//! The Anthropic Messages API: `POST /v1/messages`, streamed or whole.
//!
//! Fed by: `route`. Words the script's answer; decides nothing.

use std::io::Result;

use serde_json::{Value, json};

use super::Reply;
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
        let whose = kind(&message["role"]);
        let Some(parts) = message["content"].as_array() else {
            items.push(Item::new(whose, text(&message["content"])));
            continue;
        };
        items.extend(
            parts
                .iter()
                .filter_map(|part| match part["type"].as_str()? {
                    "text" => Some(Item::new(whose, text(part))),
                    "tool_use" => {
                        let call = json!({ "name": part["name"], "input": part["input"] });
                        Some(Item::new(Kind::Call, call.to_string()))
                    }
                    "tool_result" => Some(Item::new(Kind::Result, text(&part["content"]))),
                    _ => None,
                }),
        );
    }
    items
}

/// Answers in the form the request asks for.
pub(super) fn answer(mut reply: Reply<'_>) -> Result<()> {
    if let Answer::Status(status) = reply.answer {
        let error = json!({ "type": "api_error", "message": "as the test wants it" });
        return reply.json(status, &json!({ "type": "error", "error": error }));
    }
    if !reply.streamed() {
        return whole(reply);
    }
    reply.exchange.begin_events()?;
    let message = message(reply.body, &json!([]), &Value::Null);
    event(
        &mut reply.exchange,
        &json!({ "type": "message_start", "message": message }),
    )?;
    let reason = if let Answer::Tool { name, input } = &reply.answer {
        let block = json!({ "type": "tool_use", "id": unique("toolu"), "name": name, "input": {} });
        let delta = json!({ "type": "input_json_delta", "partial_json": input.to_string() });
        begin_block(&mut reply.exchange, &block)?;
        block_delta(&mut reply.exchange, &delta)?;
        "tool_use"
    } else {
        begin_block(&mut reply.exchange, &json!({ "type": "text", "text": "" }))?;
        reply.pieces(|exchange, piece| {
            block_delta(exchange, &json!({ "type": "text_delta", "text": piece }))
        })?;
        "end_turn"
    };
    event(
        &mut reply.exchange,
        &json!({ "type": "content_block_stop", "index": 0 }),
    )?;
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    let usage = json!({ "output_tokens": 20 });
    let end = json!({ "type": "message_delta", "delta": delta, "usage": usage });
    event(&mut reply.exchange, &end)?;
    event(&mut reply.exchange, &json!({ "type": "message_stop" }))
}

fn whole(mut reply: Reply<'_>) -> Result<()> {
    let said = if let Answer::Text(said) = &reply.answer {
        said
    } else {
        "x"
    };
    let content = json!([{ "type": "text", "text": said }]);
    let message = message(reply.body, &content, &json!("end_turn"));
    reply.json(200, &message)
}

fn message(body: &Value, content: &Value, stop_reason: &Value) -> Value {
    json!({
        "id": unique("msg"), "type": "message", "role": "assistant", "model": body["model"],
        "content": content, "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {
            "input_tokens": 1000, "output_tokens": 1,
            "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0,
        },
    })
}

fn begin_block(exchange: &mut Exchange<'_>, block: &Value) -> Result<()> {
    let start = json!({ "type": "content_block_start", "index": 0, "content_block": block });
    event(exchange, &start)
}

fn block_delta(exchange: &mut Exchange<'_>, delta: &Value) -> Result<()> {
    event(
        exchange,
        &json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
    )
}

fn event(exchange: &mut Exchange<'_>, value: &Value) -> Result<()> {
    exchange.event(value["type"].as_str(), &value.to_string())
}

/// An id that no other answer of this process has.
pub(super) fn unique(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Several servers may feed one conversation, so the port's process is part of the id.
    format!(
        "{prefix}_{}_{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}
