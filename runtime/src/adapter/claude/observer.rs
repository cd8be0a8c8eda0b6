//! Follows one Claude Code process.
//!
//! Fed by the backend's link. Facts come from few lines: `control_response` to our `initialize`
//! (ready), `system` (turns, tasks, compaction), `result` (end of a turn), `control_request`
//! (asks), `assistant` and `stream_event` (output, timers). All others are passed over at their
//! type. Invariant: `CannotResume` only before ready, and only for Claude's own words.

use drowse_messages::{AgentStatus, Answer, Busy, BusyKind, Conversation, TurnEnded};
use serde::{Deserialize, Serialize};

use super::super::paragraphs::Paragraphs;
use super::super::text::{ANSWER_BYTES_MAX, NOTICE_CHARS_MAX, cut, one_line};
use super::super::wire::{Notices, Part, flag, number, read, text, written};
use super::super::{Direction, Fact, Observer, Seen, kept};
use super::asks::Asks;
use super::lines::{
    Ask, AskFor, Block, Control, Delta, Event, Initialized, Message, Origin as OriginPart, Outcome,
    Prompt, PromptMessage, PromptText, Request, Response, Said, Stream, System, TurnResult,
};
use super::tasks::Tasks;
use super::timers::Timers;
use super::turn::{Ended, Origin, Turn};

mod adopt;

/// What Claude says of an id it does not know.
const NOT_FOUND: &str = "No conversation found";

/// What Claude says of a new id that is not new.
const IN_USE: &str = "is already in use";

/// What a command of the prompt line printed comes back like an echo, even from a Claude that was
/// not asked for echoes.
const PRINTED: &str = "<local-command-";

const COMPACTION: &str = "compaction";

/// See the module. What it must know to go on in another daemon is written down.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ClaudeObserver {
    ready: bool,
    /// A host has the handshake, and whatever else is written.
    listening: bool,
    /// It said that there is no such conversation.
    refused: bool,
    /// The id of the `initialize` request that is awaited.
    opening: String,
    conversation: Conversation,
    /// The session knows the conversation. A new one is reported when Claude first names it.
    named: bool,
    turn: Turn,
    asks: Asks,
    tasks: Tasks,
    timers: Timers,
    #[serde(skip)]
    notices: Notices,
    paragraphs: Paragraphs,
    compacting: bool,
    /// The message the stream is at, and the last one that came through the stream as text.
    speaking: Option<String>,
    streamed: Option<String>,
    /// Control requests written.
    requests: u64,
}

impl ClaudeObserver {
    pub(super) fn new(conversation: Option<&Conversation>, fresh_id: &str) -> Self {
        let chosen = || Conversation {
            native_id: fresh_id.to_owned(),
            ..Conversation::default()
        };
        Self {
            conversation: conversation.cloned().unwrap_or_else(chosen),
            named: conversation.is_some(),
            ..Self::default()
        }
    }

    fn request(&mut self, subtype: &str) -> (String, Vec<u8>) {
        self.requests += 1;
        let request_id = format!("drowse-{}", self.requests);
        let line = written(&Ask {
            request_id: &request_id,
            request: AskFor { subtype },
        });
        (request_id, line)
    }

