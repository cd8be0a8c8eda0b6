//! `task hook`: tells what a hook of Claude Code reports.
//!
//! Fed by Claude Code, which writes one JSON object to stdin. A sub-agent is told of from its start
//! to its stop. At the end of a turn Claude lists all background work there is, which replaces what
//! hooks told before, so that an end nobody heard of heals. Invariants: a hook never disturbs its
//! agent, so whatever goes wrong is said on stderr and the code is 0; outside of an agent that
//! Drowse runs it does nothing.

use std::collections::BTreeMap;
use std::io::Read;

use drowse_client::ClientError;
use drowse_messages::NewTask;
use serde::Deserialize;

use super::console::Console;
use super::failure::Failure;
use super::kit::{Inside, Way};
use crate::chain::chain;
use crate::exit::Exit;

/// 16 MiB: a hook repeats the agent's last message, and there may be a long one.
const REPORT_BYTES_MAX: u64 = 16 << 20;

/// 200 and 40 characters: what the daemon takes.
const TEXT_CHARS_MAX: usize = 200;
const KIND_CHARS_MAX: usize = 40;

/// By this name tasks that hooks told of are known again.
const OWNER: &str = "hooks of claude";

/// What a hook says, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Report {
    hook_event_name: String,
    agent_id: Option<String>,
    agent_type: Option<String>,
    background_tasks: Option<Vec<Background>>,
}

/// Work that goes on after a turn.
#[derive(Debug, Deserialize)]
struct Background {
    id: String,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    description: String,
}

/// What is to be told.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Start(NewTask),
    End(String),
    /// All tasks there are.
    Replace(Vec<NewTask>),
}

pub(super) async fn run(inside: &Inside, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let Some(way) = inside.own_way() else {
        return Ok(Exit::Ok);
    };
    let mut text = String::new();
    let read = std::io::stdin()
        .lock()
        .take(REPORT_BYTES_MAX)
        .read_to_string(&mut text);
    let change = match read.map(|_| serde_json::from_str(&text)) {
        Ok(Ok(report)) => change(report),
        Ok(Err(error)) => return excuse(&error, console),
        Err(error) => return excuse(&error, console),
    };
    match change {
        Some(change) => match tell(&way, change).await {
            Ok(()) => Ok(Exit::Ok),
            Err(error) => excuse(&error, console),
        },
        None => Ok(Exit::Ok),
    }
}

fn excuse(error: &dyn std::error::Error, console: &mut Console<'_>) -> Result<Exit, Failure> {
    console.tell(&format!("the hook told nothing: {}", chain(error)))?;
    Ok(Exit::Ok)
}

/// What a report means; `None`: nothing.
fn change(report: Report) -> Option<Change> {
    match report.hook_event_name.as_str() {
        "SubagentStart" => {
            let kind = "subagent".to_owned();
            let description = report.agent_type.unwrap_or_default();
            let id = report.agent_id?;
            let agent = Background {
                id,
                kind,
                description,
            };
            Some(Change::Start(task(agent)))
        }
        "SubagentStop" => Some(Change::End(name(&report.agent_id?))),
        "Stop" => {
            let tasks = report.background_tasks?.into_iter();
            Some(Change::Replace(tasks.map(task).collect()))
        }
        _ => None,
    }
}

fn name(id: &str) -> String {
    line(id, TEXT_CHARS_MAX)
}

fn task(background: Background) -> NewTask {
    let Background {
        id,
        kind,
        description,
    } = background;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    NewTask {
        name: name(&id),
        // What watches for ever would keep its session for ever.
        ambient: kind == "monitor",
        kind: some(line(&kind, KIND_CHARS_MAX)),
        why: some(line(&description, TEXT_CHARS_MAX)),
        owner: Some(OWNER.to_owned()),
    }
}

/// The text on one line, as long as the daemon takes it.
fn line(text: &str, chars_max: usize) -> String {
    let plain = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c });
    plain.take(chars_max).collect()
}

async fn tell(way: &Way, change: Change) -> Result<(), ClientError> {
    let Way { client, session } = way;
    match change {
        Change::Start(new) => client.start_task(session, &new).await,
        Change::End(name) => client.end_task(session, &name).await,
        Change::Replace(tasks) => {
            let known = client.tasks(session).await?.into_iter();
            let tasks: BTreeMap<&str, &NewTask> =
                tasks.iter().map(|task| (&*task.name, task)).collect();
            for known in known.filter(|known| known.owner == OWNER) {
                if !tasks.contains_key(&*known.task.id) {
                    client.end_task(session, &known.task.id).await?;
                }
            }
            for task in tasks.into_values() {
                client.start_task(session, task).await?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(report: &str) -> Option<Change> {
        change(serde_json::from_str(report).unwrap())
    }

    fn told(name: &str, kind: &str, why: &str) -> NewTask {
        NewTask {
            name: name.to_owned(),
            kind: Some(kind.to_owned()),
            why: Some(why.to_owned()),
            ambient: kind == "monitor",
            owner: Some(OWNER.to_owned()),
        }
    }

    /// Behaviour 30: as Claude Code 2.1.332 words them, and with what newer ones may add.
    #[test]
    fn reports_of_hooks_are_understood() {
        let start = r#"{"hook_event_name":"SubagentStart","session_id":"s","new":[1],
                        "agent_id":"a1","agent_type":"Explore"}"#;
        assert_eq!(
            understood(start),
            Some(Change::Start(told("a1", "subagent", "Explore")))
        );
        let stop = r#"{"hook_event_name":"SubagentStop","agent_id":"a1","agent_type":"Explore",
                       "background_tasks":[]}"#;
        assert_eq!(understood(stop), Some(Change::End("a1".to_owned())));
        let end = r#"{"hook_event_name":"Stop","stop_hook_active":false,"background_tasks":[
            {"id":"b1","type":"shell","status":"running","description":"npm\ntest","command":"x"},
            {"id":"m1","type":"monitor","status":"running","description":"watches","server":"s"}]}"#;
        assert_eq!(
            understood(end),
            Some(Change::Replace(vec![
                told("b1", "shell", "npm test"),
                told("m1", "monitor", "watches"),
            ]))
        );
    }

    #[test]
    fn other_reports_mean_nothing() {
        for report in [
            r#"{"hook_event_name":"PreToolUse","tool_name":"Bash"}"#,
            r#"{"hook_event_name":"SubagentStart"}"#,
            r#"{"hook_event_name":"Stop"}"#,
        ] {
            assert_eq!(understood(report), None, "{report}");
        }
    }
}
