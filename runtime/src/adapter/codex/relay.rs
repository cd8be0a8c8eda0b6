//! Stands between a host and the Codex app servers it takes for one.
//!
//! Fed by the backend's link with whole lines. It remembers the host's `initialize` and every
//! thread that is open, with the settings the host chose for it; the next process is greeted the
//! same way and takes all of them up again, and what it says of that is kept from the host. Codex
//! writes model, approvals and sandbox down with the thread; what it does not write down is said
//! again. Invariants: until a process was released once, every line passes as it came; and an
//! answer of the host's reaches the request it was given for, or none.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::rpc::{Dialect, Id, Kind, Message, Ours, message, spliced, with_id};
use super::super::wire::{Part, read};
use super::super::{Pass, Relay};
use super::lines::{Opened, Params, Thread, id};

mod memory;

use memory::{Known, Memory};

/// What the ids of our own requests are told apart by from those of an observer.
const WHO: &str = "again";

/// Requests of the agent are numbered from 0 by every process: a host sees this in front of the
/// number of the process and the agent's own id.
const ASKS: &str = "drowse-asks-";

/// What the host asked for and has no answer to, if it changes what is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Asked {
    /// A thread, with its parameters.
    Open(Known),
    /// This thread is to be let go.
    LetGo(String),
}

/// A step of greeting the next process.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Initialize,
    Resume(String),
    /// A thread in which nothing was said is started anew.
    Start(String),
    /// Whatever comes of it.
    Settings,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CodexRelay {
    memory: Memory,
    /// Steps that are not answered; open when there are none.
    steps: BTreeMap<Id, Step>,
    ours: Ours,
    /// No turn was run since the process was greeted: what it says of itself was not asked for.
    settling: bool,
    /// Threads that were taken up again, and since then neither used nor changed.
    quiet: BTreeSet<String>,
    /// Threads whose servers start because they were taken up again.
    serving: BTreeSet<String>,
}

/// Whether a line changes what is remembered, or may have to be changed itself.
fn is_wanted(method: &str) -> bool {
    matches!(
        method,
        "initialize"
            | "initialized"
            | "thread/start"
            | "thread/resume"
            | "thread/fork"
            | "thread/settings/update"
            | "thread/settings/updated"
            | "config/mcpServer/reload"
            | "thread/unsubscribe"
            | "thread/closed"
            | "thread/archived"
            | "thread/deleted"
            | "turn/start"
            | "turn/started"
            | "turn/completed"
            | "serverRequest/resolved"
    ) || is_echo(method)
        || method.contains("/request")
        || matches!(
            method,
            "item/tool/call" | "account/chatgptAuthTokens/refresh" | "attestation/generate"
        )
}

/// What a process says of its own accord once it is greeted, or a thread once it is taken up again.
fn is_echo(method: &str) -> bool {
    matches!(
        method,
        "thread/started"
            | "thread/tokenUsage/updated"
            | "thread/goal/cleared"
            | "remoteControl/status/changed"
            | "deprecationNotice"
            | "mcpServer/startupStatus/updated"
    )
}

impl CodexRelay {
    /// `memory` is what the relay of the former process left. One that cannot be read is no memory.
    pub(super) fn new(memory: Option<&[u8]>) -> Self {
        let memory = memory.and_then(|bytes| serde_json::from_slice(bytes).ok());
        Self {
            memory: memory.unwrap_or_default(),
            ..Self::default()
        }
    }

    fn is_first(&self) -> bool {
        self.memory.generation == 0
    }

    /// A line of the host's that matters, as the agent is to see it.
    fn heard(&mut self, line: &str, message: &Message<'_>) -> Pass {
        let params: Params<'_> = read(message.params).unwrap_or_default();
        let thread = id(params.thread_id).unwrap_or_default();
        match (
            message.kind(),
            message.method.as_deref().unwrap_or_default(),
        ) {
            (Kind::Answer(id), _) => return self.answered_by_host(line, message, &id),
            (Kind::Request(_), "initialize") => self.memory.greeted(message.params),
            (Kind::Notification, "initialized") => self.memory.confirmed = true,
            (Kind::Request(id), "thread/start" | "thread/fork" | "thread/resume") => {
                let known = Known::new(message.params, message.method.as_deref());
                self.memory.asks(id, Asked::Open(known));
            }
            (Kind::Request(id), "thread/unsubscribe") => {
                let thread = thread.into_owned();
                self.memory.asks(id, Asked::LetGo(thread));
            }
            (Kind::Request(_), "turn/start") => self.memory.changed(&thread, message.params),
            (Kind::Request(_), "thread/settings/update") => {
                self.quiet.remove(&*thread);
                self.memory.changed(&thread, message.params);
            }
            (Kind::Request(_), "config/mcpServer/reload") => self.serving.clear(),
            (_, _) => {}
        }
        Pass::AsIs
    }

