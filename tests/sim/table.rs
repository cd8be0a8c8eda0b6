//! The process table: pids that are used again, parents, orphans that fall to their keeper.

use std::collections::BTreeMap;

use drowse_messages::{Incarnation, MonoTime, ProcIdentity, ProcReport, SessionId};

/// Few, so that numbers are soon used again.
const PIDS: i32 = 400;

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) start_ticks: u64,
    pub(crate) parent: i32,
    pub(crate) owner: (SessionId, Incarnation),
    pub(crate) role: Role,
    pub(crate) ignores_term: bool,
    /// It sleeps uninterruptibly until then.
    pub(crate) stuck_until: MonoTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Keeper,
    Agent,
    Child,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    processes: BTreeMap<i32, Process>,
    last_pid: i32,
    ticks: u64,
}

impl Table {
    pub(crate) fn spawn(&mut self, mut process: Process) -> ProcIdentity {
        self.ticks += 1;
        loop {
            self.last_pid = self.last_pid % PIDS + 1;
            if self.last_pid > 1 && !self.processes.contains_key(&self.last_pid) {
                break;
            }
        }
        process.start_ticks = self.ticks;
        self.processes.insert(self.last_pid, process);
        ProcIdentity::new(self.last_pid, self.ticks).expect("pids above 1 are given out")
    }

    /// The process, unless its number belongs to another one by now.
    pub(crate) fn get(&self, identity: ProcIdentity) -> Option<&Process> {
        self.processes
            .get(&identity.pid())
            .filter(|process| process.start_ticks == identity.start_ticks())
    }

    /// The process ends; its children fall to their keeper.
    pub(crate) fn end(&mut self, identity: ProcIdentity) -> Option<Process> {
        self.get(identity)?;
        let process = self.processes.remove(&identity.pid())?;
        let keeper = self.keeper(process.owner).map_or(1, ProcIdentity::pid);
        for child in self.processes.values_mut() {
            if child.parent == identity.pid() {
                child.parent = keeper;
            }
        }
        Some(process)
    }

    pub(crate) fn keeper(&self, owner: (SessionId, Incarnation)) -> Option<ProcIdentity> {
        self.find(|process| process.owner == owner && process.role == Role::Keeper)
    }

    pub(crate) fn agent(&self, owner: (SessionId, Incarnation)) -> Option<ProcIdentity> {
        self.find(|process| process.owner == owner && process.role == Role::Agent)
    }

    fn find(&self, wanted: impl Fn(&Process) -> bool) -> Option<ProcIdentity> {
        let found = self.processes.iter().find(|(_, process)| wanted(process));
        found.and_then(|(pid, process)| ProcIdentity::new(*pid, process.start_ticks))
    }

    /// A walk down from a process, which is not part of it.
    pub(crate) fn below(&self, top: ProcIdentity) -> Vec<ProcReport> {
        if self.get(top).is_none() {
            return Vec::new();
        }
        let mut found: Vec<ProcReport> = Vec::new();
        let mut parents = vec![top.pid()];
        while let Some(parent) = parents.pop() {
            for (pid, process) in &self.processes {
                if process.parent == parent {
                    parents.push(*pid);
                    found.extend(
                        ProcIdentity::new(*pid, process.start_ticks).map(|identity| ProcReport {
                            pss_bytes: 1,
                            ..ProcReport::new(identity, parent, format!("{:?}", process.role))
                        }),
                    );
                }
            }
        }
        found
    }

    /// Every process but keepers.
    pub(crate) fn living(&self) -> impl Iterator<Item = &Process> {
        let all = self.processes.values();
        all.filter(|process| process.role != Role::Keeper)
    }
}
