//! What Codex asks a person, and how the answers are written.
//!
//! Fed by the observer with requests of the agent. Invariant: every request is either pending here
//! or, where Drowse is the client, answered at once, because Codex waits for each without a limit.
//! An ask is named by its request and its item: a Codex that was started anew numbers its requests
//! from 0 again, and an answer to an old one must not reach a new one.

use std::collections::BTreeMap;

use drowse_messages::{AgentStatus, Answer, Ask, AskKind};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::Seen;
use super::super::rpc::{Dialect, Id, METHOD_NOT_FOUND};
use super::super::text::{DETAIL_BYTES_MAX, TITLE_CHARS_MAX, block, cut, one_line};
use super::super::wire::{Part, read, text};
use super::lines::{Asked, Item, Piece, Property, Question, Schema, id};

/// 16: parallel sub-agents ask a handful at a time; each is written down with every checkpoint.
const ASKS_MAX: usize = 16;

/// 16: what a question asks for in one go fits a screen.
const FIELDS_MAX: usize = 16;

/// 128 bytes: names of fields are a word or two.
const FIELD_NAME_BYTES_MAX: usize = 128;

/// 8 files are named in the title of a change; all are in its detail.
const FILES_NAMED_MAX: usize = 8;

/// 4 KiB of what is asked are written down, so that all of them fit into a checkpoint.
const KEPT_BYTES_MAX: usize = 4 * 1024;

/// JSON-RPC: the other side is not to do this.
const REFUSED: i64 = -32000;

/// What is being asked now, by request.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Asks {
    /// A list, because JSON has no numbers as keys.
    pending: Vec<Pending>,
    /// The file change that began last, by its item: its approval does not repeat it.
    changing: Option<(String, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Pending {
    request: Id,
    thread: String,
    turn: String,
    item: String,
    #[serde(serialize_with = "shortened")]
    ask: Ask,
    form: Form,
}

/// Whoever goes on from here shows less of the detail: Codex has all of it in its own record.
fn shortened<S: Serializer>(ask: &Ask, to: S) -> Result<S::Ok, S::Error> {
    let detail = cut(&ask.detail, KEPT_BYTES_MAX).to_owned();
    let ask = Ask {
        detail,
        ..ask.clone()
    };
    ask.serialize(to)
}

/// How the answer is put.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    /// `accept` or `decline`.
    Decision,
    /// The permissions it wants, or none.
    Permissions(Box<RawValue>),
    /// Words by the ids of questions.
    Words(Vec<String>),
    /// What an MCP server wants to know: names of fields, and whether they are text.
    Fields(Vec<(String, bool)>),
}

