//! How far a host's bytes have come, noted where a daemon that dies leaves it.
//!
//! Eight bytes of memory without a name (memfd), shared by a daemon and a shim: the daemon writes
//! them in the call after the one that put bytes of the host's into the agent's pipe, the shim
//! reads them once the daemon is gone. So what the agent has is known at any moment, and telling
//! it costs no wake-up of the shim for each line.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Tally(File);

impl Tally {
    /// One that has nothing noted.
    pub(super) fn new() -> io::Result<Self> {
        let tally = memfd_create("drowse-tally", MemfdFlags::CLOEXEC)?;
        Ok(Self(tally.into()))
    }

    /// Notes that all up to here is in the agent's pipe; false when that failed.
    pub(super) fn note(&self, upto: u64) -> bool {
        self.0.write_all_at(&upto.to_le_bytes(), 0).is_ok()
    }

    /// What was noted last.
    pub(super) fn noted(&self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Sends bytes that fit into an empty socket, and the tally with them.
    pub(super) fn send_with(&self, socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
        let descriptors: [BorrowedFd<'_>; 1] = [self.0.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let parts = [io::IoSlice::new(bytes)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(sendmsg(socket, &parts, &mut ancillary, flags)?)
    }

    /// Reads what there is, and the tally if it comes with it.
    pub(super) fn receive_with(
        socket: impl AsFd,
        buffer: &mut [u8],
    ) -> io::Result<(usize, Option<Self>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [io::IoSliceMut::new(buffer)];
        let received = loop {
            match recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        let mut tally = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                tally = descriptors.last().map(|it| Self(it.into())).or(tally);
            }
        }
        Ok((received.bytes, tally))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a daemon notes, whoever has the other end reads, also when the daemon is gone.
    #[test]
    fn a_tally_outlives_who_keeps_it() {
        let (daemon, shim) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let tally = Tally::new().expect("memory");
        assert_eq!(tally.noted(), None);
        assert_eq!(tally.send_with(&daemon, b"welcome").expect("it fits"), 7);
        let mut buffer = [0; 64];
        let (length, received) = Tally::receive_with(&shim, &mut buffer).expect("it came");
        let received = received.expect("it came along");
        assert_eq!(&buffer[..length], b"welcome");
        assert!(tally.note(7) && tally.note(1 << 40));
        drop((daemon, tally));
        assert_eq!(received.noted(), Some(1 << 40));
    }
}
