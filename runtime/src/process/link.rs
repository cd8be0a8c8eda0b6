//! The daemon's end of a keeper: starts one or takes one over, hears from it, speaks to it.
//!
//! Fed by: the daemon's backends. Knows nothing of sessions' states.
//! Invariant: every future here may be dropped at any point without losing or tearing a frame.
//! A link that is dropped without an order means that the daemon has died: the keeper waits
//! `orphan_grace` for the next one. Whoever wants the tree ended says so: [`KeeperLink::end`], or
//! [`ToKeeper::Leave`].
//! A backend costs the daemon four descriptors: this socket and the agent's three pipes.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use drowse_messages::{ExitStatus, ProcIdentity, SessionId};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::adopted;
use super::control::{
    ControlError, FrameBuffer, FromKeeper, Launch, LaunchError, STARTED_FDS, ToKeeper,
};
use super::spawn::{KeeperProgram, spawn_keeper};

mod take_over;

pub use take_over::{Held, TAKE_OVER_MAX, TakeOverError, keeper_at};

/// 4 KiB: all that a keeper ever says fits at once, but for a checkpoint.
const READ_BYTES: usize = 4096;

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
    #[error("keeper {keeper} sent {count} descriptors instead of {expected}")]
    Descriptors {
        /// Which keeper.
        keeper: ProcIdentity,
        /// How many came.
        count: usize,
        /// How many should have come.
        expected: usize,
    },
    /// A frame that is right only at another point: what is said to a daemon that takes over, or
    /// to all others.
    #[error("keeper {keeper} said something out of turn")]
    Unexpected {
        /// Which keeper.
        keeper: ProcIdentity,
    },
}

/// The agent's standard streams, from outside.
#[derive(Debug)]
pub struct AgentStdio {
    /// Its standard input. Ends for the agent once this is dropped *and* the keeper was told
    /// [`ToKeeper::CloseStdin`]. `None` when an earlier daemon has closed it.
    pub stdin: Option<pipe::Sender>,
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
    /// The frame of the newest checkpoint, if the socket has taken nothing of it yet.
    checkpoint: Option<Vec<u8>>,
}

impl KeeperLink {
    /// Starts a keeper and tells it what to launch. What came of that is its first event.
    ///
    /// Dropped halfway, it leaves a keeper without an agent, which ends; but one that has been
    /// told everything waits for another daemon if `launch` says so.
    ///
    /// # Errors
    /// The keeper cannot be started, or `launch` is longer than the kernel would take.
    pub async fn spawn(
        program: &KeeperProgram,
        session: SessionId,
        mut launch: Launch,
    ) -> Result<Self, LinkError> {
        launch.nofile = launch.nofile.or(program.nofile());
        let frame = ToKeeper::Launch(launch).encode()?;
        let failed = |source| LinkError::Spawn { session, source };
        let (keeper, control) = spawn_keeper(program, session).map_err(failed)?;
        adopted::note_own(keeper);
        control.set_nonblocking(true).map_err(failed)?;
        let control = UnixStream::from_std(control).map_err(failed)?;
        let mut link = Self::over(keeper, control);
        link.unsent = frame;
        match link.flush().await {
            Err(LinkError::Socket { source, .. }) => Err(failed(source)),
            flushed => flushed.map(|()| link),
        }
    }

    fn over(keeper: ProcIdentity, control: UnixStream) -> Self {
        Self {
            keeper,
            control,
            incoming: FrameBuffer::default(),
            fds: VecDeque::new(),
            unsent: Vec::new(),
            checkpoint: None,
        }
    }

    /// The keeper process: what the reaper walks down from, and collects in the end.
    #[must_use]
    pub const fn keeper(&self) -> ProcIdentity {
        self.keeper
    }

    /// The next event; `None` once the keeper has left. While it waits, it also sends what a
    /// checkpoint left unsent.
    ///
    /// # Errors
    /// The keeper is not understood, or its socket failed. [`KeeperLink::end`] the link then.
    pub async fn next_message(&mut self) -> Result<Option<KeeperEvent>, LinkError> {
        match self.next_frame().await? {
            Some(message) => self.event(message).map(Some),
            None => Ok(None),
        }
    }

    async fn next_frame(&mut self) -> Result<Option<FromKeeper>, LinkError> {
        loop {
            if let Some(message) = self.incoming.next_from_keeper()? {
                return Ok(Some(message));
            }
            if !self.receive().await? {
                return Ok(None);
            }
        }
    }

