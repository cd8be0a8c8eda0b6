//! Tests with real processes, and tests of the repository itself.
//!
//! Most modules are one promise each, kept by the real daemon with fake agents. `process` has none:
//! keepers and trees alone. `kit`: the test kit itself. `tidy`: crate edges, files, and what the
//! documents claim. Modules whose names begin with `real_` need programs that are downloaded:
//! agents, spoken to through Drowse, through a relay alone, or over plain pipes (`real_wire`, which
//! keeps the fake agent and the golden transcripts honest), and Schemathesis.

mod account;
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
mod observed;
mod orphans;
mod pi;
mod pipes;
mod process;
mod programs;
mod real;
mod real_acp;
mod real_acp_relay;
mod real_claude;
mod real_codex;
mod real_codex_relay;
mod real_hosts;
mod real_kit;
mod real_mcp;
mod real_openapi;
mod real_pi;
mod real_pi_switch;
mod real_relay;
mod real_steer;
mod real_wire;
mod reasons;
mod recover;
mod relay;
mod restart;
mod rounds;
mod status;
mod strangers;
mod takeover;
mod teardown;
mod tidy;
mod told;
mod typescript;
mod wait;
mod wake;
mod writers;
mod ws;
