//! The keeper: the small process above one backend.
//!
//! Fed by: the daemon, over the control socket that it is started with, and any later daemon, over
//! the socket that it listens on. Single-threaded, and asleep unless a daemon speaks, a child ends
//! or a grace is over.
//! Invariant: whatever the agent starts stays below the keeper, because the keeper is a subreaper
//! and outlives all of it: it leaves only when it has no child. No signal but SIGKILL and SIGSTOP
//! reaches it. Should the daemon die, what the agent writes stays in the pipes, of which the
//! keeper has copies, and its exit status with the keeper, until another daemon takes over or
//! `orphan_grace` is over; then the keeper ends the tree by the same ladder the daemon would have
//! used.
//! It decides nothing about sessions, writes no file but its socket, and logs nothing.

use std::env;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use drowse_messages::{ExitStatus, ProcIdentity};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::control::{Checkpoint, FromKeeper, Launch, LaunchError, LaunchStep, ToKeeper};
use super::launch::{self, Stdio};
use super::socket::Listening;
use super::standing;
use super::table;
use connection::Connection;
use ending::Rung;
use outputs::Outputs;

mod connection;
mod ending;
mod outputs;

/// The first argument that makes a program of ours a keeper.
pub const ARGUMENT: &str = "keeper";

/// What the kernel shows as the keeper's name; at most 15 bytes.
const NAME: &std::ffi::CStr = c"drowse-keeper";

