//! What the relay of one Codex process leaves for the next: the host's greeting, the threads that
//! are open, and how the host wants them.
//!
//! Fed by the relay; written down, sealed, by the link. Invariants: at most 1 MiB; and a thread is
//! never given more than the host last allowed: what Codex writes down itself is left out where
//! the two could differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::super::Pass;
use super::super::super::rpc::{Id, Pending};
use super::super::super::wire::{Part, flag, parts, read};
use super::super::lines::{Thread, id};
use super::{Asked, ended};

/// 16: a host has a handful of threads open; one more is not taken up again.
const THREADS_MAX: usize = 16;

/// 8: a host opens one thread at a time.
const ASKED_MAX: usize = 8;

/// 32 KiB of one thread's parameters are kept, instructions for the agent above all: 16 threads,
/// the greeting, and as much again of what is under way are less than 1 MiB.
const PARAMS_BYTES_MAX: usize = 32 * 1024;

/// 64 KiB: a greeting is some hundred bytes.
const GREETING_BYTES_MAX: usize = 64 * 1024;

/// Parameters of `thread/start` that `thread/resume` has too.
const RESUMABLE: [&str; 10] = [
    "approvalPolicy",
    "approvalsReviewer",
    "baseInstructions",
    "config",
    "cwd",
    "developerInstructions",
    "model",
    "permissions",
    "sandbox",
    "serviceTier",
];

/// Settings that both starts and changes of a thread have, by the same name.
const SHARED: [&str; 6] = [
    "approvalPolicy",
    "approvalsReviewer",
    "cwd",
    "model",
    "permissions",
    "serviceTier",
];

/// Settings that only changes have: they are set again once the thread is there.
const CHANGES: [&str; 3] = ["effort", "sandboxPolicy", "summary"];

type Fields = BTreeMap<String, Box<RawValue>>;

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Memory {
    /// How often a process was let go.
    pub(super) generation: u64,
    /// Parameters of the host's `initialize`.
    pub(super) initialize: Option<Box<RawValue>>,
    /// It sent `initialized`.
    pub(super) confirmed: bool,
    /// Open threads, by the id the host knows.
    pub(super) threads: BTreeMap<String, Known>,
    /// Threads whose id is another now.
    pub(super) names: Names,
    /// What the host asked for and has no answer to.
    pub(super) asked: Pending<Asked>,
}

/// A thread that is open.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Known {
    /// What the host gave at its start, with what it changed since.
    start: Fields,
    /// What it changed that a start does not have.
    changes: Fields,
    /// A turn in it was seen to end.
    spoken: bool,
}

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Fields, other: &Fields| {
            one.iter()
                .map(|(name, value)| (name, value.get()))
                .eq(other.iter().map(|(name, value)| (name, value.get())))
        };
        same(&self.start, &other.start)
            && same(&self.changes, &other.changes)
            && self.spoken == other.spoken
    }
}

impl Eq for Known {}

parts!(
    /// `thread/settings/updated`.
    Updated { settings = "threadSettings" }
);

impl Known {
    /// A thread that the host asked for with `params`, as parameters of a start.
    pub(super) fn new(params: Part<'_>, method: Option<&str>) -> Self {
        let is_short = |params: &&RawValue| params.get().len() <= PARAMS_BYTES_MAX;
        let mut start: Fields = read(params.filter(is_short)).unwrap_or_default();
        if method != Some("thread/start") {
            start.retain(|name, _| RESUMABLE.contains(&name.as_str()));
        }
        Self {
            start,
            spoken: method != Some("thread/start"),
            ..Self::default()
        }
    }

    fn change(&mut self, fields: &BTreeMap<String, &RawValue>) {
        let given = |name: &str| fields.get(name).filter(|value| value.get() != "null");
        for (names, kept) in [
            (&SHARED[..], &mut self.start),
            (&CHANGES[..], &mut self.changes),
        ] {
            for &name in names {
                if let Some(&value) = given(name) {
                    kept.insert(name.to_owned(), value.to_owned());
                }
            }
        }
        // What was said last counts: the words of a start would widen it again.
        let (policy, permissions) = (given("sandboxPolicy"), given("permissions"));
        if policy.is_some() || permissions.is_some() {
            self.start.remove("sandbox");
        }
        if policy.is_some() {
            self.start.remove("permissions");
        } else if permissions.is_some() {
            self.changes.remove("sandboxPolicy");
        }
        if self.bytes() > PARAMS_BYTES_MAX {
            *self = Self {
                spoken: self.spoken,
                ..Self::default()
            };
        }
    }

    fn bytes(&self) -> usize {
        let fields = self.start.iter().chain(&self.changes);
        fields
            .map(|(name, value)| name.len() + value.get().len())
            .sum()
    }
}

