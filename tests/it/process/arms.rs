//! The same tests again as somebody else: an unprivileged user, with a cgroup handed over to it or
//! without any.
//!
//! Fed by tests that name themselves. What cannot be run here is said loudly, and only then not
//! run.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::*;
use drowse::process::cgroup::place::Cgroups;

/// Who owns nothing, by tradition.
const NOBODY: u32 = 65_534;

/// What the unprivileged user finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delegation {
    None,
    Cgroup,
}

/// Says that something was not tested.
pub(crate) fn not_run(what: &str, why: &str) {
    drowse_tests::wait::say_aloud(&format!("NOT RUN: {what}: {why}"));
}

/// Where this process may make cgroups; said loudly when it may not.
pub(crate) fn cgroups() -> Option<Cgroups> {
    match Cgroups::find(&format!("test {}", std::process::id())) {
        Ok(cgroups) => Some(cgroups),
        Err(error) => {
            not_run("the cgroup tier", &error.to_string());
            None
        }
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True in a process of an unprivileged user; root runs this test in one.
pub(crate) fn as_nobody(test: &str, delegation: Delegation) -> bool {
    if is_alone() || !is_root() {
        return true;
    }
    let what = format!("{test} as an unprivileged user");
    if Command::new("setpriv").arg("--version").output().is_err() {
        not_run(&what, "there is no setpriv");
        return false;
    }
    let programs = Programs::copy();
    let delegated = match delegation {
        Delegation::None => None,
        Delegation::Cgroup => match Delegated::make() {
            Some(made) => Some(made),
            None => return false,
        },
    };
    // The shell enters the cgroup and becomes setpriv, which becomes the test.
    let enter = r#"[ -z "$0" ] || echo 0 > "$0/cgroup.procs" && exec "$@""#;
    let cgroup = delegated.as_ref().map_or(Path::new(""), |made| &made.0);
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(enter).arg(cgroup);
    let ids = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    command.arg("setpriv").args(ids).arg("--clear-groups");
    command.arg(programs.own()).current_dir("/");
    run_alone(test, command.env(PROGRAMS_VARIABLE, programs.0.path()));
    false
}

/// Copies of the programs, where everybody may run them.
struct Programs(tempfile::TempDir);

impl Programs {
    fn copy() -> Self {
        let this = Self(tempfile::tempdir().expect("a folder"));
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        };
        mode(this.0.path(), 0o755);
        for built in [KEEPER, TREE_AGENT, FAKE_DAEMON] {
            fs::copy(built, this.path(built)).expect("room");
        }
        fs::copy(std::env::current_exe().expect("we run"), this.own()).expect("room");
        let suid = this.0.path().join("tree-agent-suid");
        fs::copy(TREE_AGENT, &suid).expect("room");
        mode(&suid, 0o4755);
        this
    }

    fn path(&self, built: &str) -> PathBuf {
        self.0
            .path()
            .join(Path::new(built).file_name().expect("a program"))
    }

    fn own(&self) -> PathBuf {
        self.0.path().join("it")
    }
}

/// A cgroup handed over to the unprivileged user, as systemd does it; removed on drop.
struct Delegated(PathBuf);

impl Delegated {
    fn make() -> Option<Self> {
        // Root's place for cgroups is in the cgroup of this process.
        let place = cgroups()?;
        let above = place.folder().parent().expect("a folder in a cgroup");
        let folder = above.join(format!("drowse-test-{}", std::process::id()));
        fs::create_dir(&folder).expect("a cgroup");
        for handed_over in [
            "",
            "cgroup.procs",
            "cgroup.subtree_control",
            "cgroup.threads",
        ] {
            chown(folder.join(handed_over), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        Some(Self(folder))
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let removed = fs::remove_dir(&self.0);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}
