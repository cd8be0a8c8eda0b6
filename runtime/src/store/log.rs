//! The kept events: appended, read back in order, and dropped from the old end.
//!
//! Invariant: at most [`EVENTS_MAX`] numbers back, give or take one batch. Pieces of output and
//! what is made for one subscriber alone are never kept.

use drowse_messages::{Event, SessionEvent, SessionId, WallTime};
use rusqlite::{Connection, params};

use super::sql::{Fault, bounded, key_of, number, unsigned};

/// 100,000: weeks of one person's sessions, about 30 MB.
pub(super) const EVENTS_MAX: u64 = 100_000;

/// Old events are dropped once per this many new ones: seldom enough to cost nothing, often
/// enough that it takes milliseconds.
pub(super) const TRIM_EVERY: u64 = 1_000;

/// 16 KiB per kept event. Only answers and lists of processes come near; a whole answer is kept
/// with its message.
pub(super) const EVENT_BYTES_MAX: usize = 16 << 10;

/// 1,000 events in one answer, which makes 16 MB at the very most.
const PAGE_MAX: usize = 1_000;

/// An event as it is kept.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) seq: u64,
    pub(super) session: Option<SessionId>,
    pub(super) json: String,
}

/// The line to keep of an event; `None` for events that are not kept.
pub(super) fn line(mut event: Event) -> Option<Line> {
    if matches!(
        event.what,
        SessionEvent::Output { .. } | SessionEvent::Snapshot { .. } | SessionEvent::Gap { .. }
    ) {
        return None;
    }
    let mut json = written(&event);
    if json.len() > EVENT_BYTES_MAX {
        event.what = shortened(event.what, json.len());
        json = written(&event);
    }
    Some(Line {
        seq: event.seq,
        session: event.session,
        json,
    })
}

fn written(event: &Event) -> String {
    serde_json::to_string(event).expect("an event has text keys only, so it is always JSON")
}

fn shortened(what: SessionEvent, bytes: usize) -> SessionEvent {
    if let SessionEvent::MessageChanged {
        message,
        state,
        text,
    } = what
    {
        let note = "\n[the whole text is with the message]";
        // An escaped character takes up to six bytes, so this much of any text fits.
        let text = bounded(text, EVENT_BYTES_MAX / 8, note);
        return SessionEvent::MessageChanged {
            message,
            state,
            text,
        };
    }
    SessionEvent::Notice {
        text: format!("an event of {bytes} bytes was published here and is too long to be kept"),
    }
}

/// Appends an event.
pub(super) fn record(conn: &Connection, line: &Line) -> Result<(), Fault> {
    conn.prepare_cached("INSERT INTO events (seq, session, json) VALUES (?1, ?2, ?3)")?
        .execute(params![
            number(line.seq),
            line.session.map(key_of),
            line.json
        ])?;
    if line.seq.is_multiple_of(TRIM_EVERY) {
        conn.prepare_cached("DELETE FROM events WHERE seq <= ?1")?
            .execute([number(line.seq.saturating_sub(EVENTS_MAX))])?;
    }
    Ok(())
}

/// Kept events, oldest first: those behind `after`, or the newest. One that cannot be read is left
/// out; that some were dropped to make room is said by a gap in front.
pub(super) fn events(
    conn: &Connection,
    after: Option<u64>,
    limit: usize,
    session: Option<SessionId>,
) -> Result<Vec<Event>, Fault> {
    let of_session = if session.is_some() {
        "session = ?3"
    } else {
        "?3 IS NULL"
    };
    let order = if after.is_some() { "ASC" } else { "DESC" };
    let mut statement = conn.prepare_cached(&format!(
        "SELECT json FROM events WHERE {of_session} AND seq > ?1 ORDER BY seq {order} LIMIT ?2"
    ))?;
    let limit = number(limit.min(PAGE_MAX) as u64);
    let behind = number(after.unwrap_or(0));
    let lines = statement
        .query_map(params![behind, limit, session.map(key_of)], |row| {
            row.get::<_, String>(0)
        })?
        .collect::<rusqlite::Result<Vec<String>>>()?;
    let mut events: Vec<Event> = lines
        .iter()
        .filter_map(|json| serde_json::from_str(json).ok())
        .collect();
    match after {
        Some(after) => {
            if let Some(gap) = gap(conn, after, session)? {
                events.insert(0, gap);
            }
        }
        None => events.reverse(),
    }
    Ok(events)
}

/// What retention has dropped behind `after`.
fn gap(
    conn: &Connection,
    after: u64,
    session: Option<SessionId>,
) -> rusqlite::Result<Option<Event>> {
    let newest = next_seq(conn)? - 1;
    let dropped = (newest - newest % TRIM_EVERY).saturating_sub(EVENTS_MAX);
    if after >= dropped {
        return Ok(None);
    }
    let missed = session.is_none().then_some(dropped - after);
    let what = SessionEvent::Gap { missed };
    Ok(Some(Event {
        seq: dropped,
        at: WallTime::default(),
        session,
        what,
    }))
}

/// The number the next event gets: above every number there ever was, kept or not.
pub(super) fn next_seq(conn: &Connection) -> rusqlite::Result<u64> {
    let newest: i64 = conn.query_row(
        "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'",
        [],
        |row| row.get(0),
    )?;
    Ok(unsigned(newest) + 1)
}
