//! A model request's conversation, flattened so that all APIs look alike.
//!
//! Fed by: the API modules. Invariant: order is kept; nothing is merged.

use serde_json::Value;

/// Whose an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Instructions of the agent itself.
    System,
    /// The person, or the agent in the person's name.
    User,
    /// The model.
    Assistant,
    /// A tool call of the model.
    Call,
    /// What a tool call gave.
    Result,
}

/// One piece of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Whose it is.
    pub kind: Kind,
    /// Its text; of a call, its JSON.
    pub text: String,
}

impl Item {
    pub(super) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }
}

/// The kind of a message by its role.
pub(super) fn kind(role: &Value) -> Kind {
    match role.as_str().unwrap_or_default() {
        "user" => Kind::User,
        "assistant" => Kind::Assistant,
        "tool" => Kind::Result,
        _ => Kind::System,
    }
}

/// The text of a content value: a string, or parts with `text` or `content`.
pub(super) fn text(content: &Value) -> String {
    if let Some(parts) = content.as_array() {
        return parts.iter().map(text).collect::<Vec<_>>().join("\n");
    }
    if content.is_object() {
        let part = ["text", "content", "output"]
            .iter()
            .find_map(|key| content.get(*key));
        return part.map(text).unwrap_or_default();
    }
    content.as_str().unwrap_or_default().to_owned()
}

/// Names of the tools a request offers.
pub(super) fn tools(body: &Value) -> Vec<String> {
    let tools = body["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let name = |tool: &Value| {
        let name = tool.get("name").or_else(|| tool["function"].get("name"))?;
        Some(name.as_str()?.to_owned())
    };
    // Gemini's stand in groups.
    let grouped = |tool: &Value| tool["functionDeclarations"].as_array().cloned();
    let groups = tools.iter().filter_map(grouped).flatten();
    let groups: Vec<Value> = groups.collect();
    tools.iter().chain(&groups).filter_map(name).collect()
}
