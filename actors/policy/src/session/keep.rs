//! What a session keeps of its backends: rules and orders while one lives, trees of retired
//! keepers afterwards.
//!
//! Fed by `session.rs` before the phase is, whatever that is: a kept tree lives beside the backend
//! that follows, and is ended by a ladder of its own (`kept_tree.rs`). The teardown that leaves one
//! is in `ending.rs`. Invariants: what is kept is ended only when its time is over or somebody
//! says so; a session is not let go while it keeps something.

use std::collections::BTreeMap;
use std::time::Duration;

use drowse_messages::{
    Keep, KeepRule, Keeping, Kept, KeptProcess, MonoTime, Order, ProcIdentity, ProcReport, Refusal,
    Running, SessionEvent, Stop, Who,
};

use super::kept_tree::Tree;
use super::{Common, Cx, Phase};
use crate::effect::{BackendOrder, Effect, Input};

/// 8 retired keepers of one session: more is a loop that leaves a server behind each time.
pub const RETIRED_MAX: usize = 8;
/// 32 processes that somebody asked to keep of one backend: each was named by hand.
pub const ASKED_MAX: usize = 32;
/// 64 kept processes of one backend are known by name; what is below them is kept, and not listed.
pub const KEPT_MAX: usize = 64;
/// A year: what is to last longer needs no limit.
pub const KEEP_TTL_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// 64 processes in the account a wake gives of the last end: it is kept with every wake.
const WOKEN_PROCESSES_MAX: usize = 64;
/// The kernel's name of a process ends after so many bytes.
const COMM_BYTES: usize = 15;

/// A kept process, and when it ends on the daemon's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) kept: KeptProcess,
    pub(super) ends: Option<MonoTime>,
}

impl Held {
    pub(super) fn identity(&self) -> ProcIdentity {
        self.kept.process.identity
    }

    /// As read from disk: what is left of its time begins to run now.
    fn restored(kept: &KeptProcess, cx: &Cx<'_>) -> Self {
        let left = kept.until.map(|until| until.since(cx.common.wall));
        let ends = left.map(|left| cx.now.after(left));
        let kept = kept.clone();
        Self { kept, ends }
    }

    pub(super) fn is_over(&self, now: MonoTime) -> bool {
        self.ends.is_some_and(|ends| now >= ends)
    }
}

/// All that a session keeps, or is to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keepsakes {
    asked: Vec<Held>,
    trees: Vec<Tree>,
    /// As the record had it; taken up by the first step.
    restored: Option<Keeping>,
}

impl Keepsakes {
    pub(super) fn restore(keeping: &Keeping) -> Self {
        Self {
            restored: (!keeping.is_empty()).then(|| keeping.clone()),
            ..Self::default()
        }
    }

    /// True while no process is kept, so that nothing has to be watched.
    pub(super) fn is_clear(&self) -> bool {
        self.trees.is_empty() && self.restored.is_none()
    }

    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        let asked = self.asked.iter().filter_map(|held| held.ends);
        let trees = self.trees.iter().filter_map(Tree::next_deadline);
        asked.chain(trees).min()
    }

    /// As it is written down.
    pub(super) fn keeping(&self) -> Keeping {
        if let Some(restored) = &self.restored {
            return restored.clone();
        }
        Keeping {
            kept: self.trees.iter().map(Tree::kept).collect(),
            asked: self.asked.iter().map(|held| held.kept.clone()).collect(),
        }
    }

    /// Compares without copying: this runs for every line an agent says.
    pub(super) fn is_saved(&self, saved: &Keeping) -> bool {
        if let Some(restored) = &self.restored {
            return restored == saved;
        }
        let same = |(held, kept): (&Held, &KeptProcess)| held.kept == *kept;
        self.trees.len() == saved.kept.len()
            && self.asked.len() == saved.asked.len()
            && self.asked.iter().zip(&saved.asked).all(same)
            && self.trees.iter().zip(&saved.kept).all(|(t, k)| t.is(k))
    }

    /// The keepers above what is kept.
    pub(super) fn keepers(&self) -> Vec<ProcIdentity> {
        self.trees.iter().map(Tree::keeper).collect()
    }

    /// A new launch: what was asked of the former backend is void.
    pub(super) fn forget_asked(&mut self) {
        self.asked.clear();
    }
}

