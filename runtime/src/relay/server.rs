//! The daemon's end of the relay socket: lets shims in and moves their bytes.
//!
//! Fed by shims. On the arbiter of the core actors, beside the links, so that a line crosses no
//! thread. Invariants: nobody but this user and root is listened to; a shim says who it is within
//! a bounded time; one that comes back proves itself; what a shim sends is read only while there
//! is room for it.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use drowse_actors::DaemonHandle;
use drowse_actors::ports::{Store, StoreError};
use drowse_messages::{HostChanged, Limit, Refusal, SessionId, millis};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;
use tokio::time::{Instant, timeout_at};

use super::Hub;
use super::connection::{Room, watch};
use super::frame::{FrameError, Hello, OpenRelay, Refused, ToDaemon, ToShim, VERSION};
use super::host::Host;
use super::open::open_session;
use super::queue::QUEUE_BYTES_MAX;
use crate::adapters::Adapters;
use crate::config;
use crate::http::UnixSocket;

/// 10 s for a shim to say who it is; it has nothing else to do.
const HELLO_MAX: Duration = Duration::from_secs(10);

/// 1,024 shims at a time: each is an agent of somebody's.
const CONNECTIONS_MAX: usize = 1024;

/// 128 KiB: twice what a shim reads of its host at once.
const READ_BYTES: usize = 128 * 1024;

/// 256 KiB: what two reads may leave behind; beside an agent it is nothing.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// 100 ms after the system had no descriptor for a connection.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What every connection needs.
#[derive(Clone)]
struct Desk {
    hub: Rc<Hub>,
    daemon: DaemonHandle,
    store: Arc<dyn Store>,
    config: Arc<config::Shared>,
    adapters: Adapters,
}

/// A running server. Dropped, it lets nobody in any more; its socket's name goes with it.
#[derive(Debug)]
pub(crate) struct Server {
    accepting: actix_rt::task::JoinHandle<()>,
    _socket: UnixSocket,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    /// Starts to listen. On the arbiter of the core actors.
    ///
    /// # Errors
    /// The system does not let us listen.
    pub(crate) fn start(
        socket: UnixSocket,
        hub: Rc<Hub>,
        daemon: DaemonHandle,
        store: Arc<dyn Store>,
        config: Arc<config::Shared>,
        adapters: Adapters,
    ) -> io::Result<Self> {
        let listener = UnixListener::from_std(socket.listener()?)?;
        let desk = Desk {
            hub,
            daemon,
            store,
            config,
            adapters,
        };
        let accepting = actix_rt::spawn(accept(listener, desk));
        Ok(Self {
            accepting,
            _socket: socket,
        })
    }
}

async fn accept(listener: UnixListener, desk: Desk) {
    let room = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = room.clone().acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "failed to let a shim in");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                continue;
            }
        };
        let own = nix::unistd::geteuid().as_raw();
        let is_allowed = |uid: u32| uid == own || uid == 0;
        if !stream.peer_cred().is_ok_and(|peer| is_allowed(peer.uid())) {
            tracing::warn!("another user's program connected to the relay socket");
            continue;
        }
        let desk = desk.clone();
        let shim = stream.into_std().and_then(Shim::new);
        let Ok(shim) = shim.inspect_err(|error| tracing::warn!(%error, "failed to let a shim in"))
        else {
            continue;
        };
        actix_rt::spawn(async move {
            desk.serve(shim).await;
            drop(permit);
        });
    }
}

/// A connection that is read frame by frame.
struct Shim {
    /// Wakes the daemon when something comes, and not when something was taken.
    incoming: AsyncFd<Rc<UnixStream>>,
    bytes: Vec<u8>,
    /// Of those, how many are dealt with.
    used: usize,
    /// A buffer that is larger is given back to the system: every one while there is no agent.
    kept_max: usize,
}

