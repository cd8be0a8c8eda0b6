//! Starts the agent from within its keeper.
//!
//! Fed by: keeper.rs. Knows nothing of the control socket.
//! Invariant: the agent starts with the argv, environment and working folder it was given, as the
//! leader of its own process group in the keeper's session, with every signal at its default and
//! none blocked, and with no descriptor but 0, 1 and 2, which are pipes. With a cgroup it is born
//! in it ([`born`]); a launch is never refused because of one: whoever asked looks where the agent
//! is.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::unistd::{Pid, pipe2};

use super::cgroup::Cgroup;
use super::control::{Launch, LaunchError, LaunchStep};

mod born;

/// What `execvp` searches when the environment names no `PATH`.
const PATH_DEFAULT: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// The daemon's ends of an agent's standard streams.
#[derive(Debug)]
pub(super) struct Stdio {
    /// The write end of its standard input; `None` once closed.
    pub stdin: Option<OwnedFd>,
    /// The read end of its standard output.
    pub stdout: OwnedFd,
    /// The read end of its standard error.
    pub stderr: OwnedFd,
}

/// Starts the agent; its ends of the pipes are closed here afterwards.
pub(super) fn start(launch: &Launch) -> Result<(Pid, Stdio), LaunchError> {
    let failed = |step| {
        move |errno: Errno| LaunchError {
            step,
            errno: errno as i32,
        }
    };
    nix::unistd::chdir(&launch.cwd).map_err(failed(LaunchStep::Cwd))?;
    let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(failed(LaunchStep::Pipes));
    let ((stdin_read, stdin), (stdout, stdout_write), (stderr, stderr_write)) =
        (pipe()?, pipe()?, pipe()?);
    let ends = [
        stdin_read.as_raw_fd(),
        stdout_write.as_raw_fd(),
        stderr_write.as_raw_fd(),
    ];
    let recipe = Recipe::of(launch).map_err(failed(LaunchStep::Program))?;
    let cgroup = launch.cgroup.as_deref().map(Cgroup::open);
    let agent = match cgroup {
        Some(Ok(cgroup)) => born::start(&recipe, ends, &cgroup),
        Some(Err(_)) | None => spawn(&recipe, ends),
    };
    let agent = agent.map_err(failed(LaunchStep::Program))?;
    Ok((
        agent,
        Stdio {
            stdin: Some(stdin),
            stdout,
            stderr,
        },
    ))
}

/// What `execve` takes.
struct Recipe {
    programs: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl Recipe {
    fn of(launch: &Launch) -> nix::Result<Self> {
        let argv = launch.argv.iter().map(|text| c_string(text));
        let env = launch.env.iter().map(env_entry);
        Ok(Self {
            programs: candidates(launch)?,
            argv: argv.collect::<Result<_, _>>()?,
            env: env.collect::<Result<_, _>>()?,
        })
    }

    /// Has `run` try one program after the other, as `execvp` does.
    fn run<T>(
        &self,
        run: impl Fn(&CStr, &[CString], &[CString]) -> nix::Result<T>,
    ) -> nix::Result<T> {
        let mut denied = None;
        for program in &self.programs {
            match run(program, &self.argv, &self.env) {
                // A script without `#!` is run by the shell, as hosts rely on.
                Err(Errno::ENOEXEC) => {
                    return run(c"/bin/sh", &shell_argv(program, &self.argv), &self.env);
                }
                Err(Errno::EACCES) => denied = Some(Errno::EACCES),
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                outcome => return outcome,
            }
        }
        Err(denied.unwrap_or(Errno::ENOENT))
    }
}

fn spawn(recipe: &Recipe, ends: [RawFd; 3]) -> nix::Result<Pid> {
    let mut actions = PosixSpawnFileActions::init()?;
    for (target, end) in (0..).zip(ends) {
        actions.add_dup2(end, target)?;
    }
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETPGROUP
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    )?;
    attributes.set_pgroup(Pid::from_raw(0))?;
    attributes.set_sigmask(&SigSet::empty())?;
    attributes.set_sigdefault(&SigSet::all())?;
    recipe.run(|program, argv, env| posix_spawn(program, &actions, &attributes, argv, env))
}

/// Where the program may be: itself if it holds a slash, else in each folder of the agent's
/// `PATH`. A later folder is tried when an earlier one has no such program or forbids it.
fn candidates(launch: &Launch) -> nix::Result<Vec<CString>> {
    let program = launch
        .argv
        .first()
        .filter(|name| !name.is_empty())
        .ok_or(Errno::ENOENT)?;
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    let path = launch.env.iter().find(|(name, _)| name == "PATH");
    let path = path.map_or(PATH_DEFAULT, |(_, value)| value.as_bytes());
    path.split(|&byte| byte == b':')
        .map(|folder| {
            // An empty entry means the working folder.
            let folder: &[u8] = if folder.is_empty() { b"." } else { folder };
            c_string(OsStr::from_bytes(
                &[folder, b"/", program.as_bytes()].concat(),
            ))
        })
        .collect()
}

fn shell_argv(program: &CStr, argv: &[CString]) -> Vec<CString> {
    let arguments = argv.iter().skip(1).cloned();
    [c"/bin/sh".to_owned(), program.to_owned()]
        .into_iter()
        .chain(arguments)
        .collect()
}

fn env_entry((name, value): &(std::ffi::OsString, std::ffi::OsString)) -> nix::Result<CString> {
    let mut entry = name.clone();
    entry.push("=");
    entry.push(value);
    CString::new(entry.into_vec()).map_err(|_| Errno::EINVAL)
}

fn c_string(text: &OsStr) -> nix::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| Errno::EINVAL)
}
