//! How far a host's bytes have come, kept where a daemon that dies leaves it.
//!
//! Between a write to the agent and whatever says that it was done there is always a moment. So
//! bytes of the host's go into a pipe that the shim has, too (the stage), it is noted in memory
//! that the shim has, too (the tally) that they are on their way, and then the kernel moves them
//! into the agent's pipe. What is still in the stage is not with the agent; everything else that
//! was noted is. The shim reads both once the daemon is gone, and telling it costs no wake-up for
//! each line.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use tokio::net::unix::pipe;

/// 64 KiB: what a pipe holds.
const STAGE_BYTES: usize = 64 * 1024;

/// The tally, and the stage's reading end.
const SHARED: usize = 2;

/// What is noted: three numbers of eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Note {
    /// The host's bytes before this are dealt with.
    base: u64,
    /// So many of the piece behind them are with the agent, or staged.
    done: u64,
    /// What is in the stage is a part of those.
    staged: bool,
}

impl Note {
    const BYTES: usize = 3 * size_of::<u64>();

    fn write(self, tally: &File) -> io::Result<()> {
        let numbers = [self.base, self.done, u64::from(self.staged)];
        let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
        tally.write_all_at(&bytes, 0)
    }

    fn read(tally: &File) -> io::Result<Self> {
        let mut bytes = [0; Self::BYTES];
        tally.read_exact_at(&mut bytes, 0)?;
        let (numbers, _) = bytes.as_chunks::<{ size_of::<u64>() }>();
        let number = |at: usize| u64::from_le_bytes(numbers[at]);
        Ok(Self {
            base: number(0),
            done: number(1),
            staged: number(2) != 0,
        })
    }
}

/// The daemon's end.
#[derive(Debug)]
pub(super) struct Stage {
    tally: File,
    read: OwnedFd,
    write: OwnedFd,
    base: u64,
    /// Bytes in the stage.
    pending: usize,
}

impl Stage {
    /// All before `base` is dealt with.
    pub(super) fn new(base: u64) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let stage = Self {
            tally: memfd_create("drowse-tally", MemfdFlags::CLOEXEC)?.into(),
            read,
            write,
            base,
            pending: 0,
        };
        stage.note(0)?;
        Ok(stage)
    }

    /// Sends bytes that fit into an empty socket, and the shim's end with them.
    pub(super) fn share(&self, socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
        let descriptors: [BorrowedFd<'_>; SHARED] = [self.tally.as_fd(), self.read.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SHARED))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let parts = [io::IoSlice::new(bytes)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(sendmsg(socket, &parts, &mut ancillary, flags)?)
    }

    fn note(&self, done: usize) -> io::Result<()> {
        let (base, staged) = (self.base, self.pending > 0);
        let done = done as u64;
        Note { base, done, staged }.write(&self.tally)
    }

    /// Moves what fits of a piece into the agent's pipe, and says how much that is. `rest` is what
    /// the agent does not have, `done` how much it has. `reached`: where the host's bytes are once
    /// so much of it is missing.
    pub(super) fn put(
        &mut self,
        agent: &pipe::Sender,
        rest: &[u8],
        done: usize,
        reached: impl Fn(usize) -> Option<u64>,
    ) -> io::Result<usize> {
        // In a stream all that the agent has is behind us.
        let done = if reached(rest.len()).is_some() {
            0
        } else {
            done
        };
        if self.pending == 0 {
            self.pending = rustix::io::write(&self.write, &rest[..rest.len().min(STAGE_BYTES)])?;
            self.note(done + self.pending)?;
        }
        let flags = SpliceFlags::NONBLOCK;
        let into = || Ok(splice(&self.read, None, agent, None, self.pending, flags)?);
        let moved = agent.try_io(into)?;
        self.pending -= moved;
        match reached(rest.len() - moved) {
            Some(base) => {
                self.base = base;
                self.note(self.pending)?;
            }
            None => self.note(done + moved + self.pending)?,
        }
        Ok(moved)
    }

    /// All before this is dealt with; of what comes behind it the agent has nothing.
    pub(super) fn settle(&mut self, base: u64) {
        let pending = std::mem::take(&mut self.pending);
        self.base = base;
        // Memory takes a few bytes that it took before.
        let _noted = self.note(0);
        if pending > 0 {
            let mut gone = vec![0; pending];
            let _emptied = rustix::io::read(&self.read, &mut gone);
        }
    }
}

/// The shim's end.
#[derive(Debug)]
pub(super) struct Tally {
    tally: File,
    staged: OwnedFd,
}

