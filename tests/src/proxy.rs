//! Something that stands between a client and the daemon, and lets its connections suffer: it delays,
//! freezes, cuts and half-closes them.
//!
//! Fed by: tests of connections. On Unix sockets, so that the daemon sees the test's own user.
//! Invariants: bytes that pass are not changed; when it is dropped, nothing of it is left.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What happens to bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They pass.
    Pass,
    /// Each piece waits so long.
    Delay(Duration),
    /// They wait for another mode.
    Freeze,
}

/// How a connection is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both ends at once, in both directions.
    Both,
    /// The client hears nothing more, and the daemon does not know.
    ToClient,
    /// The daemon hears nothing more, and the client does not know.
    ToDaemon,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    /// Open connections: the client's end and the daemon's.
    open: Vec<(UnixStream, UnixStream)>,
    accepted: usize,
    over: bool,
}

#[derive(Debug)]
struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

impl Control {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no thread panics while it holds it")
    }

    /// Waits as the mode says; false: it is over.
    fn may_pass(&self) -> bool {
        let mut state = self.state();
        let began = Instant::now();
        loop {
            let left = match state.mode {
                _ if state.over => return false,
                Mode::Pass => return true,
                Mode::Delay(pause) => match pause.checked_sub(began.elapsed()) {
                    Some(left) => left,
                    None => return true,
                },
                Mode::Freeze => Duration::from_secs(3600),
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.expect("no thread panics while it holds it").0;
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Proxy {
    path: PathBuf,
    control: Arc<Control>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on `path`, and passes connections on to the daemon's socket.
    ///
    /// # Panics
    /// When it cannot listen there.
    #[must_use]
    pub fn start(path: PathBuf, daemon: &Path) -> Self {
        let listener = UnixListener::bind(&path).expect("the path is free and short enough");
        let state = State {
            mode: Mode::Pass,
            open: Vec::new(),
            accepted: 0,
            over: false,
        };
        let control = Arc::new(Control {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let (shared, daemon) = (control.clone(), daemon.to_owned());
        let acceptor = std::thread::spawn(move || accept(&listener, &daemon, &shared));
        Self {
            path,
            control,
            acceptor: Some(acceptor),
        }
    }

    /// Where clients connect.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many connections there have been.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.control.state().accepted
    }

    /// From now on.
    pub fn mode(&self, mode: Mode) {
        self.control.state().mode = mode;
        self.control.changed.notify_all();
    }

    /// Breaks all connections there are.
    pub fn cut(&self, cut: Cut) {
        let mut state = self.control.state();
        for (client, daemon) in &state.open {
            // An end that is gone already is broken as well.
            let _gone = match cut {
                Cut::Both => client
                    .shutdown(Shutdown::Both)
                    .and(daemon.shutdown(Shutdown::Both)),
                Cut::ToClient => client.shutdown(Shutdown::Write),
                Cut::ToDaemon => daemon.shutdown(Shutdown::Write),
            };
        }
        if cut == Cut::Both {
            state.open.clear();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.control.state().over = true;
        self.control.changed.notify_all();
        self.cut(Cut::Both);
        // Its own acceptor waits for one more.
        drop(UnixStream::connect(&self.path));
        if let Some(acceptor) = self.acceptor.take() {
            // A test that failed already says so itself.
            drop(acceptor.join());
        }
    }
}

fn accept(listener: &UnixListener, daemon: &Path, control: &Arc<Control>) {
    for client in listener.incoming() {
        let mut state = control.state();
        if state.over {
            return;
        }
        state.accepted += 1;
        let (Ok(client), Ok(daemon)) = (client, UnixStream::connect(daemon)) else {
            continue;
        };
        let (Ok(from_client), Ok(from_daemon)) = (client.try_clone(), daemon.try_clone()) else {
            continue;
        };
        let (Ok(to_client), Ok(to_daemon)) = (client.try_clone(), daemon.try_clone()) else {
            continue;
        };
        state.open.push((client, daemon));
        drop(state);
        let (there, back) = (control.clone(), control.clone());
        std::thread::spawn(move || pass(from_client, to_daemon, &there));
        std::thread::spawn(move || pass(from_daemon, to_client, &back));
    }
}

/// 16 KiB at a time: a message of an agent is cut in the middle now and then.
const PIECE_BYTES: usize = 16 << 10;

fn pass(mut from: UnixStream, mut to: UnixStream, control: &Control) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(count) = from.read(&mut piece) {
        if count == 0 || !control.may_pass() || to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    // The other end learns that nothing more comes; it may be gone already.
    let _gone = to.shutdown(Shutdown::Write);
}
