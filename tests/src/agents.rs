//! The real agents, installed on first use and pointed at the mock model.
//!
//! Fed by: the npm registry, once per version (`<workspace>/target/agents/NAME-VERSION`, or below
//! `DROWSE_AGENTS_DIR`). Each [`RealAgent`] has a home and a work folder of its own, sees none of
//! the caller's environment but `PATH`, and has no key to anything.
//! Invariant: an agent that cannot be had is an error that names what is missing; [`or_not_run`]
//! makes it loud, or fatal where `DROWSE_REQUIRE_REAL_AGENTS=1`.
//! Claude Code is proprietary: it is installed for the test that runs here and never passed on.

mod acp;
pub(crate) mod install;
mod library;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::mock_model::MockModel;
use crate::wait::say_aloud;
use install::Package;
pub use library::{Library, library_or_not_run};

pub use acp::all_wanted;

const CLAUDE: Package = Package {
    name: "claude",
    npm: "@anthropic-ai/claude-code-linux-x64",
    version: "2.1.332",
    entry: "node_modules/@anthropic-ai/claude-code-linux-x64/claude",
};

/// The ELF alone, without the Node script that starts it.
const CODEX: Package = Package {
    name: "codex",
    npm: "@openai/codex",
    version: "0.171.0-linux-x64",
    entry: "node_modules/@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex",
};

const PI: Package = Package {
    name: "pi",
    npm: "@mariozechner/pi-coding-agent",
    version: "0.73.1",
    entry: "node_modules/@mariozechner/pi-coding-agent/dist/cli.js",
};

/// An MCP server for agents that goes on after its stdin has ended.
const MCP_SERVER: &str = include_str!("agents/mcp_server.js");

/// A Pi extension with a background tool and a gate.
const PI_EXTENSION: &str = include_str!("agents/pi_extension.js");

/// A Pi extension of a user's: jobs, and commands that leave the conversation.
const PI_SWITCH: &str = include_str!("agents/pi_switch.js");

/// What keeps a real agent from running here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The missing thing and why it is missing.
    pub what: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "missing: {}", self.what)
    }
}

impl std::error::Error for Missing {}

/// Which real agent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Pi.
    Pi,
    /// Gemini CLI.
    Gemini,
    /// opencode.
    OpenCode,
    /// Qwen Code.
    Qwen,
    /// Claude Code behind the Agent Client Protocol.
    ClaudeAgentAcp,
    /// Codex behind the Agent Client Protocol.
    CodexAcp,
    /// An MCP server of ours.
    McpServer,
}

impl Make {
    /// The name that Drowse knows it by.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Pi => "pi",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
            Self::Qwen => "qwen",
            Self::ClaudeAgentAcp => "claude-agent-acp",
            Self::CodexAcp => "codex-acp",
            Self::McpServer => "stubborn",
        }
    }
}

/// A real agent ready to be started, any number of times, on one home.
#[derive(Debug)]
pub struct RealAgent {
    make: Make,
    program: Vec<String>,
    env: Vec<(String, String)>,
    folder: TempDir,
}

impl RealAgent {
    /// Claude Code, talking to `model`.
    ///
    /// # Errors
    /// [`Missing`] when it cannot be installed here.
    ///
    /// # Panics
    /// When no temporary folder can be written.
    pub fn claude(model: &MockModel) -> Result<Self, Missing> {
        let program = CLAUDE.install()?;
        let mut agent = Self::new(Make::Claude, vec![text(&program)]);
        agent.set("ANTHROPIC_BASE_URL", &model.base_url());
        agent.set("ANTHROPIC_API_KEY", "dummy");
        agent.set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        agent.set("DISABLE_AUTOUPDATER", "1");
        agent.set("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1");
        // Root may use bypassPermissions only in a sandbox; the mock model is one.
        agent.set("IS_SANDBOX", "1");
        Ok(agent)
    }

