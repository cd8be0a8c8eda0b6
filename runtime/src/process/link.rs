//! The daemon's end of a keeper: starts one, hears from it, speaks to it.
//!
//! Fed by: the daemon's backends. Knows nothing of sessions' states.
//! Invariant: every future here may be dropped at any point without losing or tearing a frame, and
//! dropping the link is an order: a keeper whose link is gone ends its tree and leaves.
//! A backend costs the daemon four descriptors: this socket and the agent's three pipes.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use drowse_messages::{ExitStatus, ProcIdentity, SessionId};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::control::{
    ControlError, FrameBuffer, FromKeeper, Launch, LaunchError, STARTED_FDS, ToKeeper,
};
use super::spawn::{KeeperProgram, spawn_keeper};

/// 512 bytes: all that a keeper ever says fits at once.
const READ_BYTES: usize = 512;

/// Why a keeper cannot be started, or is not understood.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The keeper could not be started.
    #[error("failed to start a keeper for session {session}")]
    Spawn {
        /// For whom.
        session: SessionId,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The control socket failed.
    #[error("failed to talk to keeper {keeper}")]
    Socket {
        /// Which keeper.
        keeper: ProcIdentity,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// One side does not follow the protocol.
    #[error("failed to exchange frames with a keeper")]
    Control(#[from] ControlError),
    /// The agent's streams did not come with the news that it runs.
    #[error("keeper {keeper} sent {count} descriptors instead of 3")]
    Descriptors {
        /// Which keeper.
        keeper: ProcIdentity,
        /// How many came.
        count: usize,
    },
}

/// The agent's standard streams, from outside.
#[derive(Debug)]
pub struct AgentStdio {
    /// Its standard input. Ends for the agent once this is dropped *and* the keeper was told
    /// [`ToKeeper::CloseStdin`].
    pub stdin: pipe::Sender,
    /// Its standard output. Does not end with the agent while a descendant holds it: the end of
    /// the agent is [`KeeperEvent::Exited`].
    pub stdout: pipe::Receiver,
    /// Its standard error, likewise.
    pub stderr: pipe::Receiver,
}

/// What a keeper has to say.
#[derive(Debug)]
pub enum KeeperEvent {
    /// The agent runs.
    Started {
        /// The agent itself.
        agent: ProcIdentity,
        /// Its standard streams.
        stdio: AgentStdio,
    },
    /// The agent could not be started. The keeper leaves.
    LaunchFailed(LaunchError),
    /// The agent has ended, its descendants perhaps not.
    Exited(ExitStatus),
    /// The last process below the keeper is gone.
    Empty,
}

/// A live keeper.
#[derive(Debug)]
pub struct KeeperLink {
    keeper: ProcIdentity,
    control: UnixStream,
    incoming: FrameBuffer,
    fds: VecDeque<OwnedFd>,
    /// Frames, or the rest of one, that the socket has not taken yet.
    unsent: Vec<u8>,
}

impl KeeperLink {
    /// Starts a keeper and tells it what to launch. What came of that is its first event.
    ///
    /// # Errors
    /// The keeper cannot be started, or `launch` is longer than the kernel would take.
    pub async fn spawn(
        program: &KeeperProgram,
        session: SessionId,
        launch: Launch,
    ) -> Result<Self, LinkError> {
        let frame = ToKeeper::Launch(launch).encode()?;
        let failed = |source| LinkError::Spawn { session, source };
        let (keeper, control) = spawn_keeper(program, session).map_err(failed)?;
        control.set_nonblocking(true).map_err(failed)?;
        let control = UnixStream::from_std(control).map_err(failed)?;
        let (incoming, fds) = (FrameBuffer::default(), VecDeque::new());
        let mut link = Self {
            keeper,
            control,
            incoming,
            fds,
            unsent: frame,
        };
        match link.flush().await {
            Err(LinkError::Socket { source, .. }) => Err(failed(source)),
            flushed => flushed.map(|()| link),
        }
    }

    /// The keeper process: what the reaper walks down from, and collects in the end.
    #[must_use]
    pub const fn keeper(&self) -> ProcIdentity {
        self.keeper
    }

    /// The next event; `None` once the keeper has left.
    ///
    /// # Errors
    /// The keeper is not understood, or its socket failed. Drop the link then.
    pub async fn next_message(&mut self) -> Result<Option<KeeperEvent>, LinkError> {
        loop {
            if let Some(message) = self.incoming.next_from_keeper()? {
                return self.event(message).map(Some);
            }
            if !self.receive().await? {
                return Ok(None);
            }
        }
    }

    /// Tells the keeper something. Dropped halfway, the frame is completed by the next call.
    ///
    /// # Errors
    /// The keeper is gone, or the socket failed.
    pub async fn send(&mut self, message: ToKeeper) -> Result<(), LinkError> {
        self.unsent.extend(message.encode()?);
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), LinkError> {
        while !self.unsent.is_empty() {
            self.control
                .writable()
                .await
                .map_err(|source| self.failed(source))?;
            match self.control.try_write(&self.unsent) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(source) => return Err(self.failed(source)),
            }
        }
        // A launch can be long and comes once: its room is given back.
        self.unsent = Vec::new();
        Ok(())
    }

    /// Reads once; false when the keeper has left.
    async fn receive(&mut self) -> Result<bool, LinkError> {
        loop {
            self.control
                .readable()
                .await
                .map_err(|source| self.failed(source))?;
            let mut bytes = [0; READ_BYTES];
            let read = self.control.try_io(Interest::READABLE, || {
                receive_from(&self.control, &mut bytes, &mut self.fds)
            });
            match read {
                Ok(0) => return Ok(false),
                Ok(length) => {
                    self.incoming.push(&bytes[..length]);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A keeper killed with a frame of ours unread resets the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(source) => return Err(self.failed(source)),
            }
        }
    }

    fn event(&mut self, message: FromKeeper) -> Result<KeeperEvent, LinkError> {
        match message {
            FromKeeper::Started(agent) => Ok(KeeperEvent::Started {
                agent,
                stdio: self.take_stdio()?,
            }),
            FromKeeper::LaunchFailed(error) => Ok(KeeperEvent::LaunchFailed(error)),
            FromKeeper::Exited(status) => Ok(KeeperEvent::Exited(status)),
            FromKeeper::Empty => Ok(KeeperEvent::Empty),
        }
    }

    fn take_stdio(&mut self) -> Result<AgentStdio, LinkError> {
        let fds: [OwnedFd; STARTED_FDS] = Vec::from(std::mem::take(&mut self.fds))
            .try_into()
            .map_err(|fds: Vec<_>| LinkError::Descriptors {
                keeper: self.keeper,
                count: fds.len(),
            })?;
        let [stdin, stdout, stderr] = fds;
        let open = || -> io::Result<AgentStdio> {
            Ok(AgentStdio {
                stdin: pipe::Sender::from_owned_fd(stdin)?,
                stdout: pipe::Receiver::from_owned_fd(stdout)?,
                stderr: pipe::Receiver::from_owned_fd(stderr)?,
            })
        };
        open().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> LinkError {
        LinkError::Socket {
            keeper: self.keeper,
            source,
        }
    }
}

fn receive_from(
    control: &UnixStream,
    bytes: &mut [u8],
    fds: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STARTED_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(control, &mut parts, &mut ancillary, flags)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(received.bytes)
}
