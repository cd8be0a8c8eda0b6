//! Durations and sizes for people.

use std::time::Duration;

/// Seconds in each unit, largest first.
const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];

/// One unit, cut off: `4m`, `2h`, `0s`.
pub(crate) fn short(duration: Duration) -> String {
    parts(duration, 1)
}

/// Two units: `12m 3s`, `2h`, `1d 4h`.
pub(crate) fn long(duration: Duration) -> String {
    parts(duration, 2)
}

fn parts(duration: Duration, parts_max: usize) -> String {
    let mut left = duration.as_secs();
    let mut parts = Vec::new();
    let largest = UNITS.iter().position(|(unit, _)| left >= *unit);
    let from = largest.unwrap_or(UNITS.len() - 1);
    for (unit, name) in UNITS.iter().skip(from).take(parts_max) {
        let number = left / unit;
        left %= unit;
        if number > 0 || parts.is_empty() {
            parts.push(format!("{number}{name}"));
        }
    }
    parts.join(" ")
}

/// A size in powers of ten, as memory is sold: `212 MB`, `1.4 GB`.
pub(crate) fn bytes(size: u64) -> String {
    const STEPS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if size < 1000 {
        return format!("{size} B");
    }
    let mut tenths = u128::from(size) * 10;
    for name in STEPS {
        tenths /= 1000;
        if tenths < 100 {
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
        if tenths < 10_000 {
            return format!("{} {name}", tenths / 10);
        }
    }
    format!("{size} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_cut_to_their_largest_units() {
        for (seconds, one, two) in [
            (0, "0s", "0s"),
            (59, "59s", "59s"),
            (60, "1m", "1m"),
            (723, "12m", "12m 3s"),
            (3_600, "1h", "1h"),
            (3_601, "1h", "1h"),
            (14_160, "3h", "3h 56m"),
            (100_800, "1d", "1d 4h"),
        ] {
            let duration = Duration::from_secs(seconds);
            assert_eq!((short(duration), long(duration)), (one.into(), two.into()));
        }
        assert_eq!(short(Duration::from_millis(u64::MAX)), "213503982334d");
    }

    #[test]
    fn sizes_have_at_most_three_digits() {
        for (size, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (9_999, "9.9 kB"),
            (10_000, "10 kB"),
            (212_345_678, "212 MB"),
            (999_999_999, "999 MB"),
            (1_400_000_000, "1.4 GB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(bytes(size), text);
        }
    }
}
