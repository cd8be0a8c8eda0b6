//! Finds a process that somebody means, by its number or its port, below keepers of ours.
//!
//! Fed by the trees' port, on a thread that may block. Signals nobody. Invariant: what is found is
//! alive and hangs below one of the keepers that were given, which is still that very process.

use std::collections::HashMap;

use drowse_messages::{KeepTarget, ProcIdentity, ProcReport};

use super::listening::ports_of;
use super::table::{self, Stat, identify, stat_of};

/// 4,096 steps up: deeper chains than any real one; the bound only ends a loop.
const ANCESTORS_MAX: usize = 4096;

/// A process, and the keeper above it.
pub type Below = (ProcIdentity, ProcReport);

/// Finds the process meant below one of these keepers.
///
/// # Errors
/// Says for people why there is none: which process it is instead, or that there is no such one.
pub fn find_below(target: KeepTarget, keepers: &[ProcIdentity]) -> Result<Below, String> {
    match target {
        KeepTarget::Pid(pid) => find_pid(pid, keepers),
        KeepTarget::Listen(port) => find_listening(port, keepers),
    }
}

/// Those of these processes that still run.
#[must_use]
pub fn living(processes: Vec<ProcIdentity>) -> Vec<ProcIdentity> {
    let is_alive = |it: &ProcIdentity| {
        stat_of(it.pid()).is_ok_and(|stat| stat.identity == *it && stat.is_alive())
    };
    processes.into_iter().filter(is_alive).collect()
}

fn find_pid(pid: i32, keepers: &[ProcIdentity]) -> Result<Below, String> {
    if pid == rustix::process::getpid().as_raw_nonzero().get() {
        return Err(format!("process {pid} is drowse itself"));
    }
    if keepers.iter().any(|keeper| keeper.pid() == pid) {
        return Err(format!("process {pid} is a keeper of drowse"));
    }
    let Ok(stat) = stat_of(pid) else {
        return Err(format!("there is no process {pid}"));
    };
    if !stat.is_alive() {
        return Err(format!("process {pid} has ended"));
    }
    let mut parent = stat.parent;
    for _ in 0..ANCESTORS_MAX {
        if let Some(keeper) = keepers.iter().find(|keeper| keeper.pid() == parent)
            && identify(parent).is_ok_and(|found| found == *keeper)
        {
            let ports = ports_of(std::slice::from_ref(&stat));
            return Ok((*keeper, with_ports(&stat, &ports)));
        }
        match stat_of(parent) {
            Ok(above) if above.parent > 0 => parent = above.parent,
            Ok(_) | Err(_) => break,
        }
    }
    Err(format!("process {pid} belongs to no session that is awake"))
}

fn find_listening(port: u16, keepers: &[ProcIdentity]) -> Result<Below, String> {
    let found = keepers.iter().find_map(|keeper| {
        let tree = table::walk(*keeper).ok()?;
        let ports = ports_of(&tree);
        let listens = |stat: &&Stat| {
            let own = ports.get(&stat.identity);
            own.is_some_and(|own| own.contains(&port))
        };
        let process = with_ports(tree.iter().find(listens)?, &ports);
        Some((*keeper, process))
    });
    found.ok_or_else(|| format!("no process of a session listens on port {port}"))
}

fn with_ports(stat: &Stat, ports: &HashMap<ProcIdentity, Vec<u16>>) -> ProcReport {
    ProcReport {
        listens: ports.get(&stat.identity).cloned().unwrap_or_default(),
        ..stat.report()
    }
}
