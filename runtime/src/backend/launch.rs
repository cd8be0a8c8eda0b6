//! Starts a backend's processes, and has its keeper collected when it left.
//!
//! Fed by `link.rs`, which goes on from there. Invariant: a launch that fails leaves no process.

use std::time::Duration;

use drowse_actors::ports::Launch;
use drowse_messages::{ExitStatus, ProcIdentity};

use tokio::time::{Instant, timeout_at};

use super::{Prepared, Shared};
use crate::chain::chain;
use crate::process::control;
use crate::process::link::{AgentStdio, KeeperEvent, KeeperLink};

/// 30 s from asking for a keeper to the agent's process: far above any sane machine's time.
const LAUNCH_MAX: Duration = Duration::from_secs(30);

/// Starts the keeper, and the agent below it.
pub(super) async fn start(
    shared: &Shared,
    launch: &Launch,
    prepared: &Prepared,
) -> Result<(KeeperLink, ProcIdentity, AgentStdio), String> {
    let order = control::Launch {
        argv: prepared.plan.argv.iter().map(Into::into).collect(),
        env: prepared
            .plan
            .env
            .iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
        cwd: launch.recipe.cwd.clone(),
        cgroup: None,
        socket: None,
        orphan_grace: Duration::ZERO,
        eof_grace: launch.eof_grace,
        term_grace: launch.term_grace,
        nofile: None,
    };
    let deadline = Instant::now() + LAUNCH_MAX;
    let late = |_| format!("the keeper did not start the agent within {LAUNCH_MAX:?}");
    let spawned = KeeperLink::spawn(&shared.program, launch.session, order);
    let mut keeper = timeout_at(deadline, spawned)
        .await
        .map_err(late)?
        .map_err(|error| chain(&error))?;
    let error = match timeout_at(deadline, keeper.next_message()).await {
        Ok(Ok(Some(KeeperEvent::Started { agent, stdio }))) => return Ok((keeper, agent, stdio)),
        Ok(Ok(Some(KeeperEvent::LaunchFailed(error)))) => error.to_string(),
        Ok(Ok(Some(KeeperEvent::Exited(_) | KeeperEvent::Empty) | None)) => {
            "the keeper ended before the agent was started".to_owned()
        }
        Ok(Err(error)) => chain(&error),
        Err(elapsed) => late(elapsed),
    };
    let identity = keeper.keeper();
    keeper.end();
    collect(shared, identity);
    Err(error)
}

/// Has the reaper wait for a keeper that leaves.
pub(super) fn collect(shared: &Shared, keeper: ProcIdentity) {
    let note = Box::new(move |status: Option<ExitStatus>| {
        tracing::debug!(%keeper, ?status, "a keeper left");
    });
    if let Err(error) = shared.pool.collect(keeper, note) {
        tracing::warn!(%keeper, %error, "failed to collect a keeper");
    }
}
