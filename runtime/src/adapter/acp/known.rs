//! The agents known to speak the protocol, and what each does differently.
//!
//! Fed by the adapter with command lines and by the observer with names that agents give
//! themselves. An agent that is not in the table is spoken to by the protocol alone.

use std::time::Duration;

use drowse_messages::Name;

use super::super::agent_of;
use super::super::argv::{Opt, add, without};

struct Known {
    agent: &'static str,
    /// What is run when nothing is configured.
    command: &'static [&'static str],
    /// Each of these words makes it speak the protocol; the first is added where none is given.
    speaks: &'static [&'static str],
}

const KNOWN: [Known; 6] = [
    known("gemini", &["gemini"], &["--acp", "--experimental-acp"]),
    known("qwen", &["qwen"], &["--acp", "--experimental-acp"]),
    known("opencode", &["opencode"], &["acp"]),
    known("copilot", &["copilot", "--no-auto-update"], &["--acp"]),
    known("claude-agent-acp", &["claude-agent-acp"], &[]),
    known("codex-acp", &["codex-acp"], &[]),
];

const fn known(
    agent: &'static str,
    command: &'static [&'static str],
    speaks: &'static [&'static str],
) -> Known {
    Known {
        agent,
        command,
        speaks,
    }
}

/// Options of Gemini's that choose a conversation.
const CHOOSING: [Opt; 3] = [
    Opt::with_value(&["--resume", "-r"]),
    Opt::with_value(&["--session-id"]),
    Opt::with_value(&["--session-file"]),
];

/// The command line for a conversation to take up. Gemini tidies up when it starts: a file without
/// messages, such as every process leaves that loaded a conversation, is deleted with all others of
/// that conversation, but for the one that the command line names. Others need no word of it.
pub(super) fn taking_up(argv: &[String], native_id: &str) -> Vec<String> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    if agent_of(None, &words) != Some("gemini") {
        return argv.to_vec();
    }
    let mut argv = without(argv, &CHOOSING);
    add(&mut argv, &["--resume", native_id]);
    argv
}

/// Their names and commands.
pub(super) fn agents() -> Vec<(Name, Vec<String>)> {
    let agent = |known: &Known| {
        let command = known.command.iter().map(|&word| word.to_owned()).collect();
        let name = known.agent.parse().expect("the table holds names");
        (name, command)
    };
    KNOWN.iter().map(agent).collect()
}

/// The command line with the word that makes a known agent speak the protocol, directly after the
/// program, or the script that an interpreter runs: for some it is a command, not an option.
pub(super) fn speaking(argv: &[String]) -> Vec<String> {
    let mut argv = argv.to_vec();
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let known =
        agent_of(None, &words).and_then(|agent| KNOWN.iter().find(|known| known.agent == agent));
    let Some(speaks) = known.map(|known| known.speaks) else {
        return argv;
    };
    let Some(first) = speaks
        .first()
        .filter(|_| !words.iter().any(|it| speaks.contains(it)))
    else {
        return argv;
    };
    // An interpreter alone is no agent: the words up to the script are what makes it one.
    let is_whole = |end: &usize| agent_of(None, &words[..*end]).is_some();
    let end = (1..=words.len()).find(is_whole).unwrap_or(words.len());
    argv.insert(end, (*first).to_owned());
    argv
}

/// How long after a conversation was begun, or taken up, another process must leave it alone, by the
/// name the agent gives itself in the handshake. Each process of Gemini's makes a file that is named
/// after the conversation and the minute: one that loads a conversation within the minute in which
/// another process began or loaded it empties it, or deletes it for good.
pub(super) fn settles_in(agent: &str) -> Option<Duration> {
    /// 62 s: the minute, and what two clocks read apart.
    const GEMINI: Duration = Duration::from_secs(62);
    (agent == "gemini-cli").then_some(GEMINI)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    /// D27: the command line stays as it is but for the one word that is missing.
    #[test]
    fn a_known_agent_is_made_to_speak_the_protocol() {
        for (given, expected) in [
            ("gemini", "gemini --acp"),
            ("gemini --experimental-acp", "gemini --experimental-acp"),
            ("gemini -m pro", "gemini --acp -m pro"),
            ("/usr/bin/opencode", "/usr/bin/opencode acp"),
            ("opencode --print-logs", "opencode acp --print-logs"),
            ("opencode acp --cwd /x", "opencode acp --cwd /x"),
            ("copilot --no-auto-update", "copilot --acp --no-auto-update"),
            (
                "node --no-warnings /usr/bin/qwen -d",
                "node --no-warnings /usr/bin/qwen --acp -d",
            ),
            ("claude-agent-acp", "claude-agent-acp"),
            ("my-agent --serve", "my-agent --serve"),
        ] {
            assert_eq!(speaking(&words(given)), words(expected));
        }
    }

    /// Row 73: the conversation is named to Gemini also on its command line, once.
    #[test]
    fn gemini_is_told_what_it_must_not_delete() {
        let taken = |line: &str| taking_up(&words(line), "c1").join(" ");
        assert_eq!(taken("gemini --acp"), "gemini --acp --resume c1");
        assert_eq!(taken("gemini --resume c0 -m x"), "gemini -m x --resume c1");
        assert_eq!(taken("opencode acp"), "opencode acp");
    }

    #[test]
    fn the_table_is_made_of_known_programs() {
        for known in KNOWN {
            assert_eq!(agent_of(None, known.command), Some(known.agent));
        }
        assert_eq!(agents().len(), KNOWN.len());
    }

    /// Row 73.
    #[test]
    fn only_gemini_must_be_left_alone() {
        assert!(settles_in("gemini-cli") > Some(Duration::from_secs(60)));
        assert_eq!(settles_in("OpenCode"), None);
    }
}
