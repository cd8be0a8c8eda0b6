//! What Claude Code asks a person, and how the answers are written.
//!
//! Fed by the observer with control requests of the agent. Invariant: every request is either
//! pending here or answered at once, because the agent waits for each of them without a limit.

use std::collections::BTreeMap;

use drowse_messages::{AgentStatus, Answer, Ask, AskKind};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::super::Seen;
use super::super::text::{DETAIL_BYTES_MAX, TITLE_CHARS_MAX, block, one_line};
use super::super::wire::{Part, read, text, written};
use super::lines::{Control, Permission, Reply, ReplyWith, Request};

/// 64: parallel subagents ask a handful at a time; more is a bug, and each is kept in memory.
const ASKS_MAX: usize = 64;

/// 16 KiB of an input are written down, so that a few of them fit into a checkpoint.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// The tool that asks a question instead of for permission.
const QUESTION_TOOL: &str = "AskUserQuestion";

/// Fields of a tool's input that say best what it is about to do, in this order.
const TELLING: [&str; 7] = [
    "command",
    "file_path",
    "path",
    "url",
    "query",
    "pattern",
    "description",
];

const DENIED: &str = "The user does not want this. Do not try it another way.";

/// What is being asked now, by request id.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Asks {
    #[serde(serialize_with = "kept")]
    pending: BTreeMap<String, Pending>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Pending {
    input: Box<RawValue>,
    kind: AskKind,
    title: String,
}

/// Long inputs (whole files to write) are not written down: Claude repeats what it asks.
fn kept<S: Serializer>(pending: &BTreeMap<String, Pending>, to: S) -> Result<S::Ok, S::Error> {
    let is_short = |(_, one): &(_, &Pending)| one.input.get().len() <= KEPT_BYTES_MAX;
    to.collect_map(pending.iter().filter(is_short))
}

impl Pending {
    fn ask(&self, id: &str) -> Ask {
        Ask {
            id: id.to_owned(),
            kind: self.kind,
            title: self.title.clone(),
            detail: block(self.input.get(), DETAIL_BYTES_MAX),
        }
    }
}

impl Asks {
    /// A control request of the agent.
    pub(super) fn asked(&mut self, seen: &mut Seen, id: &str, request: Part<'_>) {
        let asked: Request<'_> = read(request).unwrap_or_default();
        let subtype = text(asked.subtype).unwrap_or_default();
        let (Some(input), "can_use_tool") = (asked.input, &*subtype) else {
            return seen.write.push(refusal(id, "not supported by this client"));
        };
        if self.pending.len() >= ASKS_MAX && !self.pending.contains_key(id) {
            return seen
                .write
                .push(refusal(id, "too many questions are pending"));
        }
        let tool = text(asked.tool_name).unwrap_or_default();
        let kind = if tool == QUESTION_TOOL {
            AskKind::Question
        } else {
            AskKind::Approval
        };
        let pending = Pending {
            title: one_line(&title(&asked, &tool, input), TITLE_CHARS_MAX),
            input: input.to_owned(),
            kind,
        };
        seen.status(AgentStatus::Asked(pending.ask(id)));
        self.pending.insert(id.to_owned(), pending);
    }

    /// What is being asked, for whoever did not hear it.
    pub(super) fn restate(&self, seen: &mut Seen) {
        for (id, pending) in &self.pending {
            seen.status(AgentStatus::Asked(pending.ask(id)));
        }
    }

