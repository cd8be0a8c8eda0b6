//! One event as one line.

use std::time::Duration;

use drowse_messages::{Event, HostEnd, ProcReport, SessionEvent, StatusReport};

use super::session::{NOTICE_CHARS_MAX, end};
use super::{count, cut, long, moment, one_line, process};

/// 160 characters of a text: with time and id before it, two lines of a terminal.
const TEXT_CHARS_MAX: usize = 160;

/// When, whom it concerns (unless all lines concern one session), and what.
pub(crate) fn event_line(event: &Event, with_session: bool) -> String {
    let (at, what) = (moment(event.at), what(&event.what));
    match event.session {
        Some(session) if with_session => format!("{at}  {session}  {what}"),
        None if with_session => format!("{at}  {:12}  {what}", "-"),
        Some(_) | None => format!("{at}  {what}"),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not of sessions and processes is of turns, in the next function"
)]
fn what(event: &SessionEvent) -> String {
    match event {
        SessionEvent::Snapshot { status } => snapshot(status),
        SessionEvent::Opened { report } => {
            format!("opened: {} ({})", one_line(&report.name), report.agent)
        }
        SessionEvent::StateChanged { from, to } => format!("{} -> {}", from.code(), to.code()),
        SessionEvent::Launched {
            incarnation,
            agent_pid,
        } => format!("launched {incarnation}: pid {agent_pid}"),
        SessionEvent::Ready {
            incarnation,
            resumed,
        } => {
            let how = if *resumed {
                "conversation resumed"
            } else {
                "new conversation"
            };
            format!("ready {incarnation}: {how}")
        }
        SessionEvent::StartFailed {
            incarnation,
            error,
            retry_in_ms,
        } => format!(
            "start {incarnation} failed: {}; {}",
            text(error),
            retry(*retry_in_ms)
        ),
        SessionEvent::Ending { reason, by } => {
            format!("ending: {reason}, by {}", one_line(&by.to_string()))
        }
        SessionEvent::Released { end: report } => format!("released: {}", end(report)),
        SessionEvent::ReleaseFailed { survivors } => {
            let left = count(survivors.len(), "process is", "processes are");
            let pids: Vec<String> = survivors
                .iter()
                .map(|left| left.process.identity.pid().to_string())
                .collect();
            format!("release failed: {left} left ({})", pids.join(", "))
        }
        SessionEvent::Notice { text: notice } => {
            format!("notice: {}", cut(notice, NOTICE_CHARS_MAX))
        }
        SessionEvent::HostAttached { pid } => format!("host there, through process {pid}"),
        SessionEvent::HostLost { pid } => format!("host lost: process {pid} is gone"),
        SessionEvent::HostEnded { pid, end } => {
            format!("host of process {pid} told: {}", told(end))
        }
        SessionEvent::Removed => "removed".to_owned(),
        SessionEvent::Draining => "the daemon is ending".to_owned(),
        SessionEvent::Gap { missed } => match missed {
            Some(missed) => format!("gap: {missed} events were lost here"),
            None => "gap: events were lost here".to_owned(),
        },
        other => turn(other),
    }
}

/// What a host was told.
fn told(end: &HostEnd) -> String {
    match end {
        HostEnd::Exited(Some(status)) => status.to_string(),
        HostEnd::Exited(None) => "its agent is gone".to_owned(),
        HostEnd::Ended => "it is over".to_owned(),
        HostEnd::Failed { error } => text(error),
        HostEnd::Shutdown => "the daemon ends".to_owned(),
    }
}

