//! Dialogs of Pi's extensions, and how the answers are written.
//!
//! Fed by the observer. A dialog that its extension gave up (its time ran out, its tool was
//! aborted) is not taken back on the wire: one asked during a turn is void when that turn ends.

use std::collections::BTreeMap;

use drowse_messages::{AgentStatus, Answer, Ask, AskKind};
use serde::{Deserialize, Serialize};

use super::super::Seen;
use super::super::text::{DETAIL_BYTES_MAX, TITLE_CHARS_MAX, block, one_line};
use super::super::wire::{read, text, written};
use super::lines::{Chosen, Ui, UiAnswer};

/// 64: extensions ask one thing at a time; more is a bug, and they wait here in memory.
const ASKS_MAX: usize = 64;

/// What is being asked now, by request id.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Asks {
    pending: BTreeMap<String, Pending>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Pending {
    ask: Ask,
    /// What may be chosen from; empty when anything may be said.
    options: Vec<String>,
    in_turn: bool,
}

impl Asks {
    /// A dialog opens; `line` is its whole request.
    pub(super) fn asked(&mut self, seen: &mut Seen, ui: &Ui<'_>, line: &str, in_turn: bool) {
        let Some(id) = text(ui.id) else { return };
        if self.pending.len() >= ASKS_MAX {
            return seen.write.push(answered(&id, Chosen::Cancelled(true)));
        }
        let kind = match text(ui.method).as_deref() {
            Some("confirm") => AskKind::Approval,
            Some(_) | None => AskKind::Question,
        };
        let title = text(ui.title).unwrap_or_default();
        let title = match text(ui.message) {
            Some(message) => format!("{title} {message}"),
            None => title.into_owned(),
        };
        let options = read(ui.options).unwrap_or_default();
        let ask = Ask {
            id: id.clone().into_owned(),
            kind,
            title: one_line(&title, TITLE_CHARS_MAX),
            detail: block(line, DETAIL_BYTES_MAX),
        };
        seen.status(AgentStatus::Asked(ask.clone()));
        self.pending.insert(
            id.into_owned(),
            Pending {
                ask,
                options,
                in_turn,
            },
        );
    }

    /// What is being asked, for whoever did not hear it.
    pub(super) fn restate(&self, seen: &mut Seen) {
        for pending in self.pending.values() {
            seen.status(AgentStatus::Asked(pending.ask.clone()));
        }
    }

    /// Writes a person's answer, once.
    pub(super) fn answer(&mut self, id: &str, answer: &Answer) -> Seen {
        let Some(pending) = self.pending.remove(id) else {
            return Seen::default();
        };
        let mut seen = Seen::writing(answered(id, chosen(&pending, answer)));
        seen.status(AgentStatus::Settled { id: id.to_owned() });
        seen
    }

    /// One was answered by somebody else.
    pub(super) fn settle(&mut self, seen: &mut Seen, id: &str) {
        if self.pending.remove(id).is_some() {
            seen.status(AgentStatus::Settled { id: id.to_owned() });
        }
    }

    /// A turn of the model ended: the tools in it wait for nobody any more.
    pub(super) fn turn_ended(&mut self, seen: &mut Seen) {
        for (id, _) in self.pending.extract_if(.., |_, pending| pending.in_turn) {
            seen.status(AgentStatus::Settled { id });
        }
    }
}

/// Words for a yes-or-no dialog are a no; for a list they name an option, by its text or its
/// number from 1.
fn chosen<'a>(pending: &'a Pending, answer: &'a Answer) -> Chosen<'a> {
    match (pending.ask.kind, answer) {
        (AskKind::Approval, answer) => Chosen::Confirmed(matches!(answer, Answer::Allow)),
        (AskKind::Question, Answer::Text(words)) if pending.options.is_empty() => {
            Chosen::Value(words)
        }
        (AskKind::Question, Answer::Text(words)) => {
            let words = words.trim();
            let named = pending.options.iter().find(|option| option.trim() == words);
            let numbered = || {
                let number: usize = words.parse().ok()?;
                pending.options.get(number.checked_sub(1)?)
            };
            named
                .or_else(numbered)
                .map_or(Chosen::Cancelled(true), |option| Chosen::Value(option))
        }
        (AskKind::Question, Answer::Allow | Answer::Deny) => Chosen::Cancelled(true),
    }
}

fn answered(id: &str, answer: Chosen<'_>) -> Vec<u8> {
    written(&UiAnswer { id, answer })
}
