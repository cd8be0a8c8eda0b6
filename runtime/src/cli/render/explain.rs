//! Why a session is as it is, in sentences, as `explain` prints it.
//!
//! Invariant: everything the daemon gave as evidence is shown; nothing is concluded here that the
//! daemon did not conclude.

use std::fmt::Write as _;
use std::time::Duration;

use drowse_messages::{
    AwakeReport, EndReport, ProcReport, SessionReport, SessionState, TaskReport,
};

use super::session::{NOTICE_CHARS_MAX, end, hold, told_by};
use super::{View, bytes, cut, kept, long, moment, one_line, safe};

/// 500 characters of an error or a title: what fits under one's eyes at once.
const TEXT_CHARS_MAX: usize = 500;

/// 40 processes by name; of a larger tree the rest is counted.
const PROCESSES_MAX: usize = 40;

/// All that is known about why.
pub(crate) fn explain(session: &SessionReport, view: &View<'_>) -> String {
    let mut text = Text::default();
    let (since, at) = (view.since(session.state_since), moment(session.state_since));
    text.line(format_args!(
        "{} (agent {}) {}.",
        one_line(&session.name),
        session.agent,
        sentence(session)
    ));
    text.line(format_args!(
        "It has been {} for {}, since {at}.",
        session.state.code(),
        long(since)
    ));
    if let Some(pid) = session.host_pid {
        text.line(format_args!(
            "A host speaks to its agent through drowse run (process {pid}), which notices no release."
        ));
    }
    if let Some(next) = next(session) {
        text.line(format_args!("{next}"));
    }
    if let Some(awake) = &session.awake {
        explain_awake(&mut text, awake);
    } else if let Some(end) = &session.end {
        explain_end(&mut text, end);
    }
    if !session.kept.is_empty() {
        text.heading("It keeps");
        for report in &session.kept {
            let later = if report.outlives {
                ""
            } else {
                ", once its process ends"
            };
            text.line(format_args!("  {}{later}", kept(&report.kept, view)));
        }
    }
    if let Some(error) = &session.last_error {
        text.heading("Last error");
        text.line(format_args!("  {}", cut(error, TEXT_CHARS_MAX)));
    }
    let advice = advice(session);
    if !advice.is_empty() {
        text.heading("What to do");
        for line in advice {
            text.line(format_args!("  {line}"));
        }
    }
    text.0
}

/// What the state means.
const fn sentence(session: &SessionReport) -> &'static str {
    match session.state {
        SessionState::New => "has never been started; its first message starts it",
        SessionState::Starting => "is being started",
        SessionState::Working => "is working on a turn",
        SessionState::NeedsYou => "waits for an answer from you",
        SessionState::Waiting => "is at rest, and held by background work",
        SessionState::Resting => "is at rest",
        SessionState::Releasing => "is being released; messages wait and wake it afterwards",
        SessionState::Released => "is released: it has no process, and its next message wakes it",
        SessionState::Stopping => "is being ended",
        SessionState::Stopped => "was stopped; its next message wakes it",
        SessionState::Interrupted => {
            "was interrupted: its agent ended mid-turn, and what became of that turn is unknown"
        }
        SessionState::Failing => "could not be started; its messages are kept",
    }
}

/// What happens by itself, and when.
fn next(session: &SessionReport) -> Option<String> {
    let awake = session.awake.as_ref()?;
    let duration = |ms| long(Duration::from_millis(ms));
    if let Some(ms) = awake.releases_in_ms {
        return Some(format!(
            "It will be released in {} unless something happens.",
            duration(ms)
        ));
    }
    if !awake.holds.is_empty() {
        let until = awake
            .next_deadline_ms
            .map(|ms| format!(" Next deadline in {}.", duration(ms)));
        let until = until.unwrap_or_default();
        return Some(format!("It is not released while it is held.{until}"));
    }
    if awake.cannot_resume.is_some() {
        return Some("It is not released, because it could not be woken again.".to_owned());
    }
    if let Some(ms) = awake.next_deadline_ms {
        return Some(format!("Next deadline in {}.", duration(ms)));
    }
    (session.state == SessionState::Resting)
        .then(|| "It is not released by itself: no idle limit is set for it.".to_owned())
}

