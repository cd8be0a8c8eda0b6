//! Splits a byte stream into server-sent events.
//!
//! Fed by [`crate::EventStream`] with chunks cut anywhere, also inside a character or a line end.
//! Pure: no clock, no socket. Invariant: it never holds more than one line and one event, each
//! bounded. It does not reconnect, and ignores `retry`.

use std::collections::VecDeque;

/// 32 MiB in one line: one event is one line, and it can carry an answer as long as an agent's
/// longest line (20 MiB) with escapes.
pub const LINE_BYTES_MAX: usize = 32 << 20;

/// 32 MiB in the lines of one event together, for the same reason.
pub const EVENT_BYTES_MAX: usize = 32 << 20;

/// One event as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawEvent {
    /// The newest `id:` seen up to and with this event.
    pub(crate) id: Option<String>,
    /// Its `data:` lines, joined by line ends.
    pub(crate) data: String,
}

/// Why a stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    #[error("a line is longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    #[error("an event is longer than {EVENT_BYTES_MAX} bytes")]
    EventTooLong,
    #[error("a line is not UTF-8")]
    NotText,
}

/// The state between two chunks.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// True when the last byte was `\r`: a `\n` that follows belongs to it.
    after_cr: bool,
    id: Option<String>,
    data: Option<String>,
    ready: VecDeque<RawEvent>,
}

impl Splitter {
    /// Takes the next bytes in.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), SseError> {
        let mut rest = chunk;
        if self.after_cr && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        self.after_cr = self.after_cr && chunk.is_empty();
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&rest[..end])?;
            let was_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if was_cr && rest.first() == Some(&b'\n') {
                rest = &rest[1..];
            } else {
                self.after_cr = was_cr && rest.is_empty();
            }
            self.line_done()?;
        }
        self.extend_line(rest)
    }

    /// The next whole event, if there is one.
    pub(crate) fn pop(&mut self) -> Option<RawEvent> {
        self.ready.pop_front()
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        if self.line.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(SseError::LineTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line_done(&mut self) -> Result<(), SseError> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8(line).map_err(|_| SseError::NotText)?;
        if line.is_empty() {
            self.event_done();
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => self.extend_data(value)?,
            "id" => self.id = Some(value.to_owned()),
            // `event` repeats what the data says; the empty field is a comment, a heartbeat.
            _ => {}
        }
        Ok(())
    }

    fn extend_data(&mut self, value: &str) -> Result<(), SseError> {
        match &mut self.data {
            None => self.data = Some(value.to_owned()),
            Some(data) => {
                if data.len() + 1 + value.len() > EVENT_BYTES_MAX {
                    return Err(SseError::EventTooLong);
                }
                data.push('\n');
                data.push_str(value);
            }
        }
        Ok(())
    }

    /// An event without data is none: a heartbeat ends in an empty line too.
    fn event_done(&mut self) {
        if let Some(data) = self.data.take() {
            let id = self.id.clone();
            self.ready.push_back(RawEvent { id, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> Result<Vec<RawEvent>, SseError> {
        let mut splitter = Splitter::default();
        for chunk in chunks {
            splitter.push(chunk)?;
        }
        Ok(std::iter::from_fn(|| splitter.pop()).collect())
    }

    fn event(id: &str, data: &str) -> RawEvent {
        RawEvent {
            id: Some(id.to_owned()),
            data: data.to_owned(),
        }
    }

    /// D39: however the bytes are cut, also inside a character and between `\r` and `\n`, the
    /// events are the same.
    #[test]
    fn every_cut_gives_the_same_events() {
        let text =
            "id: 1\r\nevent: x\r\ndata: grüße\r\ndata: 漢字\r\n\r\n: heartbeat\n\nid:2\ndata:a\ndata: b\n\n\
                    id: 3\rdata: c\r\r"
                .as_bytes();
        let whole = read(&[text]).unwrap();
        let expected = [
            event("1", "grüße\n漢字"),
            event("2", "a\nb"),
            event("3", "c"),
        ];
        assert_eq!(whole, expected);
        for cut in 0..=text.len() {
            assert_eq!(
                read(&[&text[..cut], &text[cut..]]).unwrap(),
                whole,
                "cut at {cut}"
            );
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(read(&bytes).unwrap(), whole);
    }

    #[test]
    fn an_unfinished_event_is_none() {
        assert_eq!(read(&[b"data: x\n"]).unwrap(), []);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut splitter = Splitter::default();
        let chunk = vec![b'x'; 1 << 20];
        let refused = (0..=32).find_map(|_| splitter.push(&chunk).err());
        assert_eq!(refused, Some(SseError::LineTooLong));
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut splitter = Splitter::default();
        let line = [b"data:".as_slice(), &vec![b'x'; 1 << 20], b"\n"].concat();
        let refused = (0..=32).find_map(|_| splitter.push(&line).err());
        assert_eq!(refused, Some(SseError::EventTooLong));
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert_eq!(read(&[b"data: \xff\n"]), Err(SseError::NotText));
    }
}