impl Tally {
    /// Reads what there is, and the shim's end if it comes with it.
    pub(super) fn receive_with(
        socket: impl AsFd,
        buffer: &mut [u8],
    ) -> io::Result<(usize, Option<Self>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SHARED))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [io::IoSliceMut::new(buffer)];
        let received = loop {
            match recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        let mut shared = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                shared.extend(descriptors);
            }
        }
        let shared: Option<[OwnedFd; SHARED]> = shared.try_into().ok();
        let tally = shared.map(|[tally, staged]| Self {
            tally: tally.into(),
            staged,
        });
        Ok((received.bytes, tally))
    }

    /// What is dealt with, and how much of the piece behind it the agent has; to be asked once the
    /// daemon is gone.
    pub(super) fn read(&self) -> Option<(u64, usize)> {
        let Note { base, done, staged } = Note::read(&self.tally).ok()?;
        let missing = if staged {
            ioctl_fionread(&self.staged).ok()?
        } else {
            0
        };
        Some((base, usize::try_from(done.checked_sub(missing)?).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Both ends, and an agent with its pipe.
    fn ends(base: u64) -> (Stage, Tally, pipe::Sender, io::PipeReader) {
        let (daemon, shim) = UnixStream::pair().expect("a pair");
        let stage = Stage::new(base).expect("memory and a pipe");
        assert_eq!(stage.share(&daemon, b"welcome").expect("it fits"), 7);
        let mut buffer = [0; 64];
        let (length, tally) = Tally::receive_with(&shim, &mut buffer).expect("it came");
        assert_eq!(&buffer[..length], b"welcome");
        let (read, write) = io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&write, true).expect("a pipe can");
        let agent = pipe::Sender::from_owned_fd(write.into()).expect("it is a pipe");
        (stage, tally.expect("it came along"), agent, read)
    }

    /// D42: wherever a daemon dies, what the agent has is known to the byte.
    #[tokio::test]
    async fn what_the_agent_has_is_known_at_any_moment() {
        let (mut stage, tally, agent, mut read) = ends(100);
        assert_eq!(tally.read(), Some((100, 0)));
        // A line that fits: before it is announced, announced, moved, noted.
        rustix::io::write(&stage.write, b"line\n").expect("it fits");
        assert_eq!(tally.read(), Some((100, 0)), "staged alone is nothing");
        stage.pending = 5;
        stage.note(5).expect("memory");
        assert_eq!(tally.read(), Some((100, 0)), "announced is nothing");
        agent.writable().await.expect("it has room");
        let whole = |missing| (missing == 0).then_some(105);
        assert_eq!(stage.put(&agent, b"line\n", 0, whole).expect("room"), 5);
        assert_eq!(tally.read(), Some((105, 0)));
        stage.pending = 5;
        stage.note(5).expect("memory");
        assert_eq!(tally.read(), Some((105, 5)), "moved and not noted");
        stage.settle(105);

        // One that does not: the agent's pipe is full at some byte of it.
        let line = [b'x'; 3 * STAGE_BYTES];
        let mut done = 0;
        let whole = |missing| (missing == 0).then_some(105 + line.len() as u64);
        while let Ok(moved) = stage.put(&agent, &line[done..], done, whole) {
            done += moved;
        }
        assert!(done > 0 && done < line.len());
        assert_eq!(tally.read(), Some((105, done)));
        let mut taken = vec![0; 5 + STAGE_BYTES / 2];
        read.read_exact(&mut taken).expect("it is there");
        agent.writable().await.expect("it has room");
        let more = stage.put(&agent, &line[done..], done, whole);
        assert_eq!(tally.read(), Some((105, done + more.expect("room"))));
        stage.settle(105);
        drop(stage);
        assert_eq!(tally.read(), Some((105, 0)), "it was let go of");
    }

    /// In a stream each byte counts.
    #[tokio::test]
    async fn a_part_of_a_stream_is_dealt_with() {
        let (mut stage, tally, agent, _read) = ends(0);
        let bytes = [b'x'; 2 * STAGE_BYTES];
        let all = bytes.len();
        agent.writable().await.expect("it has room");
        let mut done = 0;
        let reached = |missing| Some((all - missing) as u64);
        while let Ok(moved) = stage.put(&agent, &bytes[done..], done, reached) {
            done += moved;
        }
        assert!(done > 0 && done < all && stage.pending > 0);
        assert_eq!(tally.read(), Some((done as u64, 0)));
    }
}
