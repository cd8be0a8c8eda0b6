//! One live backend: its keeper, its agent's three pipes, its observer, and the session's orders.
//!
//! One task owns all of it, so nothing is shared and nothing is locked. It turns what the agent
//! says into facts, all that one read brought in one message, and orders into lines on the
//! agent's stdin.
//!
//! Invariants: a launch is answered exactly once; everything the agent wrote before it ended is
//! told before its end is (D36); no read, write or disk access in here keeps another waiting.

use std::path::PathBuf;
use std::time::Duration;

use actix::Recipient;
use drowse_actors::ports::{Launch, Pending, StoreError};
use drowse_actors::session::Facts;
use drowse_messages::{
    Activity, ActivityKind, AgentStatus, BootedIdentity, ChildExited, Delivered, DeliveryResult,
    ExitStatus, Incarnation, LaunchFailed, Launched, MessageId, Running, StatusChanged, TaskRoster,
    TreeEmptied,
};
use drowse_policy::{BackendOrder, Input};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::launch::{Started, collect, start};
use super::lines::{Line, Lines};
use super::outbox::Outbox;
use super::{Prepared, ReadBuffer, Shared};
use crate::adapter::{Direction, Fact, Observer, Seen};
use crate::chain::chain;
use crate::process::control::ToKeeper;
use crate::process::link::{AgentStdio, KeeperEvent, KeeperLink};
use crate::redact::Redactor;

/// 64 KiB: what a pipe holds, so one read can take all of it.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// 16 KiB of stderr are kept, the newest: enough for a stack trace and its cause.
const STDERR_KEPT_BYTES: usize = 16 * 1024;
/// How long to wait before a delivery that the disk refused is tried again.
const DISK_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Runs one backend from its launch to its dismissal.
pub(super) async fn run(
    shared: &Shared,
    launch: Launch,
    prepared: Prepared,
    facts: Recipient<Facts>,
    orders: mpsc::Receiver<BackendOrder>,
    buffer: ReadBuffer,
) {
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
            facts.do_send(Facts(vec![launched.into()]));
            let Prepared {
                adapter,
                plan,
                fresh_id,
                redactor,
            } = prepared;
            let observer = adapter.observe(launch.conversation.as_ref(), &fresh_id);
            // Arguments and environment are kilobytes, and nobody needs them while the agent runs.
            drop((launch, plan));
            let mut link = Link::new(
                incarnation,
                keeper,
                stdio,
                observer,
                redactor,
                facts,
                buffer,
            );
            link.cgroup = cgroup;
            link.open();
            link.serve(shared, orders).await;
        }
        Err(error) => {
            let failed = LaunchFailed {
                incarnation,
                error,
                retry: true,
            };
            facts.do_send(Facts(vec![failed.into()]));
        }
    }
}

/// A delivery that waits for the disk.
type Delivery = Pending<(MessageId, Result<String, StoreError>)>;

struct Link {
    incarnation: Incarnation,
    keeper: Option<KeeperLink>,
    keeper_identity: drowse_messages::ProcIdentity,
    /// What the agent was born in; removed with the keeper.
    cgroup: Option<PathBuf>,
    stdin: Option<pipe::Sender>,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
    observer: Box<dyn Observer>,
    redactor: Redactor,
    facts: Recipient<Facts>,
    lines: Lines,
    outbox: Outbox,
    /// Facts of this turn of the loop.
    seen: Vec<Input>,
    stderr_tail: Vec<u8>,
    delivery: Option<Delivery>,
    /// Close stdin once the outbox is empty.
    closing: bool,
    exited: bool,
    buffer: ReadBuffer,
}

/// What happened next.
enum Next {
    Keeper(Option<KeeperEvent>),
    Stdout,
    Stderr,
    Writable,
    Delivery((MessageId, Result<String, StoreError>)),
    Order(Option<BackendOrder>),
}

