//! The files of the store: made private, opened, checked, and set aside when they are damaged.
//!
//! Fed by `SqliteStore::open`, once. Invariant: nothing that might hold somebody's sessions is
//! ever overwritten or removed; a damaged database is renamed, with its log, and said so once.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use drowse_messages::WallTime;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::process::geteuid;

use super::sql::number;
use super::{OpenError, schema};

/// The database, inside the state folder.
const DATABASE: &str = "drowse.db";

/// The unit of the database; a power of two, of which a whole number makes a sound file.
const PAGE_BYTES: u64 = 4_096;

/// The writer's page cache. 1 MiB holds what a burst touches; the rest is the kernel's cache, so
/// that 100,000 sessions cost the daemon no memory.
const WRITER_CACHE_KIB: i64 = 1_024;

/// The reader's page cache: listings read in order and gain nothing from more.
const READER_CACHE_KIB: i64 = 512;

/// 64: a few more than there are statements, so that each is prepared once.
const STATEMENTS_MAX: usize = 64;

/// How long one connection waits for the other, or for somebody's `sqlite3`. Longer than any
/// transaction of ours takes on a slow disk.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

/// The log is cut back to this after a checkpoint, so that one long burst does not keep its disk
/// space for ever.
const LOG_BYTES_MAX: i64 = 8 << 20;

/// Databases up to this size are read through at start to find damage in their middle, at about
/// 5 ms per MiB. Larger ones are checked at their ends, as SQLite does by itself; damage in them is
/// found by the statement that meets it.
const CHECKED_BYTES_MAX: u64 = 32 << 20;

/// The two connections of a store, and what there is to say about how they were opened.
pub(super) struct Opened {
    pub(super) writer: Connection,
    pub(super) reader: Connection,
    /// One warning for people, when a damaged database was set aside.
    pub(super) warning: Option<String>,
}

/// Opens the database in `folder`, or begins one.
pub(super) fn open(folder: &Path, now: WallTime) -> Result<Opened, OpenError> {
    make_private(folder).map_err(|source| OpenError::Folder {
        path: folder.into(),
        source,
    })?;
    let path = folder.join(DATABASE);
    let (writer, warning) = match damage(&path)? {
        None => match open_writer(&path) {
            Err(OpenError::Database { source, .. }) if is_damage(&source) => {
                begin_again(&path, now, &source.to_string())?
            }
            opened => (opened?, None),
        },
        Some(why) => begin_again(&path, now, why)?,
    };
    let reader = open_reader(&path).map_err(|source| OpenError::Database { path, source })?;
    Ok(Opened {
        writer,
        reader,
        warning,
    })
}

/// Makes the folder, for its owner alone. One of ours that others can enter is closed to them.
fn make_private(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let found = fs::metadata(folder)?;
    if !found.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(io::Error::other(format!(
            "it belongs to user {}",
            found.uid()
        )));
    }
    if found.mode() & 0o077 == 0 {
        return Ok(());
    }
    // Closing a folder that others use (`/tmp`, by a slip in an option) would break them.
    let path = folder.join(DATABASE);
    let ours = path.exists() || beside(&path, "-wal").exists();
    let ours = ours || fs::read_dir(folder)?.next().is_none();
    if !ours {
        return Err(io::Error::other(
            "it holds other files and is open to other users: choose a folder for drowse alone",
        ));
    }
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

/// What SQLite would not notice: a log whose database is gone. SQLite would delete it, and with
/// it every message that was accepted since the last checkpoint.
fn damage(path: &Path) -> Result<Option<&'static str>, OpenError> {
    let orphaned = size(path)? == 0 && size(&beside(path, "-wal"))? > 0;
    Ok(orphaned.then_some("it is empty, but its log is not"))
}

/// The size of a file in bytes; 0 when there is none.
fn size(path: &Path) -> Result<u64, OpenError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(source) => Err(OpenError::Folder {
            path: path.into(),
            source,
        }),
        Ok(found) => Ok(found.len()),
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

fn begin_again(
    path: &Path,
    now: WallTime,
    why: &str,
) -> Result<(Connection, Option<String>), OpenError> {
    let aside = set_aside(path, now).map_err(|source| OpenError::SetAside {
        path: path.into(),
        source,
    })?;
    let warning = format!(
        "the database {} is damaged ({why}): it was kept as {}, and an empty one was begun",
        path.display(),
        aside.display()
    );
    Ok((open_writer(path)?, Some(warning)))
}

/// Renames the database and its log so that they still belong together for whoever examines
/// them. Returns the new name of the database.
fn set_aside(path: &Path, now: WallTime) -> io::Result<PathBuf> {
    let free = |aside: &PathBuf| {
        ["", "-wal"]
            .iter()
            .all(|ending| fs::symlink_metadata(beside(aside, ending)).is_err())
    };
    let aside = (0..u32::MAX)
        .map(|turn| match turn {
            0 => beside(path, &format!(".damaged-{}", now.0)),
            turn => beside(path, &format!(".damaged-{}-{turn}", now.0)),
        })
        .find(free)
        .ok_or(io::ErrorKind::AlreadyExists)?;
    // The database goes last: should the daemon die in between, the next start still sees damage.
    for ending in ["-wal", ""] {
        match fs::rename(beside(path, ending), beside(&aside, ending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    // The index of the log holds nothing of its own; SQLite makes it anew.
    match fs::remove_file(beside(path, "-shm")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(aside)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    // SQLite gives its log and its index the mode of the database, so making that first makes
    // all of them private, whatever the umask.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .and_then(|file| file.set_permissions(Permissions::from_mode(0o600)))
        .map_err(|source| OpenError::Folder {
            path: path.into(),
            source,
        })?;
    let (bytes, log_bytes) = (size(path)?, size(&beside(path, "-wal"))?);
    let database = |source| OpenError::Database {
        path: path.into(),
        source,
    };
    let mut conn = connect(path, WRITER_CACHE_KIB).map_err(database)?;
    let found = schema::version(&conn).map_err(database)?;
    if found > schema::newest() {
        return Err(OpenError::Newer {
            path: path.into(),
            found,
            known: schema::newest(),
        });
    }
    if bytes <= CHECKED_BYTES_MAX {
        check(&conn).map_err(database)?;
    }
    // SQLite takes what is missing of the last page for zeros. With a log, that may be a
    // checkpoint that was interrupted and is made again; without one, it is a loss.
    if bytes % PAGE_BYTES != 0 && log_bytes == 0 {
        return Err(database(corrupt("it ends in the middle of a page")));
    }
    prepare(&mut conn, found).map_err(database)?;
    Ok(conn)
}

fn prepare(conn: &mut Connection, found: i64) -> rusqlite::Result<()> {
    conn.pragma_update(None, "page_size", number(PAGE_BYTES))?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    schema::migrate(conn, found)
}

/// Reads the whole database through once.
fn check(conn: &Connection) -> rusqlite::Result<()> {
    let verdict: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(corrupt(&verdict.replace('\n', " ")))
}

/// The error SQLite has for damage.
fn corrupt(why: &str) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(code, Some(why.to_owned()))
}

fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let conn = connect(path, READER_CACHE_KIB)?;
    conn.pragma_update(None, "query_only", true)?;
    Ok(conn)
}

fn connect(path: &Path, cache_kib: i64) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY_WAIT_MAX)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    conn.pragma_update(None, "foreign_keys", true)?;
    // A negative size is one in KiB.
    conn.pragma_update(None, "cache_size", -cache_kib)?;
    Ok(conn)
}
