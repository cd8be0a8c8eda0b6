//! The background tasks of one live agent: a set for each source that tells of some.
//!
//! Fed by `live.rs` with what the agent says, as a whole set each time, and by orders with what its
//! hooks and extensions tell one by one, and by `idle.rs` with what its process tree shows. Invariants: no source changes what another one said; each
//! set is bounded; all of them end with the backend, because a task does not outlive its tree.

use std::collections::BTreeMap;

use drowse_messages::{
    EndTask, MonoTime, Refusal, SessionEvent, StartTask, Task, TaskReport, ToldTask, millis,
};

use super::{Common, Cx};
use crate::effect::Effect;

/// 256: an agent runs a few dozen tasks at most; more is a fault of whatever reports them.
pub const ROSTER_TASKS_MAX: usize = 256;
/// 64 tasks told one by one: more is a hook that forgets to end them.
pub const TOLD_TASKS_MAX: usize = 64;

/// Who tells of what was seen in the process tree.
const OBSERVER: &str = "drowse";

/// A task and since when it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) task: Task,
    /// Who told of it; `None`: the agent itself.
    owner: Option<String>,
    pub(super) since: MonoTime,
}

impl Entry {
    pub(super) fn owner(&self, common: &Common) -> String {
        let owner = self.owner.clone();
        owner.unwrap_or_else(|| common.agent.to_string())
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Roster {
    /// By the agent's own word.
    agent: Vec<Entry>,
    /// Told one by one, by id.
    told: BTreeMap<String, Entry>,
    /// Seen in the process tree, by nobody's word.
    observed: Vec<Entry>,
}

impl Roster {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.agent
            .iter()
            .chain(self.told.values())
            .chain(&self.observed)
    }

    /// Tasks that hold; ambient ones do not (behaviour 18).
    pub(super) fn holding(&self) -> impl Iterator<Item = &Entry> {
        self.iter().filter(|entry| !entry.task.ambient)
    }

    pub(super) fn is_holding(&self) -> bool {
        self.holding().next().is_some()
    }

    /// Replaces what the agent itself reports. False when nothing has changed.
    pub(super) fn replace(&mut self, tasks: &[Task], now: MonoTime) -> bool {
        replace(&mut self.agent, tasks, None, now)
    }

    /// Replaces what was seen in the process tree. False when nothing has changed.
    pub(super) fn observe(&mut self, tasks: &[Task], now: MonoTime) -> bool {
        replace(&mut self.observed, tasks, Some(OBSERVER), now)
    }

    /// True when nothing but what was seen in the tree holds.
    pub(super) fn is_only_observed(&self) -> bool {
        let mut others = self.agent.iter().chain(self.told.values());
        !others.any(|entry| !entry.task.ambient)
    }

    /// Goes on from where an earlier daemon was: what the agent reports keeps its age, what was told
    /// is still so.
    pub(super) fn count_on(
        &mut self,
        agent: &[(String, MonoTime)],
        told: &[ToldTask],
        now: MonoTime,
    ) {
        for entry in &mut self.agent {
            let mut known = agent.iter();
            let known = known.find(|(id, _)| *id == entry.task.id);
            entry.since = known.map_or(entry.since, |(_, since)| (*since).min(now));
        }
        let entries = told.iter().take(TOLD_TASKS_MAX).map(|told| {
            let entry = Entry {
                task: told.task.clone(),
                owner: Some(told.owner.clone()),
                since: told.since.min(now),
            };
            (told.task.id.clone(), entry)
        });
        self.told = entries.collect();
    }

    /// What the agent reports, by its ids, and since when.
    pub(super) fn since(&self) -> impl Iterator<Item = (&String, MonoTime)> {
        self.agent.iter().map(|entry| (&entry.task.id, entry.since))
    }

    /// What was told one by one, to be written down.
    pub(super) fn told(&self) -> Vec<ToldTask> {
        let told = |entry: &Entry| ToldTask {
            task: entry.task.clone(),
            owner: entry.owner.clone().unwrap_or_default(),
            since: entry.since,
        };
        self.told.values().map(told).collect()
    }

    /// True when this is what was told.
    pub(super) fn is_told(&self, written: &[ToldTask]) -> bool {
        let is_same = |(entry, written): (&Entry, &ToldTask)| {
            entry.task == written.task
                && entry.owner.as_ref() == Some(&written.owner)
                && entry.since == written.since
        };
        self.told.len() == written.len() && self.told.values().zip(written).all(is_same)
    }

    /// A task begins that is told of by itself.
    pub(super) fn start(&mut self, start: &StartTask, cx: &mut Cx<'_>) {
        let StartTask { task, owner } = start;
        let known = self.told.get(&task.id);
        if known.is_none() && self.told.len() >= TOLD_TASKS_MAX {
            let detail = format!("{TOLD_TASKS_MAX} tasks are told of already");
            let field = "task".to_owned();
            return cx
                .fx
                .push(Effect::Refuse(Refusal::Invalid { field, detail }));
        }
        let entry = Entry {
            task: task.clone(),
            owner: Some(owner.clone()),
            since: known.map_or(cx.now, |known| known.since),
        };
        if known != Some(&entry) {
            self.told.insert(task.id.clone(), entry);
            self.publish(cx);
        }
    }

    /// It ends; one that is over already is fine.
    pub(super) fn end(&mut self, end: &EndTask, cx: &mut Cx<'_>) {
        if self.told.remove(&end.id).is_some() {
            self.publish(cx);
        }
    }

    /// Tells all tasks there are now, also when there is none any more (behaviour 94).
    pub(super) fn publish(&self, cx: &mut Cx<'_>) {
        let tasks = self.iter().map(|entry| entry.task.clone()).collect();
        cx.publish(SessionEvent::TasksChanged { tasks });
    }

    pub(super) fn reports(&self, common: &Common, now: MonoTime) -> Vec<TaskReport> {
        let report = |entry: &Entry| {
            let age_ms = millis(now.since(entry.since));
            TaskReport::new(entry.task.clone(), entry.owner(common), age_ms)
        };
        self.iter().map(report).collect()
    }
}

/// Puts a whole set in another's place. A task that was there before keeps its age. False when
/// nothing has changed.
fn replace(set: &mut Vec<Entry>, tasks: &[Task], owner: Option<&str>, now: MonoTime) -> bool {
    let is_same = |(old, new): (&Entry, &Task)| old.task == *new;
    if set.len() == tasks.len() && set.iter().zip(tasks).all(is_same) {
        return false;
    }
    let former = std::mem::take(set);
    let since = |id: &str| {
        let mut former = former.iter();
        former.find(|old| old.task.id == id).map(|old| old.since)
    };
    *set = tasks
        .iter()
        .take(ROSTER_TASKS_MAX)
        .map(|task| Entry {
            task: task.clone(),
            owner: owner.map(str::to_owned),
            since: since(&task.id).unwrap_or(now),
        })
        .collect();
    true
}
