//! Puts an npm package of a fixed version into `target/agents`, once.
//!
//! Fed by: the first test that needs it. Two test processes may come at once: a file lock lets one
//! install and the other wait. Invariant: the final folder appears by a rename, so it is whole.

use std::fs::{self, File, TryLockError};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::Missing;
use crate::wait::scaled;

/// Three minutes for a download of up to 200 MB; then the network counts as missing.
pub(crate) const INSTALL_CEILING: Duration = Duration::from_secs(180);

/// Pause between two looks at npm and at the lock.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// 600 characters of npm's output are shown when it fails, the last ones.
const OUTPUT_SHOWN_CHARS_MAX: usize = 600;

/// A package of the npm registry.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) npm: &'static str,
    pub(super) version: &'static str,
    /// The file to run, below the folder.
    pub(super) entry: &'static str,
}

impl Package {
    /// Installs it unless it is there, and gives the path of its entry.
    pub(super) fn install(&self) -> Result<PathBuf, Missing> {
        self.install_with(&[])
    }

    /// The same without what it can do without, such as an agent's program inside a library.
    pub(super) fn install_lean(&self) -> Result<PathBuf, Missing> {
        self.install_with(&["--omit=optional"])
    }

    fn install_with(&self, options: &[&str]) -> Result<PathBuf, Missing> {
        let agents = folder();
        let home = agents.join(format!("{}-{}", self.name, self.version));
        let entry = home.join(self.entry);
        if entry.exists() {
            return Ok(entry);
        }
        let npm = on_path("npm")?;
        fs::create_dir_all(&agents).map_err(|e| self.missing(&format!("its folder: {e}")))?;
        let end = Instant::now() + scaled(INSTALL_CEILING);
        let _lock = self.lock(&agents, end)?;
        // Another process may have installed it while this one waited for the lock.
        if !entry.exists() {
            self.fetch(&npm, options, &home, end)?;
        }
        if entry.exists() {
            Ok(entry)
        } else {
            Err(self.missing("its entry file"))
        }
    }

    fn fetch(
        &self,
        npm: &Path,
        options: &[&str],
        home: &Path,
        end: Instant,
    ) -> Result<(), Missing> {
        let part = home.with_extension("part");
        let failed = |e: std::io::Error| self.missing(&format!("a folder to install to: {e}"));
        // What an interrupted installation left is of no use.
        drop(fs::remove_dir_all(&part));
        fs::create_dir_all(&part).map_err(failed)?;
        let output = part.join("npm.log");
        let log = File::create(&output).map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        let mut child = Command::new(npm)
            .args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
            .args(options)
            .arg("--prefix")
            .arg(&part)
            .arg(format!("{}@{}", self.npm, self.version))
            .current_dir(&part)
            .env("npm_config_update_notifier", "false")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|e| self.missing(&format!("npm: {e}")))?;
        if !finished_well(&mut child, end) {
            let said = fs::read_to_string(&output).unwrap_or_default();
            let skipped = said.chars().count().saturating_sub(OUTPUT_SHOWN_CHARS_MAX);
            let tail: String = said.chars().skip(skipped).collect();
            return Err(self.missing(&format!("npm install did not succeed: {tail}")));
        }
        // A folder without its entry is a leftover of somebody's hand.
        drop(fs::remove_dir_all(home));
        fs::rename(&part, home).map_err(failed)
    }

    fn lock(&self, agents: &Path, end: Instant) -> Result<File, Missing> {
        let path = agents.join(format!("{}-{}.lock", self.name, self.version));
        let file = File::create(path).map_err(|e| self.missing(&format!("its lock: {e}")))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(e) => return Err(self.missing(&format!("its lock: {e}"))),
            }
        }
    }

    fn missing(&self, why: &str) -> Missing {
        Missing {
            what: format!("{}@{}: {why}", self.npm, self.version),
        }
    }
}

/// Where agents are installed: beside what cargo builds, so that it is thrown away with it.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("DROWSE_AGENTS_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/agents"),
        PathBuf::from,
    )
}

/// Finds a program on `PATH`.
pub(crate) fn on_path(name: &str) -> Result<PathBuf, Missing> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|p| p.is_file());
    found.ok_or_else(|| Missing {
        what: format!("{name} on PATH"),
    })
}

/// Waits for the end of a step of an installation; one that leads a group is killed with it when its
/// time is over.
pub(crate) fn finished_well(child: &mut Child, end: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < end => std::thread::sleep(LOOK_EVERY),
            Ok(None) | Err(_) => break,
        }
    }
    if let Ok(pid) = i32::try_from(child.id()) {
        // npm leads a group of its own, and it is not collected yet, so the number is still its.
        _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    drop(child.wait());
    false
}
