//! Kept events: in order, without gaps of their own making, bounded.

use std::sync::atomic::Ordering;

use drowse_messages::{Event, MessageState, SessionEvent};

use super::super::log::{EVENT_BYTES_MAX, EVENTS_MAX, TRIM_EVERY};
use super::*;

fn event(seq: u64, session: Option<u64>, what: SessionEvent) -> Event {
    Event {
        seq,
        at: WallTime(5),
        session: session.map(id),
        what,
    }
}

fn notice(seq: u64, session: Option<u64>) -> Event {
    event(
        seq,
        session,
        SessionEvent::Notice {
            text: format!("n{seq}"),
        },
    )
}

fn after(store: &SqliteStore, seq: u64, session: Option<u64>) -> Vec<u64> {
    // Nobody waits for an event, so the reader would not.
    until("all is written", || {
        store.gauge.calls.load(Ordering::Acquire) == 0
    });
    let events = wait(store.events(Some(seq), 1_000, session.map(id))).unwrap();
    events.iter().map(|event| event.seq).collect()
}

/// Behaviour 97: events come back as they were, by number and by session; output is not kept.
#[test]
fn events_come_back_in_order() {
    let folder = folder();
    let store = with_session(folder.path());
    for seq in 1..=6 {
        store.record(notice(seq, (seq % 2 == 0).then_some(1)));
    }
    let piece = SessionEvent::Output {
        message: None,
        text: "piece".to_owned(),
    };
    store.record(event(6, Some(1), piece));
    store.record(event(7, None, SessionEvent::Gap { missed: None }));
    assert_eq!(after(&store, 0, None), [1, 2, 3, 4, 5, 6]);
    assert_eq!(after(&store, 2, Some(1)), [4, 6]);
    assert_eq!(
        wait(store.events(Some(3), 1, None)).unwrap(),
        [notice(4, Some(1))]
    );
    assert!(!store.failing());
}

/// Numbers go on after a restart, also when the newest events are forgotten with their session.
#[test]
fn numbers_are_never_used_again() {
    let folder = folder();
    let store = with_session(folder.path());
    store.record(notice(1, None));
    store.record(notice(2, Some(1)));
    store.forget(id(1));
    assert_eq!(
        after(&store, 0, None),
        [1],
        "the events of a session go with it"
    );
    drop(store);
    let found = wait(open(folder.path()).recover()).unwrap();
    assert_eq!(found.next_seq, 3);
}

/// A long answer is shortened, another long event replaced; the number stays.
#[test]
fn long_events_are_kept_short() {
    let folder = folder();
    let store = with_session(folder.path());
    let long = "\u{1}".repeat(1 << 20);
    let (message, state) = (MessageId(1), MessageState::Answered);
    store.record(event(
        1,
        None,
        SessionEvent::MessageChanged {
            message,
            state,
            text: long.clone(),
        },
    ));
    store.record(event(2, None, SessionEvent::Notice { text: long }));
    assert_eq!(after(&store, 0, None), [1, 2]);
    for kept in wait(store.events(None, 9, None)).unwrap() {
        assert!(serde_json::to_string(&kept).unwrap().len() <= EVENT_BYTES_MAX);
    }
}

/// Old events are dropped in batches; the newest are all there.
#[test]
fn old_events_are_dropped() {
    let folder = folder();
    let store = open(folder.path());
    let last = EVENTS_MAX + TRIM_EVERY + TRIM_EVERY / 2;
    for seq in 1..=last {
        store.record(notice(seq, None));
    }
    // The gap in front stands for what was dropped, and carries its last number.
    assert_eq!(after(&store, 0, None)[..2], [TRIM_EVERY, TRIM_EVERY + 1]);
    let gap = wait(store.events(Some(0), 1, None)).unwrap()[0]
        .what
        .clone();
    assert_eq!(
        gap,
        SessionEvent::Gap {
            missed: Some(TRIM_EVERY)
        }
    );
    assert_eq!(
        after(&store, TRIM_EVERY, None).first(),
        Some(&(TRIM_EVERY + 1)),
        "nothing missed"
    );
    let newest = wait(store.events(None, 2, None)).unwrap();
    assert_eq!(
        newest.iter().map(|event| event.seq).collect::<Vec<_>>(),
        [last - 1, last]
    );
    assert_eq!(after(&store, last - 2, None), [last - 1, last]);
}
