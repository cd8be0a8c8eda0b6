//! What every statement of the store shares: one attempt at one call, faults told apart, numbers
//! and texts on their way in and out of a row.
//!
//! Invariant: an attempt that fails leaves no trace of itself in the transaction around it.

use drowse_actors::ports::StoreError;
use drowse_messages::SessionId;
use rusqlite::{Connection, ErrorCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a call was not carried out.
#[derive(Debug)]
pub(super) enum Fault {
    /// By a rule of the store; the answer is the call's own.
    Refused(StoreError),
    /// The database said so.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

/// Carries one call out inside a savepoint. The outer error means that the disk or the database
/// as a whole failed, with whatever else was in the transaction; the inner one is the call's own.
pub(super) fn attempt<T>(
    conn: &Connection,
    call: &mut dyn FnMut(&Connection) -> Result<T, Fault>,
) -> rusqlite::Result<Result<T, StoreError>> {
    conn.prepare_cached("SAVEPOINT call")?.execute([])?;
    let error = match call(conn) {
        Ok(value) => {
            conn.prepare_cached("RELEASE call")?.execute([])?;
            return Ok(Ok(value));
        }
        // Some faults (a full disk above all) end the whole transaction, not the statement.
        Err(Fault::Sql(error)) if is_of_the_disk(&error) || conn.is_autocommit() => {
            return Err(error);
        }
        Err(Fault::Sql(error)) => failed(&error),
        Err(Fault::Refused(error)) => error,
    };
    conn.execute_batch("ROLLBACK TO call; RELEASE call")?;
    Ok(Err(error))
}

/// Whether a fault concerns all calls alike. Everything is, but what one call can bring upon
/// itself.
fn is_of_the_disk(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code().is_some_and(|code| {
        !matches!(
            code,
            ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::TooBig
                | ErrorCode::ParameterOutOfRange
                | ErrorCode::ApiMisuse
                | ErrorCode::OperationInterrupted
        )
    })
}

/// What a caller is told of a database fault.
pub(super) fn failed(error: &rusqlite::Error) -> StoreError {
    StoreError::Failed(format!("the database of drowse says: {error}"))
}

/// A number on its way into a row. SQLite has no unsigned ones; nothing here comes near the end.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number on its way out.
pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// A session id on its way into a row: 60 bits, so it always fits.
pub(super) fn key_of(id: SessionId) -> i64 {
    number(id.as_u64())
}

/// A session id on its way out.
pub(super) fn session_id(value: i64) -> SessionId {
    SessionId::from_random(unsigned(value))
}

/// A value as it is kept in a column.
pub(super) fn json<T: Serialize>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::Failed(format!("cannot write it as JSON: {error}")).into())
}

/// Such a column read back.
pub(super) fn from_json<T: DeserializeOwned>(column: &str, text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| {
        StoreError::Failed(format!("column {column:?} is unreadable: {error}")).into()
    })
}

/// The front of a text that is longer than `max` bytes, with a note at its end. Cut between
/// characters; the note is not counted.
pub(super) fn bounded(mut text: String, max: usize, note: &str) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.push_str(note);
    }
    text
}
