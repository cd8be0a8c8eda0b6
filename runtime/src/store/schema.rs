//! The tables, and the steps from each version of them to the next.
//!
//! Fed by `files`, once, before any other statement. Invariant: a step that was ever released is
//! never edited; a change is a new step at the end, and the number of steps is the version. A
//! database with more steps than this program knows is refused, never touched.

use rusqlite::Connection;

/// One step per version, oldest first; each runs in a transaction of its own.
const STEPS: &[&str] = &[VERSION_1, VERSION_2, VERSION_3, VERSION_4];

/// Sessions are split: what is listed is small and clear, what is secret is sealed and apart, so
/// that a page of a listing reads few pages of the file. Numbers (`AUTOINCREMENT`) are never used
/// again, even when the newest rows are gone. Totals are kept by triggers, because counting
/// 100,000 rows takes longer than reading a page of them. Long texts stand last in their rows, because SQLite
/// walks a row from its front.
const VERSION_1: &str = "
CREATE TABLE sessions (
    id           INTEGER PRIMARY KEY,
    name         TEXT    NOT NULL UNIQUE,
    agent        TEXT    NOT NULL,
    protocol     TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    state_since  INTEGER NOT NULL,
    last_active  INTEGER NOT NULL,
    created      INTEGER NOT NULL,
    incarnation  INTEGER NOT NULL,
    cwd          BLOB    NOT NULL,
    limits       TEXT    NOT NULL,
    running      TEXT,
    conversation TEXT,
    last_error   TEXT,
    end          TEXT
) STRICT;
CREATE INDEX sessions_by_use         ON sessions (last_active DESC, id);
CREATE INDEX sessions_by_state       ON sessions (state, last_active DESC, id);
CREATE INDEX sessions_by_agent       ON sessions (agent, last_active DESC, id);
CREATE INDEX sessions_by_agent_state ON sessions (agent, state, last_active DESC, id);
CREATE INDEX sessions_running        ON sessions (id) WHERE running IS NOT NULL;

CREATE TABLE totals (
    agent    TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    sessions INTEGER NOT NULL,
    PRIMARY KEY (agent, state)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER session_opened AFTER INSERT ON sessions BEGIN
    INSERT INTO totals VALUES (NEW.agent, NEW.state, 1)
    ON CONFLICT DO UPDATE SET sessions = sessions + 1;
END;
CREATE TRIGGER session_forgotten AFTER DELETE ON sessions BEGIN
    UPDATE totals SET sessions = sessions - 1 WHERE agent = OLD.agent AND state = OLD.state;
END;
CREATE TRIGGER session_moved AFTER UPDATE OF state ON sessions WHEN OLD.state <> NEW.state BEGIN
    UPDATE totals SET sessions = sessions - 1 WHERE agent = OLD.agent AND state = OLD.state;
    INSERT INTO totals VALUES (NEW.agent, NEW.state, 1)
    ON CONFLICT DO UPDATE SET sessions = sessions + 1;
END;

CREATE TABLE recipes (
    session INTEGER PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    sealed  BLOB    NOT NULL
) STRICT;

CREATE TABLE messages (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    key     TEXT,
    state   TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    text    TEXT    NOT NULL,
    answer  TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX        messages_of_session ON messages (session, id);
CREATE UNIQUE INDEX messages_by_key     ON messages (session, key) WHERE key IS NOT NULL;
CREATE INDEX        messages_queued     ON messages (session, id) WHERE state = 'queued';
CREATE INDEX        messages_delivered  ON messages (session, id) WHERE state = 'delivered';

CREATE TABLE events (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER,
    json    TEXT    NOT NULL
) STRICT;
CREATE INDEX events_of_session ON events (session, seq) WHERE session IS NOT NULL;
";

/// What sessions keep of their backends. Few have any, and a start looks for those.
const VERSION_2: &str = "
ALTER TABLE sessions ADD COLUMN keeping TEXT;
CREATE INDEX sessions_keeping ON sessions (id) WHERE keeping IS NOT NULL;
";

/// Hosts. Whether a session has or had one is listed, so it stands with the session; what it takes
/// to go on with it is secret, and changes with what the host says.
const VERSION_3: &str = "
ALTER TABLE sessions ADD COLUMN hosted INTEGER NOT NULL DEFAULT 0;
CREATE TABLE relays (
    session INTEGER PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    sealed  BLOB    NOT NULL
) STRICT;
";

/// How urgent a message is, and what a client says came of a session. What waits is read from its
/// index alone: in the row the priority stands behind the texts.
const VERSION_4: &str = "
ALTER TABLE messages ADD COLUMN priority TEXT NOT NULL DEFAULT 'later';
DROP INDEX messages_queued;
CREATE INDEX messages_queued ON messages (session, id, priority) WHERE state = 'queued';
ALTER TABLE sessions ADD COLUMN outcome TEXT;
";

/// The version this program writes.
pub(super) fn newest() -> i64 {
    i64::try_from(STEPS.len()).expect("there are few steps")
}

/// The version a database was written in; 0: it is empty.
pub(super) fn version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Writes the version down. Also the smallest write there is: it shows whether the disk takes any.
pub(super) fn set_version(conn: &Connection, version: i64) -> rusqlite::Result<()> {
    conn.pragma_update(None, "user_version", version)
}

/// Takes the steps from `found` to the newest version.
pub(super) fn migrate(conn: &mut Connection, found: i64) -> rusqlite::Result<()> {
    for (version, step) in (1..).zip(STEPS) {
        if version > found {
            let step_taken = conn.transaction()?;
            step_taken.execute_batch(step)?;
            set_version(&step_taken, version)?;
            step_taken.commit()?;
        }
    }
    Ok(())
}
