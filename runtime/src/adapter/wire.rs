//! Reads lines of JSON cheaply, and writes them.
//!
//! Fed by the `claude` and `pi` observers. A line is read in two steps: [`kind`] finds the `type`
//! of the object and stops there, wherever it stands; only the few types an adapter understands
//! are then taken apart, into parts that borrow from the line and are read one by one. A part of
//! an unexpected shape reads as absent. It does not know what any type means.

use std::borrow::Cow;
use std::fmt;

use drowse_messages::AgentStatus;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::text::{NOTICE_CHARS_MAX, one_line};
use super::{Fact, Seen};

/// Declares what a line, or a part of one, may be taken apart into: parts that all may be absent.
macro_rules! parts {
    ($(#[$doc:meta])* $name:ident { $($field:ident $(= $key:literal)?),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default, serde::Deserialize)]
        #[serde(default)]
        pub(super) struct $name<'a> {
            $(
                #[serde(borrow $(, rename = $key)?)]
                pub(super) $field: $crate::adapter::wire::Part<'a>,
            )+
        }
    };
}
pub(super) use parts;

/// A part of a line, not read yet; `None` when absent or `null`.
pub(super) type Part<'a> = Option<&'a RawValue>;

/// The text of a part, if it is text. It is copied only when it has escapes.
pub(super) fn text(part: Part<'_>) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    read::<Text<'_>>(part).map(|text| text.0)
}

/// True when the part is `true`.
pub(super) fn flag(part: Part<'_>) -> bool {
    part.is_some_and(|part| part.get() == "true")
}

/// The part as a whole number, if it is one that is not negative.
pub(super) fn number(part: Part<'_>) -> Option<u64> {
    read(part)
}

/// The part as a `T`, if it has that shape.
pub(super) fn read<'a, T: Deserialize<'a>>(part: Part<'a>) -> Option<T> {
    part.and_then(|part| serde_json::from_str(part.get()).ok())
}

/// The `type` of the object in this line; `None` when it has none. What stands after it is not
/// looked at: most lines are of no interest, and some are megabytes long.
///
/// # Errors
/// The line is not an object, or its `type` is not text, or it is broken before its `type`.
fn kind(line: &str) -> Result<Option<Cow<'_, str>>, serde_json::Error> {
    let mut found = None;
    match KindOf(&mut found).deserialize(&mut serde_json::Deserializer::from_str(line)) {
        // The visitor leaves the object half read, which the parser takes for an error.
        Err(error) if found.is_none() => Err(error),
        Ok(()) | Err(_) => Ok(found),
    }
}

struct KindOf<'a, 'out>(&'out mut Option<Cow<'a, str>>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Type,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for KindOf<'de, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for KindOf<'de, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a type")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            match key {
                Key::Type => {
                    let part: &'de RawValue = map.next_value()?;
                    let kind = text(Some(part));
                    *self.0 = Some(kind.ok_or_else(|| de::Error::custom("type is not text"))?);
                    return Ok(());
                }
                Key::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// One line of JSON, with its end.
pub(super) fn written(value: &impl Serialize) -> Vec<u8> {
    let mut line =
        serde_json::to_vec(value).expect("text keys and plain values always become JSON");
    line.push(b'\n');
    line
}

/// 16: enough to see what is wrong; an agent that prints thousands of broken lines adds nothing.
const NOTICES_PER_TURN_MAX: u32 = 16;

/// Counts what is told to people, so that a chatty agent cannot flood the log.
#[derive(Debug, Default)]
pub(super) struct Notices {
    told: u32,
}

impl Notices {
    /// A turn began: there is room for new ones.
    pub(super) fn reset(&mut self) {
        self.told = 0;
    }

    /// Adds a notice, bounded; beyond the limit nothing.
    pub(super) fn tell(&mut self, seen: &mut Seen, what: &str) {
        self.told = self.told.saturating_add(1);
        let text = match self.told {
            ..NOTICES_PER_TURN_MAX => one_line(what, NOTICE_CHARS_MAX),
            NOTICES_PER_TURN_MAX => "further notices of this turn are not shown".to_owned(),
            _ => return,
        };
        seen.facts.push(Fact::Status(AgentStatus::Notice { text }));
    }

    /// The line as text, with its type. A line that cannot be read is told and passed over; an
    /// empty one, and one without a type, only passed over.
    pub(super) fn typed<'a>(
        &mut self,
        seen: &mut Seen,
        line: &'a [u8],
    ) -> Option<(Cow<'a, str>, &'a str)> {
        match std::str::from_utf8(line) {
            Ok(text) if text.trim_ascii().is_empty() => None,
            Ok(text) => match kind(text) {
                Ok(kind) => kind.map(|kind| (kind, text)),
                Err(error) => {
                    self.unreadable(seen, line, &error);
                    None
                }
            },
            Err(error) => {
                self.unreadable(seen, line, &error);
                None
            }
        }
    }

    /// The line taken apart. One of another shape is told and passed over.
    pub(super) fn parts<'a, T: Deserialize<'a>>(
        &mut self,
        seen: &mut Seen,
        line: &'a str,
    ) -> Option<T> {
        let parts = serde_json::from_str(line);
        parts
            .map_err(|error| self.unreadable(seen, line.as_bytes(), &error))
            .ok()
    }

    /// Tells of a line that cannot be read, by its start.
    pub(super) fn unreadable(&mut self, seen: &mut Seen, line: &[u8], error: &dyn fmt::Display) {
        let start = String::from_utf8_lossy(&line[..line.len().min(QUOTE_BYTES)]);
        self.tell(seen, &format!("unreadable line ({error}): {start}"));
    }
}

/// 200: the start of a broken line shows what printed it.
const QUOTE_BYTES: usize = 200;

impl Seen {
    /// Adds a status.
    pub(super) fn status(&mut self, status: AgentStatus) {
        self.facts.push(Fact::Status(status));
    }

    /// Only something to write.
    pub(super) fn writing(line: Vec<u8>) -> Self {
        Self {
            facts: Vec::new(),
            write: vec![line],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The type of a Claude result is not its first key.
    #[test]
    fn the_type_is_found_wherever_it_stands() {
        let found = |line| kind(line).expect("readable").map(Cow::into_owned);
        assert_eq!(
            found(r#"{"a":{"type":"no"},"b":[1,"}"],"type":"yes"}"#).as_deref(),
            Some("yes")
        );
        assert_eq!(
            found(r#"{"type":"first","rest":"#).as_deref(),
            Some("first")
        );
        assert_eq!(
            found(r#"{"t\u0079pe":"esc\u0061ped"}"#).as_deref(),
            Some("escaped")
        );
        assert_eq!(found("{}"), None);
        assert!(kind(r#"{"type":5}"#).is_err());
        assert!(kind("[]").is_err());
        assert!(kind(r#"{"a":"#).is_err());
    }

    /// D39: bad lines are flagged, and not for ever.
    #[test]
    fn notices_are_counted() {
        let (mut notices, mut seen) = (Notices::default(), Seen::default());
        for _ in 0..100 {
            assert_eq!(notices.typed(&mut seen, b"\xff"), None);
        }
        assert_eq!(seen.facts.len(), 16);
        notices.reset();
        notices.tell(&mut seen, "again");
        assert_eq!(seen.facts.len(), 17);
        assert_eq!(notices.typed(&mut seen, b" \r"), None);
        assert_eq!(seen.facts.len(), 17);
    }
}
