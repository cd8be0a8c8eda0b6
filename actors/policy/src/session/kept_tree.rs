//! A kept tree: what is below one retired keeper, and the ladder that ends it, or a part of it.
//!
//! SIGTERM → `term_grace` → freeze and SIGKILL → verify. Fed by `keep.rs`. Invariants: one reap
//! request is outstanding at most, lost answers apart; a tree is forgotten only after a fresh walk
//! that found nothing in it, also when its keeper says that it is empty or is gone.

use std::time::Duration;

use drowse_messages::{
    Incarnation, KeepRule, Kept, KeptProcess, MonoTime, ProcIdentity, ReapReport, ReapRequest,
    ReapStep, Running, SessionEvent, Survivor, Who,
};

use super::Cx;
use super::ending::{REAP_ANSWER_MAX, STUCK_RETRY_AFTER};
use super::keep::{Held, publish_ended};
use crate::effect::{BackendOrder, Effect, Input};

/// Where on the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    /// SIGTERM was asked for.
    Terminate,
    /// It was sent.
    Grace,
    Kill,
    Verify,
    Stuck,
}

/// The end of a tree, or of a part of it, under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Teardown {
    by: Who,
    /// Those whose time is not over.
    spared: Vec<ProcIdentity>,
    rung: Rung,
    /// When this rung was taken.
    since: MonoTime,
    /// When it is given up.
    until: MonoTime,
    survivors: Vec<Survivor>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    incarnation: Incarnation,
    running: Running,
    processes: Vec<Held>,
    /// Its keeper said that nothing is left, or is gone.
    emptied: bool,
    teardown: Option<Teardown>,
}

impl Tree {
    pub(super) fn new(kept: &Kept, processes: Vec<Held>) -> Self {
        Self {
            incarnation: kept.incarnation,
            running: kept.running.clone(),
            processes,
            emptied: false,
            teardown: None,
        }
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub(super) fn keeper(&self) -> ProcIdentity {
        self.running.keeper.process
    }

    /// As it is written down.
    pub(super) fn kept(&self) -> Kept {
        let processes = self.processes.iter().map(|held| held.kept.clone());
        Kept {
            incarnation: self.incarnation,
            running: self.running.clone(),
            processes: processes.collect(),
        }
    }

    pub(super) fn is(&self, kept: &Kept) -> bool {
        let same = |(held, kept): (&Held, &KeptProcess)| held.kept == *kept;
        self.incarnation == kept.incarnation
            && self.running == kept.running
            && self.processes.len() == kept.processes.len()
            && self.processes.iter().zip(&kept.processes).all(same)
    }

    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        match &self.teardown {
            Some(teardown) => Some(teardown.until),
            None => self.processes.iter().filter_map(|held| held.ends).min(),
        }
    }

    /// Changes how long its process is kept; `None`: the process meant is not kept by itself, or
    /// is being ended.
    pub(super) fn renew(&mut self, wish: &Held, now: MonoTime) -> Option<KeptProcess> {
        let mut all = self.processes.iter_mut();
        let held = all.find(|held| held.identity() == wish.identity())?;
        if self.teardown.is_some() || held.is_over(now) {
            return None;
        }
        held.ends = wish.ends;
        held.kept.until = wish.kept.until;
        held.kept.rule.clone_from(&wish.kept.rule);
        Some(held.kept.clone())
    }

    /// Answers an input; true once the tree is gone.
    pub(super) fn on(&mut self, input: &Input, cx: &mut Cx<'_>) -> bool {
        if let Input::ReapReport(report) = input
            && report.incarnation == self.incarnation
            && self.on_report(report, cx)
        {
            return self.conclude(cx);
        }
        if let Input::KeptEnded(ended) = input
            && ended.incarnation == self.incarnation
        {
            self.on_emptied(cx);
        }
        if matches!(input, Input::IdleTick(_)) {
            self.pass_time(cx);
        }
        false
    }

    /// Ends all of it, whatever was being ended before.
    pub(super) fn end_all(&mut self, by: &Who, cx: &mut Cx<'_>) {
        let is_on_it = |teardown: &Teardown| teardown.spared.is_empty();
        if !self.teardown.as_ref().is_some_and(is_on_it) {
            self.begin(by.clone(), Vec::new(), Rung::Terminate, cx);
        }
    }

    fn begin(&mut self, by: Who, spared: Vec<ProcIdentity>, rung: Rung, cx: &mut Cx<'_>) {
        self.teardown = Some(Teardown {
            by,
            spared,
            rung,
            since: cx.now,
            until: cx.now,
            survivors: Vec::new(),
        });
        self.enter(rung, cx);
    }

    /// The keeper says that nothing is left below it, or is gone: a walk says whether that is so.
    fn on_emptied(&mut self, cx: &mut Cx<'_>) {
        self.emptied = true;
        match &self.teardown {
            None => self.begin(Who::Outside, Vec::new(), Rung::Verify, cx),
            Some(teardown) => match teardown.rung {
                Rung::Grace | Rung::Stuck => self.enter(Rung::Verify, cx),
                // The answer that is owed will say so.
                Rung::Terminate | Rung::Kill | Rung::Verify => {}
            },
        }
    }

