//! The `mcp` protocol: a server of the Model Context Protocol on stdio, as a session.
//!
//! A server has no conversation to take up again, so it is never released, unless the
//! configuration says that it keeps nothing between its processes that matters
//! (`stateless = true`): then another process of it is as good, once it was greeted like the first.
//! The observer is in `mcp/observer.rs`; mostly a host speaks, through `mcp/relay.rs`.

use drowse_messages::{Conversation, Name, Recipe, WallTime};

use super::{Adapter, Observer, Plan, Relay, Seen};

mod lines;
mod observer;
mod relay;
#[cfg(test)]
mod tests;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mcp;

impl Adapter for Mcp {
    fn protocol(&self) -> Name {
        "mcp".parse().expect("\"mcp\" is a name")
    }

    /// Only the configuration knows better.
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
        Box::new(observer::McpObserver::default())
    }

    fn adopt(&self, checkpoint: &[u8], _: WallTime) -> Option<(Box<dyn Observer>, Seen)> {
        let (observer, seen) = observer::McpObserver::adopt(checkpoint)?;
        Some((Box::new(observer), seen))
    }

    fn relay(&self, memory: Option<&[u8]>) -> Option<Box<dyn Relay>> {
        Some(Box::new(relay::McpRelay::new(memory)))
    }
}
