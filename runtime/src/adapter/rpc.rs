//! What protocols of JSON-RPC lines share: one message per line, requests with an id, answers by
//! that id, notifications without one.
//!
//! Fed by the observers and relays of such protocols. A line is read in one pass, whatever the
//! order of its keys, into parts that borrow from it; one whose method nobody wants is left where
//! that is known. Ids may be numbers or text, and both sides number their own requests. It does
//! not know what any method means.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::Seen;
use super::wire::{Notices, Part, parts, read, text, written};

mod pending;

pub(super) use pending::{Ours, Pending};

/// What our own ids begin with; no agent or host is known to use it.
const OURS: &str = "drowse-";

/// JSON-RPC: the method is not known, or not to this side.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;

/// The id of a request. One of another shape is no id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Id {
    /// `7`.
    Number(i64),
    /// `"seven"`.
    Text(String),
}

impl Id {
    /// True for an id that Drowse gave.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Self::Text(text) if text.starts_with(OURS))
    }
}

/// As a key of asks and tasks. A number and the same digits as text are two ids, so text is quoted.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// One line, taken apart no further than this. A part may be the word `null`.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    /// As it stands in the line.
    pub(super) id: Part<'a>,
    /// Absent in an answer.
    pub(super) method: Option<Cow<'a, str>>,
    /// Of a request or a notification.
    pub(super) params: Part<'a>,
    /// Of an answer.
    pub(super) result: Part<'a>,
    /// Of an answer that says no.
    pub(super) error: Part<'a>,
}

/// What a message is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Somebody waits for an answer to it.
    Request(Id),
    /// Nobody does.
    Notification,
    /// To a request of the other side.
    Answer(Id),
    /// None of these.
    Odd,
}

parts!(
    /// `error` of an answer.
    Failure { code, message, data }
);

impl<'a> Message<'a> {
    /// Its id, if it has one.
    pub(super) fn id(&self) -> Option<Id> {
        read(self.id)
    }

    /// What it is.
    pub(super) fn kind(&self) -> Kind {
        let answers = self.result.is_some() || self.error.is_some();
        match (self.id(), &self.method) {
            (Some(id), Some(_)) => Kind::Request(id),
            (None, Some(_)) => Kind::Notification,
            (Some(id), None) if answers => Kind::Answer(id),
            (_, None) => Kind::Odd,
        }
    }

    /// The words of its error; `None` for an answer that says yes.
    pub(super) fn failure(&self) -> Option<Cow<'a, str>> {
        let error = self.error.filter(|error| error.get() != "null")?;
        let failure: Failure<'a> = read(Some(error)).unwrap_or_default();
        Some(text(failure.message).unwrap_or(Cow::Borrowed(error.get())))
    }
}

/// The message in this line; `None` when its method is not wanted, and then what stands after the
/// method was not looked at.
///
/// # Errors
/// The line is not an object, or is broken, or its method is not text.
pub(super) fn message(
    line: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Option<Message<'_>>, serde_json::Error> {
    let mut found = Message::default();
    let mut left = false;
    let whole = MessageOf {
        found: &mut found,
        left: &mut left,
        is_wanted,
    };
    let mut json = serde_json::Deserializer::from_str(line);
    match whole.deserialize(&mut json).and_then(|()| json.end()) {
        // The visitor leaves the object half read, which the parser takes for an error.
        _ if left => Ok(None),
        Ok(()) => Ok(Some(found)),
        Err(error) => Err(error),
    }
}

struct MessageOf<'a, 'out, F> {
    found: &'out mut Message<'a>,
    left: &'out mut bool,
    is_wanted: F,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Id,
    Method,
    Params,
    Result,
    Error,
    #[serde(other)]
    Other,
}