    /// The host answers a request of the agent's: this process's, or one that is gone.
    fn answered_by_host(&self, line: &str, message: &Message<'_>, id: &Id) -> Pass {
        if self.is_first() {
            return Pass::AsIs;
        }
        let asked = match id {
            Id::Text(text) => text.strip_prefix(ASKS),
            Id::Number(_) => None,
        };
        let own = asked.and_then(|asked| {
            let (process, own) = asked.split_once('-')?;
            (process.parse() == Ok(self.memory.generation)).then_some(own)
        });
        match (own, message.id) {
            (Some(own), Some(part)) => Pass::Instead(ended(spliced(line, part, own.as_bytes()))),
            _ => Pass::Swallowed,
        }
    }

    /// A line of the agent's that matters, as the host is to see it.
    fn said(&mut self, line: &str, message: &Message<'_>) -> Pass {
        let method = message.method.as_deref().unwrap_or_default();
        let params: Params<'_> = read(message.params).unwrap_or_default();
        match message.kind() {
            Kind::Answer(id) if id.is_ours() => match self.steps.remove(&id) {
                Some(step) => self.stepped(step, message),
                None => Pass::Swallowed,
            },
            Kind::Answer(id) => {
                if let Some(asked) = self.memory.asked.answered(&id)
                    && message.failure().is_none()
                {
                    self.granted(asked, message.result);
                }
                Pass::AsIs
            }
            Kind::Request(_) if self.is_first() => Pass::AsIs,
            Kind::Request(_) => match message.id {
                Some(id) => Pass::Instead(ended(with_id(line, id, &self.ask_id(id)))),
                None => Pass::AsIs,
            },
            Kind::Notification => self.notified(line, method, message.params, &params),
            Kind::Odd => Pass::AsIs,
        }
    }

    fn notified(&mut self, line: &str, method: &str, whole: Part<'_>, params: &Params<'_>) -> Pass {
        let thread = id(params.thread_id).unwrap_or_default();
        match method {
            "turn/started" => {
                self.settling = false;
                self.quiet.remove(&*thread);
            }
            "turn/completed" => self.memory.spoken_in(&thread),
            "thread/settings/updated" => self.memory.updated(&thread, whole),
            "thread/closed" | "thread/archived" | "thread/deleted" => self.memory.forget(&thread),
            "serverRequest/resolved" if !self.is_first() => {
                if let Some(id) = params.request_id {
                    return Pass::Instead(ended(with_id(line, id, &self.ask_id(id))));
                }
            }
            _ => {}
        }
        if self.is_first() {
            return Pass::AsIs;
        }
        // Servers of a thread get ready whenever they do; only trouble is news.
        let is_unasked = match method {
            "mcpServer/startupStatus/updated" => {
                self.serving.contains(&*thread) && !line.contains("\"failed\"")
            }
            "thread/settings/updated" => self.quiet.contains(&*thread),
            _ if thread.is_empty() => self.settling && is_echo(method),
            _ => self.quiet.contains(&*thread) && is_echo(method),
        };
        if is_unasked || !self.steps.is_empty() {
            Pass::Swallowed
        } else {
            Pass::AsIs
        }
    }

    /// What a host is told as the id of a request of this process.
    fn ask_id(&self, own: &RawValue) -> Id {
        Id::Text(format!("{ASKS}{}-{}", self.memory.generation, own.get()))
    }

    /// The host got what it asked for.
    fn granted(&mut self, asked: Asked, result: Part<'_>) {
        match asked {
            Asked::LetGo(thread) => self.memory.forget(&thread),
            Asked::Open(known) => {
                let opened: Opened<'_> = read(result).unwrap_or_default();
                let thread: Thread<'_> = read(opened.thread).unwrap_or_default();
                self.memory.opened(&thread, known);
            }
        }
    }

