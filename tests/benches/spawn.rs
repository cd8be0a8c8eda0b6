//! What a start through a keeper costs: `cargo bench -p drowse-tests --bench spawn`.
//!
//! A tiny child's first byte, with little and with much memory, and with many descriptors in the
//! parent. The floor is the same child started directly, by `posix_spawn`; `fork` is what the standard
//! library does instead as soon as something must be done between fork and exec. The parent is
//! this program; keepers are the real program, another one if `DROWSE_BENCH_PROGRAM` names it.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use drowse::process::spawn::KeeperProgram;
use drowse_tests::measure::backend::{Backend, keeper_program};
use drowse_tests::measure::{Bar, Samples, heading, line, millis, row, wanted};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::getgid;
use tokio::io::AsyncReadExt;

/// The child: writes two bytes and ends.
const TINY: [&str; 2] = ["/bin/echo", "x"];
/// Starts of each kind in each state of the parent.
const STARTS: usize = 1_000;
/// Of those by fork, which take most of the time.
const FORKS: usize = 100;
/// A small daemon, and one of 1 GB, in MiB.
const PARENTS_MIB: [usize; 2] = [20, 1024];
/// As many as a daemon with 1,250 awake sessions has.
const DESCRIPTORS: usize = 5_000;

fn main() {
    if wanted().is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let program = keeper_program(env!("CARGO_BIN_EXE_drowse-dup"));
    heading("first byte of a tiny child; floor: posix_spawn");
    let starts = runtime.block_on(first_byte(&program));
    judge(&starts);
}

/// What one parent took, through a keeper and without.
struct Starts {
    parent: String,
    floor: Samples,
    kept: Samples,
}

fn judge(starts: &[Starts]) {
    line("\n# bars; of minima, since only those are without the machine's other work");
    for Starts {
        parent,
        floor,
        kept,
    } in starts
    {
        let what = format!("{parent}: keeper - floor, ms");
        line(Bar::AtMost(1.5).verdict(&what, Some(kept.min() - floor.min())));
        let what = format!("{parent}: the same, of medians");
        line(Bar::AtMost(1.5).verdict(&what, Some(kept.median() - floor.median())));
    }
    let [small, large, ..] = starts else { return };
    let growth = large.kept.min() / small.kept.min();
    let what = format!("keeper, {} / {}", large.parent, small.parent);
    line(Bar::AtMost(1.2).verdict(&what, Some(growth)));
}

async fn first_byte(program: &KeeperProgram) -> Vec<Starts> {
    let mut starts = Vec::new();
    let mut ballast: Vec<u8> = Vec::new();
    for mib in PARENTS_MIB {
        // Written to, so that the pages are there.
        ballast.resize(mib << 20, 1);
        starts.push(three_ways(program, format!("parent of {mib} MiB")).await);
    }
    drop(ballast);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit that exists");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("up to the hard limit anybody may");
    let open = || File::open("/dev/null").expect("a descriptor is free");
    let descriptors: Vec<File> = (0..DESCRIPTORS).map(|_| open()).collect();
    let parent = format!("parent with {DESCRIPTORS} descriptors");
    starts.push(three_ways(program, parent).await);
    drop(descriptors);
    starts
}

async fn three_ways(program: &KeeperProgram, parent: String) -> Starts {
    let [mut floor, mut fork, mut kept] = [const { Samples::new() }; 3];
    for _ in 0..STARTS {
        direct(&mut floor, &mut Command::new(TINY[0]));
        through_keeper(&mut kept, program).await;
    }
    // By themselves: a fork leaves every page of the parent write-protected and no cache warm,
    // and whoever had the next turn would pay for it.
    for _ in 0..FORKS {
        direct(&mut fork, Command::new(TINY[0]).gid(getgid().as_raw()));
    }
    row(&format!("{parent}: posix_spawn"), "ms", &floor, None);
    row(&format!("{parent}: fork"), "ms", &fork, Some(&floor));
    row(&format!("{parent}: keeper"), "ms", &kept, Some(&floor));
    Starts {
        parent,
        floor,
        kept,
    }
}

fn direct(samples: &mut Samples, command: &mut Command) {
    let mut child = samples.time(|| {
        let piped = command
            .args(&TINY[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = piped
            .stderr(Stdio::piped())
            .spawn()
            .expect("echo is installed");
        let stdout = child.stdout.as_mut().expect("it is piped");
        stdout.read_exact(&mut [0]).expect("echo writes");
        child
    });
    child.wait().expect("the child is ours");
}

async fn through_keeper(samples: &mut Samples, program: &KeeperProgram) {
    let begun = Instant::now();
    let mut backend = Backend::start(program, &TINY, None).await;
    let read = backend.stdio.stdout.read_exact(&mut [0]).await;
    read.expect("echo writes");
    samples.push(millis(begun.elapsed()));
    backend.finish().await;
}