    /// Tells the keeper something. Dropped halfway, the frame is completed by the next call.
    ///
    /// A checkpoint never waits for the keeper: what the socket does not take at once is sent by
    /// the next call of this or of [`KeeperLink::next_message`], and a newer checkpoint takes the
    /// place of one that has not begun to be sent. All else is of a few bytes, and waits only
    /// while the keeper is stopped with its socket full.
    ///
    /// # Errors
    /// The keeper is gone, or the socket failed. The checkpoint is too long.
    pub async fn send(&mut self, message: ToKeeper) -> Result<(), LinkError> {
        let frame = message.encode()?;
        if matches!(message, ToKeeper::Checkpoint(_)) {
            self.checkpoint = Some(frame);
            return self.send_some();
        }
        self.unsent.extend(frame);
        self.flush().await
    }

    /// Has the keeper end its tree by the ladder, at once and whatever its `orphan_grace`, and
    /// lets go of it. Does not wait: a keeper that cannot be told so, because it is stopped with
    /// its socket full, finds its daemon gone instead.
    pub fn end(mut self) {
        if let Ok(frame) = ToKeeper::End.encode() {
            self.unsent.extend(frame);
            // Past tokio, whose notion of the socket may be of before it had room. A keeper that
            // is gone needs no order.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = send(&self.control, &self.unsent, flags);
        }
    }

    /// True while the keeper has not been given all of what was sent: its socket is full.
    #[must_use]
    pub const fn is_behind(&self) -> bool {
        self.has_unsent()
    }

    /// Returns once the keeper has been given all of what was sent.
    ///
    /// # Errors
    /// The keeper is gone, or the socket failed.
    pub async fn sent(&mut self) -> Result<(), LinkError> {
        self.flush().await
    }

    /// Sends until nothing is unsent.
    async fn flush(&mut self) -> Result<(), LinkError> {
        loop {
            self.send_some()?;
            if !self.has_unsent() {
                return Ok(());
            }
            self.control
                .writable()
                .await
                .map_err(|source| self.failed(source))?;
        }
    }

    const fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.checkpoint.is_some()
    }

    /// Sends what the socket takes at once.
    fn send_some(&mut self) -> Result<(), LinkError> {
        while self.has_unsent() {
            if self.unsent.is_empty() {
                self.unsent = self.checkpoint.take().unwrap_or_default();
            }
            match self.control.try_write(&self.unsent) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(source) => {
                    // There is nobody to take the rest.
                    (self.unsent, self.checkpoint) = (Vec::new(), None);
                    return Err(self.failed(source));
                }
            }
        }
        // A launch can be long and comes once: its room is given back.
        self.unsent = Vec::new();
        Ok(())
    }

    /// Reads once; false when the keeper has left.
    async fn receive(&mut self) -> Result<bool, LinkError> {
        loop {
            let interest = if self.has_unsent() {
                Interest::READABLE | Interest::WRITABLE
            } else {
                Interest::READABLE
            };
            let ready = self.control.ready(interest).await;
            let ready = ready.map_err(|source| self.failed(source))?;
            if ready.is_writable() {
                // That the keeper is gone is found by reading, after what it said last.
                drop(self.send_some());
            }
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
                stdio: self.take_stdio(true)?,
            }),
            FromKeeper::LaunchFailed(error) => Ok(KeeperEvent::LaunchFailed(error)),
            FromKeeper::Exited(status) => Ok(KeeperEvent::Exited(status)),
            FromKeeper::Empty => Ok(KeeperEvent::Empty),
            FromKeeper::Held { .. } | FromKeeper::Ending | FromKeeper::Refused => {
                Err(LinkError::Unexpected {
                    keeper: self.keeper,
                })
            }
        }
    }

    /// The streams that came with the last frame.
    fn take_stdio(&mut self, with_stdin: bool) -> Result<AgentStdio, LinkError> {
        let expected = STARTED_FDS - usize::from(!with_stdin);
        let mut fds = std::mem::take(&mut self.fds);
        let count = fds.len();
        let stdin = if with_stdin { fds.pop_front() } else { None };
        let (Some(stdout), Some(stderr), true) =
            (fds.pop_front(), fds.pop_front(), count == expected)
        else {
            return Err(LinkError::Descriptors {
                keeper: self.keeper,
                count,
                expected,
            });
        };
        let open = || -> io::Result<AgentStdio> {
            Ok(AgentStdio {
                stdin: stdin.map(pipe::Sender::from_owned_fd).transpose()?,
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