impl<'de, F: Fn(&str) -> bool> DeserializeSeed<'de> for MessageOf<'de, '_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: Fn(&str) -> bool> Visitor<'de> for MessageOf<'de, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            let part = match key {
                Key::Id => &mut self.found.id,
                Key::Params => &mut self.found.params,
                Key::Result => &mut self.found.result,
                Key::Error => &mut self.found.error,
                Key::Method => {
                    let method: &'de RawValue = map.next_value()?;
                    let method = text(Some(method))
                        .ok_or_else(|| de::Error::custom("the method is not text"))?;
                    if !(self.is_wanted)(&method) {
                        *self.left = true;
                        return Ok(());
                    }
                    self.found.method = Some(method);
                    continue;
                }
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *part = Some(map.next_value()?);
        }
        Ok(())
    }
}

impl Notices {
    /// The message in this line, if its method is wanted; answers always are. A line that cannot
    /// be read is told and passed over; an empty one only passed over.
    pub(super) fn message<'a>(
        &mut self,
        seen: &mut Seen,
        line: &'a [u8],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Option<Message<'a>> {
        let read = match std::str::from_utf8(line) {
            Ok(text) if text.trim_ascii().is_empty() => return None,
            Ok(text) => message(text, is_wanted),
            Err(error) => {
                self.unreadable(seen, line, &error);
                return None;
            }
        };
        read.unwrap_or_else(|error| {
            self.unreadable(seen, line, &error);
            None
        })
    }
}

/// How the lines of a protocol are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Without `"jsonrpc"`.
    Bare,
    /// With `"jsonrpc":"2.0"`, as the standard wants it.
    Tagged,
}

/// A line of ours. What is `None` is left out.
#[derive(Serialize)]
struct Written<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    jsonrpc: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Id>,
    #[serde(flatten)]
    body: Body<'a, T>,
}

enum Body<'a, T> {
    Call { method: &'a str, params: T },
    Result(T),
    Error { code: i64, message: &'a str },
}

impl<T: Serialize> Serialize for Body<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        #[derive(Serialize)]
        struct Error<'a> {
            code: i64,
            message: &'a str,
        }
        let mut map = to.serialize_map(None)?;
        match self {
            Self::Call { method, params } => {
                map.serialize_entry("method", method)?;
                map.serialize_entry("params", params)?;
            }
            Self::Result(result) => map.serialize_entry("result", result)?,
            Self::Error { code, message } => {
                let code = *code;
                map.serialize_entry("error", &Error { code, message })?;
            }
        }
        map.end()
    }
}

impl Dialect {
    /// A request.
    pub(super) fn request(self, id: &Id, method: &str, params: &impl Serialize) -> Vec<u8> {
        self.line(Some(id), Body::Call { method, params })
    }

    /// A notification.
    pub(super) fn notification(self, method: &str, params: &impl Serialize) -> Vec<u8> {
        self.line(None, Body::Call { method, params })
    }

    /// An answer.
    pub(super) fn answer(self, id: &Id, result: &impl Serialize) -> Vec<u8> {
        self.line(Some(id), Body::Result(result))
    }

    /// An answer that says no. Without one the other side would wait for ever.
    pub(super) fn refusal(self, id: &Id, code: i64, message: &str) -> Vec<u8> {
        let no: Body<'_, ()> = Body::Error { code, message };
        self.line(Some(id), no)
    }

    fn line(self, id: Option<&Id>, body: Body<'_, impl Serialize>) -> Vec<u8> {
        let jsonrpc = (self == Self::Tagged).then_some("2.0");
        written(&Written { jsonrpc, id, body })
    }
}

/// The line with another id in the place of `id`, which is a part of it; nothing else changes.
/// Without a line end, as the line came.
pub(super) fn with_id(line: &str, id: &RawValue, new: &Id) -> Vec<u8> {
    let new = serde_json::to_vec(new).expect("numbers and text always become JSON");
    spliced(line, id, &new)
}

