//! What the fake agent hears: stdin lines, the end of stdin, SIGTERM, the end of its own tasks.
//!
//! Fed by: stdin and signals. Invariant: everything arrives in one channel, in order of arrival.

use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};

/// One thing heard.
#[derive(Debug)]
pub(crate) enum Event {
    /// A line of stdin, without its newline.
    Line(String),
    /// Stdin has ended.
    Eof,
    /// SIGTERM came.
    Terminate,
    /// The background task with this id is done.
    TaskEnded(String),
}

/// The channel of events, and the means to close stdin for good.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) events: Receiver<Event>,
    pub(crate) sender: Sender<Event>,
    close: Option<PipeWriter>,
}

/// Blocks SIGTERM in the calling thread and all threads it will start.
pub(crate) fn block_terminate() {
    terminate_set()
        .thread_block()
        .expect("blocking a signal cannot fail");
}

/// Waits for SIGTERM, which must be blocked.
pub(crate) fn wait_terminate() {
    terminate_set()
        .wait()
        .expect("waiting for a blocked signal cannot fail");
}

fn terminate_set() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set
}

impl Input {
    /// Starts to listen. A line longer than `chokes_at` bytes, unless that is 0, is the end of the
    /// process before the line's own.
    pub(crate) fn listen(chokes_at: usize) -> Self {
        let (sender, events) = channel();
        let (closed, close) = std::io::pipe().expect("a pipe can be made at the start");
        let lines = sender.clone();
        std::thread::spawn(move || read_stdin(&closed, &lines, chokes_at));
        let signals = sender.clone();
        std::thread::spawn(move || {
            loop {
                wait_terminate();
                if signals.send(Event::Terminate).is_err() {
                    return;
                }
            }
        });
        Self {
            events,
            sender,
            close: Some(close),
        }
    }

    /// Closes stdin, so that whoever writes to it gets EPIPE.
    pub(crate) fn close_stdin(&mut self) {
        if let Some(mut close) = self.close.take() {
            drop(close.write_all(b"x"));
        }
    }
}

fn read_stdin(closed: &PipeReader, lines: &Sender<Event>, chokes_at: usize) {
    let stdin = std::io::stdin();
    let mut pending = Vec::new();
    let mut chunk = [0; 65536];
    loop {
        let mut fds = [
            PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
            PollFd::new(closed.as_fd(), PollFlags::POLLIN),
        ];
        if poll(&mut fds, PollTimeout::NONE).is_err() {
            continue;
        }
        if fds[1].any().unwrap_or(false) {
            // Nobody reads stdin after this thread, so its number is free to be closed.
            _ = nix::unistd::close(stdin.as_raw_fd());
            return;
        }
        // Read past std's buffer: what it held back would not wake poll().
        let Ok(n @ 1..) = nix::unistd::read(stdin.as_fd(), &mut chunk) else {
            break;
        };
        pending.extend_from_slice(&chunk[..n]);
        while let Some(end) = pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line[..end]).into_owned();
            if lines.send(Event::Line(text)).is_err() {
                return;
            }
        }
        if chokes_at > 0 && pending.len() > chokes_at {
            _ = nix::sys::signal::raise(Signal::SIGKILL);
        }
    }
    drop(lines.send(Event::Eof));
}