    /// Pi, talking to `model`, with an extension that has a background tool (`bg_start {command}`)
    /// and asks before a shell command that contains `GATE`.
    ///
    /// # Errors
    /// [`Missing`] when it cannot be installed here.
    ///
    /// # Panics
    /// When no temporary folder can be written.
    pub fn pi(model: &MockModel) -> Result<Self, Missing> {
        let node = install::on_path("node")?;
        let program = PI.install()?;
        let mut agent = Self::new(Make::Pi, vec![text(&node), text(&program)]);
        agent.set("PI_OFFLINE", "1");
        let folder = agent.home().join(".pi/agent");
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let one = json!({
            "id": "mock-model", "name": "Mock", "contextWindow": 100_000, "maxTokens": 4096,
        });
        let provider = json!({
            "baseUrl": format!("{}/v1", model.base_url()), "api": "openai-completions",
            "apiKey": "dummy", "models": [one],
        });
        let models = json!({ "providers": { "mock": provider } }).to_string();
        fs::write(folder.join("models.json"), models).expect("the temporary folder can be written");
        fs::write(agent.home().join("extension.js"), PI_EXTENSION)
            .expect("the temporary folder can be written");
        Ok(agent)
    }

    /// An MCP server that goes on after its stdin ended, configured as one that keeps nothing, or
    /// not. Its tool `where` tells its pid.
    ///
    /// # Errors
    /// [`Missing`] when there is no Node to run it.
    ///
    /// # Panics
    /// When no temporary folder can be written.
    pub fn mcp_server(stateless: bool) -> Result<Self, Missing> {
        let node = install::on_path("node")?;
        let mut agent = Self::new(Make::McpServer, vec![text(&node)]);
        let script = agent.home().join("mcp_server.js");
        fs::write(&script, MCP_SERVER).expect("the temporary folder can be written");
        agent.program.push(text(&script));
        agent.set("MCP_LOG", &text(&agent.mcp_log()));
        agent.set("DROWSE_AGENTS__STUBBORN__PROTOCOL", "mcp");
        agent.set("DROWSE_AGENTS__STUBBORN__STATELESS", &stateless.to_string());
        Ok(agent)
    }

    /// Codex, talking to `model`, with an MCP server (`mcp__stubborn/where`) that goes on after its
    /// stdin has ended; it may do as it likes.
    ///
    /// # Errors
    /// [`Missing`] when it cannot be installed here.
    ///
    /// # Panics
    /// When no temporary folder can be written.
    pub fn codex(model: &MockModel) -> Result<Self, Missing> {
        let program = CODEX.install()?;
        let mut agent = Self::new(Make::Codex, vec![text(&program)]);
        agent.set("MOCK_KEY", "dummy");
        let script = agent.home().join("mcp_server.js");
        fs::write(&script, MCP_SERVER).expect("the temporary folder can be written");
        let url = format!("{}/v1", model.base_url());
        let log = agent.mcp_log();
        // Quoted by Rust, which for these names is what TOML wants.
        let config = format!(
            r#"model = "mock-model"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.mock]
name = "mock"
base_url = {url:?}
wire_api = "responses"
env_key = "MOCK_KEY"
request_max_retries = 0
stream_max_retries = 0
[mcp_servers.stubborn]
command = "node"
args = [{script:?}]
env = {{ MCP_LOG = {log:?} }}
"#
        );
        let folder = agent.home().join(".codex");
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        fs::write(folder.join("config.toml"), config).expect("the temporary folder can be written");
        Ok(agent)
    }

