//! What stands in paths, queries and headers: the same name means the same everywhere.

use drowse_messages::{IDEMPOTENCY_KEY, LAST_EVENT_ID};
use serde_json::{Value, json};

pub(super) fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1);
    let names = names.filter_map(|rest| rest.split_once('}'));
    names
        .map(|(name, _)| {
            json!({ "name": name, "in": "path", "required": true, "schema": parameter(name),
                    "description": parameter_about(name) })
        })
        .collect()
}

/// What a parameter may be; the name says it, wherever it stands.
pub(super) fn parameter(name: &str) -> Value {
    match name {
        "message" => json!({ "$ref": "#/components/schemas/MessageId" }),
        "limit" => {
            json!({ "type": "integer", "minimum": 1, "maximum": crate::http::routes::LIST_MAX,
                           "default": crate::http::routes::LIST_DEFAULT })
        }
        "state" => json!({ "$ref": "#/components/schemas/SessionState" }),
        "agent" => json!({ "$ref": "#/components/schemas/Name" }),
        IDEMPOTENCY_KEY => json!({ "type": "string", "pattern": "^[ -~]{1,256}$" }),
        LAST_EVENT_ID => json!({ "type": "string", "pattern": "^[0-9]{0,19}$" }),
        _ => json!({ "type": "string", "minLength": 1 }),
    }
}

pub(super) fn parameter_about(name: &str) -> &'static str {
    match name {
        "session" => "Id, unique prefix of four characters or more, or name",
        "ask" => "The id it was asked with",
        "hold" => "The hold's number",
        "name" => "The task's name",
        "message" => "The message's number",
        "limit" => "How many at most, the newest ones",
        "state" => "Only those in this state",
        "agent" => "Only those of this agent",
        "after" => "Where the page or the events before ended",
        IDEMPOTENCY_KEY => "The client's own key for the message",
        LAST_EVENT_ID => "The number of the last event the client has seen; goes before `after`",
        _ => "",
    }
}
