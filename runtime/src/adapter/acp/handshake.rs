//! From `initialize` to a conversation that takes prompts.
//!
//! Fed by the observer with answers to requests. A conversation is resumed where the agent says
//! that it can, else loaded, which has the agent say all of it again; what was set in it is set
//! again. An agent that says no is asked for its list, because few say whether the conversation is
//! gone or something else is wrong; some do not even say no, and load an empty one. Invariant: `CannotResume` only for a conversation that is
//! known to be gone.

use std::collections::VecDeque;

use drowse_messages::{AgentStatus, Conversation};
use serde::{Deserialize, Serialize};

use super::super::Seen;
use super::super::rpc::{Dialect, Id, METHOD_NOT_FOUND, Message};
use super::super::text::{NOTICE_CHARS_MAX, TITLE_CHARS_MAX, one_line};
use super::super::wire::{Part, number, read, text};
use super::known;
use super::lines::{
    AUTH_REQUIRED, Begin, Capabilities, Info, Initialize, Initialized, List, Listed, NOT_FOUND,
    OfSession, Session, SessionCapabilities, VERSION,
};
use super::observer::{AcpObserver, Call, ID_BYTES_MAX};
use super::settings::{self, Setting, Settings};

/// 32 pages of conversations: hundreds of them; one that is not among the newest is said to be
/// there, which is tried again and changes nothing.
const PAGES_MAX: u32 = 32;

/// 100 round trips: a replay of thousands of lines is over long before.
const ROUNDS_MAX: u32 = 100;

/// What agents say of a conversation they do not have. Others name it and say "not found".
const GONE: [&str; 5] = [
    "no previous sessions",
    "session not found",
    "unknown session",
    "invalid session identifier",
    "no rollout found",
];

/// What the agent says that it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Can {
    pub(super) resume: bool,
    pub(super) load: bool,
    pub(super) list: bool,
    pub(super) close: bool,
}

impl Can {
    pub(super) fn said(capabilities: Part<'_>) -> Self {
        let can: Capabilities<'_> = read(capabilities).unwrap_or_default();
        let session: SessionCapabilities<'_> = read(can.session).unwrap_or_default();
        let offered = |part: Part<'_>| part.is_some_and(|part| part.get() != "false");
        Self {
            resume: offered(session.resume),
            load: super::super::wire::flag(can.load),
            list: offered(session.list),
            close: offered(session.close),
        }
    }
}

/// How far it is.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Handshake {
    pub(super) ready: bool,
    /// What is said now was said before: the conversation is being loaded.
    pub(super) replays: bool,
    /// Something of it was said since the last round trip.
    pub(super) heard: bool,
    /// Something of it was said at all.
    pub(super) replayed: bool,
    rounds: u32,
    /// Settings to be set again.
    settings: VecDeque<Setting>,
    /// What the agent said no with, while its list is looked at.
    refused: String,
    pages: u32,
}

/// An answer that says no.
struct Refused {
    code: i64,
    words: String,
}

impl Refused {
    /// True when it can only mean that there is no such conversation.
    fn is_of_a_lost(&self, native_id: &str) -> bool {
        let words = self.words.to_lowercase();
        let is_named = words.contains(&native_id.to_lowercase()) && words.contains("not found");
        self.code == NOT_FOUND || is_named || GONE.iter().any(|gone| words.contains(gone))
    }
}

fn refused(answer: &Message<'_>) -> Option<Refused> {
    let words = answer.failure()?;
    let failure: super::super::rpc::Failure<'_> = read(answer.error).unwrap_or_default();
    // Some say it only there.
    let data = failure
        .data
        .map(|data| data.get())
        .filter(|data| *data != "null");
    let words = match data {
        Some(data) => format!("{words} {data}"),
        None => words.into_owned(),
    };
    Some(Refused {
        code: read(failure.code).unwrap_or_default(),
        words: one_line(&words, TITLE_CHARS_MAX),
    })
}

impl AcpObserver {
    pub(super) fn initialize(&mut self) -> Vec<u8> {
        let id = self.ours.next();
        Dialect::Tagged.request(&id, "initialize", &Initialize::ours())
    }

    /// `initialize` is answered.
    pub(super) fn initialized(&mut self, seen: &mut Seen, id: &Id, answer: &Message<'_>) {
        if let Some(no) = refused(answer) {
            return self.cannot_start(seen, "does not take \"initialize\"", &no.words, false);
        }
        let said: Initialized<'_> = read(answer.result).unwrap_or_default();
        self.can = Can::said(said.capabilities);
        let info: Info<'_> = read(said.info).unwrap_or_default();
        self.agent = one_line(&text(info.name).unwrap_or_default(), TITLE_CHARS_MAX);
        let methods = read::<Vec<Info<'_>>>(said.auth_methods).unwrap_or_default();
        let names = methods.iter().filter_map(|method| text(method.id));
        self.logins = one_line(&names.collect::<Vec<_>>().join(", "), NOTICE_CHARS_MAX);
        if !id.is_ours() || self.listens {
            return;
        }
        match number(said.protocol_version) {
            Some(VERSION) | None => self.begin(seen),
            Some(version) => {
                let words = format!("it wants version {version} of the protocol");
                self.cannot_start(seen, "cannot be spoken to", &words, false);
            }
        }
    }

