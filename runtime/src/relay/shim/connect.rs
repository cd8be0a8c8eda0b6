//! The shim's way to the daemon: the relay socket, and a daemon started where there is none.
//!
//! Fed by `shim.rs`. Nothing is decided here but how long to look.

use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use drowse_client::Client;

use super::super::frame::{Hello, OpenRelay, Refused, ToDaemon, ToShim, Welcome};
use super::super::socket_beside;
use super::super::tally::Tally;
use crate::cli::{Failure, Globals, ensure_daemon};
use crate::paths::Paths;

/// 15 s for the daemon to answer the first frame: it may be writing a session down on a slow disk.
const WELCOME_MAX: Duration = Duration::from_secs(15);

/// 128 KiB are read of the socket at once: twice what the daemon moves.
const READ_BYTES: usize = 128 * 1024;

/// 4 KiB of it at first: a welcome is shorter.
const FIRST_BYTES: usize = 4096;

/// 512 KiB: a buffer that once held a longer frame is given back to the system.
const KEPT_BYTES_MAX: usize = 512 * 1024;

/// 2 s in which a daemon that went away is only looked for, because it is being replaced by itself
/// or by whoever runs it; then one is started.
const START_AFTER: Duration = Duration::from_secs(2);

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no daemon, and none could be started.
    NoDaemon(Failure),
    /// The daemon does not want it.
    Refused(Refused),
}

/// The connection is gone.
#[derive(Debug)]
pub(super) struct Lost;

/// Where the daemon is, and how it is started.
#[derive(Clone, Debug)]
pub(crate) struct Connect {
    paths: Paths,
    globals: Globals,
    socket: PathBuf,
    pub(super) key: String,
}

impl Connect {
    pub(crate) fn new(paths: Paths, globals: Globals, key: String) -> Self {
        let socket = socket_beside(&paths.socket);
        Self {
            paths,
            globals,
            socket,
            key,
        }
    }

    /// Opens a session, with a daemon started for it if there is none.
    pub(crate) fn open(&self, open: OpenRelay) -> Result<(Link, Welcome), Refusal> {
        self.ensure().map_err(Refusal::NoDaemon)?;
        let mut frame = Vec::new();
        ToDaemon::Open(Box::new(open)).encode(&mut frame);
        self.introduce(frame)
    }

    /// Goes on with a session; `since`: the daemon went away then.
    pub(super) fn go_on(
        &self,
        hello: Hello,
        back: &[u8],
        since: Instant,
    ) -> Result<(Link, Welcome), Refusal> {
        if since.elapsed() > START_AFTER {
            self.ensure().map_err(Refusal::NoDaemon)?;
        }
        let mut frames = Vec::new();
        ToDaemon::Hello(hello).encode(&mut frames);
        if !back.is_empty() {
            ToDaemon::Back(back).encode(&mut frames);
        }
        self.introduce(frames)
    }

    fn ensure(&self) -> Result<(), Failure> {
        let client = Client::unix(&self.paths.socket).named("drowse-run");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(ensure_daemon(&client, &self.paths, &self.globals))
    }

    fn introduce(&self, frames: Vec<u8>) -> Result<(Link, Welcome), Refusal> {
        let lost = |error: &dyn std::fmt::Display| {
            let text = format!("no daemon at {}: {error}", self.socket.display());
            Refusal::NoDaemon(Failure::new(crate::exit::Exit::NoDaemon, text))
        };
        let stream = UnixStream::connect(&self.socket).map_err(|error| lost(&error))?;
        let prepared = stream
            .set_read_timeout(Some(WELCOME_MAX))
            .and_then(|()| stream.set_write_timeout(Some(WELCOME_MAX)))
            .and_then(|()| (&stream).write_all(&frames));
        prepared.map_err(|error| lost(&error))?;
        let mut link = Link {
            stream,
            incoming: Vec::new(),
            used: 0,
            brought: 0,
            unsent: Vec::new(),
            sent: 0,
            tally: None,
        };
        loop {
            match link.next() {
                Ok(Some(ToShim::Welcome(welcome))) => {
                    link.stream
                        .set_nonblocking(true)
                        .map_err(|error| lost(&error))?;
                    return Ok((link, welcome));
                }
                Ok(Some(ToShim::Refused(refused))) => return Err(Refusal::Refused(refused)),
                // A verdict may come first, on what was said before.
                Ok(Some(_)) => {}
                Ok(None) => match link.read_first() {
                    Ok(true) => {}
                    Ok(false) => return Err(lost(&"it hung up")),
                    Err(error) => return Err(lost(&error)),
                },
                Err(Lost) => return Err(lost(&"it is not understood")),
            }
        }
    }
}

