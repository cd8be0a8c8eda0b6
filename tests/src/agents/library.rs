//! Libraries with which hosts of others are made, installed like agents.
//!
//! Fed by the tests of hosts, whose scripts are told where to find them.

use std::path::{Path, PathBuf};

use super::install::Package;
use super::{Missing, had_or_not_run};

/// A library for programs that start an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The client side of the Agent Client Protocol.
    Acp,
    /// The official MCP client, with the server that tries everything out.
    Mcp,
    /// The Claude Agent SDK, without the Claude Code in it.
    ClaudeSdk,
    /// The compiler of our own client for TypeScript.
    TypeScript,
    /// What that has to know of Node.
    NodeTypes,
}

impl Library {
    fn package(self) -> Package {
        match self {
            Self::Acp => Package {
                name: "acp-sdk",
                npm: "@agentclientprotocol/sdk",
                version: "2.4.0",
                entry: "node_modules/@agentclientprotocol/sdk/package.json",
            },
            Self::Mcp => Package {
                name: "mcp-sdk",
                npm: "@modelcontextprotocol/server-everything",
                version: "2026.8.31",
                entry: "node_modules/@modelcontextprotocol/sdk/package.json",
            },
            Self::ClaudeSdk => Package {
                name: "claude-sdk",
                npm: "@anthropic-ai/claude-agent-sdk",
                version: "0.3.185",
                entry: "node_modules/@anthropic-ai/claude-agent-sdk/package.json",
            },
            Self::TypeScript => Package {
                name: "typescript",
                npm: "typescript",
                version: "5.9.3",
                entry: "node_modules/typescript/package.json",
            },
            Self::NodeTypes => Package {
                name: "node-types",
                npm: "@types/node",
                version: "20.19.43",
                entry: "node_modules/@types/node/package.json",
            },
        }
    }

    /// Installs it, and gives the folder whose `node_modules` has it.
    fn install(self) -> Result<PathBuf, Missing> {
        let package = self.package();
        let depth = Path::new(package.entry).components().count();
        let entry = package.install_lean()?;
        let folder = entry.ancestors().nth(depth);
        Ok(folder.expect("the entry is below the folder").to_owned())
    }
}

/// The folder whose `node_modules` has the library, or says aloud that `test` was not run and why.
///
/// # Panics
/// Instead of saying so where `DROWSE_REQUIRE_REAL_AGENTS=1`.
#[track_caller]
#[must_use]
pub fn library_or_not_run(test: &str, library: Library) -> Option<PathBuf> {
    had_or_not_run(test, library.install())
}
