//! Claude Code's stream-json, as far as a supervisor can tell (`tests/golden/claude`).
//!
//! Fed by: the turn engine. Invariant: silent until the first line of stdin; `type` is the first
//! key of every line but `result`, where it is not, as with the real one.

use serde_json::{Value, json};

use crate::Args;
use crate::home::{Home, refuse_text};
use crate::script::seconds;
use crate::transcript::Transcript;
use crate::wire::{Ask, Cause, Change, End, Heard, Out, Task, Wire, typed};

/// The claude side of one process.
#[derive(Debug)]
pub(crate) struct Claude {
    out: Out,
    session: String,
    states: bool,
    partial: bool,
    replay: bool,
    running: bool,
    origin: Option<Value>,
    streamed: String,
    /// The id of the message that is being said: the stream and the whole message share it.
    message: String,
    asked: usize,
    sent: usize,
}

impl Claude {
    pub(crate) fn open(args: &Args, home: &mut Home) -> Result<(Self, Transcript), u8> {
        let mut session = args.resume.clone().or_else(|| args.session_id.clone());
        let mut id = session.take().unwrap_or_else(|| new_id(home));
        let mut file = home.conversation(&id);
        let exists = file.exists();
        home.take_session(&id, args.resume.is_some())?;
        if args.resume.is_some() && (!exists || home.flag("forget")) {
            let why = format!("No conversation found with session ID: {id}");
            let mut claude = Self::new(args, id);
            claude.result(
                "error_during_execution",
                true,
                None,
                json!({ "errors": [why] }),
            );
            refuse_text(&why);
            home.log("stop", json!({ "status": 1 }));
            return Err(1);
        }
        if args.resume.is_none() && exists {
            refuse_text(&format!("Error: Session ID {id} is already in use."));
            home.log("stop", json!({ "status": 1 }));
            return Err(1);
        }
        if args.resume.is_some() && home.flag("id_drift") {
            id = new_id(home);
            let next = home.conversation(&id);
            // The copy is made by the only process of the new id, so nothing can be half-read.
            drop(std::fs::copy(&file, &next));
            home.drift_to(&id);
            file = next;
        }
        let hold_back = !home.millis("flush_after_eof_ms").is_zero();
        Ok((Self::new(args, id), Transcript::open(file, hold_back)))
    }

    fn new(args: &Args, session: String) -> Self {
        let states = std::env::var_os("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS");
        Self {
            out: Out::default(),
            session,
            states: states.is_some_and(|value| value == "1"),
            partial: args.partial_messages,
            replay: args.replay_user_messages,
            running: false,
            origin: None,
            streamed: String::new(),
            message: String::new(),
            asked: 0,
            sent: 0,
        }
    }

    /// A line of `kind` with the session id and a uuid.
    fn say(&mut self, kind: &str, facts: Value) {
        let facts = self.stamped(facts);
        self.out.line(&typed(kind, &facts));
    }

    fn stamped(&mut self, mut facts: Value) -> Value {
        self.sent += 1;
        facts["session_id"] = json!(self.session);
        facts["uuid"] = json!(format!("00000000-0000-4000-8000-{:012}", self.sent));
        facts
    }

    fn state(&mut self, state: &str) {
        self.running = state != "idle";
        if self.states {
            self.say(
                "system",
                json!({ "subtype": "session_state_changed", "state": state }),
            );
        }
    }

    fn init(&mut self) {
        let cwd = std::env::current_dir().unwrap_or_default();
        let facts = json!({
            "subtype": "init", "cwd": cwd, "tools": ["Bash"], "mcp_servers": [],
            "model": "fake-model", "permissionMode": "default",
            "claude_code_version": "2.1.332", "apiKeySource": "ANTHROPIC_API_KEY",
        });
        self.say("system", facts);
    }

    fn stream(&mut self, event: &Value) {
        if self.partial {
            let facts = json!({ "event": event, "parent_tool_use_id": null });
            self.say("stream_event", facts);
        }
    }

    fn assistant(&mut self, text: &str) {
        let message = json!({
            "id": self.message, "type": "message", "role": "assistant",
            "model": "fake-model", "content": [{ "type": "text", "text": text }],
            "stop_reason": null,
        });
        self.say(
            "assistant",
            json!({ "message": message, "parent_tool_use_id": null }),
        );
    }

    fn result(&mut self, subtype: &str, is_error: bool, origin: Option<Value>, more: Value) {
        let mut facts = json!({
            "duration_api_ms": 1, "subtype": subtype, "is_error": is_error, "num_turns": 1,
            "permission_denials": [], "total_cost_usd": 0.0,
        });
        if let (Some(facts), Value::Object(more)) = (facts.as_object_mut(), more) {
            facts.extend(more);
        }
        if let Some(origin) = origin {
            facts["origin"] = origin;
        }
        let mut facts = self.stamped(facts);
        facts["type"] = json!("result");
        // Keys are sorted, so "type" comes late, as it does in the real line.
        self.out.line(&facts.to_string());
    }

