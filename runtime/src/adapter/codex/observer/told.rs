//! What Codex tells without being asked: turns, items and what becomes of them.
//!
//! Fed by the observer with notifications. Those of the session's thread are its turns and its
//! words; those of other threads are background work. Invariant: what goes on beyond a turn is
//! told before the turn's end, so that nobody sees a rest in between.

use drowse_messages::{AgentStatus, Busy, BusyKind, TurnEnded};

use super::super::super::Seen;
use super::super::super::rpc::Id;
use super::super::super::wire::{flag, read, text};
use super::super::lines::{About, Item, Params, Turn as TurnPart, TurnError, id};
use super::CodexObserver;

const COMPACTION: &str = "compaction";

impl CodexObserver {
    pub(super) fn told(&mut self, seen: &mut Seen, method: &str, params: &Params<'_>) {
        let thread = id(params.thread_id).unwrap_or_default();
        let is_main = self.threads.is_main(&thread);
        match method {
            "item/agentMessage/delta" if is_main => {
                self.streamed = id(params.item_id).map(|id| id.into_owned());
                let words = text(params.delta).unwrap_or_default();
                self.paragraphs.say(seen, &words);
            }
            "item/started" | "item/completed" => {
                let item: Item<'_> = read(params.item).unwrap_or_default();
                let turn = id(params.turn_id).unwrap_or_default();
                self.item(seen, method == "item/started", (&thread, &turn), &item);
            }
            "turn/started" | "turn/completed" => {
                let turn: TurnPart<'_> = read(params.turn).unwrap_or_default();
                let Some(id) = id(turn.id) else { return };
                match (method == "turn/started", is_main) {
                    (true, true) => self.turn_started(seen, &thread, &id),
                    (true, false) => self.tasks.turn_began(&id, &thread),
                    (false, true) => self.turn_completed(seen, &thread, &id, &turn),
                    (false, false) => {
                        self.over(seen, &thread, &id, &turn);
                        self.tasks.turn_over(&id);
                    }
                }
                self.tasks.tell(seen, self.turn.running());
            }
            "serverRequest/resolved" => {
                let withdrawn =
                    read::<Id>(params.request_id).and_then(|id| self.asks.settle(seen, &id));
                if let Some(item) = withdrawn {
                    self.tasks.bar(&item);
                }
            }
            "error" if flag(params.will_retry) => {
                let error: TurnError<'_> = read(params.error).unwrap_or_default();
                let message = text(error.message).unwrap_or_default();
                self.notices
                    .tell(seen, &format!("codex tries again: {message}"));
            }
            "model/rerouted" if is_main => {
                let name = |part| text(part).unwrap_or_default();
                let (from, to) = (name(params.from_model), name(params.to_model));
                self.notices
                    .tell(seen, &format!("codex goes on with {to} instead of {from}"));
            }
            _ => {}
        }
    }

    fn item(
        &mut self,
        seen: &mut Seen,
        begins: bool,
        (thread, turn): (&str, &str),
        item: &Item<'_>,
    ) {
        let is_main = self.threads.is_main(thread);
        let id = id(item.id).unwrap_or_default();
        match (text(item.kind).as_deref(), begins) {
            (Some("commandExecution"), true) => {
                self.tasks.began(&id, (thread, turn), item);
                self.tasks.tell(seen, self.turn.running());
            }
            (Some("commandExecution"), false) => {
                self.tasks.ended(&id);
                self.tasks.tell(seen, self.turn.running());
            }
            (Some("collabAgentToolCall"), _) => self.tasks.named(item),
            (Some("fileChange"), true) => self.asks.changes(&id, item),
            (Some("contextCompaction"), true) if is_main => self.compacts(seen),
            (Some("contextCompaction"), false) if is_main => self.compacted(seen),
            (Some("userMessage"), true) if is_main => self.turn.took(),
            (Some("agentMessage"), true) if is_main => self.paragraphs.begin(),
            (Some("agentMessage"), false) if is_main => {
                let words = text(item.text).unwrap_or_default();
                if self.streamed.as_deref() != Some(&*id) {
                    self.paragraphs.say(seen, &words);
                }
                self.turn.said(&words);
            }
            (Some(_) | None, _) => {}
        }
    }

    pub(super) fn turn_started(&mut self, seen: &mut Seen, thread: &str, id: &str) {
        if self.turn.started(id) {
            let line = self.turn_interrupt(thread, id);
            seen.write.push(line);
        }
        seen.status(AgentStatus::TurnStarted);
    }

    pub(super) fn turn_completed(
        &mut self,
        seen: &mut Seen,
        thread: &str,
        id: &str,
        turn: &TurnPart<'_>,
    ) {
        self.compacted(seen);
        self.over(seen, thread, id, turn);
        let ended = self.turn.completed(id, turn);
        self.paragraphs.turn_ended();
        // What goes on beyond the turn is told before its end.
        self.tasks.tell(seen, self.turn.running());
        self.end(seen, Some(ended));
        let (held, ended) = self.turn.after();
        self.end(seen, ended);
        for text in held {
            let line = self.turn_start(thread, &text);
            seen.write.push(line);
        }
    }

    /// A turn of any thread is over.
    fn over(&mut self, seen: &mut Seen, thread: &str, id: &str, turn: &TurnPart<'_>) {
        for item in self.asks.turn_over(seen, thread, id) {
            self.tasks.bar(&item);
        }
        if text(turn.status).as_deref() != Some("completed") {
            self.tasks.cut_short(id);
        }
        self.threads.turn_ended(seen, thread);
    }

    pub(super) fn end(&mut self, seen: &mut Seen, ended: Option<TurnEnded>) {
        let Some(mut ended) = ended else { return };
        // Codex has not said yet which turn these belong to.
        ended.left += self.unanswered();
        seen.status(AgentStatus::TurnEnded(ended));
        if self.turn.running().is_some() {
            // A prompt was refused, or answered, beside the turn that runs.
            seen.status(AgentStatus::TurnStarted);
        }
    }

    pub(super) fn turn_interrupt(&mut self, thread: &str, turn: &str) -> Vec<u8> {
        let about = About {
            thread_id: Some(thread),
            turn_id: Some(turn),
            ..About::default()
        };
        self.about("turn/interrupt", &about)
    }

    fn compacts(&mut self, seen: &mut Seen) {
        if !std::mem::replace(&mut self.compacting, true) {
            seen.status(compaction());
        }
    }

    fn compacted(&mut self, seen: &mut Seen) {
        if std::mem::take(&mut self.compacting) {
            seen.status(AgentStatus::BusyEnded {
                key: COMPACTION.to_owned(),
            });
        }
    }
}

pub(super) fn compaction() -> AgentStatus {
    AgentStatus::BusyStarted(Busy {
        key: COMPACTION.to_owned(),
        kind: BusyKind::Compaction,
        what: "making the conversation shorter".to_owned(),
    })
}
