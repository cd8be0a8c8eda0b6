//! Stands between a host and a server.
//!
//! A host greets a server once, sets how much it logs, and subscribes to resources. The next
//! process is greeted alike, and its answers end here. A ping asks whether the server is there: it
//! is no use of it, and is answered in its place while it is not.
//!
//! Fed by the backend's link. Invariant: of a line of a host's nothing is ever changed but the id
//! of an answer.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::handed::Handed;
use super::super::rpc::{Dialect, Id, Kind, Message, Ours, Pending, message};
use super::super::wire::{read, text};
use super::super::{Pass, Relay};
use super::lines::{Empty, Params};

/// 256 resources; those beyond are not subscribed to again.
const SUBSCRIPTIONS_MAX: usize = 256;

/// 2 KiB of parameters are remembered: a resource's address is shorter; 256 of them are half of
/// what may be remembered.
const PARAMS_BYTES_MAX: usize = 2 * 1024;

/// 64 KiB: what a host can do, and who it is. A longer greeting is not remembered.
const GREETING_BYTES_MAX: usize = 64 * 1024;

/// Whose requests these are.
const WHO: &str = "relay";

const SUBSCRIBE: &str = "resources/subscribe";
const SET_LEVEL: &str = "logging/setLevel";

/// What outlives the process.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    initialize: Option<Box<RawValue>>,
    level: Option<Box<RawValue>>,
    /// By address.
    subscriptions: BTreeMap<String, Box<RawValue>>,
    /// Processes so far.
    processes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct McpRelay {
    memory: Memory,
    /// Requests of the server's that the host has.
    handed: Handed,
    /// Subscriptions and levels that the host asked for, until the server says yes.
    asked: Pending<(String, Box<RawValue>)>,
    /// It was asked to open again and has not.
    closed: bool,
    ours: Ours,
    waits_for: Option<Id>,
    /// What the next process is asked once it was greeted.
    next: VecDeque<(&'static str, Box<RawValue>)>,
    greeted: bool,
}

impl McpRelay {
    pub(super) fn new(memory: Option<&[u8]>) -> Self {
        let memory = memory.and_then(|bytes| serde_json::from_slice(bytes).ok());
        let memory: Memory = memory.unwrap_or_default();
        Self {
            handed: Handed::after(memory.processes),
            memory,
            ..Self::default()
        }
    }

    fn asked(&mut self, id: Id, method: &str, message: &Message<'_>) {
        let params: Params<'_> = read(message.params).unwrap_or_default();
        let uri = text(params.uri).unwrap_or_default();
        let Some(own) = message.params.map(ToOwned::to_owned) else {
            return;
        };
        match method {
            "initialize" => {
                let fits = own.get().len() <= GREETING_BYTES_MAX;
                self.memory.initialize = fits.then_some(own);
            }
            "resources/unsubscribe" => drop(self.memory.subscriptions.remove(&*uri)),
            SET_LEVEL | SUBSCRIBE if own.get().len() <= PARAMS_BYTES_MAX => {
                let what = if method == SUBSCRIBE { &*uri } else { "" };
                self.asked.asked(id, (what.to_owned(), own));
            }
            _ => {}
        }
    }

    /// The server answered the host.
    fn answered(&mut self, id: &Id, answer: &Message<'_>) {
        match self.asked.answered(id) {
            Some(_) if answer.failure().is_some() => {}
            Some((uri, params)) if uri.is_empty() => self.memory.level = Some(params),
            Some((uri, params)) => {
                let subscriptions = &mut self.memory.subscriptions;
                if subscriptions.len() < SUBSCRIPTIONS_MAX || subscriptions.contains_key(&uri) {
                    subscriptions.insert(uri, params);
                }
            }
            None => {}
        }
    }

    /// The server answered the relay: what it is told next.
    fn reopened(&mut self, answer: &Message<'_>) -> Option<Vec<u8>> {
        self.waits_for = None;
        let mut lines = Vec::new();
        if !std::mem::replace(&mut self.greeted, true) {
            // A server that does not take the greeting stays shut.
            if answer.failure().is_some() {
                return None;
            }
            lines = Dialect::Tagged.notification("notifications/initialized", &Empty {});
        }
        match self.next.pop_front() {
            Some((method, params)) => {
                let id = self.ours.next_of(WHO);
                lines.extend(Dialect::Tagged.request(&id, method, &params));
                self.waits_for = Some(id);
            }
            None => self.closed = false,
        }
        (!lines.is_empty()).then_some(lines)
    }
}

/// A line as text, and the message in it; a broken one concerns nobody here.
fn parsed(line: &[u8]) -> Option<(&str, Message<'_>)> {
    let text = std::str::from_utf8(line).ok()?;
    Some((text, message(text, |_| true).ok()??))
}

/// The id of a ping.
fn ping(message: &Message<'_>) -> Option<Id> {
    let is_ping = message.method.as_deref() == Some("ping");
    is_ping.then(|| message.id()).flatten()
}

impl Relay for McpRelay {
    fn reopen(&mut self) -> Vec<Vec<u8>> {
        let Some(initialize) = &self.memory.initialize else {
            return Vec::new();
        };
        let id = self.ours.next_of(WHO);
        let first = Dialect::Tagged.request(&id, "initialize", initialize);
        let level = self.memory.level.iter().map(|it| (SET_LEVEL, it));
        let subscriptions = self.memory.subscriptions.values();
        let all = level.chain(subscriptions.map(|it| (SUBSCRIBE, it)));
        self.next = all.map(|(method, it)| (method, it.clone())).collect();
        self.waits_for = Some(id);
        (self.closed, self.greeted) = (true, false);
        self.memory.processes = self.memory.processes.saturating_add(1);
        self.handed = Handed::after(self.memory.processes);
        vec![first]
    }

    fn is_open(&self) -> bool {
        !self.closed
    }

    fn from_host(&mut self, line: &[u8]) -> Pass {
        let Some((text, message)) = parsed(line) else {
            return Pass::AsIs;
        };
        if let Some(id) = ping(&message).filter(|_| self.closed) {
            return Pass::Answered(Dialect::Tagged.answer(&id, &Empty {}));
        }
        match (message.kind(), message.method.as_deref(), message.id) {
            (Kind::Request(id), Some(method), _) => self.asked(id, method, &message),
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
            (Kind::Answer(id), _, _) if self.waits_for.as_ref() == Some(&id) => self
                .reopened(&message)
                .map_or(Pass::Swallowed, Pass::Answered),
            // To what the observer asked.
            (Kind::Answer(id), _, _) if id.is_ours() => Pass::Swallowed,
            (Kind::Answer(id), _, _) => {
                self.answered(&id, &message);
                Pass::AsIs
            }
            (Kind::Notification, Some("notifications/cancelled"), _) => {
                let params: Params<'_> = read(message.params).unwrap_or_default();
                params
                    .request_id
                    .map_or(Pass::AsIs, |part| self.handed.toward_host(text, part))
            }
            (Kind::Request(_), _, Some(part)) => self.handed.toward_host(text, part),
            (Kind::Request(_) | Kind::Notification | Kind::Odd, _, _) => Pass::AsIs,
        }
    }

    fn is_idle_talk(&self, line: &[u8]) -> bool {
        parsed(line).is_some_and(|(_, message)| ping(&message).is_some())
    }

    fn memory(&self) -> Vec<u8> {
        serde_json::to_vec(&self.memory).expect("text keys and JSON always become JSON")
    }
}
