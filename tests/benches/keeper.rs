//! What 100 keepers cost while nothing happens: `cargo bench -p drowse-tests --bench keeper`.
//!
//! Agents that sleep, a keeper above each. Of every keeper: its memory, its descriptors, and how
//! often it was given the processor in 10 s at rest, which is to be never. Keepers are the real
//! program, another one if `DROWSE_BENCH_PROGRAM` names it. They share the pages of the program;
//! what one alone would pay is in the row of a single keeper.

use std::thread;
use std::time::Duration;

use drowse::process::spawn::KeeperProgram;
use drowse_tests::measure::backend::{Backend, keeper_program};
use drowse_tests::measure::{Bar, Cost, Samples, heading, line, row, wanted};

/// The bar's number of keepers.
const KEEPERS: usize = 100;
/// The agent: it does nothing.
const AGENT: [&str; 2] = ["/bin/sleep", "1000"];
/// The time in which nothing is to happen.
const REST: Duration = Duration::from_secs(10);

fn main() {
    if wanted().is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let program = keeper_program(env!("CARGO_BIN_EXE_drowse-dup"));
    heading("keepers whose agents sleep");
    let _alone = runtime.block_on(keepers(&program, 1));
    let (memory, switches) = runtime.block_on(keepers(&program, KEEPERS));
    line("\n# bars");
    let verdict = Bar::AtMost(1024.0).verdict("memory of the worst, KiB PSS", Some(memory.max()));
    line(verdict);
    line(Bar::AtMost(0.0).verdict("switches of the worst in 10 s", Some(switches.max())));
}

/// Prints what so many keepers cost; their memory and their switches.
async fn keepers(program: &KeeperProgram, count: usize) -> (Samples, Samples) {
    let mut alive = Vec::new();
    for _ in 0..count {
        alive.push(Backend::start(program, &AGENT, None).await);
    }
    let costs = || -> Vec<Cost> {
        let pids = alive.iter().map(|backend| backend.link.keeper().pid());
        pids.map(Cost::of).collect()
    };
    let before = costs();
    thread::sleep(REST);
    let after = costs();
    let [mut memory, mut dirty, mut descriptors, mut switches] = [const { Samples::new() }; 4];
    for (before, after) in before.iter().zip(&after) {
        memory.push(after.pss_bytes / 1024.0);
        dirty.push(after.private_dirty_bytes / 1024.0);
        descriptors.push(after.descriptors);
        switches.push(after.switches - before.switches);
    }
    let case = |what: &str| format!("{count}: {what} of each");
    row(&case("memory"), "KiB PSS", &memory, None);
    row(&case("private memory written to"), "KiB", &dirty, None);
    row(&case("descriptors"), "open", &descriptors, None);
    row(
        &case("context switches"),
        "in 10 s at rest",
        &switches,
        None,
    );
    for backend in alive {
        backend.finish().await;
    }
    (memory, switches)
}
