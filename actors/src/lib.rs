//! The actors of Drowse: thin shells around `drowse-policy`. A shell decides nothing.
//!
//! | actor | owns |
//! |---|---|
//! | [`session::SessionActor`] | one awake session: every input goes through `Session::step`, every effect to a port or an actor |
//! | [`registry::RegistryActor`] | the lifecycles: makes session actors, hands orders over, notices vanished ones, drains |
//! | [`reaper::ReaperActor`] | one step at a time on each process tree |
//! | [`status::StatusActor`] | the latest reports; answers every reader |
//! | [`bus::BusActor`] | the order of events, their record, and subscribers that may be slow |
//!
//! All of them share one arbiter, so that what one tells another arrives in order; extensions get
//! arbiters of their own. [`handle::DaemonHandle`] is the only way in for everybody else.
//!
//! Invariants: handlers are synchronous; slow work is an effect whose answer is a message; no
//! lock exists here; nothing here reads a clock, a file or a process but through [`ports`].
#![forbid(unsafe_code)]

mod adopt;
pub mod bus;
pub mod handle;
pub mod hold;
pub mod keep;
mod leftover;
pub mod ports;
pub mod reaper;
pub mod registry;
pub mod session;
pub mod status;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

#[cfg(test)]
mod tests;

pub use adopt::Recovery;
pub use bus::EventStream;
pub use handle::{Daemon, DaemonHandle, RestartAsked};
pub use hold::HoldGuard;
pub use keep::KeepWish;
