//! The test kit: everything Drowse's tests need that is not Drowse.
//!
//! - [`wait`]: wait for facts, never for a time.
//! - [`proxy`]: stands between a client and the daemon, and breaks connections.
//! - [`process`]: processes by identity, and the guard that fails a test which leaves one behind.
//! - [`piped`]: a program spoken to in lines over plain pipes.
//! - [`fake`]: the scripted fake agent (`bin/fake_agent`): its home, behaviour and log.
//! - [`canary`]: a stranger that notes every signal it gets.
//! - [`watcher`]: a client of a socket that subscribes and reads nothing.
//! - [`rng`]: chance that is decided by a seed.
//! - [`golden`]: recorded transcripts of real agents.
//! - [`measure`]: samples and rows of the programs in `benches`.
//! - [`mock_model`]: a model server scripted by the text of the conversation.
//! - [`cli`]: a running Drowse, driven by its command line as a user would.
//! - [`mod@daemon`]: the real daemon with fake agents, asked through its client.
//! - [`schemathesis`]: holds an API against its document.
//! - [`terminal`]: a program at a terminal, and what is typed there.
//! - [`agents`]: the real agents, installed on first use and pointed at the mock model.
//!
//! Invariant: whatever a test starts through this kit is gone when its guards are dropped.

pub mod agents;
pub mod canary;
pub mod cli;
pub mod daemon;
pub mod fake;
pub mod golden;
pub mod host;
pub mod measure;
pub mod mock_model;
pub mod piped;
pub mod process;
pub mod proxy;
pub mod rng;
pub mod schemathesis;
pub mod terminal;
pub mod wait;
pub mod watcher;

pub use agents::RealAgent;
pub use canary::Canary;
pub use daemon::TestDaemon;
pub use fake::FakeAgent;
pub use mock_model::MockModel;
pub use piped::PipedAgent;
pub use process::{ProcIdentity, TreeGuard};
pub use terminal::Terminal;
pub use wait::{CEILING, scaled, wait_until};
