//! `drowse run`: the process a host believes to be its agent.
//!
//! It moves bytes between the host and the daemon, and understands none of them. Fed by the host's
//! pipes, the relay socket and signals, in one loop that never waits for one of them alone.
//! Invariants: what the host said is kept until the daemon has dealt with it, and what the agent
//! said until there is a verdict on it, so a daemon may be replaced, or die, at any moment; all
//! that is kept is bounded; no flag of the host's own descriptors is changed.

mod connect;
mod heard;
mod stdio;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use drowse_messages::{ExitStatus, HostEnd};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

pub(crate) use connect::{Connect, Refusal};
use connect::{Link, Lost};
use heard::Heard;
use stdio::{Read, Sink, Source};

use super::frame::{Hello, ToDaemon, ToShim, Welcome};
pub(crate) use super::frame::{OpenRelay, VERSION};
use super::queue::QUEUE_BYTES_MAX;

/// 64 KiB are read at once: what a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// 256 KiB may wait for a host that does not read before nothing more is taken from the daemon.
const UNREAD_BYTES_MAX: usize = 256 * 1024;

/// What a host may say that the daemon has not dealt with: above the longest line it waits for.
const SAID_BYTES_MAX: usize = QUEUE_BYTES_MAX + (1 << 20);

/// 512 KiB: a buffer that once held more is given back to the system.
const KEPT_BYTES_MAX: usize = 512 * 1024;

/// 256 KiB may wait for the daemon's socket; more stays with the host.
const UNSENT_BYTES_MAX: usize = 256 * 1024;

/// How much longer than agents do without a daemon a shim waits for one: it may still be starting.
const MARGIN: Duration = Duration::from_secs(15);

/// 20 ms between two looks for a daemon that went away.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is passed on to the agent. The others are the system's, or cannot be caught.
const SIGNALS: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

/// Those that end a program which does not expect them.
const ENDING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];

/// How it came to an end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As the agent did.
    As(ExitStatus),
    /// There was no agent to end: the session was stopped, or the host had said all.
    Quietly,
    /// Something is to be said about it.
    Failed(String),
}

/// Signals that are to be passed on wait in a descriptor from now on.
pub(crate) fn take_signals() -> io::Result<SignalFd> {
    let set: SigSet = SIGNALS.into_iter().collect();
    set.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&set, flags)?)
}

/// What only this shim and the daemon know: 32 random bytes.
pub(crate) fn new_key() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Ends this process as the agent ended, by the same signal if it was one.
pub(crate) fn end_as(status: ExitStatus) -> u8 {
    match status {
        ExitStatus::Code(code) => u8::try_from(code & 0xff).unwrap_or(1),
        ExitStatus::Signal(number) => {
            if let Ok(signal) = Signal::try_from(number) {
                die_of(signal);
            }
            u8::try_from(128 + number).unwrap_or(1)
        }
    }
}

fn die_of(signal: Signal) {
    use nix::sys::resource::{Resource, setrlimit};
    use nix::sys::signal::{SigHandler, raise, signal as set_handler};
    // The agent has left its own picture, if it left one.
    let _no_core = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: the default action takes no handler of ours with it.
    #[expect(unsafe_code, reason = "the default action of a signal is set")]
    let _none_of_sigkill = unsafe { set_handler(signal, SigHandler::SigDfl) };
    let mut only = SigSet::empty();
    only.add(signal);
    if only.thread_unblock().is_ok() {
        let _returns_if_ignored = raise(signal);
    }
}

/// A shim at work.
pub(crate) struct Shim {
    connect: Connect,
    signals: SignalFd,
    link: Option<Link>,
    welcome: Welcome,
    stdin: Source,
    stdout: Sink,
    stderr: Sink,
    /// What the host said from `acked` on.
    said: VecDeque<u8>,
    acked: u64,
    /// Of that, what was given to the connection.
    sent: u64,
    eof_sent: bool,
    /// Of what is behind `acked` the agent has so much, as the last daemon left it.
    partly: usize,
    heard: Heard,
    /// The last signal that ends a program.
    ended_by: Option<i32>,
    end: Option<HostEnd>,
    buffer: Vec<u8>,
}

/// What can be done now.
#[derive(Default)]
struct Ready {
    signal: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    readable: bool,
}

impl Shim {
    /// Of a session that was just opened.
    pub(crate) fn new(
        connect: Connect,
        (link, welcome): (Link, Welcome),
        signals: SignalFd,
    ) -> Self {
        Self {
            connect,
            signals,
            link: Some(link),
            welcome,
            stdin: Source::stdin(),
            stdout: Sink::stdout(),
            stderr: Sink::stderr(),
            said: VecDeque::new(),
            acked: 0,
            sent: 0,
            eof_sent: false,
            partly: 0,
            heard: Heard::default(),
            ended_by: None,
            end: None,
            buffer: vec![0; READ_BYTES],
        }
    }

