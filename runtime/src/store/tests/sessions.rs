//! Sessions: what is loaded is what was opened; names, prefixes, pages; nothing comes back.

use std::os::unix::ffi::OsStrExt;

use drowse_messages::{
    Ages, HoldId, Lease, MessageState, MonoTime, Pinned, ToldTask, WaitingChange, Who,
};

use super::*;

/// D27: arguments, environment and folder come back exactly, also a folder that is not UTF-8.
#[test]
fn a_session_loads_as_it_was_opened() {
    let folder = folder();
    let store = open(folder.path());
    let mut opened = profile(1, "one");
    opened.recipe.cwd = std::ffi::OsStr::from_bytes(b"/tmp/\xff").into();
    wait(store.open(opened.clone())).unwrap();
    drop(store);
    let saved = wait(open(folder.path()).load(id(1))).unwrap();
    assert_eq!(saved.profile, opened);
    assert_eq!(
        saved.progress,
        Progress {
            incarnation: Incarnation(0),
            ..progress(SessionState::New)
        }
    );
}

/// D27, D53: neither arguments nor environment are in any file of the folder in clear, also not
/// in the log of the database; and nobody but the owner can read one.
#[test]
fn no_secret_is_in_any_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let state = folder.path().join("state");
    let store = with_session(&state);
    store.save(id(1), progress(SessionState::Resting));
    let listed = wait(store.list(Page {
        limit: 9,
        ..Page::default()
    }))
    .unwrap();
    assert!(
        listed.sessions[0].profile.recipe.env.is_empty(),
        "a listing opens no secret"
    );
    for turn in ["open", "closed"] {
        let files = contents(&state);
        assert!(
            files.contains_key("drowse.db") && files.contains_key("key"),
            "{:?}",
            files.keys()
        );
        for (name, bytes) in files {
            assert!(!contains(&bytes, SECRET), "{turn}: {name} holds the secret");
            let mode = std::fs::metadata(state.join(&name))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{turn}: {name}");
        }
        if turn == "open" {
            assert_eq!(
                std::fs::metadata(&state).unwrap().permissions().mode() & 0o777,
                0o700
            );
            break;
        }
    }
    drop(store);
    assert!(
        !contents(&state)
            .values()
            .any(|bytes| contains(bytes, SECRET)),
        "after closing"
    );
}

/// A lost or a wrong key concerns the session whose secrets it sealed, says which file, and
/// leaves the store usable.
#[test]
fn a_lost_key_fails_its_sessions_only() {
    let folder = folder();
    drop(with_session(folder.path()));
    let key = folder.path().join("key");
    let right = std::fs::read(&key).unwrap();
    let cases: [(&str, Option<Vec<u8>>); 3] = [
        ("the file is missing", None),
        ("not the key they were sealed with", Some(vec![7; 32])),
        ("has 5 bytes instead of 32", Some(vec![7; 5])),
    ];
    for (why, bytes) in cases {
        match &bytes {
            None => std::fs::remove_file(&key).unwrap(),
            Some(bytes) => std::fs::write(&key, bytes).unwrap(),
        }
        let store = open(folder.path());
        let error = wait(store.load(id(1))).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("/key:"), "{error}");
        assert_eq!(names(&store), ["one"], "the store itself works");
        assert_eq!(std::fs::read(&key).ok(), bytes, "no key is replaced");
    }
    std::fs::write(&key, right).unwrap();
    assert!(
        wait(open(folder.path()).load(id(1))).is_ok(),
        "the right key opens it again"
    );
}

/// A sealed recipe opens for its own session only.
#[test]
fn a_sealed_recipe_belongs_to_its_session() {
    let folder = folder();
    let store = with_session(folder.path());
    wait(store.open(profile(2, "two"))).unwrap();
    let swap = "UPDATE recipes SET sealed = (SELECT sealed FROM recipes WHERE session = 1)";
    wait(store.ask(0, move |conn| Ok(conn.execute_batch(swap)?))).unwrap();
    assert!(wait(store.load(id(1))).is_ok());
    assert!(matches!(
        wait(store.load(id(2))),
        Err(StoreError::Failed(_))
    ));
}

