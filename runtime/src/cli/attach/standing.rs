//! How a session stands, in one short line. Pure.

use std::time::Duration;

use drowse_messages::{SessionReport, SessionState};

use crate::cli::render::{bytes, cut, long};

/// 60 characters of what holds a session, and 3 of them by name: a line of a terminal.
const HOLD_CHARS_MAX: usize = 60;
const HOLDS_NAMED_MAX: usize = 3;

/// What a session is and what holds it, without anything that changes with time alone: what is
/// the same need not be said again.
pub(super) fn standing(report: &SessionReport) -> String {
    let mut text = report.state.code().replace('_', " ");
    let Some(awake) = &report.awake else {
        let end = report.end.as_ref().filter(|_| {
            matches!(
                report.state,
                SessionState::Released | SessionState::Interrupted
            )
        });
        if let Some(end) = end {
            text.push_str(&format!(" ({})", end.reason));
        }
        if let Some(error) = report
            .last_error
            .as_ref()
            .filter(|_| report.state == SessionState::Failing)
        {
            text.push_str(&format!(": {}", cut(error, HOLD_CHARS_MAX)));
        }
        return text;
    };
    // That a turn holds a working session says nothing new.
    let shown = |code: &str| !(code == "turn" || code == "queued");
    let holds = awake
        .holds
        .iter()
        .filter(|hold| shown(hold.kind.code()))
        .map(|hold| format!("{}: {}", hold.kind.code(), cut(&hold.why, HOLD_CHARS_MAX)));
    let mut holds: Vec<String> = holds.collect();
    let more = holds.len().saturating_sub(HOLDS_NAMED_MAX);
    holds.truncate(HOLDS_NAMED_MAX);
    if more > 0 {
        holds.push(format!("{more} more"));
    }
    if !holds.is_empty() {
        text.push_str(&format!("; held by {}", holds.join(", ")));
    }
    text
}

/// What belongs to the status and changes with time alone.
pub(super) fn moving(report: &SessionReport) -> String {
    let mut text = String::new();
    let Some(awake) = &report.awake else {
        return text;
    };
    if let Some(ms) = awake.releases_in_ms {
        let left = long(Duration::from_millis(ms));
        text.push_str(&format!("; releases in {left}"));
    }
    if let Some(usage) = awake.usage.filter(|usage| usage.processes > 0) {
        text.push_str(&format!("; {}", bytes(usage.pss_bytes)));
    }
    if report.queued > 0 {
        text.push_str(&format!("; {} queued", report.queued));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::render::tests::{failing, released, resting, waiting};

    #[test]
    fn the_status_is_a_short_line() {
        let text = standing(&waiting());
        assert_eq!(text, "waiting; held by task: bash: npm test");
        assert_eq!(standing(&released()), "released (idle)");
        assert_eq!(standing(&failing()), "failing: exit 1: no such model");
        let text = standing(&resting()) + &moving(&resting());
        assert_eq!(text, "resting; releases in 12m 3s; 150 MB");
    }
}
