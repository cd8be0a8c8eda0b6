//! Reports and events as text for people.
//!
//! Pure: whoever calls gives the time, the terminal's width and the home folder. Invariant: no
//! text of an agent's, a client's or the file system's brings control characters to a terminal.

use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use drowse_messages::WallTime;

mod amount;
mod event;
mod explain;
mod kept;
mod list;
mod orphans;
mod session;

pub(crate) use amount::{bytes, long, short};
pub(crate) use event::event_line;
pub(crate) use explain::explain;
pub(crate) use kept::{kept, kept_line, kept_table, process};
pub(crate) use list::{HOLD_HEADINGS, hold_row, list, table};
pub(crate) use orphans::orphans;
pub(crate) use session::{hold, show};

/// How and when somebody looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View<'a> {
    /// The time now.
    pub(crate) now: WallTime,
    /// What is shown as `~`.
    pub(crate) home: Option<&'a Path>,
    /// Characters in a line; `None`: no terminal, so nothing is cut.
    pub(crate) columns: Option<usize>,
}

impl View<'_> {
    /// How long ago that was.
    pub(crate) fn since(&self, then: WallTime) -> Duration {
        Duration::from_millis(self.now.0.saturating_sub(then.0))
    }

    /// A path as people write it.
    pub(crate) fn path(&self, path: &Path) -> String {
        let text = match self.home.map(|home| path.strip_prefix(home)) {
            Some(Ok(below)) if below.as_os_str().is_empty() => "~".to_owned(),
            Some(Ok(below)) => format!("~/{}", below.display()),
            Some(Err(_)) | None => path.display().to_string(),
        };
        one_line(&text).into_owned()
    }
}

/// A moment, to the second, in UTC.
pub(crate) fn moment(at: WallTime) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(at.0));
    // humantime refuses years after 9999; such a time is nonsense from outside, not a reason to
    // end.
    let in_range = time.filter(|_| at.0 < 253_402_300_800_000);
    in_range.map_or_else(
        || format!("{} ms", at.0),
        |time| humantime::format_rfc3339_seconds(time).to_string(),
    )
}

/// The text with anything that could move a cursor replaced; line ends and tabs stay.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    replace(text, |c| c.is_control() && c != '\n' && c != '\t')
}

/// The same, and all on one line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    replace(text, char::is_control)
}

fn replace(text: &str, bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.contains(&bad) {
        text.replace(bad, " ").into()
    } else {
        text.into()
    }
}

/// At most that many characters on one line, with an ellipsis for what was cut.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    let line = one_line(text.trim());
    if line.chars().count() <= chars_max {
        return line.into_owned();
    }
    let kept: String = line.chars().take(chars_max.saturating_sub(1)).collect();
    kept + "…"
}

/// `1 process`, `3 processes`.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
pub(crate) mod tests {
    use drowse_messages::SessionReport;

    use super::*;

    /// A session at rest, held by a task, as the daemon reports it.
    pub(crate) fn waiting() -> SessionReport {
        report(
            r#""state":"waiting","awake":{"idle_ms":180000,
            "holds":[{"kind":"task","why":"bash: npm test","owner":"claude","age_ms":240000,
                      "ends_in_ms":14160000}],
            "tasks":[{"id":"b1","kind":"local_bash","description":"npm test","ambient":false}],
            "agent_pid":4711,"keeper":{"pid":4710,"start_ticks":8},
            "evidence":[{"what":"turn ended","age_ms":180000},
                        {"what":"last output","age_ms":183000}],
            "usage":{"processes":7,"pss_bytes":212000000},"next_deadline_ms":14160000}"#,
        )
    }

    /// The same session without holds.
    pub(crate) fn resting() -> SessionReport {
        report(
            r#""state":"resting","awake":{"idle_ms":180000,"releases_in_ms":723000,
            "agent_pid":4711,"keeper":{"pid":4710,"start_ticks":8},
            "evidence":[{"what":"turn ended","age_ms":180000}],
            "usage":{"processes":1,"pss_bytes":150000000},"next_deadline_ms":723000}"#,
        )
    }

    /// The same session, released.
    pub(crate) fn released() -> SessionReport {
        report(
            r#""state":"released","end":{"reason":"idle","by":{"kind":"rule"},"mid_turn":false,
            "processes":[
              {"identity":{"pid":4711,"start_ticks":9},"parent":4710,"name":"claude",
               "pss_bytes":200000000},
              {"identity":{"pid":4720,"start_ticks":9},"parent":4711,"name":"node",
               "pss_bytes":12000000,"signal":15},
              {"identity":{"pid":4733,"start_ticks":11},"parent":4720,"name":"late",
               "pss_bytes":0,"signal":9,"scan":2}],
            "released_bytes":212000000,"reaped":[],"status":{"code":0},"survivors":[],
            "stderr_tail":""}"#,
        )
    }

    /// A session that could not be started.
    pub(crate) fn failing() -> SessionReport {
        report(r#""state":"failing","queued":2,"last_error":"exit 1: no such model""#)
    }

    fn report(rest: &str) -> SessionReport {
        let queued = if rest.contains("queued") {
            ""
        } else {
            r#""queued":0,"#
        };
        serde_json::from_str(&format!(
            r#"{{"id":"000000000007","name":"fix-tests","agent":"claude","protocol":"claude",
            "cwd":"/home/me/work","state_since":1000000,"created":0,"last_active":820000,
            "incarnation":2,{queued}
            "conversation":{{"native_id":"abc","path":null,"resumable":true}},{rest}}}"#
        ))
        .unwrap()
    }

    /// 1000 s after 1970, a minute after the sessions above changed.
    pub(crate) fn view() -> View<'static> {
        View {
            now: WallTime(1_060_000),
            home: Some(Path::new("/home/me")),
            columns: None,
        }
    }

    #[test]
    fn paths_are_shown_from_home() {
        assert_eq!(view().path(Path::new("/home/me")), "~");
        assert_eq!(view().path(Path::new("/home/me/a")), "~/a");
        assert_eq!(view().path(Path::new("/home/mean")), "/home/mean");
        assert_eq!(view().path(Path::new("/a\u{1b}[2J\nb")), "/a [2J b");
    }

    #[test]
    fn moments_are_utc_and_never_a_panic() {
        assert_eq!(moment(WallTime(1_060_000)), "1970-01-01T00:17:40Z");
        assert_eq!(moment(WallTime(u64::MAX)), format!("{} ms", u64::MAX));
    }

    #[test]
    fn long_texts_are_cut_by_characters() {
        assert_eq!(cut("grüße\nan alle", 20), "grüße an alle");
        assert_eq!(cut("grüße an alle", 6), "grüße…");
    }
}