    /// Runs until the agent has ended and the host has all that it said.
    pub(crate) fn run(mut self) -> Outcome {
        loop {
            if let Some(end) = &self.end {
                if self.stdout.is_empty() && self.stderr.is_empty() {
                    return self.outcome(end.clone());
                }
            } else if self.link.is_none()
                && let Err(outcome) = self.reconnect()
            {
                return outcome;
            }
            self.fill();
            let ready = self.wait();
            if ready.signal {
                self.take_signals();
            }
            if ready.stdin {
                self.read_host();
            }
            if ready.stdout {
                self.stdout.flush();
            }
            if ready.stderr {
                self.stderr.flush();
            }
            if ready.readable {
                self.hear();
            }
        }
    }

    fn outcome(&self, end: HostEnd) -> Outcome {
        match end {
            HostEnd::Exited(Some(status)) => Outcome::As(status),
            HostEnd::Exited(None) => {
                Outcome::Failed("the agent is gone, and nobody can tell how it ended".to_owned())
            }
            HostEnd::Ended => match self.ended_by {
                Some(number) => Outcome::As(ExitStatus::Signal(number)),
                None => Outcome::Quietly,
            },
            HostEnd::Failed { error } => Outcome::Failed(error),
            HostEnd::Shutdown => Outcome::Failed("the daemon was stopped".to_owned()),
        }
    }

