//! The lines of Codex's app server that matter, taken apart no further than needed.
//!
//! Fed by the observer with messages whose method is known. Every field may be absent or of
//! another shape: versions differ, and an odd line must not cost more than itself.

use std::borrow::Cow;

use serde::Serialize;

use super::super::wire::{Part, parts, text};

/// What Codex is told of its client.
const CLIENT: &str = "drowse";

/// 128 bytes: ids are UUIDs and the like; a longer one is none, so that what is kept is bounded.
const ID_BYTES_MAX: usize = 128;

/// The id in a part, if it is one.
pub(super) fn id(part: Part<'_>) -> Option<Cow<'_, str>> {
    text(part).filter(|id| !id.is_empty() && id.len() <= ID_BYTES_MAX)
}

parts!(
    /// Parameters of most requests and notifications.
    Params {
        thread_id = "threadId",
        turn_id = "turnId",
        item_id = "itemId",
        turn,
        item,
        input,
        delta,
        error,
        will_retry = "willRetry",
        request_id = "requestId",
        from_model = "fromModel",
        to_model = "toModel",
    }
);
parts!(
    /// `result` of `thread/start`, `thread/resume` and `thread/fork`.
    Opened { thread }
);
parts!(
    /// A thread.
    Thread { id, path, ephemeral }
);
parts!(
    /// `result` of `turn/start`.
    Accepted { turn }
);
parts!(
    /// `result` of `thread/turns/list` and `thread/backgroundTerminals/list`.
    Listed { data }
);
parts!(
    /// One background terminal.
    Terminal { item_id = "itemId" }
);
parts!(
    /// A turn.
    Turn { id, items, status, error }
);
parts!(
    /// An item of a turn.
    Item {
        kind = "type",
        id,
        text,
        command,
        command_actions = "commandActions",
        changes,
        prompt,
        receivers = "receiverThreadIds",
    }
);
parts!(
    /// One of `commandActions`; also one of the `changes` of a file change, and a piece of `input`.
    Piece { command, path, text }
);
parts!(
    /// What went wrong.
    TurnError { message, details = "additionalDetails" }
);
parts!(
    /// What a request of Codex's asks.
    Asked {
        thread_id = "threadId",
        turn_id = "turnId",
        item_id = "itemId",
        reason,
        command,
        permissions,
        questions,
        message,
        server_name = "serverName",
        schema = "requestedSchema",
    }
);
parts!(
    /// One of `questions`.
    Question { id, question }
);
parts!(
    /// `requestedSchema` of an elicitation.
    Schema { properties }
);
parts!(
    /// One of its properties.
    Property { kind = "type" }
);

/// Parameters of our `initialize`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hello {
    client_info: ClientInfo,
    capabilities: Capabilities,
}

#[derive(Debug, Serialize)]
struct ClientInfo {
    name: &'static str,
    title: &'static str,
    version: &'static str,
}

/// The experimental part names the background terminals of a Codex that an earlier daemon
/// started; nothing else of it is used.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Capabilities {
    experimental_api: bool,
}

impl Hello {
    pub(super) fn new() -> Self {
        Self {
            client_info: ClientInfo {
                name: CLIENT,
                title: "Drowse",
                version: env!("CARGO_PKG_VERSION"),
            },
            capabilities: Capabilities {
                experimental_api: true,
            },
        }
    }
}

/// Parameters of requests about a thread. What is `None` is left out.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct About<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thread_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) turn_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<[Text<'a>; 1]>,
    /// Of `thread/resume`: the whole history would come as one line of megabytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exclude_turns: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<u32>,
}

/// What a person said.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "text")]
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
}