/// The line with `new` in the place of `part`, which is a part of it. One that is not leaves the
/// line as it is.
pub(super) fn spliced(line: &str, part: &RawValue, new: &[u8]) -> Vec<u8> {
    let part = part.get();
    let at = part.as_ptr().addr().checked_sub(line.as_ptr().addr());
    let around = at.and_then(|at| {
        let before = line.as_bytes().get(..at)?;
        let after = line.as_bytes().get(at + part.len()..)?;
        Some([before, new, after].concat())
    });
    around.unwrap_or_else(|| line.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(line: &str) -> Message<'_> {
        message(line, |_| true).expect("readable").expect("wanted")
    }

    /// Agents and hosts order their keys as they like.
    #[test]
    fn parts_are_found_wherever_they_stand() {
        let request = whole(r#"{"params":{"id":9,"method":"no"},"id":1,"method":"turn\/start"}"#);
        assert_eq!(request.kind(), Kind::Request(Id::Number(1)));
        assert_eq!(request.method.as_deref(), Some("turn/start"));
        assert_eq!(
            request.params.map(RawValue::get),
            Some(r#"{"id":9,"method":"no"}"#)
        );
        let answer = whole(r#"{"result":null,"jsonrpc":"2.0","id":"a"}"#);
        assert_eq!(answer.kind(), Kind::Answer(Id::Text("a".to_owned())));
        assert_eq!(answer.failure(), None);
        let refused = whole(r#"{"error":{"message":"busy","code":-1},"id":-3}"#);
        assert_eq!(refused.kind(), Kind::Answer(Id::Number(-3)));
        assert_eq!(refused.failure().as_deref(), Some("busy"));
        assert_eq!(whole(r#"{"method":"x"}"#).kind(), Kind::Notification);
        for odd in [
            "{}",
            r#"{"id":1}"#,
            r#"{"id":1.5,"result":1}"#,
            r#"{"result":1}"#,
        ] {
            assert_eq!(whole(odd).kind(), Kind::Odd, "{odd}");
        }
    }

    /// D39: a line nobody wants is left early, and one that is wanted must be whole.
    #[test]
    fn unwanted_lines_are_left_at_their_method() {
        let unwanted = message(r#"{"method":"no","params":"#, |method| method == "yes");
        assert!(matches!(unwanted, Ok(None)));
        for broken in [
            "[]",
            "7",
            r#"{"method":"yes","params":"#,
            r#"{"method":5}"#,
            r#"{"id":1,"result":{}} x"#,
        ] {
            assert!(message(broken, |_| true).is_err(), "{broken}");
        }
        let (mut notices, mut seen) = (Notices::default(), Seen::default());
        assert!(notices.message(&mut seen, b" \r", |_| true).is_none());
        assert_eq!(seen.facts.len(), 0);
        assert!(notices.message(&mut seen, b"\xff", |_| true).is_none());
        assert_eq!(seen.facts.len(), 1);
    }

    #[test]
    fn both_dialects_are_written() {
        let id = Ours::default().next();
        assert!(id.is_ours());
        let line = |bytes: Vec<u8>| String::from_utf8(bytes).expect("JSON is UTF-8");
        let params = serde_json::json!({ "a": 1 });
        assert_eq!(
            line(Dialect::Bare.request(&id, "m", &params)),
            "{\"id\":\"drowse-1\",\"method\":\"m\",\"params\":{\"a\":1}}\n"
        );
        assert_eq!(
            line(Dialect::Tagged.notification("m", &params)),
            "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"a\":1}}\n"
        );
        assert_eq!(
            line(Dialect::Tagged.answer(&Id::Number(0), &params)),
            "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"a\":1}}\n"
        );
        assert_eq!(
            line(Dialect::Bare.refusal(&Id::Number(0), METHOD_NOT_FOUND, "no")),
            "{\"id\":0,\"error\":{\"code\":-32601,\"message\":\"no\"}}\n"
        );
    }

    /// A relay changes an id and nothing else, not even white space.
    #[test]
    fn an_id_is_changed_in_place() {
        let line = "{ \"x\" : 1.0, \"id\" :\t0 ,\"method\":\"\u{e9}\" }";
        let id = whole(line).id.expect("it has one");
        assert_eq!(
            with_id(line, id, &Id::Text("n".to_owned())),
            "{ \"x\" : 1.0, \"id\" :\t\"n\" ,\"method\":\"\u{e9}\" }".as_bytes()
        );
        let other: Box<RawValue> = serde_json::from_str("77").expect("a number");
        drop(with_id(line, &other, &Id::Number(1)));
    }
}
