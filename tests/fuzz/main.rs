//! Fuzzing of what reads agents' lines: observers, and the relays between hosts and agents.
//!
//! Each adapter is fed its own recorded transcripts, line by line, with lines left out, repeated,
//! swapped, cut, spliced, bent into another shape or filled with noise, while it is also asked to
//! prompt, answer, interrupt, leave a checkpoint and go on from it. Nothing is known of what has to
//! come out; what never may is checked: a panic, a line for the agent that is not one line, or
//! memory that grows with what went by.
//!
//! `DROWSE_FUZZ_SECONDS=60` fuzzes each adapter for so long, `SEED=n` lives one life again.

mod mutate;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use drowse::adapter::{
    Acp, Adapter, Claude, Codex, Direction, Mcp, Observer, Pass, Pi, Raw, Relay, Seen,
};
use drowse_messages::{Answer, WallTime};
use drowse_tests::golden::{self, GoldenLine};
use drowse_tests::rng::Rng;

use mutate::mutated;

/// Of each adapter, in an ordinary run: enough for some thousand lives.
const SECONDS: u64 = 2;
/// Lines of one life.
const LINES_MAX: u64 = 400;
/// What an observer may leave: the bound of the keeper that keeps it.
const CHECKPOINT_BYTES_MAX: usize = 256 * 1024;
/// What a relay may leave.
const MEMORY_BYTES_MAX: usize = 1024 * 1024;

#[test]
fn acp_survives_anything() {
    fuzz(&Acp);
}

#[test]
fn mcp_survives_anything() {
    fuzz(&Mcp);
}

#[test]
fn claude_survives_anything() {
    fuzz(&Claude);
}

#[test]
fn codex_survives_anything() {
    fuzz(&Codex);
}

#[test]
fn pi_survives_anything() {
    fuzz(&Pi);
}

#[test]
fn raw_survives_anything() {
    fuzz(&Raw);
}

/// Lives lives until the time is over, or the one asked for.
fn fuzz(adapter: &dyn Adapter) {
    let lines = recorded(adapter.protocol().as_str());
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("SEED") {
        return Life::new(adapter, &lines, seed).live();
    }
    let seconds = number("DROWSE_FUZZ_SECONDS").unwrap_or(SECONDS);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut seed = 0;
    while Instant::now() < until {
        let life = || Life::new(adapter, &lines, seed).live();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(life)) {
            drowse_tests::wait::say_aloud(&format!("SEED={seed} of {}", adapter.protocol()));
            resume_unwind(panic);
        }
        seed += 1;
    }
    assert!(seed > 0, "not one life in {seconds} s");
}

/// All transcripts of a protocol, or those of another where it has none: noise all the same.
fn recorded(protocol: &str) -> Vec<Vec<GoldenLine>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let own = fs::read_dir(root.join(protocol)).is_ok();
    let protocol = if own { protocol } else { "claude" };
    let files = fs::read_dir(root.join(protocol)).expect("recorded transcripts");
    let mut names: Vec<String> = files
        .flatten()
        .filter_map(|file| file.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".jsonl").map(ToOwned::to_owned))
        .collect();
    names.sort();
    let load = |name: &String| golden::load(&format!("{protocol}/{name}"));
    names.iter().map(load).collect()
}

/// One observer and one relay, and what happens to them.
struct Life<'a> {
    adapter: &'a dyn Adapter,
    transcripts: &'a [Vec<GoldenLine>],
    rng: Rng,
    observer: Box<dyn Observer>,
    relay: Option<Box<dyn Relay>>,
}

impl<'a> Life<'a> {
    fn new(adapter: &'a dyn Adapter, transcripts: &'a [Vec<GoldenLine>], seed: u64) -> Self {
        Self {
            adapter,
            transcripts,
            rng: Rng::new(seed),
            observer: adapter.observe(None, "fresh"),
            relay: adapter.relay(None),
        }
    }

