//! Processes as the daemon speaks of them: identities, exits, trees, and requests to the reaper.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{Incarnation, SessionId};

/// One process, for ever: a pid alone is reused, a pid with its start time (and the boot it
/// belongs to) is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Claimed")]
pub struct ProcIdentity {
    /// The kernel's number for it. Always above 1: see [`ProcIdentity::new`].
    pid: i32,
    /// Field 22 of `/proc/PID/stat`: clock ticks from boot to its start.
    start_ticks: u64,
}

/// An identity as somebody wrote it down, not yet believed.
#[derive(Deserialize)]
struct Claimed {
    pid: i32,
    start_ticks: u64,
}

impl TryFrom<Claimed> for ProcIdentity {
    type Error = String;

    fn try_from(claimed: Claimed) -> Result<Self, String> {
        Self::new(claimed.pid, claimed.start_ticks)
            .ok_or_else(|| format!("{} is no pid of a process", claimed.pid))
    }
}

impl ProcIdentity {
    /// Refuses 0, 1 and negative numbers, which as signal targets mean "my group", "init" and
    /// "everyone" (D12).
    #[must_use]
    pub const fn new(pid: i32, start_ticks: u64) -> Option<Self> {
        if pid > 1 {
            Some(Self { pid, start_ticks })
        } else {
            None
        }
    }

    /// The kernel's number for the process.
    #[must_use]
    pub const fn pid(self) -> i32 {
        self.pid
    }

    /// Clock ticks from boot to the start of the process.
    #[must_use]
    pub const fn start_ticks(self) -> u64 {
        self.start_ticks
    }
}

impl fmt::Display for ProcIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.start_ticks)
    }
}

/// A process identity as kept on disk, where it may be read after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootedIdentity {
    /// `/proc/sys/kernel/random/boot_id` at the time of writing.
    pub boot_id: String,
    /// The process within that boot.
    pub process: ProcIdentity,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It ended by itself with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// One process seen in a walk of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcReport {
    /// Which process.
    pub identity: ProcIdentity,
    /// The pid of its parent at the time of the walk.
    pub parent: i32,
    /// The kernel's name for it (`comm`, at most 15 bytes), with control characters replaced.
    /// Its arguments are never reported: they hold secrets.
    pub name: String,
    /// The process session it is in; 0: not looked at. Only `Look` does.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub process_session: i32,
    /// Proportional set size in bytes; 0 when it could not be read.
    pub pss_bytes: u64,
    /// The TCP ports it listens on, in order; looked for by `Snapshot` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listens: Vec<u16>,
    /// The last signal that the reaper sent it to end it; `None`: it ended without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Which reading of the tree first found it: 0 the snapshot before the teardown, 1 the one
    /// that sent SIGTERM, 2 and up those of the kill.
    #[serde(default)]
    pub scan: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl ProcReport {
    /// A process as a walk sees it, not measured.
    #[must_use]
    pub const fn new(identity: ProcIdentity, parent: i32, name: String) -> Self {
        Self {
            identity,
            parent,
            name,
            process_session: 0,
            pss_bytes: 0,
            listens: Vec::new(),
            signal: None,
            scan: 0,
        }
    }
}

/// 255 bytes: the longest name a file can have.
const EXE_BYTES_MAX: usize = 255;

/// Which processes outlive a release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum KeepRule {
    /// Whatever listens on this TCP port: `listen:3000`.
    Listen(u16),
    /// Whatever runs this program, by the base name of its executable: `exe:postgres`.
    Exe(String),
    /// This very process: `pid:4711@123`, as [`ProcIdentity`] is shown.
    Process(ProcIdentity),
}

impl fmt::Display for KeepRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(port) => write!(f, "listen:{port}"),
            Self::Exe(name) => write!(f, "exe:{name}"),
            Self::Process(identity) => write!(f, "pid:{identity}"),
        }
    }
}

impl From<KeepRule> for String {
    fn from(rule: KeepRule) -> Self {
        rule.to_string()
    }
}

impl TryFrom<String> for KeepRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for KeepRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let identity = |text: &str| {
            let (pid, start_ticks) = text.split_once('@')?;
            ProcIdentity::new(pid.parse().ok()?, start_ticks.parse().ok()?)
        };
        let plain = |name: &str| {
            (1..=EXE_BYTES_MAX).contains(&name.len())
                && !name.contains(|c: char| c == '/' || c.is_control())
        };
        let rule = match text.split_once(':') {
            Some(("listen", port)) => port_of(port).map(Self::Listen),
            Some(("exe", name)) if plain(name) => Some(Self::Exe(name.to_owned())),
            Some(("pid", process)) => identity(process).map(Self::Process),
            _ => None,
        };
        rule.ok_or_else(|| {
            // A bound on what an error repeats.
            let shown: String = text.chars().take(80).collect();
            format!("{shown:?} is no keep rule; write listen:PORT, or exe:NAME without slashes")
        })
    }
}

/// The number of a port, in digits and nothing else; 0 is none.
fn port_of(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&port| digits && port > 0)
}

