//! The table of `ps`.

use std::time::Duration;

use drowse_messages::{AwakeReport, HoldReport, SessionReport};

use super::{View, bytes, one_line, short};

/// Design: what `ps` shows, in this order.
const HEADINGS: [&str; 10] = [
    "ID",
    "NAME",
    "AGENT",
    "STATE",
    "IDLE",
    "RELEASES-IN",
    "HOLDS",
    "PROCS",
    "MEM",
    "CWD",
];

/// What `holds` shows, in this order.
pub(crate) const HOLD_HEADINGS: [&str; 7] =
    ["SESSION", "HOLD", "KIND", "OWNER", "AGE", "ENDS-IN", "WHY"];

/// 12 characters of the last column are always left, however narrow the terminal.
const LAST_COLUMN_CHARS_MIN: usize = 12;

/// The sessions, one a line, under their headings.
pub(crate) fn list(sessions: &[SessionReport], view: &View<'_>) -> String {
    let rows: Vec<Vec<String>> = sessions.iter().map(|session| row(session, view)).collect();
    table(&HEADINGS, &rows, view.columns)
}

fn row(session: &SessionReport, view: &View<'_>) -> Vec<String> {
    let id = session.id.to_string();
    let name = if session.name == id {
        ""
    } else {
        &session.name
    };
    let awake = session.awake.as_ref();
    let usage = awake.and_then(|awake| awake.usage);
    let none = || "-".to_owned();
    vec![
        id.clone(),
        one_line(name).into_owned(),
        agent(session),
        session.state.code().to_owned(),
        idle(session, view),
        awake.map_or_else(none, releases_in),
        awake.map_or_else(none, holds),
        usage.map_or_else(none, |usage| usage.processes.to_string()),
        usage.map_or_else(none, |usage| bytes(usage.pss_bytes)),
        view.path(&session.cwd),
    ]
}

/// A host's agent is marked: nobody else can send it messages.
fn agent(session: &SessionReport) -> String {
    match session.host_pid {
        Some(_) => format!("{} (relayed)", session.agent),
        None => session.agent.to_string(),
    }
}

/// A hold as a row of `holds`.
pub(crate) fn hold_row(session: &str, hold: &HoldReport) -> Vec<String> {
    let duration = |ms| short(Duration::from_millis(ms));
    let none = || "-".to_owned();
    vec![
        one_line(session).into_owned(),
        hold.id.map_or_else(none, |id| id.to_string()),
        hold.kind.code().to_owned(),
        one_line(&hold.owner).into_owned(),
        duration(hold.age_ms),
        hold.ends_in_ms.map_or_else(none, duration),
        one_line(&hold.why).into_owned(),
    ]
}

/// For a session that sleeps: since it was used last.
fn idle(session: &SessionReport, view: &View<'_>) -> String {
    match &session.awake {
        None => short(view.since(session.last_active)),
        Some(awake) => awake
            .idle_ms
            .map_or_else(|| "-".to_owned(), |ms| short(Duration::from_millis(ms))),
    }
}

fn releases_in(awake: &AwakeReport) -> String {
    match awake.releases_in_ms {
        Some(ms) => short(Duration::from_millis(ms)),
        None if !awake.holds.is_empty() => "held".to_owned(),
        None => "-".to_owned(),
    }
}

/// Kinds, each once: `task,lease`.
fn holds(awake: &AwakeReport) -> String {
    let mut kinds: Vec<_> = awake.holds.iter().map(|hold| hold.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.is_empty() {
        return "-".to_owned();
    }
    let codes: Vec<_> = kinds
        .into_iter()
        .map(drowse_messages::HoldKind::code)
        .collect();
    codes.join(",")
}

/// Aligned columns two spaces apart. On a terminal the last column is cut at its beginning, so
/// that a row stays a line.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>], columns: Option<usize>) -> String {
    let last = headings.len().saturating_sub(1);
    let mut widths: Vec<usize> = headings.iter().map(|text| text.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let before: usize = widths.iter().take(last).map(|width| width + 2).sum();
    let room = columns.map(|columns| columns.saturating_sub(before).max(LAST_COLUMN_CHARS_MIN));
    let mut text = String::new();
    let headings: Vec<String> = headings.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        for (place, cell) in row.iter().enumerate() {
            if place == last {
                line.push_str(&tail(cell, room));
            } else {
                line.push_str(cell);
                let fill = widths[place] + 2 - cell.chars().count();
                line.extend(std::iter::repeat_n(' ', fill));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The end of a text that is too long: of a path, that is the part that tells.
fn tail(text: &str, room: Option<usize>) -> String {
    let chars = text.chars().count();
    match room {
        Some(room) if chars > room => {
            let kept: String = text.chars().skip(chars + 1 - room).collect();
            format!("…{kept}")
        }
        Some(_) | None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::render::tests::{failing, released, resting, view, waiting};

    /// Behaviours 96 and 98: state, what holds it and the time that remains, in one line each.
    #[test]
    fn the_list_is_aligned_and_whole_in_a_pipe() {
        let mut unnamed = failing();
        unnamed.name = unnamed.id.to_string();
        let text = list(&[waiting(), resting(), released(), unnamed], &view());
        let expected = "\
ID            NAME       AGENT   STATE     IDLE  RELEASES-IN  HOLDS  PROCS  MEM     CWD
000000000007  fix-tests  claude  waiting   3m    held         task   7      212 MB  ~/work
000000000007  fix-tests  claude  resting   3m    12m          -      1      150 MB  ~/work
000000000007  fix-tests  claude  released  4m    -            -      -      -       ~/work
000000000007             claude  failing   4m    -            -      -      -       ~/work
";
        assert_eq!(text, expected);
    }

    #[test]
    fn on_a_terminal_a_row_stays_a_line() {
        let rows = [vec!["a".to_owned(), "/a/very/long/path/indeed".to_owned()]];
        let text = table(&["X", "CWD"], &rows, Some(18));
        assert_eq!(text, "X  CWD\na  …ng/path/indeed\n");
        assert!(text.lines().all(|line| line.chars().count() <= 18));
        assert_eq!(table(&["X"], &[], Some(1)), "X\n");
    }
}
