//! Follows one Pi process.
//!
//! Fed by the backend's link. Facts come from `response` (ready, prompts, the conversation), the
//! `agent_…`, `compaction_…` and `auto_retry_…` events, `message_update` and `message_end` (what
//! the agent says), and `extension_ui_request`. All others are passed over at their type.
//! Invariant: `CannotResume` only before ready, when Pi opened another, empty conversation than
//! the one it was started for, or said that there is none.

use drowse_messages::{AgentStatus, Answer, Busy, BusyKind, Conversation, TurnEnded};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::paragraphs::Paragraphs;
use super::super::text::{ANSWER_BYTES_MAX, NOTICE_CHARS_MAX, TITLE_CHARS_MAX, cut, one_line};
use super::super::wire::{Notices, Part, flag, number, read, text, written};
use super::super::{Direction, Fact, Observer, Seen, kept};
use super::asks::Asks;
use super::lines::{
    Accepted, Command, Delta, Message, Order, Queue, Response, Run, Said, State, Ui, What,
};
use super::tasks::Tasks;
use super::turn::Turn;

/// What Pi says of a session it does not know, on stderr.
const NOT_FOUND: &str = "No session found";

const COMPACTION: &str = "compaction";

/// 16: commands run one by one; what is not counted is not shown as under way.
const COMMANDS_MAX: usize = 16;

mod adopt;

/// See the module. What it must know to go on in another daemon is written down.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PiObserver {
    ready: bool,
    /// A host writes what is written, but for questions about the state.
    listening: bool,
    conversation: Option<Conversation>,
    turn: Turn,
    asks: Asks,
    tasks: Tasks,
    #[serde(skip)]
    notices: Notices,
    paragraphs: Paragraphs,
    compacting: bool,
    /// Ids of `bash` commands under way.
    commands: Vec<String>,
    /// Commands written.
    orders: u64,
    /// Pi was adopted, and must say this often that it rests before that is believed.
    #[serde(skip)]
    rests_wanted: u8,
}

impl PiObserver {
    pub(super) fn new(conversation: Option<&Conversation>) -> Self {
        Self {
            conversation: conversation.cloned(),
            ..Self::default()
        }
    }

    fn order(&mut self, what: What<'_>) -> Vec<u8> {
        self.orders += 1;
        written(&Order {
            id: &format!("drowse-{}", self.orders),
            what,
        })
    }

    fn ask_state(&mut self, seen: &mut Seen) {
        let line = self.order(What::GetState);
        seen.write.push(line);
    }