/// A name and an id belong to one session; a refusal changes nothing.
#[test]
fn names_and_ids_are_unique() {
    let folder = folder();
    let store = with_session(folder.path());
    assert_eq!(
        wait(store.open(profile(2, "one"))),
        Err(StoreError::NameTaken)
    );
    assert!(matches!(
        wait(store.open(profile(1, "two"))),
        Err(StoreError::Failed(_))
    ));
    assert_eq!(names(&store), ["one"]);
    store.forget(id(1));
    assert_eq!(
        wait(store.open(profile(2, "one"))),
        Ok(()),
        "a forgotten name is free"
    );
}

/// Whole id before name before prefix; short prefixes find nothing; an ambiguous one says what
/// fits.
#[test]
fn sessions_are_found_by_id_name_and_prefix() {
    let folder = folder();
    let store = open(folder.path());
    let first = 0x0abc_def0_1234_5678;
    wait(store.open(profile(first, "a"))).unwrap();
    wait(store.open(profile(first + 1, "b"))).unwrap();
    wait(store.open(profile(77 << 40, &id(77 << 40).to_string()))).unwrap();
    let whole = id(first).to_string();
    let find = |text: &str| wait(store.resolve(text.to_owned()));
    assert_eq!(find(&whole), Ok(id(first)));
    assert_eq!(find("b"), Ok(id(first + 1)));
    assert_eq!(find(&id(77 << 40).to_string()[..4]), Ok(id(77 << 40)));
    let Err(StoreError::Ambiguous(some)) = find(&whole[..11]) else {
        panic!("two fit")
    };
    assert_eq!(
        some,
        [format!("{whole} (a)"), format!("{} (b)", id(first + 1))]
    );
    for none in ["", "000", "zzzz", "no such", "0000000000000000", "ünï"] {
        assert_eq!(find(none), Err(StoreError::NotFound), "{none:?}");
    }
}

/// Reading one's own writes: what was called before is seen, though nobody waited for it.
#[test]
fn a_forgotten_session_is_not_found_by_the_next_call() {
    let folder = folder();
    let store = open(folder.path());
    for turn in 1..200 {
        wait(store.open(profile(turn, "same"))).unwrap();
        store.forget(id(turn));
        let found = store.resolve("same".to_owned());
        assert_eq!(wait(found), Err(StoreError::NotFound), "turn {turn}");
    }
}

/// Behaviour 89: a late write, of whatever kind, brings nothing of a forgotten session back.
#[test]
fn a_late_write_does_not_bring_a_session_back() {
    let folder = folder();
    let store = with_session(folder.path());
    let sent = send(&store, "x");
    store.forget(id(1));
    store.save(id(1), progress(SessionState::Working));
    store.settle(sent, MessageState::Answered, "late".to_owned());
    assert_eq!(wait(store.load(id(1))), Err(StoreError::NotFound));
    assert_eq!(wait(store.message(sent)), Err(StoreError::NotFound));
    assert_eq!(
        wait(store.enqueue(id(1), message("y"))),
        Err(StoreError::NotFound)
    );
    let rows = wait(store.ask(0, |conn| {
        let sql = "SELECT (SELECT count(*) FROM recipes) + (SELECT count(*) FROM messages)";
        Ok(conn.query_row(sql, [], |row| row.get::<_, i64>(0))?)
    }));
    assert_eq!(rows, Ok(0));
}

fn lease(since: MonoTime, until: MonoTime) -> Lease {
    Lease {
        why: "deploy".to_owned(),
        owner: "ci".to_owned(),
        since,
        until,
    }
}