    fn pass_time(&mut self, cx: &mut Cx<'_>) {
        let Some(teardown) = &self.teardown else {
            let is_over = |held: &&Held| held.is_over(cx.now);
            if self.processes.iter().any(|held| is_over(&held)) {
                let spared = self.processes.iter().filter(|held| !is_over(held));
                let spared = spared.map(Held::identity).collect();
                self.begin(Who::Rule, spared, Rung::Terminate, cx);
            }
            return;
        };
        if cx.now < teardown.until {
            return;
        }
        match teardown.rung {
            Rung::Terminate | Rung::Grace | Rung::Kill | Rung::Stuck => self.enter(Rung::Kill, cx),
            Rung::Verify => self.enter(Rung::Verify, cx),
        }
    }

    /// Takes a rung: what it asks of the reaper is asked.
    fn enter(&mut self, rung: Rung, cx: &mut Cx<'_>) {
        let (step, at_most) = match rung {
            Rung::Terminate => (Some(ReapStep::Terminate), REAP_ANSWER_MAX),
            Rung::Grace => (None, cx.common.limits.term_grace),
            Rung::Kill => (Some(ReapStep::Kill), REAP_ANSWER_MAX),
            Rung::Verify => (Some(ReapStep::Verify), REAP_ANSWER_MAX),
            Rung::Stuck => (None, STUCK_RETRY_AFTER),
        };
        let keeper = self.keeper();
        let Some(teardown) = &mut self.teardown else {
            return;
        };
        // A grace is never counted from before SIGTERM was asked for, whatever the clock says.
        let since = match rung {
            Rung::Grace => teardown.since.max(cx.now),
            Rung::Terminate | Rung::Kill | Rung::Verify | Rung::Stuck => cx.now,
        };
        teardown.rung = rung;
        teardown.since = since;
        teardown.until = since.after(Duration::max(at_most, Duration::from_millis(1)));
        let spared = teardown.spared.iter().copied();
        let keep = spared.map(KeepRule::Process).collect();
        if let Some(step) = step {
            cx.fx.push(Effect::Reap(ReapRequest {
                session: cx.common.id,
                incarnation: self.incarnation,
                keeper,
                agent: None,
                cgroup: self.running.cgroup.clone(),
                keep,
                step,
            }));
        }
    }

    /// True once nothing is left of what is being ended.
    fn on_report(&mut self, report: &ReapReport, cx: &mut Cx<'_>) -> bool {
        let Some(teardown) = &mut self.teardown else {
            return false;
        };
        // One that left alone what is to end answers an older request: of the teardown that kept it.
        let is_to_end = |held: &&Held| !teardown.spared.contains(&held.identity());
        let mut to_end = self.processes.iter().filter(is_to_end);
        if to_end.any(|held| report.kept.iter().any(|it| it.identity == held.identity())) {
            return false;
        }
        match (report.step, teardown.rung) {
            (ReapStep::Terminate, Rung::Terminate) if report.empty => self.enter(Rung::Verify, cx),
            (ReapStep::Terminate, Rung::Terminate) => self.enter(Rung::Grace, cx),
            (ReapStep::Kill, Rung::Kill) | (ReapStep::Verify, Rung::Verify) if report.empty => {
                return true;
            }
            (ReapStep::Kill, Rung::Kill) => {
                if teardown.survivors != report.survivors {
                    teardown.survivors.clone_from(&report.survivors);
                    let survivors = report.survivors.clone();
                    cx.publish(SessionEvent::ReleaseFailed { survivors });
                }
                self.enter(Rung::Stuck, cx);
            }
            (ReapStep::Verify, Rung::Verify) => self.enter(Rung::Kill, cx),
            // Late: another rung has been taken since.
            (
                ReapStep::Look
                | ReapStep::Snapshot
                | ReapStep::Terminate
                | ReapStep::Kill
                | ReapStep::Verify,
                Rung::Terminate | Rung::Grace | Rung::Kill | Rung::Verify | Rung::Stuck,
            ) => {}
        }
        false
    }

    /// A walk found nothing of what was to end; true when that is all there was.
    fn conclude(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(Teardown { by, spared, .. }) = self.teardown.take() else {
            return false;
        };
        let is_spared = |held: &mut Held| spared.contains(&held.identity());
        let ended = self.processes.extract_if(.., |held| !is_spared(held));
        let ended = ended.map(|held| held.kept).collect();
        publish_ended(ended, by, cx);
        if self.emptied {
            // Those that were spared ended meanwhile.
            let rest = self.processes.drain(..).map(|held| held.kept).collect();
            publish_ended(rest, Who::Outside, cx);
        }
        if self.processes.is_empty() {
            cx.fx.push(Effect::Tell {
                incarnation: self.incarnation,
                order: BackendOrder::Dismiss,
            });
        }
        self.processes.is_empty()
    }
}