impl Link {
    fn new(
        incarnation: Incarnation,
        keeper: KeeperLink,
        stdio: AgentStdio,
        observer: Box<dyn Observer>,
        redactor: Redactor,
        facts: Recipient<Facts>,
        buffer: ReadBuffer,
    ) -> Self {
        Self {
            incarnation,
            keeper_identity: keeper.keeper(),
            keeper: Some(keeper),
            cgroup: None,
            stdin: stdio.stdin,
            stdout: Some(stdio.stdout),
            stderr: Some(stdio.stderr),
            observer,
            redactor,
            facts,
            lines: Lines::default(),
            outbox: Outbox::default(),
            seen: Vec::new(),
            stderr_tail: Vec::new(),
            delivery: None,
            closing: false,
            exited: false,
            buffer,
        }
    }

    fn open(&mut self) {
        let seen = self.observer.open();
        self.take(seen, None);
        self.tell();
    }

    async fn serve(&mut self, shared: &Shared, mut orders: mpsc::Receiver<BackendOrder>) {
        loop {
            match self.next(&mut orders).await {
                Next::Keeper(Some(event)) => self.on_keeper(&event),
                Next::Keeper(None) => self.on_keeper_lost(),
                Next::Stdout => _ = self.read_stdout(),
                Next::Stderr => _ = self.read_stderr(),
                Next::Writable => self.write().await,
                Next::Delivery((message, text)) => self.on_delivery(shared, message, text),
                Next::Order(Some(BackendOrder::Dismiss)) => break,
                Next::Order(Some(order)) => self.on_order(shared, order),
                // Another launch took its place, which happens only after it was dismissed, or
                // the daemon ends.
                Next::Order(None) => break,
            }
            self.tell();
            if !self.facts.connected() {
                // The session's actor vanished, perhaps before the launch was written down: the
                // keeper ends its tree on the way out, so nobody else has to know of it.
                break;
            }
        }
        self.leave(shared).await;
    }

    async fn next(&mut self, orders: &mut mpsc::Receiver<BackendOrder>) -> Next {
        let Self {
            keeper,
            stdin,
            stdout,
            stderr,
            outbox,
            delivery,
            ..
        } = self;
        let wants_write = stdin.is_some() && (!outbox.is_empty() || self.closing);
        tokio::select! {
            event = async { keeper.as_mut().expect("checked").next_message().await },
                if keeper.is_some() => Next::Keeper(event.unwrap_or_else(|error| {
                    tracing::warn!(error = chain(&error), "lost a keeper");
                    None
                })),
            () = readable(stdout.as_ref()), if stdout.is_some() => Next::Stdout,
            () = readable(stderr.as_ref()), if stderr.is_some() => Next::Stderr,
            _ = async { stdin.as_ref().expect("checked").writable().await }, if wants_write => {
                Next::Writable
            }
            done = async { delivery.as_mut().expect("checked").await }, if delivery.is_some() => {
                Next::Delivery(done)
            }
            order = orders.recv() => Next::Order(order),
        }
    }

