//! Keepers, trees and the ways to escape them, with real processes and without a daemon.

mod daemon;
mod keeper;
mod orphan;
mod reap_tree;
mod standing;
mod support;
mod take_over;
