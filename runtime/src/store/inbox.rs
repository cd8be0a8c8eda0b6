//! Messages to agents: accepted, delivered, settled.
//!
//! Invariant: `queued -> delivered -> final`, back to queued only by a settlement that says so; of
//! final states only `parked` is left, when a person asks for it; a key stands for one message of
//! its session for ever.

use drowse_actors::ports::StoreError;
use drowse_messages::{
    Accepted, MessageId, MessageQueued, MessageState, Priority, SavedMessage, SendMessage,
    SessionId, WallTime,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::sql::{Fault, key_of, number, session_id, unsigned};

/// 256 waiting messages per session: more is a program that does not read the answers.
pub(super) const INBOX_MAX: usize = 256;

/// 10 MiB per message: above what any agent takes in one prompt.
pub(super) const MESSAGE_BYTES_MAX: usize = 10 << 20;

/// 256 bytes per key: keys are ids, not texts, and stand in an index.
pub(super) const KEY_BYTES_MAX: usize = 256;

/// 4 MiB per answer kept; the agent itself has the whole conversation.
pub(super) const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What stands at the end of an answer that was cut.
pub(super) const ANSWER_CUT: &str = "\n[drowse kept the first 4 MiB of this answer]";

/// 1,000 messages in one answer, and no more than [`PAGE_BYTES_MAX`] of text in them.
const PAGE_MAX: usize = 1_000;

/// 16 MiB of text in one answer: one message of the largest kind always fits.
const PAGE_BYTES_MAX: usize = 16 << 20;

const COLUMNS: &str = "id, session, key, state, at, priority, text, answer";

/// Refuses, before it takes room in a queue, what can never be accepted.
pub(super) fn check(text: &str, key: Option<&str>) -> Result<(), StoreError> {
    if text.len() > MESSAGE_BYTES_MAX {
        return Err(StoreError::Invalid(format!(
            "the message has {} bytes, and at most {MESSAGE_BYTES_MAX} are accepted",
            text.len()
        )));
    }
    match key {
        Some(key) if key.is_empty() || key.len() > KEY_BYTES_MAX => {
            Err(StoreError::Invalid(format!(
                "the idempotency key has {} bytes instead of 1 to {KEY_BYTES_MAX}",
                key.len()
            )))
        }
        Some(_) | None => Ok(()),
    }
}

/// Accepts a message, or finds the one its key already stands for, whatever became of it.
pub(super) fn enqueue(
    conn: &Connection,
    session: SessionId,
    sent: &SendMessage,
    now: WallTime,
) -> Result<Accepted, Fault> {
    let (session, key) = (key_of(session), sent.key.as_deref());
    if let Some(known) = known(conn, session, key)? {
        return Ok(Accepted {
            message: known,
            duplicate: true,
        });
    }
    let touched = conn
        .prepare_cached("UPDATE sessions SET last_active = ?2 WHERE id = ?1")?
        .execute(params![session, number(now.0)])?;
    if touched == 0 {
        return Err(StoreError::NotFound.into());
    }
    let waiting: i64 = conn
        .prepare_cached("SELECT count(*) FROM messages WHERE session = ?1 AND state = 'queued'")?
        .query_row([session], |row| row.get(0))?;
    let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
    if waiting >= INBOX_MAX {
        return Err(StoreError::InboxFull(waiting).into());
    }
    conn.prepare_cached(
        "INSERT INTO messages (session, key, state, at, priority, text)
         VALUES (?1, ?2, 'queued', ?3, ?4, ?5)",
    )?
    .execute(params![
        session,
        key,
        number(now.0),
        sent.priority.code(),
        sent.text
    ])?;
    let message = MessageId(unsigned(conn.last_insert_rowid()));
    Ok(Accepted {
        message,
        duplicate: false,
    })
}

fn known(
    conn: &Connection,
    session: i64,
    key: Option<&str>,
) -> rusqlite::Result<Option<MessageId>> {
    let Some(key) = key else {
        return Ok(None);
    };
    conn.prepare_cached("SELECT id FROM messages WHERE session = ?1 AND key = ?2")?
        .query_row(params![session, key], |row| {
            Ok(MessageId(unsigned(row.get(0)?)))
        })
        .optional()
}

/// Marks a queued message delivered and returns its text.
pub(super) fn deliver(conn: &Connection, message: MessageId) -> Result<String, Fault> {
    let text = conn
        .prepare_cached(
            "UPDATE messages SET state = 'delivered' WHERE id = ?1 AND state = 'queued'
             RETURNING text",
        )?
        .query_row([number(message.0)], |row| row.get(0))
        .optional()?;
    if let Some(text) = text {
        return Ok(text);
    }
    let state = read(conn, message)?.state.code();
    let detail = format!("message {message} is {state}, and only a queued one can be delivered");
    Err(StoreError::Invalid(detail).into())
}

/// Writes down what became of a message. One that is final already, or gone, stays as it is.
pub(super) fn settle(
    conn: &Connection,
    message: MessageId,
    state: MessageState,
    text: &str,
) -> Result<(), Fault> {
    conn.prepare_cached(
        "UPDATE messages SET state = ?2, answer = ?3
         WHERE id = ?1 AND state IN ('queued', 'delivered')",
    )?
    .execute(params![number(message.0), state.code(), text])?;
    Ok(())
}

/// Queues a parked message of the session again.
pub(super) fn requeue(
    conn: &Connection,
    session: SessionId,
    message: MessageId,
) -> Result<MessageQueued, Fault> {
    let known = read(conn, message)?;
    if known.session != session {
        return Err(StoreError::NotFound.into());
    }
    let changed = conn
        .prepare_cached(
            "UPDATE messages SET state = 'queued', answer = '' WHERE id = ?1 AND state = 'parked'",
        )?
        .execute([number(message.0)])?;
    if changed == 0 {
        return Err(StoreError::NotParked(message, known.state).into());
    }
    let priority = known.priority;
    Ok(MessageQueued { message, priority })
}

/// Reads one message.
pub(super) fn read(conn: &Connection, message: MessageId) -> Result<SavedMessage, Fault> {
    conn.prepare_cached(&format!("SELECT {COLUMNS} FROM messages WHERE id = ?1"))?
        .query_row([number(message.0)], saved)
        .optional()?
        .ok_or_else(|| StoreError::NotFound.into())
}

/// The newest messages of a session, oldest first; as many as fit one answer.
pub(super) fn newest(
    conn: &Connection,
    session: SessionId,
    limit: usize,
) -> Result<Vec<SavedMessage>, Fault> {
    let limit = number(limit.min(PAGE_MAX) as u64);
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM messages WHERE session = ?1 ORDER BY id DESC LIMIT ?2"
    ))?;
    let mut page = Vec::new();
    let mut bytes = 0;
    for message in statement.query_map([key_of(session), limit], saved)? {
        let message = message?;
        bytes += message.text.len() + message.answer.len();
        if bytes > PAGE_BYTES_MAX && !page.is_empty() {
            break;
        }
        page.push(message);
    }
    page.reverse();
    Ok(page)
}

