//! Follows one process of an agent.
//!
//! Fed by the backend's link. Facts come from answers to requests of either side (`initialize` and
//! what takes a conversation up in `handshake.rs`, `session/prompt` ends a turn), from
//! `session/update`, and from `session/request_permission`. It goes by what is written to the
//! agent, whoever wrote it, so a host's own requests are understood like those of Drowse.
//! Invariant: every request of the agent's is refused or asked of a person; none is left alone.

use std::collections::BTreeMap;

use drowse_messages::{AgentStatus, Answer, Conversation, TurnOutcome};
use serde::{Deserialize, Serialize};

use super::super::paragraphs::Paragraphs;
use super::super::rpc::{Dialect, Id, Kind, METHOD_NOT_FOUND, Message, Ours, Pending};
use super::super::text::{NOTICE_CHARS_MAX, one_line};
use super::super::wire::{Notices, read, text};
use super::super::{Direction, Fact, Observer, Seen, kept};
use super::asks::Asks;
use super::handshake::{Can, Handshake};
use super::lines::{
    Cancelled, CodexMeta, Content, Ended, Meta, Of, OfSession, Prompt, Text, ThreadStatus, Update,
};
use super::settings::{self, Setting, Settings};
use super::turn::{Turn, failed, outcome};

mod adopt;

/// 512 bytes: ids of conversations are UUIDs or shorter.
pub(super) const ID_BYTES_MAX: usize = 512;

/// 64 conversations in one process; of more, the first by id are not looked at.
const OPEN_MAX: usize = 64;

/// A request to the agent that was written and not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    Initialize,
    New,
    Load(String),
    Resume(String),
    List,
    Prompt(String),
    Set(Setting),
}

/// See the module. What it must know to go on in another daemon is written down.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AcpObserver {
    pub(super) cwd: String,
    /// A host speaks with the agent.
    pub(super) listens: bool,
    pub(super) handshake: Handshake,
    /// The agent's name for itself, and the ways to log in that it knows.
    pub(super) agent: String,
    pub(super) logins: String,
    pub(super) can: Can,
    pub(super) conversation: Option<Conversation>,
    /// What the agent has open, by id; true once a turn of it was acknowledged. A host may have
    /// several conversations in one process, and the process is given up for all of them at once.
    open: BTreeMap<String, bool>,
    pub(super) settings: Settings,
    calls: Pending<Call>,
    pub(super) ours: Ours,
    turn: Turn,
    asks: Asks,
    paragraphs: Paragraphs,
    #[serde(skip)]
    pub(super) notices: Notices,
}

impl AcpObserver {
    pub(super) fn new(conversation: Option<&Conversation>, cwd: &str) -> Self {
        let set = conversation.map(|known| known.settings.clone());
        let resumable = conversation.filter(|known| known.resumable);
        Self {
            cwd: cwd.to_owned(),
            conversation: conversation.cloned(),
            open: resumable
                .map(|known| (known.native_id.clone(), true))
                .into_iter()
                .collect(),
            settings: Settings::remembered(set.unwrap_or_default()),
            ..Self::default()
        }
    }

    /// A message to the agent.
    fn written(&mut self, seen: &mut Seen, message: &Message<'_>) {
        let (method, id) = match (message.kind(), message.method.as_deref()) {
            (Kind::Answer(id), _) => return self.asks.settle(seen, &id),
            (Kind::Request(id), Some(method)) => (method, id),
            (Kind::Request(_) | Kind::Notification | Kind::Odd, _) => return,
        };
        let params: OfSession<'_> = read(message.params).unwrap_or_default();
        let session = || {
            let id = text(params.session_id).filter(|id| id.len() <= ID_BYTES_MAX);
            id.unwrap_or_default().into_owned()
        };
        let call = match method {
            "initialize" => Call::Initialize,
            "session/new" | "session/fork" => Call::New,
            "session/close" | "session/delete" if !id.is_ours() => {
                self.open.remove(&session());
                return self.refresh(seen);
            }
            "session/load" => {
                self.handshake.replays = true;
                // Also for a process that does not live to answer.
                self.is_young(seen);
                Call::Load(session())
            }
            "session/resume" => Call::Resume(session()),
            "session/list" => Call::List,
            "session/prompt" => {
                self.handshake.replays = false;
                self.notices.reset();
                self.turn.begin();
                seen.status(AgentStatus::TurnStarted);
                Call::Prompt(session())
            }
            method => match settings::requested(method, &params) {
                Some(setting) => Call::Set(setting),
                None => return,
            },
        };
        self.calls.asked(id, call);
    }

