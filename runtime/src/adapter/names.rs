//! Which agent a process is, by its program alone.
//!
//! Pure; fed with what `/proc` says of a command line. It looks at the program and at the script
//! that an interpreter runs, never at other arguments: those hold secrets, and other people's
//! paths. Invariant: when in doubt a process is no agent.

/// An agent and what it is run from.
struct Known {
    /// The name people know it by.
    agent: &'static str,
    /// Base names of its program, and of the link or script that starts it.
    programs: &'static [&'static str],
    /// npm packages whose scripts are the agent.
    packages: &'static [&'static str],
    /// False for a name that other programs have too: then an interpreter must run it.
    is_telling: bool,
}

const KNOWN: [Known; 9] = [
    known("claude", &["claude"], &["@anthropic-ai/claude-code"]),
    known(
        "claude-agent-acp",
        &["claude-agent-acp", "claude-code-acp"],
        &[
            "@agentclientprotocol/claude-agent-acp",
            "@zed-industries/claude-agent-acp",
            "@zed-industries/claude-code-acp",
        ],
    ),
    known("codex", &["codex"], &["@openai/codex"]),
    known(
        "codex-acp",
        &["codex-acp"],
        &[
            "@agentclientprotocol/codex-acp",
            "@zed-industries/codex-acp",
        ],
    ),
    known("copilot", &["copilot"], &["@github/copilot"]),
    known("gemini", &["gemini"], &["@google/gemini-cli"]),
    known("opencode", &["opencode"], &["opencode-ai"]),
    Known {
        is_telling: false,
        ..known(
            "pi",
            &["pi"],
            &[
                "@earendil-works/pi-coding-agent",
                "@mariozechner/pi-coding-agent",
            ],
        )
    },
    known("qwen", &["qwen"], &["@qwen-code/qwen-code"]),
];

const fn known(
    agent: &'static str,
    programs: &'static [&'static str],
    packages: &'static [&'static str],
) -> Known {
    Known {
        agent,
        programs,
        packages,
        is_telling: true,
    }
}

/// Programs that run a script, versions such as `python3.11` apart.
const INTERPRETERS: [&str; 9] = [
    "node", "nodejs", "bun", "deno", "python", "sh", "bash", "dash", "zsh",
];

/// Options of interpreters whose value is the next argument.
const WITH_VALUE: [&str; 8] = [
    "-r",
    "--require",
    "--import",
    "--loader",
    "--experimental-loader",
    "--conditions",
    "-C",
    "--env-file",
];

/// Options after which no script comes, but code or a module's name.
const WITHOUT_SCRIPT: [&str; 6] = ["-e", "--eval", "-p", "--print", "-c", "-m"];

/// Words between `bun` or `deno` and the script.
const RUN_WORDS: [&str; 2] = ["run", "x"];

/// The agent that this is: `program` is the file that runs (`None`: not known), `argv` its
/// arguments, of which a process may have put a title in place.
pub(crate) fn agent_of(program: Option<&str>, argv: &[&str]) -> Option<&'static str> {
    // `npm exec @openai/codex` is a title, and no path although there is a slash in it.
    let is_path = |first: &&str| first.starts_with('/') || !first.contains(' ');
    let first = argv.first().map(|first| first.trim_end()).filter(is_path);
    let names = [first.map(base), program.map(base)];
    let is_interpreted = names.iter().flatten().any(|name| is_interpreter(name));
    let by_name = KNOWN.iter().find(|known| {
        let is_named = names
            .iter()
            .flatten()
            .any(|name| known.programs.contains(name));
        is_named && (known.is_telling || is_interpreted)
    });
    let by_script = || {
        let script = is_interpreted.then(|| script_of(argv)).flatten()?;
        KNOWN.iter().find(|known| {
            let stem = base(script);
            known.programs.contains(&stem)
                || known.packages.iter().any(|package| is_in(script, package))
        })
    };
    by_name.or_else(by_script).map(|known| known.agent)
}

/// The name of a file, without the suffixes that scripts and the kernel's links have.
fn base(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    let suffixes = [".js", ".mjs", ".cjs", ".ts", ".py", ".sh", ".exe"];
    suffixes
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(name)
}

fn is_interpreter(name: &str) -> bool {
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&unversioned)
}

/// The script among an interpreter's arguments.
fn script_of<'a>(argv: &[&'a str]) -> Option<&'a str> {
    let mut rest = argv.iter().skip(1);
    while let Some(&argument) = rest.next() {
        if WITHOUT_SCRIPT.contains(&argument) {
            return None;
        } else if WITH_VALUE.contains(&argument) {
            rest.next();
        } else if !argument.starts_with('-') && !RUN_WORDS.contains(&argument) {
            return Some(argument);
        }
    }
    None
}

