//! The `pi` protocol: Pi's RPC mode, one JSON object per line.
//!
//! Two dialects: since 1.0 a run of the agent ends with `agent_settled`; before, with
//! `agent_end`. The plan adds the mode, and `--session` for a conversation to resume; a new one
//! gets its id from Pi. The observer is in `pi/observer.rs`.

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
mod turn;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pi;

const MODE: Opt = Opt::with_value(&["--mode"]);

/// Options that choose the conversation.
const CHOOSING: [Opt; 5] = [
    Opt::with_value(&["--session"]),
    Opt::with_value(&["--session-id"]),
    Opt::with_value(&["--fork"]),
    Opt::flag(&["--continue", "-c"]),
    Opt {
        names: &["--resume", "-r"],
        value: Value::No,
    },
];

impl Adapter for Pi {
    fn protocol(&self) -> Name {
        "pi".parse().expect("\"pi\" is a name")
    }

    fn known_agents(&self) -> Vec<(Name, Vec<String>)> {
        vec![(self.protocol(), vec!["pi".to_owned()])]
    }

    fn can_resume(&self) -> bool {
        true
    }

    /// Only extensions report tasks, by a convention: an unknown roster would never be known.
    fn reports_tasks(&self) -> bool {
        false
    }

    fn steers(&self) -> bool {
        true
    }

    fn plan(&self, recipe: &Recipe, conversation: Option<&Conversation>, _: &str) -> Plan {
        // Pi writes a conversation down with its first answer: before, there is nothing to resume.
        let resumed = conversation.filter(|known| known.resumable);
        let mut argv = match resumed {
            Some(_) => without(&recipe.argv, &CHOOSING),
            None => recipe.argv.clone(),
        };
        if !has(&argv, &MODE) {
            add(&mut argv, &["--mode", "rpc"]);
        }
        if let Some(known) = resumed {
            add(
                &mut argv,
                &["--session", known.path.as_ref().unwrap_or(&known.native_id)],
            );
        }
        Plan {
            argv,
            env: recipe.env.clone(),
        }
    }

    /// Nothing is added but the conversation.
    fn relay_plan(&self, recipe: &Recipe, conversation: Option<&Conversation>) -> Plan {
        let mut argv = recipe.argv.clone();
        if let Some(known) = conversation {
            argv = without(&argv, &CHOOSING);
            let session = known.path.as_ref().unwrap_or(&known.native_id);
            add(&mut argv, &["--session", session]);
        }
        Plan {
            argv,
            env: recipe.env.clone(),
        }
    }

    fn relay(&self, memory: Option<&[u8]>) -> Option<Box<dyn Relay>> {
        Some(Box::new(relay::PiRelay::new(memory)))
    }

    fn observe(&self, conversation: Option<&Conversation>, _: &str) -> Box<dyn Observer> {
        Box::new(observer::PiObserver::new(conversation))
    }

    fn adopt(&self, checkpoint: &[u8], _: WallTime) -> Option<(Box<dyn Observer>, Seen)> {
        let (observer, seen) = observer::PiObserver::adopt(checkpoint)?;
        Some((Box::new(observer), seen))
    }
}