    /// Waits until something can be done.
    fn wait(&self) -> Ready {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(5);
        let mut add = |fd, flags: PollFlags, is_wanted: bool| {
            let at = fds.len();
            if is_wanted {
                fds.push(PollFd::new(fd, flags));
            }
            is_wanted.then_some(at)
        };
        let unsent = self.said.len() as u64 - (self.sent - self.acked);
        let is_ahead = unsent >= UNSENT_BYTES_MAX as u64;
        let takes_more = self.said.len() < SAID_BYTES_MAX && !is_ahead && self.end.is_none();
        let hears_more = self.stdout.len() + self.stderr.len() < UNREAD_BYTES_MAX;
        let signals = add(self.signals.as_fd(), PollFlags::POLLIN, true);
        let reads = takes_more && !self.stdin.has_ended();
        let stdin = add(self.stdin.fd(), PollFlags::POLLIN, reads);
        let stdout = add(
            self.stdout.fd(),
            PollFlags::POLLOUT,
            !self.stdout.is_empty(),
        );
        let stderr = add(
            self.stderr.fd(),
            PollFlags::POLLOUT,
            !self.stderr.is_empty(),
        );
        let link = self.link.as_ref().filter(|_| self.end.is_none());
        let link = link.and_then(|link| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, hears_more);
            flags.set(PollFlags::POLLOUT, link.unsent() > 0);
            add(link.fd(), flags, true)
        });
        if poll(&mut fds, PollTimeout::NONE).is_err() {
            return Ready::default();
        }
        let events = |at: Option<usize>| {
            at.and_then(|at| fds[at].revents())
                .unwrap_or(PollFlags::empty())
        };
        let any = |at: Option<usize>| !events(at).is_empty();
        let of_link = events(link);
        Ready {
            signal: any(signals),
            stdin: any(stdin),
            stdout: any(stdout),
            stderr: any(stderr),
            // A connection that is over is found by reading it.
            readable: of_link
                .intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR),
        }
    }

    fn take_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or_default();
            if ENDING.iter().any(|signal| *signal as i32 == number) {
                self.ended_by = Some(number);
            }
            if let Some(link) = &mut self.link {
                link.send(&ToDaemon::Signal(number));
            }
        }
    }

    fn read_host(&mut self) {
        match self.stdin.read(&mut self.buffer) {
            Read::Bytes(length) => self.said.extend(&self.buffer[..length]),
            Read::Nothing | Read::End => {}
        }
    }

    /// Gives the connection what it has room for.
    fn fill(&mut self) {
        let Some(link) = &mut self.link else { return };
        loop {
            let at = usize::try_from(self.sent - self.acked).unwrap_or(usize::MAX);
            if at >= self.said.len() {
                break;
            }
            if link.unsent() >= UNSENT_BYTES_MAX {
                // What is left after this, poll(2) says when to send; nobody says it of nothing.
                if link.flush().is_err() {
                    return self.lose();
                }
                if link.unsent() > 0 {
                    break;
                }
            }
            let (front, back) = self.said.as_slices();
            let rest = front.get(at..).filter(|rest| !rest.is_empty());
            let rest = rest.unwrap_or_else(|| &back[at - front.len()..]);
            let bytes = &rest[..rest.len().min(READ_BYTES)];
            link.send_in(self.sent, bytes);
            self.sent += bytes.len() as u64;
        }
        let all_sent = self.sent - self.acked == self.said.len() as u64;
        if self.stdin.has_ended() && all_sent && !self.eof_sent {
            link.send(&ToDaemon::Eof);
            self.eof_sent = true;
        }
        if link.flush().is_err() {
            self.lose();
        }
    }

    /// The connection is gone. What the daemon said before is still to be heard, and of what the
    /// agent said even a part.
    fn lose(&mut self) {
        while let Some(link) = &mut self.link
            && link.read().is_ok()
            && link.has_read()
        {
            if !self.hear_frames() {
                break;
            }
        }
        self.hear_frames();
        if let Some(link) = self.link.take() {
            self.heard.lost(ToShim::part_of_out(link.rest()));
            // What the agent has of the host's words, the tally knows.
            if let Some((acked, partly)) = link.tally() {
                self.acknowledge(acked);
                self.partly = partly;
            }
        }
    }

    /// Reads what the daemon says.
    fn hear(&mut self) {
        let mut is_lost = false;
        while let Some(link) = self.link.as_mut().filter(|_| !is_lost) {
            is_lost = link.read().is_err();
            is_lost |= !self.hear_frames();
            // The bytes of an `Out` follow its head at once.
            if !self.link.as_ref().is_some_and(Link::waits_for_bytes) {
                break;
            }
        }
        if is_lost {
            self.lose();
        }
        self.stdout.flush_if_free();
        self.stderr.flush_if_free();
    }

    /// False when the daemon is not understood.
    fn hear_frames(&mut self) -> bool {
        // Out of the way, because a frame borrows from it.
        let Some(mut link) = self.link.take() else {
            return true;
        };
        let understood = loop {
            match link.next() {
                Ok(Some(frame)) => self.take(frame),
                Ok(None) => break true,
                Err(Lost) => break false,
            }
        };
        self.link = Some(link);
        understood
    }

    fn take(&mut self, frame: ToShim<'_>) {
        match frame {
            ToShim::Out(bytes) => self.heard.comes(bytes, |it| self.stdout.push(it)),
            ToShim::Show { upto } => self.heard.show(upto, |it| self.stdout.push(it)),
            ToShim::Pass { upto } => self.heard.pass(upto, |it| self.stdout.push(it)),
            ToShim::Drop { upto } => _ = self.heard.skip(upto),
            ToShim::Instead { upto, bytes } => {
                if self.heard.skip(upto) {
                    self.stdout.push(bytes);
                }
            }
            ToShim::Say(bytes) => self.stdout.push(bytes),
            ToShim::Err(bytes) => self.stderr.push(bytes),
            ToShim::Ack { offset } => self.acknowledge(offset),
            ToShim::End(end) => self.end = Some(end),
            ToShim::Welcome(_) | ToShim::Refused(_) => {}
        }
    }

    fn acknowledge(&mut self, offset: u64) {
        let length = usize::try_from(offset.saturating_sub(self.acked)).unwrap_or(usize::MAX);
        let length = length.min(self.said.len());
        self.said.drain(..length);
        if self.said.is_empty() {
            self.said.shrink_to(KEPT_BYTES_MAX);
        }
        self.acked += length as u64;
        self.sent = self.sent.max(self.acked);
    }

    /// Waits for the daemon after this one, and goes on where it was.
    fn reconnect(&mut self) -> Result<(), Outcome> {
        let since = Instant::now();
        let grace = Duration::from_millis(self.welcome.grace_ms) + MARGIN;
        loop {
            let hello = Hello {
                version: VERSION,
                pid: std::process::id().cast_signed(),
                key: self.connect.key.clone(),
                session: self.welcome.session,
                received: self.heard.end(),
                judged: self.heard.base(),
                acked: self.acked,
                partly: self.partly,
            };
            let why = match self.connect.go_on(hello, self.heard.kept(), since) {
                Ok((link, welcome)) => {
                    self.link = Some(link);
                    self.acknowledge(welcome.from);
                    self.sent = self.acked;
                    self.eof_sent = false;
                    self.partly = 0;
                    self.welcome = welcome;
                    // Verdicts may have come with the welcome.
                    self.hear_frames();
                    return Ok(());
                }
                Err(Refusal::Refused(refused)) if !refused.again => {
                    return Err(Outcome::Failed(refused.text));
                }
                Err(Refusal::Refused(refused)) => refused.text,
                Err(Refusal::NoDaemon(failure)) => failure.to_string(),
            };
            self.take_signals();
            if let Some(number) = self.ended_by {
                return Err(Outcome::As(ExitStatus::Signal(number)));
            }
            if since.elapsed() > grace {
                return Err(Outcome::Failed(why));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
