//! The configuration in force, shared by everything that asks it, and replaced as a whole.
//!
//! Fed by SIGHUP and by whoever reads. Invariant: a configuration that was refused never replaces
//! one that was accepted.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use drowse_actors::ports::Catalog;
use drowse_messages::{LimitOverrides, Limits, Name};
use drowse_policy::session::AgentTraits;

use super::{Config, ConfigError, Sources};

/// See the module.
#[derive(Debug)]
pub struct Shared {
    sources: Sources,
    current: RwLock<Arc<Config>>,
}

impl Shared {
    /// Loads the configuration for the first time.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn load(sources: Sources) -> Result<Self, ConfigError> {
        let current = RwLock::new(Arc::new(Config::load(&sources)?));
        Ok(Self { sources, current })
    }

    /// The configuration in force.
    #[must_use]
    pub fn current(&self) -> Arc<Config> {
        // The lock guards one assignment, which cannot leave half of it behind.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again (the environment and the flags of a process do not change). New
    /// limits are in force when this returns; a changed `server.listen` at the next start, which
    /// is logged.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the new one; the old one stays in force.
    pub fn reload(&self) -> Result<Arc<Config>, ConfigError> {
        let new = Arc::new(Config::load(&self.sources)?);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.listen() != new.listen() {
            tracing::warn!("server.listen has changed: it takes effect at the next start");
        }
        *current = Arc::clone(&new);
        Ok(new)
    }
}

impl Catalog for Shared {
    fn limits(&self, agent: &Name, cwd: &Path, session: &LimitOverrides) -> Limits {
        self.current().limits(agent, cwd, session)
    }

    fn traits(&self, agent: &Name, protocol: &Name) -> Option<AgentTraits> {
        self.current().traits(agent, protocol)
    }

    fn starting_max(&self) -> usize {
        self.current().starting_max()
    }
}
