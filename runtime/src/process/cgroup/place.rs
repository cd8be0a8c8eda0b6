//! Where the cgroups of one daemon's launches are: found once, made and named for each launch.
//!
//! `MOUNT/OWN CGROUP/drowse-HASH OF THE STATE FOLDER/SESSION-INCARNATION`. Fed by: the daemon's
//! start and backends. Invariant: a cgroup is made for one launch and never used again; a path
//! that somebody wrote down is believed only where its folder is named after the same state
//! folder. The daemon's folder exists as long as a launch's does, so nothing stays behind.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use drowse_messages::{Incarnation, SessionId};
use rustix::fs::{Access, AtFlags, CWD, Mode};
use rustix::io::Errno;
use thiserror::Error;

use super::{Cgroup, EVENTS, FREEZE, KILL, PROCS, remove_folder, subfolders};

/// What the folder of a daemon begins with.
const PREFIX: &str = "drowse-";

/// 8 tries to make a folder that somebody else gives back at the same moment.
const MAKE_TRIES_MAX: u32 = 8;

/// 5 s, as for a tree: see [`super::super::reap::KILL_MAX`].
const LEFTOVER_MAX: Duration = Duration::from_secs(5);

/// Why there are no cgroups to be had.
#[derive(Debug, Error)]
pub enum NoCgroups {
    /// The kernel says nothing of them.
    #[error("failed to read {file}")]
    Unreadable {
        /// Which file.
        file: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The machine uses the first version, or this process cannot see the second.
    #[error("no cgroup v2 is mounted where this process could use it")]
    NotMounted,
    /// Not delegated to this user, or mounted for reading.
    #[error("this process may not make cgroups in {}", folder.display())]
    Denied {
        /// Where.
        folder: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Before Linux 5.14, or a cgroup of threads.
    #[error("cgroups in {} cannot be used: {lack}", folder.display())]
    Unfit {
        /// Where.
        folder: PathBuf,
        /// What is missing.
        lack: &'static str,
    },
}

/// The place for one daemon's cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    /// This daemon's folder. It exists only while something is in it.
    folder: PathBuf,
}

impl Cgroups {
    /// The place for the daemon with this state folder, after trying once that a cgroup can be
    /// made there, holds processes, and can be killed.
    ///
    /// # Errors
    /// See [`NoCgroups`].
    pub fn find(state_key: &str) -> Result<Self, NoCgroups> {
        let this = Self::look(state_key)?;
        let made = make_folder(&this.folder).map_err(|source| this.denied(source));
        let checked = made.and_then(|()| this.check());
        give_back(&this.folder);
        checked.map(|()| this)
    }

    /// The place [`Cgroups::find`] would try. Changes nothing.
    ///
    /// # Errors
    /// See [`NoCgroups`].
    pub fn look(state_key: &str) -> Result<Self, NoCgroups> {
        let read = |file| match fs::read(file) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(source) => Err(NoCgroups::Unreadable { file, source }),
        };
        let (own, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
        let own = own_path(&own).ok_or(NoCgroups::NotMounted)?;
        let above = own_folders(&mounts, &own)
            .find(|folder| folder.join(PROCS).exists())
            .ok_or(NoCgroups::NotMounted)?;
        let folder = above.join(folder_name(state_key));
        let this = Self { folder };
        // A process enters through the cgroup above both its old and its new one.
        for needed in [above.clone(), above.join(PROCS)] {
            rustix::fs::accessat(CWD, &needed, Access::WRITE_OK, AtFlags::EACCESS)
                .map_err(|errno| this.denied(errno.into()))?;
        }
        Ok(this)
    }

    /// This daemon's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the cgroup of one launch.
    ///
    /// # Errors
    /// It exists already, or the kernel refuses.
    pub fn create(&self, session: SessionId, incarnation: Incarnation) -> io::Result<Cgroup> {
        let path = self.folder.join(name_of(session, incarnation));
        for _ in 0..MAKE_TRIES_MAX {
            make_folder(&self.folder)?;
            match rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)) {
                Ok(()) => return Cgroup::open(&path),
                // The folder was given back in between, with the last cgroup in it.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::NOENT.into())
    }

