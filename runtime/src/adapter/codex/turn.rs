//! Which turn of the session's thread is running, and whom its end answers.
//!
//! Fed by the observer. Codex takes a prompt into the turn that is running, and says for each
//! prompt which turn that is; during a compaction it takes none. Invariant: an end is reported as
//! an answer only if Codex said that a prompt belongs to that turn, or refused one.

use drowse_messages::{TurnEnded, TurnOutcome};
use serde::{Deserialize, Serialize, Serializer};

use super::super::text::{ANSWER_BYTES_MAX, cut};
use super::super::wire::{Part, read, text};
use super::lines::{Item, Turn as TurnPart, TurnError};

/// 4 KiB: an error is some lines; the rest is in the agent's own log.
const ERROR_BYTES_MAX: usize = 4 * 1024;

/// 16: prompts are sent one by one; each is kept until Codex has taken it in.
const PROMPTS_MAX: usize = 16;

/// 16 KiB are written down, so that a few of them fit into a checkpoint.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// What was said: by a prompt that may have to be said again, or by the agent. A long one is not
/// written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct Words(pub(super) Option<String>);

impl Serialize for Words {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let short = self.0.as_ref().filter(|text| text.len() <= KEPT_BYTES_MAX);
        short.serialize(to)
    }
}

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Turn {
    /// The id of the turn that runs.
    running: Option<String>,
    /// For each prompt that is not answered, the turn that Codex said it belongs to.
    accepted: Vec<String>,
    /// Prompts that the running turn took in, besides those that were steered into it.
    taken: i64,
    /// The turn that ended last.
    over: Option<String>,
    /// Prompts that a compaction keeps waiting.
    held: Vec<Words>,
    /// An interrupt was written, or is to be once the turn has an id.
    interrupted: bool,
    owed: bool,
    /// What the agent said last in this turn. Its end repeats it, mostly.
    said: Words,
}

impl Turn {
    /// A prompt was written.
    pub(super) fn prompted(&mut self) {
        self.interrupted = false;
    }

    /// The turn that runs.
    pub(super) fn running(&self) -> Option<&str> {
        self.running.as_deref()
    }

    /// True while a turn runs, or will without anybody's doing.
    pub(super) fn is_open(&self) -> bool {
        self.running.is_some() || !self.accepted.is_empty() || !self.held.is_empty()
    }

    /// True while the end of this turn is awaited.
    pub(super) fn awaits(&self, id: &str) -> bool {
        self.running.as_deref() == Some(id) || self.accepted.iter().any(|it| it == id)
    }

    /// A turn began; true when an interrupt has been waiting for that.
    pub(super) fn started(&mut self, id: &str) -> bool {
        if self.running.as_deref() != Some(id) {
            self.said = Words::default();
            self.taken = 0;
            self.running = Some(id.to_owned());
            // Ids of turns grow: one that was to come before this one never came. Codex 0.118
            // loses a prompt that meets a compaction.
            self.accepted.retain(|accepted| accepted.as_str() >= id);
        }
        std::mem::take(&mut self.owed)
    }

    /// Codex took a prompt in, into this turn. `Some` when that turn is over already.
    pub(super) fn accepted(&mut self, id: &str) -> Option<TurnEnded> {
        if self.over.as_deref() == Some(id) {
            return Some(TurnEnded {
                outcome: TurnOutcome::Completed,
                text: std::mem::take(&mut self.said).0.unwrap_or_default(),
                answers: true,
                left: self.left(),
            });
        }
        if self.accepted.len() < PROMPTS_MAX {
            self.accepted.push(id.to_owned());
        }
        None
    }

    /// The running turn took a prompt in.
    pub(super) fn took(&mut self) {
        self.taken = self.taken.saturating_add(1);
    }

