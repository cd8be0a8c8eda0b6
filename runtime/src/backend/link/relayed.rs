//! A link whose agent belongs to a host: lines pass between the two, and the observer only listens.
//!
//! Fed by `link.rs` with what the agent says, and by the host's connection with what the host
//! says. What the agent says is in its pipe or with the shim, which keeps it until a checkpoint
//! knows what became of it; so a daemon that dies leaves bytes that the next one hears as if for
//! the first time. Lines that mean nothing to anybody here are for the host at once (`Show`), and
//! many of them share a checkpoint; anything else waits for its own. What the host says stays with
//! the shim until it is in the agent's pipe, which the kernel accounts for (`relay/tally.rs`). Invariants: nothing
//! of the host's is written while the gate is shut; bytes are forwarded as they came.

use std::rc::Rc;
use std::sync::Arc;

use drowse_actors::ports::Store;
use drowse_messages::{
    AgentStatus, ExitStatus, HostChanged, KeptRelay, ProcIdentity, StatusChanged,
};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;

use super::Link;
use crate::adapter::{Pass, Relay};
use crate::backend::outbox::OfHost;
use crate::process::signal::Signaller;
use crate::relay::{Host, ToShim, Verdict, without_end};

/// 64 KiB of a host's lines are handed over in one go: what a pipe holds.
const PUMP_BYTES: usize = 64 * 1024;

/// 256 KiB of lines that mean nothing share a checkpoint: so much is kept by the shim, and heard
/// again by a next daemon.
const KEEP_EVERY_BYTES: u64 = 256 * 1024;

/// 64 KiB of a filter's memory fit into a checkpoint beside everything else; a larger one is read
/// from the disk, where its newest change may be missing after a crash.
const MEMORY_KEPT_BYTES: usize = 64 * 1024;

/// What the next daemon must know of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::backend) struct Note {
    /// Where the agent's unfinished line begins.
    pub(in crate::backend) line_at: u64,
    /// Verdicts that may not have been sent.
    pub(in crate::backend) verdicts: Vec<(u64, Verdict)>,
    /// The host's bytes before this are in the agent's pipe.
    pub(in crate::backend) host: u64,
    pub(in crate::backend) input_closed: bool,
    pub(in crate::backend) ready: bool,
    pub(in crate::backend) first: bool,
    /// The filter's memory comes along.
    pub(in crate::backend) has_memory: bool,
}

/// See the module.
pub(in crate::backend) struct Relayed {
    host: Rc<Host>,
    filter: Option<Box<dyn Relay>>,
    agent: ProcIdentity,
    store: Arc<dyn Store>,
    kept: KeptRelay,
    /// No process served the host before: it sees for itself whether this one gets ready.
    first: bool,
    ready: bool,
    /// It is being ended.
    shut: bool,
    /// What it still says is nobody's.
    quiet: bool,
    /// Bytes of the agents' that were sent to the shim.
    read: u64,
    line_at: u64,
    verdicts: Vec<(u64, Verdict)>,
    /// Bytes before this are the host's already, whatever the shim keeps of them.
    shown: u64,
    /// The last verdict that the shim was told, or will be.
    settled: u64,
    /// Of the next piece, what the agent has already.
    partly: usize,
    /// Its shim has not come back to this daemon yet.
    awaits_shim: bool,
    input_closed: bool,
    /// The agent's end, which is told once the host is there to hear what came before it.
    exited: Option<Option<ExitStatus>>,
    emptied: bool,
    /// Something that the filter may remember went by.
    changed: bool,
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.host.unlink(self.filter.take(), self.read);
    }
}

