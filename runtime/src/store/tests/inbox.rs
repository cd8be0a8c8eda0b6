//! Messages: accepted once, delivered once, settled once.

use drowse_messages::MessageState;

use super::super::inbox::{ANSWER_BYTES_MAX, INBOX_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX};
use super::*;

/// Behaviour 79 and D32: a repeat of a key gets the first message's number in every state of it,
/// and across a restart; another session's key is another one.
#[test]
fn a_key_stands_for_one_message_for_ever() {
    let folder = folder();
    let store = with_session(folder.path());
    wait(store.open(profile(2, "two"))).unwrap();
    let first = wait(store.enqueue(id(1), keyed("x", "k"))).unwrap();
    assert!(!first.duplicate);
    let again = |store: &SqliteStore, when: &str| {
        let found = wait(store.enqueue(id(1), keyed("other", "k"))).unwrap();
        assert_eq!(
            (found.message, found.duplicate),
            (first.message, true),
            "{when}"
        );
    };
    again(&store, "queued");
    wait(store.deliver(first.message)).unwrap();
    again(&store, "delivered");
    store.settle(first.message, MessageState::Answered, "y".to_owned());
    again(&store, "answered");
    assert!(
        !wait(store.enqueue(id(2), keyed("x", "k")))
            .unwrap()
            .duplicate
    );
    drop(store);
    let store = open(folder.path());
    again(&store, "after a restart");
    assert_eq!(texts(&store), ["x"]);
}

/// `queued -> delivered -> final`; back to queued on request; out of a final state never.
#[test]
fn a_message_goes_through_its_states() {
    let folder = folder();
    let store = with_session(folder.path());
    let (first, second) = (send(&store, "first"), send(&store, "second"));
    assert_eq!(wait(store.deliver(first)), Ok("first".to_owned()));
    assert!(
        matches!(wait(store.deliver(first)), Err(StoreError::Invalid(_))),
        "delivered twice"
    );
    assert_eq!(wait(store.load(id(1))).unwrap().queued, [later(second)]);
    store.settle(first, MessageState::Queued, String::new());
    assert_eq!(
        wait(store.load(id(1))).unwrap().queued,
        [later(first), later(second)],
        "in its old place"
    );
    assert_eq!(wait(store.deliver(first)), Ok("first".to_owned()));
    store.settle(first, MessageState::Answered, "yes".to_owned());
    store.settle(first, MessageState::Unknown, "late".to_owned());
    let settled = wait(store.message(first)).unwrap();
    assert_eq!(
        (settled.state, settled.answer.as_str()),
        (MessageState::Answered, "yes")
    );
    let unknown = MessageId(999);
    assert_eq!(wait(store.message(unknown)), Err(StoreError::NotFound));
    assert_eq!(wait(store.deliver(unknown)), Err(StoreError::NotFound));
}

/// The inbox, a message, a key and an answer are bounded, and what is refused changes nothing.
#[test]
fn everything_is_bounded() {
    let folder = folder();
    let store = with_session(folder.path());
    let long = wait(store.enqueue(id(1), message(&"x".repeat(MESSAGE_BYTES_MAX + 1))));
    let Err(StoreError::Invalid(detail)) = long else {
        panic!("it is too long")
    };
    assert!(
        detail.contains("10485761") && detail.contains("10485760"),
        "{detail}"
    );
    let key = "k".repeat(KEY_BYTES_MAX + 1);
    assert!(matches!(
        wait(store.enqueue(id(1), keyed("x", &key))),
        Err(StoreError::Invalid(_))
    ));
    let first = send(&store, &"x".repeat(MESSAGE_BYTES_MAX));
    for _ in 1..INBOX_MAX {
        send(&store, "m");
    }
    let last = wait(store.load(id(1))).unwrap().last_active;
    until("the next millisecond", || store.clock.wall() > last);
    assert_eq!(
        wait(store.enqueue(id(1), message("m"))),
        Err(StoreError::InboxFull(INBOX_MAX))
    );
    let loaded = wait(store.load(id(1))).unwrap();
    assert_eq!((loaded.queued.len(), loaded.last_active), (INBOX_MAX, last));
    wait(store.deliver(first)).unwrap();
    store.settle(first, MessageState::Answered, "ü".repeat(ANSWER_BYTES_MAX));
    let kept = wait(store.message(first)).unwrap().answer;
    assert!(
        kept.len() < ANSWER_BYTES_MAX + 100 && kept.ends_with(']'),
        "{}",
        kept.len()
    );
}

/// The newest messages come, oldest of them first, and never more text than fits one answer.
#[test]
fn the_newest_messages_come_oldest_first() {
    let folder = folder();
    let store = with_session(folder.path());
    for number in 0..20 {
        send(&store, &number.to_string());
    }
    let newest = wait(store.messages(id(1), 3)).unwrap();
    let newest: Vec<_> = newest.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(newest, ["17", "18", "19"]);
    for _ in 0..3 {
        send(&store, &"x".repeat(MESSAGE_BYTES_MAX));
    }
    assert_eq!(
        wait(store.messages(id(1), 100)).unwrap().len(),
        1,
        "two would be too much"
    );
}

/// Behaviours 79 and 80 under load: eight threads, each message once, each number once.
#[test]
fn eight_threads_at_once() {
    let folder = folder();
    let store = open(folder.path());
    for number in 0..8 {
        wait(store.open(profile(number, &format!("s{number}")))).unwrap();
    }
    let mut numbers: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn({
                    let store = &store;
                    move || hammer(store, thread)
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=800).collect::<Vec<_>>());
    for number in 0..8 {
        let messages = wait(store.messages(id(number), 1_000)).unwrap();
        assert_eq!(messages.len(), 100);
        assert!(
            messages
                .iter()
                .all(|message| message.state == MessageState::Answered)
        );
    }
}

fn hammer(store: &SqliteStore, thread: u64) -> Vec<u64> {
    (0..100)
        .map(|turn| {
            let sent = keyed(&format!("{thread}/{turn}"), &turn.to_string());
            let accepted = wait(store.enqueue(id(thread), sent.clone())).unwrap();
            let again = wait(store.enqueue(id(thread), sent.clone())).unwrap();
            assert_eq!(again.message, accepted.message);
            assert_eq!(wait(store.deliver(accepted.message)), Ok(sent.text));
            store.save(id(thread), progress(SessionState::Working));
            store.settle(accepted.message, MessageState::Answered, "ok".to_owned());
            let seen = wait(store.message(accepted.message)).unwrap();
            assert_eq!(seen.state, MessageState::Answered);
            accepted.message.0
        })
        .collect()
}
