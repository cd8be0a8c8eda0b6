//! Which agents there are, and where their programs are.
//!
//! An agent is configured, or known to a protocol and found on a PATH. The PATH is the caller's,
//! because the agent runs in the caller's environment. Reads the file system, changes nothing.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use drowse_messages::Name;
use drowse_policy::session::AgentTraits;

use super::{AgentConfig, Config};

/// A protocol Drowse speaks, with the agents it knows without any configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Its name in the configuration.
    pub name: Name,
    /// Agents that speak it: their name, and their program with its arguments.
    pub agents: Vec<(Name, Vec<String>)>,
    /// What policy must know of its adapter.
    pub traits: AgentTraits,
}

/// How an agent is started, after configuration and knowledge were merged.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentEntry {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The protocol it speaks.
    pub protocol: Name,
    /// Variables put over the caller's environment.
    pub env: BTreeMap<String, String>,
    /// Where the program is; `None`: not found, or not executable.
    pub found_at: Option<PathBuf>,
}

impl std::fmt::Debug for AgentEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments and environment hold secrets.
        f.debug_struct("AgentEntry")
            .field("protocol", &self.protocol)
            .field("found_at", &self.found_at)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// The agents there are for a caller with this PATH: all that are configured, and known ones
    /// whose program is found.
    #[must_use]
    pub fn agents(&self, path: &str) -> Vec<(Name, AgentEntry)> {
        let known = self
            .protocols
            .iter()
            .flat_map(|it| it.agents.iter().map(|(name, _)| name));
        let mut names: Vec<&Name> = self.agents.keys().chain(known).collect();
        names.sort();
        names.dedup();
        let entry = |name: &Name| Some((name.clone(), self.agent(name, path, Path::new("/"))?));
        let there = |(name, entry): &(Name, AgentEntry)| {
            entry.found_at.is_some() || self.agents.contains_key(name)
        };
        names.into_iter().filter_map(entry).filter(there).collect()
    }

    /// One agent, for a caller with this PATH who is in `cwd`. `None`: neither configured nor
    /// known; a known one that is not installed is an entry with nothing in `found_at`.
    #[must_use]
    pub fn agent(&self, name: &Name, path: &str, cwd: &Path) -> Option<AgentEntry> {
        let configured = self.agents.get(name);
        let known = self.known_agent(name);
        let command = configured
            .and_then(|agent| agent.command.clone())
            .or_else(|| known.map(|(_, command)| command.to_vec()))?;
        let protocol = configured
            .and_then(|agent| agent.protocol.clone())
            .or_else(|| known.map(|(protocol, _)| protocol.clone()))?;
        let found_at = command
            .first()
            .and_then(|program| find_program(program, path, cwd));
        let env = configured
            .map(|agent| agent.env.clone())
            .unwrap_or_default();
        Some(AgentEntry {
            command,
            protocol,
            env,
            found_at,
        })
    }

    pub(super) fn known_agent(&self, name: &Name) -> Option<(&Name, &[String])> {
        self.protocols.iter().find_map(|protocol| {
            let (_, command) = protocol.agents.iter().find(|(known, _)| known == name)?;
            Some((&protocol.name, command.as_slice()))
        })
    }

    pub(super) fn protocol_names(&self) -> Vec<String> {
        self.protocols
            .iter()
            .map(|protocol| protocol.name.to_string())
            .collect()
    }

    /// What an agent of the configuration still lacks: the key, and why it is needed.
    pub(super) fn missing(
        &self,
        name: &Name,
        agent: &AgentConfig,
    ) -> Option<(&'static str, String)> {
        if self.known_agent(name).is_some() {
            return None;
        }
        let why = "drowse does not know this agent";
        match (&agent.command, &agent.protocol) {
            (None, _) => Some(("command", format!("is missing, and {why}"))),
            (_, None) => {
                let names = self.protocol_names().join(", ");
                Some((
                    "protocol",
                    format!("is missing, and {why}; expected one of: {names}"),
                ))
            }
            (Some(_), Some(_)) => None,
        }
    }
}

/// Finds a program as the system would: by its path when it has a slash, else on the PATH, in
/// which an empty part means the current folder.
pub(crate) fn find_program(program: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program)).filter(|file| is_executable(file));
    }
    if path.is_empty() {
        return None;
    }
    path.split(':')
        .map(|folder| cwd.join(folder).join(program))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
