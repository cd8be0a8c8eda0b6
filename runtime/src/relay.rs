//! Relayed sessions: `drowse run` stands in an agent's place for a host that started it.
//!
//! | module | is |
//! |---|---|
//! | `frame` | what shim and daemon say to each other over the relay socket |
//! | `server`, `open` | the daemon's end of it: who may connect, and for which session |
//! | `hub`, `host`, `connection`, `queue`, `scratch` | what is known of each host, shared by its connection and its agent's link |
//! | `tally` | how far a host's bytes have come, also when the daemon is gone |
//! | `shim` | the other end: the process that the host sees |
//!
//! The shim moves bytes and understands none; what a line means, and whether the agent gets it
//! now, later or not at all, is the link's and policy's affair. Both sides count bytes, and each
//! keeps what the other has not confirmed, so that a daemon can be replaced, or die, between any
//! two of them. Everything here but the shim lives on the arbiter of the core actors, so a line
//! crosses no thread. The design is in `docs/design/relay.md`.

mod connection;
mod frame;
mod guess;
mod host;
mod hub;
mod open;
mod queue;
mod scratch;
mod server;
pub(crate) mod shim;
mod tally;

use std::path::{Path, PathBuf};

pub(crate) use frame::ToShim;
pub(crate) use host::{Host, Verdict, without_end};
pub(crate) use hub::Hub;
pub(crate) use server::Server;

/// Where the relay socket of the daemon behind `socket` is: beside it.
pub(crate) fn socket_beside(socket: &Path) -> PathBuf {
    socket.with_extension("relay")
}
