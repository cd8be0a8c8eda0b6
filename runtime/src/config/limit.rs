//! The limits a session can have: their keys, what each may be, and how they must fit together.
//!
//! Fed by `apply` and by requests that open a session. Invariant: a duration without a unit is
//! never guessed at, and a limit that cannot be understood is refused, never read as zero.

use std::time::Duration;

use drowse_messages::{Limit, LimitOverrides, Limits};

use super::setting::Value;

/// 5 min: agents flush in seconds, and every teardown, so also the end of the daemon, must end.
const GRACE_MAX: Duration = Duration::from_secs(5 * 60);

/// 1 h: a start that takes longer has failed, and until it ends nobody else may start.
const START_LIMIT_MAX: Duration = Duration::from_secs(3600);

/// The daemon's clock counts milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);

/// One limit as a key of the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitKey {
    pub(super) name: &'static str,
    /// May it be switched off?
    off: bool,
    longest: Option<Duration>,
    set: fn(&mut LimitOverrides, Limit),
    get: fn(&Limits) -> Limit,
}

/// The key that says whether commands seen in the process tree hold.
pub(super) const OBSERVED: &str = "observed";

/// Its value: on or off.
pub(super) fn read_switch(value: &Value) -> Result<bool, String> {
    match value {
        Value::Text(text) if text == "on" => Ok(true),
        Value::Text(text) if text == "off" => Ok(false),
        Value::Flag(on) => Ok(*on),
        Value::Text(_) | Value::Number(_) | Value::List(_) | Value::Table | Value::Other(_) => {
            Err("is neither \"on\" nor \"off\"".to_owned())
        }
    }
}

/// All of them, in the order they are shown.
pub(super) const LIMIT_KEYS: [LimitKey; 8] = [
    LimitKey {
        name: "idle_after",
        off: true,
        longest: None,
        set: |over, limit| over.idle_after = Some(limit),
        get: |limits| limits.idle_after,
    },
    LimitKey {
        name: "hard_limit",
        off: true,
        longest: None,
        set: |over, limit| over.hard_limit = Some(limit),
        get: |limits| limits.hard_limit,
    },
    LimitKey {
        name: "task_hold_max",
        off: true,
        longest: None,
        set: |over, limit| over.task_hold_max = Some(limit),
        get: |limits| limits.task_hold_max,
    },
    LimitKey {
        name: "approval_hold_max",
        off: true,
        longest: None,
        set: |over, limit| over.approval_hold_max = Some(limit),
        get: |limits| limits.approval_hold_max,
    },
    LimitKey {
        name: "start_limit",
        off: false,
        longest: Some(START_LIMIT_MAX),
        set: |over, limit| over.start_limit = span(limit),
        get: |limits| Limit::After(limits.start_limit),
    },
    LimitKey {
        name: "eof_grace",
        off: false,
        longest: Some(GRACE_MAX),
        set: |over, limit| over.eof_grace = span(limit),
        get: |limits| Limit::After(limits.eof_grace),
    },
    LimitKey {
        name: "term_grace",
        off: false,
        longest: Some(GRACE_MAX),
        set: |over, limit| over.term_grace = span(limit),
        get: |limits| Limit::After(limits.term_grace),
    },
    LimitKey {
        name: "detach_hold",
        off: true,
        longest: None,
        set: |over, limit| over.detach_hold = Some(limit),
        get: |limits| limits.detach_hold,
    },
];

const fn span(limit: Limit) -> Option<Duration> {
    match limit {
        Limit::After(duration) => Some(duration),
        Limit::Off => None,
    }
}

impl LimitKey {
    /// The key with this name.
    pub(super) fn find(name: &str) -> Option<Self> {
        LIMIT_KEYS.into_iter().find(|key| key.name == name)
    }

    /// Puts a value into `over`, or says what is wrong with it and what was expected.
    pub(super) fn apply(self, value: &Value, over: &mut LimitOverrides) -> Result<(), String> {
        (self.set)(over, read_limit(value, self.off, self.longest)?);
        Ok(())
    }

    /// The value among merged limits, as the configuration would write it.
    pub(super) fn shown(self, limits: &Limits) -> String {
        limit_text((self.get)(limits))
    }
}

/// A duration as a value of the configuration, or what is wrong with it and what was expected.
pub(super) fn read_limit(
    value: &Value,
    off: bool,
    longest: Option<Duration>,
) -> Result<Limit, String> {
    let limit = duration_of(value).and_then(|duration| {
        if duration.is_zero() && !off {
            return Err("cannot be switched off".to_owned());
        }
        if !duration.is_zero() && duration < SHORTEST {
            return Err("is shorter than a millisecond".to_owned());
        }
        if longest.is_some_and(|longest| duration > longest) {
            return Err("is too long".to_owned());
        }
        Ok(Limit::from_duration(duration))
    });
    limit.map_err(|wrong| format!("{wrong}; {}", expected(off, longest)))
}

