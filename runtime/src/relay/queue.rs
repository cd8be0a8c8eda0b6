//! What a host has said and its agent was not given yet.
//!
//! Fed by the host's connection, emptied by the agent's link. Bytes stay until they are in the
//! agent's pipe whole, so that an agent that is let go takes none of them along. Knows nothing of
//! what they mean. Invariants: bytes leave in order, each once; what was taken and not written is
//! handed out again after [`Queue::rewind`].

use memchr::memchr;

/// 32 MiB, as for an agent's own lines: a longer one is passed on in pieces, unobserved.
pub(super) const LINE_BYTES_MAX: usize = 32 << 20;

/// What may wait: one line that is looked at whole, and what comes with its end.
pub(super) const QUEUE_BYTES_MAX: usize = LINE_BYTES_MAX + (1 << 20);

/// 256 KiB, four reads, wait for an agent that could have them; more stays with the host.
const READY_BYTES_MAX: usize = 256 * 1024;

/// 512 KiB: a buffer that once held a longer line is given back to the system.
const KEPT_BYTES_MAX: usize = 512 * 1024;

/// A piece of what a host said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// With the end of its line, if it has one.
    pub(crate) bytes: Vec<u8>,
    /// Where it ends.
    pub(crate) upto: u64,
    /// A whole line; false: a part of one that is too long, or of a stream without lines.
    pub(crate) is_line: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The offset of the first byte.
    base: u64,
    bytes: Vec<u8>,
    /// Bytes at the front that are gone already; moved out now and then.
    gone: usize,
    /// Behind those: bytes that were taken and are not written yet.
    taken: usize,
    /// Behind those: bytes without an end of a line.
    searched: usize,
    /// The host speaks in lines.
    by_lines: bool,
    /// Within a line that is too long.
    long: bool,
    /// No more comes.
    closed: bool,
}

impl Queue {
    /// Everything before `base` is dealt with.
    pub(super) fn from(base: u64, by_lines: bool) -> Self {
        Self {
            base,
            by_lines,
            ..Self::default()
        }
    }

    /// Bytes before this are dealt with.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The offset behind everything that came.
    pub(super) fn end(&self) -> u64 {
        self.base + (self.bytes.len() - self.gone) as u64
    }

    /// Whether more is wanted: a little, or whatever the end of a line takes.
    pub(super) fn has_room(&mut self) -> bool {
        let waiting = self.bytes.len() - self.gone;
        waiting < READY_BYTES_MAX
            || (waiting < QUEUE_BYTES_MAX && self.taken == 0 && !self.has_piece())
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Nothing is left of it but, perhaps, its end.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() == self.gone
    }

    /// Adds what came at `offset`; what is here already is not added again. False: there is a gap.
    pub(super) fn push(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let end = self.end();
        let Ok(known) = usize::try_from(end.saturating_sub(offset)) else {
            return false;
        };
        if offset > end {
            return false;
        }
        self.bytes
            .extend_from_slice(bytes.get(known..).unwrap_or_default());
        true
    }

    /// True when something can be taken.
    pub(super) fn has_piece(&mut self) -> bool {
        self.next_length().is_some()
    }

    /// Takes the next piece. In a stream without lines it has at most `bytes_max`, and so has each
    /// part of a line that is too long.
    pub(super) fn take(&mut self, bytes_max: usize) -> Option<Piece> {
        let (length, is_line) = self.next_length()?;
        let length = if is_line {
            length
        } else {
            length.min(bytes_max)
        };
        let start = self.gone + self.taken;
        let bytes = self.bytes[start..start + length].to_vec();
        self.long = self.by_lines && !is_line && bytes.last() != Some(&b'\n');
        self.taken += length;
        self.searched = 0;
        Some(Piece {
            bytes,
            upto: self.base + self.taken as u64,
            is_line,
        })
    }

