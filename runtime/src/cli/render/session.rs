//! The facts of one session, as `show` prints them.

use std::time::Duration;

use drowse_messages::{AwakeReport, EndReport, HoldReport, SessionReport, TaskReport};

use super::{View, bytes, count, cut, kept, long, moment, one_line};

/// 200 characters of a description: two lines of a terminal.
const TEXT_CHARS_MAX: usize = 200;

/// 500 characters of a notice: several servers by name, and how to keep such.
pub(super) const NOTICE_CHARS_MAX: usize = 500;

/// All facts, one a line; a fact there is none of has no line.
pub(crate) fn show(session: &SessionReport, view: &View<'_>) -> String {
    let mut facts = Facts::default();
    let ago = |at| format!("{} ({} ago)", moment(at), long(view.since(at)));
    facts.add("id", session.id.to_string());
    facts.add("name", one_line(&session.name).into_owned());
    facts.add(
        "agent",
        format!("{} (protocol {})", session.agent, session.protocol),
    );
    match session.host_pid {
        Some(pid) => facts.add("host", format!("relayed by drowse run, process {pid}")),
        None if session.relayed => facts.add("host", "none any more".to_owned()),
        None => {}
    }
    facts.add("cwd", view.path(&session.cwd));
    let since = long(view.since(session.state_since));
    facts.add("state", format!("{}, for {since}", session.state.code()));
    facts.add("created", ago(session.created));
    facts.add("last used", ago(session.last_active));
    facts.add("launches", session.incarnation.0.to_string());
    facts.add("queued", session.queued.to_string());
    if let Some(conversation) = &session.conversation {
        let how = if conversation.resumable {
            "resumable"
        } else {
            "not resumable yet"
        };
        let id = match conversation.native_id.as_str() {
            "" => "none of its own".into(),
            id => one_line(id),
        };
        facts.add("conversation", format!("{id} ({how})"));
    }
    if let Some(awake) = &session.awake {
        show_awake(&mut facts, awake);
    }
    for report in &session.kept {
        let what = kept(&report.kept, view);
        facts.add(if report.outlives { "kept" } else { "to keep" }, what);
    }
    if let Some(report) = &session.end {
        facts.add("last end", end(report));
        if let Some(notice) = report.notice() {
            facts.add("notice", cut(&notice, NOTICE_CHARS_MAX));
        }
    }
    if let Some(outcome) = &session.outcome {
        let (by, at) = (outcome.by.to_string(), moment(outcome.at));
        let words = cut(&outcome.text, TEXT_CHARS_MAX);
        facts.add(
            "outcome",
            format!("{words} (said by {}, {at})", one_line(&by)),
        );
    }
    if let Some(error) = &session.last_error {
        facts.add("last error", cut(error, TEXT_CHARS_MAX));
    }
    facts.text()
}

fn show_awake(facts: &mut Facts, awake: &AwakeReport) {
    let duration = |ms| long(Duration::from_millis(ms));
    if let Some(ms) = awake.idle_ms {
        facts.add("idle", duration(ms));
    }
    if let Some(ms) = awake.releases_in_ms {
        facts.add("releases in", duration(ms));
    }
    for report in &awake.holds {
        facts.add("held by", hold(report));
    }
    if let Some(why) = &awake.cannot_resume {
        facts.add("cannot resume", cut(why, TEXT_CHARS_MAX));
    }
    for TaskReport { task, owner, .. } in &awake.tasks {
        let ambient = if task.ambient { ", ambient" } else { "" };
        let what = cut(&task.description, TEXT_CHARS_MAX);
        facts.add(
            "task",
            format!(
                "{what} ({}{}{ambient})",
                one_line(&task.kind),
                told_by(owner)
            ),
        );
    }
    for ask in &awake.asks {
        let what = cut(&ask.title, TEXT_CHARS_MAX);
        facts.add("asks", format!("{what} ({})", one_line(&ask.id)));
    }
    if let (Some(agent), Some(keeper)) = (awake.agent_pid, awake.keeper) {
        facts.add("process", format!("{agent} under keeper {}", keeper.pid()));
    }
    if let Some(usage) = awake.usage {
        facts.add("processes", usage.processes.to_string());
        facts.add("memory", bytes(usage.pss_bytes));
    }
}

/// Who told of a task, where that is known.
pub(super) fn told_by(owner: &str) -> String {
    if owner.is_empty() {
        String::new()
    } else {
        format!(", told by {}", one_line(owner))
    }
}

/// `task: bash: npm test (claude, for 4m, ends in 3h 56m)`.
pub(crate) fn hold(hold: &HoldReport) -> String {
    let age = long(Duration::from_millis(hold.age_ms));
    let ends = match hold.ends_in_ms {
        Some(ms) => format!("ends in {}", long(Duration::from_millis(ms))),
        None => "no end of its own".to_owned(),
    };
    let (kind, why) = (hold.kind.code(), cut(&hold.why, TEXT_CHARS_MAX));
    format!(
        "{kind}: {why} ({}, for {age}, {ends})",
        one_line(&hold.owner)
    )
}

/// `idle, by drowse: 3 processes ended, 212 MB freed`.
pub(crate) fn end(end: &EndReport) -> String {
    let processes = count(end.processes.len(), "process", "processes");
    let freed = bytes(end.released_bytes);
    let by = one_line(&end.by.to_string()).into_owned();
    format!("{}, by {by}: {processes} ended, {freed} freed", end.reason)
}

/// Lines of a name and a value.
#[derive(Default)]
struct Facts(Vec<(&'static str, String)>);

impl Facts {
    fn add(&mut self, name: &'static str, value: String) {
        self.0.push((name, value));
    }

    fn text(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
        let line = |(name, value): &(&str, String)| format!("{name:width$}{value}\n");
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::render::tests::{released, view, waiting};

    #[test]
    fn an_awake_session_shows_all_its_facts() {
        let expected = "\
id            000000000007
name          fix-tests
agent         claude (protocol claude)
cwd           ~/work
state         waiting, for 1m
created       1970-01-01T00:00:00Z (17m 40s ago)
last used     1970-01-01T00:13:40Z (4m ago)
launches      2
queued        0
conversation  abc (resumable)
idle          3m
held by       task: bash: npm test (claude, for 4m, ends in 3h 56m)
task          npm test (local_bash)
process       4711 under keeper 4710
processes     7
memory        212 MB
";
        assert_eq!(show(&waiting(), &view()), expected);
    }

    /// Behaviour 96: a released session says why, by whom and what it freed.
    #[test]
    fn a_released_session_shows_its_end() {
        let text = show(&released(), &view());
        let end = "last end      idle, by drowse: 3 processes ended, 212 MB freed\n";
        assert!(text.ends_with(end), "{text}");
    }
}
