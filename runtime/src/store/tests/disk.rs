//! A disk that takes no more: refused at once, nothing lost, nothing out of order.

use drowse_messages::MessageState;

use super::*;

/// Lets the database grow by so many pages and no further; `None`: without a limit.
fn limit(conn: &rusqlite::Connection, more: Option<i64>) -> Result<(), super::super::sql::Fault> {
    let pages: i64 = conn.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let most = more.map_or(i64::from(u32::MAX - 1), |more| pages + more);
    let sql = format!("PRAGMA max_page_count = {most}");
    Ok(conn.query_row(&sql, [], |_| Ok(()))?)
}

/// Sets the limit on the connection that writes.
fn limit_writer(store: &SqliteStore, more: Option<i64>) {
    let (reply, answer) = tokio::sync::oneshot::channel();
    let call = super::super::calls::Asked::boxed(move |conn| limit(conn, more), reply);
    store.queue(super::super::Call::Reading(call), 0, Duration::ZERO);
    answer.blocking_recv().unwrap().unwrap();
}

/// Section 7: a full disk keeps the old state, refuses what somebody waits for, keeps what nobody
/// waits for in order, raises an alarm, and ends it by itself once there is room.
#[test]
fn a_full_disk_loses_nothing_and_recovers() {
    let folder = folder();
    let store = with_session(folder.path());
    let (first, second) = (send(&store, "first"), send(&store, "second"));
    wait(store.deliver(first)).unwrap();
    limit_writer(&store, Some(1));

    let answer = "a".repeat(200_000);
    store.settle(first, MessageState::Answered, answer.clone());
    until("the alarm", || store.failing());
    let mut saved = progress(SessionState::Working);
    for launch in 2..10 {
        saved.incarnation = Incarnation(launch);
        store.save(id(1), saved.clone());
    }
    store.settle(second, MessageState::Cancelled, "no more".to_owned());
    assert!(matches!(
        wait(store.enqueue(id(1), message("x"))),
        Err(StoreError::Failed(_))
    ));
    assert!(
        matches!(wait(store.load(id(1))), Err(StoreError::Failed(_))),
        "it would be stale"
    );
    assert_eq!(
        wait(store.message(first)).unwrap().state,
        MessageState::Delivered,
        "the old state"
    );
    assert_eq!(names(&store), ["one"], "readers go on");
    assert!(store.failing());

    limit_writer(&store, None);
    until("the end of the alarm", || !store.failing());
    assert_eq!(wait(store.message(first)).unwrap().answer, answer);
    assert_eq!(
        wait(store.message(second)).unwrap().state,
        MessageState::Cancelled
    );
    let session = wait(store.load(id(1))).unwrap();
    assert_eq!((session.progress, session.queued), (saved, vec![]));
    send(&store, "again");
}

/// One message that is too large for what is left does not take the others of its group with it.
#[test]
fn one_failing_call_does_not_fail_its_group() {
    let folder = folder();
    let store = with_session(folder.path());
    limit_writer(&store, Some(8));
    let gate = hold_writer(&store);
    let before = store.enqueue(id(1), message("before"));
    let large = store.enqueue(id(1), message(&"x".repeat(1_000_000)));
    let after = store.enqueue(id(1), message("after"));
    let twice = store.open(profile(1, "again"));
    let last = store.enqueue(id(1), message("last"));
    drop(gate);
    assert!(wait(before).is_ok());
    assert!(matches!(wait(large), Err(StoreError::Failed(_))));
    assert!(wait(after).is_ok());
    assert!(matches!(wait(twice), Err(StoreError::Failed(_))));
    assert!(wait(last).is_ok());
    assert_eq!(texts(&store), ["before", "after", "last"]);
    assert!(!store.failing());
}

/// Keeps the writer busy until the sender is dropped, so that what follows makes one group.
fn hold_writer(store: &SqliteStore) -> std::sync::mpsc::Sender<()> {
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let (busy, is_busy) = std::sync::mpsc::channel();
    let held = store.ask(0, move |_| {
        busy.send(()).unwrap();
        // Ends when the other side is dropped, which is an error of this one.
        let _ = opened.recv();
        Ok(())
    });
    drop(held);
    is_busy.recv().unwrap();
    gate
}

/// Text in the queue is bounded: what does not fit is refused at once.
#[test]
fn a_disk_that_stops_refuses_instead_of_piling_up() {
    let folder = folder();
    let store = with_session(folder.path());
    let gate = hold_writer(&store);
    let text = "x".repeat(10 << 20);
    let sent: Vec<_> = (0..10)
        .map(|_| store.enqueue(id(1), message(&text)))
        .collect();
    drop(gate);
    let kept = sent.into_iter().map(wait).filter(Result::is_ok).count();
    assert_eq!(kept, 6, "64 MiB hold six of 10 MiB");
}

/// Dropping the store brings what is queued to the disk.
#[test]
fn dropping_the_store_keeps_what_was_called() {
    let folder = folder();
    let store = with_session(folder.path());
    for _ in 0..500 {
        drop(store.enqueue(id(1), message("m")));
    }
    store.save(id(1), progress(SessionState::Stopped));
    drop(store);
    let store = open(folder.path());
    let session = wait(store.load(id(1))).unwrap();
    assert_eq!(session.progress.state, SessionState::Stopped);
    assert_eq!(session.queued.len(), 256, "as many as the inbox takes");
}