/// Runs the keeper if this process was started as one; to be called before anything else, since
/// threads, open files and memory of a larger program have no place in it.
#[must_use]
pub fn run_if_asked() -> Option<ExitCode> {
    (env::args_os().nth(1)? == ARGUMENT).then(|| match Keeper::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

struct Keeper {
    /// The daemon, while there is one.
    control: Option<Connection>,
    /// Who connected last and has not said yet that it wants to take over.
    caller: Option<Connection>,
    listening: Option<Listening>,
    children: SignalFd,
    agent: ProcIdentity,
    /// What the agent was born in.
    cgroup: Option<PathBuf>,
    /// Copies of the daemon's ends, so that the agent's pipes outlive the daemon; `None` once
    /// retired.
    stdio: Option<Stdio>,
    /// What is left of them then.
    outputs: Outputs,
    exited: Option<ExitStatus>,
    has_children: bool,
    /// The newest one.
    checkpoint: Checkpoint,
    orphan_grace: Duration,
    eof_grace: Duration,
    term_grace: Duration,
    /// When the tree is ended unless something changes before: `orphan_grace` after the daemon
    /// was lost, or what the daemon said when it retired us.
    deadline: Option<Instant>,
}

/// What a sleep was ended by.
struct Ready {
    control: PollFlags,
    caller: PollFlags,
    children: bool,
    connection: bool,
}

impl Keeper {
    fn run() -> io::Result<()> {
        let (mut control, children) = become_keeper()?;
        let Some(ToKeeper::Launch(launch)) = control.first() else {
            return Ok(());
        };
        match Self::start(&launch) {
            Ok((listening, agent, stdio)) => {
                let mut keeper = Self {
                    control: Some(control),
                    caller: None,
                    // Without a socket nobody can come: there is nothing to wait for.
                    orphan_grace: listening
                        .as_ref()
                        .map_or(Duration::ZERO, |_| launch.orphan_grace),
                    listening,
                    children,
                    agent,
                    cgroup: launch.cgroup.clone(),
                    stdio: Some(stdio),
                    outputs: Outputs::default(),
                    exited: None,
                    has_children: true,
                    checkpoint: Checkpoint::default(),
                    eof_grace: launch.eof_grace,
                    term_grace: launch.term_grace,
                    deadline: None,
                };
                drop(launch);
                keeper.hand_over(&FromKeeper::Started(agent));
                let first = keeper.watch();
                keeper.leave(first);
            }
            Err(error) => control.send(&FromKeeper::LaunchFailed(error), None),
        }
        Ok(())
    }

    /// Listens and starts the agent, in this order: an agent that runs can be taken over.
    fn start(launch: &Launch) -> Result<(Option<Listening>, ProcIdentity, Stdio), LaunchError> {
        let failed = |error: io::Error| LaunchError {
            step: LaunchStep::Socket,
            // The one error that is not the kernel's is a name that is too long for an address.
            errno: error.raw_os_error().unwrap_or(libc::ENAMETOOLONG),
        };
        let listening = launch.socket.as_deref().map(Listening::at);
        let listening = listening.transpose().map_err(failed)?;
        standing::become_ordinary();
        let started = standing::with_descriptor_limit(launch.nofile, || launch::start(launch));
        // No folder is kept busy by a keeper, nor any mount.
        let _ = nix::unistd::chdir("/");
        let (agent, stdio) = started?;
        // It is not collected before `watch`, so its entry is there even if it has ended. Should
        // it be hidden all the same, nobody is ever taken for it: no process started at 0.
        let agent = table::identify(agent.as_raw()).unwrap_or_else(|_| {
            ProcIdentity::new(agent.as_raw(), 0).expect("the pid of a child is above 1")
        });
        Ok((listening, agent, stdio))
    }

    /// Says something to the daemon, if there is one.
    fn tell(&mut self, message: &FromKeeper) {
        if let Some(control) = &mut self.control {
            control.send(message, None);
        }
    }

    /// Likewise, with the agent's streams.
    fn hand_over(&mut self, message: &FromKeeper) {
        if let Some(control) = &mut self.control {
            control.send(message, self.stdio.as_ref());
        }
    }

    /// Ordinary life: passes on what children do, obeys the daemon, waits for another one. Returns
    /// how the end begins.
    fn watch(&mut self) -> Rung {
        loop {
            while let Some(message) = self.next_message() {
                if let Some(rung) = self.obey(message) {
                    return rung;
                }
            }
            if let Some(rung) = self.end_unasked() {
                return rung;
            }
            let ready = self.wait(self.deadline);
            if ready.children {
                self.collect();
            }
            if !ready.control.is_empty() {
                // A newer daemon waits until all that the one before it said is heeded.
                self.hear(ready.control);
            } else if !ready.caller.is_empty() {
                self.answer(ready.caller);
            }
            if ready.connection
                && let Some(peer) = self.listening.as_ref().and_then(Listening::accept)
            {
                self.caller = Some(Connection::new(peer));
            }
        }
    }

    /// How the end begins if it is time for it: nobody took over, or nothing is kept any more.
    fn end_unasked(&self) -> Option<Rung> {
        let is_over = is_past(self.deadline);
        match self.stdio {
            Some(_) => is_over.then_some(Rung::Close),
            None if !self.has_children => Some(Rung::Kill),
            None => is_over.then_some(Rung::Terminate),
        }
    }

    /// The next order among what was read. One who talks nonsense is as good as gone.
    fn next_message(&mut self) -> Option<ToKeeper> {
        match self.control.as_mut()?.next_message() {
            Ok(message) => message,
            Err(_) => {
                self.lose_control();
                None
            }
        }
    }

    /// Obeys one order; returns how the end begins if it was one to end.
    fn obey(&mut self, message: ToKeeper) -> Option<Rung> {
        match message {
            ToKeeper::CloseStdin => {
                if let Some(stdio) = &mut self.stdio {
                    stdio.stdin = None;
                }
            }
            ToKeeper::Checkpoint(checkpoint) => self.checkpoint = checkpoint,
            ToKeeper::Retire { until } => {
                if let Some(stdio) = self.stdio.take() {
                    self.outputs = Outputs::of(stdio);
                }
                self.deadline = until.and_then(|until| Instant::now().checked_add(until));
            }
            ToKeeper::End => return Some(Rung::Close),
            ToKeeper::Leave => return Some(Rung::Kill),
            ToKeeper::Launch(_) | ToKeeper::TakeOver => self.lose_control(),
        }
        None
    }

    fn hear(&mut self, possible: PollFlags) {
        let is_there = self
            .control
            .as_mut()
            .is_some_and(|control| control.advance(possible));
        if !is_there {
            self.lose_control();
        }
    }

    /// The daemon is gone. What is retired does not need one.
    fn lose_control(&mut self) {
        self.control = None;
        if self.stdio.is_some() {
            self.deadline = Instant::now().checked_add(self.orphan_grace);
        }
    }

    /// Somebody connected, and now says what it wants or is gone again.
    fn answer(&mut self, possible: PollFlags) {
        let Some(mut caller) = self.caller.take() else {
            return;
        };
        let is_there = caller.advance(possible);
        match caller.next_message() {
            Ok(Some(ToKeeper::TakeOver)) => self.be_taken_over(caller),
            Ok(Some(_)) | Err(_) => caller.send(&FromKeeper::Refused, None),
            Ok(None) if is_there => self.caller = Some(caller),
            Ok(None) => {}
        }
    }

    /// Another daemon takes the place of the one before, which is dead or hangs, since there is
    /// one at a time.
    fn be_taken_over(&mut self, daemon: Connection) {
        self.control = Some(daemon);
        if self.stdio.is_some() {
            self.deadline = None;
        }
        let held = FromKeeper::Held {
            agent: self.agent,
            exited: self.exited,
            empty: !self.has_children,
            stdin_open: self
                .stdio
                .as_ref()
                .is_some_and(|stdio| stdio.stdin.is_some()),
            retired: self.stdio.is_none(),
            checkpoint: self.checkpoint.clone(),
        };
        self.hand_over(&held);
    }

    /// Sleeps until somebody speaks or connects, a child ends or it is `until`.
    fn wait(&mut self, until: Option<Instant>) -> Ready {
        let children = self.children.as_fd();
        // What is not there is stood in for by a descriptor that nothing is wanted from.
        let nothing = (children, PollFlags::empty());
        let [stdout, stderr] = self.outputs.ends();
        let mut polled = [
            self.control.as_ref().map(Connection::wanted),
            self.caller.as_ref().map(Connection::wanted),
            self.listening.as_ref().map(|at| reading(at.as_fd())),
            Some(reading(children)),
            stdout.map(reading),
            stderr.map(reading),
        ]
        .map(|one| one.unwrap_or(nothing))
        .map(|(fd, wanted)| PollFd::new(fd, wanted));
        // An interruption is not possible with every signal blocked; it would mean a round more.
        let _ = poll(&mut polled, timeout(until));
        let [control, caller, listening, children, stdout, stderr] =
            polled.map(|one| one.revents().unwrap_or(PollFlags::POLLIN));
        self.outputs.forget([stdout, stderr]);
        Ready {
            control,
            caller,
            children: !children.is_empty(),
            connection: !listening.is_empty(),
        }
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
                    self.tell(&FromKeeper::Empty);
                }
                _ => return,
            }
        }
    }

    fn collected(&mut self, pid: Pid, status: ExitStatus) {
        // Its number is free once it is collected: the next one to have it is not the agent.
        if pid.as_raw() == self.agent.pid() && self.exited.is_none() {
            self.exited = Some(status);
            self.tell(&FromKeeper::Exited(status));
        }
    }
}

