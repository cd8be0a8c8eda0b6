//! What a new daemon finds: everything at rest, nothing lost, nothing repeated.

use drowse_messages::{MessageState, Reason};

use super::*;

/// Behaviours 83 to 85: what runs is left for another daemon to take over; what it does not is put
/// at rest, each state as its facts demand; the second run changes nothing; processes that may
/// still run are named until the session is saved without them.
#[test]
fn everything_is_put_at_rest_once() {
    use SessionState as S;
    let cases = [
        (S::New, false, S::New),
        (S::Starting, true, S::Released),
        (S::Working, true, S::Interrupted),
        (S::NeedsYou, true, S::Interrupted),
        (S::Waiting, true, S::Released),
        (S::Resting, true, S::Released),
        (S::Releasing, false, S::Released),
        (S::Released, false, S::Released),
        (S::Stopping, false, S::Released),
        (S::Stopped, false, S::Stopped),
        (S::Interrupted, false, S::Interrupted),
        (S::Failing, false, S::Failing),
    ];
    let folder = folder();
    let store = open(folder.path());
    for (number, (state, runs, _)) in (1..).zip(cases) {
        wait(store.open(profile(number, &format!("s{number}")))).unwrap();
        let mut left = progress(state);
        left.conversation = Some(conversation());
        left.running = runs.then(|| running(4_000));
        store.save(id(number), left);
    }
    drop(store);
    let store = open(folder.path());
    let adoptable = what_runs_is_left(&store);
    let first = wait(store.put_at_rest(adoptable)).unwrap();
    let rows = |store: &SqliteStore| -> Vec<_> {
        (1..=12)
            .map(|number| wait(store.load(id(number))).unwrap())
            .collect()
    };
    let put = rows(&store);
    for (session, (was, runs, is)) in put.iter().zip(cases) {
        assert_eq!(session.progress.state, is, "{was:?}");
        assert_eq!(
            session.progress.conversation,
            Some(conversation()),
            "{was:?}"
        );
        assert_eq!(session.progress.running.is_some(), runs, "{was:?}");
        let reason = session.progress.end.as_ref().map(|end| end.reason);
        assert_eq!(reason, runs.then_some(Reason::DaemonShutdown), "{was:?}");
    }
    assert_eq!(first.left_running.len(), 5);
    assert_eq!(first.states[&S::Released], 6);
    assert_eq!(first.states[&S::Interrupted], 3);
    assert_eq!(first.states.values().sum::<u64>(), 12);
    let counted = wait(store.ask(0, |conn| {
        let sql = "SELECT count(*) FROM (SELECT agent, state, count(*) FROM sessions GROUP BY 1, 2
                   EXCEPT SELECT agent, state, sessions FROM totals)";
        Ok(conn.query_row(sql, [], |row| row.get::<_, i64>(0))?)
    }));
    assert_eq!(counted, Ok(0), "the totals are what counting gives");
    drop(store);
    let store = open(folder.path());
    assert_eq!(
        wait(store.recover()).unwrap(),
        first,
        "the second run finds the same"
    );
    assert_eq!(rows(&store), put, "and changes nothing");
    store.save(id(2), progress(S::Released));
    assert_eq!(
        wait(store.recover()).unwrap().left_running.len(),
        4,
        "until it is saved without"
    );
}

/// Sessions 3 to 6 run, and stay as they were left.
fn what_runs_is_left(store: &SqliteStore) -> Vec<SessionId> {
    use SessionState as S;
    let found = wait(store.recover()).unwrap();
    let adoptable: Vec<SessionId> = found.adoptable.into_iter().map(|(id, _)| id).collect();
    assert_eq!(adoptable, [id(3), id(4), id(5), id(6)]);
    for (number, was) in (3..).zip([S::Working, S::NeedsYou, S::Waiting, S::Resting]) {
        let row = wait(store.load(id(number))).unwrap();
        assert_eq!(row.progress.state, was, "as it was left");
    }
    adoptable
}

