//! The adapters of one daemon, by the protocol they speak.

use std::collections::BTreeMap;
use std::sync::Arc;

use drowse_messages::Name;
use drowse_policy::session::AgentTraits;

use crate::adapter::{Acp, Adapter, Claude, Codex, Mcp, Pi, Raw};
use crate::config::Protocol;

/// Adapters by protocol; two for one protocol are refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adapters {
    by_protocol: BTreeMap<Name, Arc<dyn Adapter>>,
}

impl Adapters {
    /// Those Drowse ships.
    pub(crate) fn shipped() -> Self {
        let shipped: [Arc<dyn Adapter>; 6] = [
            Arc::new(Acp),
            Arc::new(Claude),
            Arc::new(Codex),
            Arc::new(Mcp),
            Arc::new(Pi),
            Arc::new(Raw),
        ];
        let by_protocol = shipped
            .into_iter()
            .map(|adapter| (adapter.protocol(), adapter))
            .collect();
        Self { by_protocol }
    }

    /// Adds one, or says which protocol is spoken already.
    pub(crate) fn add(&mut self, adapter: Arc<dyn Adapter>) -> Result<(), Name> {
        let protocol = adapter.protocol();
        if self.by_protocol.contains_key(&protocol) {
            return Err(protocol);
        }
        self.by_protocol.insert(protocol, adapter);
        Ok(())
    }

    pub(crate) fn get(&self, protocol: &Name) -> Option<Arc<dyn Adapter>> {
        self.by_protocol.get(protocol).cloned()
    }

    /// What the configuration must know of them.
    pub(crate) fn protocols(&self) -> Vec<Protocol> {
        self.by_protocol
            .values()
            .map(|adapter| Protocol {
                name: adapter.protocol(),
                agents: adapter.known_agents(),
                traits: AgentTraits {
                    can_resume: adapter.can_resume(),
                    reports_tasks: adapter.reports_tasks(),
                    observed: adapter.can_resume() && !adapter.reports_tasks(),
                    steers: adapter.steers(),
                },
            })
            .collect()
    }
}
