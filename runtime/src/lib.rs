//! Drowse: a supervisor for AI coding agents.
//!
//! It keeps an agent alive while it works, releases its whole process tree once it is truly idle,
//! and wakes it at the next message in the same conversation.
//!
//! This crate is Linux, the agents' protocols, the store, the surfaces and the program; the
//! decisions are in `drowse-policy`, the actors around them in `drowse-actors`. A program that
//! wants a daemon of its own starts with [`Daemon::builder`]:
//!
//! ```no_run
//! use drowse::{Daemon, ServeOptions};
//!
//! fn main() -> std::process::ExitCode {
//!     // Keepers are this same program, asked by its arguments; so this comes first.
//!     if let Some(code) = drowse::keeper_if_asked() {
//!         return code;
//!     }
//!     match ServeOptions::of_process() {
//!         Ok(options) => Daemon::builder(options).run(),
//!         Err(error) => {
//!             eprintln!("{error}");
//!             std::process::ExitCode::FAILURE
//!         }
//!     }
//! }
//! ```
//!
//! Public items never mention types of nix, rustix or crossbeam.

pub mod adapter;
mod adapters;
mod backend;
mod chain;
pub mod cli;
pub mod clock;
pub mod config;
mod daemon;
mod demo;
pub mod exit;
mod extension;
pub mod http;
mod key;
mod kit;
mod lock;
mod memory;
pub mod paths;
pub mod process;
mod redact;
mod relay;
mod signals;
pub mod store;
mod successor;
mod telemetry;
pub mod token;
mod trees;

use std::process::ExitCode;

pub use daemon::{Daemon, DaemonBuilder, ServeOptions};
pub use drowse_actors::{DaemonHandle, EventStream, HoldGuard};
pub use drowse_messages as messages;
pub use extension::ExtensionContext;

/// Becomes a keeper if this process was started as one. Call it first in `main`, before anything
/// is set up: a keeper is meant to stay tiny.
#[must_use]
pub fn keeper_if_asked() -> Option<ExitCode> {
    process::keeper::run_if_asked()
}

/// All of `main`.
#[must_use]
pub fn main_impl() -> ExitCode {
    keeper_if_asked()
        .or_else(demo::agent_if_asked)
        .unwrap_or_else(|| cli::main(std::env::args_os()))
}