    fn live(mut self) {
        let opened = self.observer.open();
        self.check(&opened);
        let transcript = self.rng.one_of(self.transcripts);
        let from = index(&mut self.rng, transcript.len());
        for at in 0..self.rng.below(LINES_MAX) {
            let line = match self.rng.below(10) {
                0 => {
                    let other = self.rng.one_of(self.transcripts);
                    other.get(index(&mut self.rng, other.len()))
                }
                1 => transcript.get(index(&mut self.rng, transcript.len())),
                _ => transcript.get(from + usize::try_from(at).unwrap_or(0)),
            };
            if let Some(line) = line {
                self.hear(line);
            }
            if self.rng.chance(50) {
                self.order();
            }
            if self.rng.chance(30) {
                self.go_on_elsewhere();
            }
        }
        self.observer.exited("the last words");
    }

    fn hear(&mut self, line: &GoldenLine) {
        let recorded = match line.direction {
            golden::Direction::In => Direction::In,
            golden::Direction::Out => Direction::Out,
            golden::Direction::Err | golden::Direction::Meta => return,
        };
        let direction = match (self.rng.chance(20), recorded) {
            (false, recorded) => recorded,
            (true, Direction::In) => Direction::Out,
            (true, Direction::Out) => Direction::In,
        };
        let mut bytes = line.line.clone().into_bytes();
        if self.rng.chance(300) {
            let other = self.rng.one_of(self.transcripts);
            let at = index(&mut self.rng, other.len());
            let other = other.get(at).map_or("", |line| line.line.as_str());
            bytes = mutated(&mut self.rng, &line.line, other);
        }
        let passed = match (&mut self.relay, direction) {
            (Some(relay), Direction::In) => relay.from_host(&bytes),
            (Some(relay), Direction::Out) => relay.from_agent(&bytes),
            (None, _) => Pass::AsIs,
        };
        if let Pass::Instead(lines) | Pass::Answered(lines) = &passed {
            assert!(lines.ends_with(b"\n"), "{direction:?}: {passed:?}");
        }
        let seen = self.observer.observe(direction, &bytes);
        self.check(&seen);
    }

    fn order(&mut self) {
        let seen = match self.rng.below(6) {
            0 => self
                .observer
                .prompt("do it\nagain \u{2028} \"quoted\" \\ \u{0}"),
            1 => self.observer.interrupt(),
            2 => self.observer.answer("0", &Answer::Allow),
            3 => self.observer.answer("", &Answer::Deny),
            4 => self.observer.answer("r1", &Answer::Text("\n\"".to_owned())),
            _ => self.observer.close(),
        };
        self.check(&seen);
        for line in &seen.write {
            let shown = self.observer.observe(Direction::In, line.trim_ascii_end());
            self.check(&shown);
        }
    }

    /// Another daemon, or another process of the same session, takes over.
    fn go_on_elsewhere(&mut self) {
        if let Some(checkpoint) = self.observer.checkpoint() {
            assert!(
                checkpoint.len() <= CHECKPOINT_BYTES_MAX,
                "{}",
                checkpoint.len()
            );
            if let Some((observer, seen)) = self.adapter.adopt(&checkpoint, WallTime(0)) {
                self.observer = observer;
                self.check(&seen);
            }
        }
        let memory = self.relay.as_ref().map(|relay| relay.memory());
        let Some(memory) = memory else { return };
        assert!(memory.len() <= MEMORY_BYTES_MAX, "{}", memory.len());
        self.relay = self.adapter.relay(Some(&memory));
        let Some(relay) = &mut self.relay else { return };
        for line in relay.reopen() {
            assert_is_line(&line);
        }
    }

    fn check(&self, seen: &Seen) {
        // Raw says what it is told, byte for byte.
        if self.adapter.protocol().as_str() != "raw" {
            seen.write.iter().for_each(|line| assert_is_line(line));
        }
    }
}

fn assert_is_line(line: &[u8]) {
    let ends = line.iter().filter(|&&byte| byte == b'\n').count();
    let shown = String::from_utf8_lossy(line);
    assert!(
        ends == 1 && line.ends_with(b"\n"),
        "no single line: {shown:?}"
    );
}

fn index(rng: &mut Rng, length: usize) -> usize {
    usize::try_from(rng.below(length as u64)).expect("less than a length")
}
