//! Files that are not as they should be: damaged, cut, empty, of another version.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::super::OpenError;
use super::*;

/// A folder with a closed store of some size in it.
fn closed_store() -> tempfile::TempDir {
    let folder = folder();
    let store = with_session(folder.path());
    for number in 0..20 {
        send(&store, &number.to_string().repeat(1_000));
    }
    drop(store);
    folder
}

/// D42: a damaged database is kept under another name byte by byte, the store begins anew and
/// says so once.
#[test]
fn a_damaged_database_is_kept_aside() {
    let good = fs::read(closed_store().path().join("drowse.db")).unwrap();
    let mut middle = good.clone();
    let half = good.len() / 2;
    middle[half..half + 8_192].fill(0);
    let cases = [
        ("cut to a page", good[..4_096].to_vec()),
        ("cut in a page", good[..half + 100].to_vec()),
        ("cut by a byte", good[..good.len() - 1].to_vec()),
        ("cut in its header", good[..50].to_vec()),
        ("zero-filled", vec![0; good.len()]),
        ("short and zero-filled", vec![0; 3]),
        ("zero-filled in the middle", middle),
        ("not a database", b"name = \"config\"\n".repeat(500)),
    ];
    for (case, bytes) in cases {
        let folder = folder();
        fs::write(folder.path().join("drowse.db"), &bytes).unwrap();
        let store = open(folder.path());
        let warning = store
            .warning()
            .unwrap_or_else(|| panic!("{case}: no warning"))
            .to_owned();
        assert_eq!(names(&store), Vec::<String>::new(), "{case}");
        wait(store.open(profile(1, "one"))).unwrap();
        let kept: Vec<_> = contents(folder.path())
            .into_iter()
            .filter(|(name, _)| name.contains("damaged"))
            .collect();
        assert_eq!(kept.len(), 1, "{case}: {warning}");
        assert_eq!(kept[0].1, bytes, "{case}: kept as it was");
        assert!(warning.contains(&kept[0].0), "{case}: {warning}");
        drop(store);
        let store = open(folder.path());
        assert_eq!(store.warning(), None, "{case}: warned once");
        assert_eq!(names(&store), ["one"], "{case}");
    }
}

/// D42: an empty file is a new store. With a log beside it, it is a damaged one, and the log,
/// which SQLite would delete, is kept with it.
#[test]
fn an_empty_database_is_new_unless_it_has_a_log() {
    let folder = folder();
    fs::write(folder.path().join("drowse.db"), b"").unwrap();
    assert_eq!(open(folder.path()).warning(), None);

    let source = self::folder();
    let store = with_session(source.path());
    let log = fs::read(source.path().join("drowse.db-wal")).unwrap();
    drop(store);
    assert!(!log.is_empty());
    for missing in [true, false] {
        let folder = self::folder();
        fs::write(folder.path().join("drowse.db-wal"), &log).unwrap();
        if !missing {
            fs::write(folder.path().join("drowse.db"), b"").unwrap();
        }
        let store = open(folder.path());
        assert!(store.warning().is_some());
        let kept = contents(folder.path());
        let aside = kept
            .iter()
            .find(|(name, _)| name.ends_with("-wal") && name.contains("damaged"));
        assert_eq!(aside.map(|(_, bytes)| bytes), Some(&log));
    }
}

/// D42: a log that was torn at its end loses its last commit at most, and takes new ones.
#[test]
fn a_torn_log_keeps_all_but_its_last_commit() {
    let source = folder();
    let store = with_session(source.path());
    for number in 0..10 {
        send(&store, &number.to_string());
    }
    let files = contents(source.path());
    drop(store);
    for cut in 1..=40 {
        let folder = folder();
        for (name, bytes) in &files {
            let end = if name.ends_with("-wal") {
                bytes.len() - cut
            } else {
                bytes.len()
            };
            if !name.ends_with("-shm") {
                fs::write(folder.path().join(name), &bytes[..end]).unwrap();
            }
        }
        let store = open(folder.path());
        assert_eq!(store.warning(), None, "cut by {cut}");
        let kept = texts(&store);
        assert_eq!(
            kept,
            (0..9).map(|n| n.to_string()).collect::<Vec<_>>(),
            "cut by {cut}"
        );
        send(&store, "later");
        drop(store);
        assert_eq!(texts(&open(folder.path())).len(), 10, "cut by {cut}");
    }
}

/// A database of a later version is refused by name and not touched.
#[test]
fn a_newer_database_is_refused() {
    let folder = closed_store();
    let path = folder.path().join("drowse.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    drop(conn);
    let before = fs::read(&path).unwrap();
    let error = SqliteStore::open(folder.path(), Arc::new(RealTime(Instant::now()))).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Newer {
                found: 99,
                known: 4,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// Files that others could read are closed to them; a folder that others use is not taken.
#[test]
fn files_are_made_private_and_shared_folders_refused() {
    let folder = closed_store();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set(folder.path(), 0o755).unwrap();
    set(&folder.path().join("drowse.db"), 0o644).unwrap();
    drop(open(folder.path()));
    assert_eq!(mode(folder.path()), 0o700);
    assert_eq!(mode(&folder.path().join("drowse.db")), 0o600);

    let shared = self::folder();
    set(shared.path(), 0o755).unwrap();
    fs::write(shared.path().join("letter.txt"), "mine").unwrap();
    let error = SqliteStore::open(shared.path(), Arc::new(RealTime(Instant::now()))).unwrap_err();
    assert!(matches!(error, OpenError::Folder { .. }), "{error}");
    assert_eq!(mode(shared.path()), 0o755);
}
