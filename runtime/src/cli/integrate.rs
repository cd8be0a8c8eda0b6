//! `integrate`: prints what makes an agent tell Drowse of its background work.
//!
//! Pure printing: it changes no file of anybody's. The result goes to stdout, so that it can be
//! piped into a file; what to do with it goes to stderr.

use std::path::Path;

use serde_json::{Value, json};

use super::args::IntegratedAgent;
use super::console::Console;
use super::failure::Failure;
use crate::config::find_program;
use crate::exit::Exit;

/// The extension for Pi.
const PI: &str = include_str!("integrate/pi.js");

/// Seconds that Claude waits for a hook: it takes milliseconds, and a daemon that is stuck must not
/// hold a turn up.
const HOOK_TIMEOUT: u32 = 10;

/// The events of Claude Code whose hooks know of background work.
const CLAUDE_EVENTS: [&str; 3] = ["SubagentStart", "SubagentStop", "Stop"];

pub(super) fn run(agent: IntegratedAgent, console: &mut Console<'_>) -> Result<Exit, Failure> {
    match agent {
        IntegratedAgent::Claude => {
            let settings = claude(&program()?);
            let text = serde_json::to_string_pretty(&settings).map_err(std::io::Error::other)?;
            writeln!(console.out, "{text}")?;
            console.tell(
                "put this into ~/.claude/settings.json (or a project's .claude/settings.json); \
                 where there are hooks already, add these to them",
            )?;
        }
        IntegratedAgent::Pi if console.json => console.object(&json!({ "extension": PI }))?,
        IntegratedAgent::Pi => {
            console.out.write_all(PI.as_bytes())?;
            console.tell(
                "save this as a file and give it to Pi as its first extension, in config.toml:\n\
                 [agents.pi]\n\
                 command = [\"pi\", \"-e\", \"/path/to/drowse.js\"]",
            )?;
        }
    }
    Ok(Exit::Ok)
}

fn claude(program: &str) -> Value {
    let hook = json!({
        "type": "command", "command": format!("{program} task hook"), "timeout": HOOK_TIMEOUT,
    });
    let one = |event: &str| (event.to_owned(), json!([{ "hooks": [hook] }]));
    let hooks: serde_json::Map<String, Value> = CLAUDE_EVENTS.map(one).into_iter().collect();
    json!({ "hooks": hooks })
}

/// How a shell finds this program: by its name where that means this file, else by its path.
fn program() -> Result<String, Failure> {
    const NAME: &str = "drowse";
    let own = std::env::current_exe()?;
    let path = std::env::var("PATH").unwrap_or_default();
    let found = find_program(NAME, &path, Path::new("/"));
    let real = |path: &Path| path.canonicalize().ok();
    if found.is_some_and(|found| real(&found) == real(&own)) {
        Ok(NAME.to_owned())
    } else {
        Ok(quoted(&own.to_string_lossy()))
    }
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hooks_have_the_form_of_claudes_settings() {
        let settings = claude("drowse");
        for event in CLAUDE_EVENTS {
            let hook = &settings["hooks"][event][0]["hooks"][0];
            assert_eq!(hook["type"], "command");
            assert_eq!(hook["command"], "drowse task hook");
        }
    }

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
