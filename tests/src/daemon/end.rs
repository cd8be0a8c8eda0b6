//! The end of a [`TestDaemon`]: nothing of it may be left, and a failing test shows what there was.
//!
//! Fed by: the value's drop.

use std::fs;

use drowse::process::cgroup::place::Cgroups;
use drowse_client::ListQuery;
use nix::sys::signal::Signal;

use super::{END_CEILING, SESSION_VARIABLE, TestDaemon};
use crate::process::{ProcIdentity, ProcStat, descendants, with_env_among};
use crate::wait::{comes_true, say};

/// 100 lines of the daemon's log are shown when a test fails, the last ones.
const LOG_LINES_SHOWN: usize = 100;
/// 30 events of each session are shown when a test fails, the newest.
const EVENTS_SHOWN: usize = 30;

impl TestDaemon {
    /// Ends our daemon, and one that a verb started: that one is known by the lock it holds.
    fn end_daemons(&mut self) {
        let mut daemons: Vec<ProcIdentity> = Vec::new();
        let pid = self
            .child
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok());
        daemons.extend(pid.and_then(ProcIdentity::of));
        let lock = fs::read_to_string(self.state_dir().join("lock")).unwrap_or_default();
        let holder = lock
            .strip_prefix("pid ")
            .and_then(|rest| rest.split(',').next());
        let holder = holder.and_then(|pid| pid.parse().ok());
        let marked = self.guard.alive();
        daemons.extend(
            marked
                .into_iter()
                .filter(|process| Some(process.pid) == holder),
        );
        daemons
            .iter()
            .for_each(|daemon| daemon.signal(Signal::SIGTERM));
        let ended = comes_true(END_CEILING, || !daemons.iter().any(ProcIdentity::is_alive));
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
        if !ended {
            say("the daemon did not end when it was told to");
            daemons
                .iter()
                .for_each(|daemon| daemon.signal(Signal::SIGKILL));
        }
    }

    /// A cgroup whose keeper was killed waits for the next daemon on its state folder. None comes.
    fn remove_cgroups(&self) {
        if let Ok(cgroups) = Cgroups::look(&self.state_dir().display().to_string())
            && let Err(error) = cgroups.end_leftovers(&[])
        {
            say(&format!("cgroups of the test are left: {error}"));
        }
    }

    fn dump(&self) {
        let log = self.log_text();
        let lines: Vec<&str> = log.lines().collect();
        let shown = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
        say(&format!("the daemon's log:\n{shown}"));
        let query = ListQuery::default();
        let page = self.ask(async |client| client.sessions(&query).await);
        for report in page.map(|page| page.sessions).unwrap_or_default() {
            say(&format!("session {report:?}"));
            let id = report.id.to_string();
            let events = self.ask(async |client| client.log(&id, EVENTS_SHOWN).await);
            for event in events.unwrap_or_default() {
                say(&format!("  {} {:?}", event.seq, event.what));
            }
        }
        say("the agents' log:");
        let entries = self.fake().log();
        for entry in &entries[entries.len().saturating_sub(EVENTS_SHOWN)..] {
            say(&format!("  {entry}"));
        }
        let daemon = self
            .child
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok());
        let below = daemon.map(descendants).unwrap_or_default();
        say("processes below the daemon:");
        for process in below {
            let parent = ProcStat::read(process.pid).map_or(0, |stat| stat.parent);
            say(&format!("  {} below {parent}", process.describe()));
        }
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        let failing = std::thread::panicking();
        if failing {
            self.dump();
        }
        self.end_daemons();
        let opened = self.opened.take();
        let left = || with_env_among(SESSION_VARIABLE, &opened);
        let ended = comes_true(END_CEILING, || left().is_empty());
        self.remove_cgroups();
        if ended {
            return;
        }
        let left = left();
        let text: Vec<String> = left.iter().map(ProcIdentity::describe).collect();
        left.iter()
            .for_each(|process| process.signal(Signal::SIGKILL));
        let text = format!("sessions left processes behind:\n  {}", text.join("\n  "));
        if failing {
            say(&text);
        } else {
            panic!("{text}");
        }
    }
}