/// The messages of a session that wait, in order.
pub(super) fn queued(conn: &Connection, session: i64) -> rusqlite::Result<Vec<MessageQueued>> {
    conn.prepare_cached(
        "SELECT id, priority FROM messages WHERE session = ?1 AND state = 'queued' ORDER BY id",
    )?
    .query_map([session], |row| {
        let priority: String = row.get(1)?;
        Ok(MessageQueued {
            message: MessageId(unsigned(row.get(0)?)),
            priority: Priority::from_code(&priority).unwrap_or_default(),
        })
    })?
    .collect()
}

fn saved(row: &Row<'_>) -> rusqlite::Result<SavedMessage> {
    let (code, priority): (String, String) = (row.get(3)?, row.get(5)?);
    Ok(SavedMessage {
        id: MessageId(unsigned(row.get(0)?)),
        session: session_id(row.get(1)?),
        key: row.get(2)?,
        state: state_of(&code),
        at: WallTime(unsigned(row.get(4)?)),
        priority: Priority::from_code(&priority).unwrap_or_default(),
        text: row.get(6)?,
        answer: row.get(7)?,
    })
}

/// The state with this wire name. Only wire names are ever written; of anything else it is
/// unknown what became of the message, which is a state of its own.
fn state_of(code: &str) -> MessageState {
    MessageState::ALL
        .into_iter()
        .find(|state| state.code() == code)
        .unwrap_or(MessageState::Unknown)
}
