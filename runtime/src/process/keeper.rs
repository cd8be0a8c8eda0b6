//! The keeper: the small process above one backend.
//!
//! Fed by: the daemon, over the control socket that is its standard input. Single-threaded, and
//! asleep unless the daemon speaks or a child ends.
//! Invariant: whatever the agent starts stays below the keeper, because the keeper is a subreaper
//! and outlives all of it: it leaves only when it has no child. No signal but SIGKILL and SIGSTOP
//! reaches it. Should the daemon die, it ends the tree by the same ladder the daemon would have
//! used.
//! It decides nothing about sessions, writes no file, and logs nothing.

use std::env;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use drowse_messages::{ExitStatus, ReapStep};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::cgroup::Cgroup;
use super::cgroup::place;
use super::control::{FrameBuffer, FromKeeper, ToKeeper};
use super::launch::{self, Stdio};
use super::reap::{self, Scope};
use super::table;

/// The first argument that makes a program of ours a keeper.
pub const ARGUMENT: &str = "keeper";

/// What the kernel shows as the keeper's name; at most 15 bytes.
pub(super) const NAME: &str = "drowse-keeper";

/// 4 KiB: a launch is about this long, every other frame is of a few bytes.
const READ_BYTES: usize = 4096;

/// 60 s between tries to end what could not be ended: it sleeps in the kernel, or is not ours, and
/// both end by themselves or not at all.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Runs the keeper if this process was started as one; to be called before anything else, since
/// threads, open files and memory of a larger program have no place in it.
#[must_use]
pub fn run_if_asked() -> Option<ExitCode> {
    (env::args_os().nth(1)? == ARGUMENT).then(|| match Keeper::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Why the keeper's ordinary life is over.
enum End {
    /// The daemon asked it to leave.
    Asked,
    /// The daemon is gone, or talks nonsense.
    Alone,
}

struct Keeper {
    /// The control socket: our standard input, which the agent's pipe replaces in the agent.
    control: io::Stdin,
    incoming: FrameBuffer,
    children: SignalFd,
    agent: Pid,
    /// What the agent was born in.
    cgroup: Option<PathBuf>,
    /// Copies of the daemon's ends, so that the agent's pipes outlive the daemon.
    stdio: Stdio,
    eof_grace: Duration,
    term_grace: Duration,
    has_children: bool,
}

impl Keeper {
    fn run() -> nix::Result<()> {
        let children = become_keeper()?;
        let control = io::stdin();
        let mut incoming = FrameBuffer::default();
        let Some(ToKeeper::Launch(launch)) = read_first(control.as_fd(), &mut incoming) else {
            return Ok(());
        };
        let started = launch::start(&launch);
        // No folder is kept busy by a keeper, nor any mount.
        nix::unistd::chdir("/")?;
        let (agent, stdio) = match started {
            Ok(started) => started,
            Err(error) => {
                send(control.as_fd(), FromKeeper::LaunchFailed(error), None);
                return Ok(());
            }
        };
        let (eof_grace, term_grace) = (launch.eof_grace, launch.term_grace);
        let cgroup = launch.cgroup.clone();
        drop(launch);
        let has_children = true;
        let mut keeper = Self {
            control,
            incoming,
            children,
            agent,
            cgroup,
            stdio,
            eof_grace,
            term_grace,
            has_children,
        };
        keeper.announce();
        let end = keeper.watch();
        keeper.leave(end);
        Ok(())
    }

    fn announce(&self) {
        // The agent is not collected before `watch`, so its entry is there even if it has ended.
        if let Ok(agent) = table::identify(self.agent.as_raw()) {
            send(
                self.control.as_fd(),
                FromKeeper::Started(agent),
                Some(&self.stdio),
            );
        }
    }

    /// Ordinary life: passes on what children do, obeys the daemon.
    fn watch(&mut self) -> End {
        loop {
            match self.incoming.next_to_keeper() {
                Ok(Some(ToKeeper::CloseStdin)) => self.stdio.stdin = None,
                Ok(Some(ToKeeper::Leave)) => return End::Asked,
                Ok(Some(ToKeeper::Launch(_))) | Err(_) => return End::Alone,
                Ok(None) => {
                    let (has_frame, has_ended) = self.wait();
                    if has_ended {
                        self.collect();
                    }
                    if has_frame && !read_some(self.control.as_fd(), &mut self.incoming) {
                        return End::Alone;
                    }
                }
            }
        }
    }

    /// Sleeps until the daemon speaks or a child ends.
    fn wait(&self) -> (bool, bool) {
        let mut polled = [
            PollFd::new(self.control.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.children.as_fd(), PollFlags::POLLIN),
        ];
        // An interruption is not possible with every signal blocked; it would mean a round more.
        let _ = poll(&mut polled, PollTimeout::NONE);
        (
            polled[0].any().unwrap_or(true),
            polled[1].any().unwrap_or(true),
        )
    }

    /// Collects every child that has ended and tells the daemon what it needs to know.
    fn collect(&mut self) {
        while matches!(self.children.read_signal(), Ok(Some(_))) {}
        while self.has_children {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => self.collected(pid, ExitStatus::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    self.collected(pid, ExitStatus::Signal(signal as i32));
                }
                Err(Errno::ECHILD) => {
                    self.has_children = false;
                    send(self.control.as_fd(), FromKeeper::Empty, None);
                }
                _ => return,
            }
        }
    }

    fn collected(&self, pid: Pid, status: ExitStatus) {
        if pid == self.agent {
            send(self.control.as_fd(), FromKeeper::Exited(status), None);
        }
    }

    /// Ends the tree and returns once there is nothing left of it.
    fn leave(mut self, end: End) {
        self.collect();
        let Ok(own) = table::identify(std::process::id().cast_signed()) else {
            return;
        };
        let cgroup = |path| Cgroup::open(path).ok();
        let tree = Scope::keeper(own).in_cgroup(self.cgroup.as_deref().and_then(cgroup));
        if matches!(end, End::Alone) {
            self.stdio.stdin = None;
            self.wait_until_empty(self.eof_grace);
            self.step(ReapStep::Terminate, &tree);
            self.wait_until_empty(self.term_grace);
        }
        while self.has_children {
            self.step(ReapStep::Kill, &tree);
            self.collect();
            self.wait_until_empty(RETRY_AFTER);
        }
        if let Some(path) = &self.cgroup {
            place::remove(path);
        }
    }

    fn step(&self, step: ReapStep, tree: &Scope) {
        if self.has_children {
            // A failed step is tried again by `leave`; there is nobody left to tell.
            drop(reap::run(step, tree));
        }
    }

    fn wait_until_empty(&mut self, at_most: Duration) {
        let start = Instant::now();
        while self.has_children {
            let left = at_most.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            // Rounded up, so that the last wait is not a row of waits of nothing.
            let left = PollTimeout::try_from(left + Duration::from_millis(1));
            let mut polled = [PollFd::new(self.children.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut polled, left.unwrap_or(PollTimeout::MAX));
            self.collect();
        }
    }
}

/// Turns this process into one that nothing disturbs and nothing escapes.
fn become_keeper() -> nix::Result<SignalFd> {
    // Blocked rather than ignored: the mask and the dispositions of the agent are set when it is
    // started, without a moment in which a signal could end the keeper.
    SigSet::all().thread_set_mask()?;
    nix::sys::prctl::set_child_subreaper(true)?;
    nix::unistd::setsid()?;
    nix::sys::prctl::set_name(&std::ffi::CString::new(NAME).map_err(|_| Errno::EINVAL)?)?;
    close_inherited();
    let mut child_ended = SigSet::empty();
    child_ended.add(Signal::SIGCHLD);
    SignalFd::with_flags(&child_ended, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// Closes every descriptor above 2, which some other part of the daemon's program may have left
/// open across `exec`.
#[expect(unsafe_code, reason = "neither nix nor rustix has close_range(2)")]
fn close_inherited() {
    // SAFETY: called before the keeper opens any descriptor, so none that is owned is closed.
    // A kernel without the call leaves descriptors open that are marked close-on-exec anyway.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}

fn read_first(control: BorrowedFd<'_>, incoming: &mut FrameBuffer) -> Option<ToKeeper> {
    loop {
        if let Some(message) = incoming.next_to_keeper().ok()? {
            return Some(message);
        }
        if !read_some(control, incoming) {
            return None;
        }
    }
}

/// Reads once; false when the daemon is gone.
fn read_some(control: BorrowedFd<'_>, incoming: &mut FrameBuffer) -> bool {
    let mut bytes = [0; READ_BYTES];
    match nix::unistd::read(control, &mut bytes) {
        Ok(0) | Err(_) => false,
        Ok(length) => {
            incoming.push(&bytes[..length]);
            true
        }
    }
}

/// Sends one frame. That it does not arrive means the daemon is gone, which the next read finds.
fn send(control: BorrowedFd<'_>, message: FromKeeper, stdio: Option<&Stdio>) {
    let Ok(frame) = message.encode() else { return };
    let fds = stdio.and_then(|stdio| {
        Some([stdio.stdin.as_ref()?, &stdio.stdout, &stdio.stderr].map(AsRawFd::as_raw_fd))
    });
    let rights = fds.as_ref().map(|fds| ControlMessage::ScmRights(fds));
    // Frames of a few bytes on a stream socket are taken whole or not at all.
    let _ = sendmsg::<()>(
        control.as_raw_fd(),
        &[io::IoSlice::new(&frame)],
        rights.as_slice(),
        MsgFlags::MSG_NOSIGNAL,
        None,
    );
}
