//! Chance that can be had again: a generator that is decided by its seed alone.
//!
//! Fed by: the simulation and the tests that make up their own rounds. Not for secrets.

use std::time::Duration;

/// What a seed is called in the environment of the tests with real processes.
pub const SEED: &str = "DROWSE_SEED";

/// The seed asked for in the environment ([`SEED`]), or `usual`.
#[must_use]
pub fn seed_or(usual: u64) -> u64 {
    let asked = std::env::var(SEED).ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A generator of its own (splitmix64): the same seed gives the same life, on every machine and
/// with every version of every crate.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True this many times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// Up to `most`; short ones are as likely as long ones.
    pub fn time(&mut self, most: Duration) -> Duration {
        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        let range = millis >> self.below(12);
        Duration::from_millis(self.below(range + 1))
    }

    /// Less than `most`, to the millisecond, each as likely as any other.
    pub fn evenly(&mut self, most: Duration) -> Duration {
        Duration::from_millis(self.below(u64::try_from(most.as_millis()).unwrap_or(u64::MAX)))
    }

    /// One of several.
    ///
    /// # Panics
    /// When there are none.
    pub fn one_of<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        let at = self.below(among.len() as u64);
        &among[usize::try_from(at).expect("an index of this slice")]
    }

    /// The same things in another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for end in (1..things.len()).rev() {
            let at = self.below(end as u64 + 1);
            things.swap(end, usize::try_from(at).expect("an index of this slice"));
        }
    }
}
