//! What sessions keep of their ended backends, as a daemon finds it at its start.
//!
//! Fed by `recover`. It ends nothing: a record that cannot be read is dropped, and what it spoke of
//! is swept up then, like everything else that is nobody's.

use drowse_messages::{Keeping, Kept, SessionId};
use rusqlite::Connection;

use super::sql::{Fault, from_json, session_id};

/// Every session that keeps something, and what.
pub(super) fn sessions(conn: &Connection) -> Result<Vec<(SessionId, Vec<Kept>)>, Fault> {
    let records = conn
        .prepare("SELECT id, keeping FROM sessions WHERE keeping IS NOT NULL ORDER BY id")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(i64, String)>>>()?;
    let mut all = Vec::new();
    for (id, record) in records {
        match from_json::<Keeping>("keeping", &record) {
            Ok(keeping) => all.push((session_id(id), keeping.kept)),
            Err(fault) => {
                tracing::warn!(session = %session_id(id), ?fault, "dropped what it kept");
                conn.prepare_cached("UPDATE sessions SET keeping = NULL WHERE id = ?1")?
                    .execute([id])?;
            }
        }
    }
    Ok(all)
}