/// Events of messages, turns and holds.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest is of kept processes, in the next function"
)]
fn turn(event: &SessionEvent) -> String {
    let duration = |ms: &u64| long(Duration::from_millis(*ms));
    match event {
        SessionEvent::MessageQueued { message } => format!("message {message} queued"),
        SessionEvent::MessageChanged {
            message,
            state,
            text: answer,
        } => {
            let (state, colon) = (state.code(), if answer.is_empty() { "" } else { ": " });
            format!("message {message} {state}{colon}{}", text(answer))
        }
        SessionEvent::OutcomeRecorded { text: words, by } => match words {
            Some(words) => format!(
                "outcome recorded by {}: {}",
                text(&by.to_string()),
                text(words)
            ),
            None => format!("outcome taken back by {}", text(&by.to_string())),
        },
        SessionEvent::TurnStarted { message } => match message {
            Some(message) => format!("turn started by message {message}"),
            None => "turn started by the agent itself".to_owned(),
        },
        SessionEvent::Output { text: piece, .. } => format!("output: {}", text(piece)),
        SessionEvent::TurnEnded { error, .. } => match error {
            Some(error) => format!("turn failed: {}", text(error)),
            None => "turn ended".to_owned(),
        },
        SessionEvent::Asked { ask } => format!("asks: {} ({})", text(&ask.title), text(&ask.id)),
        SessionEvent::Settled { id, by } => {
            format!("settled: {} by {}", text(id), one_line(&by.to_string()))
        }
        SessionEvent::TasksChanged { tasks } => {
            let names: Vec<String> = tasks.iter().map(|task| text(&task.description)).collect();
            let what = count(tasks.len(), "task", "tasks");
            let colon = if names.is_empty() { "" } else { ": " };
            format!("{what} in the background{colon}{}", names.join(", "))
        }
        SessionEvent::HoldTaken {
            id,
            why,
            owner,
            ttl_ms,
        } => format!(
            "hold {id} taken: {} ({}, for {})",
            text(why),
            text(owner),
            duration(ttl_ms)
        ),
        SessionEvent::HoldLifted { id, expired } => {
            format!("hold {id} {}", if *expired { "expired" } else { "lifted" })
        }
        SessionEvent::ReleaseDeferred { held_by, pinned_ms } => {
            let held_by: Vec<String> = held_by.iter().map(|why| text(why)).collect();
            let pinned = duration(pinned_ms);
            format!(
                "release deferred: held by {}; pinned for {pinned}",
                held_by.join(", ")
            )
        }
        SessionEvent::LimitWarned { reason, in_ms } => {
            format!("will be ended in {}: {reason}", duration(in_ms))
        }
        other => kept(other),
    }
}

/// What outlived a process, and what did not.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest was in the functions above, or comes from a later version"
)]
fn kept(event: &SessionEvent) -> String {
    match event {
        SessionEvent::Woken {
            reason,
            by,
            ended,
            processes,
        } => {
            let (by, at) = (one_line(&by.to_string()).into_owned(), moment(*ended));
            format!(
                "woken after its end at {at}: {reason}, by {by}{}",
                processes_in_words(processes.iter())
            )
        }
        SessionEvent::KeepAsked { kept, by } => {
            let by = one_line(&by.to_string()).into_owned();
            format!("to be kept: {}, by {by}", process(&kept.process))
        }
        SessionEvent::Kept { processes } => {
            let processes = processes.iter().map(|kept| &kept.process);
            format!("kept{}", processes_in_words(processes))
        }
        SessionEvent::KeptEnded { processes, by } => {
            let by = one_line(&by.to_string()).into_owned();
            let processes = processes.iter().map(|kept| &kept.process);
            format!("kept no more, by {by}{}", processes_in_words(processes))
        }
        _ => "something this version does not know".to_owned(),
    }
}

/// 8 processes by name fill a line.
const PROCESSES_MAX: usize = 8;

fn processes_in_words<'a>(all: impl ExactSizeIterator<Item = &'a ProcReport>) -> String {
    let more = all.len().saturating_sub(PROCESSES_MAX);
    let mut words: Vec<String> = all.take(PROCESSES_MAX).map(process).collect();
    if more > 0 {
        words.push(format!("{more} more"));
    }
    let colon = if words.is_empty() { "" } else { "; " };
    format!("{colon}{}", words.join(", "))
}

fn text(text: &str) -> String {
    cut(text, TEXT_CHARS_MAX)
}

fn retry(retry_in_ms: Option<u64>) -> String {
    match retry_in_ms {
        Some(ms) => format!("next try in {}", long(Duration::from_millis(ms))),
        None => "no further try by itself".to_owned(),
    }
}

