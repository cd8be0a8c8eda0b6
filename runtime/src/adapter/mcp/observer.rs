//! Follows one process of a server.
//!
//! Fed by the backend's link. A turn is as long as any request is in flight, whoever made it; pings
//! are none. It goes by what is written to the server, so a host's requests are understood like
//! those of Drowse. Invariant: every request of the server's is answered, because it waits.

use drowse_messages::{AgentStatus, Answer, Conversation, TurnEnded, TurnOutcome};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::rpc::{Dialect, Id, Kind, METHOD_NOT_FOUND, Message, Ours, Pending};
use super::super::text::{ANSWER_BYTES_MAX, NOTICE_CHARS_MAX, cut, one_line};
use super::super::wire::{Notices, read, text};
use super::super::{Direction, Fact, Observer, Seen, kept};
use super::lines::{Cancelled, Empty, Initialize, Params};

/// 1,000: far more requests than an observer can have numbered after its last checkpoint.
const UNKNOWN_REQUESTS: u64 = 1_000;

/// A request that was written and not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Call {
    Initialize,
    Work,
}

/// See the module. What it must know to go on in another daemon is written down.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct McpObserver {
    ready: bool,
    /// A host speaks with the server.
    listens: bool,
    calls: Pending<Call>,
    ours: Ours,
    #[serde(skip)]
    notices: Notices,
}

impl McpObserver {
    /// What `checkpoint` holds, restated; none if that server was not ready yet, and
    /// nobody else greets it.
    pub(super) fn adopt(checkpoint: &[u8]) -> Option<(Self, Seen)> {
        let mut this: Self = kept::restore(checkpoint)?;
        if !this.ready && !this.listens {
            return None;
        }
        let mut seen = Seen::default();
        seen.status_if(this.ready, conversation());
        seen.status_if(this.works(), AgentStatus::TurnStarted);
        this.ours.skip(UNKNOWN_REQUESTS);
        Some((this, seen))
    }

    fn works(&self) -> bool {
        self.calls.iter().any(|(_, call)| *call == Call::Work)
    }

    /// A message to the server.
    fn written(&mut self, seen: &mut Seen, message: &Message<'_>) {
        match (message.kind(), message.method.as_deref()) {
            (Kind::Request(_), Some("ping")) => {}
            (Kind::Request(id), Some("initialize")) => self.calls.asked(id, Call::Initialize),
            (Kind::Request(id), Some(_)) => {
                if !self.works() {
                    self.notices.reset();
                    seen.status(AgentStatus::TurnStarted);
                }
                self.calls.asked(id, Call::Work);
            }
            (Kind::Notification, Some("notifications/initialized")) => self.ready(seen),
            // A server need not answer what it was told to leave.
            (Kind::Notification, Some("notifications/cancelled")) => {
                let params: Params<'_> = read(message.params).unwrap_or_default();
                if let Some(id) = read::<Id>(params.request_id) {
                    self.done(seen, &id, TurnOutcome::Interrupted, "");
                }
            }
            (Kind::Request(_) | Kind::Notification | Kind::Answer(_) | Kind::Odd, _) => {}
        }
    }

    /// A message of the server's.
    fn said(&mut self, seen: &mut Seen, message: &Message<'_>) {
        match (message.kind(), message.method.as_deref()) {
            (Kind::Request(id), Some("ping")) => {
                seen.write.push(Dialect::Tagged.answer(&id, &Empty {}));
            }
            (Kind::Request(id), method) => {
                let method = one_line(method.unwrap_or_default(), NOTICE_CHARS_MAX);
                let no = format!("method not found: {method}");
                let line = Dialect::Tagged.refusal(&id, METHOD_NOT_FOUND, &no);
                seen.write.push(line);
            }
            (Kind::Answer(id), _) => match self.calls.get(&id) {
                Some(Call::Initialize) => self.initialized(seen, &id, message),
                Some(Call::Work) => match message.failure() {
                    Some(error) => {
                        let error = cut(&error, NOTICE_CHARS_MAX).to_owned();
                        self.done(seen, &id, TurnOutcome::Failed { error }, "");
                    }
                    None => {
                        let result = message.result.map_or("", RawValue::get);
                        self.done(seen, &id, TurnOutcome::Completed, result);
                    }
                },
                None => {}
            },
            // How far something is: shown to whoever watches.
            (Kind::Notification, Some("notifications/progress")) => {
                let params: Params<'_> = read(message.params).unwrap_or_default();
                if let Some(words) = text(params.message) {
                    let line = one_line(&words, NOTICE_CHARS_MAX) + "\n";
                    seen.facts.push(Fact::Output(line));
                }
            }
            (Kind::Notification | Kind::Odd, _) => {}
        }
    }