    /// A message of the agent's.
    fn said(&mut self, seen: &mut Seen, message: &Message<'_>) {
        match (message.kind(), message.method.as_deref()) {
            (Kind::Answer(id), _) => self.answered(seen, &id, message),
            (Kind::Request(id), Some("session/request_permission")) => {
                self.turn.interrupt_text();
                self.asks.asked(seen, id, message.params);
            }
            (Kind::Request(id), method) => {
                let method = one_line(method.unwrap_or_default(), NOTICE_CHARS_MAX);
                let no = format!("method not found: {method}");
                let line = Dialect::Tagged.refusal(&id, METHOD_NOT_FOUND, &no);
                seen.write.push(line);
            }
            (Kind::Notification, Some("session/update")) => {
                let params: OfSession<'_> = read(message.params).unwrap_or_default();
                let update: Update<'_> = read(params.update).unwrap_or_default();
                self.update(seen, &update);
            }
            (Kind::Notification, Some("$/cancel_request")) => {
                let cancelled: Cancelled<'_> = read(message.params).unwrap_or_default();
                if let Some(id) = read::<Id>(cancelled.id) {
                    self.asks.settle(seen, &id);
                }
            }
            (Kind::Notification | Kind::Odd, _) => {}
        }
    }

    fn answered(&mut self, seen: &mut Seen, id: &Id, answer: &Message<'_>) {
        let Some(call) = self.calls.answered(id) else {
            return;
        };
        match call {
            Call::Initialize => self.initialized(seen, id, answer),
            Call::New => self.began(seen, id, answer),
            Call::Load(_) | Call::Resume(_) => self.took_up(seen, id, &call, answer),
            Call::List => self.listed(seen, id, answer),
            Call::Prompt(session) => self.prompt_answered(seen, &session, answer),
            Call::Set(setting) => self.was_set(seen, id, setting, answer),
        }
    }

    fn prompt_answered(&mut self, seen: &mut Seen, session: &str, answer: &Message<'_>) {
        let outcome = match answer.failure() {
            Some(error) => failed(&error),
            None => {
                let ended: Ended<'_> = read(answer.result).unwrap_or_default();
                let (outcome, told) = outcome(&text(ended.stop_reason).unwrap_or_default());
                if let Some(told) = told {
                    self.notices.tell(seen, &told);
                }
                // The agent has written it down, if it ever does.
                if let Some(acknowledged) = self.open.get_mut(session) {
                    *acknowledged = true;
                }
                self.refresh(seen);
                outcome
            }
        };
        self.end(seen, outcome, true);
        if self.is_prompted() {
            // Another prompt waits in the agent: its turn is next.
            seen.status(AgentStatus::TurnStarted);
        }
    }

    /// The agent has a conversation open.
    pub(super) fn opened(&mut self, seen: &mut Seen, native_id: &str, acknowledged: bool) {
        if self.open.len() >= OPEN_MAX {
            self.open.pop_first();
        }
        self.open.insert(native_id.to_owned(), acknowledged);
        self.refresh(seen);
    }

    /// Another process could go on once everything that is open can be taken up again. When nothing
    /// is, the last one was closed, and what was known of it holds.
    fn refresh(&mut self, seen: &mut Seen) {
        if self.open.is_empty() {
            return;
        }
        let keeps = self.can.resume || self.can.load;
        let resumable = keeps && self.open.values().all(|it| *it);
        if let Some(known) = &mut self.conversation
            && known.resumable != resumable
        {
            known.resumable = resumable;
            seen.status(AgentStatus::Conversation(known.clone()));
        }
    }

    fn end(&mut self, seen: &mut Seen, outcome: TurnOutcome, answers: bool) {
        self.asks.turn_ended(seen);
        self.paragraphs.turn_ended();
        let ended = self.turn.end(outcome, answers);
        seen.status(AgentStatus::TurnEnded(ended));
    }

    fn is_prompted(&self) -> bool {
        let is_prompt = |call: &Call| matches!(call, Call::Prompt(_));
        self.calls.iter().any(|(_, call)| is_prompt(call))
    }