/// True for a file of this npm package.
fn is_in(path: &str, package: &str) -> bool {
    let folder = format!("/node_modules/{package}/");
    path.contains(&folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Option<&str> = Some("/usr/bin/node");

    /// Row 147: what the real agents' processes look like.
    #[test]
    fn agents_are_known_by_program_and_script() {
        let cases: [(Option<&str>, &[&str], &str); 15] = [
            (None, &["claude", "-p", "--verbose"], "claude"),
            (
                Some("/home/me/.local/share/claude/versions/2.1.332"),
                &["claude"],
                "claude",
            ),
            (Some("/opt/claude (deleted)"), &["/opt/claude"], "claude"),
            (NODE, &["claude   "], "claude"),
            (
                NODE,
                &[
                    "node",
                    "/n/node_modules/@anthropic-ai/claude-code/cli.js",
                    "-p",
                ],
                "claude",
            ),
            (None, &["/usr/local/bin/codex", "app-server"], "codex"),
            (
                NODE,
                &["node", "/usr/local/bin/codex", "app-server"],
                "codex",
            ),
            (NODE, &["pi"], "pi"),
            (
                NODE,
                &[
                    "node",
                    "/n/node_modules/@mariozechner/pi-coding-agent/dist/cli.js",
                ],
                "pi",
            ),
            (
                None,
                &[
                    "/usr/bin/node",
                    "--no-warnings",
                    "-r",
                    "/x/claude.js",
                    "/usr/bin/gemini",
                    "--acp",
                ],
                "gemini",
            ),
            (None, &["bun", "run", "/usr/bin/qwen", "--acp"], "qwen"),
            (None, &["opencode", "acp"], "opencode"),
            (None, &["copilot", "--acp"], "copilot"),
            (
                NODE,
                &["node", "/usr/bin/claude-agent-acp"],
                "claude-agent-acp",
            ),
            (NODE, &["node", "/usr/bin/codex-acp"], "codex-acp"),
        ];
        for (program, argv, agent) in cases {
            assert_eq!(agent_of(program, argv), Some(agent), "{argv:?}");
        }
    }

    /// Row 147: and as npm installs those that speak ACP.
    #[test]
    fn agents_of_npm_are_known_by_their_packages() {
        let cases: [(Option<&str>, &[&str], &str); 3] = [
            // npm puts the program of opencode there under this name, on Linux as well.
            (
                Some("/n/node_modules/opencode-ai/bin/opencode.exe"),
                &["/n/node_modules/opencode-ai/bin/opencode.exe", "acp"],
                "opencode",
            ),
            (
                NODE,
                &[
                    "node",
                    "/n/node_modules/@qwen-code/qwen-code/cli.js",
                    "--acp",
                ],
                "qwen",
            ),
            (
                NODE,
                &[
                    "node",
                    "--max-old-space-size=12052",
                    "/n/node_modules/@google/gemini-cli/bundle/gemini.js",
                    "--acp",
                ],
                "gemini",
            ),
        ];
        for (program, argv, agent) in cases {
            assert_eq!(agent_of(program, argv), Some(agent), "{argv:?}");
        }
    }

    /// D10: an agent's name anywhere else makes nobody an agent.
    #[test]
    fn a_name_among_the_arguments_is_nothing() {
        let cases: [(Option<&str>, &[&str]); 12] = [
            (None, &["vim", "claude"]),
            (None, &["grep", "-r", "claude", "/usr/bin/codex"]),
            (None, &["tail", "-f", "/n/node_modules/@openai/codex/log"]),
            (None, &["bash", "-c", "claude -p"]),
            (NODE, &["node", "-e", "/usr/bin/claude"]),
            (NODE, &["node", "server.js", "/usr/bin/claude"]),
            (NODE, &["node", "-r", "/usr/bin/claude", "server.js"]),
            (
                NODE,
                &["node", "/n/node_modules/@anthropic-ai/claude-code-mcp/x.js"],
            ),
            (
                Some("/n/node_modules/@anthropic-ai/claude-code/vendor/rg"),
                &["rg", "x"],
            ),
            (Some("/usr/bin/pi"), &["pi", "1000"]),
            (None, &["npm exec @openai/codex"]),
            (None, &[]),
        ];
        for (program, argv) in cases {
            assert_eq!(agent_of(program, argv), None, "{argv:?}");
        }
    }
}
