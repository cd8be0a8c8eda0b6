//! Follows one Codex app server.
//!
//! Fed by the backend's link. The handshake is three steps: `initialize`, its answer, and the
//! start or resumption of a thread, whose answer makes it ready. Facts come from answers to what
//! was written (by us, or by a host that speaks the protocol itself), from `turn/…` and `item/…`
//! notifications, and from requests of the agent. All others are left at their method. Invariant:
//! `CannotResume` only before ready, for Codex's own words about a thread that has had a turn.

use std::collections::BTreeSet;

use drowse_messages::{AgentStatus, Answer, Conversation};
use serde::{Deserialize, Serialize};

use super::super::paragraphs::Paragraphs;
use super::super::rpc::{Dialect, Id, Kind, Message, Ours, Pending};
use super::super::text::{NOTICE_CHARS_MAX, one_line};
use super::super::wire::{Notices, Part, read, text};
use super::super::{Direction, Fact, Observer, Seen, kept};
use super::asks::Asks;
use super::lines::{
    About, Accepted, Hello, Opened, Params, Piece, Text, Thread, Turn as TurnPart, id,
};
use super::tasks::Tasks;
use super::threads::Threads;
use super::turn::{Turn, Words, refused};

mod adopt;
mod told;

/// What Codex says of a thread that it has no record of.
const NOT_FOUND: &str = "no rollout found";

/// What it says of a prompt during a compaction.
const NOT_STEERABLE: &str = "ActiveTurnNotSteerable";

/// What the reason for an early end begins with, on stderr.
const ERROR: &str = "Error:";

/// What a request that was written is about.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Initialize,
    /// A new thread.
    Start,
    /// A known one.
    Resume(String),
    /// A person speaks in this thread; the words are ours to repeat.
    Prompt(String, Words),
    /// How the last turn of this thread stands.
    Turns(String),
    /// Which of these commands still run.
    Terminals(BTreeSet<String>),
}

/// See the module. What it must know to go on in another daemon is written down.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CodexObserver {
    ready: bool,
    /// Drowse is the client, not a host: what the agent asks for is ours to answer.
    owns: bool,
    /// A host is.
    listens: bool,
    threads: Threads,
    requests: Pending<Request>,
    ours: Ours,
    turn: Turn,
    asks: Asks,
    tasks: Tasks,
    #[serde(skip)]
    notices: Notices,
    paragraphs: Paragraphs,
    compacting: bool,
    /// The text that comes through the stream.
    streamed: Option<String>,
}

/// Whether a line of this method changes anything: those that are written, then those of Codex.
fn is_written_wanted(method: &str) -> bool {
    matches!(
        method,
        "initialize"
            | "thread/start"
            | "thread/resume"
            | "thread/fork"
            | "thread/turns/list"
            | "thread/backgroundTerminals/list"
            | "turn/start"
            | "turn/steer"
            | "turn/interrupt"
    )
}

fn is_said_wanted(method: &str) -> bool {
    matches!(
        method,
        "item/agentMessage/delta"
            | "item/started"
            | "item/completed"
            | "turn/started"
            | "turn/completed"
            | "error"
            | "model/rerouted"
            | "serverRequest/resolved"
    ) || is_asking(method)
}

/// Requests of the agent; of those that are not known here all are wanted, to be refused.
fn is_asking(method: &str) -> bool {
    method.contains("/request")
        || matches!(
            method,
            "item/tool/call"
                | "account/chatgptAuthTokens/refresh"
                | "attestation/generate"
                | "applyPatchApproval"
                | "execCommandApproval"
        )
}

impl CodexObserver {
    pub(super) fn new(conversation: Option<&Conversation>) -> Self {
        Self {
            threads: Threads::new(conversation),
            ..Self::default()
        }
    }

    fn request(&mut self, method: &str, params: &impl Serialize) -> Vec<u8> {
        Dialect::Bare.request(&self.ours.next(), method, params)
    }

    fn about(&mut self, method: &str, about: &About<'_>) -> Vec<u8> {
        self.request(method, about)
    }

    fn turn_start(&mut self, thread: &str, text: &str) -> Vec<u8> {
        let about = About {
            thread_id: Some(thread),
            input: Some([Text { text }]),
            ..About::default()
        };
        self.about("turn/start", &about)
    }

