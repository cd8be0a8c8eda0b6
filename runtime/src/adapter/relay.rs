//! What stands between a host and the agent it believes to have started itself.
//!
//! A relayed session's host writes the agent's protocol and reads it; its [`Observer`] only
//! listens. A [`Relay`] is the filter that makes a release invisible: it remembers the host's
//! handshake, says it again to the next process in the same conversation, and keeps from the host
//! what it did not ask for. Fed by the backend's link with whole lines, before they are passed on.
//! Pure, like an observer. Invariant: until a process was released once, every line passes as it
//! came.
//!
//! [`Observer`]: super::Observer

use std::fmt;

/// What becomes of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It goes on, byte for byte.
    AsIs,
    /// This goes on instead, with its line ends; more than one line if need be.
    Instead(Vec<u8>),
    /// It ends here.
    Swallowed,
    /// It ends here, and whoever wrote it is answered by this, with its line ends; more than one
    /// line if need be.
    Answered(Vec<u8>),
}

/// See the module.
#[expect(
    clippy::wrong_self_convention,
    reason = "`from` says who speaks, nothing is converted"
)]
pub trait Relay: Send + fmt::Debug {
    /// Called once after a launch that takes a conversation up again: the host's handshake, as
    /// lines for the agent. A first launch is the host's own affair: this is not called.
    fn reopen(&mut self) -> Vec<Vec<u8>>;
    /// True when lines of the host may pass. Always at a first launch; after [`Relay::reopen`],
    /// once the agent has answered all of it.
    fn is_open(&self) -> bool;
    /// A line of the host's, without its end, before the agent or the observer sees it.
    fn from_host(&mut self, line: &[u8]) -> Pass;
    /// A line of the agent's, without its end, after the observer and before the host sees it.
    /// Answers to what the observer itself wrote are swallowed here.
    fn from_agent(&mut self, line: &[u8]) -> Pass;
    /// True when a line of the host's is no sign of use, such as a ping or a query: it wakes
    /// nothing that could do without it and moves no idle clock.
    fn is_idle_talk(&self, line: &[u8]) -> bool {
        let _ = line;
        false
    }
    /// All that the relay of the next process needs, at most 1 MiB. It outlives the process, on
    /// disk, sealed: it holds what hosts give to agents.
    fn memory(&self) -> Vec<u8>;
}
