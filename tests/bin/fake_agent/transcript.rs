//! The persisted conversation: what makes a resume provable.
//!
//! One JSON object per line: `user`, `assistant`, and `task` entries (`open`, `closed`).
//! Fed by: the turn engine. Invariant: a user message is on disk before its turn begins, unless
//! the behaviour holds writing back.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::home::append;

/// The conversation of one session.
#[derive(Debug)]
pub(crate) struct Transcript {
    path: PathBuf,
    entries: Vec<Value>,
    /// Lines not yet written, when writing is held back until the end.
    held_back: Option<String>,
}

impl Transcript {
    /// Reads the conversation at `path`; an absent one is empty.
    pub(crate) fn open(path: PathBuf, hold_back: bool) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let entries = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        Self {
            path,
            entries,
            held_back: hold_back.then(String::new),
        }
    }

    /// How many user messages it holds.
    pub(crate) fn user_turns(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| entry["role"] == "user")
            .count()
    }

    /// How many messages it holds.
    pub(crate) fn messages(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| entry["role"] != "task")
            .count()
    }

    /// Adds a message of `role`.
    pub(crate) fn say(&mut self, role: &str, text: &str) {
        self.add(json!({ "role": role, "text": text }));
    }

    /// Notes that a task began (`open`) or ended.
    pub(crate) fn task(&mut self, id: &str, open: bool) {
        self.add(json!({ "role": "task", "id": id, "open": open }));
    }

    /// Ids of tasks that began and never ended: lost with an earlier process.
    pub(crate) fn lost_tasks(&self) -> Vec<String> {
        let mut open: Vec<String> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry["role"] == "task") {
            let id = entry["id"].as_str().unwrap_or_default();
            open.retain(|known| known != id);
            if entry["open"] == true {
                open.push(id.to_owned());
            }
        }
        open
    }

    /// Writes what was held back.
    pub(crate) fn flush(&mut self) {
        if let Some(text) = self.held_back.as_mut().filter(|text| !text.is_empty()) {
            append(&self.path, &std::mem::take(text));
        }
    }

    fn add(&mut self, entry: Value) {
        let line = format!("{entry}\n");
        match &mut self.held_back {
            Some(text) => text.push_str(&line),
            None => append(&self.path, &line),
        }
        self.entries.push(entry);
    }
}