/// What to wait for when there is only to read.
fn reading(fd: BorrowedFd<'_>) -> (BorrowedFd<'_>, PollFlags) {
    (fd, PollFlags::POLLIN)
}

fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

fn timeout(until: Option<Instant>) -> PollTimeout {
    let Some(until) = until else {
        return PollTimeout::NONE;
    };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return PollTimeout::ZERO;
    }
    // Rounded up, so that the last wait is not a row of waits of nothing. One that is too long for
    // poll(2) is begun again after 24 days.
    PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
}

/// Turns this process into one that nothing disturbs and nothing escapes.
/// Returns the daemon's connection, and what tells that a child has ended.
fn become_keeper() -> io::Result<(Connection, SignalFd)> {
    // Blocked rather than ignored: the mask and the dispositions of the agent are set when it is
    // started, without a moment in which a signal could end the keeper.
    SigSet::all().thread_set_mask()?;
    nix::sys::prctl::set_child_subreaper(true)?;
    nix::unistd::setsid()?;
    nix::sys::prctl::set_name(NAME)?;
    close_inherited();
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    // Standard output leads nowhere. A copy of the socket left here would outlive the connection.
    nix::unistd::dup2_stdin(io::stdout())?;
    let mut child_ended = SigSet::empty();
    child_ended.add(Signal::SIGCHLD);
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let children = SignalFd::with_flags(&child_ended, flags)?;
    Ok((Connection::new(control), children))
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