impl Asks {
    /// A request of the agent. `refuses`: what nobody here knows has to be refused.
    pub(super) fn asked(
        &mut self,
        seen: &mut Seen,
        request: &Id,
        (method, params): (&str, Part<'_>),
        refuses: bool,
    ) {
        let asked: Asked<'_> = read(params).unwrap_or_default();
        let Some((kind, title, form)) = self.read(method, &asked) else {
            if refuses {
                let why = "not supported by this client";
                let line = Dialect::Bare.refusal(request, METHOD_NOT_FOUND, why);
                seen.write.push(line);
            }
            return;
        };
        if self.pending.len() >= ASKS_MAX {
            if refuses {
                let why = "too many questions are pending";
                let line = Dialect::Bare.refusal(request, REFUSED, why);
                seen.write.push(line);
            }
            return;
        }
        let owned = |part| id(part).unwrap_or_default().into_owned();
        let (thread, turn, item) = (
            owned(asked.thread_id),
            owned(asked.turn_id),
            owned(asked.item_id),
        );
        let detail = params.map_or("", RawValue::get);
        let ask = Ask {
            id: one_line(&format!("{request}:{item}"), TITLE_CHARS_MAX),
            kind,
            title: one_line(&title, TITLE_CHARS_MAX),
            detail: block(detail, DETAIL_BYTES_MAX),
        };
        seen.status(AgentStatus::Asked(ask.clone()));
        self.settle(&mut Seen::default(), request);
        self.pending.push(Pending {
            request: request.clone(),
            thread,
            turn,
            item,
            ask,
            form,
        });
    }

    /// What this request asks; `None`: nothing for a person.
    fn read(&self, method: &str, asked: &Asked<'_>) -> Option<(AskKind, String, Form)> {
        let reason = text(asked.reason).filter(|reason| !reason.is_empty());
        let with_reason = |what: String| match &reason {
            Some(reason) => format!("{what} ({reason})"),
            None => what,
        };
        match method {
            "item/commandExecution/requestApproval" => {
                let command = text(asked.command).unwrap_or_default();
                let what = with_reason(format!("run: {command}"));
                Some((AskKind::Approval, what, Form::Decision))
            }
            "item/fileChange/requestApproval" => {
                let item = id(asked.item_id).unwrap_or_default();
                let known = self.changing.as_ref().filter(|(id, _)| *id == item);
                let what = known.map_or("change files", |(_, what)| what.as_str());
                let what = with_reason(what.to_owned());
                Some((AskKind::Approval, what, Form::Decision))
            }
            "item/permissions/requestApproval" => {
                let wanted = asked.permissions?;
                let is_short = wanted.get().len() <= KEPT_BYTES_MAX;
                let what = with_reason("more permissions".to_owned());
                is_short.then(|| {
                    (
                        AskKind::Approval,
                        what,
                        Form::Permissions(wanted.to_owned()),
                    )
                })
            }
            "item/tool/requestUserInput" => {
                let all: Vec<Question<'_>> = read(asked.questions)?;
                let first = text(all.first()?.question)?.into_owned();
                let id = |question: &Question<'_>| id(question.id).map(|id| id.into_owned());
                let ids = all.iter().take(FIELDS_MAX).filter_map(id).collect();
                Some((AskKind::Question, first, Form::Words(ids)))
            }
            "mcpServer/elicitation/request" => {
                let server = text(asked.server_name).unwrap_or_default();
                let message = text(asked.message).unwrap_or_default();
                let fields = fields(asked.schema);
                let kind = if fields.is_empty() {
                    AskKind::Approval
                } else {
                    AskKind::Question
                };
                Some((kind, format!("{server}: {message}"), Form::Fields(fields)))
            }
            _ => None,
        }
    }

    /// A file change begins; its approval may be asked next.
    pub(super) fn changes(&mut self, id: &str, item: &Item<'_>) {
        let all: Vec<Piece<'_>> = read(item.changes).unwrap_or_default();
        let named = all.iter().take(FILES_NAMED_MAX);
        let names: Vec<_> = named.filter_map(|piece| text(piece.path)).collect();
        let more = if all.len() > FILES_NAMED_MAX {
            ", …"
        } else {
            ""
        };
        let what = format!("change {}{more}", names.join(", "));
        self.changing = Some((id.to_owned(), one_line(&what, TITLE_CHARS_MAX)));
    }

    /// What is being asked, for whoever did not hear it.
    pub(super) fn restate(&self, seen: &mut Seen) {
        for pending in &self.pending {
            seen.status(AgentStatus::Asked(pending.ask.clone()));
        }
    }

    /// Writes a person's answer, once.
    pub(super) fn answer(&mut self, id: &str, answer: &Answer) -> Seen {
        let Some(at) = self.pending.iter().position(|it| it.ask.id == id) else {
            return Seen::default();
        };
        let pending = self.pending.remove(at);
        let result = pending.form.answered(answer);
        let mut seen = Seen::writing(Dialect::Bare.answer(&pending.request, &result));
        seen.status(AgentStatus::Settled { id: id.to_owned() });
        seen
    }

    /// One was answered by somebody else, or withdrawn by the agent: the item it was about.
    pub(super) fn settle(&mut self, seen: &mut Seen, request: &Id) -> Option<String> {
        self.settle_if(seen, |pending| pending.request == *request)
            .pop()
    }

    /// This turn waits for nobody any more: the items it waited for.
    pub(super) fn turn_over(&mut self, seen: &mut Seen, thread: &str, turn: &str) -> Vec<String> {
        self.settle_if(seen, |it| it.thread == thread && it.turn == turn)
    }

    fn settle_if(&mut self, seen: &mut Seen, is_over: impl Fn(&Pending) -> bool) -> Vec<String> {
        let over = self.pending.extract_if(.., |pending| is_over(pending));
        let settled = over.map(|Pending { ask, item, .. }| {
            seen.status(AgentStatus::Settled { id: ask.id });
            item
        });
        settled.collect()
    }
}

impl Form {
    /// Words in place of a yes are a no: Codex takes no reason with it.
    fn answered(&self, answer: &Answer) -> Value {
        let allows = matches!(answer, Answer::Allow);
        match self {
            Self::Decision if allows => json!({ "decision": "accept" }),
            Self::Decision => json!({ "decision": "decline" }),
            // For this turn, which is what the agent does when it is not told.
            Self::Permissions(wanted) if allows => json!({ "permissions": wanted }),
            Self::Permissions(_) => json!({ "permissions": {} }),
            Self::Words(ids) => {
                let words = match answer {
                    Answer::Text(words) => words.as_str(),
                    Answer::Allow | Answer::Deny => "",
                };
                let answers: BTreeMap<&str, Value> = by_line(ids, words)
                    .map(|(id, words)| (id.as_str(), json!({ "answers": [words] })))
                    .collect();
                json!({ "answers": answers })
            }
            Self::Fields(fields) => match answer {
                Answer::Text(words) if !fields.is_empty() => {
                    let content: BTreeMap<&str, Value> = by_line(fields, words)
                        .map(|((name, is_text), words)| (name.as_str(), value(words, *is_text)))
                        .collect();
                    json!({ "action": "accept", "content": content })
                }
                Answer::Allow => json!({ "action": "accept", "content": {} }),
                Answer::Deny | Answer::Text(_) => json!({ "action": "decline" }),
            },
        }
    }
}

/// With several questions, the first line answers the first one, and so on; the last takes what
/// is left. Questions without a line are not answered.
fn by_line<'a, T>(asked: &'a [T], words: &'a str) -> impl Iterator<Item = (&'a T, &'a str)> {
    let lines = words.splitn(asked.len().max(1), '\n').map(str::trim);
    let said = lines.filter(move |line| !line.is_empty() || !words.trim().is_empty());
    asked.iter().zip(said)
}

/// A word for a field that is no text is read as JSON, if it is JSON.
fn value(words: &str, is_text: bool) -> Value {
    let json = (!is_text).then(|| serde_json::from_str(words).ok());
    json.flatten().unwrap_or_else(|| Value::from(words))
}

fn fields(schema: Part<'_>) -> Vec<(String, bool)> {
    let schema: Schema<'_> = read(schema).unwrap_or_default();
    let all: BTreeMap<String, Property<'_>> = read(schema.properties).unwrap_or_default();
    let is_text = |property: &Property<'_>| text(property.kind).as_deref() == Some("string");
    all.into_iter()
        .filter(|(name, _)| name.len() <= FIELD_NAME_BYTES_MAX)
        .take(FIELDS_MAX)
        .map(|(name, property)| (name, is_text(&property)))
        .collect()
}