impl Shim {
    fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Self {
            incoming: watch(Rc::new(stream), Interest::READABLE)?,
            bytes: Vec::new(),
            used: 0,
            kept_max: 0,
        })
    }

    fn stream(&self) -> &Rc<UnixStream> {
        self.incoming.get_ref()
    }

    /// Waits until something comes, and reads it; false at the end.
    async fn read(&mut self) -> io::Result<bool> {
        self.bytes.drain(..self.used);
        self.used = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(self.kept_max);
        }
        let mut ready = self.incoming.readable().await?;
        self.bytes.reserve(READ_BYTES);
        let room = rustix::buffer::spare_capacity(&mut self.bytes);
        let length = match rustix::io::read(ready.get_inner(), room) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => {
                ready.clear_ready();
                return Ok(true);
            }
            Err(errno) => return Err(errno.into()),
        };
        if length < READ_BYTES {
            // That was all: the next wait is for what comes.
            ready.clear_ready();
        }
        Ok(length > 0)
    }

    fn next(&mut self) -> Result<Option<ToDaemon<'_>>, FrameError> {
        let Some((frame, length)) = ToDaemon::first(&self.bytes[self.used..])? else {
            return Ok(None);
        };
        self.used += length;
        Ok(Some(frame))
    }

    /// Waits for a frame and turns it into something.
    async fn wait<T>(
        &mut self,
        until: Instant,
        mut found: impl FnMut(ToDaemon<'_>) -> Option<T>,
    ) -> Option<T> {
        loop {
            if let Some(frame) = self.next().ok()? {
                return found(frame);
            }
            if !timeout_at(until, self.read()).await.ok()?.ok()? {
                return None;
            }
        }
    }

    async fn say(&self, frame: &ToShim<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match self.stream().as_ref().write(rest) {
                Ok(length) => rest = &rest[length..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let Ok(room) = Room::of(self.stream()) else {
                        return;
                    };
                    if room.wait().await.is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    async fn refuse(&self, refusal: &Refusal) {
        let again = matches!(refusal, Refusal::Draining | Refusal::StoreFailed { .. });
        let refused = Refused {
            code: refusal.code().to_owned(),
            text: refusal.to_string(),
            again,
        };
        self.say(&ToShim::Refused(refused)).await;
    }
}

/// How a shim introduced itself.
enum Introduced {
    Open(Box<OpenRelay>),
    Back(Hello, Vec<u8>),
}

impl Desk {
    async fn serve(self, mut shim: Shim) {
        let Some(introduced) = introduce(&mut shim).await else {
            tracing::debug!("a shim did not say who it is");
            return;
        };
        let (session, connection, host, changed) = match self.admit(&shim, introduced).await {
            Ok(admitted) => admitted,
            Err(refusal) => return shim.refuse(&refusal).await,
        };
        self.daemon.host_changed(session, changed);
        self.relay(&mut shim, &host, connection).await;
        if host.detach(connection) {
            self.daemon.host_changed(session, HostChanged::Lost);
        }
        self.hub.tidy(session);
    }

    async fn admit(
        &self,
        shim: &Shim,
        introduced: Introduced,
    ) -> Result<(SessionId, u64, Rc<Host>, HostChanged), Refusal> {
        let (hello, back) = match introduced {
            Introduced::Open(open) => (self.open(*open).await?, Vec::new()),
            Introduced::Back(hello, back) => {
                self.check(&hello).await?;
                (hello, back)
            }
        };
        let session = hello.session;
        let recipe = self.store.load(session).await;
        let recipe = recipe
            .map_err(|error| refusal(error, session))?
            .profile
            .recipe;
        let adapter = self.adapters.get(&recipe.protocol);
        let filter = adapter.and_then(|adapter| adapter.relay(None));
        let resumable = filter.is_some();
        let host = self.hub.get_or_make(session, hello.acked, resumable);
        let connection = host.attach(shim.stream().clone(), &hello, back, self.grace_ms());
        let changed = HostChanged::Attached {
            pid: hello.pid,
            resumable,
        };
        Ok((session, connection, host, changed))
    }

    /// How long agents outlive this daemon should it die.
    fn grace_ms(&self) -> u64 {
        match self.config.current().orphan_grace() {
            Limit::After(grace) => millis(grace),
            Limit::Off => 0,
        }
    }

    async fn open(&self, open: OpenRelay) -> Result<Hello, Refusal> {
        let (version, pid, key) = (open.version, open.pid, open.key.clone());
        let config = self.config.current();
        // A file system that hangs must not stop the agents.
        let order = tokio::task::spawn_blocking(move || open_session(&config, open)).await;
        let order = order.map_err(|_| Refusal::Draining)??;
        let report = self.daemon.open_relayed(order, key.clone()).await?;
        Ok(Hello {
            version,
            pid,
            key,
            session: report.id,
            received: 0,
            judged: 0,
            acked: 0,
            partly: 0,
        })
    }

    async fn check(&self, hello: &Hello) -> Result<(), Refusal> {
        let kept = self.store.relay(hello.session).await;
        let kept = kept.map_err(|error| refusal(error, hello.session))?;
        if is_same(kept.key.as_bytes(), hello.key.as_bytes()) {
            Ok(())
        } else {
            let detail = "this is not the shim it was opened by".to_owned();
            let field = "key".to_owned();
            Err(Refusal::Invalid { field, detail })
        }
    }

    /// Moves bytes until the connection ends.
    async fn relay(&self, shim: &mut Shim, host: &Host, connection: u64) {
        let mut room = None;
        loop {
            if !self.take_frames(shim, host) || !host.is_current(connection) {
                return;
            }
            shim.kept_max = if host.is_linked() { KEPT_BYTES_MAX } else { 0 };
            let is_behind = host.flush();
            if host.is_ended() && !is_behind {
                return;
            }
            room = match room {
                _ if !is_behind && !host.wants_room() => None,
                None => match Room::of(shim.stream()) {
                    Ok(room) => Some(room),
                    Err(error) => return tracing::warn!(%error, "a shim is let go"),
                },
                room => room,
            };
            let has_room = async { room.as_ref().expect("checked").wait().await };
            tokio::select! {
                read = shim.read(), if host.has_room() => match read {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return,
                },
                waited = has_room, if room.is_some() => match waited {
                    Ok(()) => host.has_drained(),
                    Err(_) => return,
                },
                () = host.connection_wanted() => {}
            }
        }
    }

    /// Deals with the frames that came; false when the shim is not understood.
    fn take_frames(&self, shim: &mut Shim, host: &Host) -> bool {
        let session = host.session();
        loop {
            match shim.next() {
                Ok(Some(ToDaemon::In { offset, bytes })) => {
                    if !host.said(offset, bytes) {
                        tracing::error!(%session, offset, "a host's bytes have a gap");
                        return false;
                    }
                }
                Ok(Some(ToDaemon::Eof)) => {
                    host.close();
                    self.tell_news(host);
                    self.daemon.host_changed(session, HostChanged::Closed);
                }
                Ok(Some(ToDaemon::Signal(number))) => {
                    // Without an agent it can only mean the end.
                    if !host.signal(number) && is_ending(number) {
                        self.daemon.host_changed(session, HostChanged::Closed);
                    }
                }
                Ok(Some(ToDaemon::Open(_) | ToDaemon::Hello(_) | ToDaemon::Back(_))) => {
                    return false;
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%session, %error, "a shim is not understood");
                    return false;
                }
            }
        }
        self.tell_news(host);
        true
    }

    fn tell_news(&self, host: &Host) {
        if host.news().waits {
            self.daemon.host_changed(host.session(), HostChanged::Waits);
        }
    }
}

async fn introduce(shim: &mut Shim) -> Option<Introduced> {
    let until = Instant::now() + HELLO_MAX;
    let first = shim.wait(until, |frame| match frame {
        ToDaemon::Open(open) if open.version == VERSION => Some(Introduced::Open(open)),
        ToDaemon::Hello(hello) if hello.version == VERSION => {
            Some(Introduced::Back(hello, Vec::new()))
        }
        ToDaemon::Open(_)
        | ToDaemon::Hello(_)
        | ToDaemon::Back(_)
        | ToDaemon::In { .. }
        | ToDaemon::Eof
        | ToDaemon::Signal(_) => None,
    });
    let (hello, mut back) = match first.await? {
        Introduced::Back(hello, back) => (hello, back),
        open @ Introduced::Open(_) => return Some(open),
    };
    let length = usize::try_from(hello.received.checked_sub(hello.judged)?).ok()?;
    if length > QUEUE_BYTES_MAX {
        return None;
    }
    while back.len() < length {
        let more = shim.wait(until, |frame| match frame {
            ToDaemon::Back(bytes) => Some(bytes.to_vec()),
            ToDaemon::Open(_)
            | ToDaemon::Hello(_)
            | ToDaemon::In { .. }
            | ToDaemon::Eof
            | ToDaemon::Signal(_) => None,
        });
        back.extend(more.await?);
    }
    (back.len() == length).then_some(Introduced::Back(hello, back))
}

fn refusal(error: StoreError, session: SessionId) -> Refusal {
    match error {
        StoreError::NotFound => Refusal::NoSuchSession {
            session: session.to_string(),
        },
        StoreError::NameTaken
        | StoreError::Ambiguous(_)
        | StoreError::NotParked(..)
        | StoreError::InboxFull(_)
        | StoreError::Invalid(_)
        | StoreError::Failed(_) => Refusal::StoreFailed {
            detail: error.to_string(),
        },
    }
}

/// Compares in a time that depends on the length alone.
fn is_same(own: &[u8], offered: &[u8]) -> bool {
    let differing = own.iter().zip(offered).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differing) == 0 && own.len() == offered.len() && !own.is_empty()
}

/// Signals that end a program which does not expect them.
fn is_ending(number: i32) -> bool {
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&number)
}
