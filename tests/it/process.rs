//! Keepers, trees and the ways to escape them, with real processes and without a daemon.

mod daemon;
mod keeper;
mod reap_tree;
mod support;
mod take_over;