    /// True for a path that this daemon, or an earlier one with the same state folder, has made.
    /// The daemon may run in another cgroup than the earlier one did.
    #[must_use]
    pub fn owns(&self, path: &Path) -> bool {
        let folder = path.parent().and_then(Path::file_name);
        is_plain(path) && folder.is_some() && folder == self.folder.file_name()
    }

    /// Ends what is in cgroups of this daemon's folder that are not listed in `adopted`, and
    /// removes them. Says for people what was found.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn end_leftovers(&self, adopted: &[PathBuf]) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for path in self.launches()? {
            if !adopted.contains(&path) {
                found.push(end_leftover(&path));
            }
        }
        give_back(&self.folder);
        Ok(found)
    }

    /// The cgroups that are there.
    fn launches(&self) -> io::Result<Vec<PathBuf>> {
        let names = match super::open_folder(CWD, &self.folder) {
            Ok(folder) => subfolders(&folder)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(names.iter().map(|name| self.folder.join(name)).collect())
    }

    fn check(&self) -> Result<(), NoCgroups> {
        let unfit = |lack| NoCgroups::Unfit {
            folder: self.folder.clone(),
            lack,
        };
        if ![EVENTS, FREEZE, KILL]
            .iter()
            .all(|file| self.folder.join(file).exists())
        {
            return Err(unfit("there is no cgroup.kill (Linux 5.14)"));
        }
        match fs::read_to_string(self.folder.join("cgroup.type")) {
            Ok(kind) if kind.trim_end() == "domain" => Ok(()),
            _ => Err(unfit("only threads can be put there")),
        }
    }

    fn denied(&self, source: io::Error) -> NoCgroups {
        let folder = self.folder.parent().unwrap_or(&self.folder).to_owned();
        NoCgroups::Denied { folder, source }
    }
}

fn end_leftover(path: &Path) -> String {
    let ended = || -> io::Result<(usize, bool)> {
        let cgroup = Cgroup::open(path)?;
        let processes = cgroup.processes()?.len();
        cgroup.kill()?;
        let is_empty = cgroup.wait_until_empty(Instant::now() + LEFTOVER_MAX)?;
        if is_empty {
            cgroup.remove()?;
        }
        Ok((processes, is_empty))
    };
    let name = path.display();
    match ended() {
        Ok((processes, true)) => format!("{name}: ended {processes} processes"),
        Ok((_, false)) => format!("{name}: not every process could be ended"),
        Err(error) => format!("{name}: {error}"),
    }
}

/// Removes the cgroup with this path, if it is there and nobody is in it. Somebody may be: what is
/// kept, or could not be ended.
pub fn remove(path: &Path) {
    let removed = Cgroup::open(path).and_then(Cgroup::remove);
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(cgroup = %path.display(), %error, "a cgroup is left");
        }
        _ => {}
    }
}

/// True when this process is in the cgroup with this path, or below it, as far as can be seen: of
/// one that has been collected nothing can.
#[must_use]
pub fn holds(path: &Path, pid: i32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
        return true;
    };
    // What a process sees of the path above depends on its namespace, and these two names are
    // those of one launch.
    let names = |path: &Path| -> Vec<_> { path.iter().map(OsStr::to_owned).collect() };
    let wanted = names(path);
    let tail = &wanted[wanted.len().saturating_sub(2)..];
    own_path(&text).is_some_and(|own| names(&own).windows(2).any(|two| two == tail))
}

/// What the cgroup of a launch is called.
pub(super) fn name_of(session: SessionId, incarnation: Incarnation) -> String {
    format!("{session}-{}", incarnation.0)
}

/// True for an absolute path without `..`, which is what the kernel shows of cgroups outside the
/// namespace of whoever asks.
pub(super) fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| part != Component::ParentDir)
}

