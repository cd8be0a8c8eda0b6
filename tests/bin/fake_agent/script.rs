//! The directives in a user's text: one per line, run in order.
//!
//! | directive | the turn |
//! |---|---|
//! | `FAKE:say TEXT` (or a text without directives) | answers it |
//! | `FAKE:slow SECS` | streams a tick every 100 ms |
//! | `FAKE:silent SECS` | says nothing for that long |
//! | `FAKE:wait PATH` | goes on when the file is there |
//! | `FAKE:approve TEXT` | asks for permission, goes on with the answer |
//! | `FAKE:question TEXT` | asks a question |
//! | `FAKE:bg SECS` | starts a background task that ends by itself |
//! | `FAKE:bg-lost` | one whose end is never reported |
//! | `FAKE:ambient` | one that is only ambient |
//! | `FAKE:compact SECS` | compacts the conversation in mid-turn |
//! | `FAKE:fail TEXT` | ends with an error |
//! | `FAKE:exit CODE` / `FAKE:crash` | exits / is killed in mid-turn |
//! | `FAKE:spawn ROLE [N] [PORT]` | starts children (`children.rs`) and names them |
//! | `FAKE:run COMMAND` | has a shell run it, and tells its exit code and what it printed |
//! | `FAKE:shell COMMAND` | the same in a process session of its own, and does not wait for it |
//! | `FAKE:line BYTES` | streams one line of exactly that size |
//! | `FAKE:flood BYTES` | writes that many bytes without a newline, then one |
//! | `FAKE:bytewise TEXT` | streams a text one byte per write |
//! | `FAKE:split PATH TEXT` | streams half a line, and the rest when the file is there |
//! | `FAKE:invalid-utf8` | writes a line that is not UTF-8 |
//! | `FAKE:stderr BYTES` | writes that much to stderr first |
//! | `FAKE:no-newline-exit` | ends the turn, leaves out the last newline, exits |
//! | `FAKE:close-stdin` | closes its stdin |
//! | `FAKE:env NAME` / `FAKE:argv` / `FAKE:cwd` | tells of its surroundings |
//!
//! Invariant: parsing never fails; an unknown or malformed directive is answered as such.

use std::path::PathBuf;
use std::time::Duration;

/// One thing a turn does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Say(String),
    Slow(Duration),
    Silent(Duration),
    Wait(PathBuf),
    Approve(String),
    Question(String),
    Background(Duration),
    BackgroundLost,
    Ambient,
    Compact(Duration),
    Fail(String),
    Exit(u8),
    Crash,
    Spawn { role: String, count: usize },
    Run(String),
    Shell(String),
    Odd(Odd),
    CloseStdin,
    Env(String),
    Argv,
    Cwd,
    Unknown(String),
}

/// A way to write that a careless reader stumbles over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Odd {
    Line(usize),
    Flood(usize),
    Bytewise(String),
    Split(PathBuf, String),
    InvalidUtf8,
    Stderr(usize),
    NoNewlineExit,
}

/// The steps of a user's text.
pub(crate) fn parse(text: &str) -> Vec<Step> {
    let steps: Vec<Step> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("FAKE:"))
        .map(step)
        .collect();
    if steps.is_empty() {
        vec![Step::Say(text.trim().to_owned())]
    } else {
        steps
    }
}

fn step(directive: &str) -> Step {
    let (verb, rest) = directive.split_once(' ').unwrap_or((directive, ""));
    known(verb, rest.trim()).unwrap_or_else(|| Step::Unknown(directive.to_owned()))
}

fn known(verb: &str, rest: &str) -> Option<Step> {
    Some(match verb {
        "say" => Step::Say(rest.to_owned()),
        "slow" => Step::Slow(seconds(rest)?),
        "silent" => Step::Silent(seconds(rest)?),
        "wait" => Step::Wait(PathBuf::from(rest)),
        "approve" => Step::Approve(rest.to_owned()),
        "question" => Step::Question(rest.to_owned()),
        "bg" => Step::Background(seconds(rest)?),
        "bg-lost" => Step::BackgroundLost,
        "ambient" => Step::Ambient,
        "compact" => Step::Compact(seconds(rest)?),
        "fail" => Step::Fail(rest.to_owned()),
        "exit" => Step::Exit(rest.parse().ok()?),
        "crash" => Step::Crash,
        "spawn" => {
            let mut words = rest.splitn(2, ' ');
            let role = words.next()?.to_owned();
            let count = words
                .next()
                .map_or(Some(1), |word| word.trim().parse().ok())?;
            Step::Spawn { role, count }
        }
        "run" => Step::Run(rest.to_owned()),
        "shell" => Step::Shell(rest.to_owned()),
        "line" => Step::Odd(Odd::Line(rest.parse().ok()?)),
        "flood" => Step::Odd(Odd::Flood(rest.parse().ok()?)),
        "bytewise" => Step::Odd(Odd::Bytewise(rest.to_owned())),
        "split" => {
            let (path, text) = rest.split_once(' ')?;
            Step::Odd(Odd::Split(path.into(), text.to_owned()))
        }
        "invalid-utf8" => Step::Odd(Odd::InvalidUtf8),
        "stderr" => Step::Odd(Odd::Stderr(rest.parse().ok()?)),
        "no-newline-exit" => Step::Odd(Odd::NoNewlineExit),
        "close-stdin" => Step::CloseStdin,
        "env" => Step::Env(rest.to_owned()),
        "argv" => Step::Argv,
        "cwd" => Step::Cwd,
        _ => return None,
    })
}

/// A duration from a decimal number of seconds.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_directives_is_said() {
        assert_eq!(parse(" hello "), [Step::Say("hello".into())]);
    }

    #[test]
    fn several_directives_run_in_order_and_bad_ones_are_kept() {
        let steps = parse("please\nFAKE:bg 0.5\n  FAKE:spawn setsid 20\nFAKE:slow soon");
        let spawn = Step::Spawn {
            role: "setsid".into(),
            count: 20,
        };
        let bad = Step::Unknown("slow soon".into());
        assert_eq!(
            steps,
            [Step::Background(Duration::from_millis(500)), spawn, bad]
        );
    }
}
