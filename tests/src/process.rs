//! Processes as tests see them: by pid *and* start time.
//!
//! Fed by: `/proc`. Knows nothing of Drowse's own process code on purpose, so that a fault there
//! cannot hide itself here.
//! Invariant: nothing is signalled whose start time is not the one that was recorded.

use std::fmt;
use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::{CEILING, wait_until};

/// One process: a pid and the kernel's start time of it, in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcIdentity {
    /// The process id.
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`.
    pub start_time: u64,
}

/// What `/proc/PID/stat` says of one process.
#[derive(Clone, Debug)]
pub struct ProcStat {
    /// Who it is.
    pub identity: ProcIdentity,
    /// Its parent's pid.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its POSIX session.
    pub sid: i32,
    /// The state letter; `Z` and `X` are dead.
    pub state: char,
}

impl ProcStat {
    /// Reads the process `pid`, or `None` when there is none.
    #[must_use]
    pub fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold spaces and brackets, so fields are counted from the last bracket.
        let rest = text.get(text.rfind(')')? + 2..)?;
        let fields: Vec<&str> = rest.split(' ').collect();
        Some(Self {
            identity: ProcIdentity {
                pid,
                start_time: fields.get(19)?.parse().ok()?,
            },
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            sid: fields.get(3)?.parse().ok()?,
        })
    }

    /// Whether it is more than an entry waiting to be collected.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

impl ProcIdentity {
    /// The identity of the process that has `pid` now, zombies included.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        ProcStat::read(pid).map(|stat| stat.identity)
    }

    /// The identity of the calling process.
    ///
    /// # Panics
    /// When `/proc` is not mounted.
    #[must_use]
    pub fn me() -> Self {
        Self::of(Pid::this().as_raw()).expect("/proc/self/stat is readable on Linux")
    }

    /// Whether this very process still runs; a zombie counts as gone.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        ProcStat::read(self.pid).is_some_and(|stat| stat.identity == *self && stat.is_alive())
    }

    /// Waits until this process is gone.
    ///
    /// # Panics
    /// When it still runs after [`CEILING`].
    #[track_caller]
    pub fn wait_gone(&self) {
        self.wait_gone_within(CEILING);
    }

    /// Waits until this process is gone, for at most `ceiling`.
    ///
    /// # Panics
    /// When it still runs after `ceiling`.
    #[track_caller]
    pub fn wait_gone_within(&self, ceiling: Duration) {
        wait_until(&format!("the end of {}", self.describe()), ceiling, || {
            (!self.is_alive()).then_some(())
        });
    }

    /// Sends `signal` to this very process; nothing happens when it is gone.
    pub fn signal(&self, signal: Signal) {
        if self.pid > 1 && self.is_alive() {
            // It may end between the look and the signal; then there is nobody to signal.
            _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// `pid@start_time` and the command line, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{self} ({})", command_line(self.pid))
    }

    /// Reads `pid@start_time`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (pid, start_time) = text.split_once('@')?;
        Some(Self {
            pid: pid.parse().ok()?,
            start_time: start_time.parse().ok()?,
        })
    }
}

impl fmt::Display for ProcIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.start_time)
    }
}

/// The command line of `pid` with spaces between the arguments; empty when it has none.
#[must_use]
pub fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .replace('\0', " ")
        .trim_end()
        .to_owned()
}

/// Every process of the machine.
#[must_use]
pub fn all() -> Vec<ProcStat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(ProcStat::read)
        .collect()
}

/// Live descendants of `root`, by parentage as it is now; `root` itself is not among them.
#[must_use]
pub fn descendants(root: i32) -> Vec<ProcIdentity> {
    let table = all();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(
            table
                .iter()
                .filter(|s| s.parent == parent)
                .map(|s| s.identity.pid),
        );
        next += 1;
    }
    let below = |s: &&ProcStat| s.is_alive() && s.identity.pid != root;
    table
        .iter()
        .filter(below)
        .filter(|s| found.contains(&s.identity.pid))
        .map(|s| s.identity)
        .collect()
}

/// Live processes that were started with `name=value` in their environment.
#[must_use]
pub fn with_env(name: &str, value: &str) -> Vec<ProcIdentity> {
    with_env_among(name, &[value])
}

/// Live processes that were started with one of these values of `name` in their environment.
/// One reading of all processes, however many values there are.
#[must_use]
pub fn with_env_among<T: AsRef<str>>(name: &str, values: &[T]) -> Vec<ProcIdentity> {
    let is_wanted = |entry: &[u8]| {
        let value = entry.strip_prefix(name.as_bytes());
        let value = value.and_then(|rest| rest.strip_prefix(b"="));
        value.is_some_and(|value| {
            values
                .iter()
                .any(|wanted| wanted.as_ref().as_bytes() == value)
        })
    };
    let is_marked = |stat: &ProcStat| {
        let environ = fs::read(format!("/proc/{}/environ", stat.identity.pid));
        environ.is_ok_and(|environ| environ.split(|&byte| byte == 0).any(is_wanted))
    };
    let mut found = all();
    found.retain(|stat| stat.is_alive() && is_marked(stat));
    found.into_iter().map(|stat| stat.identity).collect()
}

/// Children of `parent`, those that wait to be collected too, without a look at anybody else.
#[must_use]
pub fn children(parent: i32) -> Vec<ProcStat> {
    let threads = fs::read_dir(format!("/proc/{parent}/task"));
    let lists = threads.into_iter().flatten().flatten();
    let lists = lists.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids: Vec<i32> = lists
        .flat_map(|list| {
            list.split(' ')
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect();
    pids.into_iter().filter_map(ProcStat::read).collect()
}

/// Name of the environment variable that marks everything a test started.
pub const MARK: &str = "DROWSE_TEST";

/// Watches over one test: at its end no process that carries the test's mark may live.
///
/// Put [`TreeGuard::env`] on whatever the test starts. On drop, what is left is killed by identity
/// and the test fails, unless it is failing already. Declare it before what it guards: values are
/// dropped in reverse order.
#[derive(Debug)]
pub struct TreeGuard {
    token: String,
}

impl TreeGuard {
    /// A guard with a token of its own; `test` shows up in the token and in the failure.
    #[must_use]
    pub fn new(test: &str) -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let me = ProcIdentity::me();
        Self {
            token: format!("{test}-{me}-{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// The mark: name and value of the variable to set on every process the test starts.
    #[must_use]
    pub fn env(&self) -> (&'static str, &str) {
        (MARK, &self.token)
    }

    /// Who carries the mark now.
    #[must_use]
    pub fn alive(&self) -> Vec<ProcIdentity> {
        with_env(MARK, &self.token)
    }

    /// Waits until nobody carries the mark any more.
    ///
    /// # Panics
    /// When somebody still does after `ceiling`.
    #[track_caller]
    pub fn wait_empty(&self, ceiling: Duration) {
        wait_until(
            &format!("the end of everything of {}", self.token),
            ceiling,
            || self.alive().is_empty().then_some(()),
        );
    }
}

impl Drop for TreeGuard {
    fn drop(&mut self) {
        let left: Vec<String> = self.alive().iter().map(ProcIdentity::describe).collect();
        if left.is_empty() {
            return;
        }
        // A killed process may have forked just before, so look again until nobody is found.
        for _ in 0..100 {
            let found = self.alive();
            if found.is_empty() {
                break;
            }
            found
                .iter()
                .for_each(|identity| identity.signal(Signal::SIGKILL));
            std::thread::yield_now();
        }
        let text = format!(
            "{} left processes behind:\n  {}",
            self.token,
            left.join("\n  ")
        );
        if std::thread::panicking() {
            crate::wait::say(&text);
        } else {
            panic!("{text}");
        }
    }
}