fn explain_awake(text: &mut Text, awake: &AwakeReport) {
    let duration = |ms| long(Duration::from_millis(ms));
    if let Some(why) = &awake.cannot_resume {
        text.heading("Cannot be resumed");
        text.line(format_args!("  {}", cut(why, TEXT_CHARS_MAX)));
    }
    if let Some(change) = &awake.account_change {
        text.heading("To be restarted");
        text.line(format_args!(
            "  with another environment, once it is at rest; asked for by {} {} ago",
            one_line(&change.by.to_string()),
            duration(change.age_ms)
        ));
    }
    if !awake.holds.is_empty() {
        text.heading("Held by");
        for report in &awake.holds {
            text.line(format_args!("  {}", hold(report)));
        }
    }
    if !awake.asks.is_empty() {
        text.heading("It asks");
        for ask in &awake.asks {
            let title = cut(&ask.title, TEXT_CHARS_MAX);
            text.line(format_args!("  {title} ({})", one_line(&ask.id)));
        }
    }
    if !awake.tasks.is_empty() {
        text.heading("Background tasks");
        for TaskReport { task, owner, .. } in &awake.tasks {
            let ambient = if task.ambient {
                "; ambient, does not hold"
            } else {
                ""
            };
            let what = cut(&task.description, TEXT_CHARS_MAX);
            let (kind, owner) = (one_line(&task.kind), told_by(owner));
            text.line(format_args!("  {what} ({kind}{owner}{ambient})"));
        }
    }
    text.heading("Evidence");
    for seen in &awake.evidence {
        let what = cut(&seen.what, TEXT_CHARS_MAX);
        text.line(format_args!("  {what}, {} ago", duration(seen.age_ms)));
    }
    if awake.evidence.is_empty() {
        text.line(format_args!("  none yet"));
    }
}

fn explain_end(text: &mut Text, report: &EndReport) {
    text.heading("Its last process ended");
    text.line(format_args!("  {}", end(report)));
    if let Some(status) = report.status {
        text.line(format_args!("  the agent itself: {status}"));
    }
    if report.mid_turn {
        text.line(format_args!(
            "  a turn was running: what became of it is unknown"
        ));
    }
    processes(text, "  ", &report.processes);
    if !report.reaped.is_empty() {
        text.heading("Left over by the agent, and ended");
        processes(text, "  ", &report.reaped);
    }
    if let Some(notice) = report.notice() {
        text.heading("Servers among them");
        text.line(format_args!("  {}", cut(&notice, NOTICE_CHARS_MAX)));
    }
    if !report.survivors.is_empty() {
        text.heading("Could not be ended");
        for left in &report.survivors {
            let why = cut(&left.why, TEXT_CHARS_MAX);
            text.line(format_args!(
                "  {} (state {}): {why}",
                process(&left.process),
                left.state
            ));
        }
    }
    if !report.stderr_tail.is_empty() {
        text.heading("What the agent wrote to stderr last");
        for line in safe(&report.stderr_tail).lines() {
            text.line(format_args!("  {line}"));
        }
    }
}

fn processes(text: &mut Text, indent: &str, all: &[ProcReport]) {
    for report in all.iter().take(PROCESSES_MAX) {
        text.line(format_args!("{indent}  {}", process(report)));
    }
    if all.len() > PROCESSES_MAX {
        text.line(format_args!(
            "{indent}  and {} more",
            all.len() - PROCESSES_MAX
        ));
    }
}