    fn written(&mut self, seen: &mut Seen, message: &Message<'_>) {
        let method = message.method.as_deref().unwrap_or_default();
        let params: Params<'_> = read(message.params).unwrap_or_default();
        let thread = id(params.thread_id).unwrap_or_default().into_owned();
        let what = match (message.kind(), method) {
            (Kind::Answer(id), _) => {
                self.asks.settle(seen, &id);
                return;
            }
            (Kind::Request(id), "initialize") => (id, Request::Initialize),
            (Kind::Request(id), "thread/start" | "thread/fork") => (id, Request::Start),
            (Kind::Request(id), "thread/resume") => (id, Request::Resume(thread)),
            (Kind::Request(id), "turn/start") => {
                let request = self.prompted(seen, &id, thread, params.input);
                (id, request)
            }
            (Kind::Request(_), "turn/steer") => {
                if self.threads.is_main(&thread) {
                    self.turn.steered();
                }
                return;
            }
            (Kind::Request(_), "turn/interrupt") => {
                if self.threads.is_main(&thread) {
                    self.turn.interrupt();
                }
                return;
            }
            (Kind::Request(id), "thread/turns/list") if id.is_ours() => {
                (id, Request::Turns(thread))
            }
            (Kind::Request(id), "thread/backgroundTerminals/list") if id.is_ours() => {
                let commands = self.tasks.commands_of(&thread);
                (id, Request::Terminals(commands))
            }
            (Kind::Request(_) | Kind::Notification | Kind::Odd, _) => return,
        };
        self.requests.asked(what.0, what.1);
    }

    /// A prompt was written.
    fn prompted(&mut self, seen: &mut Seen, id: &Id, thread: String, input: Part<'_>) -> Request {
        self.notices.reset();
        if !self.is_open() {
            self.threads.spoken_in(seen, &thread);
        }
        if self.threads.is_main(&thread) {
            self.turn.prompted();
            seen.status(AgentStatus::TurnStarted);
        }
        let pieces = read::<Vec<Piece<'_>>>(input).filter(|_| id.is_ours());
        let first = pieces.and_then(|pieces| text(pieces.first()?.text).map(|it| it.into_owned()));
        Request::Prompt(thread, Words(first))
    }

    /// True while a turn of the session's thread runs, or a prompt was written that belongs to one.
    fn is_open(&self) -> bool {
        self.turn.is_open() || self.unanswered() > 0
    }

    /// Prompts that Codex has neither taken nor refused.
    fn unanswered(&self) -> u32 {
        let is_prompt = |request: &Request| matches!(request, Request::Prompt(..));
        let prompts = self.requests.iter().filter(|(_, it)| is_prompt(it));
        u32::try_from(prompts.count()).unwrap_or(u32::MAX)
    }

    fn said(&mut self, seen: &mut Seen, message: &Message<'_>) {
        let method = message.method.as_deref().unwrap_or_default();
        match message.kind() {
            Kind::Answer(id) => {
                if let Some(request) = self.requests.answered(&id) {
                    self.answered(seen, request, message, id.is_ours());
                }
            }
            Kind::Request(id) => {
                self.asks
                    .asked(seen, &id, (method, message.params), self.owns);
            }
            Kind::Notification => {
                let params: Params<'_> = read(message.params).unwrap_or_default();
                self.told(seen, method, &params);
            }
            Kind::Odd => {}
        }
    }

    fn answered(
        &mut self,
        seen: &mut Seen,
        request: Request,
        message: &Message<'_>,
        is_ours: bool,
    ) {
        let error = message.failure();
        match (request, error) {
            (Request::Initialize, None) => self.greeted(seen),
            (Request::Start, None) => self.opened(seen, message.result, false),
            (Request::Resume(_), None) => self.opened(seen, message.result, true),
            // What a host asked for in vain is the host's affair.
            (Request::Initialize | Request::Start | Request::Resume(_), Some(_)) if !is_ours => {}
            (Request::Resume(thread), Some(error)) => self.not_resumed(seen, &thread, &error),
            (Request::Initialize | Request::Start, Some(error)) => self.cannot_start(seen, &error),
            (Request::Prompt(thread, words), error) if self.threads.is_main(&thread) => {
                let ended = match error {
                    None => {
                        let accepted: Accepted<'_> = read(message.result).unwrap_or_default();
                        let turn: TurnPart<'_> = read(accepted.turn).unwrap_or_default();
                        id(turn.id).and_then(|id| self.turn.accepted(&id))
                    }
                    Some(error) if error.contains(NOT_STEERABLE) && self.owns => {
                        self.turn.hold(words, &error)
                    }
                    Some(error) if self.turn.is_open() => {
                        let error = one_line(&error, NOTICE_CHARS_MAX);
                        return seen.status(AgentStatus::NotTaken { error });
                    }
                    Some(error) => Some(refused(&error)),
                };
                self.end(seen, ended);
            }
            (Request::Turns(thread), None) => self.compare(seen, &thread, message.result),
            (Request::Terminals(asked), None) => {
                self.tasks.compare(&asked, message.result);
                self.tasks.tell(seen, self.turn.running());
            }
            // An older Codex does not know what it was asked, or the thread is not the session's.
            (Request::Prompt(..) | Request::Turns(_) | Request::Terminals(_), _) => {}
        }
    }

