//! What the mock model answers, decided by the newest directive a user wrote.
//!
//! | directive | answer |
//! |---|---|
//! | `MOCK:say TEXT` | `SAID TEXT (user turns seen: N)` |
//! | `MOCK:slow SECS` | a tick every 250 ms |
//! | `MOCK:bash CMD` / `MOCK:bg CMD` | a call of the shell tool, in the background |
//! | `MOCK:tool NAME {json}` | a call of that tool |
//! | `MOCK:status CODE` | that HTTP status |
//!
//! N counts the user messages with a directive. After a tool's result: `DONE after tool (…)`.
//! Fed by: the flattened conversation. Decides nothing about wire formats.
//! Invariant: the same conversation always gets the same answer.

use std::time::Duration;

use serde_json::{Value, json};

use super::conversation::{Item, Kind};

/// Names of shell tools, in the order in which they are looked for.
const SHELLS: [&str; 4] = ["Bash", "bash", "run_shell_command", "exec_command"];

/// How long a command of Codex is waited for before its turn goes on without it, in milliseconds:
/// the least that Codex takes, and the most for one that is not to be left in the background.
const CODEX_WAITS_MS: [u32; 2] = [250, 30_000];

/// 120 characters of a tool's result are repeated in the answer: enough to recognise it.
const RESULT_CHARS_MAX: usize = 120;

/// One answer of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Text(String),
    Slow(Duration),
    Tool { name: String, input: Value },
    Status(u16),
}

/// The answer to a conversation, given the tools on offer.
pub(super) fn decide(items: &[Item], tools: &[String]) -> Answer {
    let is_order = |item: &Item| item.kind == Kind::User && item.text.contains("MOCK:");
    let Some(order) = items.iter().rposition(is_order) else {
        return Answer::Text(format!("no directive; {} items", items.len()));
    };
    let turns = items.iter().filter(|item| is_order(item)).count();
    let after = &items[order + 1..];
    if let Some(result) = after.iter().rfind(|item| item.kind == Kind::Result) {
        let head: String = result.text.chars().take(RESULT_CHARS_MAX).collect();
        let head = head.replace('\n', "|");
        return Answer::Text(format!(
            "DONE after tool (user turns seen: {turns}) result={head}"
        ));
    }
    if after.iter().any(|item| item.kind == Kind::Assistant) {
        return Answer::Text("CONTINUE (no new directive)".to_owned());
    }
    let directive = items[order].text.rsplit("MOCK:").next().unwrap_or_default();
    let directive = directive.lines().next().unwrap_or_default();
    let (verb, rest) = directive.split_once(' ').unwrap_or((directive, ""));
    follow(verb, rest, turns, tools)
}

fn follow(verb: &str, rest: &str, turns: usize, tools: &[String]) -> Answer {
    match verb {
        "say" => Answer::Text(format!("SAID {rest} (user turns seen: {turns})")),
        "slow" => {
            let seconds = rest.trim().parse().ok();
            let duration = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
            Answer::Slow(duration.unwrap_or(Duration::from_secs(5)))
        }
        "status" => Answer::Status(rest.trim().parse().unwrap_or(500)),
        "tool" => {
            let (name, input) = rest.split_once(' ').unwrap_or((rest, "{}"));
            let input = serde_json::from_str(input).unwrap_or_else(|_| json!({}));
            Answer::Tool {
                name: name.to_owned(),
                input,
            }
        }
        "bash" | "bg" => shell(rest, verb == "bg", tools),
        other => Answer::Text(format!("unknown directive {other}")),
    }
}

fn shell(command: &str, background: bool, tools: &[String]) -> Answer {
    let offered = |name: &&&str| tools.iter().any(|tool| tool == **name);
    let Some(name) = SHELLS.iter().find(offered) else {
        return Answer::Text(format!("no shell tool among {}", tools.join(",")));
    };
    let mut input = json!({ "command": command, "description": "mock command" });
    match *name {
        "Bash" if background => input["run_in_background"] = json!(true),
        "run_shell_command" => input["is_background"] = json!(background),
        "exec_command" => {
            let [background_ms, foreground_ms] = CODEX_WAITS_MS;
            let waits_ms = if background {
                background_ms
            } else {
                foreground_ms
            };
            input = json!({ "cmd": command, "yield_time_ms": waits_ms });
        }
        _ => {}
    }
    Answer::Tool {
        name: (*name).to_owned(),
        input,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Item {
        Item::new(Kind::User, text)
    }

    #[test]
    fn the_newest_directive_is_followed_and_turns_are_counted() {
        let items = [
            user("MOCK:say a"),
            Item::new(Kind::Assistant, "SAID a"),
            user("MOCK:say b"),
        ];
        let said = Answer::Text("SAID b (user turns seen: 2)".to_owned());
        assert_eq!(decide(&items, &[]), said);
    }

    #[test]
    fn a_tool_result_ends_the_directive() {
        let items = [
            user("MOCK:bash true"),
            Item::new(Kind::Call, "{}"),
            Item::new(Kind::Result, "ok\nyes"),
        ];
        let done = "DONE after tool (user turns seen: 1) result=ok|yes";
        assert_eq!(decide(&items, &[]), Answer::Text(done.to_owned()));
    }

    #[test]
    fn a_background_command_asks_the_shell_on_offer() {
        let input = json!({
            "command": "sleep 1", "description": "mock command", "run_in_background": true
        });
        let tool = Answer::Tool {
            name: "Bash".to_owned(),
            input,
        };
        assert_eq!(
            decide(&[user("MOCK:bg sleep 1")], &["Bash".to_owned()]),
            tool
        );
    }
}
