//! `doctor`: can Drowse work here, and how well? It changes nothing and starts nothing.
//!
//! Invariant: every check says what it looked at; `FAIL` is only what stops Drowse from keeping
//! its promises, `warn` what makes it do so with less.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use drowse_client::Client;
use rustix::fs::{Access, access, statvfs};
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};
use serde::Serialize;

use crate::adapters::Adapters;
use crate::chain::chain;
use crate::cli::args::Globals;
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::orphans;
use crate::cli::render::{bytes, count, long, one_line, table};
use crate::exit::Exit;
use crate::paths::{PathSources, Paths};
use crate::process::cgroup::place::Cgroups;

/// 1024 descriptors: a backend takes about ten, so this is for a hundred of them.
const FILES_WANTED: u64 = 1024;

/// 1 GB of free disk: conversations' answers and a log for months.
const DISK_WANTED_BYTES: u64 = 1_000_000_000;

/// 50 MB of free disk: below it the next write may be the one that fails.
const DISK_NEEDED_BYTES: u64 = 50_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warn,
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    what: &'static str,
    level: Level,
    detail: String,
}

fn check(what: &'static str, level: Level, detail: impl Into<String>) -> Check {
    let detail = detail.into();
    Check {
        what,
        level,
        detail,
    }
}

pub(crate) async fn run(globals: &Globals, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let sources = PathSources::of_process(globals.state_dir.clone(), globals.socket.clone());
    let mut checks = match Paths::resolve(&sources) {
        Ok(paths) => vec![
            state_dir(&paths),
            runtime_dir(&paths),
            daemon(&paths).await,
            disk(&paths.state_dir),
            cgroups(&paths.state_dir),
            orphaned(&paths),
        ],
        Err(error) => vec![check("places", Level::Fail, chain(&error))],
    };
    checks.extend([agents(), children_files(), pidfd(), open_files()]);
    let failed = checks.iter().any(|check| check.level == Level::Fail);
    if console.json {
        console.object(&serde_json::json!({"ok": !failed, "checks": checks}))?;
    } else {
        console.out.write_all(report(&checks).as_bytes())?;
        console.out.flush()?;
    }
    Ok(if failed { Exit::Error } else { Exit::Ok })
}

fn report(checks: &[Check]) -> String {
    let level = |level| match level {
        Level::Ok => "ok",
        Level::Warn => "warn",
        Level::Fail => "FAIL",
    };
    let row = |check: &Check| {
        vec![
            level(check.level).to_owned(),
            check.what.to_owned(),
            one_line(&check.detail).into_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = checks.iter().map(row).collect();
    let text = table(&["", "CHECK", "FOUND"], &rows, None);
    // The headings say nothing that the lines do not.
    text.split_once('\n')
        .map_or_else(String::new, |(_, lines)| lines.to_owned())
}

fn state_dir(paths: &Paths) -> Check {
    folder("state folder", &paths.state_dir, paths)
}

fn runtime_dir(paths: &Paths) -> Check {
    folder("socket folder", &paths.runtime_dir, paths)
}

fn folder(what: &'static str, dir: &Path, paths: &Paths) -> Check {
    if let Err(error) = paths.check() {
        return check(what, Level::Fail, chain(&error));
    }
    match fs::metadata(dir) {
        Ok(found) => {
            let mode = found.mode() & 0o777;
            check(
                what,
                Level::Ok,
                format!("{} (mode {mode:04o})", dir.display()),
            )
        }
        Err(_) => {
            let above = existing(dir);
            let can = access(&above, Access::WRITE_OK).is_ok();
            let level = if can { Level::Ok } else { Level::Fail };
            let cannot = if can { "" } else { ", which cannot be done" };
            let detail = format!(
                "{} will be made in {}{cannot}",
                dir.display(),
                above.display()
            );
            check(what, level, detail)
        }
    }
}

/// The nearest folder above that there is.
fn existing(dir: &Path) -> PathBuf {
    let found = dir.ancestors().find(|dir| dir.is_dir());
    found.unwrap_or(Path::new("/")).to_owned()
}

async fn daemon(paths: &Paths) -> Check {
    let socket = paths.socket.display();
    match Client::unix(&paths.socket).status().await {
        Ok(status) => {
            let up = long(std::time::Duration::from_millis(status.uptime_ms));
            let (version, pid) = (&status.version, status.pid);
            let detail = format!("version {version}, pid {pid}, up {up} ({socket})");
            match (status.store_failing, version == env!("CARGO_PKG_VERSION")) {
                (true, _) => check(
                    "daemon",
                    Level::Fail,
                    format!("{detail}; its store refuses writes"),
                ),
                (false, false) => {
                    let mine = env!("CARGO_PKG_VERSION");
                    check(
                        "daemon",
                        Level::Warn,
                        format!("{detail}; this program is {mine}"),
                    )
                }
                (false, true) => check("daemon", Level::Ok, detail),
            }
        }
        Err(error) if error.is_no_daemon() => check(
            "daemon",
            Level::Ok,
            format!("none is running ({socket}); it is started on demand"),
        ),
        Err(error) => check("daemon", Level::Fail, chain(&error)),
    }
}

fn disk(state_dir: &Path) -> Check {
    let dir = existing(state_dir);
    match statvfs(&dir) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            check(
                "free disk",
                disk_level(free),
                format!("{} at {}", bytes(free), dir.display()),
            )
        }
        Err(error) => check(
            "free disk",
            Level::Warn,
            format!("{}: {error}", dir.display()),
        ),
    }
}