/// Removes the folder of a daemon if nothing is in it any more.
pub(super) fn give_back(folder: &Path) {
    let is_ours = |name: &OsStr| name.to_string_lossy().starts_with(PREFIX);
    if folder.file_name().is_some_and(is_ours) {
        // Refused while a launch has a cgroup in it; the last one to go succeeds.
        drop(remove_folder(CWD, folder));
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(folder, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The same for every release of Drowse, so that a newer daemon finds what an older one made:
/// FNV-1a of 64 bits.
fn folder_name(state_key: &str) -> String {
    let hash = state_key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{PREFIX}{hash:016x}")
}

/// The path of this process in the hierarchy of version 2, from `/proc/self/cgroup`; `None` when
/// it has none, or lies outside its cgroup namespace.
fn own_path(cgroups: &str) -> Option<PathBuf> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(PathBuf::from(path)).filter(|path| is_plain(path))
}

/// The folders in which the cgroup `own` is visible, from `/proc/self/mountinfo`.
fn own_folders<'a>(mounts: &'a str, own: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    mounts.lines().filter_map(move |line| {
        let (place, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = place.split(' ').skip(3).map(unescape);
        let (root, mount) = (fields.next()?, fields.next()?);
        let below = own.strip_prefix(&root).ok()?;
        is_plain(&root).then(|| mount.join(below))
    })
}

/// Spaces, tabs, line ends and backslashes stand in `mountinfo` as `\` and three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(3).unwrap_or((part, ""));
        match u8::from_str_radix(digits, 8) {
            Ok(byte) => text.push(char::from(byte)),
            Err(_) => text.push_str(digits),
        }
        text.push_str(rest);
    }
    PathBuf::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hybrid machine, a container with a namespace, one without, and a name with a space.
    #[test]
    fn the_mount_is_found_where_it_is() {
        let hybrid = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
        let container = "30 20 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw";
        let outside = "30 20 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw";
        let spaced = r"30 20 0:26 / /mnt/a\040b\134c rw - cgroup2 cgroup rw";
        for (mounts, own, expected) in [
            (hybrid, "/", Some("/sys/fs/cgroup/unified/")),
            (hybrid, "/a/b", Some("/sys/fs/cgroup/unified/a/b")),
            (container, "/docker/abc/x", Some("/sys/fs/cgroup/x")),
            (container, "/docker/abcd", None),
            (outside, "/", None),
            (spaced, "/", Some(r"/mnt/a b\c/")),
            ("", "/", None),
        ] {
            let found = own_folders(mounts, Path::new(own)).next();
            assert_eq!(found, expected.map(PathBuf::from), "{own} in {mounts}");
        }
    }

    #[test]
    fn a_cgroup_outside_the_namespace_is_refused() {
        assert_eq!(own_path("1:cpu:/x\n0::/a/b\n"), Some("/a/b".into()));
        assert_eq!(own_path("0::/../b\n"), None);
        assert_eq!(own_path("1:cpu:/x\n"), None);
    }

    /// A path from disk: of this state folder, whoever wrote it, and of nobody else.
    #[test]
    fn only_paths_of_the_same_state_folder_are_owned() {
        let cgroups = Cgroups {
            folder: Path::new("/sys/fs/cgroup").join(folder_name("/home/me/state")),
        };
        let name = folder_name("/home/me/state");
        assert!(
            cgroups.owns(
                &Path::new("/sys/fs/cgroup/user.slice")
                    .join(&name)
                    .join("a-1")
            )
        );
        for stranger in [
            "/",
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/drowse-0000000000000000/a-1",
            &format!("/sys/fs/cgroup/{name}"),
            &format!("/sys/fs/cgroup/{name}/../../a-1"),
            &format!("{name}/a-1"),
        ] {
            assert!(!cgroups.owns(Path::new(stranger)), "{stranger}");
        }
    }

    /// A newer release must find what an older one made.
    #[test]
    fn the_folder_is_named_as_ever() {
        assert_eq!(folder_name(""), "drowse-cbf29ce484222325");
        assert_eq!(folder_name("a"), "drowse-af63dc4c8601ec8c");
    }
}
