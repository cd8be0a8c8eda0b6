//! Schemathesis, which holds an API against its own document: installed from PyPI on first use, at
//! fixed versions, into a folder of its own beside what cargo builds.
//!
//! Fed by: the test of the HTTP API. Invariant: a folder with the mark is whole; what cannot be had
//! is an error that names what is missing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::agents::Missing;
use crate::agents::install::{INSTALL_CEILING, finished_well, folder, on_path};
use crate::wait::scaled;

/// Every package there is, its version behind `==`; the first thing asked for is Schemathesis.
const PACKAGES: &str = include_str!("schemathesis.txt");

/// Written last.
const MARK: &str = "whole";

/// An installed Schemathesis.
#[derive(Debug)]
pub struct Schemathesis {
    program: PathBuf,
}

impl Schemathesis {
    /// Installs it unless it is there.
    ///
    /// # Errors
    /// [`Missing`] when it cannot be had here.
    pub fn install() -> Result<Self, Missing> {
        let wanted = PACKAGES
            .lines()
            .find(|line| line.starts_with("schemathesis=="));
        let wanted = wanted.expect("the list has it");
        let missing = |why: &str| Missing {
            what: format!("{wanted}: {why}"),
        };
        let home = folder().join(wanted.replace("==", "-"));
        fs::create_dir_all(&home).map_err(|e| missing(&format!("its folder: {e}")))?;
        let lock = File::create(home.join("lock")).map_err(|e| missing(&e.to_string()))?;
        // Whoever has it is done, one way or the other, within the bound of an installation.
        lock.lock().map_err(|e| missing(&e.to_string()))?;
        let program = home.join("venv/bin/schemathesis");
        if home.join(MARK).exists() {
            return Ok(Self { program });
        }
        let python = on_path("python3")?;
        drop(fs::remove_dir_all(home.join("venv")));
        let packages = home.join("packages.txt");
        fs::write(&packages, PACKAGES).map_err(|e| missing(&e.to_string()))?;
        let venv = home.join("venv");
        step(&home, Command::new(python).args(["-m", "venv"]).arg(&venv))
            .map_err(|why| missing(&format!("python3 -m venv: {why}")))?;
        let pip = [
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--no-input",
            "--constraint",
        ];
        let mut install = Command::new(venv.join("bin/python"));
        install.args(pip).arg(&packages).arg(wanted);
        step(&home, &mut install).map_err(|why| missing(&format!("pip install: {why}")))?;
        fs::write(home.join(MARK), "").map_err(|e| missing(&e.to_string()))?;
        Ok(Self { program })
    }

    /// Runs it in a folder with these arguments, to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run(&self, folder: &Path, args: &[&str]) -> Output {
        Command::new(&self.program)
            .args(args)
            .current_dir(folder)
            .env("HYPOTHESIS_STORAGE_DIRECTORY", folder)
            .stdin(Stdio::null())
            .output()
            .expect("it is installed")
    }
}

/// 600 characters of its output are shown when a step fails, the last ones.
const OUTPUT_SHOWN_CHARS_MAX: usize = 600;

/// Runs a step of the installation, with a bound.
fn step(home: &Path, command: &mut Command) -> Result<(), String> {
    use std::os::unix::process::CommandExt;
    let path = home.join("install.log");
    let log = File::create(&path).map_err(|e| e.to_string())?;
    let errors = log.try_clone().map_err(|e| e.to_string())?;
    let spawned = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .process_group(0)
        .spawn();
    let mut child = spawned.map_err(|e| e.to_string())?;
    if finished_well(&mut child, Instant::now() + scaled(INSTALL_CEILING)) {
        return Ok(());
    }
    let said = fs::read_to_string(&path).unwrap_or_default();
    let skipped = said.chars().count().saturating_sub(OUTPUT_SHOWN_CHARS_MAX);
    Err(said.chars().skip(skipped).collect())
}
