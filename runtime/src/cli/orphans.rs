//! `orphans`: agent trees that nobody owns on this machine, and the end of our own.
//!
//! Asks no daemon and starts none: an orphan is what no daemon knows. Invariant: nothing is ended
//! without `--reap`, and with it nothing but what carries the mark of this state folder and has
//! no live keeper; nothing of an argument is shown.

use std::path::PathBuf;

use drowse_messages::{ProcIdentity, ProcReport, Survivor, millis};
use nix::unistd::{Uid, User};
use serde::Serialize;

use crate::cli::args::{Globals, OrphansArgs};
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::{places, render};
use crate::exit::Exit;
use crate::lock;
use crate::paths::Paths;
use crate::process::orphans::{Ended, Orphan, Ours, Scan, Waiting, end, measure, scan};

/// Whose a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Owner {
    /// It carries the mark of this state folder: `--reap` ends it.
    Ours,
    /// It carries the mark of another Drowse, or is another user's.
    OtherDrowse,
    /// It carries no mark that can be read.
    NotDrowse,
}

/// One tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TreeReport {
    pub(crate) root: ProcIdentity,
    /// The kernel's name for the root.
    pub(crate) name: String,
    /// The topmost known agent in the tree.
    pub(crate) agent: Option<&'static str>,
    pub(crate) owner: Owner,
    pub(crate) state_dir: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) user: String,
    pub(crate) processes: Vec<ProcReport>,
    pub(crate) memory_bytes: u64,
    /// `pss`, or `rss` when not all of it may be measured so by this user.
    pub(crate) memory_kind: &'static str,
    pub(crate) age_ms: u64,
    pub(crate) cwd: Option<PathBuf>,
    /// TCP ports.
    pub(crate) listens: Vec<u16>,
    pub(crate) why: &'static str,
}

/// One keeper without a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct WaitingReport {
    pub(crate) keeper: ProcIdentity,
    pub(crate) state_dir: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) user: String,
    pub(crate) processes: usize,
}

/// What is printed with `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    /// What `ours` means.
    pub(crate) state_dir: String,
    /// The pid of its daemon.
    pub(crate) daemon: Option<i32>,
    pub(crate) orphans: Vec<TreeReport>,
    pub(crate) waiting: Vec<WaitingReport>,
    /// Processes whose environment this user may not read.
    pub(crate) hidden: usize,
    /// False when there were more processes than are looked at.
    pub(crate) complete: bool,
    /// With `--reap`: who was ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Vec<ProcReport>>,
    /// With `--reap`: who could not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) survivors: Option<Vec<Survivor>>,
}

pub(crate) fn run(
    globals: &Globals,
    args: &OrphansArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let paths = places(globals)?;
    let ours = ours(&paths);
    let mut report = look(&ours, &scan()?);
    let mut exit = Exit::Ok;
    if args.reap {
        let Ended {
            processes,
            survivors,
        } = end(&ours)?;
        if !survivors.is_empty() {
            exit = Exit::Error;
        }
        report.ended = Some(processes);
        report.survivors = Some(survivors);
    }
    if console.json {
        console.object(&report)?;
        return Ok(exit);
    }
    let text = render::orphans(&report, &console.view());
    console.out.write_all(text.as_bytes())?;
    console.out.flush()?;
    for note in notes(&report) {
        console.tell(&note)?;
    }
    Ok(exit)
}

/// How many trees nobody owns, and how many of them are ours to end.
pub(crate) fn counts(paths: &Paths) -> std::io::Result<(usize, usize)> {
    let ours = ours(paths);
    let orphans = scan()?.table.orphans();
    let count = orphans.iter().filter(|orphan| ours.has(orphan)).count();
    Ok((orphans.len(), count))
}

fn ours(paths: &Paths) -> Ours {
    Ours {
        state_dir: paths.state_dir.display().to_string(),
        daemon: lock::holder(&paths.state_dir),
    }
}

fn look(ours: &Ours, scan: &Scan) -> Report {
    let orphans = scan.table.orphans();
    Report {
        state_dir: ours.state_dir.clone(),
        daemon: ours.daemon,
        orphans: orphans.iter().map(|it| tree(it, ours)).collect(),
        waiting: scan.table.waiting().into_iter().map(waiting).collect(),
        hidden: scan.hidden,
        complete: scan.is_complete,
        ended: None,
        survivors: None,
    }
}

fn tree(orphan: &Orphan, ours: &Ours) -> TreeReport {
    let measured = measure(orphan);
    let root = orphan.root();
    let mark = &orphan.mark;
    let owner = if ours.has(orphan) {
        Owner::Ours
    } else if mark.state_dir.is_some() || mark.session.is_some() {
        Owner::OtherDrowse
    } else {
        Owner::NotDrowse
    };
    TreeReport {
        root: root.identity,
        name: root.name.clone(),
        agent: orphan.agent,
        owner,
        state_dir: mark.state_dir.clone(),
        session: mark.session.clone(),
        user: user(orphan.uid),
        processes: orphan
            .members
            .iter()
            .map(|member| member.report())
            .collect(),
        memory_bytes: measured.memory_bytes,
        memory_kind: if measured.is_pss { "pss" } else { "rss" },
        age_ms: millis(measured.age),
        cwd: measured.cwd,
        listens: measured.listens,
        why: orphan.why.code(),
    }
}

fn waiting(waiting: Waiting) -> WaitingReport {
    WaitingReport {
        keeper: waiting.keeper,
        state_dir: waiting.mark.state_dir,
        session: waiting.mark.session,
        user: user(waiting.uid),
        processes: waiting.processes,
    }
}

/// The user's name, or number where it has none.
fn user(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => uid.to_string(),
    }
}

/// What a person should know about the result.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if !report.complete {
        notes
            .push("there are more processes than are looked at: the list may lack some".to_owned());
    }
    if report.hidden > 0 {
        let processes = render::count(report.hidden, "process", "processes");
        notes.push(format!(
            "{processes} of other users hide their environment: a mark in it is not seen"
        ));
    }
    let ours = report
        .orphans
        .iter()
        .filter(|tree| tree.owner == Owner::Ours)
        .count();
    if report.ended.is_none() && ours > 0 {
        notes.push("drowse orphans --reap ends those that are ours".to_owned());
    }
    let left = report.orphans.len() - ours;
    if report.ended.is_some() && left > 0 {
        let trees = render::count(left, "tree", "trees");
        notes.push(format!(
            "{trees} not ours: left alone (drowse orphans lists them)"
        ));
    }
    notes
}
