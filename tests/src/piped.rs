//! A program spoken to in lines of JSON over plain pipes.
//!
//! Fed by: tests that drive an agent, fake or real, without Drowse in between.
//! Invariant: nothing the program writes is lost until a limit named here is reached, and on drop
//! the program is dead.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process::{ProcIdentity, TreeGuard, descendants};
use crate::wait::{CEILING, say, scaled, wait_until};

/// 4096 lines may wait to be read by the test; then the program is held back by its full pipe.
const LINES_QUEUED_MAX: usize = 4096;

/// 64 KiB of stderr are kept, the newest: enough to tell why a program failed.
const STDERR_KEPT_BYTES_MAX: usize = 64 * 1024;

/// 400 lines of the transcript are kept for the failure dump.
const TRANSCRIPT_LINES_MAX: usize = 400;

/// 400 characters of a line are shown in the failure dump.
const DUMP_LINE_CHARS_MAX: usize = 400;

/// A running program with piped stdio. See the module for what it promises.
#[derive(Debug)]
pub struct PipedAgent {
    child: Child,
    identity: ProcIdentity,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    transcript: VecDeque<String>,
    readers: Vec<JoinHandle<()>>,
    ceiling: Duration,
}

impl PipedAgent {
    /// Starts `command`, marked as belonging to `guard`'s test.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn spawn(mut command: Command, guard: &TreeGuard) -> Self {
        let (name, value) = guard.env();
        command.env(name, value);
        Self::spawn_marked(command)
    }

    /// Starts `command`, which carries the mark of a test already.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub(crate) fn spawn_marked(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let pid = i32::try_from(child.id()).expect("a pid fits into i32");
        let identity = ProcIdentity::of(pid).expect("a child that is not collected has an entry");
        let (sender, lines) = sync_channel(LINES_QUEUED_MAX);
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&stderr);
        let out = child.stdout.take().expect("stdout is piped");
        let err = child.stderr.take().expect("stderr is piped");
        let readers = vec![
            std::thread::spawn(move || read_lines(out, &sender)),
            std::thread::spawn(move || keep_newest(err, &kept)),
        ];
        let stdin = child.stdin.take();
        let transcript = VecDeque::new();
        Self {
            child,
            identity,
            stdin,
            lines,
            stderr,
            transcript,
            readers,
            ceiling: CEILING,
        }
    }

    /// Waits for up to `ceiling` (scaled by [`scaled`]) instead of [`CEILING`] from here on.
    #[must_use]
    pub fn with_ceiling(mut self, ceiling: Duration) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// Who the program is.
    #[must_use]
    pub fn identity(&self) -> ProcIdentity {
        self.identity
    }

    /// Writes `line` and a newline. A program that no longer reads is not an error here: the test
    /// sees it by what follows.
    pub fn send(&mut self, line: &Value) {
        self.send_raw(&line.to_string());
    }

    /// Writes `line` and a newline as they are; a failure is for the test to see later.
    pub fn send_raw(&mut self, line: &str) {
        drop(self.try_send_raw(line));
    }

    /// Writes `line` and a newline as they are.
    ///
    /// # Errors
    /// When nobody can read them any more.
    pub fn try_send_raw(&mut self, line: &str) -> std::io::Result<()> {
        self.note(">>", line);
        let stdin = self.stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| stdin.flush())
    }

    /// Closes the program's stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
        self.note(">>", "[EOF]");
    }

    /// Returns the first line that satisfies `wanted`, dropping those before it.
    ///
    /// # Panics
    /// When it does not come within the ceiling or the program ends; with a dump.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, wanted: impl FnMut(&Value) -> bool) -> Value {
        self.collect_until(what, wanted)
            .pop()
            .expect("the wanted line is the last one")
    }

    /// Returns all lines up to and including the first that satisfies `wanted`.
    ///
    /// A line that is not JSON appears as a JSON string.
    ///
    /// # Panics
    /// When it does not come within the ceiling or the program ends; with a dump.
    #[track_caller]
    pub fn collect_until(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(&Value) -> bool,
    ) -> Vec<Value> {
        let end = Instant::now() + scaled(self.ceiling);
        let mut seen = Vec::new();
        loop {
            match self.next_line(end) {
                Ok(line) => {
                    let value = parse(&line);
                    let found = wanted(&value);
                    seen.push(value);
                    if found {
                        return seen;
                    }
                }
                Err(why) => panic!("{why} while waiting for {what}\n{}", self.dump()),
            }
        }
    }

    /// The next line as bytes without its newline, or `None` at the end of stdout.
    ///
    /// # Panics
    /// When neither comes within the ceiling; with a dump.
    #[track_caller]
    pub fn next_bytes(&mut self) -> Option<Vec<u8>> {
        match self.next_line(Instant::now() + scaled(self.ceiling)) {
            Ok(line) => Some(line),
            Err("stdout ended") => None,
            Err(why) => panic!("{why} while waiting for any line\n{}", self.dump()),
        }
    }

    /// Whether nothing arrives on stdout for `quiet`. The one fact that only time can show.
    #[must_use]
    pub fn is_silent_for(&mut self, quiet: Duration) -> bool {
        self.next_line(Instant::now() + quiet) == Err("nothing came")
    }

    /// Waits for the end of the program and returns its status.
    ///
    /// # Panics
    /// When it still runs after the ceiling; with a dump.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        wait_until(
            &format!("the exit of {}", self.identity.describe()),
            self.ceiling,
            || {
                self.child
                    .try_wait()
                    .expect("the child is ours to wait for")
            },
        )
    }

    /// Kills the program with SIGKILL and collects it.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> ExitStatus {
        // It may have ended by itself; wait() tells either way.
        drop(self.child.kill());
        self.child.wait().expect("the child is ours to wait for")
    }

    /// Kills the program and everything below it: nobody else would end what an agent started
    /// without our mark, such as Codex its MCP servers.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn kill_tree(&mut self) -> ExitStatus {
        let below = descendants(self.identity.pid);
        let status = self.kill();
        for process in below {
            process.signal(Signal::SIGKILL);
        }
        status
    }

    /// What it wrote to stderr, the newest part.
    #[must_use]
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&locked(&self.stderr)).into_owned()
    }

    /// Whether all it wrote has been read. Whoever kept its pipes may still write.
    pub(crate) fn is_read(&self) -> bool {
        self.readers.iter().all(JoinHandle::is_finished)
    }

    /// Waits until stderr holds `text`.
    ///
    /// # Panics
    /// When it does not within [`CEILING`].
    #[track_caller]
    pub fn wait_stderr(&self, text: &str) {
        wait_until(&format!("{text:?} on stderr"), CEILING, || {
            self.stderr().contains(text).then_some(())
        });
    }

    /// The transcript and stderr, for a failure message.
    #[must_use]
    pub fn dump(&self) -> String {
        let lines: Vec<&str> = self.transcript.iter().map(String::as_str).collect();
        let state = if self.identity.is_alive() {
            "alive"
        } else {
            "gone"
        };
        format!(
            "{} is {state}\n{}\nstderr: {}",
            self.identity,
            lines.join("\n"),
            self.stderr()
        )
    }

    fn next_line(&mut self, end: Instant) -> Result<Vec<u8>, &'static str> {
        match self
            .lines
            .recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            Ok(line) => {
                self.note("<<", &String::from_utf8_lossy(&line));
                Ok(line)
            }
            Err(RecvTimeoutError::Timeout) => Err("nothing came"),
            Err(RecvTimeoutError::Disconnected) => Err("stdout ended"),
        }
    }

    fn note(&mut self, direction: &str, line: &str) {
        if self.transcript.len() == TRANSCRIPT_LINES_MAX {
            self.transcript.pop_front();
        }
        let shown: String = line.chars().take(DUMP_LINE_CHARS_MAX).collect();
        self.transcript.push_back(format!("{direction} {shown}"));
    }
}

impl Drop for PipedAgent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(&self.dump());
        }
        self.stdin = None;
        // One that was waited for has no number any more that would be its own.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill_tree();
        }
        // A reader may still be held by a child that kept the pipe, or by the full queue; it ends
        // with the test's guard, so only finished ones are joined.
        for reader in self.readers.drain(..).filter(JoinHandle::is_finished) {
            drop(reader.join());
        }
    }
}

fn parse(line: &[u8]) -> Value {
    serde_json::from_slice(line)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(line).into_owned()))
}

fn read_lines(out: impl Read, lines: &SyncSender<Vec<u8>>) {
    let mut out = BufReader::new(out);
    let mut line = Vec::new();
    while out.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if lines.send(std::mem::take(&mut line)).is_err() {
            return;
        }
    }
}

fn keep_newest(mut err: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = err.read(&mut chunk) {
        let mut kept = locked(kept);
        kept.extend_from_slice(&chunk[..n]);
        let excess = kept.len().saturating_sub(STDERR_KEPT_BYTES_MAX);
        kept.drain(..excess);
    }
}

/// A test that panicked while it held the lock left complete bytes behind.
fn locked(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}
