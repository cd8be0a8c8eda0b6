//! The host of a relayed session: the program that believes to have started the agent itself.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::process::ExitStatus;

/// News of a session's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostChanged {
    /// It is there: at first, or again after the daemon was replaced.
    Attached {
        /// The process that stands in its agent's place.
        pid: i32,
        /// A process that was released can be replaced by another without the host noticing.
        resumable: bool,
    },
    /// It has said something that no agent was given yet.
    Waits,
    /// All that it said is in the agent's pipe.
    Passed,
    /// It will say no more: its end of the agent's input is closed.
    Closed,
    /// It is gone without a word.
    Lost,
}

/// Why a host is told that its agent has ended. A release is never told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostEnd {
    /// The agent ended; `None`: nobody can tell how.
    Exited(Option<ExitStatus>),
    /// There was no agent at the time: somebody stopped the session, or the host said goodbye.
    Ended,
    /// The agent could not be started, or started again.
    Failed {
        /// For people.
        error: String,
    },
    /// The daemon ends.
    Shutdown,
}

/// What a daemon must know to go on with a host, on disk, sealed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRelay {
    /// What the host's shim proves itself with.
    pub key: String,
    /// See `Relay::memory` of the adapters; empty before the first process was let go.
    #[serde(default)]
    pub memory: Vec<u8>,
}

impl fmt::Debug for KeptRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptRelay")
            .field("memory", &self.memory.len())
            .finish_non_exhaustive()
    }
}
