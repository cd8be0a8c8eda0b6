//! The session's promises, as stories told in virtual time and as properties.
//!
//! A test names the rows of the list of behaviours (`B 10`) and the cases (`D19`) it proves.

mod adopt;
mod change;
mod countdown;
mod generate;
mod holds;
mod host;
mod inbox;
mod keep;
mod ladder;
mod limits;
mod observe;
mod orders;
mod properties;
mod release;
mod run;
mod starts;
mod story;
mod tasks;
mod watch;
mod world;