/// `4711 claude, 200 MB, TERM`: the last signal it was sent, and the reading of the tree that
/// found it unless that was the first.
fn process(report: &ProcReport) -> String {
    let mut text = format!("{} {}", report.identity.pid(), one_line(&report.name));
    let mut add = |part: &str| {
        text.push_str(", ");
        text.push_str(part);
    };
    // Measured by the snapshot alone.
    if report.scan == 0 {
        add(&bytes(report.pss_bytes));
    }
    match report.signal {
        None => add("no signal"),
        Some(libc::SIGTERM) => add("TERM"),
        Some(libc::SIGKILL) => add("KILL"),
        Some(other) => add(&format!("signal {other}")),
    }
    match report.scan {
        0 => {}
        1 => add("found when the tree was asked to end"),
        scan => add(&format!("found by the kill, scan {scan}")),
    }
    text
}

fn advice(session: &SessionReport) -> Vec<String> {
    let id = session.id;
    match session.state {
        SessionState::Failing => vec![
            format!("drowse wake {id}          tries again, and delivers what waits"),
            format!("drowse wake --fresh {id}  begins a new conversation if need be"),
        ],
        SessionState::Interrupted => vec![format!(
            "Look at its work, then say what to do: drowse send {id} \"...\""
        )],
        SessionState::NeedsYou => vec![format!(
            "Answer it where it was asked: the terminal of drowse send, or POST \
             /v1/sessions/{id}/asks/ASK"
        )],
        SessionState::New
        | SessionState::Starting
        | SessionState::Working
        | SessionState::Waiting
        | SessionState::Resting
        | SessionState::Releasing
        | SessionState::Released
        | SessionState::Stopping
        | SessionState::Stopped => Vec::new(),
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string cannot fail");
    }

    fn heading(&mut self, heading: &str) {
        self.line(format_args!("\n{heading}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::render::tests::{failing, released, resting, view, waiting};

    /// Behaviour 98: the time that remains.
    #[test]
    fn a_resting_session_says_when_it_is_released() {
        let expected = "\
fix-tests (agent claude) is at rest.
It has been resting for 1m, since 1970-01-01T00:16:40Z.
It will be released in 12m 3s unless something happens.

Evidence
  turn ended, 3m ago
";
        assert_eq!(explain(&resting(), &view()), expected);
    }

    /// Behaviour 96: what holds it, with owner and expiry.
    #[test]
    fn a_held_session_says_by_what() {
        let expected = "\
fix-tests (agent claude) is at rest, and held by background work.
It has been waiting for 1m, since 1970-01-01T00:16:40Z.
It is not released while it is held. Next deadline in 3h 56m.

Held by
  task: bash: npm test (claude, for 4m, ends in 3h 56m)

Background tasks
  npm test (local_bash)

Evidence
  turn ended, 3m ago
  last output, 3m 3s ago
";
        assert_eq!(explain(&waiting(), &view()), expected);
    }

    /// Behaviours 96 and 97: why, by whom, what ended and what it freed.
    #[test]
    fn a_released_session_says_why_and_what_ended() {
        let expected = "\
fix-tests (agent claude) is released: it has no process, and its next message wakes it.
It has been released for 1m, since 1970-01-01T00:16:40Z.

Its last process ended
  idle, by drowse: 3 processes ended, 212 MB freed
  the agent itself: exit 0
    4711 claude, 200 MB, no signal
    4720 node, 12 MB, TERM
    4733 late, KILL, found by the kill, scan 2
";
        assert_eq!(explain(&released(), &view()), expected);
    }

    #[test]
    fn a_failing_session_says_what_to_do() {
        let expected = "\
fix-tests (agent claude) could not be started; its messages are kept.
It has been failing for 1m, since 1970-01-01T00:16:40Z.

Last error
  exit 1: no such model

What to do
  drowse wake 000000000007          tries again, and delivers what waits
  drowse wake --fresh 000000000007  begins a new conversation if need be
";
        assert_eq!(explain(&failing(), &view()), expected);
    }
}
