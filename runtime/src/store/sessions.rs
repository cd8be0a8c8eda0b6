//! Sessions: opened, loaded, found, listed, kept up to date, forgotten.
//!
//! Invariant: a row is made by `open` alone; whatever comes late for a forgotten session finds no
//! row and writes nothing.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use drowse_actors::ports::{Page, SavedPage, StoreError};
use drowse_messages::{
    Ages, Hosted, Incarnation, Name, Profile, Progress, Recipe, Running, SavedSession, SessionId,
    SessionState, WallTime,
};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use serde::{Deserialize, Serialize};

use super::inbox;
use super::seal::{Seal, Secrets};
use super::sql::{Fault, from_json, json, key_of, number, session_id, unsigned};

/// 1,000 sessions on one page: about 1 MB.
const PAGE_MAX: usize = 1_000;

/// 4 characters: a shorter beginning of an id is a slip of the finger.
const PREFIX_CHARS_MIN: usize = 4;

/// 8 candidates are enough to see what to type instead.
const CANDIDATES_MAX: usize = 8;

const COLUMNS: &str = "id, name, agent, protocol, cwd, limits, created, state, incarnation, \
                       running, conversation, end, last_error, state_since, last_active, keeping, \
                       hosted, outcome";

/// Writes a new session down, its secrets sealed.
pub(super) fn open(conn: &Connection, seal: &Seal, profile: &Profile) -> Result<(), Fault> {
    let id = key_of(profile.id);
    let taken: bool = conn
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM sessions WHERE name = ?1)")?
        .query_row([&profile.name], |row| row.get(0))?;
    if taken {
        return Err(StoreError::NameTaken.into());
    }
    let recipe = &profile.recipe;
    let sealed = seal.seal(profile.id, &secrets_of(recipe))?;
    conn.prepare_cached(
        "INSERT INTO sessions (id, name, agent, protocol, cwd, limits, created, state,
                               incarnation, state_since, last_active)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?7, ?7)",
    )?
    .execute(params![
        id,
        profile.name,
        recipe.agent.as_str(),
        recipe.protocol.as_str(),
        recipe.cwd.as_os_str().as_bytes(),
        json(&profile.limits)?,
        number(profile.created.0),
        SessionState::New.code(),
    ])?;
    conn.prepare_cached("INSERT INTO recipes (session, sealed) VALUES (?1, ?2)")?
        .execute(params![id, sealed])?;
    Ok(())
}

fn secrets_of(recipe: &Recipe) -> Secrets {
    Secrets {
        argv: recipe.argv.clone(),
        env: recipe.env.clone(),
    }
}

/// Seals another recipe's secrets in the place of those a session had.
pub(super) fn reseal(
    conn: &Connection,
    seal: &Seal,
    id: SessionId,
    recipe: &Recipe,
) -> Result<(), Fault> {
    let sealed = seal.seal(id, &secrets_of(recipe))?;
    let changed = conn
        .prepare_cached("UPDATE recipes SET sealed = ?2 WHERE session = ?1")?
        .execute(params![key_of(id), sealed])?;
    match changed {
        0 => Err(StoreError::NotFound.into()),
        _ => Ok(()),
    }
}

