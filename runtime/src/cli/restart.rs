//! `restart`: has the daemon replaced by the program it was started from, and waits for the new
//! one.
//!
//! Invariant: it starts no daemon where none runs, and what it reports is what the new daemon says
//! of itself.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use drowse_client::Client;
use drowse_messages::{Restarting, StatusReport, millis};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::render::count;
use crate::exit::Exit;
use crate::paths::Paths;

/// 90 s: the old daemon lets go within 25, and the new one takes over and clears up behind it.
const RESTART_MAX: Duration = Duration::from_secs(90);

/// 3 s for a service manager to start another daemon when the process has ended instead of going
/// on with a new program, because somebody told it to end, or the new program would not start.
const STARTED_ANEW_MAX: Duration = Duration::from_secs(3);

/// 20 ms: a restart takes a few hundred.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What became of it.
#[derive(Debug, Serialize)]
struct Restarted {
    from: String,
    to: String,
    pid: u32,
    /// Sessions that went on with their processes.
    kept: u64,
}

pub(crate) async fn run(
    client: &Client,
    paths: &Paths,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let process = daemon_process(&paths.socket);
    let Restarting { from, .. } = client.restart().await?;
    let status = match next_daemon(client, process.as_ref()).await {
        Ok(status) => status,
        Err(missed) => return Err(missed.failure(paths)),
    };
    let restarted = Restarted {
        from,
        to: status.version,
        pid: status.pid,
        kept: status.adopted,
    };
    if console.json {
        console.object(&restarted)?;
    } else {
        let Restarted { from, to, kept, .. } = restarted;
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        let sessions = count(kept, "session", "sessions");
        writeln!(console.out, "{from} -> {to}, {sessions} kept")?;
    }
    Ok(Exit::Ok)
}

/// Why no daemon followed.
enum Missed {
    /// The process that was to become it has ended.
    Ended,
    /// It runs, perhaps, and takes no requests.
    Late,
}

impl Missed {
    fn failure(&self, paths: &Paths) -> Failure {
        let (exit, text) = match self {
            Self::Ended => (
                Exit::NoDaemon,
                "the daemon ended while it was to be replaced".to_owned(),
            ),
            Self::Late => {
                let seconds = RESTART_MAX.as_secs();
                let text = format!("the new daemon did not take requests within {seconds} s");
                (Exit::Timeout, text)
            }
        };
        let log = paths.serve_log();
        let log = format!("if it was started by a verb, {} says why", log.display());
        Failure::new(exit, text).with(&log)
    }
}

/// The process of the daemon that listens here, which a restart keeps. `None` where it cannot be
/// seen from here, as from within a container.
fn daemon_process(socket: &Path) -> Option<OwnedFd> {
    let peer = socket_peercred(UnixStream::connect(socket).ok()?).ok()?;
    pidfd_open(peer.pid, PidfdFlags::empty()).ok()
}

/// The daemon that is ready and has not run for longer than since now.
async fn next_daemon(client: &Client, process: Option<&OwnedFd>) -> Result<StatusReport, Missed> {
    let begun = Instant::now();
    let mut ended = None;
    while begun.elapsed() < RESTART_MAX {
        if let Ok(status) = client.status().await
            && status.ready
            && status.uptime_ms <= millis(begun.elapsed())
        {
            return Ok(status);
        }
        if ended.is_none() && process.is_some_and(has_ended) {
            ended = Some(Instant::now());
        }
        if ended.is_some_and(|ended: Instant| ended.elapsed() >= STARTED_ANEW_MAX) {
            return Err(Missed::Ended);
        }
        sleep(LOOK_EVERY).await;
    }
    Err(Missed::Late)
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut waited = [PollFd::new(process, PollFlags::IN)];
    matches!(poll(&mut waited, Some(&Timespec::default())), Ok(1))
}