/// A message in flight becomes `unknown` and its session `interrupted`, whatever its row says;
/// waiting ones wait on, oldest session first (D32).
#[test]
fn a_message_in_flight_becomes_unknown() {
    let folder = folder();
    let store = with_session(folder.path());
    wait(store.open(profile(2, "two"))).unwrap();
    let second = wait(store.enqueue(id(2), message("b"))).unwrap().message;
    let (flying, waiting) = (send(&store, "a"), send(&store, "c"));
    wait(store.deliver(flying)).unwrap();
    store.save(id(1), progress(SessionState::Resting));
    drop(store);
    let store = open(folder.path());
    let found = wait(store.recover()).unwrap();
    assert_eq!(found.queued, [id(2), id(1)]);
    assert_eq!(
        wait(store.message(flying)).unwrap().state,
        MessageState::Unknown
    );
    assert_eq!(
        wait(store.message(second)).unwrap().state,
        MessageState::Queued
    );
    let session = wait(store.load(id(1))).unwrap();
    assert_eq!(session.progress.state, SessionState::Interrupted);
    assert!(session.progress.end.is_some_and(|end| end.mid_turn));
    assert_eq!(session.queued, [later(waiting)]);
}

/// D41: a session that may be taken over keeps its message in flight until it is known whether it
/// was; then it is as unknown as any.
#[test]
fn a_message_in_flight_waits_for_what_is_taken_over() {
    let folder = folder();
    let store = with_session(folder.path());
    let flying = send(&store, "a");
    wait(store.deliver(flying)).unwrap();
    let mut working = progress(SessionState::Working);
    working.running = Some(running(4_000));
    store.save(id(1), working);
    for _ in 0..2 {
        let found = wait(store.recover()).unwrap();
        assert_eq!(found.adoptable, [(id(1), vec![flying])]);
        assert_eq!(found.left_running, []);
        let message = wait(store.message(flying)).unwrap();
        assert_eq!(message.state, MessageState::Delivered);
    }
    let found = wait(store.put_at_rest(vec![id(1)])).unwrap();
    assert_eq!(found.left_running, [(id(1), running(4_000))]);
    assert_eq!(found.adoptable, []);
    let message = wait(store.message(flying)).unwrap();
    assert_eq!(message.state, MessageState::Unknown);
}

/// A session that was never launched is new again, not released.
#[test]
fn a_first_start_that_never_came_leaves_it_new() {
    let folder = folder();
    let store = with_session(folder.path());
    let never = Progress {
        incarnation: Incarnation(0),
        ..progress(SessionState::Starting)
    };
    store.save(id(1), never);
    wait(store.recover()).unwrap();
    assert_eq!(
        wait(store.load(id(1))).unwrap().progress.state,
        SessionState::New
    );
}

/// D12: a record that names a process nobody may signal is never handed on, and says so.
#[test]
fn a_record_of_a_forbidden_process_is_dropped() {
    let of = |pid: &str| {
        let one = format!(r#"{{"boot_id":"b","process":{{"pid":{pid},"start_ticks":1}}}}"#);
        format!(r#"{{"keeper":{one},"agent":{one}}}"#)
    };
    for bad in [
        of("0"),
        of("1"),
        of("-1"),
        of("-5"),
        of("2147483648"),
        of("\"x\""),
        String::new(),
    ] {
        let folder = folder();
        let store = with_session(folder.path());
        let record = bad.clone();
        let write = "UPDATE sessions SET state = 'resting', running = ?1";
        wait(store.ask(0, move |conn| Ok(conn.execute(write, [&record])?))).unwrap();
        assert_eq!(wait(store.recover()).unwrap().left_running, [], "{bad}");
        let progress = wait(store.load(id(1))).unwrap().progress;
        assert_eq!(
            (progress.running, progress.state),
            (None, SessionState::Released),
            "{bad}"
        );
        assert!(
            progress
                .last_error
                .is_some_and(|text| text.contains("unreadable")),
            "{bad}"
        );
    }
}
