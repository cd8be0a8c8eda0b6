//! What kept processes still write to the pipes of an agent that nobody listens to any more.
//!
//! Fed by: keeper.rs, when poll(2) says that there is something. It is read and forgotten, because
//! a pipe without a reader kills its writer, and a full one stops it.
//! Invariant: nothing is copied: the kernel moves the pages to where standard output leads, which
//! is nowhere.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::poll::PollFlags;
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};

use crate::process::launch::Stdio;

/// 64 KiB: what a pipe holds, so once takes all of it.
const FORGOTTEN_BYTES: usize = 64 * 1024;

/// The read ends of standard output and standard error that have writers left.
#[derive(Default)]
pub(super) struct Outputs([Option<OwnedFd>; 2]);

impl Outputs {
    pub(super) fn of(stdio: Stdio) -> Self {
        Self([Some(stdio.stdout), Some(stdio.stderr)])
    }

    pub(super) fn ends(&self) -> [Option<BorrowedFd<'_>>; 2] {
        self.0.each_ref().map(|end| end.as_ref().map(AsFd::as_fd))
    }

    /// Forgets what is there in those that have something or have ended.
    pub(super) fn forget(&mut self, possible: [PollFlags; 2]) {
        for (end, possible) in self.0.iter_mut().zip(possible) {
            if !possible.is_empty() && !end.as_ref().is_some_and(forget_some) {
                *end = None;
            }
        }
    }
}

/// False once nobody has the other end.
fn forget_some(end: &OwnedFd) -> bool {
    let nowhere = io::stdout();
    let moved = splice(
        end,
        None,
        nowhere,
        None,
        FORGOTTEN_BYTES,
        SpliceFlags::NONBLOCK,
    );
    matches!(moved, Ok(1..) | Err(Errno::AGAIN))
}