    /// A host adds words to the running turn, which are no prompt.
    pub(super) fn steered(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// Codex refused a prompt because of what it does now: it waits for the end of that. `Some`
    /// when it cannot.
    pub(super) fn hold(&mut self, words: Words, error: &str) -> Option<TurnEnded> {
        if words.0.is_none() || self.held.len() >= PROMPTS_MAX {
            return Some(refused(error));
        }
        self.held.push(words);
        None
    }

    /// An interrupt was written.
    pub(super) fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// An interrupt is to be written once there is a turn.
    pub(super) fn owe_interrupt(&mut self) {
        self.owed = true;
    }

    /// The agent finished a text.
    pub(super) fn said(&mut self, text: &str) {
        self.said = Words(Some(cut(text, ANSWER_BYTES_MAX).to_owned()));
    }

    /// A turn is over.
    pub(super) fn completed(&mut self, id: &str, turn: &TurnPart<'_>) -> TurnEnded {
        let outcome = match text(turn.status).as_deref() {
            Some("interrupted") => TurnOutcome::Interrupted,
            Some("failed") => failed(turn.error),
            Some(_) | None => TurnOutcome::Completed,
        };
        let said = std::mem::take(&mut self.said).0;
        let text = last_text(turn.items).or(said).unwrap_or_default();
        if self.running.as_deref() == Some(id) {
            self.running = None;
        }
        self.owed = false;
        self.over = Some(id.to_owned());
        TurnEnded {
            outcome,
            text,
            answers: self.answers(id),
            left: self.left(),
        }
    }

    /// Prompts that wait for a turn that follows.
    fn left(&self) -> u32 {
        u32::try_from(self.accepted.len() + self.held.len()).unwrap_or(u32::MAX)
    }

    /// Whether the end of this turn answers a prompt. Codex 0.118 gives a prompt that it takes into
    /// a running turn an id of its own, so those that were taken in count as well.
    fn answers(&mut self, id: &str) -> bool {
        let before = self.accepted.len();
        self.accepted.retain(|accepted| accepted != id);
        let own = before - self.accepted.len();
        let taken = usize::try_from(std::mem::take(&mut self.taken)).unwrap_or(0);
        let others = taken.saturating_sub(own).min(self.accepted.len());
        self.accepted.drain(..others);
        own + others > 0
    }

    /// Prompts that waited for the end of the turn that is over: to be written again, or, when it
    /// was interrupted or one cannot be, their end.
    pub(super) fn after(&mut self) -> (Vec<String>, Option<TurnEnded>) {
        let held = std::mem::take(&mut self.held);
        let all = held.len();
        let words: Vec<String> = held.into_iter().filter_map(|words| words.0).collect();
        let ended = |outcome| TurnEnded {
            outcome,
            text: String::new(),
            answers: true,
            left: 0,
        };
        if all > 0 && std::mem::take(&mut self.interrupted) {
            return (Vec::new(), Some(ended(TurnOutcome::Interrupted)));
        }
        self.interrupted = false;
        let lost = (words.len() < all).then(|| TurnEnded {
            left: u32::try_from(words.len()).unwrap_or(u32::MAX),
            ..ended(TurnOutcome::Lost)
        });
        (words, lost)
    }
}

/// The end of a prompt that Codex did not take.
pub(super) fn refused(error: &str) -> TurnEnded {
    TurnEnded {
        outcome: TurnOutcome::Failed {
            error: cut(error, ERROR_BYTES_MAX).to_owned(),
        },
        text: String::new(),
        answers: true,
        left: 0,
    }
}

fn failed(error: Part<'_>) -> TurnOutcome {
    let parts: TurnError<'_> = read(error).unwrap_or_default();
    let message = text(parts.message).unwrap_or_default();
    let error = match text(parts.details).filter(|details| !details.is_empty()) {
        Some(details) => format!("{message}: {details}"),
        None if message.is_empty() => "codex does not say why".to_owned(),
        None => message.into_owned(),
    };
    let error = cut(&error, ERROR_BYTES_MAX).to_owned();
    TurnOutcome::Failed { error }
}

/// The last text among the items that a turn's end repeats.
fn last_text(items: Part<'_>) -> Option<String> {
    let items: Vec<Item<'_>> = read(items)?;
    let is_text = |item: &&Item<'_>| text(item.kind).as_deref() == Some("agentMessage");
    let last = items.iter().rfind(is_text)?;
    let said = text(last.text)?;
    Some(cut(&said, ANSWER_BYTES_MAX).to_owned())
}
