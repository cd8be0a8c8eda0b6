//! One host: what its connection and its agent's link share.
//!
//! Fed by the connection (`server.rs`) with what the host says, by the backends with policy's
//! orders about the gate, and by the link with what the agent says. Everything happens on one
//! thread, within calls that do not wait, so nothing is locked. Invariants: a piece is handed to a
//! link only while the gate is open; the agent is read only while the connection has room for
//! what it said, so a host that does not read stops its agent and fills no memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use drowse_messages::{HostEnd, SessionId};
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use super::connection::Connection;
use super::frame::{Hello, ToShim, Welcome};
use super::queue::{Piece, Queue};
use super::scratch::Scratch;
use crate::adapter::{Pass, Relay};

/// 64 signals wait for an agent that is being started: more are a host in a loop.
const SIGNALS_MAX: usize = 64;

/// What becomes of the agent's bytes up to an offset.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Verdict {
    /// They are the host's.
    Pass,
    /// They are nobody's.
    Drop,
    /// These are the host's instead.
    Instead(Vec<u8>),
}

/// What a shim that came back has of the agent's bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Back {
    /// Bytes before this have a verdict.
    pub(crate) judged: u64,
    /// Those behind it.
    pub(crate) bytes: Vec<u8>,
    /// Of the host's next line the agent has so many bytes already.
    pub(crate) partly: usize,
}

/// What the connection is to tell the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Something waits for an agent.
    pub(super) waits: bool,
}

/// See the module.
pub(crate) struct Host {
    session: SessionId,
    /// `None`: there was no descriptor left for it.
    scratch: Option<Rc<Scratch>>,
    inner: RefCell<Inner>,
    /// The link has something to do.
    for_link: Notify,
    /// The connection has something to do.
    for_connection: Notify,
}

struct Inner {
    queue: Queue,
    by_lines: bool,
    gate: bool,
    /// The session knows that something waits.
    told: bool,
    /// A link serves it.
    linked: bool,
    /// The filter of the last process, for what needs none.
    filter: Option<Box<dyn Relay>>,
    signals: VecDeque<i32>,
    connection: Option<Connection>,
    connections: u64,
    /// Bytes of the agents' that were sent to the shim.
    read: u64,
    back: Option<Back>,
    ended: bool,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Host {
    /// Of whose bytes all before `from` are dealt with.
    pub(super) fn new(
        session: SessionId,
        from: u64,
        by_lines: bool,
        scratch: Option<Rc<Scratch>>,
    ) -> Self {
        Self {
            session,
            scratch,
            inner: RefCell::new(Inner {
                queue: Queue::from(from, by_lines),
                by_lines,
                gate: false,
                told: false,
                linked: false,
                filter: None,
                signals: VecDeque::new(),
                connection: None,
                connections: 0,
                read: 0,
                back: None,
                ended: false,
            }),
            for_link: Notify::new(),
            for_connection: Notify::new(),
        }
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }
}

/// For the connection.
impl Host {
    /// A shim is there; its number is that of the connection. An earlier connection is over.
    pub(super) fn attach(
        &self,
        stream: Rc<UnixStream>,
        hello: &Hello,
        back: Vec<u8>,
        grace_ms: u64,
    ) -> u64 {
        let received = hello.received;
        let mut inner = self.inner.borrow_mut();
        inner.connections += 1;
        inner.told = false;
        // The shim knows more than the checkpoint does.
        let mut partly = hello.partly;
        if inner.by_lines {
            inner.queue.skip_to(hello.acked);
        } else {
            inner
                .queue
                .skip_to(hello.acked + std::mem::take(&mut partly) as u64);
        }
        let welcome = Welcome {
            session: self.session,
            from: inner.queue.base(),
            grace_ms,
        };
        inner.connection = Some(Connection::begin(stream, &welcome));
        if inner.linked {
            inner.back = Some(Back {
                judged: hello.judged,
                bytes: back,
                partly,
            });
        } else {
            // If there is anything, it is the beginning of a line whose agent is gone.
            inner.read = received;
            inner.send(&ToShim::Drop { upto: received });
        }
        self.for_link.notify_one();
        inner.connections
    }

    /// The connection is over; false when another has taken its place, or the host was told to go.
    pub(super) fn detach(&self, connection: u64) -> bool {
        let mut inner = self.inner.borrow_mut();
        if inner.connections != connection || inner.ended {
            return false;
        }
        inner.connection = None;
        self.for_link.notify_one();
        true
    }

    pub(super) fn is_current(&self, connection: u64) -> bool {
        self.inner.borrow().connections == connection
    }

    pub(super) fn has_room(&self) -> bool {
        self.inner.borrow_mut().queue.has_room()
    }