fn duration_of(value: &Value) -> Result<Duration, String> {
    match value {
        Value::Text(text) if text == "off" => Ok(Duration::ZERO),
        Value::Text(text) => duration_of_text(text),
        Value::Number(number) => duration_of_number(number),
        Value::Flag(_) | Value::List(_) | Value::Table | Value::Other(_) => {
            Err(format!("is {}", value.kind()))
        }
    }
}

/// How long a process, or a session, is to be kept, as people write it.
///
/// # Errors
/// Says what is wrong with the text, and what was expected.
pub(crate) fn keep_ttl(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected a duration such as \"2h\" or \"90s\"";
    match duration_of_text(text.trim()) {
        Ok(ttl) if ttl < SHORTEST => Err(format!("is shorter than a millisecond; {EXPECTED}")),
        Ok(ttl) => Ok(ttl),
        Err(wrong) => Err(format!("{wrong}; {EXPECTED}")),
    }
}

fn expected(off: bool, longest: Option<Duration>) -> String {
    let mut text = "expected a duration such as \"30m\", \"90s\" or \"1h 30m\"".to_owned();
    if off {
        text.push_str(", or \"off\"");
    }
    if let Some(longest) = longest {
        let longest = humantime::format_duration(longest);
        text.push_str(&format!(", at most {longest}"));
    }
    text
}

/// A limit as the configuration would write it.
pub(super) fn limit_text(limit: Limit) -> String {
    match limit {
        Limit::After(duration) => humantime::format_duration(duration).to_string(),
        Limit::Off => "off".to_owned(),
    }
}

fn duration_of_text(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    if text.parse::<f64>().is_ok() {
        return duration_of_number(text);
    }
    if text.starts_with('-') {
        return Err("is negative".to_owned());
    }
    // humantime counts what is below a second in nanoseconds, so it ends at 584 years of them.
    if let Some(Ok(millis)) = text
        .strip_suffix("ms")
        .map(|number| number.trim_end().parse())
    {
        return Ok(Duration::from_millis(millis));
    }
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::NumberOverflow => "is too large or too fine".to_owned(),
        humantime::DurationError::UnknownUnit { unit, .. } if unit.is_empty() => {
            "has a number without a unit".to_owned()
        }
        humantime::DurationError::UnknownUnit { unit, .. } => format!("has unknown unit {unit:?}"),
        humantime::DurationError::InvalidCharacter(_)
        | humantime::DurationError::NumberExpected(_)
        | humantime::DurationError::Empty => "is not a duration".to_owned(),
    })
}

/// A bare number is a duration only when it is zero, which needs no unit.
fn duration_of_number(number: &str) -> Result<Duration, String> {
    let wrong = match number.parse::<f64>() {
        Ok(0.0) => return Ok(Duration::ZERO),
        Ok(number) if number.is_nan() => "is not a number",
        Ok(value) if value.is_infinite() && number.contains(|c: char| c.is_ascii_digit()) => {
            "is too large"
        }
        Ok(value) if value.is_infinite() => "is infinite",
        Ok(value) if value < 0.0 => "is negative",
        Ok(_) | Err(_) => "is a number without a unit",
    };
    Err(wrong.to_owned())
}

/// Two limits that cannot both hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    /// Keys of the two, the outer one first.
    pub(super) keys: [&'static str; 2],
    /// For people.
    pub(super) text: String,
}

/// Limits that make each other pointless, which is somebody's mistake (behaviour 9).
///
/// A process that ends at `hard_limit` must have had the time to become ready and then idle. The
/// two hold limits count from a later moment than `idle_after` does, so any value of them fits.
pub(super) fn conflict(limits: &Limits) -> Option<Conflict> {
    let Limit::After(hard) = limits.hard_limit else {
        return None;
    };
    let inner = [
        ("idle_after", limits.idle_after),
        ("start_limit", Limit::After(limits.start_limit)),
    ];
    inner.into_iter().find_map(|(name, limit)| {
        let Limit::After(inner) = limit else {
            return None;
        };
        (hard <= inner).then(|| Conflict {
            keys: ["hard_limit", name],
            text: format!(
                "hard_limit ({}) must be longer than {name} ({})",
                humantime::format_duration(hard),
                humantime::format_duration(inner),
            ),
        })
    })
}