    /// How long the next piece is at most, and whether it is a line.
    fn next_length(&mut self) -> Option<(usize, bool)> {
        let rest = &self.bytes[self.gone + self.taken..];
        if rest.is_empty() {
            return None;
        }
        if !self.by_lines {
            return Some((rest.len(), false));
        }
        let found = memchr(b'\n', &rest[self.searched..]);
        match found {
            Some(at) => Some((self.searched + at + 1, !self.long)),
            None if self.long || rest.len() > LINE_BYTES_MAX => Some((rest.len(), false)),
            // The last line needs no end.
            None if self.closed => Some((rest.len(), true)),
            None => {
                self.searched = rest.len();
                None
            }
        }
    }

    /// All up to here is in the agent's pipe.
    pub(super) fn written(&mut self, upto: u64) {
        let bytes = usize::try_from(upto.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let bytes = bytes.min(self.bytes.len() - self.gone);
        self.base += bytes as u64;
        self.gone += bytes;
        if bytes > self.taken {
            self.searched = 0;
        }
        self.taken = self.taken.saturating_sub(bytes);
        if self.gone == self.bytes.len() {
            self.bytes.clear();
            self.gone = 0;
            self.bytes.shrink_to(KEPT_BYTES_MAX);
        } else if self.gone > self.bytes.len() / 2 {
            self.bytes.drain(..self.gone);
            self.gone = 0;
        }
    }

    /// All before this was dealt with by an earlier daemon.
    pub(super) fn skip_to(&mut self, offset: u64) {
        self.written(offset);
        if self.is_empty() {
            self.base = self.base.max(offset);
        }
    }

    /// What was taken and not written is there again.
    pub(super) fn rewind(&mut self) {
        if self.taken > 0 {
            self.searched = 0;
            self.long = false;
        }
        self.taken = 0;
        if self.is_empty() {
            // An agent begins or ends: until the next there is nothing to keep room for.
            (self.bytes, self.gone) = (Vec::new(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(queue: &mut Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.take(4))
            .map(|piece| String::from_utf8_lossy(&piece.bytes).into_owned())
            .collect()
    }

    /// Lines leave whole and once; what is not written comes back; what is sent twice is there once.
    #[test]
    fn lines_leave_in_order_and_once() {
        let mut queue = Queue::from(10, true);
        assert!(queue.push(10, b"one\ntw"));
        assert!(queue.push(13, b"\ntwo\r\nth"), "the first three are known");
        assert!(!queue.push(99, b"gap"));
        assert_eq!(texts(&mut queue), ["one\n", "two\r\n"]);
        queue.written(14);
        queue.rewind();
        assert_eq!(queue.base(), 14);
        assert_eq!(texts(&mut queue), ["two\r\n"]);
        queue.written(19);
        assert!(!queue.has_piece());
        queue.close();
        assert_eq!(texts(&mut queue), ["th"], "the last line has no end");
        queue.written(21);
        assert!(queue.is_empty() && queue.is_closed());
        assert!(queue.push(10, b"one\ntwo\r\nth") && queue.is_empty());
    }

    /// D38: a line that is too long passes in pieces, and the one behind it is a line again.
    #[test]
    fn a_line_that_is_too_long_passes_in_pieces() {
        let mut queue = Queue::from(0, true);
        queue.push(0, &vec![b'x'; LINE_BYTES_MAX + 1]);
        let piece = queue.take(100).expect("it waits no longer");
        assert_eq!((piece.bytes.len(), piece.is_line), (100, false));
        queue.written(piece.upto);
        while let Some(piece) = queue.take(usize::MAX) {
            assert!(!piece.is_line);
            queue.written(piece.upto);
        }
        queue.push(queue.end(), b"end\nnext\n");
        let piece = queue.take(100).expect("the end of it");
        assert_eq!((&piece.bytes[..], piece.is_line), (&b"end\n"[..], false));
        let piece = queue.take(100).expect("the next one");
        assert_eq!((&piece.bytes[..], piece.is_line), (&b"next\n"[..], true));
    }

    #[test]
    fn a_stream_without_lines_waits_for_none() {
        let mut queue = Queue::from(0, false);
        queue.push(0, b"abcdef");
        assert_eq!(texts(&mut queue), ["abcd", "ef"]);
    }
}