    /// The host said this; false: something before it is missing.
    pub(super) fn said(&self, offset: u64, bytes: &[u8]) -> bool {
        let pushed = self.inner.borrow_mut().queue.push(offset, bytes);
        self.for_link.notify_one();
        pushed
    }

    /// The host will say no more.
    pub(super) fn close(&self) {
        self.inner.borrow_mut().queue.close();
        self.for_link.notify_one();
    }

    /// What is new for the session. Idle talk is answered here when there is no agent.
    pub(super) fn news(&self) -> News {
        let mut inner = self.inner.borrow_mut();
        if !inner.linked {
            inner.answer_idle_talk();
        }
        let waits = !inner.told && !inner.gate && inner.queue.has_piece();
        inner.told |= waits;
        News { waits }
    }

    /// A signal for the agent; false when there is none.
    pub(super) fn signal(&self, number: i32) -> bool {
        let mut inner = self.inner.borrow_mut();
        if inner.linked && inner.signals.len() < SIGNALS_MAX {
            inner.signals.push_back(number);
            self.for_link.notify_one();
        }
        inner.linked
    }

    /// Sends what the socket takes now; true while some is left.
    pub(super) fn flush(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let Some(connection) = &mut inner.connection else {
            return false;
        };
        connection.flush();
        connection.is_behind()
    }

    /// The link waits for room in the socket.
    pub(super) fn wants_room(&self) -> bool {
        let inner = self.inner.borrow();
        let connection = inner.connection.as_ref();
        connection.is_some_and(|connection| connection.wants_room)
    }

    /// There may be room.
    pub(super) fn has_drained(&self) {
        if let Some(connection) = &mut self.inner.borrow_mut().connection {
            connection.wants_room = false;
        }
        self.for_link.notify_one();
    }

    pub(super) fn is_linked(&self) -> bool {
        self.inner.borrow().linked
    }

    pub(super) fn is_ended(&self) -> bool {
        self.inner.borrow().ended
    }

    /// Returns when the connection has something to do that does not come from the shim.
    pub(super) async fn connection_wanted(&self) {
        self.for_connection.notified().await;
    }
}

/// For the backends and the hub.
impl Host {
    /// What waits may go to the agent.
    pub(crate) fn open_gate(&self) {
        self.inner.borrow_mut().gate = true;
        self.for_link.notify_one();
    }

    /// Nothing goes to the agent any more; what it was not given whole waits for the next.
    pub(crate) fn shut_gate(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.gate = false;
        inner.take_back();
    }

    /// The last thing the host hears.
    pub(super) fn end(&self, end: HostEnd) {
        let mut inner = self.inner.borrow_mut();
        inner.send(&ToShim::End(end));
        inner.ended = true;
        self.for_connection.notify_one();
        self.for_link.notify_one();
    }

    pub(super) fn is_unused(&self) -> bool {
        let inner = self.inner.borrow();
        inner.connection.is_none() && !inner.linked
    }
}

/// For the link.
impl Host {
    /// A process begins: how many of the agents' bytes the shim was sent before.
    pub(crate) fn link(&self) -> u64 {
        let mut inner = self.inner.borrow_mut();
        inner.linked = true;
        inner.gate = false;
        inner.take_back();
        inner.signals.clear();
        inner.read
    }

    /// It is over. Its filter stays, for what needs no process.
    pub(crate) fn unlink(&self, filter: Option<Box<dyn Relay>>, read: u64) {
        let mut inner = self.inner.borrow_mut();
        inner.linked = false;
        inner.gate = false;
        // The stage stays as it is: the next daemon may go on with this process.
        inner.queue.rewind();
        inner.filter = filter;
        inner.read = read;
    }

    /// Returns when there may be something to do.
    pub(crate) async fn wanted(&self) {
        self.for_link.notified().await;
    }

    pub(crate) fn is_open(&self) -> bool {
        self.inner.borrow().gate
    }

    pub(crate) fn is_attached(&self) -> bool {
        let inner = self.inner.borrow();
        inner.connection.as_ref().is_some_and(|it| !it.is_broken()) && !inner.ended
    }

    pub(crate) fn take_back(&self) -> Option<Back> {
        self.inner.borrow_mut().back.take()
    }

    pub(crate) fn take_signal(&self) -> Option<i32> {
        self.inner.borrow_mut().signals.pop_front()
    }

    /// The next piece, while the gate is open.
    pub(crate) fn take(&self, bytes_max: usize) -> Option<Piece> {
        let mut inner = self.inner.borrow_mut();
        inner.gate.then(|| inner.queue.take(bytes_max)).flatten()
    }

    /// The host has said all and the agent has it: its input is to be closed.
    pub(crate) fn is_over(&self) -> bool {
        let inner = self.inner.borrow();
        inner.gate && inner.queue.is_closed() && inner.queue.is_empty()
    }

