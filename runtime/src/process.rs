//! Processes: starting them under a keeper, listing their trees, ending them.
//!
//! Layers, each using only those above it: [`table`] reads `/proc`, [`signal`] sends signals (and
//! is the only place that does), [`reap`] ends trees, [`control`] is what daemon and keeper say to
//! each other, [`keeper`] is the small process above each backend, [`spawn`] starts one,
//! [`link`] is the daemon's end of its control socket, also of one that an earlier daemon started,
//! [`reaper`] runs blocking steps on threads, [`orphans`] finds trees that nobody owns.
//!
//! `socket.rs` is where the next daemon finds a keeper, `launch.rs` starts the agent, and
//! `standing.rs` has what that must not inherit.
//!
//! Invariant: everything an agent starts stays below its keeper by kernel rule (the keeper is its
//! subreaper), so a walk down from the keeper finds all of it, and nothing else.

pub mod adopted;
pub mod cgroup;
pub mod control;
pub mod find;
pub mod keeper;
mod launch;
pub mod link;
mod listening;
pub mod orphans;
pub mod reap;
pub mod reaper;
pub mod signal;
mod socket;
pub mod spawn;
mod standing;
pub mod sweep;
pub mod table;
