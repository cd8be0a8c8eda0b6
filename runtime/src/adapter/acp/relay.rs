//! Stands between a host and an agent that both speak the protocol.
//!
//! A host shakes hands once and then speaks of its conversations by their ids. The relay remembers
//! the handshake, a login, and for each conversation its folder, its servers and what was set in
//! it. The next process hears all of it again and is asked to take the same conversations up; what
//! it says meanwhile, replays above all, ends here. Ids of conversations stay as they are; those of
//! the agent's requests are told apart from the ones of former processes (`handed.rs`).
//!
//! Fed by the backend's link. Invariant: of a line of a host's nothing is ever changed but the id
//! of an answer.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::handed::Handed;
use super::super::rpc::{Dialect, Id, Kind, METHOD_NOT_FOUND, Message, Ours, Pending, message};
use super::super::wire::{Part, read, text};
use super::super::{Pass, Relay};
use super::handshake::Can;
use super::lines::{Cancelled, Initialized, OfSession, Session, Update};
use super::observer::{ID_BYTES_MAX, is_said};
use super::settings::{self, Setting, Settings};

/// 16 conversations of one process: an editor has a few threads open. The oldest is forgotten.
const SESSIONS_MAX: usize = 16;

/// 32 KiB: a folder and a dozen servers with their environments. A longer one is not remembered.
const PARAMS_BYTES_MAX: usize = 32 * 1024;

/// 100 round trips; see `handshake.rs`.
const ROUNDS_MAX: u32 = 100;

/// Whose requests these are.
const WHO: &str = "relay";

/// What outlives the process.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    initialize: Option<Box<RawValue>>,
    authenticate: Option<Box<RawValue>>,
    /// In the order in which they were begun.
    sessions: Vec<Kept>,
    /// Processes so far.
    processes: u64,
}

/// One conversation of the host's.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    id: String,
    /// As the host gave them: what resumes or loads it takes the same, and the id.
    params: BTreeMap<String, Box<RawValue>>,
    settings: BTreeMap<String, String>,
}

/// A request of the host's that is not answered.
#[derive(Debug)]
enum Asked {
    Authenticate(Box<RawValue>),
    New(BTreeMap<String, Box<RawValue>>),
    TakeUp(Kept),
    Set(String, Setting),
}

/// What the next process is asked, in this order.
#[derive(Debug)]
enum Step {
    Initialize,
    Authenticate,
    /// By its place in the memory.
    Resume(usize),
    Load(usize),
    Set(usize, Setting),
    /// Waits for the end of a replay.
    Round(usize),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct AcpRelay {
    memory: Memory,
    /// Requests of the agent's that the host has.
    handed: Handed,
    asked: Pending<Asked>,
    /// True once it was asked to open a conversation again and has not.
    closed: bool,
    ours: Ours,
    /// What the last request of ours was, and its id.
    step: Option<(Id, Step)>,
    next: VecDeque<Step>,
    can: Can,
    /// Of the conversation that is being taken up.
    settings: Settings,
    heard: bool,
    /// Something was said again at all.
    replayed: bool,
    rounds: u32,
}

impl AcpRelay {
    pub(super) fn new(memory: Option<&[u8]>) -> Self {
        let memory = memory.and_then(|bytes| serde_json::from_slice(bytes).ok());
        let memory: Memory = memory.unwrap_or_default();
        Self {
            handed: Handed::after(memory.processes),
            memory,
            ..Self::default()
        }
    }

    fn session(&mut self, id: &str) -> Option<&mut Kept> {
        self.memory.sessions.iter_mut().find(|kept| kept.id == id)
    }

    fn keep(&mut self, kept: Kept) {
        let sessions = &mut self.memory.sessions;
        sessions.retain(|known| known.id != kept.id);
        if sessions.len() >= SESSIONS_MAX {
            sessions.remove(0);
        }
        sessions.push(kept);
    }