    fn respond(&mut self, request: &Value, response: Value) {
        let id = &request["request_id"];
        let body = json!({ "subtype": "success", "request_id": id, "response": response });
        self.out
            .line(&typed("control_response", &json!({ "response": body })));
    }

    fn control(&mut self, line: &Value, busy: bool) -> Heard {
        match line["request"]["subtype"].as_str().unwrap_or_default() {
            "initialize" => {
                let state = if busy { "running" } else { "idle" };
                let facts = json!({
                    "commands": [], "agents": [], "models": [], "output_style": "default",
                    "account": { "tokenSource": "none" }, "pid": std::process::id(),
                    "claude_code_version": "2.1.332", "session_state": state,
                });
                self.respond(line, facts);
                Heard::Nothing
            }
            "interrupt" => {
                self.respond(line, json!({ "still_queued": [] }));
                if busy {
                    Heard::Interrupt
                } else {
                    Heard::Nothing
                }
            }
            "stop_task" => {
                self.respond(line, json!({}));
                Heard::StopTask(text(&line["request"]["task_id"]))
            }
            "end_session" => {
                self.respond(line, json!({}));
                Heard::Leave(0)
            }
            other => {
                let body = json!({
                    "subtype": "error", "request_id": line["request_id"],
                    "error": format!("Unsupported control request subtype: {other}"),
                    "error_code": "unsupported_request",
                });
                self.out
                    .line(&typed("control_response", &json!({ "response": body })));
                Heard::Nothing
            }
        }
    }

    fn notify(&mut self, task: &str, status: &str, summary: &str) {
        let facts = json!({
            "subtype": "task_notification", "task_id": task, "tool_use_id": format!("toolu_{task}"),
            "status": status, "output_file": "", "summary": summary,
        });
        self.say("system", facts);
    }
}

impl Wire for Claude {
    const EOF_ENDS_TURN: bool = false;
    const TASKS_OUTLIVE_EOF: bool = true;