    fn written(&mut self, seen: &mut Seen, kind: &str, line: &str) {
        if kind == "abort" {
            return self.turn.interrupt();
        }
        if !matches!(
            kind,
            "prompt" | "steer" | "follow_up" | "bash" | "extension_ui_response"
        ) {
            return;
        }
        let Some(command) = self.notices.parts::<Command<'_>>(seen, line) else {
            return;
        };
        let id = text(command.id).unwrap_or_default();
        match kind {
            "extension_ui_response" => self.asks.settle(seen, &id),
            "bash" if self.commands.len() < COMMANDS_MAX => {
                self.commands.push(id.clone().into_owned());
                seen.status(busy(&id, &text(command.command).unwrap_or_default()));
            }
            "bash" => {}
            _ => {
                self.notices.reset();
                self.turn.prompted(&id);
                seen.status(AgentStatus::TurnStarted);
            }
        }
    }

    fn said(&mut self, seen: &mut Seen, kind: &str, line: &str) {
        match kind {
            "message_update" => self.message_update(seen, line),
            "message_end" => self.message_end(seen, line),
            "response" => self.response(seen, line),
            "queue_update" => self.queue(seen, line),
            "extension_ui_request" => self.ui(seen, line),
            "agent_start" => {
                self.turn.started();
                seen.status(AgentStatus::TurnStarted);
            }
            "turn_end" => self.asks.turn_ended(seen),
            "agent_end" | "agent_settled" | "compaction_start" | "compaction_end"
            | "auto_retry_start" | "auto_retry_end" | "extension_error" => {
                if let Some(run) = self.notices.parts::<Run<'_>>(seen, line) {
                    self.run(seen, kind, &run);
                }
            }
            _ => {}
        }
    }

    fn run(&mut self, seen: &mut Seen, kind: &str, run: &Run<'_>) {
        let ended = match kind {
            "agent_end" => {
                self.asks.turn_ended(seen);
                let ended = self.turn.agent_end(run.will_retry.is_some());
                if self.turn.holds_an_end() {
                    self.ask_state(seen);
                }
                ended
            }
            "agent_settled" => {
                self.asks.turn_ended(seen);
                Some(self.turn.settled(flag(run.aborted)))
            }
            "auto_retry_start" => {
                self.turn.retrying();
                None
            }
            "auto_retry_end" => self.turn.retried(flag(run.success)),
            "compaction_start" => {
                self.compaction_started(seen, run.reason);
                None
            }
            "compaction_end" => {
                self.compaction_ended(seen);
                if flag(run.will_retry) {
                    None
                } else {
                    self.turn.gave_up()
                }
            }
            _ => {
                let error = text(run.error).unwrap_or_default();
                self.notices
                    .tell(seen, &format!("an extension of pi failed: {error}"));
                None
            }
        };
        self.end(seen, ended);
    }

    fn end(&mut self, seen: &mut Seen, ended: Option<TurnEnded>) {
        if let Some(ended) = ended {
            self.paragraphs.turn_ended();
            let answers = ended.answers;
            seen.status(AgentStatus::TurnEnded(ended));
            if let Some(ended) = self.turn.kept_back().filter(|_| answers) {
                seen.status(AgentStatus::TurnEnded(ended));
            }
        }
    }

    fn queue(&mut self, seen: &mut Seen, line: &str) {
        if let Some(queue) = self.notices.parts::<Queue<'_>>(seen, line) {
            let prompts = |part| read::<Vec<&RawValue>>(part).map_or(0, |all| all.len());
            self.turn
                .queued(prompts(queue.steering) + prompts(queue.follow_up));
        }
    }

    fn compaction_started(&mut self, seen: &mut Seen, reason: Part<'_>) {
        if !std::mem::replace(&mut self.compacting, true) {
            seen.status(compaction(&text(reason).unwrap_or_default()));
        }
    }

    fn compaction_ended(&mut self, seen: &mut Seen) {
        if std::mem::take(&mut self.compacting) {
            seen.status(AgentStatus::BusyEnded {
                key: COMPACTION.to_owned(),
            });
        }
    }

    fn response(&mut self, seen: &mut Seen, line: &str) {
        let Some(response) = self.notices.parts::<Response<'_>>(seen, line) else {
            return;
        };
        let id = text(response.id).unwrap_or_default();
        let error = text(response.error).unwrap_or_default();
        match (text(response.command).as_deref(), flag(response.success)) {
            (Some("get_state"), true) => {
                self.state(seen, &read(response.data).unwrap_or_default());
            }
            (Some("get_state"), false) if !self.ready => {
                self.notices
                    .tell(seen, &format!("pi does not tell its state: {error}"));
            }
            (Some("prompt" | "steer" | "follow_up"), true) => {
                let data: Accepted<'_> = read(response.data).unwrap_or_default();
                let how = text(data.disposition);
                let ours = self.turn.accepted(&id, how.is_some());
                // An older Pi says the same of a prompt that starts no run at all.
                if ours && !self.turn.is_running() && how.as_deref() != Some("started") {
                    self.ask_state(seen);
                }
            }
            (Some("prompt" | "steer" | "follow_up"), false) => {
                if let Some(ended) = self.turn.refused(&id, &error) {
                    if self.turn.is_open() {
                        let error = one_line(&error, NOTICE_CHARS_MAX);
                        seen.status(AgentStatus::NotTaken { error });
                    } else {
                        seen.status(AgentStatus::TurnEnded(ended));
                    }
                }
            }
            (Some("bash"), _) => {
                if let Some(at) = self.commands.iter().position(|known| *known == id) {
                    self.commands.swap_remove(at);
                    seen.status(AgentStatus::BusyEnded {
                        key: command_key(&id),
                    });
                }
            }
            (Some("compact"), _) => self.compaction_ended(seen),
            // The host has chosen another conversation.
            (Some("new_session" | "switch_session" | "fork" | "clone"), true) => {
                self.ask_state(seen);
            }
            (Some("parse"), false) => self.notices.tell(seen, &format!("pi: {error}")),
            (Some(_) | None, _) => {}
        }
    }

    fn state(&mut self, seen: &mut Seen, state: &State<'_>) {
        let Some(id) = text(state.session_id) else {
            return;
        };
        let messages = number(state.message_count);
        if !self.ready && !self.arrived(seen, &id, messages) {
            return;
        }
        let path = text(state.session_file).map(std::borrow::Cow::into_owned);
        let same = self
            .conversation
            .as_ref()
            .filter(|known| known.native_id == id);
        // A conversation without a file cannot be found again.
        let resumable = path.is_some()
            && (same.is_some_and(|known| known.resumable) || (messages > Some(0) && !self.ready));
        let now = Conversation {
            native_id: id.into_owned(),
            path,
            resumable,
            ..Conversation::default()
        };
        if self.conversation.as_ref() != Some(&now) {
            self.conversation = Some(now.clone());
            seen.status(AgentStatus::Conversation(now));
        }
        let streaming = flag(state.is_streaming);
        if !std::mem::replace(&mut self.ready, true) {
            seen.status(AgentStatus::Ready);
        }
        if streaming && !self.turn.is_running() {
            self.turn.started();
            seen.status(AgentStatus::TurnStarted);
        }
        let resting = !streaming
            && !flag(state.is_compacting)
            && number(state.pending_count).unwrap_or(0) == 0;
        if self.rests_wanted > 0 {
            if self.is_sure(seen, resting) {
                let ended = self.turn.rests().or_else(|| self.turn.lost());
                self.end(seen, ended);
            }
        } else if resting {
            let ended = self.turn.rests();
            self.end(seen, ended);
        }
    }

    /// Whether the conversation that Pi opened may be used. For a file that is gone it opens an
    /// empty one in silence.
    fn arrived(&mut self, seen: &mut Seen, id: &str, messages: Option<u64>) -> bool {
        let wanted = self.conversation.as_ref().filter(|known| known.resumable);
        let Some(lost) = wanted.filter(|_| messages == Some(0)) else {
            return true;
        };
        let whence = lost.path.as_deref().unwrap_or("its session folder");
        let lost = &lost.native_id;
        let detail = format!("pi was asked for conversation {lost} ({whence}), opened {id}: empty");
        let detail = one_line(&detail, NOTICE_CHARS_MAX);
        seen.status(AgentStatus::CannotResume { detail });
        false
    }

    /// Pi has written the conversation down.
    fn on_disk(&mut self, seen: &mut Seen) {
        if let Some(known) = &mut self.conversation
            && known.path.is_some()
            && !std::mem::replace(&mut known.resumable, true)
        {
            seen.status(AgentStatus::Conversation(known.clone()));
        }
    }

    fn message_update(&mut self, seen: &mut Seen, line: &str) {
        let Some(said) = self.notices.parts::<Said<'_>>(seen, line) else {
            return;
        };
        // Older ones write it down with the first whole answer.
        if self.turn.settles() {
            self.on_disk(seen);
        }
        let delta: Delta<'_> = read(said.event).unwrap_or_default();
        match text(delta.kind).as_deref() {
            Some("text_start") => self.paragraphs.begin(),
            Some("text_delta") => {
                let words = text(delta.delta).unwrap_or_default();
                self.paragraphs.say(seen, &words);
            }
            Some(_) | None => {}
        }
    }

    fn message_end(&mut self, seen: &mut Seen, line: &str) {
        let Some(said) = self.notices.parts::<Said<'_>>(seen, line) else {
            return;
        };
        let message: Message<'_> = read(said.message).unwrap_or_default();
        if text(message.role).as_deref() != Some("assistant") {
            return;
        }
        let mut words = String::new();
        for block in read::<Vec<Delta<'_>>>(message.content).unwrap_or_default() {
            if text(block.kind).as_deref() == Some("text") {
                let room = ANSWER_BYTES_MAX - words.len();
                words.push_str(cut(&text(block.text).unwrap_or_default(), room));
            }
        }
        let stop_reason = text(message.stop_reason).unwrap_or_default();
        let error = text(message.error_message).unwrap_or_default();
        self.turn.said(words, &stop_reason, &error);
        self.on_disk(seen);
    }

    fn ui(&mut self, seen: &mut Seen, line: &str) {
        let Some(ui) = self.notices.parts::<Ui<'_>>(seen, line) else {
            return;
        };
        match text(ui.method).as_deref() {
            Some("confirm" | "select" | "input" | "editor") => {
                self.asks.asked(seen, &ui, line, self.turn.is_running());
            }
            Some("setStatus") => self.tasks.status(seen, &ui),
            Some("notify") => self
                .notices
                .tell(seen, &text(ui.message).unwrap_or_default()),
            Some(_) | None => {}
        }
    }
}

