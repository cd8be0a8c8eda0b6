//! The `acp` protocol: the Agent Client Protocol, version 1, JSON-RPC lines.
//!
//! One adapter for every agent that speaks it; what single agents do differently is a row of the
//! table in `acp/known.rs`. The plan adds the words that make a known agent speak it, and for Gemini the conversation. Conversation,
//! folder and settings are all said in the handshake, which is the observer's (`acp/observer.rs`).

use drowse_messages::{Conversation, Name, Recipe, WallTime};

use super::{Adapter, Observer, Plan, Relay, Seen};

mod asks;
mod handshake;
mod known;
mod lines;
mod observer;
mod relay;
mod settings;
#[cfg(test)]
mod tests;
mod turn;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acp;

impl Adapter for Acp {
    fn protocol(&self) -> Name {
        "acp".parse().expect("\"acp\" is a name")
    }

    fn known_agents(&self) -> Vec<(Name, Vec<String>)> {
        known::agents()
    }

    /// Whether this agent can, its conversations say: one that cannot never reports one that can
    /// be resumed.
    fn can_resume(&self) -> bool {
        true
    }

    /// The protocol has no word for background work.
    fn reports_tasks(&self) -> bool {
        false
    }

    fn plan(&self, recipe: &Recipe, conversation: Option<&Conversation>, _: &str) -> Plan {
        let argv = known::speaking(&recipe.argv);
        Plan {
            argv: taking_up(argv, conversation),
            env: recipe.env.clone(),
        }
    }

    fn relay_plan(&self, recipe: &Recipe, conversation: Option<&Conversation>) -> Plan {
        Plan {
            argv: taking_up(recipe.argv.clone(), conversation),
            env: recipe.env.clone(),
        }
    }

    fn observe(&self, conversation: Option<&Conversation>, _: &str) -> Box<dyn Observer> {
        Box::new(observer::AcpObserver::new(conversation, "/"))
    }

    fn observe_in(
        &self,
        recipe: &Recipe,
        conversation: Option<&Conversation>,
        _: &str,
    ) -> Box<dyn Observer> {
        let cwd = recipe.cwd.to_string_lossy();
        Box::new(observer::AcpObserver::new(conversation, &cwd))
    }

    fn adopt(&self, checkpoint: &[u8], _: WallTime) -> Option<(Box<dyn Observer>, Seen)> {
        let (observer, seen) = observer::AcpObserver::adopt(checkpoint)?;
        Some((Box::new(observer), seen))
    }

    fn relay(&self, memory: Option<&[u8]>) -> Option<Box<dyn Relay>> {
        Some(Box::new(relay::AcpRelay::new(memory)))
    }
}

/// The command line, for a conversation to take up where there is one.
fn taking_up(argv: Vec<String>, conversation: Option<&Conversation>) -> Vec<String> {
    match conversation.filter(|known| known.resumable) {
        Some(known) => known::taking_up(&argv, &known.native_id),
        None => argv,
    }
}