    /// The handshake goes on.
    fn greeted(&mut self, seen: &mut Seen) {
        if !self.owns || self.ready {
            return;
        }
        seen.write
            .push(Dialect::Bare.notification("initialized", &About::default()));
        let line = match self.threads.main().map(|main| main.native_id.clone()) {
            // One without a turn may be on disk all the same: its first turn was cut short.
            Some(id) => {
                let about = About {
                    thread_id: Some(&id),
                    exclude_turns: Some(true),
                    ..About::default()
                };
                self.about("thread/resume", &about)
            }
            None => self.about("thread/start", &About::default()),
        };
        seen.write.push(line);
    }

    /// A thread is there.
    fn opened(&mut self, seen: &mut Seen, result: Part<'_>, resumed: bool) {
        let opened: Opened<'_> = read(result).unwrap_or_default();
        let thread: Thread<'_> = read(opened.thread).unwrap_or_default();
        if self.threads.opened(seen, &thread, resumed) && !std::mem::replace(&mut self.ready, true)
        {
            // A process that has just started runs nothing.
            self.tasks.tell(seen, self.turn.running());
            seen.status(AgentStatus::Ready);
        }
    }

    /// Codex did not take a thread up again.
    fn not_resumed(&mut self, seen: &mut Seen, thread: &str, error: &str) {
        let main = self.threads.main().filter(|main| main.native_id == thread);
        let Some(main) = main.filter(|_| !self.ready) else {
            return;
        };
        match (error.contains(NOT_FOUND), main.resumable) {
            (true, true) => {
                let whence = main.path.as_deref().unwrap_or("its sessions folder");
                let detail =
                    format!("codex was asked for conversation {thread} ({whence}): {error}");
                let detail = one_line(&detail, NOTICE_CHARS_MAX);
                seen.status(AgentStatus::CannotResume { detail });
            }
            // Nothing was ever said in it.
            (true, false) if self.owns => {
                let line = self.about("thread/start", &About::default());
                seen.write.push(line);
            }
            (true, false) => {}
            (false, _) => self.cannot_start(seen, error),
        }
    }

    /// It does not take prompts, and that may pass: another Codex has the conversation, or a
    /// setting is wrong.
    fn cannot_start(&mut self, seen: &mut Seen, error: &str) {
        if !self.ready {
            let detail = one_line(&format!("codex said: {error}"), NOTICE_CHARS_MAX);
            let retry = true;
            seen.status(AgentStatus::CannotStart { detail, retry });
        }
    }
}

impl Observer for CodexObserver {
    fn open(&mut self) -> Seen {
        self.owns = true;
        Seen::writing(self.request("initialize", &Hello::new()))
    }

    fn listen(&mut self) -> Seen {
        self.listens = true;
        Seen::default()
    }

    fn observe(&mut self, direction: Direction, line: &[u8]) -> Seen {
        let mut seen = Seen::default();
        let is_wanted = match direction {
            Direction::In => is_written_wanted,
            Direction::Out => is_said_wanted,
        };
        if let Some(message) = self.notices.message(&mut seen, line, is_wanted) {
            match direction {
                Direction::In => self.written(&mut seen, &message),
                Direction::Out => self.said(&mut seen, &message),
            }
        }
        seen
    }

    fn prompt(&mut self, text: &str) -> Seen {
        let thread = self.threads.main().map(|main| main.native_id.clone());
        Seen::writing(self.turn_start(&thread.unwrap_or_default(), text))
    }

    fn interrupt(&mut self) -> Seen {
        let thread = self.threads.main().map(|main| main.native_id.clone());
        match (thread, self.turn.running().map(str::to_owned)) {
            (Some(thread), Some(turn)) => Seen::writing(self.turn_interrupt(&thread, &turn)),
            (Some(_), None) if self.is_open() => {
                self.turn.owe_interrupt();
                Seen::default()
            }
            (Some(_) | None, _) => Seen::default(),
        }
    }

    fn answer(&mut self, id: &str, answer: &Answer) -> Seen {
        self.asks.answer(id, answer)
    }

    /// Codex goes at the end of its input.
    fn close(&mut self) -> Seen {
        Seen::default()
    }

    /// What is wrong with its settings it says only on stderr.
    fn exited(&mut self, stderr_tail: &str) -> Vec<Fact> {
        let mut seen = Seen::default();
        let said = stderr_tail.lines().find(|line| line.starts_with(ERROR));
        if let Some(said) = said.filter(|_| !self.ready) {
            self.notices.tell(&mut seen, &format!("codex said: {said}"));
        }
        seen.facts
    }

    fn checkpoint(&self) -> Option<Vec<u8>> {
        (self.ready || self.listens).then(|| kept::keep(self))
    }
}
