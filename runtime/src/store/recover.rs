//! What a daemon does first with the rows an earlier one left: those that it may take over stay as
//! they are, the others are put at rest; so are those, later, that it could not take over.
//!
//! Fed by `Store::recover`, once, before any actor runs. It ends no process and starts none.
//! Invariant: a second run changes nothing; the record of a process that may still be running
//! stays in its row until the session is saved without it.

use std::collections::BTreeMap;

use drowse_actors::ports::Recovered;
use drowse_messages::{
    EndReport, MessageId, Reason, Running, SessionId, SessionState, WallTime, Who,
};
use drowse_policy::session::may_be_adopted;
use rusqlite::{Connection, params};

use super::keeping;
use super::log;
use super::sessions::{running_of, state_of};
use super::sql::{Fault, json, key_of, number, session_id, unsigned};

/// What is kept as the answer of a message that was in flight.
const IN_FLIGHT: &str =
    "drowse ended while the agent worked on this message: whether it acted on it is not known";

/// Puts at rest what an earlier daemon left and nobody can take over, and says what there is.
pub(super) fn recover(conn: &Connection, now: WallTime) -> Result<Recovered, Fault> {
    drop_unreadable(conn, now)?;
    let awake = names(|state| !at_rest(state));
    let adoptable = is_adoptable();
    let ids = conn
        .prepare(&format!(
            "SELECT id FROM sessions WHERE NOT ({adoptable}) AND
             (state IN ({awake}) OR id IN (SELECT session FROM messages WHERE state = 'delivered'))"
        ))?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    for id in ids {
        put_one_at_rest(conn, id, now)?;
    }
    found(conn)
}

/// Puts these at rest, whose backends nobody could take over.
pub(super) fn put_at_rest(
    conn: &Connection,
    sessions: &[SessionId],
    now: WallTime,
) -> Result<Recovered, Fault> {
    for session in sessions {
        put_one_at_rest(conn, key_of(*session), now)?;
    }
    found(conn)
}

fn found(conn: &Connection) -> Result<Recovered, Fault> {
    Ok(Recovered {
        adoptable: adoptable(conn)?,
        left_running: left_running(conn)?,
        keeping: keeping::sessions(conn)?,
        queued: queued(conn)?,
        states: states(conn)?,
        next_seq: log::next_seq(conn)?,
    })
}

/// The states for which something holds, as SQL lists them.
fn names(holds: impl Fn(SessionState) -> bool) -> String {
    let states = SessionState::ALL.into_iter().filter(|state| holds(*state));
    let names: Vec<String> = states.map(|state| format!("'{}'", state.code())).collect();
    names.join(", ")
}

/// The condition on a row whose backend another daemon may take over.
fn is_adoptable() -> String {
    let states = names(may_be_adopted);
    format!("running IS NOT NULL AND state IN ({states})")
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

/// A session with a message in flight was working, whatever its row had time to say.
fn put_one_at_rest(conn: &Connection, id: i64, now: WallTime) -> Result<(), Fault> {
    let in_flight = conn
        .prepare_cached(
            "UPDATE messages SET state = 'unknown', answer = ?2
             WHERE session = ?1 AND state = 'delivered'",
        )?
        .execute(params![id, IN_FLIGHT])?;
    let (state, launched, running): (String, bool, bool) = conn
        .prepare_cached(
            "SELECT state, incarnation > 0, running IS NOT NULL FROM sessions WHERE id = ?1",
        )?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let state = state_of(&state)?;
    if at_rest(state) && in_flight == 0 {
        return Ok(());
    }
    let was_working = matches!(state, SessionState::Working | SessionState::NeedsYou);
    let mid_turn = was_working || in_flight > 0;
    let state = if mid_turn {
        SessionState::Interrupted
    } else if launched || running {
        SessionState::Released
    } else {
        SessionState::New
    };
    let end = (mid_turn || running)
        .then(|| json(&ended(mid_turn, now)))
        .transpose()?;
    conn.prepare_cached(
        "UPDATE sessions SET state = ?2, state_since = ?3, end = coalesce(?4, end) WHERE id = ?1",
    )?
    .execute(params![id, state.code(), number(now.0), end])?;
    Ok(())
}

fn ended(mid_turn: bool, at: WallTime) -> EndReport {
    EndReport {
        mid_turn,
        ..EndReport::new(Reason::DaemonShutdown, Who::Daemon, at)
    }
}

/// Sessions whose backend may be taken over, with their messages in flight.
fn adoptable(conn: &Connection) -> rusqlite::Result<Vec<(SessionId, Vec<MessageId>)>> {
    let condition = is_adoptable();
    let ids = conn
        .prepare(&format!(
            "SELECT id FROM sessions WHERE {condition} ORDER BY id"
        ))?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    let mut delivered = conn.prepare(
        "SELECT id FROM messages WHERE session = ?1 AND state = 'delivered' ORDER BY id",
    )?;
    ids.into_iter()
        .map(|id| {
            let messages = delivered.query_map([id], |row| Ok(MessageId(unsigned(row.get(0)?))))?;
            Ok((session_id(id), messages.collect::<rusqlite::Result<_>>()?))
        })
        .collect()
}

/// The other records of processes that may still be running.
fn left_running(conn: &Connection) -> Result<Vec<(SessionId, Running)>, Fault> {
    let condition = is_adoptable();
    let records = conn
        .prepare(&format!(
            "SELECT id, running FROM sessions
             WHERE running IS NOT NULL AND NOT ({condition}) ORDER BY id"
        ))?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(i64, String)>>>()?;
    let left = records.into_iter();
    left.map(|(id, record)| Ok((session_id(id), running_of(&record)?)))
        .collect()
}

/// A record of processes that cannot be trusted is dropped from its row, which says so, because no
/// process may be signalled on its word.
fn drop_unreadable(conn: &Connection, now: WallTime) -> Result<(), Fault> {
    let records = conn
        .prepare("SELECT id, running FROM sessions WHERE running IS NOT NULL")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(i64, String)>>>()?;
    for (id, record) in records {
        if running_of(&record).is_err() {
            put_one_at_rest(conn, id, now)?;
            drop_record(conn, id)?;
        }
    }
    Ok(())
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
