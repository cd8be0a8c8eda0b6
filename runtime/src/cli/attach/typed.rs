//! What is typed at `attach`: lines become messages and commands.
//!
//! Fed by stdin, read on a thread of its own because a read from a terminal cannot be given up; it
//! ends with the process, which does not wait for it. The terminal keeps its own line editing: no
//! mode of it is changed, so nothing has to be put back when the command is killed. Invariants:
//! lines are taken in order; what is read and what waits is bounded.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// 10 MiB: the longest message there may be.
const TEXT_BYTES_MAX: usize = 10 << 20;

/// 20 ms: a terminal has the next line of a paste at once, and nobody types one that fast.
const PASTE_GAP_MS: i64 = 20;

/// 64 texts may be typed ahead, while there is no daemon: they are read at once, because lines that
/// had to wait would look like a paste. What comes through a pipe waits in it.
const TYPED_AHEAD_MAX: usize = 64;

/// 64 KiB at a time: more than a terminal's line can be.
const PIECE_BYTES: usize = 64 << 10;

/// What stdin brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// One or several lines, and when the last of them was read.
    Text(String, Instant),
    /// What is wrong with it; it is not sent.
    Refused(&'static str),
}

/// The lines of stdin; `None` of the receiver: it has ended.
pub(super) fn listen(terminal: bool) -> mpsc::Receiver<Entry> {
    let (sender, receiver) = mpsc::channel(if terminal { TYPED_AHEAD_MAX } else { 1 });
    std::thread::spawn(move || {
        let stdin = io::stdin();
        // Unbuffered, so that what poll says of the descriptor is all there is.
        let source = Source { fd: stdin.as_fd() };
        let mut entries = Entries::new(source, terminal);
        while let Some(entry) = entries.next() {
            if sender.blocking_send(entry).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Bytes, and whether more of them are there now.
trait Bytes: Read {
    fn has_more(&self) -> bool;
}

struct Source<'a> {
    fd: BorrowedFd<'a>,
}

impl Read for Source<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(self.fd, &mut *piece) {
                Err(rustix::io::Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }
}

impl Bytes for Source<'_> {
    fn has_more(&self) -> bool {
        let gap = Timespec {
            tv_sec: 0,
            tv_nsec: PASTE_GAP_MS * 1_000_000,
        };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        // A signal cuts the wait short; then the paste is two messages.
        poll(&mut fds, Some(&gap)).is_ok_and(|ready| ready > 0)
    }
}

/// Puts lines together.
struct Entries<S> {
    source: S,
    /// Lines that come at once are one text: only a terminal's, where they are a paste.
    joins_pastes: bool,
    bytes: Vec<u8>,
    ended: bool,
    /// True when the newest line was cut off at the bound: its rest is still to come.
    cut: bool,
}

impl<S: Bytes> Entries<S> {
    fn new(source: S, joins_pastes: bool) -> Self {
        Self {
            source,
            joins_pastes,
            bytes: Vec::new(),
            ended: false,
            cut: false,
        }
    }

    fn next(&mut self) -> Option<Entry> {
        let mut text = self.line()?;
        loop {
            if self.cut || text.len() > TEXT_BYTES_MAX {
                return Some(self.too_long());
            }
            // Two of them at the end are no sign, so that a line can end in one.
            let continued = text.ends_with(b"\\") && !text.ends_with(b"\\\\");
            if continued {
                text.pop();
            } else if !self.is_pasting() {
                break;
            }
            let Some(line) = self.line() else { break };
            text.push(b'\n');
            text.extend(line);
        }
        Some(match String::from_utf8(text) {
            Ok(text) => Entry::Text(text, Instant::now()),
            Err(_) => Entry::Refused("it is not UTF-8"),
        })
    }

    /// True while another line is there that was not typed.
    fn is_pasting(&self) -> bool {
        self.joins_pastes && !self.ended && (self.bytes.contains(&b'\n') || self.source.has_more())
    }

    /// The next line without its end; `None`: there is none.
    fn line(&mut self) -> Option<Vec<u8>> {
        let mut seen = 0;
        loop {
            let end = self.bytes[seen..].iter().position(|&byte| byte == b'\n');
            if let Some(end) = end {
                let mut line: Vec<u8> = self.bytes.drain(..=seen + end).collect();
                line.pop();
                if line.ends_with(b"\r") {
                    line.pop();
                }
                return Some(line);
            }
            self.cut = self.bytes.len() > TEXT_BYTES_MAX;
            if self.ended || self.cut {
                let rest = std::mem::take(&mut self.bytes);
                return (!rest.is_empty()).then_some(rest);
            }
            seen = self.bytes.len();
            self.read_on();
        }
    }

    fn read_on(&mut self) {
        let mut piece = vec![0; PIECE_BYTES];
        // Stdin that cannot be read has ended.
        let count = self.source.read(&mut piece).unwrap_or(0);
        self.ended = count == 0;
        self.bytes.extend_from_slice(&piece[..count]);
    }

    /// Passes over the rest of what is too long for a message.
    fn too_long(&mut self) -> Entry {
        while self.cut {
            self.bytes.clear();
            self.read_on();
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                self.bytes.drain(..=end);
                self.cut = false;
            }
            self.cut &= !self.ended;
        }
        Entry::Refused("it is longer than 10 MiB")
    }
}

/// What a text is meant as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meant {
    Message(String),
    Command(Command),
    /// A command that there is not.
    Unknown(String),
    Nothing,
}

