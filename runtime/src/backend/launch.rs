//! Starts a backend's processes, and has its keeper collected when it left.
//!
//! Fed by `link.rs`, which goes on from there. Invariant: a launch that fails leaves no process and no
//! cgroup.

use std::path::PathBuf;
use std::time::Duration;

use drowse_actors::ports::Launch;
use drowse_messages::{ExitStatus, Incarnation, ProcIdentity, SessionId};
use tokio::time::{Instant, timeout_at};

use super::{Prepared, Shared};
use crate::chain::chain;
use crate::process::cgroup::place;
use crate::process::control;
use crate::process::link::{AgentStdio, KeeperEvent, KeeperLink};

/// 30 s from asking for a keeper to the agent's process: far above any sane machine's time.
const LAUNCH_MAX: Duration = Duration::from_secs(30);

/// What a launch has brought to life.
pub(super) struct Started {
    pub(super) keeper: KeeperLink,
    pub(super) agent: ProcIdentity,
    pub(super) stdio: AgentStdio,
    /// The cgroup that the agent is in, if it is in one.
    pub(super) cgroup: Option<PathBuf>,
}

/// Starts the keeper, and the agent below it, in a cgroup where there are any.
pub(super) async fn start(
    shared: &Shared,
    launch: &Launch,
    prepared: &Prepared,
) -> Result<Started, String> {
    let made = make_cgroup(shared, launch);
    match start_in(made.clone(), shared, launch, prepared).await {
        Ok((keeper, agent, stdio)) => {
            let is_inside = |path: &PathBuf| place::holds(path, agent.pid());
            let cgroup = made.clone().filter(is_inside);
            if cgroup.is_none() {
                give_up_cgroup(made);
            }
            Ok(Started {
                keeper,
                agent,
                stdio,
                cgroup,
            })
        }
        Err(error) => {
            give_up_cgroup(made);
            Err(error)
        }
    }
}

/// That there is none for this launch does not stop it: the keeper holds its tree together.
fn make_cgroup(shared: &Shared, launch: &Launch) -> Option<PathBuf> {
    let made = shared
        .cgroups
        .as_ref()?
        .create(launch.session, launch.incarnation);
    match made {
        Ok(cgroup) => Some(cgroup.path().to_owned()),
        Err(error) => {
            tracing::warn!(session = %launch.session, %error, "failed to make a cgroup");
            None
        }
    }
}

fn give_up_cgroup(path: Option<PathBuf>) {
    if let Some(path) = path {
        tracing::debug!(cgroup = %path.display(), "no agent runs in this cgroup");
        place::remove(&path);
    }
}

async fn start_in(
    cgroup: Option<PathBuf>,
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
        cgroup,
        socket: Some(socket_of(shared, launch.session, launch.incarnation)),
        orphan_grace: shared.orphan_grace(),
        eof_grace: launch.eof_grace,
        term_grace: launch.term_grace,
        // What the keeper's program says.
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
    collect(shared, identity, None);
    Err(error)
}

/// Where the keeper of a launch listens for the next daemon.
pub(super) fn socket_of(shared: &Shared, session: SessionId, incarnation: Incarnation) -> PathBuf {
    shared.keepers.join(socket_name(session, incarnation))
}

/// The last part of it.
pub(super) fn socket_name(session: SessionId, incarnation: Incarnation) -> String {
    format!("{session}-{}.sock", incarnation.0)
}

/// Has the reaper wait for a keeper that leaves. It removes its cgroup before it does; this is for
/// one that was killed.
pub(super) fn collect(shared: &Shared, keeper: ProcIdentity, cgroup: Option<PathBuf>) {
    let note = Box::new(move |status: Option<ExitStatus>| {
        tracing::debug!(%keeper, ?status, "a keeper left");
        if let Some(path) = cgroup {
            place::remove(&path);
        }
    });
    if let Err(error) = shared.pool.collect(keeper, note) {
        tracing::warn!(%keeper, %error, "failed to collect a keeper");
    }
}
