//! The turn engine: what both dialects have in common.
//!
//! Fed by: `input.rs` (events) and `script.rs` (steps). Knows no protocol: a [`Wire`] words it.
//! Invariant: a user message is logged and persisted once, before its turn begins; queued messages
//! run in the order in which they were heard.

use std::collections::VecDeque;
use std::fs;
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use drowse_tests::fake::fingerprint;
use nix::sys::signal::{Signal, raise};
use serde_json::json;

use crate::children;
use crate::home::{Home, refuse_text};
use crate::input::{Event, Input};
use crate::script::{self, Odd, Step};
use crate::transcript::Transcript;
use crate::wire::{Ask, Cause, Change, End, Heard, Task, Wire};

/// Pause between two ticks of `FAKE:slow`.
const TICK_EVERY: Duration = Duration::from_millis(100);

/// Pause between two looks for the file of `FAKE:wait`.
const LOOK_EVERY: Duration = Duration::from_millis(5);

enum Item {
    Prompt(String),
    Compact(Duration),
}

enum Woken {
    Time,
    Interrupted,
    Answered(String, bool),
    Leave(u8),
}

enum Flow {
    Said(String),
    Next,
    Over(End),
    Leave(u8),
}

/// One running fake agent.
pub(crate) struct Agent<W> {
    wire: W,
    home: Home,
    transcript: Transcript,
    input: Input,
    inbox: VecDeque<Item>,
    tasks: Vec<Task>,
    /// Ended tasks whose unprompted turn is still to come.
    owed: VecDeque<Task>,
    tasks_started: usize,
    eof: bool,
    busy: bool,
    failed: bool,
    lost: Vec<String>,
}

impl<W: Wire> Agent<W> {
    pub(crate) fn new(wire: W, home: Home, transcript: Transcript) -> Self {
        let lost = transcript.lost_tasks();
        Self {
            input: Input::listen(home.number("chokes_at")),
            wire,
            home,
            transcript,
            inbox: VecDeque::new(),
            tasks: Vec::new(),
            owed: VecDeque::new(),
            tasks_started: 0,
            eof: false,
            busy: false,
            failed: false,
            lost,
        }
    }

    /// Serves until it is to leave; gives the exit status.
    pub(crate) fn run(mut self) -> ExitCode {
        let code = loop {
            if let Some(code) = self.step() {
                break code;
            }
        };
        self.leave(code)
    }

    fn step(&mut self) -> Option<u8> {
        if let Some(item) = self.inbox.pop_front() {
            return match item {
                Item::Prompt(text) => self.turn(Cause::User(text)),
                Item::Compact(duration) => self.compact_alone(duration),
            };
        }
        if let Some(task) = self.owed.pop_front() {
            return self.turn(Cause::TaskEnded(task));
        }
        let held_by_tasks = W::TASKS_OUTLIVE_EOF && !self.tasks.is_empty();
        if self.eof && !held_by_tasks {
            return Some(u8::from(self.failed));
        }
        let event = self
            .input
            .events
            .recv()
            .expect("the agent holds a sender itself");
        if let Some(Woken::Leave(code)) = self.heed(event) {
            Some(code)
        } else {
            None
        }
    }

    fn heed(&mut self, event: Event) -> Option<Woken> {
        match event {
            Event::Line(line) => self.heed_line(&line),
            Event::Eof => {
                self.home.log("eof", json!({}));
                self.eof = !self.home.flag("ignore_eof");
                (self.eof && W::EOF_ENDS_TURN).then_some(Woken::Leave(0))
            }
            Event::Terminate => {
                self.home.log("term", json!({}));
                (!self.home.flag("ignore_term")).then_some(Woken::Leave(143))
            }
            Event::TaskEnded(id) => {
                if let Some(task) = self.end_task(&id, &Change::Completed) {
                    self.owed.push_back(task);
                }
                None
            }
        }
    }

    fn heed_line(&mut self, line: &str) -> Option<Woken> {
        if self.home.flag("never_ready") {
            return None;
        }
        let lost = std::mem::take(&mut self.lost);
        if lost.is_empty() {
            return self.heed_words(line);
        }
        lost.iter().for_each(|id| self.transcript.task(id, false));
        self.wire.lost_tasks(&lost);
        let woken = self.heed_words(line);
        self.wire.lost_tasks_told(!self.inbox.is_empty());
        woken
    }

    fn heed_words(&mut self, line: &str) -> Option<Woken> {
        match self.wire.hear(line, self.busy, &self.transcript) {
            Heard::Prompt(text) => {
                self.home.log("heard", json!({ "text": text }));
                self.inbox.push_back(Item::Prompt(text));
                None
            }
            Heard::Compact(duration) => {
                self.inbox.push_back(Item::Compact(duration));
                None
            }
            Heard::StopTask(id) => {
                self.end_task(&id, &Change::Stopped);
                None
            }
            Heard::Interrupt => Some(Woken::Interrupted),
            Heard::Answer { id, allowed } => Some(Woken::Answered(id, allowed)),
            // Who is deaf to the end of stdin is deaf to a polite word too.
            Heard::Leave(0) if self.home.flag("ignore_eof") => None,
            Heard::Leave(code) => Some(Woken::Leave(code)),
            Heard::Nothing => None,
        }
    }

