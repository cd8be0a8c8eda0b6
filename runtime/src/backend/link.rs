//! One live backend: its keeper, its agent's three pipes, its observer, and the session's orders.
//!
//! One task owns all of it, so nothing is shared and nothing is locked. It turns what the agent
//! says into facts, all that one read brought in one message, and orders into lines on the
//! agent's stdin.
//!
//! Invariants: a launch is answered exactly once; everything the agent wrote before it ended is
//! told before its end is (D36); no read, write or disk access in here keeps another waiting.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

use actix::Recipient;
use drowse_actors::ports::{Launch, Pending, StoreError};
use drowse_actors::session::Facts;
use drowse_messages::{
    Activity, ActivityKind, AgentStatus, BootedIdentity, ChildExited, ExitStatus, Incarnation,
    LaunchFailed, Launched, MessageId, Name, Running, SessionId, StatusChanged, TaskRoster,
    TreeEmptied, TurnEnded,
};
use drowse_policy::{BackendOrder, Input};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::checkpoint::kept_end;
use super::claim::Claim;
use super::launch::{Started, collect, start};
use super::lines::{Line, Lines};
use super::outbox::Outbox;
use super::retired::Retiring;
use super::{Prepared, ReadBuffer, Shared, Told};
use crate::adapter::{Direction, Fact, Observer, Seen};
use crate::chain::chain;
use crate::process::control::ToKeeper;
use crate::process::link::{AgentStdio, KeeperEvent, KeeperLink};
use crate::redact::Redactor;

mod adopt;
mod deliver;
mod keep;
mod pipes;
mod relayed;
mod retire;

pub(super) use adopt::Taken;
use keep::Suspending;
use pipes::{is_empty, readable, try_read, was_emptied};
pub(super) use relayed::{Note, Parts, Relayed};

/// 64 KiB: what a pipe holds, so one read can take all of it.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// 16 KiB of stderr are kept, the newest: enough for a stack trace and its cause.
const STDERR_KEPT_BYTES: usize = 16 * 1024;

/// Whom a link serves, and what it shares with the others.
#[derive(Debug)]
pub(super) struct Ties {
    pub(super) session: SessionId,
    pub(super) incarnation: Incarnation,
    pub(super) protocol: Name,
    pub(super) facts: Recipient<Facts>,
    pub(super) redactor: Redactor,
    pub(super) claim: Claim,
    pub(super) buffer: ReadBuffer,
    /// The daemon ends on purpose, and its agents with it.
    pub(super) ending: Rc<Cell<bool>>,
}

/// Starts one backend; its link is to be served until what is left of it may go. `None` when it could
/// not be started, which is told.
pub(super) async fn begin(
    shared: &Shared,
    launch: Launch,
    prepared: Prepared,
    ties: Ties,
) -> Option<Box<Link>> {
    let incarnation = launch.incarnation;
    match start(shared, &launch, &prepared).await {
        Ok(Started {
            keeper,
            agent,
            stdio,
            cgroup,
        }) => {
            let identity = |process| BootedIdentity {
                boot_id: shared.boot_id.clone(),
                process,
            };
            let running = Running {
                keeper: identity(keeper.keeper()),
                agent: identity(agent),
                cgroup: cgroup.clone(),
            };
            let launched = Launched {
                incarnation,
                running,
            };
            ties.facts.do_send(Facts(vec![launched.into()]));
            let conversation = launch.conversation.as_ref();
            let (recipe, fresh_id) = (&launch.recipe, &prepared.fresh_id);
            let observer = prepared.adapter.observe_in(recipe, conversation, fresh_id);
            let relayed = prepared.relayed(shared, &launch, agent).await;
            // Arguments and environment are kilobytes, and nobody needs them while the agent runs.
            drop((launch, prepared));
            let mut link = Link::new(ties, keeper, stdio, observer);
            link.cgroup = cgroup;
            link.relayed = relayed;
            link.open();
            return Some(link);
        }
        Err(error) => {
            let failed = LaunchFailed {
                incarnation,
                error,
                retry: true,
            };
            ties.facts.do_send(Facts(vec![failed.into()]));
        }
    }
    None
}

