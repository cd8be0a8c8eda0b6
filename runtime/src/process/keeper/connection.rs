//! The keeper's end of a connection to a daemon.
//!
//! Fed by: keeper.rs, when poll(2) says that there is something to read or room to write.
//! Invariant: nothing here blocks but [`Connection::first`], which comes before there is anything
//! to keep. What the daemon does not take is kept until it does; that is one `Held` and two short
//! frames at most. A daemon that is gone is noticed by reading alone.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::process::control::{ControlError, FrameBuffer, FromKeeper, ToKeeper};
use crate::process::launch::Stdio;

/// 4 KiB: a launch is about this long, and most other frames are of a few bytes.
const READ_BYTES: usize = 4096;

pub(super) struct Connection {
    socket: OwnedFd,
    incoming: FrameBuffer,
    /// Frames, or the rest of one, that the socket has not taken yet.
    unsent: Vec<u8>,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            incoming: FrameBuffer::default(),
            unsent: Vec::new(),
        }
    }

    /// Waits for the first message; `None` if none comes.
    pub(super) fn first(&mut self) -> Option<ToKeeper> {
        loop {
            if let Some(message) = self.next_message().ok()? {
                return Some(message);
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// The next message among what was read.
    pub(super) fn next_message(&mut self) -> Result<Option<ToKeeper>, ControlError> {
        self.incoming.next_to_keeper()
    }

    /// What to wait for.
    pub(super) fn wanted(&self) -> (BorrowedFd<'_>, PollFlags) {
        let wanted = if self.unsent.is_empty() {
            PollFlags::POLLIN
        } else {
            PollFlags::POLLIN | PollFlags::POLLOUT
        };
        (self.socket.as_fd(), wanted)
    }

    /// Does what has become possible; false when the daemon is gone.
    pub(super) fn advance(&mut self, possible: PollFlags) -> bool {
        if possible.contains(PollFlags::POLLOUT) {
            self.write(None);
        }
        possible.difference(PollFlags::POLLOUT).is_empty() || self.read()
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; READ_BYTES];
        match nix::unistd::read(&self.socket, &mut bytes) {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                self.incoming.push(&bytes[..length]);
                true
            }
        }
    }

    /// Sends one frame, with these streams if any. They go with the first frame of a connection,
    /// when the socket has room for certain.
    pub(super) fn send(&mut self, message: &FromKeeper, stdio: Option<&Stdio>) {
        if let Ok(frame) = message.encode() {
            self.unsent.extend(frame);
            self.write(stdio);
        }
    }

    fn write(&mut self, stdio: Option<&Stdio>) {
        let ends = |stdio: &Stdio| -> Vec<RawFd> {
            let outputs = [&stdio.stdout, &stdio.stderr];
            let all = stdio.stdin.iter().chain(outputs);
            all.map(AsRawFd::as_raw_fd).collect()
        };
        let fds = stdio.map(ends);
        let rights = fds.as_deref().map(ControlMessage::ScmRights);
        let mut rights = rights.as_slice();
        while !self.unsent.is_empty() {
            let sent = sendmsg::<()>(
                self.socket.as_raw_fd(),
                &[IoSlice::new(&self.unsent)],
                rights,
                MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
                None,
            );
            match sent {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(Errno::EAGAIN) => return,
                // The daemon is gone, which the next read finds.
                Err(_) => self.unsent.clear(),
            }
            rights = &[];
        }
        // A checkpoint can be long and is sent once: its room is given back.
        self.unsent = Vec::new();
    }
}