/// True when the input speaks of a kept tree, and not of the newest backend.
pub(super) fn is_meant(input: &Input, common: &Common) -> bool {
    if let Input::ReapReport(report) = input {
        let mut trees = common.keep.trees.iter();
        trees.any(|tree| tree.incarnation() == report.incarnation)
    } else {
        matches!(input, Input::KeptEnded(_))
    }
}

/// Lets the kept trees answer an input, and time pass for them.
pub(super) fn drive(input: &Input, cx: &mut Cx<'_>) {
    take_up(input, cx);
    if cx.common.keep.trees.is_empty() && cx.common.keep.asked.is_empty() {
        return;
    }
    if matches!(input, Input::IdleTick(_)) {
        expire_asked(cx);
    }
    let mut trees = std::mem::take(&mut cx.common.keep.trees);
    trees.retain_mut(|tree| !tree.on(input, cx));
    cx.common.keep.trees = trees;
}

/// Takes over what the record had: an earlier daemon kept it. What somebody asked for is void
/// unless the backend lives on.
fn take_up(input: &Input, cx: &mut Cx<'_>) {
    let Some(mut restored) = cx.common.keep.restored.take() else {
        return;
    };
    if !matches!(input, Input::Adopted(_)) {
        restored.asked.clear();
    }
    let held = |kept: &KeptProcess| Held::restored(kept, cx);
    let asked = restored.asked.iter().map(held).collect();
    let trees: Vec<Tree> = restored
        .kept
        .iter()
        .map(|kept| Tree::new(kept, kept.processes.iter().map(held).collect()))
        .collect();
    cx.common.keep.asked = asked;
    cx.common.keep.trees = trees;
    for kept in restored.kept {
        cx.fx.push(Effect::Watch(Box::new(kept)));
    }
}

/// What was asked for a time is, after it, a process like any other of its backend.
fn expire_asked(cx: &mut Cx<'_>) {
    let now = cx.now;
    let over = cx
        .common
        .keep
        .asked
        .extract_if(.., |held| held.is_over(now));
    let over: Vec<Held> = over.collect();
    for held in over {
        let (name, rule) = (held.kept.process.name, held.kept.rule);
        let text = format!("{name} ({rule}) is no longer to be kept: its time is over");
        cx.publish(SessionEvent::Notice { text });
    }
}

/// An end that keeps nothing ends what earlier ones kept.
pub(super) fn note_order(order: &Order, cx: &mut Cx<'_>) {
    if let Order::Stop(Stop { how, by }) = order
        && !how.keeps()
    {
        let mut trees = std::mem::take(&mut cx.common.keep.trees);
        for tree in &mut trees {
            tree.end_all(by, cx);
        }
        cx.common.keep.trees = trees;
    }
}

/// Somebody wants a process kept. `is_live`: there is a backend it can belong to.
pub(super) fn ask(keep: &Keep, is_live: bool, state: &str, cx: &mut Cx<'_>) {
    if keep
        .ttl
        .is_some_and(|ttl| ttl.is_zero() || ttl > KEEP_TTL_MAX)
    {
        return refuse("ttl", "is not between 1 ms and 366 days", cx);
    }
    let kept = KeptProcess {
        process: keep.process.clone(),
        rule: keep.rule.clone(),
        since: cx.common.wall,
        until: keep.ttl.map(|ttl| cx.common.wall.after(ttl)),
    };
    let ends = keep.ttl.map(|ttl| cx.now.after(ttl));
    let mut held = Held { kept, ends };
    let now = cx.now;
    let trees = &mut cx.common.keep.trees;
    if let Some(tree) = trees.iter_mut().find(|tree| tree.keeper() == keep.keeper) {
        let Some(known) = tree.renew(&held, now) else {
            return refuse("pid", "is below a kept process: name that one", cx);
        };
        held.kept = known;
    } else if !is_live {
        return super::orders::refuse_not_running(state, cx);
    } else {
        let asked = &mut cx.common.keep.asked;
        asked.retain(|old| old.identity() != held.identity() && old.kept.rule != held.kept.rule);
        if asked.len() >= ASKED_MAX {
            return refuse(
                "pid",
                "is one too many: 32 processes are to be kept already",
                cx,
            );
        }
        asked.push(held.clone());
    }
    cx.publish(SessionEvent::KeepAsked {
        kept: Box::new(held.kept),
        by: keep.by.clone(),
    });
}

fn refuse(field: &str, detail: &str, cx: &mut Cx<'_>) {
    cx.fx.push(Effect::Refuse(Refusal::Invalid {
        field: field.to_owned(),
        detail: detail.to_owned(),
    }));
}

