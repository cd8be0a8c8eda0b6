//! The program that takes this daemon's place: the file it was started from, as it is by then.
//!
//! Fed by `daemon.rs`. The process stays and its program is exchanged (execve), so pid, parent,
//! service manager, terminal and children stay right: keepers are children still. Invariant: no
//! daemon gives itself up for a program that was not seen to run.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::time::Instant;

use crate::lock::StateLock;

/// The program that is running, also once its file is replaced or removed.
const RUNNING: &str = "/proc/self/exe";

/// How long the new program may take to say its version. 10 s: it does nothing else, so this is
/// for a disk that sleeps.
const VERSION_MAX: Duration = Duration::from_secs(10);

/// 10 ms: a version is said in less.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// 256 bytes: a name and a version are a line.
const VERSION_BYTES_MAX: usize = 256;

/// How this process was started.
#[derive(Debug)]
pub(crate) struct Successor {
    program: PathBuf,
    args: Vec<OsString>,
    cwd: PathBuf,
    /// The limit of open descriptors, soft and hard.
    nofile: Option<(u64, u64)>,
    /// What it holds from its first moment.
    lock: Option<StateLock>,
}

impl Successor {
    /// Of this process, before it changed anything of itself.
    pub(crate) fn of_process() -> io::Result<Self> {
        let args: Vec<OsString> = std::env::args_os().collect();
        let running = fs::read_link(RUNNING)?;
        let named = args.first().and_then(|name| file_of(name));
        // A link is followed anew: it may lead to the next release by then.
        let program = named
            .filter(|named| is_same(named, &running))
            .unwrap_or(running);
        Ok(Self {
            program,
            args,
            cwd: std::env::current_dir()?,
            nofile: getrlimit(Resource::RLIMIT_NOFILE).ok(),
            lock: None,
        })
    }

    /// It is left this lock.
    pub(crate) fn holding(self, lock: StateLock) -> Self {
        let lock = Some(lock);
        Self { lock, ..self }
    }

    /// The version of the program as it is now, by its own word; or why it would not do.
    pub(crate) async fn version(&self) -> Result<String, String> {
        let shown = self.program.display();
        let cannot = |error: io::Error| format!("{shown} cannot be run: {error}");
        let mut child = Command::new(&self.program)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(cannot)?;
        let status = end_of(&mut child).await.map_err(cannot)?;
        let status = status
            .ok_or_else(|| format!("{shown} did not say its version within {VERSION_MAX:?}"))?;
        let mut said = [0; VERSION_BYTES_MAX];
        // It has ended, so what it said is in the pipe.
        let read = child.stdout.take().map(|mut stdout| stdout.read(&mut said));
        let length = read.and_then(Result::ok).unwrap_or_default();
        let said = String::from_utf8_lossy(&said[..length]);
        match said.trim().strip_prefix("drowse ") {
            Some(version) if status.success() => Ok(version.to_owned()),
            Some(_) | None => Err(format!("{shown} does not say that it is a drowse")),
        }
    }

    /// Becomes it. Returns only if neither that program nor the running one can be executed.
    pub(crate) fn replace(self) -> io::Error {
        if let Err(error) = std::env::set_current_dir(&self.cwd) {
            // Relative paths among the arguments will say so.
            tracing::warn!(%error, "failed to go back to the folder of the start");
        }
        if let Some((soft, hard)) = self.nofile
            && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, soft, hard)
        {
            tracing::warn!(%error, "failed to take the limit of open descriptors back");
        }
        if let Some(lock) = &self.lock
            && let Err(error) = lock.leave_to_successor()
        {
            tracing::warn!(%error, "for a moment the state folder is nobody's");
        }
        let error = self.execute(&self.program);
        tracing::error!(program = %self.program.display(), %error, "failed to start the new program");
        self.execute(Path::new(RUNNING))
    }

    fn execute(&self, program: &Path) -> io::Error {
        let (name, args) = match self.args.split_first() {
            Some((name, args)) => (name.as_os_str(), args),
            None => (OsStr::new("drowse"), &[][..]),
        };
        Command::new(program).arg0(name).args(args).exec()
    }
}

/// How it ended; `None`: not in time, and it is ended.
async fn end_of(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let late = Instant::now() + VERSION_MAX;
    while Instant::now() < late {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The file a program's name means.
fn file_of(name: &OsStr) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return std::path::absolute(name).ok();
    }
    let path = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&path).map(|folder| folder.join(name));
    let mut there = files.filter(|file| file.is_absolute() && file.is_file());
    there.next()
}

fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| {
        fs::metadata(path)
            .map(|found| (found.dev(), found.ino()))
            .ok()
    };
    file(one).is_some_and(|one| Some(one) == file(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(program: &str) -> Successor {
        Successor {
            program: program.into(),
            args: Vec::new(),
            cwd: "/".into(),
            nofile: None,
            lock: None,
        }
    }

    /// A file that is missing, fails, or is another program is no successor.
    #[tokio::test]
    async fn only_a_drowse_is_a_successor() {
        for program in ["/nonexistent/drowse", "/bin/false", "/bin/cat"] {
            assert!(of(program).version().await.is_err(), "{program}");
        }
    }

    #[test]
    fn a_program_is_found_as_a_shell_would() {
        let shell = file_of(OsStr::new("sh")).expect("every machine has one");
        assert!(shell.is_absolute() && is_same(&shell, Path::new("/bin/sh")));
        assert_eq!(file_of(OsStr::new("/bin/sh")), Some("/bin/sh".into()));
        assert_eq!(file_of(OsStr::new("no-such-program-anywhere")), None);
    }
}
