//! The daemon's end of one shim's socket: what is written to it.
//!
//! Fed by `host.rs`. Invariants: what the socket did not take is sent before anything else; the
//! agent's bytes go from its pipe into the socket in one call, so that a daemon that dies between
//! two of them has none of them.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{SendFlags, send};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::frame::{ToShim, Welcome};
use super::scratch::move_on;
use super::tally::Stage;

/// 1 MiB in the socket, or what the system allows: a shim that is about to read holds nobody up.
const SOCKET_BYTES: usize = 1 << 20;

/// A shim forgets what its host said in pieces of 64 KiB: each time it is woken for it.
const ACK_EVERY_BYTES: u64 = 64 * 1024;

/// See the module.
pub(super) struct Connection {
    stream: Rc<UnixStream>,
    /// What the socket did not take.
    unsent: Vec<u8>,
    /// The link waits for room.
    pub(super) wants_room: bool,
    /// There was room when the kernel was asked last, and nothing was sent since.
    has_room: bool,
    broken: bool,
    /// The way of the host's bytes to the agent; `None`: the shim is told each time.
    stage: Option<Stage>,
    acked: u64,
}

impl Connection {
    /// Of a shim that has just been let in.
    pub(super) fn begin(stream: Rc<UnixStream>, welcome: &Welcome) -> Self {
        // Less does, too.
        let _as_it_was = set_socket_send_buffer_size(&*stream, SOCKET_BYTES);
        let mut connection = Self {
            stream,
            unsent: Vec::new(),
            wants_room: false,
            has_room: false,
            broken: false,
            stage: None,
            acked: welcome.from,
        };
        ToShim::Welcome(*welcome).encode(&mut connection.unsent);
        if let Err(error) = connection.share(welcome.from) {
            tracing::warn!(%error, "a crash may have a host's last line said twice");
        }
        connection.flush();
        connection
    }

    fn share(&mut self, from: u64) -> io::Result<()> {
        let stage = Stage::new(from)?;
        let sent = stage.share(&*self.stream, &self.unsent)?;
        self.unsent.drain(..sent);
        self.stage = Some(stage);
        Ok(())
    }

    /// The way of the host's bytes to the agent.
    pub(super) fn stage(&mut self) -> Option<&mut Stage> {
        self.stage.as_mut()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The socket did not take everything.
    pub(super) fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// It takes at least as much as a read of the agent's output brings.
    pub(super) fn has_room(&mut self) -> bool {
        self.has_room = !self.is_behind() && (self.has_room || has_room(&self.stream));
        self.has_room
    }

    pub(super) fn send(&mut self, frame: &ToShim<'_>) {
        frame.encode(&mut self.unsent);
        self.flush();
    }

    /// All up to here is dealt with.
    pub(super) fn reached(&mut self, upto: u64) {
        if self.stage.is_none() || upto.saturating_sub(self.acked) >= ACK_EVERY_BYTES {
            self.acked = upto;
            self.send(&ToShim::Ack { offset: upto });
        }
    }

    /// Moves what was looked at out of the pipe, with what is known of it before it.
    pub(super) fn move_on(&mut self, pipe: impl AsFd, looked_at: &mut [u8], known: &[ToShim<'_>]) {
        let length = looked_at.len();
        for frame in known {
            frame.encode(&mut self.unsent);
        }
        ToShim::put_out_header(length, &mut self.unsent);
        self.flush();
        let mut moved = 0;
        self.has_room = false;
        if self.unsent.is_empty() && !self.broken {
            moved = move_on(&pipe, &*self.stream, length);
        }
        // What the socket did not take is taken out of the pipe as a reader would.
        while moved < length {
            match rustix::io::read(&pipe, &mut looked_at[moved..]) {
                Ok(read) if read > 0 => {
                    let bytes = &looked_at[moved..moved + read];
                    self.unsent.extend_from_slice(bytes);
                    moved += read;
                }
                Err(Errno::INTR) => {}
                // It was seen there; nobody else reads it.
                Ok(_) | Err(_) => break,
            }
        }
    }

    /// Sends what the socket takes now. What stays here is lost with a daemon that dies.
    pub(super) fn flush(&mut self) {
        let mut sent = 0;
        self.has_room &= self.unsent.is_empty();
        while sent < self.unsent.len() && !self.broken {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&*self.stream, &self.unsent[sent..], flags) {
                Ok(bytes) => sent += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // Its end is found by whoever reads it.
                Err(_) => self.broken = true,
            }
        }
        if self.broken {
            self.unsent = Vec::new();
        } else {
            self.unsent.drain(..sent);
        }
    }
}

/// The kernel calls a socket writable while three quarters of its buffer are free, which is more
/// than a read of the agent's output brings; so what was read is in the socket at once, and not
/// lost with a daemon that dies.
fn has_room(stream: impl AsFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().contains(PollFlags::OUT)
}

/// Has tokio watch a socket for one thing alone.
pub(super) fn watch(
    socket: Rc<UnixStream>,
    interest: Interest,
) -> io::Result<AsyncFd<Rc<UnixStream>>> {
    #[expect(
        unsafe_code,
        reason = "tokio wants to be told that a descriptor stays what it is"
    )]
    // SAFETY: the stream owns its descriptor, and nothing replaces or closes it while it is shared.
    let watched = unsafe { AsyncFd::register_with_interest(socket, interest)? };
    Ok(watched)
}

/// A wait for room in a socket. Only while there is one is the daemon woken by a shim that reads.
#[derive(Debug)]
pub(super) struct Room(AsyncFd<Rc<UnixStream>>);

impl Room {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let again = Rc::new(stream.try_clone()?);
        Ok(Self(watch(again, Interest::WRITABLE)?))
    }

    /// Returns once there is room, or the socket is of no use any more.
    pub(super) async fn wait(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.writable().await?;
            if has_room(self.0.get_ref()) {
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}
