//! What a duration may be, and what it may not.

use super::*;

/// Behaviours 1, 2, 6 and D22: what a duration may be.
#[test]
fn good_durations() {
    let max = Limit::After(Duration::from_millis(u64::MAX));
    for (text, limit) in [
        ("\"30m\"", after(1800)),
        ("\"90s\"", after(90)),
        ("\"500ms\"", Limit::After(Duration::from_millis(500))),
        ("\"1h 30m\"", after(5400)),
        ("\"0.5 min\"", after(30)),
        ("\"1.5h\"", after(5400)),
        ("\"24.9d\"", after(2_151_360)),
        ("\"365d\"", after(365 * 86_400)),
        ("\"100000min\"", after(6_000_000)),
        ("\"18446744073709551615ms\"", max),
        ("0", Limit::Off),
        ("0.0", Limit::Off),
        ("\"0\"", Limit::Off),
        ("\"0s\"", Limit::Off),
        ("\"off\"", Limit::Off),
    ] {
        let written = Written::new(format!("[session]\nidle_after = {text}\n"));
        assert_eq!(idle_after(&written.load(), "claude", "/"), limit, "{text}");
    }
}

/// Behaviour 3 and D22: a bad duration is refused, naming file, line, key, value and what is
/// expected; it is never read as something else.
#[test]
fn bad_durations() {
    const EXPECTED: &str = "expected a duration such as \"30m\", \"90s\" or \"1h 30m\", or \"off\"";
    for (value, wrong) in [
        ("30", "is a number without a unit"),
        ("1.5", "is a number without a unit"),
        ("0x10", "is a number without a unit"),
        ("-1", "is negative"),
        ("nan", "is not a number"),
        ("inf", "is infinite"),
        ("-inf", "is infinite"),
        ("1e400", "is too large"),
        ("true", "is a boolean"),
        ("false", "is a boolean"),
        ("[\"30m\"]", "is an array"),
        ("1979-05-27", "is a date"),
        ("\"\"", "is empty"),
        ("\"30\"", "is a number without a unit"),
        ("\"-5m\"", "is negative"),
        ("\"-1\"", "is negative"),
        ("\"NaN\"", "is not a number"),
        ("\"inf\"", "is infinite"),
        ("\"1e400\"", "is too large"),
        ("\"99999999999999999999h\"", "is too large or too fine"),
        ("\"18446744073709551615d\"", "is too large or too fine"),
        ("\"5 parsecs\"", "has unknown unit \"parsecs\""),
        ("\"1h 30\"", "has a number without a unit"),
        ("\"soon\"", "is not a duration"),
        ("\"never\"", "is not a duration"),
        ("\"10us\"", "is shorter than a millisecond"),
    ] {
        let written = Written::new(format!("[session]\n\nidle_after = {value} # why\n"));
        let line = format!("config.toml:3: session.idle_after = {value}: {wrong}; {EXPECTED}");
        assert_eq!(written.refusal(), line);
    }
}

/// Limits that keep a teardown and a start bounded cannot be switched off or made endless.
#[test]
fn bounded_limits_stay_bounded() {
    for (key, value, wrong) in [
        ("eof_grace", "\"6m\"", "is too long"),
        ("term_grace", "\"off\"", "cannot be switched off"),
        ("term_grace", "0", "cannot be switched off"),
        ("start_limit", "\"2h\"", "is too long"),
    ] {
        let refusal = Written::new(format!("[session]\n{key} = {value}\n")).refusal();
        let start = format!("config.toml:2: session.{key} = {value}: {wrong}; expected a duration");
        assert!(refusal.starts_with(&start), "{refusal}");
        assert!(refusal.ends_with(if key == "start_limit" {
            "at most 1h"
        } else {
            "at most 5m"
        }));
    }
}
