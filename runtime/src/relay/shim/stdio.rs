//! The host's three descriptors, which are shared with whoever else has them: their flags are not
//! ours to change.
//!
//! Fed by `shim.rs`, whenever poll(2) says so. A socket is told for each call not to wait; a pipe
//! to be written to is opened once more, for a description of our own; a terminal or a file is
//! written in pieces that fit when poll(2) says that there is room.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::stat::{SFlag, fstat};

/// 4 KiB fit into a pipe that has room at all.
const PIPE_BYTES: usize = 4096;

/// 512 KiB: a buffer that once held more is given back to the system.
const KEPT_BYTES_MAX: usize = 512 * 1024;

fn is_kind(fd: BorrowedFd<'_>, kind: SFlag) -> bool {
    let kind_of = |mode| SFlag::from_bits_truncate(mode) & SFlag::S_IFMT;
    fstat(fd).is_ok_and(|stat| kind_of(stat.st_mode) == kind)
}

/// What a host says.
#[derive(Debug)]
pub(super) struct Source {
    stdin: io::Stdin,
    is_socket: bool,
    ended: bool,
}

/// What a read brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    Bytes(usize),
    Nothing,
    End,
}

impl Source {
    pub(super) fn stdin() -> Self {
        let stdin = io::stdin();
        let is_socket = is_kind(stdin.as_fd(), SFlag::S_IFSOCK);
        Self {
            stdin,
            is_socket,
            ended: false,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stdin.as_fd()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Reads what there is, once poll(2) has said that there is something.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Read {
        let fd = self.stdin.as_fd();
        let read = if self.is_socket {
            recv(fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)
        } else {
            nix::unistd::read(fd, buffer)
        };
        match read {
            Ok(0) => {}
            Ok(length) => return Read::Bytes(length),
            Err(Errno::EAGAIN | Errno::EINTR) => return Read::Nothing,
            // Nothing will come any more, which is all that an agent would see of it.
            Err(_) => {}
        }
        self.ended = true;
        Read::End
    }
}

/// Where a host hears.
#[derive(Debug)]
pub(super) struct Sink {
    stream: Stream,
    /// A pipe opened once more: a description of our own, which may be told not to wait.
    own: Option<File>,
    is_socket: bool,
    unwritten: Vec<u8>,
    done: usize,
    /// The host does not read any more.
    closed: bool,
}

#[derive(Debug)]
enum Stream {
    Out(io::Stdout),
    Err(io::Stderr),
}

impl Sink {
    pub(super) fn stdout() -> Self {
        Self::of(Stream::Out(io::stdout()))
    }

    pub(super) fn stderr() -> Self {
        Self::of(Stream::Err(io::stderr()))
    }

    fn of(stream: Stream) -> Self {
        let mut sink = Self {
            stream,
            own: None,
            is_socket: false,
            unwritten: Vec::new(),
            done: 0,
            closed: false,
        };
        sink.is_socket = is_kind(sink.fd(), SFlag::S_IFSOCK);
        if is_kind(sink.fd(), SFlag::S_IFIFO) {
            let again = format!("/proc/self/fd/{}", sink.fd().as_raw_fd());
            let mut open = OpenOptions::new();
            let open = open.write(true).custom_flags(libc::O_NONBLOCK);
            sink.own = open.open(again).ok();
        }
        sink
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            _ if self.own.is_some() => self.own.as_ref().expect("checked").as_fd(),
            Stream::Out(stdout) => stdout.as_fd(),
            Stream::Err(stderr) => stderr.as_fd(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.done == self.unwritten.len()
    }

    pub(super) fn len(&self) -> usize {
        self.unwritten.len() - self.done
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if self.is_empty() && (self.is_socket || self.own.is_some()) {
            while !rest.is_empty() && !self.closed {
                match self.write(rest) {
                    Some(length) => rest = &rest[length..],
                    None => break,
                }
            }
        }
        if !self.closed {
            self.unwritten.extend_from_slice(rest);
        }
    }

    /// Writes what fits, if that can be tried without waiting.
    pub(super) fn flush_if_free(&mut self) {
        if self.is_socket || self.own.is_some() {
            self.flush();
        }
    }

    /// Writes what fits now, and says how much that was.
    fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        let written = if self.is_socket {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            send(self.fd().as_raw_fd(), bytes, flags)
        } else if self.own.is_some() {
            nix::unistd::write(self.fd(), bytes)
        } else {
            nix::unistd::write(self.fd(), &bytes[..bytes.len().min(PIPE_BYTES)])
        };
        match written {
            Ok(length) => Some(length),
            Err(Errno::EAGAIN | Errno::EINTR) => None,
            Err(_) => {
                self.closed = true;
                None
            }
        }
    }

    /// Writes what fits, once poll(2) has said that there is room.
    pub(super) fn flush(&mut self) {
        let never_waits = self.is_socket || self.own.is_some();
        while !self.is_empty() {
            let unwritten = std::mem::take(&mut self.unwritten);
            let written = self.write(&unwritten[self.done..]);
            self.unwritten = unwritten;
            match written {
                Some(length) => self.done += length,
                None if self.closed => self.done = self.unwritten.len(),
                None => break,
            }
            if !never_waits {
                // Whether more fits, poll(2) must say.
                break;
            }
        }
        if self.is_empty() {
            self.unwritten.clear();
            self.done = 0;
            self.unwritten.shrink_to(KEPT_BYTES_MAX);
        }
    }
}