    /// Begins a conversation, or takes the known one up.
    fn begin(&mut self, seen: &mut Seen) {
        let known = self.conversation.as_ref().filter(|known| known.resumable);
        let Some(known) = known.map(|known| known.native_id.clone()) else {
            return self.ask_for(seen, "session/new", None);
        };
        if self.can.resume {
            self.ask_for(seen, "session/resume", Some(&known));
        } else if self.can.load {
            self.ask_for(seen, "session/load", Some(&known));
        } else {
            self.cannot_resume(seen, "it takes up no conversation any more");
        }
    }

    fn ask_for(&mut self, seen: &mut Seen, method: &str, session_id: Option<&str>) {
        let id = self.ours.next();
        let begin = Begin {
            session_id,
            cwd: &self.cwd,
            mcp_servers: [],
        };
        seen.write
            .push(Dialect::Tagged.request(&id, method, &begin));
    }

    /// `session/new` is answered.
    pub(super) fn began(&mut self, seen: &mut Seen, id: &Id, answer: &Message<'_>) {
        if let Some(no) = refused(answer) {
            if !id.is_ours() {
                return;
            }
            let doing = if no.code == AUTH_REQUIRED {
                format!("wants a login first (it knows: {})", self.logins)
            } else {
                "begins no conversation".to_owned()
            };
            return self.cannot_start(seen, &doing, &no.words, no.code != AUTH_REQUIRED);
        }
        let session: Session<'_> = read(answer.result).unwrap_or_default();
        let native_id = text(session.session_id).filter(|id| id.len() <= ID_BYTES_MAX);
        let Some(native_id) = native_id else {
            return;
        };
        self.settings = Settings::default();
        self.settings.came_up(&session);
        let conversation = Conversation {
            native_id: native_id.into_owned(),
            ..Conversation::default()
        };
        self.conversation = Some(conversation.clone());
        seen.status(AgentStatus::Conversation(conversation.clone()));
        self.opened(seen, &conversation.native_id, false);
        self.is_young(seen);
        self.ready(seen);
    }

    /// `session/resume` or `session/load` is answered.
    pub(super) fn took_up(&mut self, seen: &mut Seen, id: &Id, call: &Call, answer: &Message<'_>) {
        let (Call::Resume(native_id) | Call::Load(native_id)) = call else {
            return;
        };
        if let Some(no) = refused(answer) {
            return self.takes_up_nothing(seen, id, call, &no);
        }
        let known = self.conversation.as_ref();
        if known.is_none_or(|known| known.native_id != *native_id) {
            // A host took up one that nobody here has heard of.
            let conversation = Conversation {
                native_id: native_id.clone(),
                resumable: true,
                ..Conversation::default()
            };
            self.settings = Settings::default();
            self.conversation = Some(conversation.clone());
            seen.status(AgentStatus::Conversation(conversation));
        }
        self.opened(seen, native_id, true);
        self.is_young(seen);
        let session: Session<'_> = read(answer.result).unwrap_or_default();
        self.settings.came_up(&session);
        // One that a host loads may be spoken to at once: its replay is over with the first prompt.
        if !id.is_ours() || self.listens {
            return self.ready(seen);
        }
        self.handshake.settings = self.settings.missing().into();
        self.go_on(seen);
    }

    /// A process has begun a conversation, or takes it up: some must be left alone for a while then.
    pub(super) fn is_young(&self, seen: &mut Seen) {
        if let Some(settles_in) = known::settles_in(&self.agent) {
            seen.status(AgentStatus::Young { settles_in });
        }
    }

    /// The agent said no to a conversation.
    fn takes_up_nothing(&mut self, seen: &mut Seen, id: &Id, call: &Call, no: &Refused) {
        self.handshake.replays = false;
        if !id.is_ours() {
            return;
        }
        let (Call::Resume(native_id) | Call::Load(native_id)) = call else {
            return;
        };
        // Some offer what they do not have.
        let is_resume = matches!(call, Call::Resume(_));
        if is_resume && no.code == METHOD_NOT_FOUND && self.can.load {
            // A relay does it by itself.
            if !self.listens {
                self.ask_for(seen, "session/load", Some(native_id));
            }
            return;
        }
        if no.is_of_a_lost(native_id) {
            return self.cannot_resume(seen, &no.words);
        }
        if self.can.list && !self.listens {
            self.handshake.refused.clone_from(&no.words);
            return self.list(seen, None);
        }
        self.cannot_start(seen, "does not take the conversation up", &no.words, true);
    }

