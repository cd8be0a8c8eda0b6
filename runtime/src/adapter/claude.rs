//! The `claude` protocol: Claude Code's stream-json, one JSON object per line.
//!
//! The plan adds what makes Claude speak it, a session id for a new conversation or `--resume`
//! for a known one, never both. The observer is in `claude/observer.rs`; it reads lines cheaply
//! and takes apart only those that change something.

use drowse_messages::{Conversation, Name, Recipe, WallTime};

use super::argv::{Opt, Value, add, has, without};
use super::{Adapter, Observer, Plan, Relay, Seen};

mod asks;
mod lines;
mod observer;
mod relay;
mod tasks;
#[cfg(test)]
mod tests;
mod timers;
mod turn;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claude;

/// What the protocol needs, as spelled by Claude: the option, and the words to add without it.
const WANTED: [(Opt, &[&str]); 7] = [
    (Opt::flag(&["-p", "--print"]), &["-p"]),
    (
        Opt::with_value(&["--input-format"]),
        &["--input-format", "stream-json"],
    ),
    (
        Opt::with_value(&["--output-format"]),
        &["--output-format", "stream-json"],
    ),
    (Opt::flag(&["--verbose"]), &["--verbose"]),
    (
        Opt::flag(&["--include-partial-messages"]),
        &["--include-partial-messages"],
    ),
    // The echo is the only proof of which turn took a prompt in: one sent while Claude reports on
    // a background task is answered by a result that is marked as not being an answer.
    (
        Opt::flag(&["--replay-user-messages"]),
        &["--replay-user-messages"],
    ),
    (
        Opt::with_value(&["--permission-prompt-tool"]),
        &["--permission-prompt-tool", "stdio"],
    ),
];

/// Options that choose the conversation.
const CHOOSING: [Opt; 4] = [
    Opt {
        names: &["--resume", "-r"],
        value: Value::Maybe,
    },
    Opt::with_value(&["--session-id"]),
    Opt::flag(&["--continue", "-c"]),
    Opt::flag(&["--fork-session"]),
];

/// Makes Claude say when it is idle, running or waiting for a person.
const STATE_EVENTS: &str = "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS";

impl Adapter for Claude {
    fn protocol(&self) -> Name {
        "claude".parse().expect("\"claude\" is a name")
    }

    fn known_agents(&self) -> Vec<(Name, Vec<String>)> {
        vec![(self.protocol(), vec!["claude".to_owned()])]
    }

    fn can_resume(&self) -> bool {
        true
    }

    fn reports_tasks(&self) -> bool {
        true
    }

    fn steers(&self) -> bool {
        true
    }

    fn plan(&self, recipe: &Recipe, conversation: Option<&Conversation>, fresh_id: &str) -> Plan {
        let resumed = conversation.filter(|known| known.resumable);
        let mut argv = match resumed {
            Some(_) => without(&recipe.argv, &CHOOSING),
            None => recipe.argv.clone(),
        };
        for (option, words) in &WANTED {
            if !has(&argv, option) {
                add(&mut argv, words);
            }
        }
        match (resumed, conversation) {
            (Some(known), _) => add(&mut argv, &["--resume", &known.native_id]),
            // The caller chose a conversation, and there is nothing of ours to resume yet.
            (None, _) if CHOOSING.iter().any(|option| has(&argv, option)) => {}
            // Nothing is on Claude's disk, so it takes the same id again.
            (None, Some(known)) => add(&mut argv, &["--session-id", &known.native_id]),
            (None, None) => add(&mut argv, &["--session-id", fresh_id]),
        }
        let mut env = recipe.env.clone();
        env.entry(STATE_EVENTS.to_owned())
            .or_insert_with(|| "1".to_owned());
        Plan { argv, env }
    }

    /// Nothing is added that the host would notice: neither arguments nor variables.
    fn relay_plan(&self, recipe: &Recipe, conversation: Option<&Conversation>) -> Plan {
        let mut argv = recipe.argv.clone();
        if let Some(known) = conversation {
            argv = without(&argv, &CHOOSING);
            add(&mut argv, &["--resume", &known.native_id]);
        }
        Plan {
            argv,
            env: recipe.env.clone(),
        }
    }

    fn relay(&self, memory: Option<&[u8]>) -> Option<Box<dyn Relay>> {
        Some(Box::new(relay::ClaudeRelay::new(memory)))
    }

    fn observe(&self, conversation: Option<&Conversation>, fresh_id: &str) -> Box<dyn Observer> {
        Box::new(observer::ClaudeObserver::new(conversation, fresh_id))
    }

    fn adopt(&self, checkpoint: &[u8], now: WallTime) -> Option<(Box<dyn Observer>, Seen)> {
        let (observer, seen) = observer::ClaudeObserver::adopt(checkpoint, now)?;
        Some((Box::new(observer), seen))
    }
}
