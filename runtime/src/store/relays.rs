//! What it takes to go on with the hosts of relayed sessions, sealed: their handshakes hold what
//! hosts give to agents.
//!
//! Fed by the backends' links, whenever a handshake changes. Invariant: what comes late for a
//! forgotten session finds no row and writes nothing.

use drowse_actors::ports::StoreError;
use drowse_messages::SessionId;
use rusqlite::{Connection, OptionalExtension, params};

use super::sql::{Fault, key_of};

/// Replaces what was kept; nothing when the session is forgotten.
pub(super) fn keep(conn: &Connection, id: SessionId, sealed: &[u8]) -> Result<(), Fault> {
    conn.prepare_cached(
        "INSERT INTO relays (session, sealed)
         SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ?1)
         ON CONFLICT DO UPDATE SET sealed = excluded.sealed",
    )?
    .execute(params![key_of(id), sealed])?;
    Ok(())
}

/// Reads it.
pub(super) fn read(conn: &Connection, id: SessionId) -> Result<Vec<u8>, Fault> {
    conn.prepare_cached("SELECT sealed FROM relays WHERE session = ?1")?
        .query_row([key_of(id)], |row| row.get(0))
        .optional()?
        .ok_or_else(|| StoreError::NotFound.into())
}
