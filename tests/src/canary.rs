//! A stranger that nobody of ours may touch: a process that looks like an agent and notes every
//! signal it gets.
//!
//! Fed by: tests that end trees beside it. The program is `bin/tree_agent.rs`, told to do nothing.
//! Invariant: it is gone when its value is dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::process::ProcStat;
use crate::wait::{CEILING, wait_until};

/// What `tree-agent` looks at to know that it is a canary.
const VARIABLE: &str = "TREE_AGENT_CANARY";
/// What it writes before anything else.
const READY: &str = "ready\n";

/// See the module.
#[derive(Debug)]
pub struct Canary {
    child: Child,
    log: PathBuf,
}

impl Canary {
    /// Starts `command`, which has to be a `tree-agent`, with whatever arguments and environment
    /// make it look like the one it stands beside. It notes its signals in the file `log`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(mut command: Command, log: &Path) -> Self {
        command
            .env(VARIABLE, log)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Self {
            child: command
                .spawn()
                .expect("the canary was built with the tests"),
            log: log.to_owned(),
        }
    }

    /// Waits until no signal would go unnoticed.
    ///
    /// # Panics
    /// When it does not come to that.
    #[track_caller]
    pub fn wait_ready(&self) {
        wait_until("a canary that listens", CEILING, || {
            self.notes().starts_with(READY).then_some(())
        });
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// What was done to it, if anything was.
    #[must_use]
    pub fn hurt(&self) -> Option<String> {
        let signals = self.notes().replace(READY, "");
        if !signals.is_empty() {
            return Some(format!("it got signals: {}", signals.replace('\n', "; ")));
        }
        // It is not collected before it is dropped, so its entry is there.
        match ProcStat::read(self.pid()).map(|stat| stat.state) {
            Some('T') => Some("it was stopped".to_owned()),
            Some('Z' | 'X') | None => Some("it was killed".to_owned()),
            Some(_) => None,
        }
    }

    fn notes(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // It may have ended already, which `hurt` tells.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