    fn written(&mut self, seen: &mut Seen, kind: &str, line: &str) {
        match kind {
            "user" => {
                self.notices.reset();
                self.turn.prompted();
                seen.status(AgentStatus::TurnStarted);
            }
            "control_request" => {
                let Some(control) = self.notices.parts::<Control<'_>>(seen, line) else {
                    return;
                };
                let request: Request<'_> = read(control.request).unwrap_or_default();
                match text(request.subtype).as_deref() {
                    Some("initialize") => {
                        self.opening = text(control.request_id).unwrap_or_default().into_owned();
                    }
                    Some("interrupt") => self.turn.interrupt(),
                    Some(_) | None => {}
                }
            }
            "control_response" => {
                let Some(answer) = self.notices.parts::<Response<'_>>(seen, line) else {
                    return;
                };
                let answer: Outcome<'_> = read(answer.response).unwrap_or_default();
                if let Some(id) = text(answer.request_id) {
                    self.asks.settle(seen, &id);
                }
            }
            _ => {}
        }
    }

    fn said(&mut self, seen: &mut Seen, kind: &str, line: &str) {
        match kind {
            "stream_event" => self.stream(seen, line),
            "assistant" => self.assistant(seen, line),
            "user" if self.turn.awaits_echo() || self.timers.waiting() => self.user(seen, line),
            "system" => self.system(seen, line),
            "result" => self.result(seen, line),
            "control_request" => {
                let Some(control) = self.notices.parts::<Control<'_>>(seen, line) else {
                    return;
                };
                if let Some(id) = text(control.request_id) {
                    self.asks.asked(seen, &id, control.request);
                }
            }
            "control_cancel_request" => {
                let Some(control) = self.notices.parts::<Control<'_>>(seen, line) else {
                    return;
                };
                if let Some(id) = text(control.request_id) {
                    self.asks.settle(seen, &id);
                }
            }
            "control_response" => self.response(seen, line),
            _ => {}
        }
    }

    fn response(&mut self, seen: &mut Seen, line: &str) {
        let Some(response) = self.notices.parts::<Response<'_>>(seen, line) else {
            return;
        };
        let outcome: Outcome<'_> = read(response.response).unwrap_or_default();
        let id = text(outcome.request_id).unwrap_or_default();
        if id.is_empty() || id != self.opening {
            return;
        }
        let about: Initialized<'_> = read(outcome.response).unwrap_or_default();
        if self.ready {
            // One that refuses a second `initialize` goes by what is known.
            self.compare(seen, &outcome, &about);
        } else if text(outcome.subtype).as_deref() == Some("success") {
            self.ready = true;
            // Versions that do not name themselves here do not report tasks either.
            if about.claude_code_version.is_some() {
                self.tasks.none_yet(seen);
            }
            seen.status(AgentStatus::Ready);
        } else {
            let error = text(outcome.error).unwrap_or_default();
            if !self.cannot_resume(seen, &error) {
                self.notices
                    .tell(seen, &format!("claude refused to initialize: {error}"));
            }
        }
    }

    fn system(&mut self, seen: &mut Seen, line: &str) {
        let Some(line) = self.notices.parts::<System<'_>>(seen, line) else {
            return;
        };
        let Some(subtype) = text(line.subtype) else {
            return;
        };
        match &*subtype {
            "init" => self.started(seen, line.session_id),
            "session_state_changed" => match text(line.state).as_deref() {
                Some("running") => self.started(seen, line.session_id),
                Some("idle") => self.idle(seen),
                Some(_) | None => {}
            },
            "status" if text(line.status).as_deref() == Some("compacting") => self.compacts(seen),
            "status" if line.status.is_none() || line.compact_result.is_some() => {
                self.compacted(seen);
            }
            "compact_boundary" => self.compacted(seen),
            "background_tasks_changed" => self.tasks.level(seen, &line),
            "task_started" => self.tasks.started(seen, &line),
            "task_updated" | "task_notification" => self.tasks.changed(seen, &line),
            _ => {}
        }
    }

    fn started(&mut self, seen: &mut Seen, session_id: Part<'_>) {
        self.turn.running();
        self.follow(seen, session_id, false);
        seen.status(AgentStatus::TurnStarted);
    }

    fn idle(&mut self, seen: &mut Seen) {
        self.compacted(seen);
        // Waiting for a person is a state of its own, so at `idle` nobody is asked any more.
        self.asks.settle_all(seen);
        if let Some(ended) = self.turn.idle() {
            self.ended(seen, ended, String::new());
        }
    }

    fn compacts(&mut self, seen: &mut Seen) {
        if !std::mem::replace(&mut self.compacting, true) {
            seen.status(compaction());
        }
    }

    fn compacted(&mut self, seen: &mut Seen) {
        if std::mem::take(&mut self.compacting) {
            seen.status(AgentStatus::BusyEnded {
                key: COMPACTION.to_owned(),
            });
        }
    }

    fn result(&mut self, seen: &mut Seen, line: &str) {
        let Some(line) = self.notices.parts::<TurnResult<'_>>(seen, line) else {
            return;
        };
        let said = text(line.result).unwrap_or_default();
        let subtype = text(line.subtype).unwrap_or_default();
        let failed = flag(line.is_error) || subtype.starts_with("error");
        let error = failed.then(|| why(&line, &said, &subtype));
        if let Some(error) = &error
            && self.cannot_resume(seen, error)
        {
            return;
        }
        let origin = match read::<OriginPart<'_>>(line.origin).and_then(|origin| text(origin.kind))
        {
            None => Origin::Person,
            Some(kind) if kind == "human" => Origin::Person,
            Some(_) => Origin::Itself,
        };
        let aborted = text(line.terminal_reason).is_some_and(|why| why.starts_with("aborted"));
        self.compacted(seen);
        // A result without a turn (a command of the prompt line) writes no transcript.
        let acknowledged = origin == Origin::Person && number(line.num_turns) != Some(0);
        self.follow(seen, line.session_id, acknowledged);
        let ended = self.turn.result(origin, aborted, error);
        self.ended(seen, ended, cut(&said, ANSWER_BYTES_MAX).to_owned());
    }

    fn ended(&mut self, seen: &mut Seen, ended: Ended, text: String) {
        let Ended {
            outcome,
            answers,
            left,
        } = ended;
        self.timers.turn_ended(seen);
        self.paragraphs.turn_ended();
        seen.status(AgentStatus::TurnEnded(TurnEnded {
            outcome,
            text,
            answers,
            left,
        }));
    }

    /// Reports the conversation when its id changed, or when it can be resumed from now on.
    fn follow(&mut self, seen: &mut Seen, session_id: Part<'_>, acknowledged: bool) {
        let Some(id) = text(session_id).filter(|id| !id.is_empty()) else {
            return;
        };
        let same = id == self.conversation.native_id;
        let known = same && self.named;
        let resumable = acknowledged || (same && self.conversation.resumable);
        if known && resumable == self.conversation.resumable {
            return;
        }
        self.conversation = Conversation {
            native_id: id.into_owned(),
            resumable,
            ..Conversation::default()
        };
        self.named = true;
        seen.status(AgentStatus::Conversation(self.conversation.clone()));
    }

    fn cannot_resume(&mut self, seen: &mut Seen, error: &str) -> bool {
        let not_found = !self.ready && error.contains(NOT_FOUND);
        if not_found && !std::mem::replace(&mut self.refused, true) {
            let id = &self.conversation.native_id;
            let error = one_line(error, NOTICE_CHARS_MAX);
            let detail = format!("claude was asked for conversation {id}: {error}");
            seen.status(AgentStatus::CannotResume { detail });
        }
        not_found
    }

    fn stream(&mut self, seen: &mut Seen, line: &str) {
        let Some(line) = self.notices.parts::<Stream<'_>>(seen, line) else {
            return;
        };
        if line.parent_tool_use_id.is_some() {
            return;
        }
        let event: Event<'_> = read(line.event).unwrap_or_default();
        match text(event.kind).as_deref() {
            Some("message_start") => {
                let message: Message<'_> = read(event.message).unwrap_or_default();
                self.speaking = text(message.id).map(std::borrow::Cow::into_owned);
            }
            Some("content_block_start") => self.paragraphs.begin(),
            Some("content_block_delta") => {
                let delta: Delta<'_> = read(event.delta).unwrap_or_default();
                if text(delta.kind).as_deref() == Some("text_delta")
                    && let Some(words) = text(delta.text)
                {
                    self.streamed.clone_from(&self.speaking);
                    self.output(seen, &words);
                }
            }
            Some(_) | None => {}
        }
    }

    fn assistant(&mut self, seen: &mut Seen, line: &str) {
        let Some(line) = self.notices.parts::<Said<'_>>(seen, line) else {
            return;
        };
        let message: Message<'_> = read(line.message).unwrap_or_default();
        let streamed =
            self.streamed.is_some() && self.streamed.as_deref() == text(message.id).as_deref();
        for block in read::<Vec<Block<'_>>>(message.content).unwrap_or_default() {
            match text(block.kind).as_deref() {
                Some("tool_use") => self.timers.called(&block),
                Some("text") if line.parent_tool_use_id.is_none() && !streamed => {
                    self.paragraphs.begin();
                    self.output(seen, &text(block.text).unwrap_or_default());
                }
                Some(_) | None => {}
            }
        }
    }

    /// What Claude says on its own account is no answer to a prompt that it has yet to take in,
    /// and whoever watches would take it for one.
    fn output(&mut self, seen: &mut Seen, words: &str) {
        if !self.turn.is_before_prompt() {
            self.paragraphs.say(seen, words);
        }
    }

    fn user(&mut self, seen: &mut Seen, line: &str) {
        let Some(line) = self.notices.parts::<Said<'_>>(seen, line) else {
            return;
        };
        let message: Message<'_> = read(line.message).unwrap_or_default();
        if flag(line.is_replay) {
            let printed = text(message.content).is_some_and(|it| it.starts_with(PRINTED));
            return self.turn.echoed(!printed);
        }
        for block in read::<Vec<Block<'_>>>(message.content).unwrap_or_default() {
            self.timers
                .answered(seen, &block, line.tool_use_result, line.timestamp);
        }
    }
}

