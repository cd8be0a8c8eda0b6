//! The Gemini API: `POST …/models/NAME:streamGenerateContent`, and `:generateContent`, whole.
//!
//! Fed by: `route`. Words the script's answer; decides nothing.

use std::io::Result;

use serde_json::{Value, json};

use super::Reply;
use super::anthropic::unique;
use super::conversation::{Item, Kind};
use super::http::Exchange;
use super::script::Answer;

/// What Gemini CLI asks a smaller model between turns is answered with all of these at once: who
/// speaks next, and which model is good enough.
const SIDE_ANSWER: &str = r#"{"reasoning":"x","next_speaker":"user","model_choice":"flash","complexity_reasoning":"x","complexity_score":1}"#;

/// True for a path of this API.
pub(super) fn is_path(path: &str) -> bool {
    path.ends_with("enerateContent") || path.ends_with(":countTokens")
}

/// The conversation of a request body.
pub(super) fn items(body: &Value) -> Vec<Item> {
    let contents = body["contents"].as_array().into_iter().flatten();
    let parts = contents.flat_map(|content| {
        let kind = match content["role"].as_str() {
            Some("model") => Kind::Assistant,
            _ => Kind::User,
        };
        let parts = content["parts"].as_array().into_iter().flatten();
        parts.map(move |part| (kind, part))
    });
    let item = |(kind, part): (Kind, &Value)| {
        if let Some(call) = part.get("functionCall") {
            return Some(Item::new(Kind::Call, call.to_string()));
        }
        if let Some(result) = part.get("functionResponse") {
            let output = &result["response"]["output"];
            let text = output.as_str().map(str::to_owned);
            return Some(Item::new(
                Kind::Result,
                text.unwrap_or_else(|| result.to_string()),
            ));
        }
        Some(Item::new(kind, part["text"].as_str()?))
    };
    parts.filter_map(item).collect()
}

/// Answers in the form the path asks for.
pub(super) fn answer(mut reply: Reply<'_>, path: &str) -> Result<()> {
    if path.ends_with(":countTokens") {
        return reply.json(200, &json!({ "totalTokens": 10 }));
    }
    if let Answer::Status(status) = reply.answer {
        let error = json!({
            "code": status, "message": "as the test wants it", "status": "INTERNAL",
        });
        return reply.json(status, &json!({ "error": error }));
    }
    if !path.contains("streamGenerateContent") {
        return whole(reply);
    }
    reply.exchange.begin_events()?;
    if let Answer::Tool { name, input } = &reply.answer {
        let call = json!({ "id": unique("fc"), "name": name, "args": input });
        let parts = json!([{ "functionCall": call }]);
        return event(&mut reply.exchange, parts, Some("STOP"));
    }
    // The end of a stream carries text, so each piece waits for the one after it.
    let mut last = String::new();
    reply.pieces(|exchange, piece| {
        let before = std::mem::replace(&mut last, piece.to_owned());
        match before.as_str() {
            "" => Ok(()),
            before => event(exchange, json!([{ "text": before }]), None),
        }
    })?;
    event(&mut reply.exchange, json!([{ "text": last }]), Some("STOP"))
}

fn whole(mut reply: Reply<'_>) -> Result<()> {
    let kind = &reply.body["generationConfig"]["responseMimeType"];
    let said = match &reply.answer {
        _ if kind == "application/json" => SIDE_ANSWER,
        Answer::Text(said) => said,
        Answer::Slow(_) | Answer::Tool { .. } | Answer::Status(_) => "x",
    };
    let said = response(json!([{ "text": said }]), Some("STOP"));
    reply.json(200, &said)
}

fn event(exchange: &mut Exchange<'_>, parts: Value, reason: Option<&str>) -> Result<()> {
    exchange.event(None, &response(parts, reason).to_string())
}

fn response(parts: Value, reason: Option<&str>) -> Value {
    let mut candidate = json!({ "content": { "role": "model", "parts": parts }, "index": 0 });
    if let Some(reason) = reason {
        candidate["finishReason"] = json!(reason);
    }
    let usage = json!({
        "promptTokenCount": 1000, "candidatesTokenCount": 20, "totalTokenCount": 1020,
    });
    json!({
        "candidates": [candidate], "usageMetadata": usage, "modelVersion": "mock",
        "responseId": unique("response"),
    })
}
