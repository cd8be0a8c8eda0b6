//! A pipe into which an agent's output is looked at before it is moved on.
//!
//! Fed by `host.rs`. tee(2) copies what is in the agent's pipe and leaves it there; splice(2) moves
//! it into the shim's socket, in one call. So bytes are always in one or the other, and a daemon
//! that dies takes none of them along. Invariant: it is empty between two calls.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice, tee};

/// See the module. One serves all hosts of a daemon, which live on one thread.
#[derive(Debug)]
pub(super) struct Scratch {
    read: OwnedFd,
    write: OwnedFd,
}

impl Scratch {
    pub(super) fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { read, write })
    }

    /// Copies what is in `pipe`, which keeps it; 0 at its end.
    pub(super) fn look_at(&self, pipe: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
        let copied = tee(pipe, &self.write, buffer.len(), SpliceFlags::NONBLOCK)?;
        let mut read = 0;
        while read < copied {
            match rustix::io::read(&self.read, &mut buffer[read..copied]) {
                Ok(0) => break,
                Ok(length) => read += length,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(read)
    }
}

/// Moves bytes from a pipe into a socket, and says how many: all, unless the socket is full.
pub(super) fn move_on(pipe: impl AsFd, socket: impl AsFd, length: usize) -> usize {
    let mut moved = 0;
    while moved < length {
        let flags = SpliceFlags::NONBLOCK;
        match splice(&pipe, None, &socket, None, length - moved, flags) {
            Ok(0) => break,
            Ok(bytes) => moved += bytes,
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    moved
}