    /// Attends to events until `duration` has passed, or without end when it is `None`.
    fn pause(&mut self, duration: Option<Duration>) -> Woken {
        let end = duration.map(|duration| Instant::now() + duration);
        loop {
            let event = match end {
                None => self
                    .input
                    .events
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                Some(end) => self
                    .input
                    .events
                    .recv_timeout(end.saturating_duration_since(Instant::now())),
            };
            let Ok(event) = event else { return Woken::Time };
            if let Some(woken) = self.heed(event) {
                return woken;
            }
        }
    }

    fn turn(&mut self, cause: Cause) -> Option<u8> {
        let steps = match &cause {
            Cause::User(text) => {
                self.transcript.say("user", text);
                let turns = self.transcript.user_turns();
                self.home
                    .log("turn", json!({ "text": text, "user_turns": turns }));
                script::parse(text)
            }
            Cause::TaskEnded(task) => {
                self.home.log("unprompted_turn", json!({ "task": task.id }));
                vec![Step::Say(format!("task {} ended", task.id))]
            }
        };
        self.busy = true;
        self.wire.turn_started(&cause);
        let mut said = Vec::new();
        let mut end = None;
        for step in steps {
            match self.run_step(step) {
                Flow::Said(text) => said.push(text),
                Flow::Next => {}
                Flow::Over(over) => {
                    end = Some(over);
                    break;
                }
                Flow::Leave(code) => return Some(code),
            }
        }
        let end = end.unwrap_or_else(|| End::Answer(self.answer(&said)));
        self.busy = false;
        self.finish(&end);
        self.wire.out().newline_first.then_some(0)
    }

    fn finish(&mut self, end: &End) {
        if let End::Answer(text) = end {
            self.transcript.say("assistant", text);
        }
        self.failed = !matches!(end, End::Answer(_));
        let more = !self.inbox.is_empty() || !self.owed.is_empty();
        self.wire.turn_ended(end, more);
        self.home.log("turn_end", json!({ "failed": self.failed }));
    }

    fn answer(&mut self, said: &[String]) -> String {
        let said = if said.is_empty() {
            "DONE".to_owned()
        } else {
            said.join("; ")
        };
        let text = format!("{said} (user turns seen: {})", self.transcript.user_turns());
        self.wire.delta(&text);
        text
    }

    fn run_step(&mut self, step: Step) -> Flow {
        match step {
            Step::Say(text) => Flow::Said(format!("SAID {text}")),
            Step::Slow(duration) => self.tick_for(duration),
            Step::Silent(duration) => self.rest(duration),
            Step::Wait(path) => self.wait_for_file(&path),
            Step::Approve(text) => self.ask(Ask::Permission, &text),
            Step::Question(text) => self.ask(Ask::Question, &text),
            Step::Background(duration) => self.start_task(Some(duration), false),
            Step::BackgroundLost => self.start_task(None, false),
            Step::Ambient => self.start_task(None, true),
            Step::Compact(duration) => {
                self.wire.compaction_started(true);
                let flow = self.rest(duration);
                self.wire.compaction_ended(true);
                flow
            }
            Step::Fail(text) => Flow::Over(End::Failed(text)),
            Step::Exit(code) => Flow::Leave(code),
            Step::Crash => {
                // Nothing is logged: whoever is killed has no last word.
                _ = raise(Signal::SIGKILL);
                Flow::Next
            }
            Step::Spawn { role, count } => Flow::Said(format!(
                "SPAWNED {}",
                children::spawn(&role, count).join(", ")
            )),
            Step::Run(command) => Flow::Said(children::run_command(&command)),
            Step::Shell(command) => Flow::Said(children::start_shell(&command)),
            Step::Odd(odd) => {
                self.write_oddly(odd);
                Flow::Next
            }
            Step::CloseStdin => {
                self.input.close_stdin();
                Flow::Next
            }
            Step::Env(name) => Flow::Said(match std::env::var(&name) {
                Ok(value) => format!("ENV {name} set {}", fingerprint(&value)),
                Err(_) => format!("ENV {name} unset"),
            }),
            Step::Argv => {
                let argv: Vec<String> = std::env::args().collect();
                Flow::Said(format!("ARGV {}", json!(argv)))
            }
            Step::Cwd => {
                let cwd = std::env::current_dir().unwrap_or_default();
                Flow::Said(format!("CWD {}", cwd.display()))
            }
            Step::Unknown(text) => Flow::Over(End::Failed(format!("unknown directive {text:?}"))),
        }
    }

