//! Codex's background work: commands that outlive their turn, and turns of other threads.
//!
//! Fed by the observer. A command begins and ends as an item; while the turn it belongs to runs,
//! that turn holds the session, and from then on the command does. Sub-agents are threads of their
//! own, and work on when the turn that started them is over. Codex starts no turn by itself when
//! either ends.

use std::collections::{BTreeMap, BTreeSet};

use drowse_messages::Task;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::text::{TITLE_CHARS_MAX, one_line};
use super::super::wire::{Part, read, text};
use super::super::{Fact, Seen};
use super::lines::{Item, Listed, Piece, Terminal, id};

/// 64: an agent runs at most a few dozen commands; those left out still leave 64 that hold.
const TASKS_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tasks {
    /// Commands under way, by the id of their item.
    commands: BTreeMap<String, Command>,
    /// Turns of other threads, by their id.
    turns: BTreeMap<String, Task>,
    /// What the threads of sub-agents are for.
    names: BTreeMap<String, String>,
    told: Option<Vec<Task>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Command {
    thread: String,
    turn: String,
    /// It waited for a person's leave, and nobody gave it.
    #[serde(default)]
    barred: bool,
    task: Task,
}

impl Tasks {
    /// A command began.
    pub(super) fn began(&mut self, id: &str, (thread, turn): (&str, &str), item: &Item<'_>) {
        if self.commands.len() < TASKS_MAX {
            let task = Task {
                id: one_line(id, TITLE_CHARS_MAX),
                kind: "command".to_owned(),
                description: one_line(&command(item), TITLE_CHARS_MAX),
                ambient: false,
            };
            let (thread, turn) = (thread.to_owned(), turn.to_owned());
            let command = Command {
                thread,
                turn,
                barred: false,
                task,
            };
            self.commands.insert(id.to_owned(), command);
        }
    }

    /// A command ended.
    pub(super) fn ended(&mut self, id: &str) {
        self.commands.remove(id);
    }

    /// Codex waits for leave to run this no more, and nobody gave it.
    pub(super) fn bar(&mut self, id: &str) {
        if let Some(command) = self.commands.get_mut(id) {
            command.barred = true;
        }
    }

    /// A turn was cut short. Commands that it started go on; those it only asked about never ran,
    /// and no end of them is told.
    pub(super) fn cut_short(&mut self, turn: &str) {
        self.commands
            .retain(|_, command| !(command.barred && command.turn == turn));
    }

    /// A sub-agent was started: what its threads are for.
    pub(super) fn named(&mut self, item: &Item<'_>) {
        let Some(prompt) = text(item.prompt).filter(|prompt| !prompt.is_empty()) else {
            return;
        };
        let prompt = one_line(&prompt, TITLE_CHARS_MAX);
        for thread in read::<Vec<&RawValue>>(item.receivers).unwrap_or_default() {
            let Some(thread) = id(Some(thread)) else {
                continue;
            };
            if self.names.len() < TASKS_MAX {
                self.names.insert(thread.into_owned(), prompt.clone());
            }
        }
    }

    /// A turn of another thread began.
    pub(super) fn turn_began(&mut self, id: &str, thread: &str) {
        if self.turns.len() < TASKS_MAX {
            let what = self.names.get(thread);
            let task = Task {
                id: one_line(id, TITLE_CHARS_MAX),
                kind: "agent".to_owned(),
                description: what.map_or_else(|| format!("thread {thread}"), Clone::clone),
                ambient: false,
            };
            self.turns.insert(id.to_owned(), task);
        }
    }

    /// A turn of another thread is over.
    pub(super) fn turn_over(&mut self, id: &str) {
        self.turns.remove(id);
    }

    /// Says what holds now, if that is news. `running` is the turn of the session's own thread.
    pub(super) fn tell(&mut self, seen: &mut Seen, running: Option<&str>) {
        let outlives = |command: &&Command| {
            let turn = command.turn.as_str();
            running != Some(turn) && !self.turns.contains_key(turn)
        };
        let commands = self.commands.values().filter(outlives);
        let all = commands
            .map(|command| &command.task)
            .chain(self.turns.values());
        let now: Vec<Task> = all.take(TASKS_MAX).cloned().collect();
        if self.told.as_ref() != Some(&now) {
            seen.facts.push(Fact::Roster(now.clone()));
            self.told = Some(now);
        }
    }

    /// What holds, for whoever did not hear it.
    pub(super) fn restate(&self, seen: &mut Seen) {
        if let Some(told) = &self.told {
            seen.roster(told.iter().cloned());
        }
    }

    /// Ids of the commands under way in this thread.
    pub(super) fn commands_of(&self, thread: &str) -> BTreeSet<String> {
        let commands = self.commands.iter();
        let of_thread = commands.filter(|(_, command)| command.thread == thread);
        of_thread.map(|(id, _)| id.clone()).collect()
    }

    /// Codex lists the commands that run in the background of a thread: of those that were
    /// known when it was `asked`, the others are over.
    pub(super) fn compare(&mut self, asked: &BTreeSet<String>, listed: Part<'_>) {
        let listed: Listed<'_> = read(listed).unwrap_or_default();
        let Some(listed) = read::<Vec<Terminal<'_>>>(listed.data) else {
            return;
        };
        let running: BTreeSet<_> = listed.iter().filter_map(|it| id(it.item_id)).collect();
        self.commands
            .retain(|id, _| !asked.contains(id) || running.contains(id.as_str()));
    }
}

/// The command as the model wrote it, without the shell around it where Codex tells them apart.
fn command(item: &Item<'_>) -> String {
    let actions: Vec<Piece<'_>> = read(item.command_actions).unwrap_or_default();
    let alone = match &actions[..] {
        [alone] => text(alone.command),
        _ => None,
    };
    let whole = alone.or_else(|| text(item.command));
    whole.unwrap_or_default().into_owned()
}
