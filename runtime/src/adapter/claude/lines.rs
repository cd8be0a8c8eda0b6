//! The lines of Claude Code's stream-json that matter, taken apart no further than needed.
//!
//! Fed by the observer with lines whose type is known. Every field may be absent or of another
//! shape: versions differ, and an odd line must not cost more than itself.

use serde::Serialize;
use serde_json::value::RawValue;

use super::super::wire::parts;

parts!(
    /// `type: system`.
    System { subtype, session_id, state, status, tasks, compact_result, task_id, patch, description, task_type, is_backgrounded }
);
parts!(
    /// One of `background_tasks_changed.tasks`.
    TaskEntry { task_id, task_type, description, ambient, off_host }
);
parts!(
    /// `task_updated.patch`.
    TaskPatch { status }
);
parts!(
    /// `type: result`.
    TurnResult { subtype, session_id, is_error, result, errors, origin, terminal_reason, num_turns }
);
parts!(
    /// Who a turn was for.
    Origin { kind }
);
parts!(
    /// `type: assistant` and `type: user`.
    Said { message, parent_tool_use_id, is_replay = "isReplay", tool_use_result, timestamp }
);
parts!(
    /// What was said.
    Message { id, content }
);
parts!(
    /// A piece of what was said.
    Block { kind = "type", text, id, name, input, tool_use_id, is_error }
);
parts!(
    /// `type: stream_event`.
    Stream { event, parent_tool_use_id }
);
parts!(
    /// An event of the model's stream.
    Event { kind = "type", message, delta }
);
parts!(
    /// A piece of the stream.
    Delta { kind = "type", text }
);
parts!(
    /// `type: control_request` and `control_cancel_request`.
    Control { request_id, request }
);
parts!(
    /// What a control request asks.
    Request { subtype, tool_name, display_name, title, description, input }
);
parts!(
    /// `type: control_response`.
    Response { response }
);
parts!(
    /// How a control request was answered.
    Outcome { subtype, request_id, error, response, pending_permission_requests }
);
parts!(
    /// What `initialize` is answered with.
    Initialized { claude_code_version, session_state }
);

parts!(
    /// The input of a tool that sets or deletes a timer.
    TimerInput { delay_seconds = "delaySeconds", stop, reason, prompt, cron, recurring, id }
);
parts!(
    /// `tool_use_result` of such a tool.
    TimerOutcome { scheduled_for = "scheduledFor", next_fire_at = "nextFireAt", id }
);

/// A control request of ours.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "control_request")]
pub(super) struct Ask<'a> {
    pub(super) request_id: &'a str,
    pub(super) request: AskFor<'a>,
}

/// What it asks for.
#[derive(Debug, Serialize)]
pub(super) struct AskFor<'a> {
    pub(super) subtype: &'a str,
}

/// Our answer to a control request.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "control_response")]
pub(super) struct Reply<'a> {
    pub(super) response: ReplyWith<'a>,
}

/// What we answer.
#[derive(Debug, Serialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub(super) enum ReplyWith<'a> {
    Success {
        request_id: &'a str,
        response: Permission<'a>,
    },
    Error {
        request_id: &'a str,
        error: &'a str,
    },
}

/// Whether a tool may run. The input goes back as it came: without it the tool runs with none.
#[derive(Debug, Serialize)]
#[serde(tag = "behavior", rename_all = "snake_case")]
pub(super) enum Permission<'a> {
    Allow {
        #[serde(rename = "updatedInput")]
        updated_input: &'a RawValue,
    },
    Deny {
        message: &'a str,
    },
}

/// A prompt.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "user")]
pub(super) struct Prompt<'a> {
    pub(super) message: PromptMessage<'a>,
}

/// Its message.
#[derive(Debug, Serialize)]
pub(super) struct PromptMessage<'a> {
    pub(super) role: &'a str,
    pub(super) content: [PromptText<'a>; 1],
}

/// Its text.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "text")]
pub(super) struct PromptText<'a> {
    pub(super) text: &'a str,
}