/// What a relayed link is made of.
pub(in crate::backend) struct Parts {
    pub(in crate::backend) host: Rc<Host>,
    pub(in crate::backend) filter: Option<Box<dyn Relay>>,
    pub(in crate::backend) agent: ProcIdentity,
    pub(in crate::backend) store: Arc<dyn Store>,
    pub(in crate::backend) kept: KeptRelay,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl Relayed {
    /// Of a new process; `first`: none served the host before.
    pub(in crate::backend) fn new(parts: Parts, first: bool) -> Self {
        let read = parts.host.link();
        let note = Note {
            line_at: read,
            host: parts.host.dealt_with(),
            first,
            ..Note::default()
        };
        Self::with(parts, note, read)
    }

    /// Of one that an earlier daemon relayed, and whose host is linked already.
    pub(super) fn restored(parts: Parts, note: Note) -> Self {
        let read = note.line_at;
        let mut relayed = Self::with(parts, note, read);
        relayed.awaits_shim = true;
        relayed
    }

    fn with(parts: Parts, note: Note, read: u64) -> Self {
        let Parts {
            host,
            filter,
            agent,
            store,
            kept,
        } = parts;
        Self {
            host,
            filter,
            agent,
            store,
            kept,
            first: note.first,
            ready: note.ready,
            shut: false,
            quiet: false,
            read,
            line_at: note.line_at,
            verdicts: note.verdicts,
            shown: 0,
            settled: note.line_at,
            partly: 0,
            awaits_shim: false,
            input_closed: note.input_closed,
            exited: None,
            emptied: false,
            changed: false,
        }
    }

    pub(super) fn host(&self) -> Rc<Host> {
        self.host.clone()
    }

    /// Nobody here knows what the agent speaks: its bytes are activity, and lines are none.
    pub(super) fn is_stream(&self) -> bool {
        self.filter.is_none()
    }

    /// Whether the agent may be read: the host takes what it says, or nobody is to hear it.
    pub(super) fn hears(&self) -> bool {
        let is_alone = self.shut && (self.quiet || !self.host.is_attached());
        is_alone || self.host.can_hear()
    }

    /// A host that is on its way back must hear what the agent said before it hears of its end.
    fn is_waited_for(&self) -> bool {
        !self.shut && !self.host.is_attached()
    }

    /// Copies what the agent said, to listen to; [`Relayed::move_on`] follows.
    pub(super) fn look_at(&mut self, pipe: &pipe::Receiver, buffer: &mut [u8]) -> Option<usize> {
        if self.quiet || !self.host.is_attached() {
            return None;
        }
        let length = self.host.look_at(pipe, buffer)?;
        self.read += length as u64;
        Some(length)
    }

    /// Moves that to the shim. `means_nothing`: of what is known now nobody else has to hear
    /// before the host does.
    pub(super) fn move_on(
        &mut self,
        pipe: &pipe::Receiver,
        looked_at: &mut [u8],
        means_nothing: bool,
    ) {
        let mut known = None;
        if self.filter.is_none() {
            // Nobody listens, so nobody has to hear it again.
            let last = self
                .verdicts
                .pop_if(|(_, verdict)| *verdict == Verdict::Pass);
            known = last.map(|(upto, _)| ToShim::Pass { upto });
        } else if means_nothing
            && let [(upto, Verdict::Pass)] = self.verdicts[..]
            && upto > self.shown
        {
            self.shown = upto;
            known = Some(ToShim::Show { upto });
        }
        self.host.move_on(pipe, looked_at, known.as_slice());
    }

    /// True while nothing has to be written down before the host hears of it, or soon.
    pub(super) fn means_nothing(&self) -> bool {
        let is_plain = |(_, verdict): &(u64, Verdict)| *verdict == Verdict::Pass;
        !self.changed && self.verdicts.iter().all(is_plain)
    }

    /// All that has a verdict is with the host, and not too much of it is kept by the shim.
    pub(super) fn can_wait(&self) -> bool {
        let told = |(upto, _): &(u64, Verdict)| *upto <= self.shown;
        let kept = self.verdicts.last();
        let kept = kept.map_or(0, |(upto, _)| upto.saturating_sub(self.settled));
        self.means_nothing() && self.verdicts.iter().all(told) && kept < KEEP_EVERY_BYTES
    }

    /// The agent said this, and it had to be read.
    pub(super) fn said(&mut self, bytes: &[u8]) {
        if self.quiet {
            return;
        }
        self.host.send(&ToShim::Out(bytes));
        self.read += bytes.len() as u64;
    }

    pub(super) fn complained(&self, bytes: &[u8]) {
        if !self.quiet {
            self.host.send(&ToShim::Err(bytes));
        }
    }

    /// Judges a whole line, once the observer has seen it. What is returned is for the agent.
    pub(super) fn judge(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let mut answer = None;
        let verdict = match self.filter.as_mut()?.from_agent(line) {
            Pass::AsIs => Verdict::Pass,
            Pass::Instead(bytes) => Verdict::Instead(bytes),
            Pass::Swallowed => Verdict::Drop,
            Pass::Answered(lines) => {
                answer = Some(lines);
                Verdict::Drop
            }
        };
        self.changed |= verdict != Verdict::Pass;
        self.end_line(line.len(), verdict);
        answer
    }

    /// A line that was too long to be looked at.
    pub(super) fn pass_dropped(&mut self, bytes: u64) {
        if self.filter.is_some() {
            let length = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.end_line(length, Verdict::Pass);
        }
    }

    fn end_line(&mut self, length: usize, verdict: Verdict) {
        if self.quiet {
            return;
        }
        // The last line of all has no end that counts.
        let upto = (self.line_at + length as u64 + 1).min(self.read);
        self.line_at = upto;
        self.add(upto, verdict);
    }

    fn add(&mut self, upto: u64, verdict: Verdict) {
        match self.verdicts.last_mut() {
            Some((last, Verdict::Pass)) if verdict == Verdict::Pass => *last = upto,
            Some((last, Verdict::Drop)) if verdict == Verdict::Drop => *last = upto,
            Some(_) | None => self.verdicts.push((upto, verdict)),
        }
    }

    /// What can be judged without the end of a line: everything, of an agent that is not spoken to
    /// in lines, and what is too long for one.
    pub(super) fn judge_rest(&mut self, is_too_long: bool) {
        if self.quiet {
            return;
        }
        if self.filter.is_none() {
            self.line_at = self.read;
            self.add(self.read, Verdict::Pass);
        } else if is_too_long {
            // The line's own verdict, at its end, comes to the same.
            self.add(self.read, Verdict::Pass);
        }
    }

    /// The end of a start: true once.
    pub(super) fn gets_ready(&mut self) -> bool {
        let is_open = self.filter.as_ref().is_none_or(|filter| filter.is_open());
        is_open && !std::mem::replace(&mut self.ready, is_open)
    }

    /// What the observer makes of the agent's readiness is the host's affair.
    pub(super) fn is_ours(&self, status: &AgentStatus) -> bool {
        match status {
            AgentStatus::Ready => false,
            AgentStatus::CannotResume { .. } | AgentStatus::CannotStart { .. } => !self.first,
            AgentStatus::TurnStarted
            | AgentStatus::TurnEnded(_)
            | AgentStatus::NotTaken { .. }
            | AgentStatus::BusyStarted(_)
            | AgentStatus::BusyEnded { .. }
            | AgentStatus::Asked(_)
            | AgentStatus::Settled { .. }
            | AgentStatus::Scheduled { .. }
            | AgentStatus::Unscheduled { .. }
            | AgentStatus::Conversation(_)
            | AgentStatus::Young { .. }
            | AgentStatus::Notice { .. } => true,
        }
    }

    pub(super) fn shut(&mut self, quiet: bool) {
        self.shut = true;
        if quiet {
            self.add(self.read, Verdict::Drop);
            self.quiet = true;
        }
    }

    /// Through whom what the host said goes to the agent. What was said in lines may mean something.
    pub(super) fn host_to_give_to(&mut self) -> Rc<Host> {
        self.changed |= self.filter.is_some();
        self.host.clone()
    }

    /// Writes the filter's memory down if it is another one.
    pub(super) fn remember(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let Some(memory) = self.filter.as_ref().map(|filter| filter.memory()) else {
            return;
        };
        if memory != self.kept.memory {
            self.kept.memory = memory;
            self.store
                .keep_relay(self.host.session(), self.kept.clone());
        }
    }

    /// What the next daemon must know, and the filter's memory if it is short enough.
    pub(super) fn note(&self) -> (Note, Vec<u8>) {
        let memory = Some(&self.kept.memory).filter(|it| it.len() <= MEMORY_KEPT_BYTES);
        let note = Note {
            line_at: self.line_at,
            verdicts: self.verdicts.clone(),
            host: self.host.dealt_with(),
            input_closed: self.input_closed,
            ready: self.ready,
            first: self.first,
            has_memory: memory.is_some(),
        };
        (note, memory.cloned().unwrap_or_default())
    }

    /// Tells the shim what the checkpoint knows.
    pub(super) fn tell(&mut self) {
        if self.is_waited_for() {
            return;
        }
        if let Some((upto, _)) = self.verdicts.last() {
            self.settled = *upto;
        }
        for (upto, verdict) in self.verdicts.drain(..) {
            self.host.send(&match &verdict {
                Verdict::Pass => ToShim::Pass { upto },
                Verdict::Drop => ToShim::Drop { upto },
                Verdict::Instead(bytes) => ToShim::Instead { upto, bytes },
            });
        }
    }

    fn signal(&self) {
        while let Some(number) = self.host.take_signal() {
            let Some(signal) = Signal::from_named_raw(number) else {
                continue;
            };
            if let Err(error) = Signaller::new().send_to(self.agent, signal) {
                tracing::debug!(%error, number, "failed to pass a signal on");
            }
        }
    }
}

impl Link {
    /// The host's agent: its observer listens, and a conversation that is taken up again is opened
    /// with the host's own words.
    pub(super) fn open_relayed(&mut self) {
        let seen = self.observer.listen();
        self.take(seen, None);
        let Some(relayed) = &mut self.relayed else {
            return;
        };
        if !relayed.first
            && let Some(filter) = &mut relayed.filter
        {
            let lines = filter.reopen();
            self.outbox.push(lines, None);
        }
        self.note_relay_ready();
    }