/// Behaviour 102: a row of before ages were written down is read; they end with their processes.
#[test]
fn ages_stand_and_fall_with_their_processes() {
    let folder = folder();
    let store = with_session(folder.path());
    let mut saved = progress(SessionState::Resting);
    saved.running = Some(running(4_000));
    let without = serde_json::to_string(&saved.running).unwrap();
    store.save(id(1), saved.clone());
    let row = wait(store.ask(0, |conn| {
        let sql = "SELECT running FROM sessions";
        Ok(conn.query_row(sql, [], |row| row.get::<_, Option<String>>(0))?)
    }));
    assert_eq!(row, Ok(Some(without)));
    assert_eq!(wait(store.load(id(1))).unwrap().progress, saved);
    saved.running = None;
    saved.ages = Some(Ages::default());
    store.save(id(1), saved);
    assert_eq!(wait(store.load(id(1))).unwrap().progress.ages, None);
}

/// Progress comes back as saved, and the time of the state moves with the state alone.
#[test]
fn progress_comes_back_as_saved() {
    let folder = folder();
    let store = with_session(folder.path());
    let mut saved = progress(SessionState::Resting);
    saved.running = Some(running(4_000));
    saved.conversation = Some(conversation());
    saved.last_error = Some("it failed".to_owned());
    let at = MonoTime::from_millis;
    saved.ages = Some(Ages {
        launched: at(5),
        hard_limit_warned: true,
        asks: vec![("a1".to_owned(), at(6))],
        tasks: vec![("t1".to_owned(), at(7)), ("t1".to_owned(), at(8))],
        pinned: Some(Pinned {
            since: at(9),
            warned: false,
        }),
        first_turn: Some(at(12)),
        told: vec![ToldTask {
            task: drowse_messages::Task {
                id: "build".to_owned(),
                kind: "task".to_owned(),
                description: "npm test".to_owned(),
                ambient: false,
            },
            owner: "hook".to_owned(),
            since: at(13),
        }],
        change: Some(WaitingChange {
            by: Who::Client("me".to_owned()),
            since: at(14),
        }),
        leases: [(HoldId(1), lease(at(10), at(11)))].into(),
    });
    store.save(id(1), saved.clone());
    let first = wait(store.load(id(1))).unwrap();
    assert_eq!(first.progress, saved);
    until("the next millisecond", || {
        store.clock.wall() > first.last_active
    });
    store.save(id(1), saved);
    let second = wait(store.load(id(1))).unwrap();
    assert_eq!(second.state_since, first.state_since);
    assert!(second.last_active > first.last_active);
}

/// Pages follow each other without a gap or a repeat, newest use first, ids as the tie-break.
#[test]
fn pages_join_without_gap_or_repeat() {
    let folder = folder();
    let store = open(folder.path());
    for number in 1..=25 {
        let mut profile = profile(number, &format!("s{number}"));
        profile.created = WallTime(1_000 + number / 5);
        wait(store.open(profile)).unwrap();
    }
    let mut expected: Vec<u64> = (1..=25).collect();
    expected.sort_by_key(|number| (std::cmp::Reverse(number / 5), *number));
    let filters: [(Option<SessionState>, Option<&str>); 4] = [
        (None, None),
        (Some(SessionState::New), None),
        (None, Some("fake")),
        (Some(SessionState::New), Some("fake")),
    ];
    for (state, agent) in filters {
        let agent = agent.map(|agent| agent.parse().unwrap());
        let mut page = Page {
            limit: 4,
            state,
            agent,
            ..Page::default()
        };
        let mut listed = Vec::new();
        loop {
            let found = wait(store.list(page.clone())).unwrap();
            assert_eq!(found.total, 25);
            listed.extend(found.sessions.into_iter().map(|session| session.profile.id));
            let Some(next) = found.next else { break };
            page.after = Some(next);
        }
        assert_eq!(
            listed,
            expected
                .iter()
                .map(|number| id(*number))
                .collect::<Vec<_>>()
        );
    }
    let none = Page {
        limit: 4,
        state: Some(SessionState::Failing),
        ..Page::default()
    };
    assert_eq!(wait(store.list(none)).unwrap().total, 0);
    let wrong = Page {
        limit: 4,
        after: Some("x".to_owned()),
        ..Page::default()
    };
    assert!(matches!(
        wait(store.list(wrong)),
        Err(StoreError::Invalid(_))
    ));
}