    fn initialized(&mut self, seen: &mut Seen, id: &Id, answer: &Message<'_>) {
        self.calls.answered(id);
        if !id.is_ours() {
            return;
        }
        if let Some(error) = answer.failure() {
            let detail = format!("the server does not take \"initialize\": {error}");
            let detail = one_line(&detail, NOTICE_CHARS_MAX);
            let retry = false;
            return seen.status(AgentStatus::CannotStart { detail, retry });
        }
        let line = Dialect::Tagged.notification("notifications/initialized", &Empty {});
        seen.write.push(line);
    }

    fn ready(&mut self, seen: &mut Seen) {
        if !std::mem::replace(&mut self.ready, true) {
            seen.status(conversation());
            seen.status(AgentStatus::Ready);
        }
    }

    /// A request is over; the last one ends the turn.
    fn done(&mut self, seen: &mut Seen, id: &Id, outcome: TurnOutcome, result: &str) {
        if self.calls.answered(id) != Some(Call::Work) || self.works() {
            return;
        }
        seen.status(AgentStatus::TurnEnded(TurnEnded {
            outcome,
            text: cut(result, ANSWER_BYTES_MAX).to_owned(),
            answers: true,
            left: 0,
        }));
    }
}

/// A server has no conversation: any process of it is as good as another.
fn conversation() -> AgentStatus {
    AgentStatus::Conversation(Conversation {
        resumable: true,
        ..Conversation::default()
    })
}

impl Observer for McpObserver {
    fn open(&mut self) -> Seen {
        let id = self.ours.next();
        Seen::writing(Dialect::Tagged.request(&id, "initialize", &Initialize::ours()))
    }

    fn listen(&mut self) -> Seen {
        self.listens = true;
        Seen::default()
    }

    fn observe(&mut self, direction: Direction, line: &[u8]) -> Seen {
        let mut seen = Seen::default();
        if let Some(message) = self.notices.message(&mut seen, line, |_| true) {
            match direction {
                Direction::In => self.written(&mut seen, &message),
                Direction::Out => self.said(&mut seen, &message),
            }
        }
        if self.listens {
            // What the server asks, the host answers.
            seen.write.clear();
        }
        seen
    }

    /// A message is a request: a method, and after it its parameters as JSON, if it has any.
    fn prompt(&mut self, text: &str) -> Seen {
        let text = text.trim();
        let (method, params) = text.split_once(char::is_whitespace).unwrap_or((text, "{}"));
        let params = RawValue::from_string(params.trim().to_owned())
            .or_else(|_| serde_json::value::to_raw_value(params))
            .expect("text always becomes JSON");
        let id = self.ours.next();
        Seen::writing(Dialect::Tagged.request(&id, method, &params))
    }

    fn interrupt(&mut self) -> Seen {
        let mut seen = Seen::default();
        let ours = self.calls.iter().filter(|(id, _)| id.is_ours());
        for (request_id, _) in ours.filter(|(_, call)| **call == Call::Work) {
            let cancelled = Cancelled {
                request_id,
                reason: "interrupted",
            };
            let method = "notifications/cancelled";
            seen.write
                .push(Dialect::Tagged.notification(method, &cancelled));
        }
        seen
    }

    /// Nothing is asked of a person.
    fn answer(&mut self, _: &str, _: &Answer) -> Seen {
        Seen::default()
    }

    /// A server goes at the end of its input.
    fn close(&mut self) -> Seen {
        Seen::default()
    }

    fn exited(&mut self, _: &str) -> Vec<Fact> {
        Vec::new()
    }

    fn checkpoint(&self) -> Option<Vec<u8>> {
        (self.ready || self.listens).then(|| kept::keep(self))
    }
}