fn snapshot(status: &StatusReport) -> String {
    let sessions: u64 = status.states.iter().map(|count| count.sessions).sum();
    let draining = if status.draining { ", ending" } else { "" };
    format!(
        "drowse {} (pid {}, up {}{draining}): {sessions} sessions, {} awake",
        one_line(&status.version),
        status.pid,
        long(Duration::from_millis(status.uptime_ms)),
        status.backends
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rest: &str) -> String {
        let json = format!(r#"{{"seq":1,"at":1060000,"session":"000000000007",{rest}}}"#);
        let event: Event = serde_json::from_str(&json).unwrap();
        event_line(&event, false).split_off("1970-01-01T00:17:40Z  ".len())
    }

    /// Behaviour 97: what happened, in words, each on its line.
    #[test]
    fn events_read_as_sentences() {
        for (json, text) in [
            (
                r#""event":"state_changed","from":"resting","to":"releasing""#,
                "resting -> releasing",
            ),
            (
                r#""event":"launched","incarnation":2,"agent_pid":4711"#,
                "launched #2: pid 4711",
            ),
            (
                r#""event":"ready","incarnation":2,"resumed":true"#,
                "ready #2: conversation resumed",
            ),
            (
                r#""event":"start_failed","incarnation":3,"error":"exit 1","retry_in_ms":4000"#,
                "start #3 failed: exit 1; next try in 4s",
            ),
            (
                r#""event":"message_changed","message":3,"state":"answered","text":"a\nb""#,
                "message 3 answered: a b",
            ),
            (
                r#""event":"output","message":3,"text":"\u001b[2Jhi""#,
                "output:  [2Jhi",
            ),
            (
                r#""event":"release_deferred","held_by":["task: npm"],"pinned_ms":60000"#,
                "release deferred: held by task: npm; pinned for 1m",
            ),
            (
                r#""event":"limit_warned","reason":"task_hold_expired","in_ms":60000"#,
                "will be ended in 1m: task_hold_expired",
            ),
            (
                r#""event":"ending","reason":{"crashed":{"status":{"signal":9}}},
                   "by":{"kind":"outside"}"#,
                "ending: crashed (signal 9), by outside",
            ),
            (
                r#""event":"woken","reason":{"crashed":{"status":{"signal":9}}},
                   "by":{"kind":"outside"},"ended":1060000,
                   "processes":[{"identity":{"pid":7,"start_ticks":1},"parent":2,"name":"node",
                                 "pss_bytes":0,"listens":[3000]}]"#,
                "woken after its end at 1970-01-01T00:17:40Z: crashed (signal 9), by outside; \
                 node (pid 7, port 3000)",
            ),
            (
                r#""event":"kept_ended","by":{"kind":"rule"},
                   "processes":[{"process":{"identity":{"pid":7,"start_ticks":1},"parent":2,
                                            "name":"node","pss_bytes":0},
                                 "rule":"exe:node","since":0}]"#,
                "kept no more, by drowse; node (pid 7)",
            ),
            (
                r#""event":"hold_lifted","id":4,"expired":true"#,
                "hold 4 expired",
            ),
            (
                r#""event":"gap","missed":5"#,
                "gap: 5 events were lost here",
            ),
            (r#""event":"removed""#, "removed"),
        ] {
            assert_eq!(line(json), text);
        }
    }

    #[test]
    fn a_line_of_all_sessions_names_its_own() {
        let json = r#"{"seq":1,"at":0,"session":"000000000007","event":"removed"}"#;
        let event: Event = serde_json::from_str(json).unwrap();
        assert_eq!(
            event_line(&event, true),
            "1970-01-01T00:00:00Z  000000000007  removed"
        );
        let json = r#"{"seq":1,"at":0,"session":null,"event":"draining"}"#;
        let event: Event = serde_json::from_str(json).unwrap();
        let text = "1970-01-01T00:00:00Z  -             the daemon is ending";
        assert_eq!(event_line(&event, true), text);
    }
}
