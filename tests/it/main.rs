//! Tests with real processes, and tests of the repository itself.
//!
//! `launch`, `wake`, `inbox`, `idle_release`, `hold`, `keep`, `teardown`, `crash`, `recover`, `pipes`,
//! `fates`, `restart`, `cgroup`, `config`, `status`, `cli`, `attach`, `wait`, `orphans`, `pi`,
//! `ws`: one promise each, kept by the real daemon with fake agents.
//! `kit`: the test kit itself. `real_wire`: the real agents over plain pipes, which keeps the fake
//! agent and the golden transcripts honest. `tidy`: crate edges, files, and what the documents
//! claim. `real_acp`, `real_claude`, `real_codex`, `real_mcp`, `real_pi`: Drowse with the real agents,
//! by its command line. `real_codex_relay`: a relay between a host and the real agent, without Drowse
//! around it. `real_openapi`: the API against its own document, by Schemathesis. Modules
//! whose names begin with `real_` need programs that are downloaded.

mod apart;
mod attach;
mod cgroup;
mod cli;
mod config;
mod crash;
mod crowd;
mod daemon_crash;
mod extension;
mod fates;
mod hold;
mod idle_release;
mod inbox;
mod keep;
mod kit;
mod launch;
mod orphans;
mod pi;
mod pipes;
mod process;
mod real;
mod real_acp;
mod real_claude;
mod real_codex;
mod real_codex_relay;
mod real_mcp;
mod real_openapi;
mod real_pi;
mod real_wire;
mod reasons;
mod recover;
mod restart;
mod rounds;
mod status;
mod strangers;
mod takeover;
mod teardown;
mod tidy;
mod wait;
mod wake;
mod ws;
