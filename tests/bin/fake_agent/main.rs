//! A scripted fake agent that speaks two dialects.
//!
//! `fake-agent --dialect claude|pi [--pi 0.73] [--session-id ID] [--resume ID] [--session ID]`;
//! arguments it does not know are ignored, as a supervisor may pass any. The user's text says what
//! a turn does (`script.rs`), `behaviour.json` in the home what a start and an end do (`home.rs`).
//! Fed by: stdin lines. Invariant: what it logs and persists is true even if it is killed at once.

mod children;
mod claude;
mod home;
mod input;
mod pi;
mod script;
mod transcript;
mod turn;
mod wire;

use std::process::ExitCode;

use crate::home::Home;
use crate::turn::Agent;

/// The arguments the fake agent looks at.
#[derive(Debug, Default)]
struct Args {
    dialect: String,
    pi_version: String,
    session_id: Option<String>,
    resume: Option<String>,
    session: Option<String>,
    partial_messages: bool,
    replay_user_messages: bool,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Self {
        let mut args = Self {
            dialect: "claude".into(),
            ..Self::default()
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--dialect" => args.dialect = words.next().unwrap_or_default(),
                "--pi" => args.pi_version = words.next().unwrap_or_default(),
                "--session-id" => args.session_id = words.next(),
                "--resume" => args.resume = words.next(),
                "--session" => args.session = words.next(),
                "--include-partial-messages" => args.partial_messages = true,
                "--replay-user-messages" => args.replay_user_messages = true,
                _ => {}
            }
        }
        args
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--child") {
        return children::run(&words[1..]);
    }
    let args = Args::parse(words.into_iter());
    let mut home = match Home::open() {
        Ok(home) => home,
        Err(why) => return home::refuse(64, &why),
    };
    // Blocked before any thread exists, so that every thread has it blocked and one waits for it.
    input::block_terminate();
    if let Err(code) = home.start() {
        return ExitCode::from(code);
    }
    match args.dialect.as_str() {
        "claude" => match claude::Claude::open(&args, &mut home) {
            Ok((wire, transcript)) => Agent::new(wire, home, transcript).run(),
            Err(code) => ExitCode::from(code),
        },
        "pi" => match pi::Pi::open(&args, &mut home) {
            Ok((wire, transcript)) => Agent::new(wire, home, transcript).run(),
            Err(code) => ExitCode::from(code),
        },
        other => home::refuse(64, &format!("unknown dialect {other:?}")),
    }
}