/// A connection to the daemon.
pub(crate) struct Link {
    stream: UnixStream,
    incoming: Vec<u8>,
    /// Of that, how much is dealt with.
    used: usize,
    /// What the last read brought.
    brought: usize,
    unsent: Vec<u8>,
    /// Of that, how much is sent.
    sent: usize,
    /// What the agent has, for when the daemon is gone.
    tally: Option<Tally>,
}

impl Link {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn read_once(&mut self) -> io::Result<bool> {
        self.make_room();
        let room = rustix::buffer::spare_capacity(&mut self.incoming);
        self.brought = rustix::io::read(&self.stream, room)?;
        Ok(self.brought > 0)
    }

    /// Of a welcome: a tally may come with it.
    fn read_first(&mut self) -> io::Result<bool> {
        self.make_room();
        let mut buffer = [0; FIRST_BYTES];
        let (length, tally) = Tally::receive_with(&self.stream, &mut buffer)?;
        self.tally = tally.or(self.tally.take());
        self.brought = length;
        self.incoming.extend_from_slice(&buffer[..length]);
        Ok(length > 0)
    }

    fn make_room(&mut self) {
        self.incoming.drain(..self.used);
        self.used = 0;
        self.brought = 0;
        if self.incoming.is_empty() {
            self.incoming.shrink_to(KEPT_BYTES_MAX);
        }
        self.incoming.reserve(READ_BYTES);
    }

    /// See [`Tally::read`].
    pub(super) fn tally(&self) -> Option<(u64, usize)> {
        self.tally.as_ref()?.read()
    }

    /// Reads what there is.
    pub(super) fn read(&mut self) -> Result<(), Lost> {
        match self.read_once() {
            Ok(true) => Ok(()),
            Ok(false) => Err(Lost),
            Err(error) if is_wait(&error) => Ok(()),
            Err(_) => Err(Lost),
        }
    }

    /// The last read brought something.
    pub(super) fn has_read(&self) -> bool {
        self.brought > 0
    }

    /// The last read brought the head of a frame alone.
    pub(super) fn waits_for_bytes(&self) -> bool {
        self.brought > 0 && ToShim::is_head(self.rest())
    }

    /// What was read and is no whole frame.
    pub(super) fn rest(&self) -> &[u8] {
        &self.incoming[self.used..]
    }

    /// The next frame of what was read.
    pub(super) fn next(&mut self) -> Result<Option<ToShim<'_>>, Lost> {
        match ToShim::first(&self.incoming[self.used..]) {
            Ok(Some((frame, length))) => {
                self.used += length;
                Ok(Some(frame))
            }
            Ok(None) => Ok(None),
            Err(_) => Err(Lost),
        }
    }

    pub(super) fn unsent(&self) -> usize {
        self.unsent.len() - self.sent
    }

    pub(super) fn send(&mut self, frame: &ToDaemon<'_>) {
        frame.encode(&mut self.unsent);
    }

    /// Sends bytes of the host's; what the socket does not take now waits.
    pub(super) fn send_in(&mut self, offset: u64, bytes: &[u8]) {
        let (mut head, mut sent) = (Vec::with_capacity(ToDaemon::IN_HEAD_BYTES), 0);
        ToDaemon::put_in_head(offset, bytes.len(), &mut head);
        if self.unsent() == 0 {
            let parts = [IoSlice::new(&head), IoSlice::new(bytes)];
            // An error is found by the next read or flush.
            sent = self.stream.write_vectored(&parts).unwrap_or(0);
        }
        let of_head = sent.min(head.len());
        self.unsent.extend_from_slice(&head[of_head..]);
        self.unsent.extend_from_slice(&bytes[sent - of_head..]);
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self) -> Result<(), Lost> {
        while self.sent < self.unsent.len() {
            match self.stream.write(&self.unsent[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if is_wait(&error) => return Ok(()),
                Err(_) => return Err(Lost),
            }
        }
        self.unsent.clear();
        self.unsent.shrink_to(KEPT_BYTES_MAX);
        self.sent = 0;
        Ok(())
    }
}

fn is_wait(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
