//! Starts keepers.
//!
//! Fed by: link.rs. The agent itself is started by the keeper.
//! Invariant: nothing here makes the standard library fork (no `pre_exec`, uid or gid), because a
//! fork copies the daemon's page tables: 37 ms at 1 GB. And neither argv nor environment of a
//! keeper holds anything of its agent's, so that killing processes by a pattern that means the
//! agent does not hit the keeper (D10).

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drowse_messages::{ProcIdentity, SessionId};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::keeper;
use super::table;

/// The program itself, also after its file was replaced by an upgrade.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Names the session in a keeper's environment, for people who look.
pub const SESSION_VARIABLE: &str = "DROWSE_SESSION";

/// When set in the daemon's environment, keepers keep its standard error.
const DEBUG_VARIABLE: &str = "DROWSE_KEEPER_STDERR";

/// The program that keepers are started from: one whose `main` calls
/// [`keeper::run_if_asked`] first.
#[derive(Clone, Debug)]
pub struct KeeperProgram {
    path: PathBuf,
    nofile: Option<(u64, u64)>,
}

impl KeeperProgram {
    /// Keepers are started from this file.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            nofile: None,
        }
    }

    /// Agents whose launch says nothing of it get this limit of open descriptors, soft and hard:
    /// what [`raise_descriptor_limit`] returned.
    #[must_use]
    pub fn with_descriptor_limit(mut self, nofile: (u64, u64)) -> Self {
        self.nofile = Some(nofile);
        self
    }

    pub(super) const fn nofile(&self) -> Option<(u64, u64)> {
        self.nofile
    }
}

impl Default for KeeperProgram {
    /// The program that is running.
    fn default() -> Self {
        Self::at(Path::new(OWN_PROGRAM))
    }
}

/// Raises the soft limit of open descriptors as far as allowed, since an awake session takes four
/// of them. Returns what it was, soft and hard: agents get that one, and so must a program that
/// takes the place of this one.
///
/// # Errors
/// The limit stays as it is.
pub fn raise_descriptor_limit() -> io::Result<(u64, u64)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok((soft, hard))
}

/// Starts a keeper; its control socket is returned with it. Blocks until the program runs
/// (about 0.2 ms).
///
/// The keeper stays a child of this process: whoever starts it collects it by its pid.
///
/// # Errors
/// No descriptor, no process, or no program.
pub(super) fn spawn_keeper(
    program: &KeeperProgram,
    session: SessionId,
) -> io::Result<(ProcIdentity, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let stderr = std::env::var_os(DEBUG_VARIABLE).map_or_else(Stdio::null, |_| Stdio::inherit());
    let session = session.to_string();
    let child = Command::new(&program.path)
        .arg0("drowse")
        .args([keeper::ARGUMENT, &session])
        .env_clear()
        .env(SESSION_VARIABLE, &session)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()?;
    // Not collected before its identity is read, so the number is its own.
    let keeper = table::identify(child.id().cast_signed())?;
    Ok((keeper, ours))
}