/// Reads one whole, its secrets opened.
pub(super) fn load(conn: &Connection, seal: &Seal, id: SessionId) -> Result<SavedSession, Fault> {
    let mut saved = conn
        .prepare_cached(&format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1"))?
        .query_row([key_of(id)], columns)
        .optional()?
        .ok_or(StoreError::NotFound)?
        .into_session(conn)?;
    let sealed: Vec<u8> = conn
        .prepare_cached("SELECT sealed FROM recipes WHERE session = ?1")?
        .query_row([key_of(id)], |row| row.get(0))?;
    let secrets = seal.open(id, &sealed)?;
    saved.profile.recipe.argv = secrets.argv;
    saved.profile.recipe.env = secrets.env;
    Ok(saved)
}

/// Finds one: by its whole id, by its name, by the beginning of its id.
pub(super) fn resolve(conn: &Connection, text: &str) -> Result<SessionId, Fault> {
    let exact = text.parse().map_or(-1, key_of);
    let found = conn
        .prepare_cached(
            "SELECT id FROM sessions WHERE id = ?1 OR name = ?2 ORDER BY id = ?1 DESC LIMIT 1",
        )?
        .query_row(params![exact, text], |row| row.get(0))
        .optional()?;
    if let Some(found) = found {
        return Ok(session_id(found));
    }
    let Some((first, last)) = range_of(text) else {
        return Err(StoreError::NotFound.into());
    };
    let fitting = conn
        .prepare_cached(
            "SELECT id, name FROM sessions WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3",
        )?
        .query_map(params![first, last, number(CANDIDATES_MAX as u64)], |row| {
            Ok((session_id(row.get(0)?), row.get(1)?))
        })?
        .collect::<rusqlite::Result<Vec<(SessionId, String)>>>()?;
    match fitting.as_slice() {
        [] => Err(StoreError::NotFound.into()),
        [(only, _)] => Ok(*only),
        several => Err(StoreError::Ambiguous(several.iter().map(candidate).collect()).into()),
    }
}

fn candidate((id, name): &(SessionId, String)) -> String {
    let id = id.to_string();
    if *name == id {
        id
    } else {
        format!("{id} ({name})")
    }
}

/// The ids that begin with `text`: ids are numbers written in base 32, so they are a range.
fn range_of(text: &str) -> Option<(i64, i64)> {
    let open = SessionId::from_random(0)
        .to_string()
        .len()
        .checked_sub(text.len())?;
    if text.len() < PREFIX_CHARS_MIN {
        return None;
    }
    let end = |digit: &str| {
        format!("{text}{}", digit.repeat(open))
            .parse()
            .ok()
            .map(key_of)
    };
    Some((end("0")?, end("z")?))
}

/// Lists, most recently used first. Recipes come without arguments and environment: nobody who
/// lists needs them, and they stay sealed.
pub(super) fn list(conn: &Connection, page: &Page) -> Result<SavedPage, Fault> {
    let mut terms = vec!["1"];
    let mut values = Vec::new();
    if let Some(state) = page.state {
        terms.push("state = ?");
        values.push(Value::from(state.code().to_owned()));
    }
    if let Some(agent) = &page.agent {
        terms.push("agent = ?");
        values.push(Value::from(agent.as_str().to_owned()));
    }
    let total: i64 = conn
        .prepare_cached(&format!(
            "SELECT coalesce(sum(sessions), 0) FROM totals WHERE {}",
            terms.join(" AND ")
        ))?
        .query_row(params_from_iter(&values), |row| row.get(0))?;
    if let Some(cursor) = &page.after {
        let (last_active, id) = read_cursor(cursor)?;
        // The first term is the one an index can start at.
        terms.push("last_active <= ? AND (last_active < ? OR id > ?)");
        values.extend([last_active, last_active, id].map(Value::from));
    }
    let limit = page.limit.min(PAGE_MAX);
    values.push(Value::from(number(limit as u64 + 1)));
    let mut rows = conn
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM sessions WHERE {} ORDER BY last_active DESC, id LIMIT ?",
            terms.join(" AND ")
        ))?
        .query_map(params_from_iter(&values), columns)?
        .collect::<rusqlite::Result<Vec<Columns>>>()?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows
        .last()
        .filter(|_| more)
        .map(|row| format!("{}-{}", row.last_active, row.id()));
    let sessions = rows
        .into_iter()
        .filter_map(|row| readable(row, conn))
        .collect();
    Ok(SavedPage {
        sessions,
        total: unsigned(total),
        next,
    })
}

/// One unreadable row must not hide all the others; `load` says what is wrong with it.
fn readable(row: Columns, conn: &Connection) -> Option<SavedSession> {
    let id = row.id();
    row.into_session(conn)
        .inspect_err(|fault| tracing::warn!(session = %id, ?fault, "left out of a listing"))
        .ok()
}

/// A cursor is the last row of its page: what it was sorted by, and its id.
fn read_cursor(cursor: &str) -> Result<(i64, i64), StoreError> {
    cursor
        .split_once('-')
        .and_then(|(last_active, id)| Some((last_active.parse().ok()?, key_of(id.parse().ok()?))))
        .ok_or_else(|| {
            let shown: String = cursor.chars().take(80).collect();
            StoreError::Invalid(format!("{shown:?} is not a cursor of an earlier page"))
        })
}

/// Writes progress down; nothing when the session is forgotten.
pub(super) fn save(
    conn: &Connection,
    id: SessionId,
    progress: &Progress,
    now: WallTime,
) -> Result<(), Fault> {
    let record = |running: &Running| Record {
        running: running.clone(),
        ages: progress.ages.clone(),
    };
    let running = progress.running.as_ref().map(record);
    let running = running.as_ref().map(json).transpose()?;
    let conversation = progress.conversation.as_ref().map(json).transpose()?;
    let end = progress.end.as_ref().map(json).transpose()?;
    let outcome = progress.outcome.as_ref().map(json).transpose()?;
    let keeping = Some(&progress.keeping).filter(|keeping| !keeping.is_empty());
    let keeping = keeping.map(json).transpose()?;
    conn.prepare_cached(
        "UPDATE sessions
         SET state_since = iif(state = ?2, state_since, ?8), last_active = ?8, state = ?2,
             incarnation = ?3, running = ?4, conversation = ?5, end = ?6, last_error = ?7,
             keeping = ?9, hosted = ?10, outcome = ?11
         WHERE id = ?1",
    )?
    .execute(params![
        key_of(id),
        progress.state.code(),
        progress.incarnation.0,
        running,
        conversation,
        end,
        progress.last_error,
        number(now.0),
        keeping,
        hosted_number(progress.hosted),
        outcome,
    ])?;
    Ok(())
}

