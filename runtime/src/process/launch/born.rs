//! Starts the agent inside its cgroup, so that there is no moment in which it, or anything that it
//! starts, is elsewhere.
//!
//! Fed by launch.rs. The C library's `posix_spawn` cannot do this (its newest releases can), so
//! the keeper forks: it is small and has a single thread, which makes that cheap and sound.
//! Invariant: on any way to fail, no child is left and the error is that of the step that failed.

use std::ffi::c_int;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::SigSet;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, execve, fork, pipe2, setpgid};

use super::Recipe;
use crate::process::cgroup::{Cgroup, PROCS};

/// Of `clone3(2)`: the child is born in the cgroup of `clone_args.cgroup`. The constant of the
/// C library's binding has a type that is too small for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The highest signal number of Linux.
const SIGNAL_MAX: c_int = 64;

/// The exit code of a child that ran no program; nobody sees it.
const NOT_RUN: c_int = 127;

/// Starts the agent in `cgroup`.
///
/// # Errors
/// What `fork` or `execve` said. That the cgroup could not be entered is no error: the agent runs
/// outside of it then.
pub(super) fn start(recipe: &Recipe, ends: [RawFd; 3], cgroup: &Cgroup) -> nix::Result<Pid> {
    let (failure, failure_write) = pipe2(OFlag::O_CLOEXEC)?;
    let procs = cgroup.open_to_write(PROCS).ok();
    // Docker's filter of system calls knows no clone3. A child that enters by itself before it
    // runs the agent's program is as good: it has started nothing yet.
    let (child, born_inside) = match clone_into(cgroup) {
        Ok(child) => (child, true),
        Err(_) => (plain_fork()?, false),
    };
    match child {
        ForkResult::Child => {
            let entered = procs.filter(|_| !born_inside);
            become_agent(recipe, ends, entered, failure_write)
        }
        ForkResult::Parent { child } => {
            drop(failure_write);
            match read_failure(failure) {
                None => Ok(child),
                Some(errno) => {
                    waitpid(child, None)?;
                    Err(errno)
                }
            }
        }
    }
}

/// As `fork`, with the child in the cgroup.
#[expect(unsafe_code, reason = "neither nix nor rustix has clone3(2)")]
fn clone_into(cgroup: &Cgroup) -> nix::Result<ForkResult> {
    // SAFETY: a structure of plain numbers, for which zero means "not wanted".
    let mut wanted: libc::clone_args = unsafe { std::mem::zeroed() };
    wanted.flags = CLONE_INTO_CGROUP;
    wanted.exit_signal = u64::try_from(libc::SIGCHLD).expect("signal numbers are positive");
    wanted.cgroup =
        u64::try_from(cgroup.as_fd().as_raw_fd()).expect("an open descriptor is not negative");
    // SAFETY: the structure lives and has the size given. Without CLONE_VM and without a stack the
    // child goes on here with a copy of the memory, as after fork; there is no other thread.
    let result =
        unsafe { libc::syscall(libc::SYS_clone3, &raw const wanted, size_of_val(&wanted)) };
    match i32::try_from(Errno::result(result)?) {
        Ok(0) => Ok(ForkResult::Child),
        Ok(pid) => Ok(ForkResult::Parent {
            child: Pid::from_raw(pid),
        }),
        Err(_) => Err(Errno::EOVERFLOW),
    }
}

#[expect(
    unsafe_code,
    reason = "fork is unsafe in programs with several threads"
)]
fn plain_fork() -> nix::Result<ForkResult> {
    // SAFETY: a keeper has a single thread.
    unsafe { fork() }
}

/// The child's way to the agent's program; the failure is written where the keeper reads it.
fn become_agent(recipe: &Recipe, ends: [RawFd; 3], procs: Option<OwnedFd>, failure: OwnedFd) -> ! {
    if let Some(procs) = procs {
        // Where the agent is in the end is looked at from outside.
        let _ = rustix::io::write(&procs, b"0");
    }
    let failed = match take_standing(ends).and_then(|()| recipe.run(execve)) {
        Ok(never) => match never {},
        Err(errno) => errno,
    };
    drop(File::from(failure).write_all(&(failed as i32).to_ne_bytes()));
    leave()
}

/// What [`super`] promises: own group, default signals, three descriptors.
#[expect(
    unsafe_code,
    reason = "nix sets dispositions of named signals only, and dup2 to owned descriptors"
)]
fn take_standing(ends: [RawFd; 3]) -> nix::Result<()> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    for (target, end) in (0..).zip(ends) {
        // SAFETY: both are open descriptors of this process, which is about to become another
        // program; nothing of this one relies on what 0, 1 and 2 were.
        Errno::result(unsafe { libc::dup2(end, target) })?;
    }
    for signal in 1..=SIGNAL_MAX {
        // SAFETY: no function of ours is named. SIGKILL, SIGSTOP and the two that the C library
        // keeps to itself refuse, and are at their default.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    SigSet::empty().thread_set_mask()
}

#[expect(unsafe_code, reason = "nix has no _exit")]
fn leave() -> ! {
    // SAFETY: ends this process without running what the keeper would run at its end.
    unsafe { libc::_exit(NOT_RUN) }
}

/// What the child could not do; `None` once it runs the agent's program, which closes its end.
fn read_failure(from: OwnedFd) -> Option<Errno> {
    let mut number = [0; size_of::<i32>()];
    File::from(from).read_exact(&mut number).ok()?;
    Some(Errno::from_raw(i32::from_ne_bytes(number)))
}