/// What a teardown leaves alone before it is known which processes that is.
pub(super) fn rules(common: &Common) -> Vec<KeepRule> {
    let asked = common.keep.asked.iter().map(|held| held.kept.rule.clone());
    let mut rules: Vec<KeepRule> = common.limits.keep.iter().cloned().chain(asked).collect();
    rules.sort();
    rules.dedup();
    rules
}

/// What it leaves alone once that is known.
pub(super) fn processes(known: &[ProcReport]) -> Vec<KeepRule> {
    let rule = |process: &ProcReport| KeepRule::Process(process.identity);
    known.iter().map(rule).collect()
}

/// False when as much is kept already as there may be.
pub(super) fn has_room(common: &Common) -> bool {
    common.keep.trees.len() < RETIRED_MAX
}

/// A backend is over, and these processes outlive it: its keeper stays for them, or leaves.
pub(super) fn retire(running: &Running, left: &[ProcReport], cx: &mut Cx<'_>) -> Vec<KeptProcess> {
    let held = topmost(left)
        .into_iter()
        .map(|(process, group)| hold(process, &group, cx))
        .collect::<Vec<Held>>();
    cx.common.keep.forget_asked();
    if held.is_empty() {
        cx.tell(BackendOrder::Dismiss);
        return Vec::new();
    }
    // The keeper's own deadline is for the case that no daemon is there when it comes.
    let ends: Option<Vec<MonoTime>> = held.iter().map(|held| held.ends).collect();
    let last = ends.and_then(|ends| ends.into_iter().max());
    let until = last.map(|last| last.since(cx.now));
    cx.tell(BackendOrder::Retire { until });
    let processes: Vec<KeptProcess> = held.iter().map(|held| held.kept.clone()).collect();
    let kept = Kept {
        incarnation: cx.common.incarnation,
        running: running.clone(),
        processes: processes.clone(),
    };
    cx.common.keep.trees.push(Tree::new(&kept, held));
    cx.publish(SessionEvent::Kept {
        processes: processes.clone(),
    });
    processes
}

/// The topmost of the processes, each with all that is below it and its ports.
fn topmost<'a>(left: &'a [ProcReport]) -> Vec<(ProcReport, Vec<&'a ProcReport>)> {
    let by_pid: BTreeMap<i32, &'a ProcReport> =
        left.iter().map(|it| (it.identity.pid(), it)).collect();
    let parent_of = |it: &&ProcReport| by_pid.get(&it.parent).copied();
    let top_of = |it: &ProcReport| {
        // Bounded, because a report is no proof that parents make no circle.
        let line = std::iter::successors(by_pid.get(&it.identity.pid()).copied(), parent_of);
        line.take(left.len()).last().map(|top| top.identity.pid())
    };
    let mut groups: BTreeMap<i32, Vec<&'a ProcReport>> = BTreeMap::new();
    for process in left {
        if let Some(top) = top_of(process) {
            groups.entry(top).or_default().push(process);
        }
    }
    let group_of = |(top, group): (i32, Vec<&'a ProcReport>)| {
        let mut process = (*by_pid.get(&top)?).clone();
        process.listens = group.iter().flat_map(|it| it.listens.clone()).collect();
        process.listens.sort_unstable();
        process.listens.dedup();
        Some((process, group))
    };
    groups
        .into_iter()
        .filter_map(group_of)
        .take(KEPT_MAX)
        .collect()
}

/// Says why and how long a process is kept: for ever if a rule of the configuration means it.
fn hold(process: ProcReport, group: &[&ProcReport], cx: &Cx<'_>) -> Held {
    let means = |rule: &&KeepRule| is_meant_by(rule, group);
    if let Some(rule) = cx.common.limits.keep.iter().find(means) {
        let kept = KeptProcess {
            process,
            rule: rule.clone(),
            since: cx.common.wall,
            until: None,
        };
        return Held { kept, ends: None };
    }
    let asked = &cx.common.keep.asked;
    let mut meant = asked.iter().filter(|held| means(&&held.kept.rule));
    if let Some(first) = meant.next() {
        // `None` is for ever: the longest wish counts.
        let longest = meant.fold(first, |one, other| match (one.ends, other.ends) {
            (Some(a), Some(b)) if b <= a => one,
            (None, _) => one,
            (Some(_), _) => other,
        });
        let kept = KeptProcess {
            process,
            ..longest.kept.clone()
        };
        let ends = longest.ends;
        return Held { kept, ends };
    }
    // The reaper knows an executable by its whole name, of which a report has the beginning.
    let rule = KeepRule::Process(process.identity);
    let exe = |rule: &&KeepRule| matches!(rule, KeepRule::Exe(_));
    let kept = KeptProcess {
        process,
        rule: cx
            .common
            .limits
            .keep
            .iter()
            .find(exe)
            .cloned()
            .unwrap_or(rule),
        since: cx.common.wall,
        until: None,
    };
    Held { kept, ends: None }
}