const fn disk_level(free_bytes: u64) -> Level {
    if free_bytes < DISK_NEEDED_BYTES {
        Level::Fail
    } else if free_bytes < DISK_WANTED_BYTES {
        Level::Warn
    } else {
        Level::Ok
    }
}

/// The known agents that are on PATH, as the daemon would find them.
fn agents() -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = Vec::new();
    for (name, command) in Adapters::shipped()
        .protocols()
        .into_iter()
        .flat_map(|protocol| protocol.agents)
    {
        let program = command.first().and_then(|program| on_path(&path, program));
        found.extend(program.map(|program| format!("{name} ({})", program.display())));
    }
    if found.is_empty() {
        let detail = "none of the known ones is on PATH; configure one with [agents.NAME]";
        check("agents", Level::Warn, detail)
    } else {
        check("agents", Level::Ok, found.join(", "))
    }
}

fn on_path(path: &std::ffi::OsStr, program: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}

/// Trees are walked by these files; without them a process that left its group is not found.
fn children_files() -> Check {
    let what = "/proc children files";
    match fs::read_to_string("/proc/thread-self/children") {
        Ok(_) => check(what, Level::Ok, "readable"),
        Err(error) => {
            let why = "the kernel was built without CONFIG_PROC_CHILDREN, or /proc is restricted";
            check(what, Level::Fail, format!("{error}: {why}"))
        }
    }
}

fn pidfd() -> Check {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => check("pidfd", Level::Ok, "works"),
        Err(error) => {
            let why = "processes cannot be signalled without the risk of a reused pid";
            check("pidfd", Level::Fail, format!("{error}: {why}"))
        }
    }
}

/// Sessions do without: their trees take a little longer to end, and processes of other users in
/// them cannot be ended.
fn cgroups(state_dir: &Path) -> Check {
    let found = Cgroups::look(&state_dir.display().to_string());
    match found {
        Ok(cgroups) => {
            let above = cgroups.folder().parent().unwrap_or(cgroups.folder());
            check("cgroup v2", Level::Ok, format!("in {}", above.display()))
        }
        Err(error) => {
            let without = "trees are held together by keepers alone";
            check(
                "cgroup v2",
                Level::Warn,
                format!("{}: {without}", chain(&error)),
            )
        }
    }
}

fn open_files() -> Check {
    let limit = getrlimit(Resource::Nofile);
    // `None`: no limit.
    let (soft, hard) = (
        limit.current.unwrap_or(u64::MAX),
        limit.maximum.unwrap_or(u64::MAX),
    );
    let level = if hard < FILES_WANTED {
        Level::Warn
    } else {
        Level::Ok
    };
    check("open files", level, format!("{soft} now, {hard} possible"))
}

/// Agents that nobody owns: they take memory, and nothing ends them.
fn orphaned(paths: &Paths) -> Check {
    let what = "orphans";
    match orphans::counts(paths) {
        Ok((0, _)) => check(what, Level::Ok, "none"),
        Ok((all, ours)) => {
            let trees = count(all, "tree", "trees");
            let detail = format!("{trees} without an owner, {ours} of them ours (drowse orphans)");
            check(what, Level::Warn, detail)
        }
        Err(error) => check(what, Level::Warn, format!("/proc: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_a_line_with_its_level() {
        let checks = [
            check("pidfd", Level::Ok, "works"),
            check("agents", Level::Warn, "none"),
            check("free disk", Level::Fail, "1 B at /"),
        ];
        let expected = "\
ok    pidfd      works
warn  agents     none
FAIL  free disk  1 B at /
";
        assert_eq!(report(&checks), expected);
    }

    #[test]
    fn little_disk_warns_and_no_disk_fails() {
        assert_eq!(disk_level(0), Level::Fail);
        assert_eq!(disk_level(DISK_NEEDED_BYTES), Level::Warn);
        assert_eq!(disk_level(DISK_WANTED_BYTES), Level::Ok);
    }

    #[test]
    fn a_program_is_found_only_when_it_can_be_run() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("claude"), "").unwrap();
        let path = dir.path().as_os_str();
        assert_eq!(on_path(path, "claude"), None);
        assert!(on_path(std::ffi::OsStr::new("/nonexistent:/bin"), "sh").is_some());
    }
}
