//! The socket by which the next daemon finds a keeper.
//!
//! Fed by: keeper.rs, which listens, and link.rs, which connects.
//! Invariants: a path may have any length, because the folder is opened and only the last part of
//! the path is named through it: a socket's address holds 108 bytes. Nobody but the owner can
//! connect, and nobody but the keeper's user and root is listened to. A socket's file goes with
//! its keeper, unless another keeper has put its own there meanwhile.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use rustix::fs::OFlags;

/// A short name for a path of any length, valid for as long as this lives.
pub(super) struct ShortPath {
    path: PathBuf,
    _folder: OwnedFd,
}

impl ShortPath {
    /// # Errors
    /// The folder cannot be opened, or the path has none.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let no_file = || io::Error::from(io::ErrorKind::InvalidInput);
        let folder = path.parent().ok_or_else(no_file)?;
        let name = path.file_name().ok_or_else(no_file)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, rustix::fs::Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        Ok(Self {
            path,
            _folder: folder,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A keeper's listening socket and its file.
#[derive(Debug)]
pub(super) struct Listening {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, by which it is known to be still ours.
    file: (u64, u64),
}

impl Listening {
    /// Listens at `path`; what an earlier keeper left there is replaced. Sets the umask of the
    /// process for a moment, so only a keeper, which has one thread, may call this.
    ///
    /// # Errors
    /// The path cannot be bound.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let short = ShortPath::of(path)?;
        match fs::remove_file(short.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let before = umask(Mode::from_bits_truncate(0o177));
        let listener = UnixListener::bind(short.path());
        umask(before);
        let listener = listener?;
        // One who connects and goes away again must not have the keeper wait for another one.
        listener.set_nonblocking(true)?;
        let file = file_at(short.path())?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file,
        })
    }

    /// The next daemon that connected. `None` if it was another user's program, which is hung up
    /// on, or has gone again.
    pub(super) fn accept(&self) -> Option<OwnedFd> {
        let (peer, _) = self.listener.accept().ok()?;
        let user = getsockopt(&peer, PeerCredentials).ok()?.uid();
        (user == geteuid().as_raw() || user == 0).then(|| peer.into())
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let still_ours = |short: &ShortPath| file_at(short.path()).is_ok_and(|at| at == self.file);
        // A file that stays is replaced by the next keeper that listens there.
        if let Some(short) = ShortPath::of(&self.path).ok().filter(still_ours) {
            drop(fs::remove_file(short.path()));
        }
    }
}

fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}