    pub(super) fn note_relay_ready(&mut self) {
        if self.relayed.as_mut().is_some_and(Relayed::gets_ready) {
            let (incarnation, status) = (self.incarnation, AgentStatus::Ready);
            self.seen.push(
                StatusChanged {
                    incarnation,
                    status,
                }
                .into(),
            );
        }
    }

    /// Does what the host wants by now.
    pub(super) async fn serve_host(&mut self) {
        let Some(relayed) = &self.relayed else { return };
        relayed.signal();
        let host = relayed.host();
        self.hear_back(&host);
        if self.relayed.as_ref().is_some_and(|it| it.shut) || self.suspending.is_some() {
            return;
        }
        while host.is_open() && self.stdin.is_some() && self.outbox.is_empty() {
            if self.pump(&host) {
                self.write().await;
                continue;
            }
            if host.is_over() {
                self.close_input().await;
            }
            host.all_passed();
            self.seen.push(HostChanged::Passed.into());
        }
    }

    async fn close_input(&mut self) {
        if let Some(relayed) = &mut self.relayed {
            relayed.input_closed = true;
            relayed.changed = true;
        }
        self.close_stdin().await;
    }

    /// Moves what waits into the outbox; false when nothing does.
    fn pump(&mut self, host: &Host) -> bool {
        let Some(relayed) = &mut self.relayed else {
            return false;
        };
        let mut bytes = 0;
        let mut is_any = false;
        while bytes < PUMP_BYTES
            && let Some(piece) = host.take(PUMP_BYTES)
        {
            is_any = true;
            let pass = match &mut relayed.filter {
                Some(filter) if piece.is_line => filter.from_host(without_end(&piece.bytes)),
                Some(_) | None => Pass::AsIs,
            };
            let line = match pass {
                Pass::AsIs => piece.bytes,
                Pass::Instead(line) => line,
                Pass::Swallowed => Vec::new(),
                Pass::Answered(answer) => {
                    host.send(&ToShim::Say(&answer));
                    Vec::new()
                }
            };
            bytes += line.len();
            let of_host = OfHost {
                upto: piece.upto,
                by_parts: !piece.is_line,
            };
            let partly = std::mem::take(&mut relayed.partly);
            self.outbox.push_of_host(line, partly, of_host);
        }
        is_any
    }

