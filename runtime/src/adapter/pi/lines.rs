//! The lines of Pi's RPC mode that matter, taken apart no further than needed.
//!
//! Fed by the observer with lines whose type is known. Every field may be absent or of another
//! shape: versions differ, and an odd line must not cost more than itself.

use serde::Serialize;

use super::super::wire::parts;

parts!(
    /// `type: response`.
    Response { id, command, success, error, data }
);
parts!(
    /// `data` of the response to `prompt`.
    Accepted { disposition }
);
parts!(
    /// `data` of the response to `get_state`.
    State {
        session_id = "sessionId",
        session_file = "sessionFile",
        message_count = "messageCount",
        is_streaming = "isStreaming",
        is_compacting = "isCompacting",
        pending_count = "pendingMessageCount",
    }
);
parts!(
    /// `agent_end`, `agent_settled`, `compaction_start`, `compaction_end`, `auto_retry_end`,
    /// `extension_error`.
    Run { aborted, will_retry = "willRetry", reason, success, error }
);
parts!(
    /// `queue_update`: what Pi has taken and not begun.
    Queue { steering, follow_up = "followUp" }
);
parts!(
    /// `message_update` and `message_end`.
    Said { event = "assistantMessageEvent", message }
);
parts!(
    /// A piece of a message.
    Delta { kind = "type", delta, text }
);
parts!(
    /// A message.
    Message { role, content, stop_reason = "stopReason", error_message = "errorMessage" }
);
parts!(
    /// `extension_ui_request`.
    Ui {
        id,
        method,
        title,
        message,
        options,
        status_key = "statusKey",
        status_text = "statusText",
    }
);
parts!(
    /// A command to Pi, and an answer to a dialog.
    Command { id, command }
);

/// A command of ours.
#[derive(Debug, Serialize)]
pub(super) struct Order<'a> {
    pub(super) id: &'a str,
    #[serde(flatten)]
    pub(super) what: What<'a>,
}

/// What it orders.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum What<'a> {
    GetState,
    Abort,
    Prompt {
        message: &'a str,
        /// Pi refuses a prompt without it while a run is going on, for instance one that an
        /// extension began at the same moment; else it is without effect.
        #[serde(rename = "streamingBehavior")]
        streaming_behavior: &'a str,
    },
}

/// Our answer to a dialog.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "extension_ui_response")]
pub(super) struct UiAnswer<'a> {
    pub(super) id: &'a str,
    #[serde(flatten)]
    pub(super) answer: Chosen<'a>,
}

/// What is answered.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Chosen<'a> {
    Confirmed(bool),
    Value(&'a str),
    Cancelled(bool),
}
