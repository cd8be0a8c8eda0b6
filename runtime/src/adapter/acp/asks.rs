//! Permissions that an agent asks for, and how the answers are written.
//!
//! Fed by the observer. Invariant: every request is pending here or answered at once, because the
//! agent waits for each without a limit; nothing of what is asked outlives the turn it was asked in.

use drowse_messages::{AgentStatus, Answer, Ask, AskKind};
use serde::{Deserialize, Serialize, Serializer};

use super::super::Seen;
use super::super::rpc::{Dialect, Id, Pending};
use super::super::text::{DETAIL_BYTES_MAX, TITLE_CHARS_MAX, block, cut, one_line};
use super::super::wire::{Part, read, text};
use super::lines::{Asked, OfSession, Outcome, Permission};

/// 16: an agent asks one thing at a time, or a few; more is a bug, and each is written down.
const ASKS_MAX: usize = 16;

/// 2 KiB of a request are written down, so that all of them fit into a checkpoint.
const KEPT_BYTES_MAX: usize = 2 * 1024;

/// 16: a person chooses among a handful.
const OPTIONS_MAX: usize = 16;

/// What is being asked now, by request id.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Asks {
    pending: Pending<Asking>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Asking {
    #[serde(serialize_with = "kept")]
    ask: Ask,
    options: Vec<Choice>,
}

/// One of the answers that the agent takes.
#[derive(Debug, Serialize, Deserialize)]
struct Choice {
    id: String,
    name: String,
    /// `allow_once`, `allow_always`, `reject_once`, `reject_always`.
    kind: String,
}

impl Asks {
    /// `session/request_permission`.
    pub(super) fn asked(&mut self, seen: &mut Seen, id: Id, params: Part<'_>) {
        if self.pending.iter().count() >= ASKS_MAX {
            return seen.write.push(answered(&id, None));
        }
        let asked: OfSession<'_> = read(params).unwrap_or_default();
        let call: Asked<'_> = read(asked.tool_call).unwrap_or_default();
        let title = text(call.title).or_else(|| text(call.kind));
        let options: Vec<Choice> = read::<Vec<Asked<'_>>>(asked.options)
            .unwrap_or_default()
            .iter()
            .take(OPTIONS_MAX)
            .filter_map(choice)
            .collect();
        let is_yes_or_no = options.iter().any(Choice::allows) || options.is_empty();
        let ask = Ask {
            id: id.to_string(),
            kind: if is_yes_or_no {
                AskKind::Approval
            } else {
                AskKind::Question
            },
            title: one_line(&title.unwrap_or_default(), TITLE_CHARS_MAX),
            detail: block(params.map_or("", |params| params.get()), DETAIL_BYTES_MAX),
        };
        seen.status(AgentStatus::Asked(ask.clone()));
        self.pending.asked(id, Asking { ask, options });
    }

    /// What is being asked, for whoever did not hear it.
    pub(super) fn restate(&self, seen: &mut Seen) {
        for (_, asking) in self.pending.iter() {
            seen.status(AgentStatus::Asked(asking.ask.clone()));
        }
    }

    /// Writes a person's answer, once.
    pub(super) fn answer(&mut self, id: &str, answer: &Answer) -> Seen {
        let asked = self
            .pending
            .iter()
            .find(|(known, _)| known.to_string() == id);
        let Some(asked) = asked.map(|(known, _)| known.clone()) else {
            return Seen::default();
        };
        let asking = self.pending.answered(&asked);
        let chosen = asking.as_ref().and_then(|asking| asking.chosen(answer));
        let mut seen = Seen::writing(answered(&asked, chosen));
        seen.status(AgentStatus::Settled { id: id.to_owned() });
        seen
    }

    /// One was answered by somebody else, or withdrawn by the agent.
    pub(super) fn settle(&mut self, seen: &mut Seen, id: &Id) {
        if self.pending.answered(id).is_some() {
            seen.status(AgentStatus::Settled { id: id.to_string() });
        }
    }

    /// The turn is over: the agent waits for nobody any more.
    pub(super) fn turn_ended(&mut self, seen: &mut Seen) {
        for (id, _) in self.pending.take() {
            seen.status(AgentStatus::Settled { id: id.to_string() });
        }
    }

    /// The turn is being cancelled, which the protocol wants said to everything that is asked.
    pub(super) fn cancel(&mut self, seen: &mut Seen) {
        for (id, _) in self.pending.take() {
            seen.write.push(answered(&id, None));
            seen.status(AgentStatus::Settled { id: id.to_string() });
        }
    }
}

fn kept<S: Serializer>(ask: &Ask, to: S) -> Result<S::Ok, S::Error> {
    let detail = cut(&ask.detail, KEPT_BYTES_MAX).to_owned();
    let short = Ask {
        detail,
        ..ask.clone()
    };
    short.serialize(to)
}

impl Choice {
    fn allows(&self) -> bool {
        self.kind.starts_with("allow")
    }
}

impl Asking {
    /// The option meant by an answer. Yes and no are meant for this once, where that is offered.
    /// Words name an option, by its name, its id or its number from 1; other words are a no.
    fn chosen(&self, answer: &Answer) -> Option<&str> {
        let of_kind = |kind: &str| self.options.iter().find(|option| option.kind == kind);
        let first_of = |kinds: [&str; 2]| kinds.into_iter().find_map(of_kind);
        let denied = || first_of(["reject_once", "reject_always"]);
        let choice = match answer {
            Answer::Allow => first_of(["allow_once", "allow_always"]),
            Answer::Deny => denied(),
            Answer::Text(words) => self.named(words.trim()).or_else(denied),
        };
        choice.map(|choice| choice.id.as_str())
    }

    fn named(&self, words: &str) -> Option<&Choice> {
        let is_named = |option: &&Choice| option.name == words || option.id == words;
        let numbered = || {
            let number: usize = words.parse().ok()?;
            self.options.get(number.checked_sub(1)?)
        };
        self.options.iter().find(is_named).or_else(numbered)
    }
}

fn choice(option: &Asked<'_>) -> Option<Choice> {
    Some(Choice {
        // An id that was cut would choose nothing, so a long one is no choice.
        id: text(option.option_id)
            .filter(|id| id.len() <= TITLE_CHARS_MAX)?
            .into_owned(),
        name: one_line(&text(option.name).unwrap_or_default(), TITLE_CHARS_MAX),
        kind: one_line(&text(option.kind).unwrap_or_default(), TITLE_CHARS_MAX),
    })
}

fn answered(id: &Id, chosen: Option<&str>) -> Vec<u8> {
    let outcome = match chosen {
        Some(option_id) => Outcome::Selected { option_id },
        None => Outcome::Cancelled,
    };
    Dialect::Tagged.answer(id, &Permission { outcome })
}