/// Forgets a session, its secrets, its messages and its events.
pub(super) fn forget(conn: &Connection, id: SessionId) -> Result<(), Fault> {
    conn.prepare_cached("DELETE FROM sessions WHERE id = ?1")?
        .execute([key_of(id)])?;
    conn.prepare_cached("DELETE FROM events WHERE session = ?1")?
        .execute([key_of(id)])?;
    Ok(())
}

/// How it stands in the table; a released form, so a number never changes its meaning.
const fn hosted_number(hosted: Hosted) -> i64 {
    match hosted {
        Hosted::Never => 0,
        Hosted::Now => 1,
        Hosted::Formerly => 2,
    }
}

fn hosted_of(number: i64) -> Result<Hosted, Fault> {
    [Hosted::Never, Hosted::Now, Hosted::Formerly]
        .into_iter()
        .find(|hosted| hosted_number(*hosted) == number)
        .ok_or_else(|| StoreError::Failed(format!("column \"hosted\" holds {number}")).into())
}

/// The state with this wire name.
pub(super) fn state_of(code: &str) -> Result<SessionState, Fault> {
    SessionState::ALL
        .into_iter()
        .find(|state| state.code() == code)
        .ok_or_else(|| StoreError::Failed(format!("{code:?} is not a state")).into())
}

/// The record of a live backend, as its column has it: who it is, and since when things are so with
/// it. It stands and falls as one.
#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    running: Running,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ages: Option<Ages>,
}

/// Reads a record of processes back. One that names a process nobody may signal (D12) is as
/// unreadable as one that is not JSON.
pub(super) fn running_of(text: &str) -> Result<Running, Fault> {
    Ok(record_of(text)?.running)
}

fn record_of(text: &str) -> Result<Record, Fault> {
    let record: Record = from_json("running", text)?;
    let running = &record.running;
    for process in [running.keeper.process, running.agent.process] {
        if process.pid() <= 1 {
            let detail = format!("column \"running\" names the process {}", process.pid());
            return Err(StoreError::Failed(detail).into());
        }
    }
    Ok(record)
}

/// A row as it stands in the table.
struct Columns {
    id: i64,
    name: String,
    agent: String,
    protocol: String,
    cwd: Vec<u8>,
    limits: String,
    created: i64,
    state: String,
    incarnation: u32,
    running: Option<String>,
    conversation: Option<String>,
    end: Option<String>,
    last_error: Option<String>,
    state_since: i64,
    last_active: i64,
    keeping: Option<String>,
    hosted: i64,
    outcome: Option<String>,
}

fn columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    Ok(Columns {
        id: row.get(0)?,
        name: row.get(1)?,
        agent: row.get(2)?,
        protocol: row.get(3)?,
        cwd: row.get(4)?,
        limits: row.get(5)?,
        created: row.get(6)?,
        state: row.get(7)?,
        incarnation: row.get(8)?,
        running: row.get(9)?,
        conversation: row.get(10)?,
        end: row.get(11)?,
        last_error: row.get(12)?,
        state_since: row.get(13)?,
        last_active: row.get(14)?,
        keeping: row.get(15)?,
        hosted: row.get(16)?,
        outcome: row.get(17)?,
    })
}

impl Columns {
    fn id(&self) -> SessionId {
        session_id(self.id)
    }

    /// The session without its secrets.
    fn into_session(self, conn: &Connection) -> Result<SavedSession, Fault> {
        let recipe = Recipe {
            agent: name_of("agent", &self.agent)?,
            protocol: name_of("protocol", &self.protocol)?,
            argv: Vec::new(),
            cwd: PathBuf::from(OsString::from_vec(self.cwd)),
            env: std::collections::BTreeMap::new(),
        };
        let record = self.running.as_deref().map(record_of).transpose()?;
        let (running, ages) = record.map(|it| (it.running, it.ages)).unzip();
        let progress = Progress {
            state: state_of(&self.state)?,
            incarnation: Incarnation(self.incarnation),
            running,
            conversation: optional("conversation", self.conversation.as_deref())?,
            end: optional("end", self.end.as_deref())?,
            last_error: self.last_error,
            keeping: optional("keeping", self.keeping.as_deref())?.unwrap_or_default(),
            hosted: hosted_of(self.hosted)?,
            outcome: optional("outcome", self.outcome.as_deref())?,
            ages: ages.flatten(),
        };
        let profile = Profile {
            id: session_id(self.id),
            name: self.name,
            recipe,
            limits: from_json("limits", &self.limits)?,
            created: WallTime(unsigned(self.created)),
        };
        Ok(SavedSession {
            profile,
            progress,
            queued: inbox::queued(conn, self.id)?,
            state_since: WallTime(unsigned(self.state_since)),
            last_active: WallTime(unsigned(self.last_active)),
        })
    }
}

fn optional<T: serde::de::DeserializeOwned>(
    column: &str,
    text: Option<&str>,
) -> Result<Option<T>, Fault> {
    text.map(|text| from_json(column, text)).transpose()
}

fn name_of(column: &str, text: &str) -> Result<Name, Fault> {
    text.parse().map_err(|error| {
        StoreError::Failed(format!("column {column:?} is unreadable: {error}")).into()
    })
}
