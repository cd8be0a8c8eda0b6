//! Pi's RPC mode, as far as a supervisor can tell (`tests/golden/pi`).
//!
//! Speaks version 1.6, or 0.73 with `--pi 0.73` (no `agent_settled`, no `--session-id`). The
//! roster goes out as an extension would send it: status keys `drowse:background:ID`.
//! Fed by: the turn engine. Invariant: silent until the first command; every command is answered.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Args;
use crate::home::{Home, refuse_text};
use crate::script::seconds;
use crate::transcript::Transcript;
use crate::wire::{Ask, Cause, Change, End, Heard, Out, Task, Wire, typed};

/// The pi side of one process.
#[derive(Debug)]
pub(crate) struct Pi {
    out: Out,
    session: String,
    file: PathBuf,
    settles: bool,
    compacting: bool,
    streaming: bool,
    asked: usize,
    /// Follow-ups that wait for the running turn.
    queued: Vec<String>,
    /// Ids of commands that are answered only when what they ask for is done.
    abort: Option<Value>,
    compact: Option<Value>,
}

impl Pi {
    pub(crate) fn open(args: &Args, home: &mut Home) -> Result<(Self, Transcript), u8> {
        let old = args.pi_version.starts_with("0.");
        if old && args.session_id.is_some() {
            refuse_text("Error: Unknown option: --session-id");
            return Err(1);
        }
        let wanted = args.session.as_deref().map(id_of);
        let resumed = wanted.is_some();
        let id = wanted
            .or_else(|| args.session_id.clone())
            .unwrap_or_else(new_id);
        let file = home.conversation(&id);
        home.take_session(&id, resumed)?;
        if resumed && (!file.exists() || home.flag("forget")) {
            refuse_text(&format!("No session found matching '{id}'"));
            home.log("stop", json!({ "status": 1 }));
            return Err(1);
        }
        let hold_back = !home.millis("flush_after_eof_ms").is_zero();
        let pi = Self {
            out: Out::default(),
            session: id,
            file: file.clone(),
            settles: !old,
            compacting: false,
            streaming: false,
            asked: 0,
            queued: Vec::new(),
            abort: None,
            compact: None,
        };
        Ok((pi, Transcript::open(file, hold_back)))
    }

    fn respond(&mut self, id: &Value, command: &str, outcome: Result<Value, &str>) {
        let mut facts = json!({ "command": command, "success": outcome.is_ok() });
        if !id.is_null() {
            facts["id"] = id.clone();
        }
        match outcome {
            Ok(Value::Null) => {}
            Ok(value) => facts["data"] = value,
            Err(why) => facts["error"] = json!(why),
        }
        self.say("response", &facts);
    }

    fn say(&mut self, kind: &str, facts: &Value) {
        let line = typed(kind, facts);
        self.out.line(&line);
    }

    fn bare(&mut self, kind: &str) {
        self.out.line(&format!("{{\"type\":\"{kind}\"}}"));
    }

    fn prompt(&mut self, command: &Value, busy: bool) -> Heard {
        let id = &command["id"];
        let text = command["message"].as_str().unwrap_or_default().to_owned();
        let behaviour = command["streamingBehavior"].as_str();
        let disposition = |word: &str, settles: bool| {
            if settles {
                json!({ "disposition": word })
            } else {
                Value::Null
            }
        };
        if !busy {
            self.respond(id, "prompt", Ok(disposition("started", self.settles)));
            return Heard::Prompt(text);
        }
        if behaviour.is_none() {
            let why = "Agent is already processing. Specify streamingBehavior ('steer' or \
                       'followUp') to queue the message.";
            self.respond(id, "prompt", Err(why));
            return Heard::Nothing;
        }
        self.queued.push(text.clone());
        let facts = json!({ "steering": [], "followUp": self.queued });
        self.say("queue_update", &facts);
        self.respond(id, "prompt", Ok(disposition("queued", self.settles)));
        Heard::Prompt(text)
    }

    fn get_state(&mut self, id: &Value, busy: bool, transcript: &Transcript) {
        let model = json!({ "id": "fake-model", "provider": "fake", "contextWindow": 100_000 });
        let state = json!({
            "model": model, "thinkingLevel": "off", "isStreaming": busy && !self.compacting,
            "isCompacting": self.compacting, "sessionFile": self.file, "sessionId": self.session,
            "autoCompactionEnabled": true, "messageCount": transcript.messages(),
            "pendingMessageCount": self.queued.len(),
        });
        self.respond(id, "get_state", Ok(state));
    }

    fn message(&mut self, kind: &str, role: &str, text: &str) {
        let content = json!([{ "type": "text", "text": text }]);
        self.say(
            kind,
            &json!({ "message": { "role": role, "content": content } }),
        );
    }

    fn status(&mut self, key: &str, text: Option<&str>) {
        self.asked += 1;
        let id = format!("ui-{}-{}", std::process::id(), self.asked);
        let mut facts = json!({ "id": id, "method": "setStatus", "statusKey": key });
        if let Some(text) = text {
            facts["statusText"] = json!(text);
        }
        self.say("extension_ui_request", &facts);
    }
}

impl Wire for Pi {
    const EOF_ENDS_TURN: bool = true;
    const TASKS_OUTLIVE_EOF: bool = false;