/// What can be said to `attach` itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Detach,
    Interrupt,
    Release,
    Stop,
    Explain,
    Help,
}

impl Command {
    /// Their words, and what they do.
    pub(super) const ALL: [(&'static str, Self, &'static str); 6] = [
        (
            "/detach",
            Self::Detach,
            "leave; the session goes on (also Ctrl-D, Ctrl-\\)",
        ),
        (
            "/interrupt",
            Self::Interrupt,
            "interrupt the turn (also Ctrl-C; twice: leave)",
        ),
        (
            "/release",
            Self::Release,
            "end the process and keep the session; the next message wakes it",
        ),
        (
            "/stop",
            Self::Stop,
            "end the process and cancel what it does; the next message wakes it",
        ),
        (
            "/explain",
            Self::Explain,
            "why it is as it is, and what happens next",
        ),
        ("/help", Self::Help, "this"),
    ];
}

/// Understands a text; only a person at a terminal gives commands.
pub(super) fn meant(text: &str, by_person: bool) -> Meant {
    let line = text.trim();
    if line.is_empty() {
        return Meant::Nothing;
    }
    if !by_person || line.contains('\n') || !line.starts_with('/') {
        return Meant::Message(text.to_owned());
    }
    // The agent's own commands begin with a slash as well.
    if let Some(escaped) = line.strip_prefix("//") {
        return Meant::Message(format!("/{escaped}"));
    }
    let known = Command::ALL.iter().find(|(word, ..)| *word == line);
    known.map_or_else(
        || Meant::Unknown(line.to_owned()),
        |(_, command, _)| Meant::Command(*command),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Pieces as reads give them; what is behind an empty one comes later.
    struct Script(VecDeque<&'static [u8]>);

    impl Read for Script {
        fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
            while let Some(bytes) = self.0.pop_front() {
                if !bytes.is_empty() {
                    piece[..bytes.len()].copy_from_slice(bytes);
                    return Ok(bytes.len());
                }
            }
            Ok(0)
        }
    }

    impl Bytes for Script {
        fn has_more(&self) -> bool {
            self.0.front().is_some_and(|bytes| !bytes.is_empty())
        }
    }

    fn entries(pieces: &[&'static [u8]], joins_pastes: bool) -> Vec<String> {
        let script = Script(pieces.iter().copied().collect());
        let mut entries = Entries::new(script, joins_pastes);
        let all = std::iter::from_fn(|| entries.next());
        all.map(|entry| match entry {
            Entry::Text(text, _) => text,
            Entry::Refused(why) => format!("refused: {why}"),
        })
        .collect()
    }

    #[test]
    fn each_line_is_a_text_and_a_backslash_joins() {
        let lines: [&[u8]; 3] = [b"one\ntw", b"o\\\nmore\r\npath\\\\\n", b"last"];
        let texts = ["one", "two\nmore", "path\\\\", "last"];
        assert_eq!(entries(&lines, false), texts);
        assert!(entries(&[], false).is_empty());
        assert_eq!(entries(&[b"left open\\\n"], false), ["left open"]);
    }

    /// What a terminal has at once was pasted; from a pipe it is lines.
    #[test]
    fn a_paste_is_one_text() {
        let typed: [&[u8]; 5] = [b"a\n", b"", b"b\n", b"c\n", b""];
        assert_eq!(entries(&typed, true), ["a", "b\nc"]);
        assert_eq!(entries(&typed, false), ["a", "b", "c"]);
    }

    #[test]
    fn what_cannot_be_sent_is_refused_and_the_next_line_is_whole() {
        let texts = entries(&[b"\xff\nnext\n"], false);
        assert_eq!(texts, ["refused: it is not UTF-8", "next"]);
        let long: &'static [u8] = vec![b'x'; PIECE_BYTES].leak();
        let mut pieces = vec![long; TEXT_BYTES_MAX / PIECE_BYTES + 3];
        pieces.push(b"\nnext\n");
        let texts = entries(&pieces, true);
        assert_eq!(texts, ["refused: it is longer than 10 MiB", "next"]);
    }

    #[test]
    fn commands_are_a_persons_and_one_line() {
        let by_person = |text| meant(text, true);
        assert_eq!(by_person(" /stop "), Meant::Command(Command::Stop));
        assert_eq!(by_person("//compact"), Meant::Message("/compact".into()));
        assert_eq!(by_person("/stopp"), Meant::Unknown("/stopp".into()));
        let pasted = "/stop\n/stop";
        assert_eq!(by_person(pasted), Meant::Message(pasted.into()));
        assert_eq!(meant("/stop", false), Meant::Message("/stop".into()));
        assert_eq!(by_person(" \n"), Meant::Nothing);
    }
}
