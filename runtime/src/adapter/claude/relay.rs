//! What stands between a host and its Claude: the handshake is remembered, and said again to the
//! process that takes a released one's place.
//!
//! Fed by the backend's link. Remembered are `initialize` as the host wrote it, the model it chose
//! last, and the permission mode that Claude said last is in force. Said again under ids of our
//! own, whose answers end here. Invariants: until a process was released every line passes as it
//! came; a permission mode is never put back that Claude itself had left.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::wire::{Part, parts, read, text};
use super::super::{Pass, Relay};
use super::lines::{Control, Outcome, Request, Response};

/// What every id of ours begins with, the observer's too.
const OURS: &str = "drowse-";

/// 768 KiB of a request are remembered; with what else there is, that is below 1 MiB. A host whose
/// `initialize` is longer gets none said again, and Claude's defaults instead of what it held.
const REQUEST_BYTES_MAX: usize = 768 * 1024;

/// 4 KiB: where a line says what it is.
const HEAD_BYTES: usize = 4096;

parts!(
    /// `type: system`, of which only the mode matters.
    Mode { mode = "permissionMode" }
);

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ClaudeRelay {
    /// The `request` of the host's `initialize`.
    initialize: Option<String>,
    /// The `request` of its last `set_model`.
    model: Option<String>,
    /// What Claude was started in, and what is in force, by its own word.
    first_mode: Option<String>,
    mode: Option<String>,
    /// Requests written on the host's behalf.
    requests: u64,
    /// Those that are not answered yet, of this process.
    #[serde(skip)]
    awaited: BTreeSet<String>,
}

impl ClaudeRelay {
    /// What an earlier one remembers; nothing, if that cannot be read.
    pub(super) fn new(memory: Option<&[u8]>) -> Self {
        memory
            .and_then(|memory| serde_json::from_slice(memory).ok())
            .unwrap_or_default()
    }

    fn ask(&mut self, request: &str) -> (String, Vec<u8>) {
        self.requests += 1;
        let id = format!("{OURS}relay-{}", self.requests);
        let line = format!(
            "{{\"type\":\"control_request\",\"request_id\":\"{id}\",\"request\":{request}}}\n"
        );
        (id, line.into_bytes())
    }

    fn remember(&mut self, request: Part<'_>) {
        let Some(part) = request.filter(|part| part.get().len() <= REQUEST_BYTES_MAX) else {
            return;
        };
        let request: Request<'_> = read(request).unwrap_or_default();
        match text(request.subtype).as_deref() {
            Some("initialize") => self.initialize = Some(part.get().to_owned()),
            Some("set_model") => self.model = Some(part.get().to_owned()),
            Some(_) | None => {}
        }
    }

    /// True for an answer to a request of ours.
    fn is_ours(&mut self, line: &[u8]) -> bool {
        let Some(response) = parsed::<Response<'_>>(line) else {
            return false;
        };
        let outcome: Outcome<'_> = read(response.response).unwrap_or_default();
        let id = text(outcome.request_id).filter(|id| id.starts_with(OURS));
        if let Some(id) = &id {
            self.awaited.remove(&**id);
        }
        id.is_some()
    }

    fn note_mode(&mut self, line: &[u8]) {
        let Some(system) = parsed::<Mode<'_>>(line) else {
            return;
        };
        if let Some(mode) = text(system.mode) {
            let mode = mode.into_owned();
            self.first_mode.get_or_insert_with(|| mode.clone());
            self.mode = Some(mode);
        }
    }
}

impl Relay for ClaudeRelay {
    /// Without an `initialize` of the host's an empty one is said: its answer proves that the
    /// conversation was found.
    fn reopen(&mut self) -> Vec<Vec<u8>> {
        let initialize = self.initialize.clone();
        let initialize = initialize.unwrap_or_else(|| r#"{"subtype":"initialize"}"#.to_owned());
        let (id, line) = self.ask(&initialize);
        self.awaited.insert(id);
        let mut lines = vec![line];
        if let Some(model) = self.model.clone() {
            lines.push(self.ask(&model).1);
        }
        if let Some(mode) = self.mode.clone().filter(|_| self.mode != self.first_mode) {
            let mode = serde_json::json!({ "subtype": "set_permission_mode", "mode": mode });
            lines.push(self.ask(&mode.to_string()).1);
        }
        lines
    }

    fn is_open(&self) -> bool {
        self.awaited.is_empty()
    }

    fn from_host(&mut self, line: &[u8]) -> Pass {
        if head_has(line, b"control_request")
            && let Some(control) = parsed::<Control<'_>>(line)
        {
            self.remember(control.request);
        }
        Pass::AsIs
    }

    fn from_agent(&mut self, line: &[u8]) -> Pass {
        if head_has(line, b"\"control_response\"") && self.is_ours(line) {
            return Pass::Swallowed;
        }
        if head_has(line, b"\"system\"") {
            self.note_mode(line);
        }
        Pass::AsIs
    }

    fn memory(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is made of text and numbers")
    }
}

/// Cheap: most lines are nothing to us, and some are megabytes long.
fn head_has(line: &[u8], word: &[u8]) -> bool {
    let head = &line[..line.len().min(HEAD_BYTES)];
    head.windows(word.len()).any(|part| part == word)
}

fn parsed<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIALIZE: &[u8] = br#"{"request_id":"req_1","type":"control_request","request":{"subtype":"initialize","hooks":{"Stop":[{"hookCallbackIds":["hook_0"]}]}}}"#;

