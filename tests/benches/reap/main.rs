//! How long a tree of processes takes to end, and who escapes:
//! `cargo bench -p drowse-tests --bench reap [-- CASE..] [--quick]`.
//!
//! | case | measures |
//! |---|---|
//! | `trees` | five trees |
//! | `strangers` | the same among 10,000 processes that have nothing to do with them |
//! | `escapes` | who is left of seven trees whose processes try to get away; nothing is timed |
//!
//! The floor is `cgroup.kill`; beside it, by turns, are our two tiers and what else there is to
//! end trees, as far as this machine has it (see `ways.rs`). Time counts until the descriptors of
//! all processes say that they have ended. Whatever a way leaves is ended by the bench itself.
//! `--quick` takes a fraction of the samples; without it the bench takes some minutes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drowse::process::cgroup::place::Cgroups;
use drowse::process::spawn::KeeperProgram;
use drowse_tests::measure::backend::keeper_program;
use drowse_tests::measure::{Samples, heading, line, millis, row, wanted};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

mod bars;
mod tree;
mod ways;

use tree::{Shape, Strangers, await_all, grow, open_all, processes};
use ways::Way;

/// Processes that have nothing to do with the tree.
const STRANGERS: usize = 10_000;
/// 31 processes: the tree of the bars.
const MIDDLE: &str = "31, 5 x 5 deep";
/// A way that took longer than this for a tree is not tried on the next ones.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);
/// 50 ms after a way believes to be done, those it has killed are gone.
const SETTLE: Duration = Duration::from_millis(50);
/// Looks at who is left: a process that forks its successor and ends is not in every one.
const LOOKS: usize = 3;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Samples of one way on one tree, at most.
    rounds: usize,
    /// Time for one way on one tree, its growth included; one sample is always taken.
    time: Duration,
    /// Trees of each shape whose processes escape.
    escapes: usize,
}

const FULL: Effort = Effort {
    rounds: 40,
    time: Duration::from_millis(2500),
    escapes: 5,
};
const QUICK: Effort = Effort {
    rounds: 10,
    time: Duration::from_millis(500),
    escapes: 2,
};

/// What was measured: medians in ms by tree, whether strangers were there, and way.
type Medians = BTreeMap<(&'static str, bool, String), f64>;

fn main() {
    let Some(mut cases) = wanted() else { return };
    let named = cases.len();
    cases.retain(|case| case != "--quick");
    let effort = if cases.len() < named { QUICK } else { FULL };
    let is_wanted = |case: &str| cases.is_empty() || cases.iter().any(|one| one == case);
    // A descriptor for each process of a tree.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit that exists");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("up to the hard limit anybody may");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let place = Cgroups::find(&format!("bench-{}", std::process::id()));
    if let Err(error) = &place {
        line(format_args!("no floor and no cgroup tier: {error}"));
    }
    let place = place.ok();
    let (mut ways, missing) = ways::all(place.is_some());
    for text in missing {
        line(text);
    }
    let mut bench = Bench {
        program: keeper_program(env!("CARGO_BIN_EXE_drowse-dup")),
        ways: &mut ways,
        place: place.as_ref(),
        effort,
        medians: Medians::new(),
        escaped: BTreeMap::new(),
    };
    if is_wanted("trees") {
        heading("end of a tree; floor: cgroup.kill");
        runtime.block_on(bench.trees(false));
    }
    if is_wanted("strangers") {
        heading(&format!("the same among {STRANGERS} others"));
        match Strangers::start(STRANGERS) {
            Ok(_strangers) => runtime.block_on(bench.trees(true)),
            Err(why) => line(format_args!("not run: {why}")),
        }
    }
    if is_wanted("escapes") {
        runtime.block_on(bench.escapes());
    }
    bars::judge(&bench.medians, &bench.escaped);
}

/// The tree of the bars comes first: no way has been too slow before it.
fn shapes() -> [Shape; 5] {
    [
        Shape::new(
            MIDDLE,
            "times 5[fork[times 5[fork[byte;sleep]];byte;sleep]];byte;sleep",
            31,
        ),
        Shape::chain("chain of 10", 10),
        Shape::new("201 wide", "times 200[fork[byte;sleep]];byte;sleep", 201),
        Shape::chain("chain of 100", 100),
        Shape::new(
            "1,001 in tens",
            "times 10[fork[times 9[fork[times 10[fork[byte;sleep]];byte;sleep]];byte;sleep]];byte;sleep",
            1_001,
        ),
    ]
}

/// Trees whose processes get away from those who only look down from the root, or only once.
fn escape_shapes() -> [Shape; 7] {
    let shape = Shape::new;
    [
        shape("setsid", "fork[setsid;byte;sleep];byte;sleep", 2),
        shape("double fork", "fork[fork[byte;sleep];exit 0];byte;sleep", 2),
        shape(
            "double fork, setsid",
            "fork[setsid;fork[byte;sleep];exit 0];byte;sleep",
            2,
        ),
        shape(
            "child of a thread",
            "thread[fork[byte;sleep];sleep];byte;sleep",
            2,
        ),
        shape("respawner", "fork[respawn[setsid;sleep]];byte;sleep", 1),
        shape(
            "fork race",
            "times 3[fork[byte;times 200[fork[sleep]];sleep]];byte;sleep",
            4,
        ),
        shape("runner", "fork[runner];byte;sleep", 1),
    ]
}

struct Bench<'a> {
    program: KeeperProgram,
    ways: &'a mut [Way],
    place: Option<&'a Cgroups>,
    effort: Effort,
    medians: Medians,
    /// The most survivors of one tree, by way; ours alone count for the bars.
    escaped: BTreeMap<String, usize>,
}