    /// A shim came back with bytes that had no verdict: those behind what was judged are heard as
    /// if they were read now. They are with the shim already.
    fn hear_back(&mut self, host: &Host) {
        let Some(back) = host.take_back() else { return };
        let Some(relayed) = &mut self.relayed else {
            return;
        };
        if std::mem::take(&mut relayed.awaits_shim) {
            relayed.partly = back.partly;
        }
        let received = back.judged + back.bytes.len() as u64;
        let start = relayed.line_at.max(back.judged);
        relayed.line_at = start;
        relayed.read = received;
        // What it was told before counts once.
        relayed.verdicts.retain(|(upto, _)| *upto > back.judged);
        let skip = usize::try_from(start - back.judged).unwrap_or(usize::MAX);
        let bytes = back.bytes.get(skip..).unwrap_or_default();
        self.lines = super::Lines::default();
        self.hear(bytes);
        let Some(relayed) = &mut self.relayed else {
            return;
        };
        relayed.changed = true;
        let exited = relayed.exited.take();
        let emptied = std::mem::take(&mut relayed.emptied);
        if let Some(status) = exited {
            self.on_exited(status);
        }
        if emptied {
            self.on_emptied();
        }
    }

    /// Keeps the news of the agent's end until the host is there; true when it did.
    pub(super) fn defers_exit(&mut self, status: Option<ExitStatus>, emptied: bool) -> bool {
        let Some(relayed) = self.relayed.as_mut().filter(|it| it.is_waited_for()) else {
            return false;
        };
        relayed.exited = relayed.exited.or(Some(status));
        relayed.emptied |= emptied;
        true
    }

    /// Policy ends the agent: from now on nothing is for the host, or from it.
    pub(super) fn on_shut_gate(&mut self, quiet: bool) {
        self.outbox.drop_of_host();
        let Some(relayed) = &mut self.relayed else {
            return;
        };
        relayed.shut(quiet);
        let exited = relayed.exited.take();
        let emptied = std::mem::take(&mut relayed.emptied);
        if let Some(status) = exited {
            self.on_exited(status);
        }
        if emptied {
            self.on_emptied();
        }
    }
}