impl Observer for ClaudeObserver {
    fn open(&mut self) -> Seen {
        let (id, line) = self.request("initialize");
        self.opening = id;
        Seen::writing(line)
    }

    fn listen(&mut self) -> Seen {
        self.listening = true;
        Seen::default()
    }

    fn observe(&mut self, direction: Direction, line: &[u8]) -> Seen {
        let mut seen = Seen::default();
        if let Some((kind, line)) = self.notices.typed(&mut seen, line) {
            match direction {
                Direction::In => self.written(&mut seen, &kind, line),
                Direction::Out => self.said(&mut seen, &kind, line),
            }
        }
        seen
    }

    fn prompt(&mut self, text: &str) -> Seen {
        let content = [PromptText { text }];
        Seen::writing(written(&Prompt {
            message: PromptMessage {
                role: "user",
                content,
            },
        }))
    }

    fn interrupt(&mut self) -> Seen {
        Seen::writing(self.request("interrupt").1)
    }

    fn answer(&mut self, id: &str, answer: &Answer) -> Seen {
        self.asks.answer(id, answer)
    }

    /// With a background task Claude does not go at the end of its input alone.
    fn close(&mut self) -> Seen {
        Seen::writing(self.request("end_session").1)
    }

    fn exited(&mut self, stderr_tail: &str) -> Vec<Fact> {
        let mut seen = Seen::default();
        let line = |what| stderr_tail.lines().find(|line| line.contains(what));
        if self.ready {
            return seen.facts;
        }
        if let Some(error) = line(NOT_FOUND) {
            self.cannot_resume(&mut seen, error);
        } else if line(IN_USE).is_some_and(|line| line.contains(&self.conversation.native_id)) {
            // The first turn was cut short, yet reached Claude's disk: the next start resumes it.
            self.conversation.resumable = true;
            seen.status(AgentStatus::Conversation(self.conversation.clone()));
        }
        seen.facts
    }

    fn checkpoint(&self) -> Option<Vec<u8>> {
        (self.ready || self.listening).then(|| kept::keep(self))
    }
}

fn compaction() -> AgentStatus {
    AgentStatus::BusyStarted(Busy {
        key: COMPACTION.to_owned(),
        kind: BusyKind::Compaction,
        what: "making the conversation shorter".to_owned(),
    })
}

/// What went wrong, in Claude's words.
fn why(line: &TurnResult<'_>, said: &str, subtype: &str) -> String {
    let errors: Vec<String> = read(line.errors).unwrap_or_default();
    match (errors.is_empty(), said.is_empty()) {
        (false, _) => errors.join("; "),
        (true, false) => said.to_owned(),
        (true, true) => subtype.to_owned(),
    }
}