impl Bench<'_> {
    async fn trees(&mut self, among_strangers: bool) {
        // Whoever was too slow for a tree is left out of larger ones.
        let mut slow: Vec<String> = Vec::new();
        for shape in &shapes() {
            let mut samples: Vec<Samples> = self.ways.iter().map(|_| Samples::new()).collect();
            let mut spent: Vec<Duration> = self.ways.iter().map(|_| Duration::ZERO).collect();
            for round in 0..self.effort.rounds {
                for (at, way) in self.ways.iter_mut().enumerate() {
                    let is_slow = slow.iter().any(|name| name == way.name());
                    if is_slow || (round > 0 && spent[at] > self.effort.time) {
                        continue;
                    }
                    let begun = Instant::now();
                    samples[at].push(end(&self.program, shape, way, self.place).await);
                    spent[at] += begun.elapsed();
                }
            }
            self.note(shape, among_strangers, &samples, &mut slow);
        }
    }

    /// Prints one shape's rows and keeps their medians.
    fn note(&mut self, shape: &Shape, among: bool, samples: &[Samples], slow: &mut Vec<String>) {
        let floor = self.ways.iter().zip(samples);
        let floor = floor.clone().find(|(way, _)| matches!(way, Way::Kernel));
        let floor = floor.map(|(_, samples)| samples);
        for (way, samples) in self.ways.iter().zip(samples) {
            let case = format!("{}: {}", shape.name, way.name());
            let median = samples.median();
            if median.is_nan() {
                line(format_args!("{case}: not run, it was too slow before"));
                continue;
            }
            row(
                &case,
                "ms",
                samples,
                floor.filter(|_| !matches!(way, Way::Kernel)),
            );
            if median > millis(GIVE_UP_AFTER) {
                slow.push(way.name().to_owned());
            }
            let key = (shape.name, among, way.name().to_owned());
            self.medians.insert(key, median);
        }
    }

    async fn escapes(&mut self) {
        heading("who escapes: survivors of the worst of several trees");
        let (program, place) = (&self.program, self.place);
        for shape in &escape_shapes() {
            for way in self.ways.iter_mut() {
                let mut counts = Vec::new();
                for _ in 0..self.effort.escapes {
                    counts.push(survivors(program, shape, way, place).await);
                }
                let worst = counts.iter().copied().max().unwrap_or(0);
                let of = counts.iter().filter(|count| **count > 0).count();
                let case = format!("{}: {}", shape.name, way.name());
                let trees = counts.len();
                line(format_args!(
                    "{case:58} {worst:>6} left, in {of} of {trees} trees"
                ));
                let most = self.escaped.entry(way.name().to_owned()).or_default();
                *most = worst.max(*most);
            }
        }
    }
}

/// Grows a tree and ends it; the milliseconds until all of it had ended.
async fn end(
    program: &KeeperProgram,
    shape: &Shape,
    way: &mut Way,
    place: Option<&Cgroups>,
) -> f64 {
    let tree = grow(program, shape, place.filter(|_| way.needs_cgroup())).await;
    let all = processes(&tree);
    assert_eq!(all.len(), shape.bytes, "{}", shape.name);
    let pidfds = open_all(&all);
    let begun = Instant::now();
    way.end(&tree);
    let left = await_all(&pidfds);
    let took = begun.elapsed();
    if left > 0 {
        line(format_args!("{} left {left} of {}", way.name(), shape.name));
    }
    tree.finish().await;
    millis(took)
}

/// Grows a tree whose processes try to get away, ends it, and counts who is left.
async fn survivors(
    program: &KeeperProgram,
    shape: &Shape,
    way: &mut Way,
    place: Option<&Cgroups>,
) -> usize {
    let tree = grow(program, shape, place.filter(|_| way.needs_cgroup())).await;
    way.end(&tree);
    std::thread::sleep(SETTLE);
    let counts = (0..LOOKS).map(|_| processes(&tree).len());
    let left = counts.max().unwrap_or(0);
    tree.finish().await;
    left
}
