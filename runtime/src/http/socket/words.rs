//! JSON-RPC 2.0 in both directions: requests understood, answers and notifications put into words.
//!
//! Invariant: whatever comes in is a request or a failure with the id it came with; a failure's
//! numeric code is JSON-RPC's own where it has one.

use std::time::Duration;

use bytestring::ByteString;
use drowse_messages::{Failure, FailureCode, Method, Notification};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// 256 bytes of an id are repeated in an answer; one that is longer is a mistake.
const ID_BYTES_MAX: usize = 256;

/// One request of a client.
#[derive(Debug)]
pub(super) struct Request {
    /// To be repeated in the answer.
    pub(super) id: Value,
    pub(super) method: Method,
    pub(super) params: Map<String, Value>,
    /// The client's own bound for the call.
    pub(super) timeout: Option<Duration>,
}

/// A failure and the id of the request it answers.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) id: Value,
    pub(super) failure: Box<Failure>,
}

#[derive(Deserialize)]
struct Envelope {
    jsonrpc: String,
    #[serde(default)]
    id: Value,
    method: String,
    #[serde(default)]
    params: Map<String, Value>,
}

impl Request {
    /// Understands a text frame.
    pub(super) fn read(text: &str) -> Result<Self, Refused> {
        let refused = |id: Value, code, detail: String| Refused {
            id,
            failure: Box::new(Failure::new(code, detail)),
        };
        let bad = |id, detail: String| refused(id, FailureCode::NotARequest, detail);
        let envelope: Envelope =
            serde_json::from_str(text).map_err(|error| bad(Value::Null, error.to_string()))?;
        let id = envelope.id;
        let usable = match &id {
            Value::String(id) => id.len() <= ID_BYTES_MAX,
            Value::Number(_) => true,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        };
        if !usable {
            let detail = "id must be a number or a short text".to_owned();
            return Err(bad(Value::Null, detail));
        }
        if envelope.jsonrpc != "2.0" {
            return Err(bad(id, "jsonrpc must be \"2.0\"".to_owned()));
        }
        let Some(method) = Method::from_code(&envelope.method) else {
            let name: String = envelope.method.chars().take(80).collect();
            let detail = format!("there is no method {name:?}");
            return Err(refused(id, FailureCode::NoSuchMethod, detail));
        };
        let mut params = envelope.params;
        let timeout = match params.remove("timeout_ms") {
            None | Some(Value::Null) => None,
            Some(value) => match value.as_u64() {
                Some(millis) => Some(Duration::from_millis(millis)),
                None => {
                    let detail = "timeout_ms: not a number of milliseconds".to_owned();
                    return Err(refused(id, FailureCode::Invalid, detail));
                }
            },
        };
        Ok(Self {
            id,
            method,
            params,
            timeout,
        })
    }

    /// Its parameters.
    pub(super) fn params<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let params = Value::Object(std::mem::take(&mut self.params));
        serde_path_to_error::deserialize(params).map_err(|error| {
            let place = error.path().to_string();
            let place = place.trim_end_matches(['?', '.']);
            let field = if place.is_empty() { "params" } else { place };
            Failure::new(FailureCode::Invalid, format!("{field}: {}", error.inner()))
        })
    }
}

/// An answer: `result` is JSON already.
pub(super) fn answer(id: &Value, result: &str) -> ByteString {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into()
}

/// An answer that is a failure.
pub(super) fn failure(id: &Value, failure: &Failure) -> ByteString {
    let standard = [
        (FailureCode::NotARequest, -32600),
        (FailureCode::NoSuchMethod, -32601),
        (FailureCode::Invalid, -32602),
    ];
    let own = standard.into_iter().find(|(code, _)| *code == failure.code);
    let number = own.map_or(-32000, |(_, number)| number);
    let error = json!({"code": number, "message": failure.detail, "data": failure});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
        .to_string()
        .into()
}

/// What is said unasked.
pub(super) fn notification(note: &Notification) -> ByteString {
    let json = serde_json::to_string(note).expect("notifications have no maps with odd keys");
    // The tag comes first in what serde writes, so one key more makes it a notification.
    format!(
        r#"{{"jsonrpc":"2.0",{}"#,
        json.strip_prefix('{').unwrap_or("}")
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_answered_with_its_id() {
        for (text, id, code) in [
            ("", Value::Null, FailureCode::NotARequest),
            ("[]", Value::Null, FailureCode::NotARequest),
            (
                r#"{"jsonrpc":"2.0","method":"show"}"#,
                Value::Null,
                FailureCode::NotARequest,
            ),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"show"}"#,
                Value::Null,
                FailureCode::NotARequest,
            ),
            (
                r#"{"jsonrpc":"1.0","id":1,"method":"show"}"#,
                1.into(),
                FailureCode::NotARequest,
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"sow"}"#,
                "a".into(),
                FailureCode::NoSuchMethod,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"show","params":{"timeout_ms":-1}}"#,
                1.into(),
                FailureCode::Invalid,
            ),
        ] {
            let refused = Request::read(text).unwrap_err();
            assert_eq!((refused.id, refused.failure.code), (id, code), "{text}");
        }
    }

    #[test]
    fn a_misspelt_parameter_is_named() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"prompt","params":{"txt":"a"}}"#;
        let mut request = Request::read(text).unwrap();
        let failure = request.params::<drowse_messages::Prompt>().unwrap_err();
        assert!(failure.detail.contains("txt"), "{}", failure.detail);
    }
}
