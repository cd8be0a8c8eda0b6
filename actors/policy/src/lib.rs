//! Every decision of Drowse, as pure functions of state, input and time.
//!
//! # The step contract
//!
//! [`session::Session::step`] takes a session by value with one input and the time, and returns
//! the new session with a list of [`Effect`]s. It is total: every phase answers every input, also
//! the ones that change nothing, at any time, also when time goes back. An effect is requested,
//! never awaited; its answer is another input. The order in the list is the order of execution.
//! [`session::Session::next_deadline`] says when a tick is wanted; late, early and repeated ticks
//! are harmless, because what counts is the clock, not that a timer fired.
//!
//! To add an input: add the message in `messages`, a variant in [`Input`], and let the compiler
//! list the matches.
//!
//! Invariant: nothing here reads a clock, a file or an environment, starts a thread or knows of
//! actors. The same inputs give the same effects.
#![forbid(unsafe_code)]

pub mod connections;
mod effect;
pub mod registry;
pub mod session;
pub mod trace;

pub use effect::{BackendOrder, Effect, Input};
