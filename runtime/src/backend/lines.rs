//! Cuts an agent's output into lines, byte for byte, with a bound.
//!
//! Fed by `link.rs` with whatever a read brought. Only `\n` ends a line: U+2028 and `\r` are
//! content, and bytes that are no UTF-8 are somebody else's business (D39). A line longer than
//! [`LINE_BYTES_MAX`] is dropped whole, said once, and framing goes on at the next `\n` (D38).

use memchr::memchr;

/// 32 MiB: agents send images and tool results of many megabytes in one line.
pub(super) const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A buffer that once held a long line is given back to the system above this.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// What a piece of output contained.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A line, without its end.
    Whole(&'a [u8]),
    /// A line that was too long; this many bytes of it were dropped.
    Dropped(u64),
}

/// The part of a line that has no end yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
    /// Bytes dropped of a line that is too long; 0: none is being dropped.
    dropped: u64,
}

impl Lines {
    /// Goes on with the start of a line.
    pub(super) fn after(partial: Vec<u8>) -> Self {
        let dropped = 0;
        Self { partial, dropped }
    }

    /// The start of a line that has no end yet; `None`: it is too long, and is being dropped.
    pub(super) fn partial(&self) -> Option<&[u8]> {
        (self.dropped == 0).then_some(&self.partial)
    }

    /// Takes bytes and hands out the lines that end in them.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(Line<'_>)) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (head, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.end_line(head, &mut line);
            bytes = rest;
        }
        if self.dropped > 0 || self.partial.len() + bytes.len() > LINE_BYTES_MAX {
            self.dropped += (self.partial.len() + bytes.len()) as u64;
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    /// The output ended: what is left is a line too.
    pub(super) fn finish(&mut self, mut line: impl FnMut(Line<'_>)) {
        if self.dropped > 0 || !self.partial.is_empty() {
            self.end_line(&[], &mut line);
        }
    }

    fn end_line(&mut self, head: &[u8], line: &mut impl FnMut(Line<'_>)) {
        let length = self.partial.len() + head.len();
        if self.dropped > 0 || length > LINE_BYTES_MAX {
            line(Line::Dropped(self.dropped + length as u64));
            self.dropped = 0;
            self.partial = Vec::new();
        } else if self.partial.is_empty() {
            line(Line::Whole(head));
        } else {
            self.partial.extend_from_slice(head);
            line(Line::Whole(&self.partial));
            self.partial.clear();
            self.partial.shrink_to(KEPT_BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, Line, Lines};

    fn cut(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        let mut note = |line: Line<'_>| match line {
            Line::Whole(bytes) => seen.push(String::from_utf8_lossy(bytes).into_owned()),
            Line::Dropped(bytes) => seen.push(format!("dropped {bytes}")),
        };
        pieces.iter().for_each(|piece| lines.push(piece, &mut note));
        lines.finish(&mut note);
        seen
    }

    /// D39: characters cut between reads, U+2028 inside a line, a last line without an end.
    #[test]
    fn lines_are_cut_at_newlines_only() {
        let text = "日本\u{2028}語🦀\r\n\nlast".as_bytes();
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(cut(&bytes), ["日本\u{2028}語🦀\r", "", "last"]);
        assert_eq!(cut(&[text]), cut(&bytes));
    }

    /// D38: an endless line costs a bounded buffer, and the next line is whole again.
    #[test]
    fn a_line_that_is_too_long_is_dropped_alone() {
        let piece = vec![b'x'; LINE_BYTES_MAX / 4];
        let pieces = [&piece[..], &piece, &piece, &piece, &piece, b"\ngood\n"];
        let dropped = format!("dropped {}", 5 * (LINE_BYTES_MAX / 4));
        assert_eq!(cut(&pieces), [dropped, "good".to_owned()]);
        let longest = vec![b'y'; LINE_BYTES_MAX];
        assert_eq!(cut(&[&longest, b"\n"])[0].len(), LINE_BYTES_MAX);
    }

    #[test]
    fn a_long_line_does_not_keep_its_buffer() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; 10 << 20], |_| {});
        lines.push(b"\n", |_| {});
        assert!(lines.partial.capacity() <= super::KEPT_BYTES_MAX);
    }
}
