//! Tests with real processes, and tests of the repository itself.
//!
//! `launch`, `wake`, `inbox`, `idle_release`, `hold`, `keep`, `teardown`, `crash`, `recover`, `pipes`,
//! `cgroup`, `config`, `status`, `cli`, `orphans`, `pi`, `relay`: one promise each, kept by the real daemon with
//! fake agents.
//! `kit`: the test kit itself. `real_wire`: the real agents over plain pipes, which keeps the fake
//! agent and the golden transcripts honest. `tidy`: crate edges, files, and what the documents
//! claim. `real_claude`, `real_pi`: Drowse with the real agents, by its command line. Modules
//! whose names begin with `real_` need agents that are downloaded.

mod apart;
mod cgroup;
mod cli;
mod config;
mod crash;
mod crowd;
mod daemon_crash;
mod extension;
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
mod real_claude;
mod real_pi;
mod real_wire;
mod reasons;
mod recover;
mod relay;
mod rounds;
mod status;
mod strangers;
mod takeover;
mod teardown;
mod tidy;
mod wake;
