//! What an agent must not inherit from the daemon: its privileges and its limits.
//!
//! Fed by: keeper.rs, just before it starts the agent. Whatever cannot be reset stays as it is: an
//! agent that runs with too much is better than none.
//! An agent does inherit the umask, the positive nice value and the positive `oom_score_adj` of
//! the daemon, as from a shell. Signals, descriptors and process group are launch.rs's.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// How willing the kernel is to end this process when memory runs out.
const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

/// Takes back what sets a daemon above the programs of its user, for this process and what it
/// starts: a negative `oom_score_adj` and a negative nice value become 0.
pub(super) fn become_ordinary() {
    let score = fs::read_to_string(OOM_SCORE_ADJ);
    if score.is_ok_and(|score| score.starts_with('-')) {
        drop(fs::write(OOM_SCORE_ADJ, "0"));
    }
    if rustix::process::getpriority_process(None).is_ok_and(|nice| nice < 0) {
        // Anybody may give priority away.
        let _ = rustix::process::setpriority_process(None, 0);
    }
}

/// Starts something under this limit of open descriptors, soft and hard. The soft limit of this
/// process is as high as the hard one again afterwards: to end a tree takes more descriptors than
/// to be one.
pub(super) fn with_descriptor_limit<T>(nofile: Option<(u64, u64)>, start: impl FnOnce() -> T) -> T {
    let Some((soft, hard)) = nofile else {
        return start();
    };
    let highest = getrlimit(Resource::RLIMIT_NOFILE).map_or(hard, |(_, highest)| highest);
    let hard = hard.min(highest);
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
    let started = start();
    let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    started
}
