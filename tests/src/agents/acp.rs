//! Agents that speak the Agent Client Protocol.
//!
//! Fed by `agents.rs`. Gemini CLI and opencode are small enough to be run always; the others are
//! run where all agents are wanted ([`all_wanted`]).

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::install::{Package, on_path};
use super::{Make, Missing, RealAgent, text};
use crate::mock_model::MockModel;
use crate::wait::say_aloud;

const GEMINI: Package = Package {
    name: "gemini",
    npm: "@google/gemini-cli",
    version: "0.61.0",
    entry: "node_modules/@google/gemini-cli/bundle/gemini.js",
};

const OPENCODE: Package = Package {
    name: "opencode",
    npm: "opencode-linux-x64",
    version: "1.18.33",
    entry: "node_modules/opencode-linux-x64/bin/opencode",
};

/// The newest that runs on Node 20.
const QWEN: Package = Package {
    name: "qwen",
    npm: "@qwen-code/qwen-code",
    version: "0.15.10",
    entry: "node_modules/@qwen-code/qwen-code/cli.js",
};

/// The newest that runs on Node 20.
const CLAUDE_AGENT_ACP: Package = Package {
    name: "claude-agent-acp",
    npm: "@agentclientprotocol/claude-agent-acp",
    version: "0.49.0",
    entry: "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js",
};

const CODEX_ACP: Package = Package {
    name: "codex-acp",
    npm: "@agentclientprotocol/codex-acp",
    version: "2.6.0",
    entry: "node_modules/@agentclientprotocol/codex-acp/dist/index.js",
};

/// Shell commands that contain this word need a permission.
const GATE: &str = "*GATE*";

/// True where also the agents are to be run that are large or slow (`DROWSE_ALL_AGENTS=1`); else
/// `test` is said aloud not to be run.
#[must_use]
pub fn all_wanted(test: &str) -> bool {
    let wanted = std::env::var_os("DROWSE_ALL_AGENTS").is_some_and(|value| value == "1");
    if !wanted {
        say_aloud(&format!(
            "NOT RUN: {test}: only with DROWSE_ALL_AGENTS=1 (./tests/run --all-agents)"
        ));
    }
    wanted
}

impl RealAgent {
    /// Gemini CLI, talking to `model`. Every shell command needs a permission.
    ///
    /// # Errors
    /// [`Missing`] when it cannot be installed here.
    ///
    /// # Panics
    /// When no temporary folder can be written.
    pub fn gemini(model: &MockModel) -> Result<Self, Missing> {
        let mut agent = Self::on_node(Make::Gemini, &GEMINI)?;
        agent.set("GEMINI_API_KEY", "dummy");
        agent.set("GOOGLE_GEMINI_BASE_URL", &model.base_url());
        agent.set("GEMINI_MODEL", "gemini-2.5-flash");
        let settings = json!({
            "security": { "auth": { "selectedType": "gemini-api-key" } },
            "general": { "enableAutoUpdate": false },
            "privacy": { "usageStatisticsEnabled": false },
            "telemetry": { "enabled": false },
        });
        agent.write(".gemini/settings.json", &settings.to_string());
        Ok(agent)
    }

    /// opencode, talking to `model`. Shell commands that contain `GATE` need a permission.
    ///
    /// # Errors
    /// [`Missing`] when it cannot be installed here.
    ///
    /// # Panics
    /// When no temporary folder can be written.
    pub fn opencode(model: &MockModel) -> Result<Self, Missing> {
        let program = OPENCODE.install()?;
        let mut agent = Self::new(Make::OpenCode, vec![text(&program)]);
        for part in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD"] {
            agent.set(&format!("OPENCODE_DISABLE_{part}"), "1");
        }
        let one = json!({ "name": "Mock", "limit": { "context": 100_000, "output": 4096 } });
        let options = json!({ "baseURL": format!("{}/v1", model.base_url()), "apiKey": "dummy" });
        let provider = json!({
            "npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options,
            "models": { "mock-model": one },
        });
        let config = json!({
            "autoupdate": false, "share": "disabled", "model": "mock/mock-model",
            "small_model": "mock/mock-model", "enabled_providers": ["mock"],
            "provider": { "mock": provider },
            "permission": { "bash": { "*": "allow", GATE: "ask" } },
        });
        agent.write(".config/opencode/opencode.json", &config.to_string());
        Ok(agent)
    }

    /// Qwen Code, talking to `model`. Every shell command needs a permission.
    ///
    /// # Errors
    /// [`Missing`] when it cannot be installed here.
    ///
    /// # Panics
    /// When no temporary folder can be written.
    pub fn qwen(model: &MockModel) -> Result<Self, Missing> {
        let mut agent = Self::on_node(Make::Qwen, &QWEN)?;
        agent.set("OPENAI_API_KEY", "dummy");
        agent.set("OPENAI_BASE_URL", &format!("{}/v1", model.base_url()));
        agent.set("OPENAI_MODEL", "mock-model");
        Ok(agent)
    }

    /// Claude Code behind its adapter for the protocol, talking to `model`.
    ///
    /// # Errors
    /// [`Missing`] when it cannot be installed here.
    ///
    /// # Panics
    /// When no temporary folder can be written.
    pub fn claude_agent_acp(model: &MockModel) -> Result<Self, Missing> {
        let mut agent = Self::on_node(Make::ClaudeAgentAcp, &CLAUDE_AGENT_ACP)?;
        agent.set("ANTHROPIC_BASE_URL", &model.base_url());
        agent.set("ANTHROPIC_API_KEY", "dummy");
        agent.set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        agent.set("IS_SANDBOX", "1");
        Ok(agent)
    }

    /// Codex behind its adapter for the protocol, talking to `model`; it asks for nothing.
    ///
    /// # Errors
    /// [`Missing`] when it cannot be installed here.
    ///
    /// # Panics
    /// When no temporary folder can be written.
    pub fn codex_acp(model: &MockModel) -> Result<Self, Missing> {
        let mut agent = Self::on_node(Make::CodexAcp, &CODEX_ACP)?;
        agent.set("MOCK_KEY", "dummy");
        let base_url = Value::from(format!("{}/v1", model.base_url()));
        let config = format!(
            "model = \"mock-model\"\nmodel_provider = \"mock\"\napproval_policy = \"never\"\n\
             sandbox_mode = \"danger-full-access\"\n\n[model_providers.mock]\nname = \"mock\"\n\
             base_url = {base_url}\nwire_api = \"responses\"\nenv_key = \"MOCK_KEY\"\n"
        );
        agent.write(".codex/config.toml", &config);
        Ok(agent)
    }

    fn on_node(make: Make, package: &Package) -> Result<Self, Missing> {
        let node = on_path("node")?;
        let program = package.install()?;
        Ok(Self::new(make, vec![text(&node), text(&program)]))
    }

    fn write(&self, file: &str, content: &str) {
        let file = self.home().join(file);
        let folder = file.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).expect("the temporary folder can be written");
        fs::write(file, content).expect("the temporary folder can be written");
    }
}
