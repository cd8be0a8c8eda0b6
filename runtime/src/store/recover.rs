//! What a daemon does first with the rows an earlier one left: puts them at rest.
//!
//! Fed by `Store::recover`, once, before any actor runs. It ends no process and starts none.
//! Invariant: a second run changes nothing; the record of a process that may still be running
//! stays in its row until the session is saved without it.

use std::collections::BTreeMap;

use drowse_actors::ports::Recovered;
use drowse_messages::{EndReport, Reason, Running, SessionId, SessionState, WallTime, Who};
use rusqlite::{Connection, params};

use super::keeping;
use super::log;
use super::sessions::{running_of, state_of};
use super::sql::{Fault, json, number, session_id, unsigned};

/// What is kept as the answer of a message that was in flight.
const IN_FLIGHT: &str =
    "drowse ended while the agent worked on this message: whether it acted on it is not known";

/// Puts at rest what an earlier daemon left, and says what there is.
pub(super) fn recover(conn: &Connection, now: WallTime) -> Result<Recovered, Fault> {
    // A session with a message in flight was working, whatever its row had time to say.
    conn.execute(
        "UPDATE sessions SET state = 'working'
         WHERE id IN (SELECT session FROM messages WHERE state = 'delivered')",
        [],
    )?;
    conn.execute(
        "UPDATE messages SET state = 'unknown', answer = ?1 WHERE state = 'delivered'",
        [IN_FLIGHT],
    )?;
    for row in left_awake(conn)? {
        put_at_rest(conn, &row, now)?;
    }
    Ok(Recovered {
        left_running: left_running(conn)?,
        keeping: keeping::sessions(conn)?,
        queued: queued(conn)?,
        states: states(conn)?,
        next_seq: log::next_seq(conn)?,
    })
}

/// What decides how a session is put at rest.
struct Awake {
    id: i64,
    state: SessionState,
    launched: bool,
    running: bool,
}

fn left_awake(conn: &Connection) -> Result<Vec<Awake>, Fault> {
    let states = SessionState::ALL
        .into_iter()
        .filter(|state| !at_rest(*state))
        .map(|state| format!("'{}'", state.code()))
        .collect::<Vec<_>>()
        .join(", ");
    let mut statement = conn.prepare(&format!(
        "SELECT id, state, incarnation > 0, running IS NOT NULL FROM sessions
         WHERE state IN ({states})"
    ))?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Awake {
            id: row.get(0)?,
            state: state_of(&row.get::<_, String>(1)?)?,
            launched: row.get(2)?,
            running: row.get(3)?,
        });
    }
    Ok(found)
}

/// Whether a state needs no process. A row at rest that still has one was recovered before, or
/// could not be emptied: its state is right as it is.
fn at_rest(state: SessionState) -> bool {
    match state {
        SessionState::New
        | SessionState::Released
        | SessionState::Stopped
        | SessionState::Interrupted
        | SessionState::Failing => true,
        SessionState::Starting
        | SessionState::Working
        | SessionState::NeedsYou
        | SessionState::Waiting
        | SessionState::Resting
        | SessionState::Releasing
        | SessionState::Stopping => false,
    }
}

fn put_at_rest(conn: &Connection, row: &Awake, now: WallTime) -> Result<(), Fault> {
    let mid_turn = matches!(row.state, SessionState::Working | SessionState::NeedsYou);
    let state = if mid_turn {
        SessionState::Interrupted
    } else if row.launched || row.running {
        SessionState::Released
    } else {
        SessionState::New
    };
    let end = (mid_turn || row.running)
        .then(|| json(&ended(mid_turn, now)))
        .transpose()?;
    conn.prepare_cached(
        "UPDATE sessions SET state = ?2, state_since = ?3, end = coalesce(?4, end) WHERE id = ?1",
    )?
    .execute(params![row.id, state.code(), number(now.0), end])?;
    Ok(())
}

fn ended(mid_turn: bool, at: WallTime) -> EndReport {
    EndReport {
        mid_turn,
        ..EndReport::new(Reason::DaemonShutdown, Who::Daemon, at)
    }
}

/// Every record of a process that may still be running. One that cannot be trusted is dropped
/// from its row, which says so, because no process may be signalled on its word.
fn left_running(conn: &Connection) -> Result<Vec<(SessionId, Running)>, Fault> {
    let records = conn
        .prepare("SELECT id, running FROM sessions WHERE running IS NOT NULL ORDER BY id")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(i64, String)>>>()?;
    let mut left = Vec::new();
    for (id, record) in records {
        match running_of(&record) {
            Ok(running) => left.push((session_id(id), running)),
            Err(_) => drop_record(conn, id)?,
        }
    }
    Ok(left)
}

fn drop_record(conn: &Connection, id: i64) -> rusqlite::Result<()> {
    let detail = "the record of its processes was unreadable and was dropped: \
                  should one of them still run, end it by hand";
    tracing::warn!(session = %session_id(id), "{detail}");
    conn.prepare_cached("UPDATE sessions SET running = NULL, last_error = ?2 WHERE id = ?1")?
        .execute(params![id, detail])?;
    Ok(())
}

fn queued(conn: &Connection) -> rusqlite::Result<Vec<SessionId>> {
    conn.prepare(
        "SELECT session FROM messages WHERE state = 'queued' GROUP BY session ORDER BY min(id)",
    )?
    .query_map([], |row| Ok(session_id(row.get(0)?)))?
    .collect()
}

fn states(conn: &Connection) -> Result<BTreeMap<SessionState, u64>, Fault> {
    let mut statement = conn.prepare(
        "SELECT state, sum(sessions) FROM totals GROUP BY state HAVING sum(sessions) > 0",
    )?;
    let mut rows = statement.query([])?;
    let mut counts = BTreeMap::new();
    while let Some(row) = rows.next()? {
        counts.insert(state_of(&row.get::<_, String>(0)?)?, unsigned(row.get(1)?));
    }
    Ok(counts)
}
