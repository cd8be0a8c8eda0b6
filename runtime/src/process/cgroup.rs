//! One cgroup (version 2) that holds a backend's processes: list, freeze, kill, wait, remove.
//!
//! Fed by: launch.rs (an agent is born in one), reap.rs (ends what is in it), and [`place`], which
//! makes them. Decides nothing. Controllers are neither needed nor turned on.
//! Invariant: what is done through one [`Cgroup`] concerns one and the same cgroup, because its
//! folder is held open; a removed one has no processes. Nothing stays frozen: [`Frozen`] thaws
//! when it is dropped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use drowse_messages::{Incarnation, SessionId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::table::{Pids, WALK_PROCESSES_MAX};

pub mod place;

/// What `statfs` says of a mounted cgroup v2.
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// Its processes, one pid in a line; a process that writes `0` there enters.
pub(super) const PROCS: &str = "cgroup.procs";
/// Whether anybody is in it, and whether all of them are frozen.
const EVENTS: &str = "cgroup.events";
/// Takes `1` and `0`.
const FREEZE: &str = "cgroup.freeze";
/// Takes `1`: SIGKILL to everybody in it and below, those being forked included.
const KILL: &str = "cgroup.kill";

/// 1,024 cgroups below the one of a launch: systemd or a container engine inside an agent makes
/// some dozens.
const NESTED_MAX: usize = 1024;

/// One page, which is what the kernel hands out of a list of processes at a time.
const PROCS_CHUNK_BYTES: usize = 4096;

/// Two lines of at most 12 bytes.
const EVENTS_BYTES_MAX: usize = 64;

/// Looks that only give way to others first, about 3 µs each: a cgroup freezes within 0.1 ms, and
/// a small tree has ended within 1 ms.
const LOOKS_EAGER: u32 = 400;

/// Looks after a short sleep. The kernel announces changes, but at most every 10 ms.
const LOOKS_SHORT: u32 = 100;

/// See [`LOOKS_SHORT`].
const LOOK_PAUSE: Duration = Duration::from_micros(100);

/// One cgroup, by its open folder.
#[derive(Debug)]
pub struct Cgroup {
    folder: OwnedFd,
    path: PathBuf,
}

impl Cgroup {
    /// Opens the cgroup with this absolute path.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none; also when the folder is no cgroup v2, or
    /// the path is not a plain one.
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = open_folder(CWD, path)?;
        // The type of the field differs between machines.
        let kind = rustix::fs::fstatfs(&folder)?.f_type;
        if u64::try_from(kind) != Ok(CGROUP2_MAGIC) || !place::is_plain(path) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a cgroup of version 2",
            ));
        }
        Ok(Self {
            folder,
            path: path.to_owned(),
        })
    }

    /// Opens the cgroup with this path if its name is the one that was made for this launch; a
    /// path from disk may be old, or of another launch.
    ///
    /// # Errors
    /// As [`Cgroup::open`].
    pub fn of_launch(
        path: &Path,
        session: SessionId,
        incarnation: Incarnation,
    ) -> io::Result<Self> {
        if path.file_name() != Some(place::name_of(session, incarnation).as_ref()) {
            let why = "the cgroup was made for another launch";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Self::open(path)
    }

    /// Where it is: an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The pids in it and in every cgroup below it, in no particular order; zombies are not
    /// counted. Bounded: 65,536 processes, 1,024 cgroups.
    ///
    /// # Errors
    /// The kernel refuses. A removed cgroup is empty.
    pub fn processes(&self) -> io::Result<Vec<i32>> {
        let mut pids = Vec::new();
        self.for_each(&mut |folder| read_processes(folder, &mut pids))?;
        Ok(pids)
    }

    /// Begins to freeze all of it; [`Frozen::wait`] says when it is.
    ///
    /// # Errors
    /// The kernel refuses; nothing is frozen then.
    pub fn freeze(&self) -> io::Result<Frozen<'_>> {
        self.write(FREEZE, "1")?;
        Ok(Frozen(self))
    }

    /// Lets it run again, whoever froze it. Cgroups below it that were frozen on their own stay
    /// so: that is their owner's business, and does not protect them from SIGKILL.
    ///
    /// # Errors
    /// The kernel refuses. A removed cgroup is not frozen.
    pub fn thaw(&self) -> io::Result<()> {
        gone_is_fine((), self.write(FREEZE, "0"))
    }

    /// Kills everybody in it and below it, frozen or not, of whatever user; but not a process
    /// whose first thread has ended before the others ([`super::table::Stat::is_leaderless`]).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill(&self) -> io::Result<()> {
        gone_is_fine((), self.write(KILL, "1"))
    }

    /// Waits until nobody is in it, at most until `deadline`; true when nobody is.
    ///
    /// # Errors
    /// The kernel refuses. A removed cgroup is empty.
    pub fn wait_until_empty(&self, deadline: Instant) -> io::Result<bool> {
        gone_is_fine(true, self.wait_for("populated 0", deadline))
    }

    /// Removes it and every cgroup below it, and then the folder it was made in, if that is empty
    /// now. Nobody may be in it.
    ///
    /// # Errors
    /// Somebody is in it, or the kernel refuses.
    pub fn remove(self) -> io::Result<()> {
        let mut below = Vec::new();
        self.for_each_path(&mut |path, _| {
            below.push(path.to_owned());
            Ok(())
        })?;
        // Those found last are the lowest. The first is this one itself, by an empty path.
        for path in below.iter().skip(1).rev() {
            remove_folder(self.folder.as_fd(), path)?;
        }
        remove_folder(CWD, &self.path)?;
        if let Some(parent) = self.path.parent() {
            place::give_back(parent);
        }
        Ok(())
    }

    fn for_each(&self, on_each: &mut dyn FnMut(&OwnedFd) -> io::Result<()>) -> io::Result<()> {
        self.for_each_path(&mut |_, folder| on_each(folder))
    }

    /// Shows this cgroup and those below it, upper ones first, with their paths from here.
    fn for_each_path(
        &self,
        on_each: &mut dyn FnMut(&Path, &OwnedFd) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut known = vec![PathBuf::new()];
        let mut next = 0;
        while let Some(path) = known.get(next).cloned() {
            let show =
                |folder: &OwnedFd, on_each: &mut dyn FnMut(&Path, &OwnedFd) -> io::Result<()>| {
                    on_each(&path, folder).and_then(|()| subfolders(folder))
                };
            let shown = match next {
                0 => show(&self.folder, on_each),
                _ => open_folder(self.folder.as_fd(), &path)
                    .and_then(|folder| show(&folder, on_each)),
            };
            next += 1;
            // One that is removed meanwhile held nobody.
            for name in gone_is_fine(Vec::new(), shown)? {
                if known.len() < NESTED_MAX {
                    known.push(path.join(name));
                }
            }
        }
        Ok(())
    }

    pub(super) fn open_to_write(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(
            &self.folder,
            name,
            flags,
            Mode::empty(),
        )?)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        rustix::io::write(self.open_to_write(name)?, text.as_bytes())?;
        Ok(())
    }

    /// Waits for a line in the events, at most until `deadline`; true when it is there.
    fn wait_for(&self, line: &str, deadline: Instant) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let events = rustix::fs::openat(&self.folder, EVENTS, flags, Mode::empty())?;
        for look in 0_u32.. {
            let mut buffer = [0; EVENTS_BYTES_MAX];
            let length = rustix::io::pread(&events, &mut buffer, 0)?;
            if buffer[..length]
                .split(|&byte| byte == b'\n')
                .any(|one| one == line.as_bytes())
            {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            pause(look, &events, left);
        }
        Ok(false)
    }
}

