//! The newest events of one session, once for all sockets that watch it.
//!
//! Fed by the switchboard, read by sockets, each at its own pace and from its own place. Every event
//! is put into words once. Invariants: what a reader gets is in order and without repetition; a
//! reader that is too far behind is told so instead of being waited for; bounded in events and
//! bytes, whatever readers do.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytestring::ByteString;
use drowse_messages::{Event, EventNote, Notification, Position};
use tokio::sync::watch;

use super::words;

/// 4,096 events: a client that is gone for a minute misses fewer, unless its agent floods.
const EVENTS_MAX: usize = 4096;

/// 4 MiB of events: a flood pushes out what nobody has read instead of filling our memory.
const BYTES_MAX: usize = 4 << 20;

/// A reader's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The next event to read.
    next: u64,
}

/// What a reader finds.
#[derive(Debug)]
pub(super) enum Found {
    /// The next event.
    Frame(ByteString),
    /// So many are gone.
    Missing(u64),
    /// It has read everything.
    Nothing,
}

#[derive(Debug)]
struct Inner {
    frames: VecDeque<ByteString>,
    bytes: usize,
    /// The number the next event gets.
    next: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Tape {
    epoch: String,
    inner: Mutex<Inner>,
    moved: watch::Sender<u64>,
}

impl Tape {
    pub(super) fn new(epoch: String) -> Self {
        Self {
            epoch,
            inner: Mutex::new(Inner {
                frames: VecDeque::new(),
                bytes: 0,
                next: 1,
            }),
            moved: watch::Sender::new(0),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here leaves it half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self, seq: u64) -> Position {
        let epoch = self.epoch.clone();
        Position { epoch, seq }
    }

    /// Adds an event.
    pub(super) fn push(&self, event: Event) {
        let mut inner = self.inner();
        let at = self.at(inner.next);
        let frame = words::notification(&Notification::Event(EventNote { at, event }));
        inner.bytes += frame.len();
        inner.frames.push_back(frame);
        inner.next += 1;
        while inner.frames.len() > EVENTS_MAX || inner.bytes > BYTES_MAX && inner.frames.len() > 1 {
            let gone = inner.frames.pop_front().map_or(0, |frame| frame.len());
            inner.bytes -= gone;
        }
        self.moved.send_replace(inner.next);
    }

    /// Events were lost before they came here: every reader has missed them.
    pub(super) fn lose(&self, missed: Option<u64>) {
        let mut inner = self.inner();
        inner.frames.clear();
        inner.bytes = 0;
        inner.next = inner.next.saturating_add(missed.unwrap_or(1).max(1));
        self.moved.send_replace(inner.next);
    }

    /// The newest event's place.
    pub(super) fn position(&self) -> Position {
        let seq = self.inner().next - 1;
        self.at(seq)
    }

    /// Behind the newest event.
    pub(super) fn end(&self) -> Cursor {
        let next = self.inner().next;
        Cursor { next }
    }

    /// Behind this event; `None` when it is of another tape.
    pub(super) fn behind(&self, after: &Position) -> Option<Cursor> {
        let known = after.epoch == self.epoch && after.seq < self.inner().next;
        known.then(|| Cursor {
            next: after.seq.saturating_add(1),
        })
    }

    /// Reads on. After [`Found::Missing`] the reader stands at the oldest event there is.
    pub(super) fn read(&self, cursor: &mut Cursor) -> Found {
        let inner = self.inner();
        let kept = u64::try_from(inner.frames.len()).unwrap_or(u64::MAX);
        let first = inner.next.saturating_sub(kept);
        if cursor.next < first {
            let missing = first - cursor.next;
            cursor.next = first;
            return Found::Missing(missing);
        }
        let place = usize::try_from(cursor.next - first).unwrap_or(usize::MAX);
        match inner.frames.get(place) {
            Some(frame) => {
                cursor.next += 1;
                Found::Frame(frame.clone())
            }
            None => Found::Nothing,
        }
    }

    /// Hears when there is more to read.
    pub(super) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use drowse_messages::{SessionEvent, WallTime};

    use super::*;

    fn output(text: &str) -> Event {
        Event {
            seq: 1,
            at: WallTime(1),
            session: None,
            what: SessionEvent::Output {
                message: None,
                text: text.to_owned(),
            },
        }
    }

    fn frames(tape: &Tape, cursor: &mut Cursor) -> usize {
        let next = || matches!(tape.read(cursor), Found::Frame(_)).then_some(());
        std::iter::from_fn(next).count()
    }

    /// Row 109: from where a client left off, each event once; and only in the same epoch.
    #[test]
    fn a_reader_goes_on_where_it_left_off() {
        let tape = Tape::new("a".to_owned());
        (0..10).for_each(|_| tape.push(output("x")));
        let after = |epoch: &str, seq| Position {
            epoch: epoch.to_owned(),
            seq,
        };
        let mut cursor = tape.behind(&after("a", 4)).unwrap();
        assert_eq!(frames(&tape, &mut cursor), 6);
        tape.push(output("y"));
        assert_eq!(frames(&tape, &mut cursor), 1);
        assert!(tape.behind(&after("b", 4)).is_none());
        assert!(tape.behind(&after("a", 12)).is_none(), "not told yet");
        assert_eq!(tape.position(), after("a", 11));
    }

    /// D35: a reader that does not read costs nothing, and is told what it missed.
    #[test]
    fn a_flood_is_bounded_and_the_gap_is_said() {
        let tape = Tape::new("a".to_owned());
        let mut cursor = tape.end();
        let text = "x".repeat(1 << 16);
        (0..1000).for_each(|_| tape.push(output(&text)));
        assert!(tape.inner().bytes <= BYTES_MAX);
        let Found::Missing(missing) = tape.read(&mut cursor) else {
            panic!("it has missed some");
        };
        assert_eq!(missing + frames(&tape, &mut cursor) as u64, 1000);
        tape.lose(Some(7));
        assert!(matches!(tape.read(&mut cursor), Found::Missing(7)));
        assert!(matches!(tape.read(&mut cursor), Found::Nothing));
    }
}
