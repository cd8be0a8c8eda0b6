//! A simulation of the whole of Drowse but its I/O: sessions, registry, a faulty world around
//! them, days of virtual time, thousands of steps, everything decided by one seed.
//!
//! `SEED=n cargo test -p drowse-tests --test sim` lives one life again and prints its end;
//! `SEEDS=n` lives that many.

mod agent;
mod checkers;
mod client;
mod faults;
mod table;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use world::World;

/// Lives of an ordinary test run.
const SEEDS: u64 = 200;

/// Lives one life; says how many deliveries it took, and its last lines.
fn live(seed: u64) -> (u64, String) {
    let mut world = World::new(seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.live()));
    let lines: Vec<&str> = world.trace.iter().map(String::as_str).collect();
    let trace = lines.join("\n");
    if let Err(panic) = outcome {
        let faults = &world.faults;
        #[expect(
            clippy::print_stderr,
            reason = "a failure must say how to see it again"
        )]
        {
            eprintln!("{trace}\n{faults:?}\nSEED={seed}");
        }
        resume_unwind(panic);
    }
    (world.deliveries, trace)
}

/// Whatever goes wrong: no session has two process trees, nothing of a released one is left, no
/// message is lost or heard twice, no more starts are granted than allowed; and once nothing goes
/// wrong any more, everything comes to rest.
#[test]
fn every_life_keeps_the_promises() {
    if let Some(seed) = number_from("SEED") {
        let (deliveries, trace) = live(seed);
        println!("{trace}\nSEED={seed}: {deliveries} deliveries");
        return;
    }
    let seeds = number_from("SEEDS").unwrap_or(SEEDS);
    let deliveries: u64 = (0..seeds).map(|seed| live(seed).0).sum();
    let too_few = "so few deliveries that little can have happened";
    assert!(deliveries > seeds * 500, "{deliveries}: {too_few}");
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The same seed gives the same life.
#[test]
fn a_life_can_be_lived_again() {
    assert_eq!(live(4711), live(4711));
}