    fn update(&mut self, seen: &mut Seen, update: &Update<'_>) {
        match text(update.kind).as_deref() {
            Some(kind) if self.handshake.replays && is_said(kind) => {
                self.handshake.heard = true;
                self.handshake.replayed = true;
            }
            Some("agent_message_chunk") => {
                let content: Content<'_> = read(update.content).unwrap_or_default();
                let words = text(content.text).unwrap_or_default();
                let message = text(update.message_id);
                if !words.is_empty() && self.turn.say(&words, message.as_deref()) {
                    self.paragraphs.begin();
                }
                self.paragraphs.say(seen, &words);
            }
            Some("tool_call") => self.turn.interrupt_text(),
            Some("current_mode_update" | "config_option_update") => {
                if self.handshake.ready && self.settings.updated(update) {
                    self.remember(seen);
                }
            }
            // The second version of the protocol.
            Some("state_update") => match text(update.state).as_deref() {
                Some("running") => self.works(seen, true),
                Some("idle") => self.works(seen, false),
                Some(_) | None => {}
            },
            Some("session_info_update") => {
                let meta: Meta<'_> = read(update.meta).unwrap_or_default();
                let codex: CodexMeta<'_> = read(meta.codex).unwrap_or_default();
                let status: ThreadStatus<'_> = read(codex.thread_status).unwrap_or_default();
                match text(status.kind).as_deref() {
                    Some("active") => self.works(seen, true),
                    Some("idle") => self.works(seen, false),
                    Some(_) | None => {}
                }
            }
            Some(_) | None => {}
        }
    }

    /// The agent says whether it works. While a prompt is under way that is nothing new: the
    /// answer to it is the end.
    fn works(&mut self, seen: &mut Seen, works: bool) {
        if self.is_prompted() || !self.handshake.ready || !self.turn.works(works) {
            return;
        }
        if works {
            self.turn.begin();
            seen.status(AgentStatus::TurnStarted);
        } else {
            self.end(seen, TurnOutcome::Completed, false);
        }
    }

    /// Something was set: the next process is to be told.
    pub(super) fn remember(&mut self, seen: &mut Seen) {
        if let Some(known) = &mut self.conversation
            && known.settings != *self.settings.set()
        {
            known.settings.clone_from(self.settings.set());
            seen.status(AgentStatus::Conversation(known.clone()));
        }
    }

    fn session_id(&self) -> &str {
        let known = self.conversation.as_ref();
        known.map_or("", |known| known.native_id.as_str())
    }
}

/// True for updates that are part of a conversation, and are all said again when it is loaded.
pub(super) fn is_said(kind: &str) -> bool {
    matches!(
        kind,
        "user_message_chunk"
            | "agent_message_chunk"
            | "agent_thought_chunk"
            | "tool_call"
            | "tool_call_update"
            | "plan"
    )
}

impl Observer for AcpObserver {
    fn open(&mut self) -> Seen {
        Seen::writing(self.initialize())
    }

    fn listen(&mut self) -> Seen {
        self.listens = true;
        Seen::default()
    }

    fn observe(&mut self, direction: Direction, line: &[u8]) -> Seen {
        let mut seen = Seen::default();
        // A request that is not known must be refused, so every method is looked at.
        if let Some(message) = self.notices.message(&mut seen, line, |_| true) {
            match direction {
                Direction::In => self.written(&mut seen, &message),
                Direction::Out => self.said(&mut seen, &message),
            }
        }
        if self.listens {
            // What the agent asks, the host answers.
            seen.write.clear();
        }
        seen
    }

    fn prompt(&mut self, text: &str) -> Seen {
        let id = self.ours.next();
        let prompt = Prompt {
            session_id: self.session_id(),
            prompt: [Text { text }],
        };
        Seen::writing(Dialect::Tagged.request(&id, "session/prompt", &prompt))
    }

    fn interrupt(&mut self) -> Seen {
        let of = Of {
            session_id: self.session_id(),
        };
        let mut seen = Seen::writing(Dialect::Tagged.notification("session/cancel", &of));
        self.asks.cancel(&mut seen);
        seen
    }

    fn answer(&mut self, id: &str, answer: &Answer) -> Seen {
        self.asks.answer(id, answer)
    }

    fn close(&mut self) -> Seen {
        if !self.can.close || !self.handshake.ready {
            return Seen::default();
        }
        let id = self.ours.next();
        let of = Of {
            session_id: self.session_id(),
        };
        Seen::writing(Dialect::Tagged.request(&id, "session/close", &of))
    }

    /// All that agents say of a conversation they do not have, they say in their answer.
    fn exited(&mut self, _: &str) -> Vec<Fact> {
        Vec::new()
    }

    fn checkpoint(&self) -> Option<Vec<u8>> {
        (self.handshake.ready || self.listens).then(|| kept::keep(self))
    }
}
