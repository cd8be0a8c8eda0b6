//! `restart`: has the daemon replaced by the program it was started from, and waits for the new
//! one.
//!
//! Invariant: it starts no daemon where none runs, and what it reports is what the new daemon says
//! of itself.

use std::time::Duration;

use drowse_client::Client;
use drowse_messages::{Restarting, StatusReport, millis};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::render::count;
use crate::exit::Exit;
use crate::paths::Paths;

/// 90 s: the old daemon lets go within 25, and the new one takes over and clears up behind it.
const RESTART_MAX: Duration = Duration::from_secs(90);

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
    let Restarting { from, .. } = client.restart().await?;
    let begun = Instant::now();
    let Some(status) = next_daemon(client, begun).await else {
        let seconds = RESTART_MAX.as_secs();
        let text = format!("the new daemon did not take requests within {seconds} s");
        let log = format!(
            "if it was started by a verb, {} says why",
            paths.serve_log().display()
        );
        return Err(Failure::new(Exit::Timeout, text).with(&log));
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

/// The daemon that is ready and has not run for longer than since then.
async fn next_daemon(client: &Client, begun: Instant) -> Option<StatusReport> {
    while begun.elapsed() < RESTART_MAX {
        if let Ok(status) = client.status().await
            && status.ready
            && status.uptime_ms <= millis(begun.elapsed())
        {
            return Some(status);
        }
        sleep(LOOK_EVERY).await;
    }
    None
}