fn is_meant_by(rule: &KeepRule, group: &[&ProcReport]) -> bool {
    group.iter().any(|process| match rule {
        KeepRule::Listen(port) => process.listens.contains(port),
        KeepRule::Process(identity) => process.identity == *identity,
        KeepRule::Exe(name) => {
            let end = COMM_BYTES.min(name.len());
            name.as_bytes()[..end] == *process.name.as_bytes()
        }
    })
}

/// It runs again: says what became of its last process, and which servers ended with that.
pub(super) fn tell_of_end(cx: &mut Cx<'_>) {
    let Some(end) = &cx.common.end else { return };
    let mut processes = end.processes.clone();
    processes.truncate(WOKEN_PROCESSES_MAX);
    let woken = SessionEvent::Woken {
        reason: end.reason,
        by: end.by.clone(),
        ended: end.at,
        processes,
    };
    let notice = end.notice();
    cx.publish(woken);
    if let Some(text) = notice {
        cx.publish(SessionEvent::Notice { text });
    }
}

/// Nothing runs and nothing is to be kept: the kept trees are being ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clearing {
    purpose: super::purpose::Purpose,
    /// It was failing, which a shutdown does not change.
    failing: bool,
}

impl Clearing {
    pub(super) fn begin(purpose: super::purpose::Purpose, failing: bool) -> Phase {
        Phase::Clearing(Box::new(Self { purpose, failing }))
    }

    /// The next daemon decides what follows.
    pub(super) fn suspend(&mut self) {
        self.purpose.suspend();
    }

    pub(super) fn on(mut self: Box<Self>, input: &Input, cx: &mut Cx<'_>) -> Phase {
        match input {
            Input::Order(order) => self.on_order(order, cx),
            Input::MessageQueued(_) => self.purpose.note_message(),
            Input::StartGranted(_) => cx.fx.push(Effect::StartSettled),
            // Nothing runs that could say any of this; the trees have heard of the rest.
            Input::Activity(_)
            | Input::StatusChanged(_)
            | Input::TaskRoster(_)
            | Input::IdleTick(_)
            | Input::Delivered(_)
            | Input::Launched(_)
            | Input::LaunchFailed(_)
            | Input::ChildExited(_)
            | Input::TreeEmptied(_)
            | Input::ReapReport(_)
            | Input::KeptEnded(_)
            | Input::Host(_)
            | Input::Adopted(_)
            | Input::Suspend(_)
            | Input::LimitsChanged(_) => {}
        }
        Phase::Clearing(self)
    }

    fn on_order(&mut self, order: &Order, cx: &mut Cx<'_>) {
        match order {
            Order::Stop(stop) => self.purpose.join(stop, cx),
            Order::Wake(wake) => self.purpose.wake(wake.fresh),
            Order::ChangeAccount(_) => self.purpose.wake(false),
            Order::Answer(answer) => super::orders::refuse_answer(answer, cx),
            Order::Keep(keep) => ask(keep, false, "stopping", cx),
            Order::LiftHold(_) | Order::EndTask(_) | Order::Cancel(_) | Order::RecordOutcome(_) => {
            }
            Order::Interrupt(_) | Order::TakeHold(_) | Order::StartTask(_) => {
                super::orders::refuse_not_running("stopping", cx);
            }
        }
    }
}

/// What follows once the last kept tree is gone.
pub(super) fn settle(phase: Phase, cx: &mut Cx<'_>) -> Phase {
    let Phase::Clearing(clearing) = phase else {
        return phase;
    };
    if !cx.common.keep.is_clear() {
        Phase::Clearing(clearing)
    } else if clearing.failing && clearing.purpose.is_shutdown() {
        Phase::Failing
    } else {
        clearing.purpose.follow(cx)
    }
}

/// For an event: they have ended, and why.
pub(super) fn publish_ended(ended: Vec<KeptProcess>, by: Who, cx: &mut Cx<'_>) {
    if !ended.is_empty() {
        let processes = ended;
        cx.publish(SessionEvent::KeptEnded { processes, by });
    }
}
