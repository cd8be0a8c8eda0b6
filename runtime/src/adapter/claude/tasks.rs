//! Claude Code's background tasks.
//!
//! Fed by the observer with `system` lines. `background_tasks_changed` names all tasks there are
//! and replaces the set; the other task events only heal a missed one. Knows nothing of turns: a
//! task may outlive many.

use drowse_messages::Task;
use serde::{Deserialize, Serialize};

use super::super::text::{TITLE_CHARS_MAX, one_line};
use super::super::wire::{flag, read, text};
use super::super::{Fact, Seen};
use super::lines::{System, TaskEntry, TaskPatch};

/// 64: an agent runs at most a few dozen tasks; one that is left out still leaves 64 that hold.
const TASKS_MAX: usize = 64;

/// States of a task that is over.
const OVER: [&str; 4] = ["completed", "failed", "killed", "stopped"];

/// The set as last known.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tasks {
    running: Vec<Task>,
    known: bool,
}

impl Tasks {
    /// A process that has just started runs none, and it will say so only when that changes.
    pub(super) fn none_yet(&mut self, seen: &mut Seen) {
        if !self.known {
            self.publish(seen);
        }
    }

    /// The set as last known, for whoever did not hear it.
    pub(super) fn restate(&self, seen: &mut Seen) {
        if self.known {
            seen.roster(self.running.iter().cloned());
        }
    }

    /// All tasks there are.
    pub(super) fn level(&mut self, seen: &mut Seen, line: &System<'_>) {
        let Some(entries) = read::<Vec<TaskEntry<'_>>>(line.tasks) else {
            return;
        };
        let mut running: Vec<Task> = entries.iter().filter_map(task).collect();
        // Those that hold stay when the set is cut.
        running.sort_by_key(|task| task.ambient);
        running.truncate(TASKS_MAX);
        if !self.known || running != self.running {
            self.running = running;
            self.publish(seen);
        }
    }

    /// A task was put into the background.
    pub(super) fn started(&mut self, seen: &mut Seen, line: &System<'_>) {
        let entry = TaskEntry {
            task_id: line.task_id,
            task_type: line.task_type,
            description: line.description,
            ..TaskEntry::default()
        };
        if !flag(line.is_backgrounded) || self.running.len() >= TASKS_MAX {
            return;
        }
        if let Some(task) = task(&entry)
            && self.running.iter().all(|known| known.id != task.id)
        {
            self.running.push(task);
            self.publish(seen);
        }
    }

    /// A task changed its state.
    pub(super) fn changed(&mut self, seen: &mut Seen, line: &System<'_>) {
        let patch: TaskPatch<'_> = read(line.patch).unwrap_or_default();
        let Some(status) = text(patch.status).or_else(|| text(line.status)) else {
            return;
        };
        let Some(id) = text(line.task_id).filter(|_| OVER.contains(&&*status)) else {
            return;
        };
        let before = self.running.len();
        self.running.retain(|task| task.id != id);
        if self.running.len() < before {
            self.publish(seen);
        }
    }

    fn publish(&mut self, seen: &mut Seen) {
        self.known = true;
        seen.facts.push(Fact::Roster(self.running.clone()));
    }
}

/// `ambient` is Claude's own mark for watchers and the like, "not activity"; the work of an
/// `off_host` task goes on elsewhere and does not need this process.
fn task(entry: &TaskEntry<'_>) -> Option<Task> {
    Some(Task {
        id: one_line(&text(entry.task_id)?, TITLE_CHARS_MAX),
        kind: one_line(&text(entry.task_type).unwrap_or_default(), TITLE_CHARS_MAX),
        description: one_line(
            &text(entry.description).unwrap_or_default(),
            TITLE_CHARS_MAX,
        ),
        ambient: flag(entry.ambient) || flag(entry.off_host),
    })
}