    /// Nothing is left to take: the gate is shut until something is again.
    pub(crate) fn all_passed(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.gate = false;
        inner.told = false;
        self.for_connection.notify_one();
    }

    /// Gives the agent what fits of a piece, in a way that is known whatever becomes of the daemon;
    /// see [`Stage::put`](super::tally::Stage::put).
    pub(crate) fn put(
        &self,
        agent: &pipe::Sender,
        rest: &[u8],
        done: usize,
        reached: impl Fn(usize) -> Option<u64>,
    ) -> io::Result<usize> {
        let mut inner = self.inner.borrow_mut();
        let stage = inner.connection.as_mut().and_then(Connection::stage);
        let moved = match stage {
            Some(stage) => stage.put(agent, rest, done, &reached)?,
            None => agent.try_write(rest)?,
        };
        if let Some(upto) = reached(rest.len() - moved) {
            self.deal_with(&mut inner, upto);
        }
        Ok(moved)
    }

    /// Nothing is left to give of what is before this.
    pub(crate) fn reached(&self, upto: u64) {
        let mut inner = self.inner.borrow_mut();
        if upto <= inner.queue.base() {
            return;
        }
        let stage = inner.connection.as_mut().and_then(Connection::stage);
        if let Some(stage) = stage {
            stage.settle(upto);
        }
        self.deal_with(&mut inner, upto);
    }

    fn deal_with(&self, inner: &mut Inner, upto: u64) {
        if let Some(connection) = &mut inner.connection {
            connection.reached(upto);
        }
        let had_room = inner.queue.has_room();
        inner.queue.written(upto);
        if !had_room {
            self.for_connection.notify_one();
        }
    }

    /// Bytes before this are dealt with.
    pub(crate) fn dealt_with(&self) -> u64 {
        self.inner.borrow().queue.base()
    }

    /// Whether the socket has room for a read of the agent's output; if not, the link is told
    /// when it has.
    pub(crate) fn can_hear(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        if inner.ended || inner.back.is_some() {
            return false;
        }
        let Some(connection) = &mut inner.connection else {
            return false;
        };
        if connection.has_room() {
            return true;
        }
        connection.wants_room = true;
        self.for_connection.notify_one();
        false
    }

    /// Copies what is in the agent's pipe, which keeps it; `None` when it cannot be moved to the
    /// shim now, or there is nothing.
    pub(crate) fn look_at(&self, pipe: impl AsFd, buffer: &mut [u8]) -> Option<usize> {
        let inner = self.inner.borrow();
        let connection = inner.connection.as_ref()?;
        if connection.is_broken() || connection.is_behind() {
            return None;
        }
        let looked = self.scratch.as_ref()?.look_at(&pipe, buffer);
        looked.ok().filter(|length| *length > 0)
    }

    /// Moves bytes that were looked at to the shim, and what is known of them already before them.
    pub(crate) fn move_on(&self, pipe: impl AsFd, looked_at: &mut [u8], known: &[ToShim<'_>]) {
        if let Some(connection) = &mut self.inner.borrow_mut().connection {
            connection.move_on(pipe, looked_at, known);
        }
    }

    pub(crate) fn send(&self, frame: &ToShim<'_>) {
        let mut inner = self.inner.borrow_mut();
        inner.send(frame);
        if inner.connection.as_ref().is_some_and(Connection::is_behind) {
            self.for_connection.notify_one();
        }
    }
}

impl Inner {
    fn send(&mut self, frame: &ToShim<'_>) {
        if let Some(connection) = &mut self.connection {
            connection.send(frame);
        }
    }

    /// What the agent was not given whole waits for the next.
    fn take_back(&mut self) {
        self.queue.rewind();
        let base = self.queue.base();
        let stage = self.connection.as_mut().and_then(Connection::stage);
        if let Some(stage) = stage {
            stage.settle(base);
        }
    }

    /// Without an agent a filter still answers pings; nothing else is looked at.
    fn answer_idle_talk(&mut self) {
        let Some(mut filter) = self.filter.take() else {
            return;
        };
        while self.by_lines && self.queue.has_piece() {
            let Some(piece) = self.queue.take(usize::MAX).filter(|piece| piece.is_line) else {
                break;
            };
            let line = without_end(&piece.bytes);
            if !filter.is_idle_talk(line) {
                break;
            }
            let Pass::Answered(answer) = filter.from_host(line) else {
                break;
            };
            self.queue.written(piece.upto);
            let offset = piece.upto;
            self.send(&ToShim::Say(&answer));
            self.send(&ToShim::Ack { offset });
        }
        self.take_back();
        self.filter = Some(filter);
    }
}

/// A line without the end that a filter and an observer do not see.
pub(crate) fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}