    fn written(relay: &mut ClaudeRelay) -> Vec<String> {
        let lines = relay.reopen().into_iter();
        lines.map(|line| String::from_utf8(line).unwrap()).collect()
    }

    /// D27: the host's own words are said again, under ids whose answers it never sees.
    #[test]
    fn the_handshake_is_said_again() {
        let mut first = ClaudeRelay::new(None);
        assert!(first.is_open());
        assert_eq!(first.from_host(INITIALIZE), Pass::AsIs);
        let answer = br#"{"type":"control_response","response":{"subtype":"success","request_id":"req_1","response":{}}}"#;
        assert_eq!(first.from_agent(answer), Pass::AsIs, "it is the host's");
        first.from_host(br#"{"type":"control_request","request_id":"2","request":{"subtype":"set_model","model":"haiku"}}"#);
        let mut second = ClaudeRelay::new(Some(&first.memory()));
        let lines = written(&mut second);
        assert_eq!(
            lines,
            [
                "{\"type\":\"control_request\",\"request_id\":\"drowse-relay-1\",\"request\":{\"subtype\":\"initialize\",\"hooks\":{\"Stop\":[{\"hookCallbackIds\":[\"hook_0\"]}]}}}\n",
                "{\"type\":\"control_request\",\"request_id\":\"drowse-relay-2\",\"request\":{\"subtype\":\"set_model\",\"model\":\"haiku\"}}\n",
            ]
        );
        assert!(!second.is_open());
        let answer = br#"{"type":"control_response","response":{"subtype":"success","request_id":"drowse-relay-1","response":{}}}"#;
        assert_eq!(second.from_agent(answer), Pass::Swallowed);
        assert!(second.is_open());
        let mut third = ClaudeRelay::new(Some(&second.memory()));
        assert!(written(&mut third)[0].contains("drowse-relay-3"));
    }

    /// A host that sets no handshake of its own gets the proof that the conversation was found.
    #[test]
    fn without_a_handshake_one_is_said() {
        let mut relay = ClaudeRelay::new(None);
        let lines = written(&mut relay);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains(r#"{"subtype":"initialize"}"#));
        assert_eq!(
            ClaudeRelay::new(Some(b"garbage")).memory(),
            ClaudeRelay::new(None).memory()
        );
    }

    /// A mode that was left, by whomever, is not put back; the one in force is.
    #[test]
    fn the_mode_in_force_is_put_back() {
        let init = |mode: &str| {
            format!(r#"{{"type":"system","subtype":"init","permissionMode":"{mode}"}}"#)
        };
        let mut relay = ClaudeRelay::new(None);
        relay.from_host(br#"{"type":"control_request","request_id":"2","request":{"subtype":"set_permission_mode","mode":"bypassPermissions"}}"#);
        relay.from_agent(init("default").as_bytes());
        let mut next = ClaudeRelay::new(Some(&relay.memory()));
        assert_eq!(written(&mut next).len(), 1, "it never came into force");
        relay.from_agent(init("plan").as_bytes());
        let mut next = ClaudeRelay::new(Some(&relay.memory()));
        let lines = written(&mut next);
        assert!(lines[1].contains(r#""mode":"plan""#), "{lines:?}");
    }

    /// A line that is long, broken or no text passes as it came.
    #[test]
    fn whatever_is_not_understood_passes() {
        let mut relay = ClaudeRelay::new(None);
        let long = [&b"{\"x\":\""[..], &vec![b'x'; 1 << 20], b"\"}"].concat();
        for line in [&b"\xff\xfe control_request"[..], b"", b"{", &long] {
            assert_eq!(relay.from_host(line), Pass::AsIs);
            assert_eq!(relay.from_agent(line), Pass::AsIs);
        }
    }
}
