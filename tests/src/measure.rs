//! Measuring: samples, rows of figures, and what the kernel says a process costs.
//!
//! Fed by: the programs in `benches`. No figure here fails anything: a [`Bar`] says in words
//! whether it is met.
//! Invariant: a ratio is of two cases that took turns within one run, because figures of two runs
//! on one machine differ by more than what they are meant to show.

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

pub mod backend;

/// Bytes in a KiB, the unit of `/proc`.
const KIB: f64 = 1024.0;

/// What was measured of one case, each value in the unit of its row.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a value.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Runs `work` and adds the milliseconds it took.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = work();
        self.push(millis(begun.elapsed()));
        result
    }

    /// The value below which this share (0 to 1) of all lies; NaN when there is none.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a number of samples is a small positive number"
    )]
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1) as f64;
        let place = (share * last).round() as usize;
        sorted.get(place).copied().unwrap_or(f64::NAN)
    }

    /// The smallest value.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    /// The largest value.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// The value in the middle.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

impl From<f64> for Samples {
    /// What was measured once.
    fn from(value: f64) -> Self {
        Self(vec![value])
    }
}

/// A duration in milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The arguments of a program under `cargo bench`: the cases that are wanted, all when empty.
/// `None` when it was started otherwise, as `cargo test --all-targets` does: then it is to do
/// nothing.
#[must_use]
pub fn wanted() -> Option<Vec<String>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let before = words.len();
    words.retain(|word| word != "--bench");
    (words.len() < before).then_some(words)
}

/// Writes a line to standard output.
pub fn line(text: impl Display) {
    // A reader that has gone needs no more figures.
    drop(writeln!(std::io::stdout(), "{text}"));
}

/// Says on which machine, in which state of it, the rows below were measured.
pub fn heading(title: &str) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |rest| {
            rest.trim_start_matches([' ', '\t', ':'])
        });
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let build = if cfg!(debug_assertions) {
        "debug build: figures mean nothing"
    } else {
        "release build"
    };
    line(format_args!(
        "\n# {title}\n{cores} x {model}, Linux {}, load {}, {build}",
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/loadavg").trim(),
    ));
    line(format_args!(
        "{:58} {:>6} {:>11} {:>11} {:>11} {:>11} {:>8}",
        "case", "n", "min", "median", "p99", "max", "x floor"
    ));
}

/// Prints one case; `floor` is what its median is compared with.
pub fn row(case: &str, unit: &str, samples: &Samples, floor: Option<&Samples>) {
    let ratio = floor.map_or_else(String::new, |floor| {
        format!("{:.2}", samples.median() / floor.median())
    });
    let value = |share| format!("{:.3}", samples.quantile(share));
    line(format_args!(
        "{:58} {:>6} {:>11} {:>11} {:>11} {:>11} {ratio:>8}",
        format!("{case}, {unit}"),
        samples.0.len(),
        value(0.0),
        value(0.5),
        value(0.99),
        value(1.0),
    ));
}

/// What a figure is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// It may not be more.
    AtMost(f64),
    /// It may not be less.
    AtLeast(f64),
}

impl Bar {
    /// The bar, the figure and whether it is met, in a line; `None`: not measured in this run.
    #[must_use]
    pub fn verdict(self, what: &str, measured: Option<f64>) -> String {
        let (sign, bound, is_met) = match self {
            Self::AtMost(bound) => ("<=", bound, measured.map(|it| it <= bound)),
            Self::AtLeast(bound) => (">=", bound, measured.map(|it| it >= bound)),
        };
        let figure = measured.map_or_else(String::new, |it| format!("{it:.2}: "));
        let verdict = match is_met {
            None => "not measured",
            Some(true) => "met",
            Some(false) => "MISSED",
        };
        format!("{what} {sign} {bound}: {figure}{verdict}")
    }
}

/// What a process has used and holds at one moment; zeros once it is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Its proportional share of memory, in bytes.
    pub pss_bytes: f64,
    /// The part of it that comes from no file, in bytes: it does not shrink when other processes
    /// run the same program, as keepers do.
    pub anon_bytes: f64,
    /// The part of it that belongs to this process alone and was written to, in bytes.
    pub private_dirty_bytes: f64,
    /// Open descriptors.
    pub descriptors: f64,
    /// Context switches of all threads that live, wanted and forced ones.
    pub switches: f64,
    /// Processor time of all threads there ever were, in milliseconds.
    pub cpu_ms: f64,
}

impl Cost {
    /// Of the process `pid`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub fn of(pid: i32) -> Self {
        let count = |path: String| fs::read_dir(path).map_or(0, Iterator::count);
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        Self {
            pss_bytes: number_after(&rollup, "Pss:") * KIB,
            anon_bytes: number_after(&rollup, "Pss_Anon:") * KIB,
            private_dirty_bytes: number_after(&rollup, "Private_Dirty:") * KIB,
            descriptors: count(format!("/proc/{pid}/fd")) as f64,
            switches: switches(pid),
            cpu_ms: cpu_ms(pid),
        }
    }
}

fn switches(pid: i32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let of_thread = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        number_after(&status, "\nvoluntary_ctxt_switches:")
            + number_after(&status, "nonvoluntary_ctxt_switches:")
    };
    threads.flatten().map(of_thread).sum()
}

/// The kernel counts in ticks of 10 ms here, on every architecture Drowse runs on.
fn cpu_ms(pid: i32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may hold spaces and brackets, so fields are counted from the last bracket.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|text| text.parse::<f64>().ok())
        .sum::<f64>()
        * 10.0
}

/// The number that follows `key`; 0 when there is none.
fn number_after(text: &str, key: &str) -> f64 {
    let found = text.find(key).map(|at| &text[at + key.len()..]);
    let word = found.and_then(|rest| rest.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let mut samples = Samples::default();
        assert!(samples.median().is_nan());
        (1..=101)
            .rev()
            .for_each(|value| samples.push(f64::from(value)));
        let shares = [0.0, 0.5, 0.99, 1.0].map(|share| samples.quantile(share));
        assert_eq!(shares, [1.0, 51.0, 100.0, 101.0]);
    }

    #[test]
    fn a_bar_is_met_or_missed_or_not_measured() {
        let bar = Bar::AtMost(1.2);
        assert_eq!(bar.verdict("growth", Some(1.2)), "growth <= 1.2: 1.20: met");
        assert_eq!(
            bar.verdict("growth", Some(2.0)),
            "growth <= 1.2: 2.00: MISSED"
        );
        assert_eq!(bar.verdict("growth", None), "growth <= 1.2: not measured");
        let faster = Bar::AtLeast(50.0).verdict("faster", Some(49.0));
        assert_eq!(faster, "faster >= 50: 49.00: MISSED");
    }

    #[test]
    fn a_process_costs_something_until_it_is_gone() {
        let pid = i32::try_from(std::process::id()).expect("a pid fits into i32");
        let cost = Cost::of(pid);
        assert!(cost.pss_bytes > 0.0 && cost.descriptors >= 3.0, "{cost:?}");
        assert!(cost.switches > 0.0, "{cost:?}");
        // No process can have this number: the kernel's greatest is 2^22.
        assert_eq!(Cost::of(i32::MAX), Cost::default());
    }
}