/// How a session's processes are held together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Below a keeper, and in a cgroup of their own.
    Cgroup,
    /// Below a keeper.
    Keeper,
}

impl Tier {
    /// The wire name.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Keeper => "keeper",
        }
    }
}

/// What the reaper is asked to do to the tree below one keeper. Each is answered by exactly one
/// [`ReapReport`], and the session never has two outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReapStep {
    /// List the tree, not measured, while its agent lives on. Nothing is signalled. The one step
    /// that may be outstanding beside another.
    Look,
    /// List the tree and measure it. Nothing is signalled.
    Snapshot,
    /// SIGTERM, then SIGCONT, leaves first.
    Terminate,
    /// SIGSTOP until a walk finds nobody new, SIGKILL, walk again until nothing is left.
    Kill,
    /// A fresh walk: is the tree empty? If it is, the keeper leaves too.
    Verify,
}

/// An order for the reaper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReapRequest {
    /// For whom.
    pub session: SessionId,
    /// Which launch.
    pub incarnation: Incarnation,
    /// The keeper whose tree it is; the keeper itself is not part of it.
    pub keeper: ProcIdentity,
    /// The agent, which no keep rule means; `None` when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<ProcIdentity>,
    /// The cgroup made for this launch, if there is one: an absolute path below the mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// What is not to be ended. `Look` and `Snapshot` take any rule and say which processes they mean; the
    /// steps after it are given those processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<KeepRule>,
    /// What to do.
    pub step: ReapStep,
}

/// What a [`ReapStep`] found and did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReapReport {
    /// For whom.
    pub session: SessionId,
    /// Which launch.
    pub incarnation: Incarnation,
    /// What was asked.
    pub step: ReapStep,
    /// The processes found (`Look`, `Snapshot`), signalled (`Terminate`, `Kill`) or still there (`Verify`).
    pub processes: Vec<ProcReport>,
    /// Processes that are left and that could not be ended, each with the reason (an
    /// uninterruptible sleep, somebody else's process). Empty for a clean result.
    pub survivors: Vec<Survivor>,
    /// The living processes that the keep rules mean, with all that is below them. They are
    /// nowhere else in the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<ProcReport>,
    /// True once a fresh walk found nothing below the keeper but what is kept.
    pub empty: bool,
    /// How long the step took.
    pub took: Duration,
}

/// A process the reaper could not end, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivor {
    /// Which process.
    pub process: ProcReport,
    /// Its state letter in `/proc/PID/stat` when the reaper gave up (`D`: uninterruptible).
    pub state: char,
    /// What stood in the way, for people.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Behaviour 146: a rule reads back as it is written, and what is none is refused in words.
    #[test]
    fn a_keep_rule_is_read_strictly() {
        let own = ProcIdentity::new(4711, 7).unwrap();
        for (text, rule) in [
            ("listen:3000", KeepRule::Listen(3000)),
            ("listen:65535", KeepRule::Listen(u16::MAX)),
            ("exe:postgres", KeepRule::Exe("postgres".to_owned())),
            ("exe:my server", KeepRule::Exe("my server".to_owned())),
            ("exe:a:b", KeepRule::Exe("a:b".to_owned())),
            ("pid:4711@7", KeepRule::Process(own)),
        ] {
            assert_eq!(text.parse(), Ok(rule.clone()), "{text}");
            assert_eq!(rule.to_string(), text);
        }
        let long = format!("exe:{}", "x".repeat(256));
        for text in [
            "",
            "3000",
            "listen",
            "listen:",
            "listen:0",
            "listen:+80",
            "listen: 80",
            "listen:-1",
            "listen:65536",
            "listen:http",
            "listen:3000/tcp",
            "Listen:3000",
            "exe:",
            "exe:/usr/bin/node",
            "exe:no\nde",
            "exe:\0",
            &long,
            "pid:4711",
            "pid:0@7",
            "pid:1@7",
            "pid:-1@7",
            "name:node",
            "postgres",
        ] {
            let error = text.parse::<KeepRule>().unwrap_err();
            assert!(error.contains("is no keep rule"), "{text}: {error}");
            assert!(error.len() < 200, "{error}");
        }
    }

    /// D12: what stands for a group, init or everyone is no process, wherever it comes from.
    #[test]
    fn pids_that_mean_more_than_a_process_are_refused() {
        for pid in [0, 1, -1, -5, i32::MIN] {
            assert_eq!(ProcIdentity::new(pid, 7), None);
            let text = format!(r#"{{"pid":{pid},"start_ticks":7}}"#);
            let error = serde_json::from_str::<ProcIdentity>(&text).unwrap_err();
            assert!(
                error.to_string().contains("is no pid of a process"),
                "{error}"
            );
        }
        for text in [
            r#"{"pid":2147483648,"start_ticks":7}"#,
            r#"{"pid":"x","start_ticks":7}"#,
            "{}",
        ] {
            assert!(
                serde_json::from_str::<ProcIdentity>(text).is_err(),
                "{text}"
            );
        }
        let own = ProcIdentity::new(4711, 7).unwrap();
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<ProcIdentity>(&text).unwrap(), own);
    }
}
