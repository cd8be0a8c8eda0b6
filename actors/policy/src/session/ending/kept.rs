//! What a teardown leaves alone, because it is to be kept.
//!
//! Fed by `ending.rs`. What the rules mean is found out by the snapshot; the rungs after it spare
//! those very processes. Invariant: whoever joins the teardown and wants all of it ended gets that,
//! at any moment of it.

use drowse_messages::{KeepRule, ProcReport, ReapReport, ReapStep};

use super::{Ending, REAP_ANSWER_MAX, Rung};
use crate::session::{Cx, keep};

impl Ending {
    /// True when something may be meant that no snapshot has named: one that was lost, or failed,
    /// is asked for once more, and waited for longer, before anybody is signalled.
    pub(super) fn must_look_again(&self, cx: &Cx<'_>) -> bool {
        self.kept.is_none() && !self.looked_again && !self.spared(cx).is_empty()
    }

    pub(super) fn look_again(&mut self, cx: &mut Cx<'_>) {
        self.looked_again = true;
        self.reap(Rung::Snapshot, ReapStep::Snapshot, REAP_ANSWER_MAX, cx);
    }

    /// What this rung leaves alone.
    pub(super) fn spared(&self, cx: &Cx<'_>) -> Vec<KeepRule> {
        match &self.kept {
            _ if !self.purpose.keeps() || !keep::has_room(cx.common) => Vec::new(),
            Some(known) => keep::processes(known),
            None => keep::rules(cx.common),
        }
    }

    /// Takes note of what is kept. A step that failed names nobody, and proves nothing.
    pub(super) fn note_kept(&mut self, report: &ReapReport) {
        let says = !report.kept.is_empty() || !report.processes.is_empty() || report.empty;
        if !says {
            return;
        }
        let before = self.kept.take().unwrap_or_default();
        if !self.purpose.keeps() && report.kept.is_empty() {
            self.processes.note(&before);
        }
        // Only the snapshot has looked for ports.
        let known = |now: &ProcReport| before.iter().find(|it| it.identity == now.identity);
        let kept = report
            .kept
            .iter()
            .map(|now| known(now).unwrap_or(now).clone());
        self.kept = Some(kept.collect());
    }

    /// What was left alone is to be kept no more: it is ended like the rest.
    pub(super) fn goes_back_for_kept(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.purpose.keeps() {
            return false;
        }
        let kept = self.kept.take().unwrap_or_default();
        if !kept.is_empty() {
            self.processes.note(&kept);
            self.emptied = false;
            self.terminate(cx);
        }
        !kept.is_empty()
    }

    /// Those that others may miss: they listened, and are no part of the agent itself.
    pub(super) fn servers(&self, ended: &[ProcReport]) -> Vec<ProcReport> {
        let agent = self.running.agent.process;
        let is_server = |it: &&ProcReport| !it.listens.is_empty() && it.identity != agent;
        ended.iter().filter(is_server).cloned().collect()
    }
}
