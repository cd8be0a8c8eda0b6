//! What a keeper costs: `cargo bench -p drowse-tests --bench spawn [-- CASE..]`.
//!
//! | case | measures |
//! |---|---|
//! | `first-byte` | a tiny child's first byte, through a keeper, with little and with much memory and many descriptors in the parent |
//! | `keepers` | memory and context switches of 100 keepers whose agents sleep |
//!
//! The floor is the same child started directly, by `posix_spawn`; `fork` is what the standard
//! library does instead as soon as something must be done between fork and exec. The parent is
//! this program; keepers are the real program, another one if `DROWSE_BENCH_PROGRAM` names it.

use std::env;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use drowse::process::control::{Launch, ToKeeper};
use drowse::process::link::{AgentStdio, KeeperEvent, KeeperLink};
use drowse::process::reap::{Scope, run};
use drowse::process::spawn::KeeperProgram;
use drowse_messages::{ReapStep, SessionId};
use drowse_tests::measure::{Cost, Samples, heading, line, row, wanted};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getgid};
use tokio::io::AsyncReadExt;

/// Names the program whose keepers are measured.
const PROGRAM_VARIABLE: &str = "DROWSE_BENCH_PROGRAM";
/// The child: writes two bytes and ends.
const TINY: [&str; 2] = ["/bin/echo", "x"];
/// Starts of each kind in each state of the parent.
const STARTS: usize = 200;
/// A small daemon, and one of 1 GB, in MiB.
const PARENTS_MIB: [usize; 2] = [20, 1024];
/// As many as a daemon with 1,250 awake sessions has.
const DESCRIPTORS: usize = 5_000;
/// The bar's number of keepers.
const KEEPERS: usize = 100;
/// The time in which nothing is to happen.
const REST: Duration = Duration::from_secs(10);

fn main() {
    let Some(cases) = wanted() else { return };
    let is_wanted = |case: &str| cases.is_empty() || cases.iter().any(|one| one == case);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let program = program();
    if is_wanted("first-byte") {
        heading("first byte of a tiny child; floor: posix_spawn");
        runtime.block_on(first_byte(&program));
    }
    if is_wanted("keepers") {
        heading("keepers whose agents sleep");
        runtime.block_on(keepers(&program));
    }
}

fn program() -> KeeperProgram {
    let named = env::var_os(PROGRAM_VARIABLE);
    let path = named.unwrap_or_else(|| env!("CARGO_BIN_EXE_drowse-dup").into());
    line(format_args!("keepers are {}", path.display()));
    KeeperProgram::at(Path::new(&path))
}

async fn first_byte(program: &KeeperProgram) {
    let mut ballast: Vec<u8> = Vec::new();
    for mib in PARENTS_MIB {
        // Written to, so that the pages are there.
        ballast.resize(mib << 20, 1);
        three_ways(program, &format!("parent of {mib} MiB")).await;
    }
    drop(ballast);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit that exists");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("up to the hard limit anybody may");
    let open = || File::open("/dev/null").expect("a descriptor is free");
    let descriptors: Vec<File> = (0..DESCRIPTORS).map(|_| open()).collect();
    three_ways(program, &format!("parent with {DESCRIPTORS} descriptors")).await;
    drop(descriptors);
}

async fn three_ways(program: &KeeperProgram, parent: &str) {
    let [mut floor, mut fork, mut kept] = [const { Samples::new() }; 3];
    for _ in 0..STARTS {
        direct(&mut floor, &mut Command::new(TINY[0]));
        direct(&mut fork, Command::new(TINY[0]).gid(getgid().as_raw()));
        through_keeper(&mut kept, program).await;
    }
    row(&format!("{parent}: posix_spawn"), "ms", &floor, None);
    row(&format!("{parent}: fork"), "ms", &fork, Some(&floor));
    row(&format!("{parent}: keeper"), "ms", &kept, Some(&floor));
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
    let begun = std::time::Instant::now();
    let (link, mut stdio) = start(program, &TINY).await;
    let mut byte = [0];
    stdio
        .stdout
        .read_exact(&mut byte)
        .await
        .expect("echo writes");
    samples.push(drowse_tests::measure::millis(begun.elapsed()));
    finish(link).await;
}

async fn start(program: &KeeperProgram, argv: &[&str]) -> (KeeperLink, AgentStdio) {
    let launch = Launch {
        argv: argv.iter().map(Into::into).collect(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: "/".into(),
        cgroup: None,
        socket: None,
        orphan_grace: Duration::ZERO,
        eof_grace: Duration::from_millis(100),
        term_grace: Duration::from_millis(100),
        nofile: None,
    };
    let session = SessionId::from_random(1);
    let mut link = KeeperLink::spawn(program, session, launch)
        .await
        .expect("a keeper starts");
    match link.next_message().await {
        Ok(Some(KeeperEvent::Started { stdio, .. })) => (link, stdio),
        other => panic!("no agent, but {other:?}"),
    }
}

/// Lets a keeper leave, and collects it.
async fn finish(mut link: KeeperLink) {
    // It leaves by itself when its agent has ended; then there is nobody to tell.
    drop(link.send(ToKeeper::Leave).await);
    while let Ok(Some(_)) = link.next_message().await {}
    waitpid(Pid::from_raw(link.keeper().pid()), None).expect("the keeper is our child");
}

async fn keepers(program: &KeeperProgram) {
    let mut alive = Vec::new();
    for _ in 0..KEEPERS {
        alive.push(start(program, &["/bin/sleep", "1000"]).await);
    }
    let costs = || -> Vec<Cost> {
        alive
            .iter()
            .map(|(link, _)| Cost::of(link.keeper().pid()))
            .collect()
    };
    let before = costs();
    thread::sleep(REST);
    let after = costs();
    let (mut memory, mut descriptors, mut switches) =
        (Samples::default(), Samples::default(), Samples::default());
    for (before, after) in before.iter().zip(&after) {
        memory.push(after.pss_bytes / 1024.0);
        descriptors.push(after.descriptors);
        switches.push((after.switches - before.switches) / REST.as_secs_f64());
    }
    row("memory of each", "KiB PSS", &memory, None);
    row("descriptors of each", "", &descriptors, None);
    row("switches of each at rest", "1/s", &switches, None);
    for (link, _) in alive {
        run(ReapStep::Kill, &Scope::keeper(link.keeper())).expect("the tree can be looked at");
        finish(link).await;
    }
}