    fn hear(&mut self, line: &str, busy: bool, _transcript: &Transcript) -> Heard {
        if line.trim().is_empty() {
            return Heard::Nothing;
        }
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            let chars = line.chars().count();
            refuse_text(&format!(
                "Error parsing streaming input line (type=unknown, {chars} chars): SyntaxError"
            ));
            return Heard::Leave(1);
        };
        match value["type"].as_str().unwrap_or_default() {
            "user" => {
                let prompt = content(&value["message"]["content"]);
                match prompt.strip_prefix("/compact") {
                    Some(rest) => Heard::Compact(seconds(rest).unwrap_or_default()),
                    None => Heard::Prompt(prompt),
                }
            }
            "control_request" => self.control(&value, busy),
            "control_response" => {
                let response = &value["response"];
                let allowed = response["response"]["behavior"] == "allow";
                Heard::Answer {
                    id: text(&response["request_id"]),
                    allowed,
                }
            }
            _ => Heard::Nothing,
        }
    }

    fn lost_tasks(&mut self, ids: &[String]) {
        for id in ids {
            let why = "Background shell command didn't finish before the previous session ended";
            self.notify(id, "stopped", why);
        }
        self.state("running");
    }

    fn lost_tasks_told(&mut self, more: bool) {
        self.init();
        let origin = json!({ "kind": "task-notification" });
        self.result(
            "success",
            false,
            Some(origin),
            json!({ "result": "", "num_turns": 0 }),
        );
        if !more {
            self.state("idle");
        }
    }

    fn turn_started(&mut self, cause: &Cause) {
        self.origin = match cause {
            Cause::User(_) => None,
            Cause::TaskEnded(task) => Some(json!({
                "kind": "task-notification", "producer": "session-task",
                "runId": format!("run-{}", task.id),
            })),
        };
        self.streamed.clear();
        if !self.running {
            self.state("running");
        }
        self.init();
        self.say(
            "system",
            json!({ "subtype": "status", "status": "requesting" }),
        );
        if let (Cause::User(text), true) = (cause, self.replay) {
            let message = json!({ "role": "user", "content": [{ "type": "text", "text": text }] });
            self.say("user", json!({ "message": message, "isReplay": true }));
        }
        self.message = format!("msg_{}_{}", std::process::id(), self.sent);
        let message = json!({ "id": self.message, "type": "message", "role": "assistant" });
        self.stream(&json!({ "type": "message_start", "message": message }));
        let block = json!({ "type": "text", "text": "" });
        self.stream(&json!({ "type": "content_block_start", "index": 0, "content_block": block }));
    }

    fn delta(&mut self, text: &str) {
        self.streamed.push_str(text);
        if self.partial {
            let line = self.delta_line(text);
            self.out.line(&line);
        }
    }

    fn delta_line(&self, text: &str) -> String {
        let delta = json!({ "type": "text_delta", "text": text });
        let event = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
        let facts = json!({
            "event": event, "session_id": self.session, "parent_tool_use_id": null,
            "uuid": "00000000-0000-4000-8000-ffffffffffff",
        });
        typed("stream_event", &facts)
    }

    fn ask(&mut self, ask: Ask, text: &str) -> String {
        self.asked += 1;
        let id = format!("ask-{}-{}", std::process::id(), self.asked);
        let (tool, input) = match ask {
            Ask::Permission => ("Bash", json!({ "command": text, "description": "fake" })),
            Ask::Question => {
                let options = json!([{ "label": "yes" }, { "label": "no" }]);
                let question = json!({ "question": text, "header": "Fake", "options": options });
                ("AskUserQuestion", json!({ "questions": [question] }))
            }
        };
        self.state("requires_action");
        let request = json!({
            "subtype": "can_use_tool", "tool_name": tool, "display_name": tool, "input": input,
            "permission_suggestions": [], "tool_use_id": format!("toolu_{id}"),
        });
        let facts = json!({ "request_id": id, "request": request });
        self.out.line(&typed("control_request", &facts));
        id
    }

    fn answered(&mut self) {
        self.state("running");
    }

    fn withdrawn(&mut self, id: &str) {
        self.out.line(&typed(
            "control_cancel_request",
            &json!({ "request_id": id }),
        ));
        self.state("running");
    }

    fn task(&mut self, task: &Task, change: &Change, roster: &[Task]) {
        let tasks: Vec<Value> = roster.iter().map(entry).collect();
        let roster = json!({ "subtype": "background_tasks_changed", "tasks": tasks });
        match change {
            Change::Started => {
                self.say("system", roster);
                let mut facts = entry(task);
                facts["subtype"] = json!("task_started");
                facts["is_backgrounded"] = json!(true);
                self.say("system", facts);
            }
            Change::Completed | Change::Stopped => {
                let (status, patch) = match change {
                    Change::Completed => ("completed", "completed"),
                    Change::Started | Change::Stopped => ("stopped", "killed"),
                };
                let patch = json!({ "status": patch });
                let facts =
                    json!({ "subtype": "task_updated", "task_id": task.id, "patch": patch });
                self.say("system", facts);
                self.notify(&task.id, status, &format!("Background command {status}"));
                self.say("system", roster);
            }
        }
    }

    fn compaction_started(&mut self, in_turn: bool) {
        if !in_turn {
            self.state("running");
        }
        self.say(
            "system",
            json!({ "subtype": "status", "status": "compacting" }),
        );
    }

    fn compaction_ended(&mut self, in_turn: bool) {
        let status = json!({ "subtype": "status", "status": null, "compact_result": "success" });
        self.say("system", status);
        if !in_turn {
            self.init();
        }
        let trigger = if in_turn { "auto" } else { "manual" };
        let about = json!({ "trigger": trigger, "pre_tokens": 1000 });
        let boundary = json!({ "subtype": "compact_boundary", "compact_metadata": about });
        self.say("system", boundary);
        if !in_turn {
            self.result(
                "success",
                false,
                None,
                json!({ "result": "", "num_turns": 0 }),
            );
            self.state("idle");
        }
    }

    fn turn_ended(&mut self, end: &End, more: bool) {
        let origin = self.origin.take();
        match end {
            End::Answer(text) => {
                self.assistant(text);
                self.stream(&json!({ "type": "message_stop" }));
                let facts = json!({ "result": text, "terminal_reason": "completed" });
                self.result("success", false, origin, facts);
            }
            End::Failed(why) => {
                self.assistant(&format!("API Error: {why}"));
                let result = format!("API Error: {why}");
                let facts = json!({ "result": result, "terminal_reason": "api_error" });
                self.result("success", true, origin, facts);
            }
            End::Interrupted => {
                let streamed = std::mem::take(&mut self.streamed);
                self.assistant(&streamed);
                let said = json!([{ "type": "text", "text": "[Request interrupted by user]" }]);
                let message = json!({ "role": "user", "content": said });
                self.say(
                    "user",
                    json!({ "message": message, "parent_tool_use_id": null }),
                );
                let facts =
                    json!({ "terminal_reason": "aborted_streaming", "errors": ["interrupted"] });
                self.result("error_during_execution", true, origin, facts);
            }
        }
        if !more {
            self.state("idle");
        }
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}

fn entry(task: &Task) -> Value {
    let mut entry = json!({
        "task_id": task.id, "run_id": format!("run-{}", task.id), "task_type": "local_bash",
        "description": "fake task",
    });
    if task.ambient {
        entry["ambient"] = json!(true);
    }
    entry
}

fn content(content: &Value) -> String {
    let Some(parts) = content.as_array() else {
        return text(content);
    };
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    texts.join("\n")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A session id no other process of this home has.
fn new_id(home: &Home) -> String {
    let mut serial = 0_u32;
    loop {
        serial += 1;
        let id = format!(
            "fa4e0000-0000-4000-8000-{:06x}{serial:06x}",
            std::process::id() & 0xff_ffff
        );
        if !home.conversation(&id).exists() {
            return id;
        }
    }
}
