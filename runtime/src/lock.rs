//! One daemon for each state folder.
//!
//! The lock is the kernel's (`flock`), so it ends with the process however that ends; the file's
//! text only tells people who holds it.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// 4 KiB: the text is a number and a path.
const TEXT_BYTES_MAX: u64 = 4096;

/// Why the state folder is not ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Somebody has it.
    #[error("{folder} belongs to a running drowse already ({holder})")]
    Held {
        /// The state folder.
        folder: PathBuf,
        /// What the holder wrote about itself.
        holder: String,
    },
    /// The file cannot be used.
    #[error("failed to lock {path}")]
    Io {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Who holds the lock of a state folder, as far as it can be known without touching the lock: a
/// try to take it could make a daemon that starts at that moment believe it is taken.
pub(crate) fn holder(folder: &Path) -> Option<i32> {
    let path = folder.join("lock");
    let number = path.metadata().ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    if !locks.lines().any(|line| locks_whole_file(line, number)) {
        return None;
    }
    // The lock may have been passed on, so it is the file's text that says whose it is.
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    let pid = text.strip_prefix("pid ")?.split(',').next()?.parse().ok();
    // What means a group, init or everyone is nobody (D12).
    pid.filter(|&pid: &i32| pid > 1)
}

/// True for a line of `/proc/locks` about a `flock` on the file with this inode number. The device
/// that stands beside it is not compared: some file systems show another one than `stat` does.
fn locks_whole_file(line: &str, number: u64) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let is_flock = words.next() == Some("FLOCK");
    let place = words.nth(3).unwrap_or_default();
    is_flock && place.rsplit(':').next() == Some(&number.to_string())
}

/// The held lock.
#[derive(Debug)]
pub(crate) struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes the lock of a state folder.
    pub(crate) fn take(folder: &Path, socket: &Path) -> Result<Self, LockError> {
        let path = folder.join("lock");
        let failed = |source| LockError::Io {
            path: path.clone(),
            source,
        };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            file.read_to_string(&mut holder).map_err(failed)?;
            let holder = holder.trim().to_owned();
            return Err(LockError::Held {
                folder: folder.to_owned(),
                holder,
            });
        }
        let text = format!("pid {}, socket {}\n", std::process::id(), socket.display());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(failed)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_known_while_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(holder(dir.path()), None);
        let lock = StateLock::take(dir.path(), Path::new("/s")).unwrap();
        let own = std::process::id().cast_signed();
        assert_eq!(holder(dir.path()), Some(own));
        // Looking does not take it.
        assert!(StateLock::take(dir.path(), Path::new("/s")).is_err());
        drop(lock);
        assert_eq!(holder(dir.path()), None, "the text alone is no lock");
    }

    #[test]
    fn only_a_flock_that_is_held_counts() {
        for (line, expected) in [
            ("1: FLOCK  ADVISORY  WRITE 77 fe:00:42 0 EOF", true),
            ("1: FLOCK  ADVISORY  WRITE 77 fe:00:142 0 EOF", false),
            ("1: -> FLOCK  ADVISORY  WRITE 77 fe:00:42 0 EOF", false),
            ("1: POSIX  ADVISORY  WRITE 77 fe:00:42 0 EOF", false),
            ("", false),
        ] {
            assert_eq!(locks_whole_file(line, 42), expected, "{line}");
        }
    }
}
