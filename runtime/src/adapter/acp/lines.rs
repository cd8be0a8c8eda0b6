//! The messages of the protocol that matter, taken apart no further than needed.
//!
//! Fed by the observer and the relay. Every field may be absent or of another shape: agents differ,
//! and an odd line must not cost more than itself.

use serde::Serialize;
use serde_json::value::RawValue;

use super::super::wire::parts;

parts!(
    /// The answer to `initialize`.
    Initialized { protocol_version = "protocolVersion", capabilities = "agentCapabilities", info = "agentInfo", auth_methods = "authMethods" }
);
parts!(
    /// What the agent can do.
    Capabilities { load = "loadSession", session = "sessionCapabilities" }
);
parts!(
    /// What it can do with conversations; each is there, as an object, when it can.
    SessionCapabilities { resume, list, close }
);
parts!(
    /// Who it is; also an entry of `authMethods`.
    Info { id, name, version }
);
parts!(
    /// Parameters of everything about one conversation.
    OfSession {
        session_id = "sessionId",
        cwd,
        update,
        mode_id = "modeId",
        model_id = "modelId",
        config_id = "configId",
        value,
        tool_call = "toolCall",
        options,
    }
);
parts!(
    /// The answer to whatever begins a conversation or takes one up.
    Session { session_id = "sessionId", modes, models, config_options = "configOptions" }
);
parts!(
    /// `modes` and `models` in it.
    Current { mode = "currentModeId", model = "currentModelId" }
);
parts!(
    /// One of `configOptions`.
    ConfigOption { id, category, current = "currentValue" }
);
parts!(
    /// `update` of a `session/update`.
    Update {
        kind = "sessionUpdate",
        content,
        message_id = "messageId",
        mode_id = "currentModeId",
        config_options = "configOptions",
        state,
        meta = "_meta",
    }
);
parts!(
    /// A piece of what is said.
    Content { kind = "type", text }
);
parts!(
    /// What a permission is asked for; also one of the `options` to choose from.
    Asked { option_id = "optionId", name, kind, title }
);
parts!(
    /// The answer to `session/prompt`.
    Ended { stop_reason = "stopReason" }
);
parts!(
    /// The answer to `session/list`.
    Listed { sessions, next = "nextCursor" }
);
parts!(
    /// `params` of `$/cancel_request`.
    Cancelled { id = "requestId" }
);

parts!(
    /// `_meta` of an update, in which codex-acp tells its status.
    Meta { codex }
);
parts!(
    /// In `_meta`.
    CodexMeta { thread_status = "threadStatus" }
);
parts!(
    /// In it.
    ThreadStatus { kind = "type" }
);

/// The first version of the protocol; a second one is a draft.
pub(super) const VERSION: u64 = 1;

/// Error codes of the protocol.
pub(super) const AUTH_REQUIRED: i64 = -32000;
pub(super) const NOT_FOUND: i64 = -32002;

/// Parameters of `initialize`: Drowse lends agents neither files nor terminals.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialize {
    protocol_version: u64,
    client_capabilities: ClientCapabilities,
    client_info: ClientInfo,
}

#[derive(Debug, Default, Serialize)]
struct ClientCapabilities {
    fs: Files,
    terminal: bool,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Files {
    read_text_file: bool,
    write_text_file: bool,
}

#[derive(Debug, Serialize)]
struct ClientInfo {
    name: &'static str,
    title: &'static str,
    version: &'static str,
}

impl Initialize {
    pub(super) fn ours() -> Self {
        Self {
            protocol_version: VERSION,
            client_capabilities: ClientCapabilities::default(),
            client_info: ClientInfo {
                name: "drowse",
                title: "Drowse",
                version: env!("CARGO_PKG_VERSION"),
            },
        }
    }
}

/// Parameters of requests that begin a conversation or take one up.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Begin<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<&'a str>,
    pub(super) cwd: &'a str,
    /// The agent has its own.
    pub(super) mcp_servers: [(); 0],
}

/// Parameters of requests that name a conversation and nothing else.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Of<'a> {
    pub(super) session_id: &'a str,
}

/// Parameters of `session/list`.
#[derive(Debug, Serialize)]
pub(super) struct List<'a> {
    pub(super) cwd: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<&'a str>,
}

/// Parameters of `session/prompt`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prompt<'a> {
    pub(super) session_id: &'a str,
    pub(super) prompt: [Text<'a>; 1],
}

/// Words of a prompt.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "text")]
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
}

/// Parameters of requests that set something in a conversation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Set<'a> {
    pub(super) session_id: &'a str,
    #[serde(flatten)]
    pub(super) what: SetWhat<'a>,
}

/// What is set.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum SetWhat<'a> {
    #[serde(rename_all = "camelCase")]
    Mode { mode_id: &'a str },
    #[serde(rename_all = "camelCase")]
    Model { model_id: &'a str },
    #[serde(rename_all = "camelCase")]
    Option {
        config_id: &'a str,
        value: &'a RawValue,
    },
}

/// The answer to `session/request_permission`.
#[derive(Debug, Serialize)]
pub(super) struct Permission<'a> {
    pub(super) outcome: Outcome<'a>,
}

/// What was chosen.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum Outcome<'a> {
    #[serde(rename_all = "camelCase")]
    Selected {
        option_id: &'a str,
    },
    Cancelled,
}