    fn new(make: Make, program: Vec<String>) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("drowse-agent-")
            .tempdir()
            .expect("the temporary folder can be written");
        for name in ["home/tmp", "work"] {
            fs::create_dir_all(folder.path().join(name)).expect("the folder is ours");
        }
        let mut agent = Self {
            make,
            program,
            env: Vec::new(),
            folder,
        };
        let home = agent.home();
        agent.set("HOME", &text(&home));
        agent.set("TMPDIR", &text(&home.join("tmp")));
        agent.set("PATH", &std::env::var("PATH").unwrap_or_default());
        agent.set("LANG", "C.UTF-8");
        agent
    }

    fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Which agent it is.
    #[must_use]
    pub fn make(&self) -> Make {
        self.make
    }

    /// The command without any argument: what a user would configure.
    #[must_use]
    pub fn program(&self) -> &[String] {
        &self.program
    }

    /// The arguments that make it speak its protocol to a program, without session arguments.
    #[must_use]
    pub fn protocol_args(&self) -> Vec<String> {
        let words: &[&str] = match self.make {
            Make::Claude => &[
                "-p",
                "--input-format",
                "stream-json",
                "--output-format",
                "stream-json",
                "--verbose",
                "--include-partial-messages",
                "--permission-prompt-tool",
                "stdio",
            ],
            Make::Codex => &["app-server"],
            Make::Pi => &["--mode", "rpc"],
            Make::Gemini | Make::Qwen => &["--acp"],
            Make::OpenCode => &["acp"],
            Make::ClaudeAgentAcp | Make::CodexAcp | Make::McpServer => &[],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// The arguments that choose the model and let it do as it likes.
    #[must_use]
    pub fn model_args(&self) -> Vec<String> {
        let extension = text(&self.home().join("extension.js"));
        let words: &[&str] = match self.make {
            Make::Claude => &[
                "--model",
                "claude-sonnet-4-5",
                "--permission-mode",
                "bypassPermissions",
            ],
            // Its settings say so.
            Make::Codex => &[],
            Make::Pi => &[
                "--provider",
                "mock",
                "--model",
                "mock-model",
                "-e",
                &extension,
            ],
            Make::Gemini => &["--skip-trust"],
            Make::Qwen => &["--auth-type", "openai"],
            Make::OpenCode | Make::ClaudeAgentAcp | Make::CodexAcp | Make::McpServer => &[],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// The whole environment it is to have.
    #[must_use]
    pub fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// Its home folder; removed on drop.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The folder it works in; removed on drop.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// A command that starts it over plain pipes, with `args` after its own.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program[0]);
        command
            .args(&self.program[1..])
            .args(self.protocol_args())
            .args(self.model_args())
            .args(args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.work());
        command
    }

    /// Arguments that give Claude an MCP server, a child which goes on after its stdin ends.
    ///
    /// # Panics
    /// When the home cannot be written.
    #[must_use]
    pub fn mcp_args(&self) -> Vec<String> {
        let script = self.home().join("mcp_server.js");
        fs::write(&script, MCP_SERVER).expect("the temporary folder can be written");
        let log = json!({ "MCP_LOG": self.mcp_log() });
        let server = json!({ "command": "node", "args": [script], "env": log });
        let config = json!({ "mcpServers": { "stubborn": server } }).to_string();
        vec![
            "--mcp-config".to_owned(),
            config,
            "--strict-mcp-config".to_owned(),
        ]
    }

    /// Arguments that give Pi `first`, then an extension whose commands `/job NAME SHELL…`,
    /// `/afresh` and `/anew` begin a background job, another conversation, and the extensions anew.
    ///
    /// # Panics
    /// When the home cannot be written.
    #[must_use]
    pub fn switch_args(&self, first: Option<&str>) -> Vec<String> {
        let extensions = [("first.js", first), ("switch.js", Some(PI_SWITCH))];
        let mut args = Vec::new();
        for (name, script) in extensions {
            let Some(script) = script else { continue };
            let path = self.home().join(name);
            fs::write(&path, script).expect("the temporary folder can be written");
            args.extend(["-e".to_owned(), text(&path)]);
        }
        args
    }

    /// The log of the MCP server: one line `start PID`, `eof PID` or `call PID` each.
    #[must_use]
    pub fn mcp_log(&self) -> PathBuf {
        self.home().join("mcp.log")
    }
}

/// Gives the agent, or says aloud that `test` was not run and why.
///
/// # Panics
/// Instead of saying so where `DROWSE_REQUIRE_REAL_AGENTS=1`: CI must not pass without them.
#[track_caller]
pub fn or_not_run(test: &str, agent: Result<RealAgent, Missing>) -> Option<RealAgent> {
    had_or_not_run(test, agent)
}

#[track_caller]
fn had_or_not_run<T>(test: &str, wanted: Result<T, Missing>) -> Option<T> {
    match wanted {
        Ok(wanted) => Some(wanted),
        Err(missing) => {
            let required = std::env::var_os("DROWSE_REQUIRE_REAL_AGENTS");
            assert!(
                required.is_none_or(|value| value != "1"),
                "{test} needs what is not ours, {missing}"
            );
            say_aloud(&format!("NOT RUN: {test}: {missing}"));
            None
        }
    }
}

/// A path as text; the paths here are made of our own names.
fn text(path: &Path) -> String {
    path.display().to_string()
}
