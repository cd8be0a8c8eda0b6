//! What `drowse run` costs a line on its way from a host to its agent and back:
//! `cargo bench -p drowse-tests --bench relay [-- CASE..]`.
//!
//! | case | measures |
//! |---|---|
//! | `trips` | one line there and back at a time, of 200 B, 4 KB and 1 MB |
//! | `flood` | lines of 1 MB one behind the other, and of 4 KB on a hundred streams at once |
//! | `memory` | the daemon before and after a hundred lines of 10 MB |
//!
//! The agent is `cat`. The floor is a pipe to it; beside it, by turns, are `drowse run` (bytes pass
//! as they are: protocol raw), socat where it is found, and a proxy in Node that reads each line as
//! JSON and writes it again, as hosts do it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use drowse_tests::measure::{Bar, Cost, Samples, heading, line, millis, row, wanted};
use drowse_tests::{TreeGuard, wait_until};
use tempfile::TempDir;

const DROWSE: &str = env!("CARGO_BIN_EXE_drowse-dup");
const TRIPS: [(usize, usize); 3] = [(200, 2000), (4096, 2000), (1 << 20, 60)];
const STREAMS: usize = 100;
/// How long a flood goes on.
const FLOOD: Duration = Duration::from_secs(3);
const CEILING: Duration = Duration::from_secs(60);
/// What ends a flood.
const LAST: &[u8] = b"{\"last\":1}\n";
const MIB: f64 = 1024.0 * 1024.0;

const NODE_PROXY: &str = "
const { spawn } = require('child_process');
const child = spawn('cat', { stdio: ['pipe', 'pipe', 'inherit'] });
const lines = (from, to) => require('readline').createInterface({ input: from })
    .on('line', line => to.write(JSON.stringify(JSON.parse(line)) + '\\n'))
    .on('close', () => to.end && to.end());
lines(process.stdin, child.stdin);
lines(child.stdout, process.stdout);
";

/// A way from a host to `cat`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Pipe,
    Drowse,
    Socat,
    Node,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Drowse => "drowse run",
            Self::Socat => "socat",
            Self::Node => "Node proxy",
        }
    }

    fn is_here(self) -> bool {
        let program = match self {
            Self::Pipe | Self::Drowse => return true,
            Self::Socat => "socat",
            Self::Node => "node",
        };
        let asked = Command::new(program).arg("-h").output();
        asked.is_ok()
    }
}

/// A daemon of the bench's own.
struct Stage {
    guard: TreeGuard,
    folder: TempDir,
    daemon: Child,
}

impl Stage {
    fn set() -> Self {
        let guard = TreeGuard::new("relay");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut serve = drowse(&folder, &guard, &["serve"]);
        let serve = serve.stdin(Stdio::null()).stderr(Stdio::null());
        let daemon = serve
            .spawn()
            .expect("the program was built with the benches");
        wait_until("the daemon", CEILING, || {
            let mut asked = drowse(&folder, &guard, &["ps", "--no-start"]);
            asked.output().ok()?.status.success().then_some(())
        });
        Self {
            guard,
            folder,
            daemon,
        }
    }

    fn open(&self, way: Way) -> Stream {
        let mut command = match way {
            Way::Pipe => Command::new("cat"),
            Way::Drowse => drowse(&self.folder, &self.guard, &["run", "--", "cat"]),
            Way::Socat => {
                let mut socat = Command::new("socat");
                socat.args(["-b", "65536", "-", "EXEC:cat"]);
                socat
            }
            Way::Node => {
                let mut node = Command::new("node");
                node.args(["-e", NODE_PROXY]);
                node
            }
        };
        let (mark, value) = self.guard.env();
        command.env(mark, value);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it is there");
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = BufReader::with_capacity(1 << 16, child.stdout.take().expect("it is piped"));
        let mut stream = Stream {
            child,
            stdin,
            stdout,
        };
        // What it takes to start is not the question.
        stream.trip(&text(16));
        stream
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.daemon.id().cast_signed());
        let _gone = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _gone = self.daemon.wait();
    }
}

fn drowse(folder: &TempDir, guard: &TreeGuard, args: &[&str]) -> Command {
    let mut command = Command::new(DROWSE);
    let (mark, value) = guard.env();
    command.arg("--state-dir").arg(folder.path().join("state"));
    command.args(args).env(mark, value);
    command
}

struct Stream {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Stream {
    /// A line there and back. Written beside the reading: neither way holds a whole one.
    fn trip(&mut self, text: &[u8]) -> Duration {
        let begun = Instant::now();
        let Self { stdin, stdout, .. } = self;
        thread::scope(|scope| {
            if text.len() > 1 << 15 {
                scope.spawn(|| stdin.write_all(text).expect("it reads"));
            } else {
                stdin.write_all(text).expect("it reads");
            }
            let mut back = Vec::with_capacity(text.len());
            stdout.read_until(b'\n', &mut back).expect("it answers");
            assert_eq!(back.len(), text.len());
        });
        begun.elapsed()
    }

