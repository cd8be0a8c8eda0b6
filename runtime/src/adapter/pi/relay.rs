//! What stands between a host and its Pi: the settings the host made are remembered, and made again
//! in the process that takes a released one's place.
//!
//! Fed by the backend's link. Pi has no handshake; its state is asked for instead, which proves
//! that the conversation was found. Whatever carries an id of ours ends here. Invariant: until a
//! process was released every line of the host's and of Pi's passes as it came.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::super::wire::text;
use super::super::{Pass, Relay};
use super::lines::Response;

/// What every id of ours begins with, the observer's too.
const OURS: &str = "drowse-";

/// Settings of a process that its conversation does not keep.
const SETTINGS: [&str; 6] = [
    "set_model",
    "set_thinking_level",
    "set_steering_mode",
    "set_follow_up_mode",
    "set_auto_compaction",
    "set_auto_retry",
];

/// 16 KiB: a setting is a line of some words.
const SETTING_BYTES_MAX: usize = 16 * 1024;

/// 4 KiB: where a line says what it is.
const HEAD_BYTES: usize = 4096;

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PiRelay {
    /// The last of each kind, without its id.
    settings: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
    /// Commands written on the host's behalf.
    orders: u64,
    /// Those that are not answered yet, of this process.
    #[serde(skip)]
    awaited: BTreeSet<String>,
}

impl PiRelay {
    /// What an earlier one remembers; nothing, if that cannot be read.
    pub(super) fn new(memory: Option<&[u8]>) -> Self {
        memory
            .and_then(|memory| serde_json::from_slice(memory).ok())
            .unwrap_or_default()
    }

    fn order(&mut self, mut order: serde_json::Map<String, serde_json::Value>) -> Vec<u8> {
        self.orders += 1;
        let id = format!("{OURS}relay-{}", self.orders);
        order.insert("id".to_owned(), id.clone().into());
        self.awaited.insert(id);
        let mut line = serde_json::Value::Object(order).to_string().into_bytes();
        line.push(b'\n');
        line
    }
}

impl Relay for PiRelay {
    fn reopen(&mut self) -> Vec<Vec<u8>> {
        let settings: Vec<_> = self.settings.values().cloned().collect();
        let mut state = serde_json::Map::new();
        state.insert("type".to_owned(), "get_state".into());
        let orders = settings.into_iter().chain([state]);
        orders.map(|order| self.order(order)).collect()
    }

    fn is_open(&self) -> bool {
        self.awaited.is_empty()
    }

    fn from_host(&mut self, line: &[u8]) -> Pass {
        if line.len() <= SETTING_BYTES_MAX
            && let Ok(mut order) =
                serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line)
        {
            let kind = order.get("type").and_then(|kind| kind.as_str());
            if let Some(kind) = kind.filter(|kind| SETTINGS.contains(kind)) {
                let kind = kind.to_owned();
                order.remove("id");
                self.settings.insert(kind, order);
            }
        }
        Pass::AsIs
    }

    fn from_agent(&mut self, line: &[u8]) -> Pass {
        let head = &line[..line.len().min(HEAD_BYTES)];
        let has = |word: &[u8]| head.windows(word.len()).any(|part| part == word);
        if !has(b"\"response\"") || !has(OURS.as_bytes()) {
            return Pass::AsIs;
        }
        let response = serde_json::from_slice::<Response<'_>>(line).ok();
        let id = response.and_then(|response| text(response.id));
        match id.filter(|id| id.starts_with(OURS)) {
            Some(id) => {
                self.awaited.remove(&*id);
                Pass::Swallowed
            }
            None => Pass::AsIs,
        }
    }

    fn memory(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is made of text and numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D27: what the host set is set again; answers to us never reach it.
    #[test]
    fn settings_are_made_again() {
        let mut first = PiRelay::new(None);
        for line in [
            r#"{"id":"h1","type":"set_model","provider":"p","modelId":"a"}"#,
            r#"{"id":"h2","type":"set_model","provider":"p","modelId":"b"}"#,
            r#"{"id":"h3","type":"prompt","message":"hi"}"#,
        ] {
            assert_eq!(first.from_host(line.as_bytes()), Pass::AsIs);
        }
        let mut second = PiRelay::new(Some(&first.memory()));
        let lines = second.reopen();
        let texts: Vec<_> = lines
            .iter()
            .map(|line| String::from_utf8_lossy(line))
            .collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains(r#""modelId":"b""#) && texts[0].contains("drowse-relay-1"));
        assert!(texts[1].contains("get_state"));
        let answer = |id: &str| {
            format!(r#"{{"type":"response","id":"{id}","command":"get_state","success":true}}"#)
        };
        assert_eq!(second.from_agent(answer("h1").as_bytes()), Pass::AsIs);
        assert_eq!(
            second.from_agent(answer("drowse-relay-1").as_bytes()),
            Pass::Swallowed
        );
        assert!(!second.is_open());
        assert_eq!(
            second.from_agent(answer("drowse-relay-2").as_bytes()),
            Pass::Swallowed
        );
        assert!(second.is_open());
        assert_eq!(
            second.from_agent(answer("drowse-7").as_bytes()),
            Pass::Swallowed
        );
        assert_eq!(second.from_agent(b"\xff \"response\" drowse-"), Pass::AsIs);
    }
}
