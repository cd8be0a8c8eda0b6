//! The `raw` protocol: any program that reads lines and prints lines.
//!
//! Nothing of a turn is known, so bytes are activity and every line is output. A prompt counts as
//! answered as soon as it is written: whoever knows better takes a lease. Its conversation ends
//! with its process, so such a session is never released, and that is shown as the reason.

use drowse_messages::{
    AgentStatus, Answer, Conversation, Name, Recipe, TurnEnded, TurnOutcome, WallTime,
};
use serde::{Deserialize, Serialize};

use super::text::{ANSWER_BYTES_MAX, cut};
use super::{Adapter, Direction, Fact, Observer, Plan, Seen, kept};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw;

impl Adapter for Raw {
    fn protocol(&self) -> Name {
        "raw".parse().expect("\"raw\" is a name")
    }

    fn can_resume(&self) -> bool {
        false
    }

    fn reports_tasks(&self) -> bool {
        false
    }

    fn plan(&self, recipe: &Recipe, _: Option<&Conversation>, _: &str) -> Plan {
        Plan::of(recipe)
    }

    fn observe(&self, _: Option<&Conversation>, _: &str) -> Box<dyn Observer> {
        Box::new(RawObserver::default())
    }

    fn adopt(&self, checkpoint: &[u8], _: WallTime) -> Option<(Box<dyn Observer>, Seen)> {
        let observer: RawObserver = kept::restore(checkpoint)?;
        Some((Box::new(observer), Seen::default()))
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct RawObserver {
    /// A host speaks to it: whether what it says is a prompt, nobody knows.
    listening: bool,
}

impl Observer for RawObserver {
    fn open(&mut self) -> Seen {
        Seen {
            facts: vec![Fact::Status(AgentStatus::Ready)],
            write: Vec::new(),
        }
    }

    fn listen(&mut self) -> Seen {
        self.listening = true;
        Seen::default()
    }

    fn observe(&mut self, direction: Direction, line: &[u8]) -> Seen {
        let mut seen = Seen::default();
        match direction {
            // Activity, and no turn. What an unknown program says is its host's alone.
            Direction::In | Direction::Out if self.listening => {
                seen.facts.push(Fact::Output(String::new()));
            }
            Direction::In => {
                seen.status(AgentStatus::TurnStarted);
                seen.status(AgentStatus::TurnEnded(TurnEnded {
                    outcome: TurnOutcome::Completed,
                    text: String::new(),
                    answers: true,
                    left: 0,
                }));
            }
            Direction::Out => {
                let start = &line[..line.len().min(ANSWER_BYTES_MAX)];
                let text = String::from_utf8_lossy(start);
                seen.facts
                    .push(Fact::Output(cut(&text, ANSWER_BYTES_MAX).to_owned() + "\n"));
            }
        }
        seen
    }

    /// The text is one message even when it has several lines: they arrive in one write.
    fn prompt(&mut self, text: &str) -> Seen {
        Seen::writing(format!("{text}\n").into_bytes())
    }

    fn interrupt(&mut self) -> Seen {
        Seen::default()
    }

    fn answer(&mut self, _: &str, _: &Answer) -> Seen {
        Seen::default()
    }

    fn close(&mut self) -> Seen {
        Seen::default()
    }

    fn exited(&mut self, _: &str) -> Vec<Fact> {
        Vec::new()
    }

    fn checkpoint(&self) -> Option<Vec<u8>> {
        Some(kept::keep(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D18: an agent that cannot resume is never released; its prompts are at rest once written.
    #[test]
    fn a_written_prompt_is_at_rest_at_once() {
        assert!(!Raw.can_resume());
        let mut observer = Raw.observe(None, "");
        assert_eq!(observer.open().facts, [Fact::Status(AgentStatus::Ready)]);
        assert_eq!(observer.prompt("do it").write, [b"do it\n"]);
        let seen = observer.observe(Direction::In, b"do it");
        assert!(matches!(
            &seen.facts[..],
            [
                Fact::Status(AgentStatus::TurnStarted),
                Fact::Status(AgentStatus::TurnEnded(TurnEnded { answers: true, .. }))
            ]
        ));
        let seen = observer.observe(Direction::Out, b"bad \xff byte");
        assert_eq!(seen.facts, [Fact::Output("bad \u{fffd} byte\n".to_owned())]);
    }
}
