//! Sends signals: the only place that does.
//!
//! Fed by: reap.rs, sweep.rs, reaper.rs. Chooses neither targets nor signals.
//! Invariant: a signal reaches exactly the process it is meant for, or nobody. The target is
//! pinned by a descriptor first, its start time is compared next, and the signal goes through that
//! descriptor, so a recycled number cannot be hit in between. Never a group, never pid 0, 1 or a
//! negative one (those cannot be written as a [`ProcIdentity`]), never ourselves or what we
//! descend from.

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use drowse_messages::ProcIdentity;
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use thiserror::Error;

use super::table::{Process, Stat, is_gone, stat_of};

/// 64 ancestors: real chains have under ten; the bound only ends a loop.
const ANCESTORS_MAX: usize = 64;

/// Why a signal was not sent.
#[derive(Debug, Error)]
pub enum SignalError {
    /// It has ended.
    #[error("process {0} is gone")]
    Gone(ProcIdentity),
    /// Its number belongs to another process now.
    #[error("process {0} is gone, identity differs")]
    IdentityDiffers(ProcIdentity),
    /// It is this process, one it descends from, or the leader of its group.
    #[error("process {0} is this process or one that it descends from")]
    Protected(ProcIdentity),
    /// The kernel refuses: it is somebody else's.
    #[error("process {0} belongs to another user")]
    Denied(ProcIdentity),
    /// The process could not be looked at or signalled.
    #[error("failed to signal process {target}")]
    Failed {
        /// Whom.
        target: ProcIdentity,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Sends signals on behalf of this process, and knows whom it must not hit: itself, what it
/// descends from, and the leader of its group.
#[derive(Debug)]
pub struct Signaller {
    own: i32,
    group: i32,
}

impl Signaller {
    /// On behalf of this process as it is now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            own: own_pid(),
            // 0 when the leader is outside of our pid namespace, as `docker exec` does it.
            group: nix::unistd::getpgrp().as_raw(),
        }
    }

    /// True for a process that this one never signals.
    #[must_use]
    pub fn protects(&self, pid: i32) -> bool {
        // Who once was an ancestor may have ended, and its number may be anybody's.
        let is_above = || known_ancestors().contains(&pid) && ancestors().contains(&pid);
        pid == self.own || pid == self.group || is_above()
    }

    /// Signals a process that is being looked at; `stat` was read through `process`.
    ///
    /// # Errors
    /// See [`SignalError`]; never [`SignalError::IdentityDiffers`].
    pub fn send(&self, process: &Process, stat: &Stat, signal: Signal) -> Result<(), SignalError> {
        self.send_through(process, stat.identity, signal)
    }

    /// Signals `target` through a descriptor that is known to be its own: a pidfd, or its open
    /// `/proc` folder, which the kernel takes as one.
    ///
    /// # Errors
    /// As [`Signaller::send`].
    pub fn send_through(
        &self,
        descriptor: impl AsFd,
        target: ProcIdentity,
        signal: Signal,
    ) -> Result<(), SignalError> {
        if self.protects(target.pid()) {
            return Err(SignalError::Protected(target));
        }
        match pidfd_send_signal(descriptor, signal) {
            Ok(()) => Ok(()),
            Err(Errno::SRCH) => Err(SignalError::Gone(target)),
            Err(Errno::PERM) => Err(SignalError::Denied(target)),
            Err(errno) => Err(SignalError::Failed {
                target,
                source: errno.into(),
            }),
        }
    }

    /// Signals the process with this identity.
    ///
    /// # Errors
    /// See [`SignalError`].
    pub fn send_to(&self, target: ProcIdentity, signal: Signal) -> Result<(), SignalError> {
        let (process, stat) = find(target)?;
        self.send(&process, &stat, signal)
    }
}

impl Default for Signaller {
    fn default() -> Self {
        Self::new()
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Everybody who ever was an ancestor of this process. Read once: an ancestor that ends leaves us
/// to one that we had already, so that nobody is ever added.
fn known_ancestors() -> &'static [i32] {
    static KNOWN: OnceLock<Vec<i32>> = OnceLock::new();
    KNOWN.get_or_init(ancestors)
}

/// The ancestors of this process as they are now.
fn ancestors() -> Vec<i32> {
    let parent_of = |&pid: &i32| stat_of(pid).ok().map(|stat| stat.parent);
    std::iter::successors(parent_of(&own_pid()), parent_of)
        .take(ANCESTORS_MAX)
        .collect()
}

/// Opens the process with this identity, if it still is that process.
///
/// # Errors
/// [`SignalError::Gone`], [`SignalError::IdentityDiffers`] or [`SignalError::Failed`].
pub fn find(target: ProcIdentity) -> Result<(Process, Stat), SignalError> {
    let failed = |source: io::Error| {
        if is_gone(&source) {
            SignalError::Gone(target)
        } else {
            SignalError::Failed { target, source }
        }
    };
    let process = Process::open(target.pid()).map_err(failed)?;
    let stat = process.stat().map_err(failed)?;
    if stat.identity == target {
        Ok((process, stat))
    } else {
        Err(SignalError::IdentityDiffers(target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::table::identify;

    fn own() -> ProcIdentity {
        identify(rustix::process::getpid().as_raw_nonzero().get()).expect("we exist")
    }

    /// Behaviour 52, D12: neither ourselves nor an ancestor can be signalled.
    #[test]
    fn we_and_our_ancestors_are_protected() {
        let signaller = Signaller::new();
        let sent = signaller.send_to(own(), Signal::TERM);
        assert!(matches!(sent, Err(SignalError::Protected(_))), "{sent:?}");
        let parent = rustix::process::getppid().expect("a test has a parent");
        let parent = identify(parent.as_raw_nonzero().get()).expect("it runs");
        let sent = signaller.send_to(parent, Signal::TERM);
        assert!(matches!(sent, Err(SignalError::Protected(_))), "{sent:?}");
    }

    /// Behaviour 51, D11: a number with another start time belongs to a stranger.
    #[test]
    fn a_recycled_number_is_not_signalled() {
        let mut stranger = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let pid = i32::try_from(stranger.id()).expect("a pid fits");
        let true_start = identify(pid).expect("it runs").start_ticks();
        let wrong = ProcIdentity::new(pid, true_start + 1).expect("a pid above 1");
        let sent = Signaller::new().send_to(wrong, Signal::KILL);
        assert!(
            matches!(sent, Err(SignalError::IdentityDiffers(_))),
            "{sent:?}"
        );
        assert!(
            stranger.try_wait().expect("ours to wait for").is_none(),
            "it runs on"
        );
        let right = ProcIdentity::new(pid, true_start).expect("a pid above 1");
        Signaller::new().send_to(right, Signal::KILL).expect("ours");
        stranger.wait().expect("it ended");
    }
}
