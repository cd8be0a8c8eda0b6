//! Takes over a keeper that an earlier daemon started.
//!
//! Fed by: the daemon, with what its predecessor wrote down. Whoever fails to take a keeper over
//! ends its tree by the keeper's identity, whatever the error: no keeper is signalled here.
//! Invariant: nothing is believed of a peer that is not the very keeper meant: the kernel says
//! which process listens, and its start time is compared after the connection stands.

use std::io;
use std::path::Path;
use std::time::Duration;

use drowse_messages::{ExitStatus, ProcIdentity};
use thiserror::Error;
use tokio::net::UnixStream;

use super::{AgentStdio, KeeperLink, LinkError};
use crate::process::adopted;
use crate::process::control::{Checkpoint, ControlError, FromKeeper, ToKeeper};
use crate::process::socket::ShortPath;
use crate::process::table;

/// 6 s for a keeper to say what it holds. It answers within a millisecond, unless it is killing
/// its tree at this moment, which takes 5 s at most, or is stopped.
pub const TAKE_OVER_MAX: Duration = Duration::from_secs(6);

/// What a keeper that was taken over has.
#[derive(Debug)]
pub struct Held {
    /// The agent, whether or not it still runs.
    pub agent: ProcIdentity,
    /// How the agent ended, if it has; [`super::KeeperEvent::Exited`] does not come then.
    pub exited: Option<ExitStatus>,
    /// The last process below the keeper is gone; [`super::KeeperEvent::Empty`] does not come
    /// then.
    pub empty: bool,
    /// The newest checkpoint; empty if none came.
    pub checkpoint: Checkpoint,
    /// The agent's standard streams, with what it wrote meanwhile; `None` if the keeper was
    /// retired.
    pub stdio: Option<AgentStdio>,
}

/// Why a keeper was not taken over.
#[derive(Debug, Error)]
pub enum TakeOverError {
    /// Nobody listens there: the keeper has ended.
    #[error("keeper {keeper} is gone")]
    Gone {
        /// Which keeper.
        keeper: ProcIdentity,
        /// What the kernel said, unless the keeper left with the connection open.
        #[source]
        source: Option<io::Error>,
    },
    /// Another process listens there.
    #[error("process {found:?} listens where keeper {keeper} should")]
    IdentityDiffers {
        /// Which keeper.
        keeper: ProcIdentity,
        /// Who listens instead; `None` if that cannot be told.
        found: Option<ProcIdentity>,
    },
    /// It is ending its tree already, and leaves by itself.
    #[error("keeper {keeper} is ending its tree")]
    Ending {
        /// Which keeper.
        keeper: ProcIdentity,
    },
    /// It is of a release that speaks otherwise.
    #[error("keeper {keeper} speaks version {version} of the control protocol")]
    Version {
        /// Which keeper.
        keeper: ProcIdentity,
        /// The version it speaks.
        version: u8,
    },
    /// It does not answer.
    #[error("keeper {keeper} did not say within {TAKE_OVER_MAX:?} what it holds")]
    Timeout {
        /// Which keeper.
        keeper: ProcIdentity,
    },
    /// Its socket cannot be connected to, as of now.
    #[error("failed to connect to keeper {keeper}")]
    Connect {
        /// Which keeper.
        keeper: ProcIdentity,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// What it says is not understood.
    #[error("failed to understand what keeper {keeper} holds")]
    Link {
        /// Which keeper.
        keeper: ProcIdentity,
        /// What is wrong with it.
        #[source]
        source: LinkError,
    },
}

impl KeeperLink {
    /// Takes over a keeper that listens at `socket`: from now on this is its daemon, and a link
    /// that another daemon may still have ends. Takes [`TAKE_OVER_MAX`] at most.
    ///
    /// Dropped halfway, or with an error, it leaves the keeper waiting for another daemon as
    /// before.
    ///
    /// # Errors
    /// See [`TakeOverError`].
    pub async fn take_over(
        keeper: ProcIdentity,
        socket: &Path,
    ) -> Result<(Self, Held), TakeOverError> {
        tokio::time::timeout(TAKE_OVER_MAX, connect_and_hear(keeper, socket))
            .await
            .unwrap_or(Err(TakeOverError::Timeout { keeper }))
            .inspect(|_| adopted::note_own(keeper))
    }
}

/// The keeper that listens at `socket`, if anybody does. It notices nothing.
pub async fn keeper_at(socket: &Path) -> Option<ProcIdentity> {
    listener_of(&connect(socket).await.ok()?)
}

async fn connect_and_hear(
    keeper: ProcIdentity,
    socket: &Path,
) -> Result<(KeeperLink, Held), TakeOverError> {
    let control = connect(socket).await.map_err(|source| {
        let gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        if gone.contains(&source.kind()) {
            let source = Some(source);
            TakeOverError::Gone { keeper, source }
        } else {
            TakeOverError::Connect { keeper, source }
        }
    })?;
    let found = listener_of(&control);
    if found != Some(keeper) {
        return Err(TakeOverError::IdentityDiffers { keeper, found });
    }
    let mut link = KeeperLink::over(keeper, control);
    // One that is ending its tree says so and hangs up without hearing this.
    drop(link.send(ToKeeper::TakeOver).await);
    let failed = |source| {
        if let LinkError::Control(ControlError::Version(version)) = source {
            TakeOverError::Version { keeper, version }
        } else {
            TakeOverError::Link { keeper, source }
        }
    };
    match link.next_frame().await.map_err(failed)? {
        Some(message) => {
            let held = held(&mut link, message)?;
            Ok((link, held))
        }
        None => Err(TakeOverError::Gone {
            keeper,
            source: None,
        }),
    }
}

async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let short = ShortPath::of(socket)?;
    UnixStream::connect(short.path()).await
}

/// The process that called listen(2) on the other end.
fn listener_of(control: &UnixStream) -> Option<ProcIdentity> {
    let pid = control.peer_cred().ok()?.pid()?;
    table::identify(pid).ok()
}

fn held(link: &mut KeeperLink, message: FromKeeper) -> Result<Held, TakeOverError> {
    let keeper = link.keeper;
    match message {
        FromKeeper::Held {
            agent,
            exited,
            empty,
            stdin_open,
            retired,
            checkpoint,
        } => {
            let stdio = (!retired).then(|| link.take_stdio(stdin_open)).transpose();
            Ok(Held {
                agent,
                exited,
                empty,
                checkpoint,
                stdio: stdio.map_err(|source| TakeOverError::Link { keeper, source })?,
            })
        }
        FromKeeper::Ending => Err(TakeOverError::Ending { keeper }),
        FromKeeper::Started(_)
        | FromKeeper::LaunchFailed(_)
        | FromKeeper::Exited(_)
        | FromKeeper::Empty
        | FromKeeper::Refused => Err(TakeOverError::Link {
            keeper,
            source: LinkError::Unexpected { keeper },
        }),
    }
}
