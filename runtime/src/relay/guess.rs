//! Guesses from a host's command line which agent it is, and which protocol the host will speak.
//!
//! Pure. A protocol that is guessed wrongly would only be misunderstood, never changed: a filter
//! touches nothing before the first release, and there is none before a turn was understood. Still
//! a program that was not asked for a protocol gets none.

use drowse_messages::Name;

use crate::adapter::agent_of;

/// Agents that speak the Agent Client Protocol when they are asked to, and the word that asks.
const ACP: [(&str, &str); 7] = [
    ("gemini", "acp"),
    ("qwen", "acp"),
    ("opencode", "acp"),
    ("copilot", "acp"),
    ("claude-agent-acp", ""),
    ("codex-acp", ""),
    ("goose", "acp"),
];

/// The agent's name: that of a known one, or of the program.
pub(super) fn agent(program: Option<&str>, argv: &[String]) -> Name {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    if let Some(known) = agent_of(program, &words) {
        return known.parse().expect("known agents have names");
    }
    let first = words.first().copied().unwrap_or_default();
    let base = first.rsplit('/').next().unwrap_or_default();
    let plain: String = base
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let parsed = plain.trim_matches('-').parse().ok();
    parsed.unwrap_or_else(|| "agent".parse().expect("\"agent\" is a name"))
}

/// The protocol that these words ask this agent for, if `is_spoken`.
pub(super) fn protocol(agent: &str, argv: &[String], is_spoken: impl Fn(&str) -> bool) -> Name {
    let says = |word: &str| argv.iter().skip(1).any(|it| it == word);
    let has = |option: &str, value: &str| {
        let both = format!("{option}={value}");
        says(&both)
            || argv
                .windows(2)
                .any(|pair| pair[0] == option && pair[1] == value)
    };
    let by_acp = |(name, word): &(&str, &str)| {
        let asked = |it: &String| it.trim_start_matches('-').contains(word);
        *name == agent && (word.is_empty() || argv.iter().skip(1).any(asked))
    };
    let guessed = match agent {
        "claude"
            if has("--input-format", "stream-json") && has("--output-format", "stream-json") =>
        {
            "claude"
        }
        "pi" if has("--mode", "rpc") => "pi",
        "codex" if says("app-server") => "codex",
        _ if ACP.iter().any(by_acp) => "acp",
        _ => "raw",
    };
    let guessed = if is_spoken(guessed) { guessed } else { "raw" };
    guessed.parse().expect("protocols have names")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(line: &str) -> String {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let agent = agent(None, &argv);
        let protocol = protocol(agent.as_str(), &argv, |_| true);
        format!("{agent} {protocol}")
    }

    /// A host that asks for a protocol is understood; everything else passes as it comes.
    #[test]
    fn protocols_are_guessed_from_what_was_asked_for() {
        for (line, expected) in [
            (
                "/usr/bin/claude --output-format stream-json --verbose --input-format stream-json",
                "claude claude",
            ),
            (
                "claude -p --input-format=stream-json --output-format=stream-json",
                "claude claude",
            ),
            ("claude -p hello", "claude raw"),
            ("claude", "claude raw"),
            (
                "node /n/node_modules/@mariozechner/pi-coding-agent/dist/cli.js --mode rpc",
                "pi pi",
            ),
            ("codex app-server", "codex codex"),
            ("codex exec hello", "codex raw"),
            ("gemini --experimental-acp", "gemini acp"),
            ("gemini --acp", "gemini acp"),
            ("opencode acp", "opencode acp"),
            (
                "node /n/node_modules/@zed-industries/claude-code-acp/dist/index.js",
                "claude-agent-acp acp",
            ),
            ("/opt/My_Agent.sh --x", "my-agent-sh raw"),
            ("cat", "cat raw"),
        ] {
            assert_eq!(guess(line), expected, "{line}");
        }
        let argv = ["codex", "app-server"].map(str::to_owned);
        assert_eq!(protocol("codex", &argv, |_| false).as_str(), "raw");
    }
}