    fn list(&mut self, seen: &mut Seen, cursor: Option<&str>) {
        self.handshake.pages += 1;
        let id = self.ours.next();
        let cwd = self.cwd.as_str();
        let list = List { cwd, cursor };
        seen.write
            .push(Dialect::Tagged.request(&id, "session/list", &list));
    }

    /// A page of the agent's list: a conversation that is not in it is gone.
    pub(super) fn listed(&mut self, seen: &mut Seen, id: &Id, answer: &Message<'_>) {
        if self.handshake.ready || !id.is_ours() || self.listens {
            return;
        }
        let words = std::mem::take(&mut self.handshake.refused);
        let page: Listed<'_> = read(answer.result).unwrap_or_default();
        let sessions = read::<Vec<OfSession<'_>>>(page.sessions);
        let wanted = self.conversation.as_ref().map(|it| it.native_id.as_str());
        let is_it = |one: &OfSession<'_>| text(one.session_id).as_deref() == wanted;
        let found = sessions.as_ref().is_none_or(|all| all.iter().any(is_it));
        match text(page.next) {
            _ if found => {}
            Some(cursor) if self.handshake.pages < PAGES_MAX => {
                self.handshake.refused = words;
                return self.list(seen, Some(&cursor));
            }
            Some(_) => {}
            None => return self.cannot_resume(seen, &words),
        }
        self.cannot_start(seen, "does not take the conversation up", &words, true);
    }

    /// A setting was set, or not.
    pub(super) fn was_set(
        &mut self,
        seen: &mut Seen,
        id: &Id,
        setting: Setting,
        answer: &Message<'_>,
    ) {
        let is_ours = id.is_ours() && !self.listens;
        match refused(answer) {
            None if self.handshake.ready => {
                if self.settings.became(setting.0, &setting.1) {
                    self.remember(seen);
                }
            }
            None => self.settings.restored(setting),
            Some(no) if !self.handshake.ready && is_ours && self.settings.is_guard(&setting.0) => {
                let doing = format!("does not go back to the mode {} it was in", setting.1);
                return self.cannot_start(seen, &doing, &no.words, false);
            }
            Some(no) if is_ours => {
                let (key, value) = &setting;
                let text = format!("{key} could not be set to {value} again: {}", no.words);
                self.notices.tell(seen, &text);
            }
            Some(_) => {}
        }
        if is_ours && !self.handshake.ready {
            self.go_on(seen);
        }
    }

    /// The next thing between a conversation that was taken up and its first prompt.
    fn go_on(&mut self, seen: &mut Seen) {
        let Some(session) = self.conversation.as_ref().map(|it| it.native_id.clone()) else {
            return;
        };
        let mut next = self.handshake.settings.pop_front();
        if next.is_none() && self.handshake.replays {
            let is_first = self.handshake.rounds == 0;
            let heard = std::mem::take(&mut self.handshake.heard);
            // Some go on saying what was said after they answered. A round trip in which nothing
            // of it came says that it is over: what is set is what is set already.
            if (is_first || heard) && self.handshake.rounds < ROUNDS_MAX {
                self.handshake.rounds += 1;
                next = self.settings.mode();
            }
        }
        let id = self.ours.next();
        match next.and_then(|setting| settings::request(&id, &session, &setting)) {
            Some(line) => seen.write.push(line),
            None => {
                let replays = std::mem::take(&mut self.handshake.replays);
                if replays && !self.handshake.replayed {
                    return self.cannot_resume(seen, "it opened an empty one");
                }
                self.ready(seen);
            }
        }
    }

    fn ready(&mut self, seen: &mut Seen) {
        if !std::mem::replace(&mut self.handshake.ready, true) {
            seen.status(AgentStatus::Ready);
        }
    }

    fn cannot_resume(&self, seen: &mut Seen, words: &str) {
        let id = self.conversation.as_ref().map(|it| it.native_id.as_str());
        let detail = format!(
            "{} was asked for conversation {} in {}: {words}",
            self.called(),
            id.unwrap_or_default(),
            self.cwd
        );
        let detail = one_line(&detail, NOTICE_CHARS_MAX);
        seen.status(AgentStatus::CannotResume { detail });
    }

    fn cannot_start(&self, seen: &mut Seen, doing: &str, words: &str, retry: bool) {
        if self.handshake.ready {
            return;
        }
        let detail = format!("{} {doing}: {words}", self.called());
        let detail = one_line(&detail, NOTICE_CHARS_MAX);
        seen.status(AgentStatus::CannotStart { detail, retry });
    }

    /// Its own name for itself.
    fn called(&self) -> &str {
        if self.agent.is_empty() {
            "the agent"
        } else {
            &self.agent
        }
    }
}