    fn asked(&mut self, id: Id, method: &str, params: Part<'_>) {
        let own = || {
            params
                .filter(|it| it.get().len() <= PARAMS_BYTES_MAX)
                .map(ToOwned::to_owned)
        };
        let fields = || own().and_then(|it| serde_json::from_str(it.get()).ok());
        let of: OfSession<'_> = read(params).unwrap_or_default();
        let session = text(of.session_id);
        let asked = match (method, session) {
            ("initialize", _) => {
                self.memory.initialize = own();
                return;
            }
            ("authenticate", _) => own().map(Asked::Authenticate),
            ("session/new" | "session/fork", _) => {
                fields().map(|mut params: BTreeMap<String, Box<RawValue>>| {
                    params.remove("sessionId");
                    Asked::New(params)
                })
            }
            ("session/load" | "session/resume", Some(id)) => fields().map(|params| {
                let id = id.into_owned();
                let known = self.session(&id).map(|kept| kept.settings.clone());
                Asked::TakeUp(Kept {
                    id,
                    params,
                    settings: known.unwrap_or_default(),
                })
            }),
            ("session/close" | "session/delete", Some(id)) => {
                self.memory.sessions.retain(|kept| kept.id != id);
                return;
            }
            (method, Some(id)) => {
                settings::requested(method, &of).map(|setting| Asked::Set(id.into_owned(), setting))
            }
            (_, None) => None,
        };
        if let Some(asked) = asked {
            self.asked.asked(id, asked);
        }
    }

    /// The agent answered the host.
    fn answered(&mut self, id: &Id, answer: &Message<'_>) {
        let Some(asked) = self.asked.answered(id) else {
            return;
        };
        if answer.failure().is_some() {
            return;
        }
        match asked {
            Asked::Authenticate(params) => self.memory.authenticate = Some(params),
            Asked::New(params) => {
                let session: Session<'_> = read(answer.result).unwrap_or_default();
                let id = text(session.session_id).filter(|id| id.len() <= ID_BYTES_MAX);
                if let Some(id) = id {
                    self.keep(Kept {
                        id: id.into_owned(),
                        params,
                        settings: BTreeMap::new(),
                    });
                }
            }
            Asked::TakeUp(kept) => self.keep(kept),
            Asked::Set(id, (key, value)) => {
                if let Some(kept) = self.session(&id) {
                    let mut all = Settings::remembered(std::mem::take(&mut kept.settings));
                    all.became(key, &value);
                    kept.settings.clone_from(all.set());
                }
            }
        }
    }

    /// The agent answered the relay: what it is asked next, if anything is left.
    fn reopened(&mut self, answer: &Message<'_>) -> Option<Vec<u8>> {
        let (_, step) = self.step.take()?;
        let failed = answer.failure().is_some();
        match step {
            Step::Initialize | Step::Authenticate if failed => return None,
            Step::Initialize => {
                let said: Initialized<'_> = read(answer.result).unwrap_or_default();
                self.can = Can::said(said.capabilities);
            }
            Step::Authenticate => {}
            Step::Resume(at) if failed && self.can.load && is_unknown(answer) => {
                self.next.push_front(Step::Load(at));
            }
            // It stays shut: nothing is said to an agent that has forgotten what was said before.
            Step::Resume(_) | Step::Load(_) if failed => return None,
            Step::Resume(at) | Step::Load(at) => {
                let set = self
                    .memory
                    .sessions
                    .get(at)
                    .map(|kept| kept.settings.clone());
                self.settings = Settings::remembered(set.unwrap_or_default());
                self.settings
                    .came_up(&read(answer.result).unwrap_or_default());
                if matches!(step, Step::Load(_)) {
                    if self.settings.mode().is_none() && !self.replayed {
                        return None;
                    }
                    (self.rounds, self.heard) = (0, true);
                    self.next.push_front(Step::Round(at));
                }
                for setting in self.settings.missing().into_iter().rev() {
                    self.next.push_front(Step::Set(at, setting));
                }
            }
            Step::Set(_, setting) if failed && self.settings.is_guard(&setting.0) => return None,
            Step::Set(_, _) if failed => {}
            Step::Set(_, setting) => self.settings.restored(setting),
            Step::Round(at) => {
                if self.heard && self.rounds < ROUNDS_MAX {
                    self.next.push_front(Step::Round(at));
                } else if !self.replayed {
                    // Some load an empty conversation in the place of one they have lost.
                    return None;
                }
            }
        }
        let line = self.ask_next();
        if line.is_none() {
            self.closed = false;
        }
        line
    }

    /// Something is said while a conversation is taken up.
    fn note_update(&mut self, message: &Message<'_>) {
        let params: OfSession<'_> = read(message.params).unwrap_or_default();
        let update: Update<'_> = read(params.update).unwrap_or_default();
        if text(update.kind).is_some_and(|kind| is_said(&kind)) {
            (self.heard, self.replayed) = (true, true);
        }
    }

    /// The next request of ours.
    fn ask_next(&mut self) -> Option<Vec<u8>> {
        while let Some(mut step) = self.next.pop_front() {
            let id = self.ours.next_of(WHO);
            if let Step::Resume(at) = step
                && !self.can.resume
            {
                step = Step::Load(at);
            }
            self.replayed &= !matches!(step, Step::Load(_));
            if let Some(line) = self.request(&id, &step) {
                self.step = Some((id, step));
                return Some(line);
            }
        }
        None
    }

