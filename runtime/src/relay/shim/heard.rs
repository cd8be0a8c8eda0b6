//! What the agent said, and what the daemon says becomes of it.
//!
//! Fed by `shim.rs` with frames. A verdict on bytes is final; `Show` gives them to the host and has
//! them kept for a daemon that may have to hear them again. Either may come before its bytes.
//! Invariants: a byte reaches the host once at most, in order; what has no verdict is kept.

/// 512 KiB: a buffer that once held more is given back to the system. Above what is kept for a next
/// daemon while nothing means anything.
const KEPT_BYTES_MAX: usize = 512 * 1024;

/// See the module. Offsets count all that the agents of the session said.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// What came from `base` on; before that, everything has a verdict.
    bytes: Vec<u8>,
    base: u64,
    /// Before this, bytes are the host's, or nobody's.
    done: u64,
    /// Before this, bytes are the host's as soon as they come.
    shown: u64,
    /// Before this, they need not be kept either.
    passed: u64,
}

impl Heard {
    /// Before this, everything has a verdict.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Before this, everything has come.
    pub(super) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// What came and has no verdict.
    pub(super) fn kept(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes come.
    pub(super) fn comes(&mut self, bytes: &[u8], give: impl FnOnce(&[u8])) {
        let end = self.end() + bytes.len() as u64;
        if self.bytes.is_empty() && end <= self.passed {
            give(bytes);
            (self.base, self.done) = (end, end);
            return;
        }
        self.bytes.extend_from_slice(bytes);
        self.settle(give);
    }

    /// The last bytes of a daemon that is gone. What it said of bytes that did not come says
    /// nothing any more.
    pub(super) fn lost(&mut self, bytes: &[u8]) {
        self.shown = self.done;
        self.passed = self.base;
        self.bytes.extend_from_slice(bytes);
    }

    /// All up to here is the host's, and kept.
    pub(super) fn show(&mut self, upto: u64, give: impl FnOnce(&[u8])) {
        self.shown = self.shown.max(upto);
        self.settle(give);
    }

    /// All up to here is the host's.
    pub(super) fn pass(&mut self, upto: u64, give: impl FnOnce(&[u8])) {
        self.passed = self.passed.max(upto);
        self.show(upto, give);
    }

    /// All up to here is nobody's; false when there was nothing of which the host has not had a
    /// part.
    pub(super) fn skip(&mut self, upto: u64) -> bool {
        let upto = upto.min(self.end());
        let is_new = upto > self.done;
        self.done = self.done.max(upto);
        self.passed = self.passed.max(upto);
        self.settle(|_| {});
        is_new
    }

    fn settle(&mut self, give: impl FnOnce(&[u8])) {
        let shown = self.shown.min(self.end());
        if shown > self.done {
            give(&self.bytes[self.at(self.done)..self.at(shown)]);
            self.done = shown;
        }
        let passed = self.passed.min(self.end());
        if passed > self.base {
            self.bytes.drain(..self.at(passed));
            if self.bytes.is_empty() {
                self.bytes.shrink_to(KEPT_BYTES_MAX);
            }
            self.base = passed;
        }
    }

    /// Where the byte at an offset is.
    fn at(&self, offset: u64) -> usize {
        usize::try_from(offset - self.base).expect("it is in memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a host was given, and what is kept.
    fn told(heard: &Heard, host: &[u8]) -> (String, String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(host), text(heard.kept()))
    }

    /// A verdict that comes first, one that comes behind, and what is shown in between: each byte
    /// is given once, and kept until it is passed.
    #[test]
    fn each_byte_is_given_once() {
        let (mut heard, mut host) = (Heard::default(), Vec::new());
        heard.pass(4, |it| host.extend_from_slice(it));
        heard.comes(b"abcd", |it| host.extend_from_slice(it));
        assert_eq!(told(&heard, &host), ("abcd".into(), String::new()));
        heard.comes(b"ef", |it| host.extend_from_slice(it));
        assert_eq!(told(&heard, &host), ("abcd".into(), "ef".into()));
        heard.show(5, |it| host.extend_from_slice(it));
        heard.show(8, |it| host.extend_from_slice(it));
        heard.comes(b"ghij", |it| host.extend_from_slice(it));
        assert_eq!(told(&heard, &host), ("abcdefgh".into(), "efghij".into()));
        heard.pass(8, |it| host.extend_from_slice(it));
        assert_eq!(told(&heard, &host), ("abcdefgh".into(), "ij".into()));
        assert!(heard.skip(9) && !heard.skip(9));
        heard.pass(10, |it| host.extend_from_slice(it));
        assert_eq!(told(&heard, &host), ("abcdefghj".into(), String::new()));
        assert_eq!((heard.base(), heard.end()), (10, 10));
    }

    /// D42: a daemon dies with words of it ahead of its bytes. The next one judges what was kept,
    /// also what the host has already, and nothing is given twice or skipped for it.
    #[test]
    fn the_next_daemon_judges_what_was_kept() {
        let (mut heard, mut host) = (Heard::default(), Vec::new());
        heard.show(6, |it| host.extend_from_slice(it));
        heard.comes(b"abc", |it| host.extend_from_slice(it));
        heard.lost(b"d");
        assert_eq!(told(&heard, &host), ("abc".into(), "abcd".into()));
        assert_eq!((heard.base(), heard.end()), (0, 4));
        assert!(!heard.skip(2), "the host had it");
        heard.comes(b"ef", |it| host.extend_from_slice(it));
        assert_eq!(told(&heard, &host), ("abc".into(), "cdef".into()));
        heard.pass(6, |it| host.extend_from_slice(it));
        assert_eq!(told(&heard, &host), ("abcdef".into(), String::new()));
    }
}
