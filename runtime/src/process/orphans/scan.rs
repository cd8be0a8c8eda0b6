//! Reads the process table for the rule: one pass over `/proc`, and the locks of the state folders
//! that marks name.
//!
//! Invariant: everything of a row is read through one open `/proc/PID` folder, so it concerns one
//! process. What may not be read counts as not there. Of arguments and environments nothing is
//! kept but an agent's name and the two marks.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, openat, readlinkat};

use super::super::keeper;
use super::super::spawn::SESSION_VARIABLE;
use super::super::table::{Process, Stat};
use super::rule::{MarkFound, Role, Row, Table, Ties};
use crate::adapter::agent_of;
use crate::backend::STATE_VARIABLE;
use crate::lock;

/// 65,536 processes are looked at: twice the default `pid_max`, and about a second.
pub const PROCESSES_MAX: usize = 65_536;

/// 8 MiB: above the 6 MiB that the kernel allows arguments and environment to take together.
const ENVIRON_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// 16 KiB of a command line: program and script come first, and have paths of 4 KiB at most.
const ARGUMENTS_BYTES_MAX: u64 = 16 * 1024;

/// 4 KiB: a cgroup's path is a path; a stat line is shorter.
const LINES_BYTES_MAX: u64 = 4096;

/// 64 state folders are asked for their daemon: tests have a few, people one.
const STATES_MAX: usize = 64;

/// The one kernel thread that is the parent of all others.
const KTHREADD: i32 = 2;

/// The programs that stand at the top of a container and collect what its processes leave.
const CONTAINER_INITS: [&[u8]; 4] = [b"tini", b"docker-init", b"dumb-init", b"catatonit"];

/// What one pass saw.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// For the rule.
    pub table: Table,
    /// How many processes hide their environment from this user: they may carry a mark.
    pub hidden: usize,
    /// False when there were more processes than [`PROCESSES_MAX`].
    pub is_complete: bool,
}

/// Looks at every process but this one.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn scan() -> io::Result<Scan> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut reader = Reader::default();
    let mut rows = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir("/proc")? {
        let pid = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(pid) = pid.filter(|&pid| pid != own) else {
            continue;
        };
        seen += 1;
        if seen > PROCESSES_MAX {
            break;
        }
        // One that cannot be looked at has ended, or is not ours to see.
        rows.extend(
            Process::open(pid)
                .and_then(|process| reader.row(&process))
                .ok()
                .flatten(),
        );
    }
    let daemons = daemons(&rows);
    Ok(Scan {
        table: Table::new(rows, daemons),
        hidden: reader.hidden,
        is_complete: seen <= PROCESSES_MAX,
    })
}

/// The live daemons of all state folders that marks name.
fn daemons(rows: &[Row]) -> BTreeMap<String, i32> {
    let mut states: Vec<&String> = rows
        .iter()
        .filter_map(|row| row.mark.state_dir.as_ref())
        .collect();
    states.sort_unstable();
    states.dedup();
    states
        .into_iter()
        .take(STATES_MAX)
        .filter_map(|state| Some((state.clone(), lock::holder(Path::new(state))?)))
        .collect()
}

#[derive(Default)]
struct Reader {
    /// Room for what one file brings.
    bytes: Vec<u8>,
    hidden: usize,
}

impl Reader {
    /// `None` for what is no living program: a dead process, a thread of the kernel.
    fn row(&mut self, process: &Process) -> io::Result<Option<Row>> {
        let stat = process.stat()?;
        if !stat.is_alive() || stat.parent == KTHREADD {
            return Ok(None);
        }
        let arguments = self.read(process, "cmdline", ARGUMENTS_BYTES_MAX)?;
        let role = role(process, &stat, arguments);
        let ties = match role {
            Role::Agent(_) => self.ties(process, &stat),
            Role::Keeper | Role::Init | Role::Other => Ties::default(),
        };
        let uid = fstat(process.as_fd())?.st_uid;
        let mark = self.mark(process)?;
        Ok(Some(Row {
            stat,
            uid,
            role,
            mark,
            ties,
        }))
    }

    fn mark(&mut self, process: &Process) -> io::Result<MarkFound> {
        let environment = match self.read(process, "environ", ENVIRON_BYTES_MAX) {
            Ok(environment) => environment,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.hidden += 1;
                return Ok(MarkFound::default());
            }
            Err(error) => return Err(error),
        };
        let value_of = |name: &str| {
            let values = environment
                .split(|&byte| byte == 0)
                .filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
            values
                .map(|value| String::from_utf8_lossy(value).into_owned())
                .next()
        };
        Ok(MarkFound {
            state_dir: value_of(STATE_VARIABLE),
            session: value_of(SESSION_VARIABLE),
        })
    }

    fn ties(&mut self, process: &Process, stat: &Stat) -> Ties {
        let line = self.read(process, "stat", LINES_BYTES_MAX);
        let foreground = line.ok().and_then(parse_foreground);
        let groups = self.read(process, "cgroup", LINES_BYTES_MAX);
        Ties {
            in_foreground: foreground == Some(stat.group),
            in_unit: groups.is_ok_and(is_in_unit),
        }
    }

    fn read(&mut self, process: &Process, name: &str, bytes_max: u64) -> io::Result<&[u8]> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = File::from(openat(process, name, flags, Mode::empty())?);
        self.bytes.clear();
        // A read fails once the process is gone, and where only the open file was ours to have.
        file.take(bytes_max).read_to_end(&mut self.bytes)?;
        Ok(&self.bytes)
    }
}

