//! Work that only the process tree shows: a command that an agent started and does not report.
//!
//! Agents without a roster end their turn while a command of theirs runs on. So before the idle
//! rule releases such a session the tree is looked at, once for each window, and never otherwise.
//! What counts is a shell, whatever a shell left to the keeper, and whatever was put into a process
//! session of its own, as agents do with the commands of their model; and only if it began with the
//! first turn or after it: MCP servers and other helpers are there before (D20).
//!
//! Fed by `idle.rs`. Pure, and it knows of processes only what a report says: numbers, names and
//! when they began. Invariant: what keep rules mean is no work, because a release leaves it alone.

use std::collections::BTreeSet;
use std::time::Duration;

use drowse_messages::{
    MonoTime, ProcIdentity, ProcReport, ReapReport, ReapRequest, ReapStep, Task,
};

use super::live::Live;
use super::{Common, Cx, keep};
use crate::effect::Effect;

/// How long a look may take. 5 s: one that never comes defers the release, and is asked for again.
pub const LOOK_MAX: Duration = Duration::from_secs(5);

/// 16: a person reads them; whether there are more changes nothing.
const OBSERVED_TASKS_MAX: usize = 16;

/// 10 ms: the kernel counts the starts of processes in hundredths of a second, on every machine.
const TICK: Duration = Duration::from_millis(10);

/// The word for such a task.
const KIND: &str = "observed";

/// What people's and agents' shells are called.
const SHELLS: [&str; 9] = [
    "ash", "bash", "busybox", "dash", "fish", "ksh", "sh", "tcsh", "zsh",
];

/// Whether the tree has a word in this session.
pub(super) const fn applies(common: &Common) -> bool {
    common.traits.observed && common.limits.observed
}

/// Asks for a look; says when it is given up.
pub(super) fn look(live: &Live, cx: &mut Cx<'_>) -> MonoTime {
    let running = live.running();
    cx.fx.push(Effect::Reap(ReapRequest {
        session: cx.common.id,
        incarnation: cx.common.incarnation,
        keeper: running.keeper.process,
        agent: Some(running.agent.process),
        cgroup: running.cgroup.clone(),
        keep: if keep::has_room(cx.common) {
            keep::rules(cx.common)
        } else {
            Vec::new()
        },
        step: ReapStep::Look,
    }));
    cx.now.after(LOOK_MAX)
}

/// The work that a look shows; `None`: it failed, for a tree that lives has somebody in it.
pub(super) fn work(report: &ReapReport, live: &Live) -> Option<Vec<Task>> {
    let running = live.running();
    let (agent, keeper) = (running.agent.process, running.keeper.process);
    if report.processes.is_empty() && report.kept.is_empty() && !report.empty {
        return None;
    }
    // Of an agent that has ended meanwhile its end will be heard.
    let own = report.processes.iter().find(|it| it.identity == agent);
    let Some(first_turn) = live.first_turn() else {
        return Some(Vec::new());
    };
    // The kernel's clock of processes goes on while the machine sleeps, ours does not. How much it
    // slept before the launch shows by the agent, which began before it was heard of.
    let slept = started(agent).saturating_sub(millis_of(live.launched()));
    // At the latest: ticks are rounded down.
    let began = |process: &ProcReport| started(process.identity).saturating_sub(slept) + TICK;
    let is_work = |process: &&ProcReport| {
        let is_shell = SHELLS.contains(&process.name.as_str());
        let is_apart = own.is_some_and(|own| own.process_session != process.process_session);
        let is_left = process.parent == keeper.pid();
        process.identity != agent
            && began(process) > millis_of(first_turn)
            && (is_shell || is_apart || is_left)
    };
    let found: Vec<&ProcReport> = report.processes.iter().filter(is_work).collect();
    let pids: BTreeSet<i32> = found.iter().map(|process| process.identity.pid()).collect();
    // What a shell runs is told by the shell.
    let first = found
        .iter()
        .filter(|process| !pids.contains(&process.parent));
    Some(
        first
            .take(OBSERVED_TASKS_MAX)
            .map(|process| task(process))
            .collect(),
    )
}

/// When a process began, since the machine's start.
fn started(process: ProcIdentity) -> Duration {
    let ticks = u32::try_from(process.start_ticks()).unwrap_or(u32::MAX);
    TICK.saturating_mul(ticks)
}

fn millis_of(moment: MonoTime) -> Duration {
    Duration::from_millis(moment.as_millis())
}

fn task(process: &ProcReport) -> Task {
    Task {
        id: format!("pid:{}", process.identity),
        kind: KIND.to_owned(),
        description: format!("{} (pid {})", process.name, process.identity.pid()),
        ambient: false,
    }
}