/// A delivery that waits for the disk.
type Delivery = Pending<(MessageId, Result<String, StoreError>)>;

pub(super) struct Link {
    session: SessionId,
    incarnation: Incarnation,
    protocol: Name,
    keeper: Option<KeeperLink>,
    keeper_identity: drowse_messages::ProcIdentity,
    /// What the agent was born in; removed with the keeper.
    cgroup: Option<PathBuf>,
    stdin: Option<pipe::Sender>,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
    observer: Box<dyn Observer>,
    /// The agent belongs to a host.
    relayed: Option<Relayed>,
    redactor: Redactor,
    /// Its conversation is nobody else's meanwhile.
    claim: Claim,
    facts: Recipient<Facts>,
    lines: Lines,
    outbox: Outbox,
    /// Facts of this turn of the loop.
    seen: Vec<Input>,
    stderr_tail: Vec<u8>,
    delivery: Option<Delivery>,
    /// The messages that the agent has whole and has not answered.
    in_flight: Vec<MessageId>,
    /// Those it answered last, and how, until the next is written.
    answered: Option<(Vec<MessageId>, TurnEnded)>,
    /// Close stdin once the outbox is empty.
    closing: bool,
    exited: bool,
    /// The hash of the newest checkpoint.
    kept: Option<u64>,
    suspending: Option<Suspending>,
    buffer: ReadBuffer,
    ending: Rc<Cell<bool>>,
}

impl Drop for Link {
    /// A daemon that ends on purpose takes its agents along; one that dies leaves them to the next.
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take().filter(|_| self.ending.get()) {
            keeper.end();
        }
    }
}

/// What happened next.
enum Next {
    Keeper(Option<KeeperEvent>),
    Kept,
    Stdout,
    Stderr,
    Writable,
    Delivery((MessageId, Result<String, StoreError>)),
    Told(Option<Told>),
    Host,
    Late,
}

impl Next {
    /// It is about bytes on their way, and nothing else.
    fn moves_bytes(&self) -> bool {
        matches!(
            self,
            Self::Kept
                | Self::Stdout
                | Self::Stderr
                | Self::Writable
                | Self::Host
                | Self::Told(Some(Told::Order(BackendOrder::OpenGate)))
        )
    }
}

impl Link {
    pub(super) fn new(
        ties: Ties,
        keeper: KeeperLink,
        stdio: AgentStdio,
        observer: Box<dyn Observer>,
    ) -> Box<Self> {
        let Ties {
            session,
            incarnation,
            protocol,
            facts,
            redactor,
            claim,
            buffer,
            ending,
        } = ties;
        // Boxed, since each future that it is handed to would have room for one of its own.
        Box::new(Self {
            session,
            incarnation,
            protocol,
            keeper_identity: keeper.keeper(),
            keeper: Some(keeper),
            cgroup: None,
            stdin: stdio.stdin,
            stdout: Some(stdio.stdout),
            stderr: Some(stdio.stderr),
            observer,
            relayed: None,
            redactor,
            claim,
            facts,
            lines: Lines::default(),
            outbox: Outbox::default(),
            seen: Vec::new(),
            stderr_tail: Vec::new(),
            delivery: None,
            in_flight: Vec::new(),
            answered: None,
            closing: false,
            exited: false,
            kept: None,
            suspending: None,
            buffer,
            ending,
        })
    }

    fn open(&mut self) {
        if self.relayed.is_some() {
            self.open_relayed();
        } else {
            let seen = self.observer.open();
            self.take(seen, None);
        }
        self.tell();
    }