fn role(process: &Process, stat: &Stat, arguments: &[u8]) -> Role {
    let arguments: Vec<&[u8]> = arguments.split(|&byte| byte == 0).collect();
    let name = |at: usize| arguments.get(at).copied().unwrap_or_default();
    let first = name(0)
        .rsplit(|&byte| byte == b'/')
        .next()
        .unwrap_or_default();
    let is_users_systemd = first == b"systemd" && name(1) == b"--user" && stat.parent == 1;
    if name(0) == b"drowse" && name(1) == keeper::ARGUMENT.as_bytes() {
        Role::Keeper
    } else if is_users_systemd || CONTAINER_INITS.contains(&first) {
        Role::Init
    } else {
        let argv: Vec<_> = arguments
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes))
            .collect();
        let argv: Vec<&str> = argv.iter().map(AsRef::as_ref).collect();
        let program = link(process, "exe");
        let program = program.as_ref().and_then(|program| program.to_str());
        agent_of(program, &argv).map_or(Role::Other, Role::Agent)
    }
}

/// Where a link in the process's folder leads, if this user may know.
pub(super) fn link(process: &Process, name: &str) -> Option<PathBuf> {
    let target = readlinkat(process, name, Vec::new()).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

/// The resident memory of a process in bytes, which everybody may read.
pub(super) fn rss_bytes(process: &Process) -> Option<u64> {
    let mut reader = Reader::default();
    let line = reader.read(process, "statm", LINES_BYTES_MAX).ok()?;
    let pages: u64 = std::str::from_utf8(line)
        .ok()?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    let page_bytes = u64::try_from(rustix::param::page_size()).ok()?;
    Some(pages.saturating_mul(page_bytes))
}

/// The foreground group of the terminal, if there is one, that a stat line names: behind the name,
/// which may hold brackets and spaces itself (D13).
fn parse_foreground(line: &[u8]) -> Option<i32> {
    let close = line.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    // Before it: state, parent, group, process session, and the terminal's number.
    let mut numbers = rest.split_whitespace().skip(4);
    let terminal: i32 = numbers.next()?.parse().ok()?;
    let foreground = numbers.next()?.parse().ok()?;
    (terminal != 0).then_some(foreground)
}

/// True when systemd's hierarchy, or the only one, puts the process into a service. Sessions of
/// people and what they start are in scopes.
fn is_in_unit(groups: &[u8]) -> bool {
    let text = String::from_utf8_lossy(groups);
    let paths = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (hierarchy, path) = (parts.next()?, parts.next()?);
        matches!(hierarchy, "" | "name=systemd").then_some(path)
    });
    paths
        .filter_map(|path| path.rsplit('/').next())
        .any(|unit| unit.ends_with(".service"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D13: a name cannot shift the fields.
    #[test]
    fn a_terminal_is_behind_the_last_bracket() {
        let line = b"77 (a) S 1 1 (b) S 9 70 60 34816 70 4194304 1";
        assert_eq!(parse_foreground(line), Some(70));
        assert_eq!(parse_foreground(b"77 (a) S 1 70 60 0 -1 4194304"), None);
        assert_eq!(parse_foreground(b"77 (a) S 1"), None);
    }

    #[test]
    fn a_service_is_told_from_a_scope() {
        for (text, expected) in [
            ("0::/system.slice/t3code.service\n", true),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.service\n",
                true,
            ),
            ("0::/user.slice/user-1000.slice/session-3.scope\n", false),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope\n",
                false,
            ),
            (
                "5:pids:/a.service\n1:name=systemd:/user.slice/session-1.scope\n",
                false,
            ),
            ("1:name=systemd:/system.slice/x.service\n", true),
            ("0::/\n", false),
            ("nonsense\n", false),
        ] {
            assert_eq!(is_in_unit(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn this_process_is_not_looked_at() {
        let scan = scan().expect("proc is mounted");
        assert!(scan.is_complete);
        let own = std::process::id().cast_signed();
        let has_own = |stat: &Stat| stat.identity.pid() == own;
        let orphans = scan.table.orphans();
        assert!(!orphans.iter().flat_map(|it| &it.members).any(has_own));
    }
}