impl AsFd for Cgroup {
    /// The open folder, which `clone3(2)` takes as the cgroup to be born in.
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// A cgroup in which nothing runs, or soon will, until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it thaws the cgroup"]
pub struct Frozen<'a>(&'a Cgroup);

impl Frozen<'_> {
    /// Waits until nothing in it runs, at most until `deadline`; true when nothing does. A process
    /// that sleeps in the kernel cannot be frozen.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, deadline: Instant) -> io::Result<bool> {
        self.0.wait_for("frozen 1", deadline)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.thaw() {
            tracing::error!(cgroup = %self.0.path.display(), %error, "failed to thaw a cgroup");
        }
    }
}

/// A moment before the next look, longer from one to the next.
fn pause(look: u32, events: &OwnedFd, left: Duration) {
    if look < LOOKS_EAGER {
        thread::yield_now();
    } else if look < LOOKS_EAGER + LOOKS_SHORT {
        thread::sleep(LOOK_PAUSE);
    } else {
        let timeout = Timespec::try_from(left).unwrap_or_default();
        // Whatever comes of it, the next look says how things are.
        let _ = poll(&mut [PollFd::new(events, PollFlags::PRI)], Some(&timeout));
    }
}

fn open_folder(at: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(at, path, flags, Mode::empty())?)
}

fn remove_folder(at: impl AsFd, path: &Path) -> io::Result<()> {
    let removed = rustix::fs::unlinkat(at, path, AtFlags::REMOVEDIR);
    gone_is_fine((), removed.map_err(Into::into))
}

fn subfolders(folder: &OwnedFd) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    // A folder is counted by its name, its own `.`, and the `..` of each folder in it.
    if rustix::fs::fstat(folder)?.st_nlink == 2 {
        return Ok(found);
    }
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if entry.file_type() == FileType::Directory && name != "." && name != ".." {
            found.push(PathBuf::from(name.into_owned()));
        }
    }
    Ok(found)
}

fn read_processes(folder: &OwnedFd, into: &mut Vec<i32>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, PROCS, flags, Mode::empty())?;
    let mut buffer = [0; PROCS_CHUNK_BYTES];
    let mut pids = Pids::default();
    while into.len() < WALK_PROCESSES_MAX {
        match rustix::io::read(&file, &mut buffer) {
            Ok(0) => break,
            Ok(length) => pids.push(&buffer[..length], into),
            // A threaded cgroup lists its processes at the top of its subtree, which is read too.
            Err(Errno::OPNOTSUPP) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// What a cgroup that was removed has instead of a result.
fn gone_is_fine<T>(instead: T, result: io::Result<T>) -> io::Result<T> {
    let gone = [Errno::NOENT, Errno::NODEV].map(|errno| Some(errno.raw_os_error()));
    match result {
        Err(error) if gone.contains(&error.raw_os_error()) => Ok(instead),
        result => result,
    }
}
