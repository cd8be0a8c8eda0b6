//! What can go wrong, as chances drawn anew for every seed.
//!
//! Every fault is off in half of the seeds: faults that are always on hide each other.

use drowse_tests::rng::Rng;

/// Chances per thousand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// A start fails before there is a process.
    pub(crate) launch_fails: u64,
    /// An agent never gets ready.
    pub(crate) never_ready: u64,
    /// An agent exits before it is ready, or in a turn.
    pub(crate) exits: u64,
    /// A turn never ends by itself.
    pub(crate) hangs: u64,
    pub(crate) ignores_interrupt: u64,
    pub(crate) ignores_eof: u64,
    pub(crate) ignores_term: u64,
    /// A process sleeps uninterruptibly for a while.
    pub(crate) unkillable: u64,
    /// A turn leaves a child, in a session of its own, below the keeper.
    pub(crate) leaves_child: u64,
    /// A child is born while the tree is being walked.
    pub(crate) forks_in_walk: u64,
    /// The end of a background task is never reported.
    pub(crate) phantom_task: u64,
    /// A line is repeated.
    pub(crate) doubled: u64,
    /// The reaper's answer is lost.
    pub(crate) lost_answer: u64,
    /// The reaper, the store or a link is slow.
    pub(crate) slow: u64,
    /// A session's actor panics when it is handed something.
    pub(crate) vanishes: u64,
    /// The daemon stands still for hours.
    pub(crate) freezes: u64,
}

impl Faults {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut draw = |most| if rng.chance(500) { 0 } else { rng.below(most) };
        Self {
            launch_fails: draw(300),
            never_ready: draw(200),
            exits: draw(200),
            hangs: draw(100),
            ignores_interrupt: draw(500),
            ignores_eof: draw(500),
            ignores_term: draw(500),
            unkillable: draw(100),
            leaves_child: draw(500),
            forks_in_walk: draw(300),
            phantom_task: draw(300),
            doubled: draw(100),
            lost_answer: draw(50),
            slow: draw(300),
            vanishes: draw(10),
            freezes: draw(5),
        }
    }
}