    /// Lines without waiting for the ones before; how many came back, in how long.
    fn flood(mut self, text: &[u8]) -> f64 {
        let begun = Instant::now();
        let Self { stdin, stdout, .. } = &mut self;
        let mut back = 0_usize;
        thread::scope(|scope| {
            scope.spawn(move || {
                while begun.elapsed() < FLOOD {
                    stdin.write_all(text).expect("it reads");
                }
                stdin.write_all(LAST).expect("it reads");
            });
            let mut buffer = vec![0; 1 << 16];
            let mut end = Vec::new();
            while !end.ends_with(LAST) {
                let length = stdout.read(&mut buffer).expect("it answers");
                back += length;
                end.extend(&buffer[length.saturating_sub(LAST.len())..length]);
                end.drain(..end.len().saturating_sub(LAST.len()));
            }
        });
        let lines = back / text.len();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let lines = lines as f64;
        lines / begun.elapsed().as_secs_f64()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A line of JSON, so long with its end.
fn text(bytes: usize) -> Vec<u8> {
    let filler = "x".repeat(bytes.saturating_sub(9));
    format!("{{\"a\":\"{filler}\"}}\n").into_bytes()
}

fn main() {
    let Some(cases) = wanted() else { return };
    let is_wanted = |case: &str| cases.is_empty() || cases.iter().any(|one| one == case);
    let stage = Stage::set();
    let mut ways = vec![Way::Pipe, Way::Drowse, Way::Socat, Way::Node];
    ways.retain(|way| {
        let is_here = way.is_here();
        if !is_here {
            line(format_args!("{}: not found, not run", way.name()));
        }
        is_here
    });
    if is_wanted("trips") {
        trips(&stage, &ways);
    }
    if is_wanted("flood") {
        floods(&stage, &ways);
    }
    if is_wanted("memory") {
        memory(&stage);
    }
}

fn trips(stage: &Stage, ways: &[Way]) {
    heading("a line there and back; floor: a pipe");
    for (bytes, count) in TRIPS {
        let text = text(bytes);
        let mut streams: Vec<Stream> = ways.iter().map(|way| stage.open(*way)).collect();
        let mut samples: Vec<Samples> = ways.iter().map(|_| Samples::new()).collect();
        for _ in 0..count {
            for (stream, samples) in streams.iter_mut().zip(&mut samples) {
                samples.push(millis(stream.trip(&text)) * 1e3);
            }
        }
        for (way, own) in ways.iter().zip(&samples) {
            let floor = samples.first().filter(|_| *way != Way::Pipe);
            row(&format!("{bytes} B: {}", way.name()), "us", own, floor);
        }
        if bytes == TRIPS[0].0 {
            judge(
                ways,
                &samples,
                Way::Socat,
                "p50 of 200 B beside socat",
                Bar::AtMost(1.2),
            );
        }
    }
}

fn floods(stage: &Stage, ways: &[Way]) {
    heading("lines without waiting; floor: a pipe");
    let big = text(1 << 20);
    let single: Vec<Samples> = ways
        .iter()
        .map(|way| Samples::from(stage.open(*way).flood(&big)))
        .collect();
    show("1 stream of 1 MB", "MB/s", ways, &single);
    judge(
        ways,
        &single,
        Way::Node,
        "1 MB lines beside Node",
        Bar::AtLeast(8.0),
    );
    let small = text(4096);
    let many: Vec<Samples> = ways
        .iter()
        .map(|way| Samples::from(flood_many(stage, *way, &small)))
        .collect();
    show(
        &format!("{STREAMS} streams of 4 KB"),
        "lines/s",
        ways,
        &many,
    );
    judge(
        ways,
        &many,
        Way::Node,
        "100 x 4 KB beside Node",
        Bar::AtLeast(4.0),
    );
}

fn flood_many(stage: &Stage, way: Way, text: &[u8]) -> f64 {
    let streams: Vec<Stream> = (0..STREAMS).map(|_| stage.open(way)).collect();
    thread::scope(|scope| {
        let floods: Vec<_> = streams
            .into_iter()
            .map(|stream| scope.spawn(move || stream.flood(text)))
            .collect();
        floods
            .into_iter()
            .map(|it| it.join().expect("it came back"))
            .sum()
    })
}

fn show(case: &str, unit: &str, ways: &[Way], samples: &[Samples]) {
    for (way, own) in ways.iter().zip(samples) {
        let floor = samples.first().filter(|_| *way != Way::Pipe);
        row(&format!("{case}: {}", way.name()), unit, own, floor);
    }
}

/// Ours beside another way's, in medians.
fn judge(ways: &[Way], samples: &[Samples], other: Way, what: &str, bar: Bar) {
    let median = |wanted: Way| {
        let at = ways.iter().position(|way| *way == wanted)?;
        Some(samples.get(at)?.median())
    };
    let ratio = median(Way::Drowse)
        .zip(median(other))
        .map(|(ours, theirs)| ours / theirs);
    line(bar.verdict(what, ratio));
}

fn memory(stage: &Stage) {
    heading("memory of the daemon");
    let pid = stage.daemon.id().cast_signed();
    let before = Cost::of(pid).pss_bytes;
    let mut stream = stage.open(Way::Drowse);
    let text = text(10 << 20);
    for _ in 0..100 {
        stream.trip(&text);
    }
    let after = Cost::of(pid).pss_bytes;
    row("before", "MiB PSS", &Samples::from(before / MIB), None);
    row(
        "after 100 lines of 10 MB",
        "MiB PSS",
        &Samples::from(after / MIB),
        None,
    );
    let grown = (after - before) / MIB;
    line(Bar::AtMost(10.0).verdict("grown by, MiB", Some(grown)));
}
