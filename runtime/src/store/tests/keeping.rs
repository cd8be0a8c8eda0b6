//! What sessions keep, written down and found again (behaviour 146).

use drowse_messages::{KeepRule, Keeping, Kept, KeptProcess, ProcReport};

use super::*;

fn keeping() -> Keeping {
    let identity = ProcIdentity::new(4_720, 77).unwrap();
    let process = KeptProcess {
        process: ProcReport {
            listens: vec![3000],
            ..ProcReport::new(identity, 4_000, "node".to_owned())
        },
        rule: KeepRule::Listen(3000),
        since: WallTime(5),
        until: Some(WallTime(9)),
    };
    let kept = Kept {
        incarnation: Incarnation(1),
        running: running(4_000),
        processes: vec![process.clone()],
    };
    Keeping {
        kept: vec![kept],
        asked: vec![process],
    }
}

/// It reads back as written, is found at the next start, also a second time, and is gone once the
/// session is saved without it.
#[test]
fn what_is_kept_is_found_again() {
    let folder = folder();
    let store = open(folder.path());
    for number in 1..=2 {
        wait(store.open(profile(number, &format!("s{number}")))).unwrap();
    }
    let mut left = progress(SessionState::Released);
    left.keeping = keeping();
    store.save(id(1), left.clone());
    store.save(id(2), progress(SessionState::Released));
    assert_eq!(wait(store.load(id(1))).unwrap().progress, left);
    drop(store);
    for _ in 0..2 {
        let store = open(folder.path());
        let recovered = wait(store.recover()).unwrap();
        assert_eq!(recovered.keeping, [(id(1), keeping().kept)]);
        assert_eq!(recovered.left_running, []);
        assert_eq!(wait(store.load(id(1))).unwrap().progress, left);
    }
    let store = open(folder.path());
    store.save(id(1), progress(SessionState::Released));
    assert_eq!(wait(store.recover()).unwrap().keeping, []);
}

/// D12: a record that names what is no process is dropped, and the session stays.
#[test]
fn a_record_that_cannot_be_believed_is_dropped() {
    let folder = folder();
    let store = open(folder.path());
    wait(store.open(profile(1, "s"))).unwrap();
    for (good, bad) in [("\"pid\":4000", "\"pid\":-1"), ("{", "[")] {
        let (good, bad) = (good.to_owned(), bad.to_owned());
        let mut left = progress(SessionState::Released);
        left.keeping = keeping();
        store.save(id(1), left);
        wait(store.ask(0, move |conn| {
            let sql = "UPDATE sessions SET keeping = replace(keeping, ?1, ?2)";
            conn.execute(sql, [&good, &bad])?;
            Ok(())
        }))
        .unwrap();
        assert_eq!(wait(store.recover()).unwrap().keeping, []);
        let session = wait(store.load(id(1))).unwrap();
        assert!(session.progress.keeping.is_empty());
    }
}
