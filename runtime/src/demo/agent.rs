//! The demo's agent: a small program that speaks Claude Code's stream-json, remembers its
//! conversation, and keeps helper processes that hold some memory, one of them in a process
//! session of its own. It ends when its input does; its helpers do not.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// What one helper holds.
const HELPER_BYTES: usize = 24 << 20;
/// Tells a helper that it is one.
const HELPER_VARIABLE: &str = "DROWSE_DEMO_HELPER";

/// The first argument of the agent; its adapter adds those of the agent it pretends to be.
pub(super) const ARGUMENT: &str = "demo-agent";

/// Runs the agent, or one of its helpers, if this process was started as one.
pub(crate) fn agent_if_asked() -> Option<ExitCode> {
    if std::env::args().nth(1)? != ARGUMENT {
        return None;
    }
    Some(match std::env::var(HELPER_VARIABLE) {
        Ok(kind) => help(&kind),
        Err(_) => converse().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
    })
}

/// A name people recognize in the list of ended processes. Without it the demo works as well.
fn call_oneself(name: &std::ffi::CStr) {
    let _unnamed = rustix::thread::set_name(name);
}

/// Holds memory until it is ended.
fn help(kind: &str) -> ExitCode {
    call_oneself(c"demo-helper");
    if kind == "detached" {
        // It leaves the agent's process session, as background commands of agents do.
        let _leads_already = rustix::process::setsid();
    }
    let held = vec![1_u8; HELPER_BYTES];
    loop {
        std::thread::park();
        std::hint::black_box(&held);
    }
}

fn start_helpers() -> io::Result<()> {
    for kind in ["attached", "detached"] {
        let helper = Command::new("/proc/self/exe")
            .arg(ARGUMENT)
            .env(HELPER_VARIABLE, kind)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // Nobody waits for it: that is the point.
        drop(helper);
    }
    Ok(())
}

/// What both the conversation and a task that ends later write to.
#[derive(Clone)]
struct Voice {
    out: Arc<Mutex<io::Stdout>>,
    session: String,
}

impl Voice {
    fn say(&self, mut line: Value) -> io::Result<()> {
        line["session_id"] = self.session.clone().into();
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(out, "{line}")?;
        out.flush()
    }

    fn turn(&self, text: &str) -> io::Result<()> {
        self.state("running")?;
        self.say(json!({"type": "system", "subtype": "init"}))?;
        let delta = json!({"type": "text_delta", "text": text});
        let event = json!({"type": "content_block_delta", "index": 0, "delta": delta});
        self.say(json!({"type": "stream_event", "event": event, "parent_tool_use_id": null}))?;
        let content = json!([{"type": "text", "text": text}]);
        let message = json!({"role": "assistant", "content": content});
        self.say(json!({"type": "assistant", "message": message, "parent_tool_use_id": null}))?;
        self.say(
            json!({"type": "result", "subtype": "success", "is_error": false, "result": text}),
        )?;
        self.state("idle")
    }

    fn state(&self, state: &str) -> io::Result<()> {
        self.say(json!({"type": "system", "subtype": "session_state_changed", "state": state}))
    }

    fn tasks(&self, tasks: &Value) -> io::Result<()> {
        self.say(json!({"type": "system", "subtype": "background_tasks_changed", "tasks": tasks}))
    }
}

/// Answers what it is told until its input ends.
fn converse() -> io::Result<()> {
    call_oneself(c"demo-agent");
    start_helpers()?;
    let mut memory = Memory::open()?;
    let out = Arc::new(Mutex::new(io::stdout()));
    let voice = Voice {
        out,
        session: memory.session.clone(),
    };
    for line in io::stdin().lock().lines() {
        let Ok(said) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        match said["type"].as_str() {
            Some("control_request") => {
                let response = json!({"subtype": "success", "request_id": said["request_id"],
                    "response": {"session_state": "idle"}});
                voice.say(json!({"type": "control_response", "response": response}))?;
            }
            Some("user") => answer(&voice, &mut memory, &text_of(&said))?,
            _ => {}
        }
    }
    Ok(())
}

fn text_of(said: &Value) -> String {
    let content = &said["message"]["content"];
    content
        .as_str()
        .or_else(|| content[0]["text"].as_str())
        .unwrap_or_default()
        .to_owned()
}

fn answer(voice: &Voice, memory: &mut Memory, text: &str) -> io::Result<()> {
    let before = memory.said.clone();
    memory.remember(text)?;
    if text.contains("background") {
        let task =
            json!({"task_id": "suite", "task_type": "local_bash", "description": "cargo test"});
        voice.tasks(&json!([task]))?;
        let later = voice.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(6));
            // Whoever listened may be gone.
            let _unheard = later.tasks(&json!([]));
        });
        return voice.turn("The test suite runs in the background; I will tell you.");
    }
    if text.contains("before") {
        return voice.turn(&format!(
            "Before, you said: {:?}",
            before.last().unwrap_or(&text.into())
        ));
    }
    voice.turn("I will remember.")
}

/// The conversation, kept in a file named after its id.
struct Memory {
    session: String,
    file: File,
    said: Vec<String>,
}

impl Memory {
    fn open() -> io::Result<Self> {
        let argv: Vec<String> = std::env::args().collect();
        let after = |flag: &str| {
            let place = argv.iter().position(|word| word == flag)?;
            argv.get(place + 1).cloned()
        };
        let session = after("--resume")
            .or_else(|| after("--session-id"))
            .unwrap_or_default();
        let folder = std::env::current_dir()?.join(".conversations");
        fs::create_dir_all(&folder)?;
        let path: PathBuf = folder.join(format!("{session}.txt"));
        let file = File::options()
            .create(true)
            .append(true)
            .read(true)
            .open(&path)?;
        let said = BufReader::new(File::open(&path)?)
            .lines()
            .collect::<io::Result<_>>()?;
        Ok(Self {
            session,
            file,
            said,
        })
    }

    fn remember(&mut self, text: &str) -> io::Result<()> {
        self.said.push(text.to_owned());
        writeln!(self.file, "{}", text.replace('\n', " "))
    }
}