    fn hear(&mut self, line: &str, busy: bool, transcript: &Transcript) -> Heard {
        let command: Value = match serde_json::from_str(line) {
            Ok(command) => command,
            Err(why) => {
                let why = format!("Failed to parse command: {why}");
                self.respond(&Value::Null, "parse", Err(&why));
                return Heard::Nothing;
            }
        };
        let id = &command["id"];
        match command["type"].as_str().unwrap_or_default() {
            "get_state" => self.get_state(id, busy, transcript),
            "prompt" => return self.prompt(&command, busy),
            "steer" | "follow_up" => {
                let mut command = command.clone();
                command["streamingBehavior"] = json!("followUp");
                return self.prompt(&command, busy);
            }
            "abort" if busy => {
                self.abort = Some(id.clone());
                return Heard::Interrupt;
            }
            "abort" => self.respond(id, "abort", Ok(Value::Null)),
            "compact" => {
                self.compact = Some(id.clone());
                let instructions = command["customInstructions"].as_str().unwrap_or_default();
                return Heard::Compact(seconds(instructions).unwrap_or_default());
            }
            "extension_ui_response" => {
                let id = command["id"].as_str().unwrap_or_default().to_owned();
                let given = command["value"].is_string();
                let allowed = command["confirmed"].as_bool().unwrap_or(given);
                return Heard::Answer { id, allowed };
            }
            other => {
                let why = format!("Unknown command: {other}");
                self.respond(id, other, Err(&why));
            }
        }
        Heard::Nothing
    }

    /// Pi tells nothing of tasks of an earlier process.
    fn lost_tasks(&mut self, _ids: &[String]) {}

    fn lost_tasks_told(&mut self, _more: bool) {}

    fn turn_started(&mut self, cause: &Cause) {
        if !self.streaming {
            self.bare("agent_start");
        }
        self.streaming = true;
        self.bare("turn_start");
        let (role, text) = match cause {
            Cause::User(text) => ("user", text.clone()),
            Cause::TaskEnded(task) => ("custom", format!("background task {} finished", task.id)),
        };
        if let Some(at) = self.queued.iter().position(|queued| *queued == text) {
            self.queued.remove(at);
            let facts = json!({ "steering": [], "followUp": self.queued });
            self.say("queue_update", &facts);
        }
        self.message("message_start", role, &text);
        self.message("message_end", role, &text);
        self.say(
            "message_start",
            &json!({ "message": { "role": "assistant", "content": [] } }),
        );
    }

    fn delta(&mut self, text: &str) {
        let line = self.delta_line(text);
        self.out.line(&line);
    }

    fn delta_line(&self, text: &str) -> String {
        let event = json!({ "type": "text_delta", "contentIndex": 0, "delta": text });
        typed("message_update", &json!({ "assistantMessageEvent": event }))
    }

    fn ask(&mut self, ask: Ask, text: &str) -> String {
        self.asked += 1;
        let id = format!("ui-{}-{}", std::process::id(), self.asked);
        let facts = match ask {
            Ask::Permission => {
                json!({ "id": id, "method": "confirm", "title": "Allow?", "message": text })
            }
            Ask::Question => {
                json!({ "id": id, "method": "select", "title": text, "options": ["yes", "no"] })
            }
        };
        self.say("extension_ui_request", &facts);
        id
    }

    fn answered(&mut self) {}

    /// Pi takes nothing back: the host sees the run end.
    fn withdrawn(&mut self, _id: &str) {}

    fn task(&mut self, task: &Task, change: &Change, _roster: &[Task]) {
        let prefix = if task.ambient {
            "watch"
        } else {
            "drowse:background"
        };
        let key = format!("{prefix}:{}", task.id);
        match change {
            Change::Started => self.status(&key, Some("1 background task running")),
            Change::Completed | Change::Stopped => self.status(&key, None),
        }
    }

    fn compaction_started(&mut self, in_turn: bool) {
        self.compacting = true;
        let reason = if in_turn { "threshold" } else { "manual" };
        self.say("compaction_start", &json!({ "reason": reason }));
    }

    fn compaction_ended(&mut self, in_turn: bool) {
        self.compacting = false;
        let reason = if in_turn { "threshold" } else { "manual" };
        let result = json!({ "summary": "fake", "tokensBefore": 1000 });
        let facts = json!({
            "reason": reason, "result": result, "aborted": false, "willRetry": false,
        });
        self.say("compaction_end", &facts);
        if let Some(id) = self.compact.take_if(|_| !in_turn) {
            self.respond(&id, "compact", Ok(result));
        }
    }

    fn turn_ended(&mut self, end: &End, more: bool) {
        let (text, reason) = match end {
            End::Answer(text) => (text.as_str(), "stop"),
            End::Failed(_) => ("", "error"),
            End::Interrupted => ("", "aborted"),
        };
        let content = json!([{ "type": "text", "text": text }]);
        let mut message = json!({ "role": "assistant", "content": content, "stopReason": reason });
        if let End::Failed(why) = end {
            message["errorMessage"] = json!(why);
        }
        self.say("message_end", &json!({ "message": message }));
        self.say(
            "turn_end",
            &json!({ "message": message, "toolResults": [] }),
        );
        if more && reason == "stop" {
            return;
        }
        self.streaming = false;
        self.say("agent_end", &json!({ "messages": [message] }));
        if self.settles {
            self.say("agent_settled", &json!({ "aborted": reason == "aborted" }));
        }
        if let Some(id) = self.abort.take() {
            self.respond(&id, "abort", Ok(Value::Null));
        }
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}

/// The id in a session path, or the id itself.
fn id_of(session: &str) -> String {
    let path = Path::new(session);
    let is_file = path.extension().is_some_and(|ext| ext == "jsonl");
    let stem = path
        .file_stem()
        .filter(|_| is_file)
        .and_then(|stem| stem.to_str());
    stem.unwrap_or(session).to_owned()
}

fn new_id() -> String {
    let me = drowse_tests::ProcIdentity::me();
    format!(
        "01fa4e00-0000-7000-{:04x}-{:012x}",
        me.pid & 0xffff,
        me.start_time
    )
}
