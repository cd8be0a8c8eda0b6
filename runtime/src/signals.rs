//! Signals as the daemon takes them: SIGTERM and SIGINT drain, a second one stops at once, SIGHUP
//! reads the configuration again.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// End in order; the second time, at once.
    End,
    /// Read the configuration again.
    Reload,
}

/// The signals of this process.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes them over.
    pub(crate) fn take() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End,
            _ = self.interrupt.recv() => Asked::End,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}
