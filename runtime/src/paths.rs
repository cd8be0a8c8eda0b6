//! Where the state, the socket and the start lock are.
//!
//! Fed by the flags and the environment; used by the daemon and by everything that looks for it,
//! so that both always agree. Invariant: a folder that anybody else could have put there, or could
//! write into, is never used (the fallback below `/tmp` is the case in point).

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// 107 bytes: `sockaddr_un` has room for 108, one of which ends the text.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The places of one daemon, all absolute. Nothing has been created by knowing them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Database, keys, log.
    pub state_dir: PathBuf,
    /// Where the start lock is, and the socket unless another was asked for.
    pub runtime_dir: PathBuf,
    /// The Unix socket.
    pub socket: PathBuf,
}

/// What the places depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSources {
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
    /// `--socket`.
    pub socket: Option<PathBuf>,
    /// `$XDG_STATE_HOME`.
    pub xdg_state_home: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// Who we are.
    pub uid: u32,
}

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathsError {
    /// Nothing says where the state is to be.
    #[error("no place for the state: neither --state-dir, XDG_STATE_HOME nor HOME is set")]
    NoHome,
    /// The kernel would not take it.
    #[error(
        "the socket's path {} has {} bytes, {SOCKET_PATH_BYTES_MAX} are possible: choose a shorter one with --socket",
        .0.display(), .0.as_os_str().len()
    )]
    SocketTooLong(PathBuf),
    /// A relative path cannot be made absolute, or a folder cannot be made or looked at.
    #[error("failed to {doing} {}", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is there, and not safe to use.
    #[error("{} is not safe to use: {why}", .path.display())]
    Unsafe {
        /// Which folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl PathSources {
    /// Flags and this process's environment. As XDG says, a relative path in a variable counts
    /// as none.
    #[must_use]
    pub fn of_process(state_dir: Option<PathBuf>, socket: Option<PathBuf>) -> Self {
        let absolute = |name| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        Self {
            state_dir,
            socket,
            xdg_state_home: absolute("XDG_STATE_HOME"),
            xdg_runtime_dir: absolute("XDG_RUNTIME_DIR"),
            home: absolute("HOME"),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

impl Paths {
    /// Decides on the places. A state folder given by hand holds everything, so that two daemons
    /// with different state never meet at one socket.
    ///
    /// # Errors
    /// When there is no place, or the socket's path is too long.
    pub fn resolve(sources: &PathSources) -> Result<Self, PathsError> {
        let given = sources.state_dir.as_deref().map(absolute).transpose()?;
        let state_home = sources
            .xdg_state_home
            .clone()
            .or_else(|| sources.home.as_ref().map(|home| home.join(".local/state")));
        let state_dir = match (&given, state_home) {
            (Some(dir), _) => dir.clone(),
            (None, Some(home)) => home.join("drowse"),
            (None, None) => return Err(PathsError::NoHome),
        };
        let runtime_dir = match (given, &sources.xdg_runtime_dir) {
            (Some(dir), _) => dir,
            (None, Some(dir)) => dir.join("drowse"),
            (None, None) => PathBuf::from(format!("/tmp/drowse-{}", sources.uid)),
        };
        let socket = match &sources.socket {
            Some(socket) => absolute(socket)?,
            None => runtime_dir.join("drowse.sock"),
        };
        if socket.as_os_str().as_bytes().len() > SOCKET_PATH_BYTES_MAX {
            return Err(PathsError::SocketTooLong(socket));
        }
        Ok(Self {
            state_dir,
            runtime_dir,
            socket,
        })
    }

    /// Makes the folders that are missing (0700) and checks those that are there.
    ///
    /// # Errors
    /// When one cannot be made, is somebody else's, or others may write into it.
    pub fn create(&self) -> Result<(), PathsError> {
        make_private(&self.state_dir)?;
        make_private(&self.runtime_dir)?;
        self.check()
    }

    /// Checks those folders that are there.
    ///
    /// # Errors
    /// When one is somebody else's, or others may write into it.
    pub fn check(&self) -> Result<(), PathsError> {
        check_own(&self.state_dir)?;
        check_own(&self.runtime_dir)
    }

    /// Makes the folder in which keepers listen, inside the state folder that is there, and checks
    /// it.
    ///
    /// # Errors
    /// As [`Paths::create`].
    pub fn create_keepers(&self) -> Result<(), PathsError> {
        make_private(&self.keepers())?;
        check_own(&self.keepers())
    }

    /// Where the lock is that lets one of several starters start the daemon.
    #[must_use]
    pub fn start_lock(&self) -> PathBuf {
        self.runtime_dir.join("start.lock")
    }

    /// Where keepers listen for the next daemon. Beside the state, because that is what the next
    /// daemon has in common with this one.
    #[must_use]
    pub fn keepers(&self) -> PathBuf {
        self.state_dir.join("keepers")
    }

    /// Where a daemon without a terminal writes.
    #[must_use]
    pub fn serve_log(&self) -> PathBuf {
        self.state_dir.join("serve.log")
    }
}

fn absolute(path: &Path) -> Result<PathBuf, PathsError> {
    std::path::absolute(path).map_err(|source| failed("make absolute", path, source))
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> PathsError {
    let path = path.to_owned();
    PathsError::Io {
        doing,
        path,
        source,
    }
}

/// Makes the folder for its owner alone. One of ours that is there, and open to others, is closed
/// to them while it is empty or holds a database of ours; with anything else in it, that could
/// break whoever uses it (`--state-dir /tmp`, by a slip), so it is refused.
fn make_private(dir: &Path) -> Result<(), PathsError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| failed("make the folder", dir, source))?;
    let found = fs::metadata(dir).map_err(|source| failed("look at", dir, source))?;
    if found.mode() & 0o077 == 0 || found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let mut entries = fs::read_dir(dir).map_err(|source| failed("look into", dir, source))?;
    if entries.next().is_some() && !dir.join("drowse.db").exists() {
        let why = "it holds other files and is open to other users: choose one for drowse alone";
        return Err(refused(dir, why));
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
        .map_err(|source| failed("close to others", dir, source))
}

fn refused(dir: &Path, why: impl Into<String>) -> PathsError {
    PathsError::Unsafe {
        path: dir.to_owned(),
        why: why.into(),
    }
}

/// A folder that is ours and that nobody else can write into. A link has to be ours too: whoever
/// made it could turn it elsewhere.
fn check_own(dir: &Path) -> Result<(), PathsError> {
    let look = |result: io::Result<fs::Metadata>| match result {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("look at", dir, error)),
    };
    let refuse = |why: String| Err(refused(dir, why));
    let (Some(link), Some(target)) = (look(fs::symlink_metadata(dir))?, look(fs::metadata(dir))?)
    else {
        return Ok(());
    };
    let own = rustix::process::geteuid().as_raw();
    if !target.is_dir() {
        return refuse("it is not a folder".to_owned());
    }
    if link.uid() != own || target.uid() != own {
        return refuse(format!(
            "it belongs to user {}, not to us ({own})",
            target.uid()
        ));
    }
    if target.mode() & 0o022 != 0 {
        let mode = target.mode() & 0o777;
        return refuse(format!(
            "others may write into it (mode {mode:04o}, 0700 is right)"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn sources() -> PathSources {
        PathSources {
            home: Some("/home/me".into()),
            uid: 1000,
            ..PathSources::default()
        }
    }

    #[test]
    fn the_places_follow_flags_then_xdg_then_home() {
        let plain = Paths::resolve(&sources()).unwrap();
        assert_eq!(plain.state_dir, Path::new("/home/me/.local/state/drowse"));
        assert_eq!(plain.socket, Path::new("/tmp/drowse-1000/drowse.sock"));

        let xdg = Paths::resolve(&PathSources {
            xdg_state_home: Some("/s".into()),
            xdg_runtime_dir: Some("/run/user/1000".into()),
            ..sources()
        })
        .unwrap();
        assert_eq!(xdg.state_dir, Path::new("/s/drowse"));
        assert_eq!(xdg.socket, Path::new("/run/user/1000/drowse/drowse.sock"));
        assert_eq!(
            xdg.start_lock(),
            Path::new("/run/user/1000/drowse/start.lock")
        );

        let given = Paths::resolve(&PathSources {
            state_dir: Some("/d".into()),
            xdg_runtime_dir: Some("/run/user/1000".into()),
            ..sources()
        })
        .unwrap();
        assert_eq!(given.socket, Path::new("/d/drowse.sock"));
        assert_eq!(given.start_lock(), Path::new("/d/start.lock"));

        let socket = Paths::resolve(&PathSources {
            socket: Some("/x/y.sock".into()),
            ..sources()
        })
        .unwrap();
        assert_eq!(socket.socket, Path::new("/x/y.sock"));
        assert_eq!(socket.state_dir, plain.state_dir);
    }

    #[test]
    fn without_a_home_there_is_no_place() {
        let error = Paths::resolve(&PathSources::default()).unwrap_err();
        assert!(matches!(error, PathsError::NoHome));
    }

    #[test]
    fn a_socket_path_the_kernel_would_not_take_is_named() {
        let fits = |bytes: usize| {
            Paths::resolve(&PathSources {
                socket: Some(format!("/{}", "x".repeat(bytes - 1)).into()),
                ..sources()
            })
        };
        assert!(fits(107).is_ok());
        let error = fits(108).unwrap_err().to_string();
        assert!(
            error.contains("/xxx") && error.contains("108 bytes"),
            "{error}"
        );
    }

    /// A folder that another user prepared in /tmp, and one others may write into.
    #[test]
    fn unsafe_folders_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("state");
        let paths = Paths::resolve(&PathSources {
            state_dir: Some(dir.clone()),
            ..sources()
        })
        .unwrap();
        paths.check().expect("what is not there is not unsafe");
        paths.create().unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);

        fs::set_permissions(&dir, fs::Permissions::from_mode(0o770)).unwrap();
        let error = paths.check().unwrap_err().to_string();
        assert!(error.contains("0770"), "{error}");
        paths
            .create()
            .expect("an empty one of ours is closed to others");
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);

        fs::write(dir.join("notes"), "").unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let error = paths.create().unwrap_err().to_string();
        assert!(error.contains("holds other files"), "{error}");
        fs::remove_file(dir.join("notes")).unwrap();

        fs::remove_dir(&dir).unwrap();
        fs::write(&dir, "").unwrap();
        assert!(
            paths
                .check()
                .unwrap_err()
                .to_string()
                .contains("not a folder")
        );

        fs::remove_file(&dir).unwrap();
        symlink("/dev/null", &dir).unwrap();
        assert!(paths.check().is_err());
    }
}