    /// The next process has answered a step.
    fn stepped(&mut self, step: Step, message: &Message<'_>) -> Pass {
        let failed = message.failure().is_some();
        let next = match step {
            Step::Initialize => self.greeted(),
            Step::Resume(thread) if failed => self.start(&thread),
            Step::Resume(thread) => self.settings(&thread),
            Step::Start(thread) => {
                let opened: Opened<'_> = read(message.result).unwrap_or_default();
                let opened: Thread<'_> = read(opened.thread).unwrap_or_default();
                if let Some(now) = id(opened.id) {
                    self.memory.renamed(&thread, &now);
                }
                self.settings(&thread)
            }
            Step::Settings => Vec::new(),
        };
        if next.is_empty() {
            Pass::Swallowed
        } else {
            Pass::Answered(next)
        }
    }

    fn request(&mut self, step: Step, method: &str, params: &impl Serialize) -> Vec<u8> {
        let id = self.ours.next_of(WHO);
        let line = Dialect::Bare.request(&id, method, params);
        self.steps.insert(id, step);
        line
    }

    /// The process knows who speaks to it: it is given the threads.
    fn greeted(&mut self) -> Vec<u8> {
        let mut lines = Vec::new();
        if self.memory.confirmed {
            let nothing = BTreeMap::<&str, ()>::new();
            lines.extend(Dialect::Bare.notification("initialized", &nothing));
        }
        let threads: Vec<String> = self.memory.threads.keys().cloned().collect();
        self.quiet.extend(threads.iter().cloned());
        self.serving.extend(threads.iter().cloned());
        for thread in threads {
            let Some(params) = self.memory.to_resume(&thread) else {
                continue;
            };
            lines.extend(self.request(Step::Resume(thread), "thread/resume", &params));
        }
        lines
    }

    /// A thread is not on disk. If nothing was said in it, another is as good; else the observer
    /// sees to it that nobody speaks in a new one by mistake.
    fn start(&mut self, thread: &str) -> Vec<u8> {
        let params = self.memory.to_start(thread).cloned();
        match params {
            Some(params) => self.request(Step::Start(thread.to_owned()), "thread/start", &params),
            None => {
                self.steps
                    .insert(self.ours.next_of(WHO), Step::Resume(thread.to_owned()));
                Vec::new()
            }
        }
    }

    fn settings(&mut self, thread: &str) -> Vec<u8> {
        match self.memory.to_set(thread) {
            Some(params) => self.request(Step::Settings, "thread/settings/update", &params),
            None => Vec::new(),
        }
    }
}

impl Relay for CodexRelay {
    fn reopen(&mut self) -> Vec<Vec<u8>> {
        self.memory.generation += 1;
        // The requests of the former process are answered by nobody.
        self.memory.asked.take();
        self.settling = true;
        match self.memory.initialize.clone() {
            Some(params) => vec![self.request(Step::Initialize, "initialize", &params)],
            None => Vec::new(),
        }
    }

    fn is_open(&self) -> bool {
        self.steps.is_empty()
    }

    fn from_host(&mut self, line: &[u8]) -> Pass {
        let Ok(line) = std::str::from_utf8(line) else {
            return Pass::AsIs;
        };
        // What is remembered goes by the host's names; the agent gets its own.
        let pass = match message(line, is_wanted) {
            Ok(Some(message)) => self.heard(line, &message),
            Ok(None) | Err(_) => Pass::AsIs,
        };
        self.memory
            .names
            .translated(line, pass, |name| (name.host.as_str(), name.agent.as_str()))
    }

    fn from_agent(&mut self, line: &[u8]) -> Pass {
        let Ok(line) = std::str::from_utf8(line) else {
            return Pass::AsIs;
        };
        let renamed = self
            .memory
            .names
            .replaced(line, |name| (name.agent.as_str(), name.host.as_str()));
        let seen = renamed.as_deref().unwrap_or(line);
        let pass = match message(seen, is_wanted) {
            Ok(Some(message)) => self.said(seen, &message),
            // While it is being greeted, nothing it says was asked for.
            Ok(None) if !self.steps.is_empty() => Pass::Swallowed,
            Ok(None) | Err(_) => Pass::AsIs,
        };
        match (pass, renamed) {
            (Pass::AsIs, Some(renamed)) => Pass::Instead(ended(renamed.into_bytes())),
            (pass, _) => pass,
        }
    }

    fn memory(&self) -> Vec<u8> {
        serde_json::to_vec(&self.memory).expect("text and numbers always become JSON")
    }
}

/// A line with its end.
fn ended(mut line: Vec<u8>) -> Vec<u8> {
    line.push(b'\n');
    line
}
