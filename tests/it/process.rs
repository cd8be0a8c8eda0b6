//! Keepers, trees and the ways to escape them, with real processes and without a daemon.

mod arms;
mod daemon;
mod escapes;
mod keeper;
mod kept;
mod lost;
mod orphan;
mod reap_tree;
mod recycled;
mod standing;
mod support;
mod take_over;
mod unkillable;