    /// Claude lists all that it asks now.
    pub(super) fn compare(&mut self, seen: &mut Seen, listed: &[Control<'_>]) {
        let listed: BTreeMap<_, _> = listed
            .iter()
            .filter_map(|control| Some((text(control.request_id)?, control.request)))
            .collect();
        let gone = |id: &String, _: &mut Pending| !listed.contains_key(id.as_str());
        for (id, _) in self.pending.extract_if(.., gone) {
            seen.status(AgentStatus::Settled { id });
        }
        for (id, request) in listed {
            if !self.pending.contains_key(&*id) {
                self.asked(seen, &id, request);
            }
        }
    }

    /// Writes a person's answer, once.
    pub(super) fn answer(&mut self, id: &str, answer: &Answer) -> Seen {
        let Some(pending) = self.pending.remove(id) else {
            return Seen::default();
        };
        let answered = match (pending.kind, answer) {
            (AskKind::Question, Answer::Text(words)) => with_answers(&pending.input, words),
            (AskKind::Question | AskKind::Approval, _) => None,
        };
        let response = match answer {
            Answer::Deny => Permission::Deny { message: DENIED },
            // Words in place of a yes are a no with a reason.
            Answer::Text(words) if answered.is_none() => Permission::Deny { message: words },
            Answer::Allow | Answer::Text(_) => Permission::Allow {
                updated_input: answered.as_deref().unwrap_or(&pending.input),
            },
        };
        let reply = Reply {
            response: ReplyWith::Success {
                request_id: id,
                response,
            },
        };
        let mut seen = Seen::writing(written(&reply));
        seen.status(AgentStatus::Settled { id: id.to_owned() });
        seen
    }

    /// One was answered by somebody else, or withdrawn by the agent.
    pub(super) fn settle(&mut self, seen: &mut Seen, id: &str) {
        if self.pending.remove(id).is_some() {
            seen.status(AgentStatus::Settled { id: id.to_owned() });
        }
    }

    /// The agent waits for nobody any more.
    pub(super) fn settle_all(&mut self, seen: &mut Seen) {
        for (id, _) in std::mem::take(&mut self.pending) {
            seen.status(AgentStatus::Settled { id });
        }
    }
}

/// `Bash: rm -rf x`; for a question its first question.
fn title(asked: &Request<'_>, tool: &str, input: &RawValue) -> String {
    if let Some(title) = text(asked.title).filter(|title| !title.is_empty()) {
        return title.into_owned();
    }
    if tool == QUESTION_TOOL
        && let Some(first) = questions(input).into_iter().next()
    {
        return first;
    }
    let shown = text(asked.display_name).filter(|name| !name.is_empty());
    let name = shown.as_deref().unwrap_or(tool);
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(input.get()).unwrap_or_default();
    let telling = TELLING
        .iter()
        .find_map(|field| text(fields.get(*field).copied()));
    match telling.or_else(|| text(asked.description)) {
        Some(what) => format!("{name}: {what}"),
        None => name.to_owned(),
    }
}

#[derive(Deserialize)]
struct Questions {
    questions: Vec<Question>,
}

#[derive(Deserialize)]
struct Question {
    question: String,
}

fn questions(input: &RawValue) -> Vec<String> {
    serde_json::from_str::<Questions>(input.get()).map_or_else(
        |_| Vec::new(),
        |asked| {
            asked
                .questions
                .into_iter()
                .map(|question| question.question)
                .collect()
        },
    )
}

/// The input with `answers`, as the tool reads them: by the text of the question. With several
/// questions, the first line answers the first one, and so on; the last takes what is left.
fn with_answers(input: &RawValue, words: &str) -> Option<Box<RawValue>> {
    let asked = questions(input);
    let last = asked.len().checked_sub(1)?;
    let lines = words.splitn(last + 1, '\n').map(str::trim);
    let answers: serde_json::Map<String, serde_json::Value> = asked
        .into_iter()
        .zip(lines.map(serde_json::Value::from))
        .collect();
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(input.get()).ok()?;
    fields.insert(
        "answers".to_owned(),
        serde_json::value::to_raw_value(&answers).ok()?,
    );
    serde_json::value::to_raw_value(&fields).ok()
}

/// Without an answer the agent would wait for ever.
fn refusal(id: &str, error: &str) -> Vec<u8> {
    written(&Reply {
        response: ReplyWith::Error {
            request_id: id,
            error,
        },
    })
}
