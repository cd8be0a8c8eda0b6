//! A host as tests have it: it starts `drowse run` where it would have started an agent.
//!
//! Fed by: tests of relayed sessions. What the agent says is kept byte for byte, read only while
//! the test wants it read. Invariant: on drop the process is dead.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process::ProcIdentity;
use crate::wait::{say, wait_until};

/// 60 s: several starts of an agent, and of a daemon, with their pauses.
const HOST_CEILING: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub struct Host {
    child: Child,
    identity: ProcIdentity,
    stdin: Option<ChildStdin>,
    heard: Arc<Mutex<Vec<u8>>>,
    complaints: Arc<Mutex<Vec<u8>>>,
    deaf: Arc<AtomicBool>,
    readers: Vec<JoinHandle<()>>,
    /// How much of what was heard the test has looked at.
    looked: usize,
}

impl Host {
    /// Starts `command`, which reads at once what it says.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn spawn(command: Command) -> Self {
        Self::begin(command, false)
    }

    /// Starts `command`, whose stdout is not read before [`Host::listen`].
    #[track_caller]
    #[must_use]
    pub fn spawn_deaf(command: Command) -> Self {
        Self::begin(command, true)
    }

    #[track_caller]
    fn begin(mut command: Command, is_deaf: bool) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .expect("the program was built with the tests");
        let pid = i32::try_from(child.id()).expect("a pid fits into i32");
        let identity = ProcIdentity::of(pid).expect("a child that is not collected has an entry");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let deaf = Arc::new(AtomicBool::new(is_deaf));
        let out = child.stdout.take().expect("stdout is piped");
        let err = child.stderr.take().expect("stderr is piped");
        let readers = vec![
            read_into(out, heard.clone(), deaf.clone()),
            read_into(err, complaints.clone(), Arc::default()),
        ];
        let stdin = child.stdin.take();
        Self {
            child,
            identity,
            stdin,
            heard,
            complaints,
            deaf,
            readers,
            looked: 0,
        }
    }

    /// The process that stands in the agent's place.
    #[must_use]
    pub fn identity(&self) -> ProcIdentity {
        self.identity
    }

    /// Reads from now on.
    pub fn listen(&self) {
        self.deaf.store(false, Ordering::Release);
    }

    /// Says this, whole.
    ///
    /// # Panics
    /// When nobody reads it.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("it was not closed");
        stdin.write_all(bytes).expect("somebody reads it");
    }

    /// Says a line of JSON.
    #[track_caller]
    pub fn send(&mut self, line: &Value) {
        self.write(format!("{line}\n").as_bytes());
    }

    /// Says no more.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// The pipe it says things by, for a thread of its own.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().expect("it was not closed")
    }

    /// Gives that pipe back.
    pub fn give_stdin(&mut self, stdin: ChildStdin) {
        self.stdin = Some(stdin);
    }

    /// All that was heard.
    #[must_use]
    pub fn heard(&self) -> Vec<u8> {
        lock(&self.heard).clone()
    }

    /// How much was heard.
    #[must_use]
    pub fn heard_bytes(&self) -> usize {
        lock(&self.heard).len()
    }

    /// All that came on stderr.
    #[must_use]
    pub fn complaints(&self) -> String {
        String::from_utf8_lossy(&lock(&self.complaints)).into_owned()
    }

    /// Waits until this much was heard.
    #[track_caller]
    pub fn wait_bytes(&self, count: usize) {
        wait_until(
            &format!("{count} bytes of the agent's"),
            HOST_CEILING,
            || (self.heard_bytes() >= count).then_some(()),
        );
    }

    /// All whole lines heard so far.
    #[must_use]
    pub fn lines(&self) -> Vec<Value> {
        let heard = lock(&self.heard);
        let end = heard
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        heard[..end]
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// Waits for the next line that fits, behind those that were waited for before.
    #[track_caller]
    pub fn wait_line(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let from = self.looked;
        let (at, line) = wait_until(what, HOST_CEILING, || {
            let lines = self.lines();
            let found = lines.iter().skip(from).position(&fits);
            found.map(|at| (from + at, lines[from + at].clone()))
        });
        self.looked = at + 1;
        line
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.identity.signal(signal);
    }

    /// Waits for its end, and for all that it said before.
    ///
    /// # Panics
    /// When it does not come.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let status = wait_until("the end of the host's agent", HOST_CEILING, || {
            child.try_wait().expect("the child is ours to wait for")
        });
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader only reads");
        }
        status
    }

    /// Waits for an end with this code.
    #[track_caller]
    pub fn wait_code(&mut self, code: i32) {
        let status = self.wait_exit();
        let signal = status.signal();
        assert_eq!(
            status.code(),
            Some(code),
            "{signal:?}, {}",
            self.complaints()
        );
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let heard = self.heard();
            let tail = &heard[heard.len().saturating_sub(2000)..];
            say(&format!(
                "the host heard {} bytes, last:\n{}\nand on stderr:\n{}",
                heard.len(),
                String::from_utf8_lossy(tail),
                self.complaints()
            ));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn read_into(
    mut from: impl Read + Send + 'static,
    into: Arc<Mutex<Vec<u8>>>,
    deaf: Arc<AtomicBool>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while deaf.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            lock(&into).extend_from_slice(&buffer[..length]);
        }
    })
}

fn lock(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}
