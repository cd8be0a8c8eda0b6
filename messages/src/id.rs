//! Names for things: sessions, launches, messages, holds, agents.
//!
//! Every id is a newtype parsed once, at the edge, so that no two kinds can be mixed up inside.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Crockford's base 32, lower case: no `i`, `l`, `o`, `u`, so an id survives being read aloud.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 12 characters of 5 bits: short enough to type a prefix of, long enough that 100,000 sessions
/// collide with a chance of about 4 in a billion (and the store refuses a collision).
const SESSION_ID_CHARS: usize = 12;

/// Text that is not an id of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdError {
    what: &'static str,
    text: String,
}

impl IdError {
    fn new(what: &'static str, text: &str) -> Self {
        // A bound on what an error repeats: ids are short, so more than this is not one.
        Self {
            what,
            text: text.chars().take(80).collect(),
        }
    }
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}", self.text, self.what)
    }
}

impl std::error::Error for IdError {}

/// A supervised conversation; it outlives every process that ever served it.
///
/// Shown as 12 characters of base 32. Any unique prefix is accepted where a person types one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

impl SessionId {
    /// Makes an id of 60 random bits; the upper four bits of `bits` are dropped.
    #[must_use]
    pub const fn from_random(bits: u64) -> Self {
        Self(bits & ((1 << 60) - 1))
    }

    /// The id as a number, for the store.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in (0..SESSION_ID_CHARS).rev() {
            let digit = usize::try_from((self.0 >> (5 * place)) & 31).unwrap_or_default();
            write!(f, "{}", char::from(ALPHABET[digit]))?;
        }
        Ok(())
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SessionId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError::new("a session id (12 characters of 0-9 and a-z)", text);
        if text.len() != SESSION_ID_CHARS {
            return Err(wrong());
        }
        let mut bits = 0;
        for byte in text.bytes() {
            let digit = ALPHABET.iter().position(|&c| c == byte).ok_or_else(wrong)?;
            bits = (bits << 5) | u64::try_from(digit).map_err(|_| wrong())?;
        }
        Ok(Self(bits))
    }
}

impl Serialize for SessionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One launch of a session's process; counts up from 1. `Incarnation(0)`: never launched.
///
/// Every fact about a process carries it, so that news of an older process changes nothing.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Incarnation(pub u32);

impl Incarnation {
    /// The launch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A message to an agent, numbered by the store in the order of acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(pub u64);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A hold somebody took by hand or by program; unique in one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HoldId(pub u64);

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A short name made of `a-z`, `0-9`, `-`, `_` and `.`, at most 64 characters, not starting with
/// a separator: what a configuration key, an agent or an extension may be called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// 64: longer names are somebody's mistake, and they have to fit a column.
const NAME_CHARS_MAX: usize = 64;

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Name {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let fits = !text.is_empty()
            && text.len() <= NAME_CHARS_MAX
            && text.starts_with(plain)
            && text
                .chars()
                .all(|c| plain(c) || matches!(c, '-' | '_' | '.'));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "a name (1 to 64 of a-z, 0-9, '-', '_', '.')",
                text,
            ))
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_reads_back_as_written() {
        for bits in [0, 1, 31, 32, u64::MAX, 0x0123_4567_89ab_cdef] {
            let id = SessionId::from_random(bits);
            assert_eq!(id.to_string().len(), 12);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert!("01234567890".parse::<SessionId>().is_err(), "too short");
        assert!(
            "01234567890u".parse::<SessionId>().is_err(),
            "u is not in the alphabet"
        );
    }

    #[test]
    fn names_are_refused_with_the_text_in_the_error() {
        for bad in ["", "Claude", "-x", "a b", "a/b", &"x".repeat(65)] {
            let error = bad.parse::<Name>().unwrap_err().to_string();
            assert!(error.contains("is not a name"), "{error}");
        }
        assert!("claude-2.1_x".parse::<Name>().is_ok());
    }
}