impl Memory {
    /// The host asks for a thread, or to let one go.
    pub(super) fn asks(&mut self, request: Id, what: Asked) {
        let is_again = self.asked.get(&request).is_some();
        if is_again || self.asked.iter().count() < ASKED_MAX {
            self.asked.asked(request, what);
        }
    }

    /// The host's `initialize`.
    pub(super) fn greeted(&mut self, params: Part<'_>) {
        let params = params.filter(|params| params.get().len() <= GREETING_BYTES_MAX);
        self.initialize = params.map(ToOwned::to_owned);
    }

    /// A thread is open. An ephemeral one is gone with its process.
    pub(super) fn opened(&mut self, thread: &Thread<'_>, known: Known) {
        let Some(id) = id(thread.id).filter(|_| !flag(thread.ephemeral)) else {
            return;
        };
        if self.threads.len() < THREADS_MAX || self.threads.contains_key(&*id) {
            self.threads.insert(id.into_owned(), known);
        }
    }

    /// A thread is let go.
    pub(super) fn forget(&mut self, thread: &str) {
        self.threads.remove(thread);
    }

    /// A turn in it is over: it is on disk.
    pub(super) fn spoken_in(&mut self, thread: &str) {
        if let Some(known) = self.threads.get_mut(thread) {
            known.spoken = true;
        }
    }

    /// The host changes settings of a thread, with a prompt or alone.
    pub(super) fn changed(&mut self, thread: &str, params: Part<'_>) {
        if let Some(known) = self.threads.get_mut(thread) {
            known.change(&read(params).unwrap_or_default());
        }
    }

    /// Codex says how a thread is set now.
    pub(super) fn updated(&mut self, thread: &str, params: Part<'_>) {
        let updated: Updated<'_> = read(params).unwrap_or_default();
        self.changed(thread, updated.settings);
    }

    /// A thread in which nothing was said has another id now.
    pub(super) fn renamed(&mut self, thread: &str, now: &str) {
        self.names.rename(thread, now);
    }

    /// Parameters that take a thread up again.
    pub(super) fn to_resume(&self, thread: &str) -> Option<Fields> {
        let known = self.threads.get(thread)?;
        let mut fields = known.start.clone();
        fields.retain(|name, _| RESUMABLE.contains(&name.as_str()));
        fields.insert("threadId".to_owned(), quoted(self.names.agent(thread)));
        fields.insert("excludeTurns".to_owned(), raw("true"));
        Some(fields)
    }

    /// Parameters that start a thread anew, if nothing was said in it.
    pub(super) fn to_start(&self, thread: &str) -> Option<&Fields> {
        let known = self.threads.get(thread).filter(|known| !known.spoken)?;
        Some(&known.start)
    }

    /// Parameters that set a thread as it was, if there is anything a start does not have.
    pub(super) fn to_set(&self, thread: &str) -> Option<Fields> {
        let known = self.threads.get(thread)?;
        let mut fields = known.changes.clone();
        if fields.is_empty() {
            return None;
        }
        fields.insert("threadId".to_owned(), quoted(self.names.agent(thread)));
        Some(fields)
    }
}

/// Ids of threads that differ between host and agent.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Names(Vec<Name>);

/// One of them. Ids are UUIDs, so one never stands in a line by accident.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Name {
    pub(super) host: String,
    pub(super) agent: String,
}

impl Names {
    fn rename(&mut self, host: &str, agent: &str) {
        self.0.retain(|name| name.host != host);
        if host != agent && self.0.len() < THREADS_MAX {
            let (host, agent) = (host.to_owned(), agent.to_owned());
            self.0.push(Name { host, agent });
        }
    }

    fn agent<'a>(&'a self, host: &'a str) -> &'a str {
        let name = self.0.iter().find(|name| name.host == host);
        name.map_or(host, |name| name.agent.as_str())
    }

    /// The line in the other side's names; `None` when it has none of them.
    pub(super) fn replaced(
        &self,
        line: &str,
        pair: impl Fn(&Name) -> (&str, &str),
    ) -> Option<String> {
        let mut replaced = None;
        for name in &self.0 {
            let (from, to) = pair(name);
            let line = replaced.as_deref().unwrap_or(line);
            if line.contains(from) {
                replaced = Some(line.replace(from, to));
            }
        }
        replaced
    }

    /// What becomes of a line, in the other side's names.
    pub(super) fn translated(
        &self,
        line: &str,
        pass: Pass,
        pair: impl Fn(&Name) -> (&str, &str),
    ) -> Pass {
        match pass {
            Pass::AsIs => match self.replaced(line, pair) {
                Some(replaced) => Pass::Instead(ended(replaced.into_bytes())),
                None => Pass::AsIs,
            },
            Pass::Instead(_) | Pass::Swallowed | Pass::Answered(_) => pass,
        }
    }
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).expect("it is JSON")
}

fn quoted(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).expect("text always becomes JSON")
}