    /// Serves it to its dismissal, or until only what is kept is left of it: then its keeper is
    /// returned, which stays above that.
    pub(super) async fn serve(
        mut self: Box<Self>,
        shared: &Shared,
        mut told: mpsc::Receiver<Box<Told>>,
    ) -> Option<Retiring> {
        loop {
            let next = self.next(&mut told).await;
            let moves_bytes = next.moves_bytes();
            match next {
                Next::Keeper(Some(event)) => self.on_keeper(&event),
                Next::Keeper(None) => self.on_keeper_lost(),
                Next::Kept => {}
                Next::Stdout => _ = self.read_stdout(),
                Next::Stderr => _ = self.read_stderr(),
                Next::Writable => self.write().await,
                Next::Delivery((message, text)) => self.on_delivery(shared, message, text),
                Next::Told(Some(Told::Order(BackendOrder::Dismiss))) => break,
                Next::Told(Some(Told::Order(BackendOrder::Retire { until }))) => {
                    return Box::pin(self.retire(until)).await;
                }
                Next::Told(Some(Told::Order(order))) => self.on_order(shared, order),
                Next::Told(Some(Told::Suspend(done))) => self.suspend(done),
                // Another launch took its place, which happens only after it was dismissed, or
                // the daemon ends.
                Next::Told(None) => break,
                Next::Host => {}
                Next::Late => self.is_late(),
            }
            self.serve_host().await;
            if self.can_let_go() {
                Box::pin(self.let_go()).await;
                return None;
            }
            if !(moves_bytes && self.can_wait()) {
                self.keep().await;
                self.tell_host();
            }
            self.tell();
            if !self.facts.connected() {
                // The session's actor vanished, perhaps before the launch was written down: the
                // keeper ends its tree on the way out, so nobody else has to know of it.
                break;
            }
        }
        // Boxed, as what a backend does once at its end.
        Box::pin(self.leave(shared)).await;
        None
    }

    async fn next(&mut self, told: &mut mpsc::Receiver<Box<Told>>) -> Next {
        let Self {
            keeper,
            stdin,
            stdout,
            stderr,
            outbox,
            delivery,
            closing,
            suspending,
            relayed,
            ..
        } = self;
        let hears = relayed.as_ref().is_none_or(Relayed::hears);
        let host = relayed.as_ref().map(Relayed::host);
        let behind = keeper.as_ref().is_some_and(KeeperLink::is_behind);
        let wants_write = stdin.is_some() && (!outbox.is_empty() || *closing) && !behind;
        let late_at = suspending.as_ref().map(|suspending| suspending.until);
        tokio::select! {
            next = async { hear(keeper.as_mut().expect("checked")).await }, if keeper.is_some() => next,
            () = readable(stdout.as_ref()), if stdout.is_some() && hears => Next::Stdout,
            () = readable(stderr.as_ref()), if stderr.is_some() && hears => Next::Stderr,
            _ = async { stdin.as_ref().expect("checked").writable().await }, if wants_write => {
                Next::Writable
            }
            done = async { delivery.as_mut().expect("checked").await }, if delivery.is_some() => {
                Next::Delivery(done)
            }
            said = told.recv() => Next::Told(said.map(|told| *told)),
            () = async { host.as_ref().expect("checked").wanted().await }, if host.is_some() => {
                Next::Host
            }
            () = async { tokio::time::sleep_until(late_at.expect("checked")).await },
                if late_at.is_some() => Next::Late,
        }
    }

    fn on_keeper(&mut self, event: &KeeperEvent) {
        match event {
            KeeperEvent::Exited(status) => {
                if !self.defers_exit(Some(*status), false) {
                    self.on_exited(Some(*status));
                }
            }
            KeeperEvent::Empty => {
                if !self.defers_exit(None, true) {
                    self.on_emptied();
                }
            }
            KeeperEvent::Started { .. } | KeeperEvent::LaunchFailed(_) => {}
        }
    }