    fn request(&mut self, id: &Id, step: &Step) -> Option<Vec<u8>> {
        let request = |method, params: &_| Dialect::Tagged.request(id, method, params);
        let of = |at: &usize| self.memory.sessions.get(*at);
        match step {
            Step::Initialize => self
                .memory
                .initialize
                .as_ref()
                .map(|it| request("initialize", it)),
            Step::Authenticate => {
                let params = self.memory.authenticate.as_ref();
                params.map(|params| request("authenticate", params))
            }
            Step::Resume(at) | Step::Load(at) => {
                let kept = of(at)?;
                let session = serde_json::value::to_raw_value(&kept.id).ok()?;
                let mut params = kept.params.clone();
                params.insert("sessionId".to_owned(), session);
                let resumes = matches!(step, Step::Resume(_));
                let method = if resumes {
                    "session/resume"
                } else {
                    "session/load"
                };
                Some(Dialect::Tagged.request(id, method, &params))
            }
            Step::Set(at, setting) => settings::request(id, &of(at)?.id, setting),
            Step::Round(at) => {
                let session = of(at)?.id.clone();
                self.rounds += 1;
                self.heard = false;
                settings::request(id, &session, &self.settings.mode()?)
            }
        }
    }
}

/// The method is not known, whatever the agent offered.
fn is_unknown(answer: &Message<'_>) -> bool {
    let failure: super::super::rpc::Failure<'_> = read(answer.error).unwrap_or_default();
    read(failure.code) == Some(METHOD_NOT_FOUND)
}

/// A line as text, and the message in it; a broken one concerns nobody here.
fn parsed(line: &[u8]) -> Option<(&str, Message<'_>)> {
    let text = std::str::from_utf8(line).ok()?;
    Some((text, message(text, |_| true).ok()??))
}

impl Relay for AcpRelay {
    fn reopen(&mut self) -> Vec<Vec<u8>> {
        let sessions = 0..self.memory.sessions.len();
        self.next = [Step::Initialize, Step::Authenticate].into();
        self.next.extend(sessions.map(Step::Resume));
        let first = self.ask_next();
        self.closed = first.is_some();
        self.memory.processes = self.memory.processes.saturating_add(1);
        self.handed = Handed::after(self.memory.processes);
        first.into_iter().collect()
    }

    fn is_open(&self) -> bool {
        !self.closed
    }

    fn from_host(&mut self, line: &[u8]) -> Pass {
        let Some((text, message)) = parsed(line) else {
            return Pass::AsIs;
        };
        match (message.kind(), message.method.as_deref(), message.id) {
            (Kind::Request(id), Some(method), _) => self.asked(id, method, message.params),
            (Kind::Answer(id), _, Some(part)) => return self.handed.toward_agent(text, part, &id),
            (Kind::Request(_) | Kind::Answer(_) | Kind::Notification | Kind::Odd, _, _) => {}
        }
        Pass::AsIs
    }

    fn from_agent(&mut self, line: &[u8]) -> Pass {
        let Some((text, message)) = parsed(line) else {
            return Pass::AsIs;
        };
        match (message.kind(), message.method.as_deref(), message.id) {
            (Kind::Answer(id), _, _) if self.step.as_ref().is_some_and(|(it, _)| *it == id) => self
                .reopened(&message)
                .map_or(Pass::Swallowed, Pass::Answered),
            // To what the observer asked.
            (Kind::Answer(id), _, _) if id.is_ours() => Pass::Swallowed,
            (Kind::Answer(id), _, _) => {
                self.answered(&id, &message);
                Pass::AsIs
            }
            // The host knows all of it.
            (Kind::Notification, Some("session/update"), _) if self.closed => {
                self.note_update(&message);
                Pass::Swallowed
            }
            (Kind::Notification, Some("$/cancel_request"), _) => {
                let params: Cancelled<'_> = read(message.params).unwrap_or_default();
                params
                    .id
                    .map_or(Pass::AsIs, |part| self.handed.toward_host(text, part))
            }
            (Kind::Request(_), _, Some(part)) => self.handed.toward_host(text, part),
            (Kind::Request(_) | Kind::Notification | Kind::Odd, _, _) => Pass::AsIs,
        }
    }

    fn memory(&self) -> Vec<u8> {
        serde_json::to_vec(&self.memory).expect("text keys and JSON always become JSON")
    }
}