impl Observer for PiObserver {
    fn open(&mut self) -> Seen {
        Seen::writing(self.order(What::GetState))
    }

    /// Only its state says where the conversation is; the answer is kept from the host.
    fn listen(&mut self) -> Seen {
        self.listening = true;
        Seen::writing(self.order(What::GetState))
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
        let what = What::Prompt {
            message: text,
            streaming_behavior: "steer",
        };
        Seen::writing(self.order(what))
    }

    fn interrupt(&mut self) -> Seen {
        Seen::writing(self.order(What::Abort))
    }

    fn answer(&mut self, id: &str, answer: &Answer) -> Seen {
        self.asks.answer(id, answer)
    }

    /// Pi goes at the end of its input.
    fn close(&mut self) -> Seen {
        Seen::default()
    }

    fn exited(&mut self, stderr_tail: &str) -> Vec<Fact> {
        let said = stderr_tail.lines().find(|line| line.contains(NOT_FOUND));
        match said {
            Some(said) if !self.ready => {
                let detail = one_line(&format!("pi said: {said}"), NOTICE_CHARS_MAX);
                vec![Fact::Status(AgentStatus::CannotResume { detail })]
            }
            Some(_) | None => Vec::new(),
        }
    }

    fn checkpoint(&self) -> Option<Vec<u8>> {
        (self.ready || self.listening).then(|| kept::keep(self))
    }
}

fn busy(id: &str, command: &str) -> AgentStatus {
    AgentStatus::BusyStarted(Busy {
        key: command_key(id),
        kind: BusyKind::Command,
        what: one_line(command, TITLE_CHARS_MAX),
    })
}

fn compaction(reason: &str) -> AgentStatus {
    let what = format!("making the conversation shorter ({reason})");
    AgentStatus::BusyStarted(Busy {
        key: COMPACTION.to_owned(),
        kind: BusyKind::Compaction,
        what: one_line(&what, TITLE_CHARS_MAX),
    })
}

fn command_key(id: &str) -> String {
    format!("bash:{}", one_line(id, TITLE_CHARS_MAX))
}