    fn on_emptied(&mut self) {
        self.on_exited(None);
        let incarnation = self.incarnation;
        self.seen.push(TreeEmptied { incarnation }.into());
    }

    /// The keeper has left, or is not understood; then it still has a tree to end.
    fn on_keeper_lost(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.end();
        }
        self.on_exited(None);
    }

    /// The agent ended: what it wrote before is still in the pipes, and is told first.
    fn on_exited(&mut self, status: Option<ExitStatus>) {
        if std::mem::replace(&mut self.exited, true) {
            return;
        }
        while self.read_stdout() {}
        self.finish_stdout();
        while self.read_stderr() {}
        self.stop_writing();
        let tail = self
            .redactor
            .redact(&String::from_utf8_lossy(&self.stderr_tail));
        let facts = self.observer.exited(&tail);
        self.take(
            Seen {
                facts,
                write: Vec::new(),
            },
            None,
        );
        let incarnation = self.incarnation;
        self.seen.push(
            ChildExited {
                incarnation,
                status,
                stderr_tail: tail,
            }
            .into(),
        );
    }

    /// Reads once what the agent wrote; false when there was nothing.
    fn read_stdout(&mut self) -> bool {
        let buffer = self.buffer.clone();
        let mut buffer = buffer.borrow_mut();
        let looked = match (&mut self.relayed, &self.stdout) {
            (Some(relayed), Some(stdout)) => relayed.look_at(stdout, &mut buffer),
            (Some(_) | None, _) => None,
        };
        if let Some(bytes) = looked {
            let looked_at = &mut buffer[..bytes];
            self.hear(looked_at);
            let means_nothing = self.means_nothing();
            if let (Some(relayed), Some(stdout)) = (&mut self.relayed, &self.stdout) {
                relayed.move_on(stdout, looked_at, means_nothing);
                if bytes < READ_BYTES && is_empty(stdout) {
                    was_emptied(stdout);
                }
            }
            return true;
        }
        match try_read(self.stdout.as_ref(), self.exited, &mut buffer) {
            Ok(0) => {
                self.finish_stdout();
                self.stdout = None;
            }
            Ok(bytes) => {
                if let Some(relayed) = &mut self.relayed {
                    relayed.said(&buffer[..bytes]);
                }
                self.hear(&buffer[..bytes]);
                return true;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.stdout = None,
        }
        false
    }

    /// Cuts what the agent said into lines, if it is spoken to in lines.
    fn hear(&mut self, bytes: &[u8]) {
        if let Some(relayed) = self.relayed.as_mut().filter(|it| it.is_stream()) {
            relayed.judge_rest(false);
            let seen = self.observer.observe(Direction::Out, bytes);
            return self.take(seen, None);
        }
        let mut lines = std::mem::take(&mut self.lines);
        lines.push(bytes, |line| self.on_line(&line));
        self.lines = lines;
        if let Some(relayed) = &mut self.relayed {
            relayed.judge_rest(self.lines.partial().is_none());
        }
    }

    fn finish_stdout(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.finish(|line| self.on_line(&line));
    }

    fn on_line(&mut self, line: &Line<'_>) {
        match line {
            Line::Whole(bytes) => {
                let seen = self.observer.observe(Direction::Out, bytes);
                self.take(seen, None);
                if let Some(relayed) = &mut self.relayed {
                    let answer = relayed.judge(bytes);
                    if self.stdin.is_some() {
                        self.outbox.push(answer.into_iter().collect(), None);
                    }
                    self.note_relay_ready();
                }
            }
            Line::Dropped(bytes) if self.relayed.is_some() => {
                if let Some(relayed) = &mut self.relayed {
                    relayed.pass_dropped(*bytes);
                }
                let text = format!("passed a line of {bytes} bytes on without looking at it");
                self.note(Fact::Status(AgentStatus::Notice { text }));
            }
            Line::Dropped(bytes) => {
                let text = format!("dropped a line of {bytes} bytes: longer than is kept");
                self.note(Fact::Status(AgentStatus::Notice { text }));
            }
        }
    }

    /// Reads once what the agent complained of; false when there was nothing.
    fn read_stderr(&mut self) -> bool {
        let mut buffer = self.buffer.borrow_mut();
        match try_read(self.stderr.as_ref(), self.exited, &mut buffer) {
            Ok(0) => self.stderr = None,
            Ok(bytes) => {
                if let Some(relayed) = &self.relayed {
                    relayed.complained(&buffer[..bytes]);
                }
                self.stderr_tail.extend_from_slice(&buffer[..bytes]);
                let surplus = self.stderr_tail.len().saturating_sub(STDERR_KEPT_BYTES);
                self.stderr_tail.drain(..surplus);
                return true;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.stderr = None,
        }
        false
    }

    fn take(&mut self, seen: Seen, message: Option<MessageId>) {
        seen.facts.into_iter().for_each(|fact| self.note(fact));
        if self.stdin.is_some() && !(seen.write.is_empty() && message.is_none()) {
            self.outbox.push(seen.write, message);
        }
    }

    fn note(&mut self, fact: Fact) {
        if let (Fact::Status(status), Some(relayed)) = (&fact, &self.relayed)
            && !relayed.is_ours(status)
        {
            return;
        }
        if let Fact::Status(AgentStatus::TurnEnded(ended)) = &fact
            && ended.answers
        {
            let left = usize::try_from(ended.left).unwrap_or(usize::MAX);
            let answered = self.in_flight.len().saturating_sub(left);
            let left = self.in_flight.split_off(answered);
            let answered = std::mem::replace(&mut self.in_flight, left);
            if !answered.is_empty() {
                self.answered = Some((answered, kept_end(ended)));
            }
        }
        if let Fact::Status(AgentStatus::NotTaken { .. }) = &fact {
            self.in_flight.pop();
        }
        if let Fact::Status(AgentStatus::Conversation(conversation)) = &fact {
            self.claim.follow(conversation);
        }
        if let Fact::Output(text) = &fact
            && text.is_empty()
            && self.seen.last().is_some_and(keep::is_output)
        {
            // Activity is told once, however many lines it had.
            return;
        }
        let incarnation = self.incarnation;
        self.seen.push(match fact {
            Fact::Status(status) => StatusChanged {
                incarnation,
                status,
            }
            .into(),
            Fact::Roster(tasks) => TaskRoster { incarnation, tasks }.into(),
            Fact::Output(text) => {
                let kind = ActivityKind::Output(text);
                Activity {
                    incarnation: Some(incarnation),
                    kind,
                }
                .into()
            }
        });
    }

    /// One message for all that this turn of the loop brought.
    fn tell(&mut self) {
        if !self.seen.is_empty() {
            self.facts.do_send(Facts(std::mem::take(&mut self.seen)));
        }
    }

    /// What the checkpoint knows, the host may.
    fn tell_host(&mut self) {
        if let Some(relayed) = &mut self.relayed {
            relayed.tell();
        }
    }

    async fn leave(&mut self, shared: &Shared) {
        if let Some(mut keeper) = self.keeper.take()
            && let Err(error) = keeper.send(ToKeeper::Leave).await
        {
            tracing::debug!(error = chain(&error), "failed to let a keeper go");
        }
        collect(shared, self.keeper_identity, self.cgroup.take());
    }
}

/// The keeper's next word. While it takes nothing it says nothing either, or has gone, which the
/// next turn finds.
async fn hear(keeper: &mut KeeperLink) -> Next {
    if keeper.is_behind() {
        let _gone = keeper.sent().await;
        return Next::Kept;
    }
    Next::Keeper(keeper.next_message().await.unwrap_or_else(|error| {
        tracing::warn!(error = chain(&error), "lost a keeper");
        None
    }))
}