    fn on_keeper(&mut self, event: &KeeperEvent) {
        match event {
            KeeperEvent::Exited(status) => self.on_exited(Some(*status)),
            KeeperEvent::Empty => {
                self.on_exited(None);
                self.seen.push(
                    TreeEmptied {
                        incarnation: self.incarnation,
                    }
                    .into(),
                );
            }
            KeeperEvent::Started { .. } | KeeperEvent::LaunchFailed(_) => {}
        }
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
        match try_read(self.stdout.as_ref(), &mut buffer) {
            Ok(0) => {
                self.finish_stdout();
                self.stdout = None;
            }
            Ok(bytes) => {
                let mut lines = std::mem::take(&mut self.lines);
                lines.push(&buffer[..bytes], |line| self.on_line(&line));
                self.lines = lines;
                return true;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.stdout = None,
        }
        false
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
        match try_read(self.stderr.as_ref(), &mut buffer) {
            Ok(0) => self.stderr = None,
            Ok(bytes) => {
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

    async fn write(&mut self) {
        let Some(stdin) = &self.stdin else { return };
        let mut written = Vec::new();
        let result = self.outbox.write(stdin, |bytes, message| {
            written.push((bytes.to_vec(), message));
        });
        for (bytes, message) in written {
            for line in bytes.split_inclusive(|&byte| byte == b'\n') {
                let seen = self.observer.observe(Direction::In, line.trim_ascii_end());
                self.take(seen, None);
            }
            if let Some(message) = message {
                self.delivered(message, DeliveryResult::Written);
            }
        }
        if result.is_err() {
            self.stop_writing();
        } else if self.closing && self.outbox.is_empty() {
            self.close_stdin().await;
        }
    }

    /// Ends the agent's input: our end of the pipe and the keeper's copy of it.
    async fn close_stdin(&mut self) {
        self.stdin = None;
        if let Some(keeper) = &mut self.keeper
            && let Err(error) = keeper.send(ToKeeper::CloseStdin).await
        {
            tracing::debug!(
                error = chain(&error),
                "failed to have the keeper close stdin"
            );
        }
    }

    /// The agent reads no more.
    fn stop_writing(&mut self) {
        self.stdin = None;
        for (message, result) in self.outbox.give_up() {
            self.delivered(message, result);
        }
    }

    fn on_order(&mut self, shared: &Shared, order: BackendOrder) {
        let seen = match order {
            BackendOrder::Deliver(message) => return self.begin_delivery(shared, message, None),
            BackendOrder::Interrupt => self.observer.interrupt(),
            BackendOrder::Answer { id, answer } => self.observer.answer(&id, &answer),
            BackendOrder::Withdraw { id } => {
                self.observer.answer(&id, &drowse_messages::Answer::Deny)
            }
            BackendOrder::Close => {
                self.closing = true;
                self.observer.close()
            }
            BackendOrder::Dismiss => return,
        };
        self.take(seen, None);
    }

    /// Marks the message delivered on disk before the agent sees it: a crash in between leaves it
    /// unknown, never delivered twice.
    fn begin_delivery(&mut self, shared: &Shared, message: MessageId, after: Option<Duration>) {
        let store = shared.store.clone();
        self.delivery = Some(Box::pin(async move {
            if let Some(after) = after {
                tokio::time::sleep(after).await;
            }
            (message, store.deliver(message).await)
        }));
    }

    fn on_delivery(
        &mut self,
        shared: &Shared,
        message: MessageId,
        text: Result<String, StoreError>,
    ) {
        self.delivery = None;
        match text {
            Ok(_) if self.stdin.is_none() => self.delivered(message, DeliveryResult::NotWritten),
            Ok(text) => {
                let seen = self.observer.prompt(&text);
                self.take(seen, Some(message));
            }
            Err(StoreError::Failed(error)) => {
                tracing::error!(%message, error, "failed to read a message; trying again");
                self.begin_delivery(shared, message, Some(DISK_RETRY_AFTER));
            }
            Err(_) => self.delivered(message, DeliveryResult::Void),
        }
    }

    fn delivered(&mut self, message: MessageId, result: DeliveryResult) {
        let incarnation = self.incarnation;
        self.seen.push(
            Delivered {
                incarnation,
                message,
                result,
            }
            .into(),
        );
    }

    fn take(&mut self, seen: Seen, message: Option<MessageId>) {
        seen.facts.into_iter().for_each(|fact| self.note(fact));
        if self.stdin.is_some() && !(seen.write.is_empty() && message.is_none()) {
            self.outbox.push(seen.write, message);
        }
    }

    fn note(&mut self, fact: Fact) {
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

    async fn leave(&mut self, shared: &Shared) {
        if let Some(mut keeper) = self.keeper.take()
            && let Err(error) = keeper.send(ToKeeper::Leave).await
        {
            tracing::debug!(error = chain(&error), "failed to let a keeper go");
        }
        collect(shared, self.keeper_identity, self.cgroup.take());
    }
}

/// Waits until a pipe can be read; one that fails can: the read says what is wrong with it.
async fn readable(pipe: Option<&pipe::Receiver>) {
    match pipe {
        Some(pipe) => drop(pipe.readable().await),
        None => std::future::pending().await,
    }
}

fn try_read(pipe: Option<&pipe::Receiver>, buffer: &mut [u8]) -> std::io::Result<usize> {
    pipe.map_or(Ok(0), |pipe| pipe.try_read(buffer))
}
