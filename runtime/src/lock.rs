//! One daemon for each state folder.
//!
//! The lock is the kernel's (`flock`), so it ends with the process however that ends; the file's
//! text tells who holds it. A daemon that is killed while it starts a process leaves the lock with
//! that one, until it has become what it is to be: so a dead holder's lock is waited for. A daemon
//! that is replaced in place leaves the held lock to the program that comes, so that it is never free.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::process::table::Process;

/// 5 s for the lock of a dead daemon: what it was starting takes milliseconds to let go of it.
const DEAD_HOLDER_MAX: Duration = Duration::from_secs(5);
/// 10 ms between two tries: nobody tells when a lock is free without waiting for it without end.
const TRY_EVERY: Duration = Duration::from_millis(10);

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

/// The held lock.
#[derive(Debug)]
pub(crate) struct StateLock {
    file: File,
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
        let give_up = Instant::now() + DEAD_HOLDER_MAX;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let holder = read_whole(&mut file).map_err(failed)?;
            if let Some(left) = left_by_predecessor(&file, &holder).map_err(failed)? {
                file = left;
                break;
            }
            if is_alive(&holder) || Instant::now() >= give_up {
                return Err(LockError::Held {
                    folder: folder.to_owned(),
                    holder,
                });
            }
            std::thread::sleep(TRY_EVERY);
        }
        let text = format!("pid {}, socket {}\n", std::process::id(), socket.display());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(failed)?;
        Ok(Self { file })
    }

    /// Has the lock outlive the program, for the one that takes its place in this process.
    pub(crate) fn leave_to_successor(&self) -> io::Result<()> {
        Ok(fcntl_setfd(&self.file, FdFlags::empty())?)
    }
}

/// The held lock that the program before this one left open in this process, if it did.
fn left_by_predecessor(lock: &File, holder: &str) -> io::Result<Option<File>> {
    if pid_in(holder) != Some(std::process::id().cast_signed()) {
        return Ok(None);
    }
    let place = |found: std::fs::Metadata| (found.dev(), found.ino());
    let meant = place(lock.metadata()?);
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let found = |number: &RawFd| {
            let found = std::fs::metadata(format!("/proc/self/fd/{number}"));
            found.is_ok_and(|found| place(found) == meant) && outlives_programs(*number)
        };
        if let Some(number) = number.filter(found) {
            let file = File::from(owned(number));
            fcntl_setfd(&file, FdFlags::CLOEXEC)?;
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Whether the descriptor stays open when the program is replaced. No lock that is held by this
/// program does: what another daemon in this process holds is not taken from it.
fn outlives_programs(number: RawFd) -> bool {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
    let text = text.unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & OFlags::CLOEXEC.bits() == 0)
}

#[expect(
    unsafe_code,
    reason = "a descriptor from before exec(2) is known by its number only"
)]
fn owned(number: RawFd) -> OwnedFd {
    // SAFETY: it is open on the lock's file and outlives programs. This program opens that file with
    // `StateLock::take` alone, and every such descriptor is closed with the program until nothing
    // follows but exec(2): so it is the former program's, and nothing in this one owns it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn read_whole(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// False only when the holder is known to be dead. It has not written its name yet while it is just
/// taking the lock.
fn is_alive(holder: &str) -> bool {
    pid_in(holder).is_none_or(runs)
}

fn pid_in(holder: &str) -> Option<i32> {
    holder.strip_prefix("pid ")?.split(',').next()?.parse().ok()
}

fn runs(pid: i32) -> bool {
    let stat = Process::open(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.is_alive())
}

/// The daemon that holds the lock of a state folder, as far as that can be known without touching
/// the lock: a try to take it could make a daemon that starts at that moment believe it is taken.
pub(crate) fn holder(folder: &Path) -> Option<i32> {
    let path = folder.join("lock");
    let number = path.metadata().ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    if !locks.lines().any(|line| is_flock_on(line, number)) {
        return None;
    }
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    // What means a group, init or everyone is nobody (D12).
    pid_in(&text).filter(|&pid| pid > 1 && runs(pid))
}

/// True for a line of `/proc/locks` about a `flock` on the file with this inode number. The device
/// that stands beside it is not compared: some file systems show another one than `stat` does.
fn is_flock_on(line: &str, number: u64) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let is_flock = words.next() == Some("FLOCK");
    let place = words.nth(3).unwrap_or_default();
    is_flock && place.rsplit(':').next() == Some(&number.to_string())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::io::fcntl_getfd;

    use super::*;

    /// A lock in the hands of a process that a daemon was starting when it was killed.
    fn left_with_a_child(folder: &Path, holder: u32) -> std::process::Child {
        let file = File::create(folder.join("lock")).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        (&file)
            .write_all(format!("pid {holder}, socket s\n").as_bytes())
            .unwrap();
        let mut child = Command::new("cat");
        child.stdin(Stdio::piped()).stdout(file).spawn().unwrap()
    }

    /// Killed while it started a keeper, a daemon kept its successor from starting: "belongs to a
    /// running drowse already", with the number of a dead process.
    #[test]
    fn a_dead_holders_lock_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut dead = Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let mut child = left_with_a_child(folder.path(), dead.id());
        // The child ends a while after the first try.
        let ends = std::thread::spawn(move || {
            drop(child.stdin.take());
            child.wait()
        });
        StateLock::take(folder.path(), Path::new("s")).expect("the child lets go of it");
        ends.join().unwrap().unwrap();
    }

    #[test]
    fn a_living_holder_is_named_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = left_with_a_child(folder.path(), std::process::id());
        let error = StateLock::take(folder.path(), Path::new("s")).unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&format!("pid {}", std::process::id())),
            "{error}"
        );
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// Between two programs in one process a third one could take the lock.
    #[test]
    fn a_lock_that_outlives_its_program_is_taken_up() {
        let folder = tempfile::tempdir().unwrap();
        let lock = StateLock::take(folder.path(), Path::new("s")).unwrap();
        assert!(StateLock::take(folder.path(), Path::new("s")).is_err());
        lock.leave_to_successor().unwrap();
        std::mem::forget(lock);
        let taken = StateLock::take(folder.path(), Path::new("t")).expect("it is ours");
        assert!(fcntl_getfd(&taken.file).unwrap().contains(FdFlags::CLOEXEC));
        drop(taken);
        assert_eq!(holder(folder.path()), None, "nothing else holds it");
    }

    #[test]
    fn a_daemon_is_known_while_it_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(holder(folder.path()), None);
        let lock = StateLock::take(folder.path(), Path::new("s")).unwrap();
        let own = std::process::id().cast_signed();
        assert_eq!(holder(folder.path()), Some(own));
        // Looking does not take it.
        assert!(StateLock::take(folder.path(), Path::new("s")).is_err());
        drop(lock);
        assert_eq!(holder(folder.path()), None, "the text alone is no lock");
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
            assert_eq!(is_flock_on(line, 42), expected, "{line}");
        }
    }
}
