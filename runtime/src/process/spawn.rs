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

pub use super::adopted::adopt_orphans;
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
pub struct KeeperProgram(PathBuf);

impl KeeperProgram {
    /// Keepers are started from this file.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

impl Default for KeeperProgram {
    /// The program that is running.
    fn default() -> Self {
        Self::at(Path::new(OWN_PROGRAM))
    }
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
    let child = Command::new(&program.0)
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