    fn write_oddly(&mut self, odd: Odd) {
        match odd {
            Odd::Line(size) => {
                let overhead = self.wire.delta_line("").len();
                let line = self
                    .wire
                    .delta_line(&"x".repeat(size.saturating_sub(overhead)));
                self.wire.out().line(&line);
            }
            Odd::Flood(mut left) => {
                let chunk = [b'x'; 65536];
                while left > 0 {
                    let n = left.min(chunk.len());
                    self.wire.out().raw(&chunk[..n]);
                    left -= n;
                }
                self.wire.out().raw(b"\n");
            }
            Odd::Bytewise(text) => {
                let line = format!("{}\n", self.wire.delta_line(&text));
                line.bytes().for_each(|byte| self.wire.out().raw(&[byte]));
            }
            Odd::Split(path, text) => {
                let line = format!("{}\n", self.wire.delta_line(&text));
                let (half, rest) = line.as_bytes().split_at(line.len() / 2);
                self.wire.out().raw(half);
                self.home.log("split", json!({}));
                // Nothing is heard meanwhile: an answer would come in the middle of the line.
                while fs::symlink_metadata(&path).is_err() {
                    std::thread::sleep(LOOK_EVERY);
                }
                self.wire.out().raw(rest);
            }
            Odd::InvalidUtf8 => self.wire.out().raw(b"{\"type\":\"bad\xff\xe4\xb8\"}\n"),
            Odd::Stderr(size) => refuse_text(&"e".repeat(size.saturating_sub(1))),
            // The newline that is due now is written here; from now on it leads.
            Odd::NoNewlineExit => self.wire.out().newline_first = true,
        }
    }

    fn rest(&mut self, duration: Duration) -> Flow {
        let end = Instant::now() + duration;
        loop {
            match self.pause(Some(end.saturating_duration_since(Instant::now()))) {
                Woken::Time => return Flow::Next,
                Woken::Interrupted => return Flow::Over(End::Interrupted),
                Woken::Leave(code) => return Flow::Leave(code),
                Woken::Answered(..) => {}
            }
        }
    }

    fn tick_for(&mut self, duration: Duration) -> Flow {
        let ticks = duration.as_millis() / TICK_EVERY.as_millis();
        for tick in 0..ticks {
            self.wire.delta(&format!("tick{tick} "));
            let flow = self.rest(TICK_EVERY);
            if !matches!(flow, Flow::Next) {
                return flow;
            }
        }
        Flow::Next
    }

    fn wait_for_file(&mut self, path: &std::path::Path) -> Flow {
        while fs::symlink_metadata(path).is_err() {
            let flow = self.rest(LOOK_EVERY);
            if !matches!(flow, Flow::Next) {
                return flow;
            }
        }
        Flow::Next
    }

    fn ask(&mut self, ask: Ask, text: &str) -> Flow {
        let wanted = self.wire.ask(ask, text);
        self.home.log("ask", json!({ "id": wanted, "text": text }));
        loop {
            match self.pause(None) {
                Woken::Answered(id, allowed) if id == wanted => {
                    self.home
                        .log("answered", json!({ "id": id, "allowed": allowed }));
                    self.wire.answered();
                    return Flow::Said(if allowed { "allowed" } else { "denied" }.to_owned());
                }
                Woken::Interrupted => {
                    self.wire.withdrawn(&wanted);
                    return Flow::Over(End::Interrupted);
                }
                Woken::Leave(code) => return Flow::Leave(code),
                Woken::Answered(..) | Woken::Time => {}
            }
        }
    }

    fn start_task(&mut self, duration: Option<Duration>, ambient: bool) -> Flow {
        self.tasks_started += 1;
        let id = format!("b{}n{}", std::process::id(), self.tasks_started);
        let task = Task {
            id: id.clone(),
            ambient,
        };
        self.tasks.push(task.clone());
        self.transcript.task(&id, true);
        self.wire.task(&task, &Change::Started, &self.tasks);
        if let Some(duration) = duration {
            let sender = self.input.sender.clone();
            let ended = id.clone();
            std::thread::spawn(move || {
                std::thread::sleep(duration);
                // The agent may have left by then.
                drop(sender.send(Event::TaskEnded(ended)));
            });
        }
        Flow::Said(format!("TASK {id}"))
    }

    fn end_task(&mut self, id: &str, change: &Change) -> Option<Task> {
        let at = self.tasks.iter().position(|task| task.id == id)?;
        let task = self.tasks.remove(at);
        self.transcript.task(id, false);
        self.wire.task(&task, change, &self.tasks);
        Some(task)
    }

    fn compact_alone(&mut self, duration: Duration) -> Option<u8> {
        self.busy = true;
        self.home.log("compaction", json!({}));
        self.wire.compaction_started(false);
        let flow = self.rest(duration);
        self.busy = false;
        match flow {
            Flow::Leave(code) => Some(code),
            Flow::Said(_) | Flow::Next | Flow::Over(_) => {
                self.wire.compaction_ended(false);
                None
            }
        }
    }

    fn leave(mut self, code: u8) -> ExitCode {
        if code == 143 {
            while let Some(task) = self.tasks.first().cloned() {
                self.end_task(&task.id, &Change::Stopped);
            }
        }
        std::thread::sleep(self.home.millis("flush_after_eof_ms"));
        self.transcript.flush();
        std::thread::sleep(self.home.millis("die_slowly_ms"));
        self.home
            .log("stop", json!({ "status": code, "eof": self.eof }));
        ExitCode::from(code)
    }
}
