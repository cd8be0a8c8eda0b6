//! Waiting for facts.
//!
//! Fed by: every test. The only place of the kit that sleeps while it waits for somebody else.
//! Invariant: a wait ends with the fact or with a panic that names what was waited for.

use std::time::{Duration, Instant};

/// How long a fact may take before a test gives up: generous, because a machine under load must
/// not fail a test; a passing test never waits that long.
pub const CEILING: Duration = Duration::from_secs(10);

/// Pause between two looks at a fact that cannot announce itself (a file, `/proc`).
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// `ceiling` times `DROWSE_TEST_PATIENCE` (a factor such as `3` or `0.5`), for slow machines.
///
/// An unset or unreadable factor counts as 1.
#[must_use]
pub fn scaled(ceiling: Duration) -> Duration {
    let factor = std::env::var("DROWSE_TEST_PATIENCE")
        .ok()
        .and_then(|text| text.parse::<f64>().ok())
        .filter(|factor| factor.is_finite() && (0.01..=1000.0).contains(factor));
    ceiling.mul_f64(factor.unwrap_or(1.0))
}

/// Looks at a fact until it is there and returns it.
///
/// # Panics
/// When `look` still gives `None` after `ceiling` (scaled by [`scaled`]); the message names `what`.
#[track_caller]
pub fn wait_until<T>(what: &str, ceiling: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let ceiling = scaled(ceiling);
    let end = Instant::now() + ceiling;
    loop {
        if let Some(fact) = look() {
            return fact;
        }
        assert!(
            Instant::now() < end,
            "waited {ceiling:?} in vain for {what}"
        );
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Looks at a fact until it is there, for at most `ceiling` (scaled); false when it never was. For
/// guards, which must go on either way.
#[must_use]
pub fn comes_true(ceiling: Duration, mut look: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + scaled(ceiling);
    loop {
        if look() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Says something on stderr: a test's failure dump, or that something was not run.
#[expect(
    clippy::print_stderr,
    reason = "the kit talks to whoever runs the tests"
)]
pub fn say(text: &str) {
    eprintln!("{text}");
}

/// Says something on stderr past the test harness, which hides what passing tests print.
pub fn say_aloud(text: &str) {
    use std::io::Write;
    // Nobody may be listening, and there is nobody else to tell.
    drop(std::io::stderr().write_all(format!("{text}\n").as_bytes()));
}
