//! Who is an orphan: the rule, over a snapshot of the process table.
//!
//! Pure; fed by `scan.rs`. Invariant: what stands below a live keeper or a live daemon is owned,
//! and so is every agent without a mark whose parent is more than an init. When in doubt a process
//! is owned; so is one whose line of parents does not lead to pid 1, because a scan takes its time
//! and may have missed who was started meanwhile, and because a parent in another namespace, or
//! hidden from this user, may be an owner.
//!
//! Two things make an orphan:
//!
//! - *marked*: it carries Drowse's mark and nobody of Drowse's stands above it;
//! - *abandoned*: it is a known agent without a mark, and its parent is one that only collects
//!   what others left (pid 1, a user's systemd, the init of a container). Owned nevertheless are:
//!   one in the foreground of a terminal, for somebody sits before it; one in the unit of a
//!   systemd service, which ends with the unit; and one in the process session of that init,
//!   which has started it itself.

use std::collections::{BTreeMap, BTreeSet};

use drowse_messages::ProcIdentity;

use super::super::table::Stat;

/// 4,096 steps up: deeper chains than any real one; the bound only ends a loop.
const ANCESTORS_MAX: usize = 4096;

/// What a process is to the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A keeper of some Drowse.
    Keeper,
    /// It collects processes whose parents have ended.
    Init,
    /// A known agent, by its program.
    Agent(&'static str),
    /// Anything else.
    Other,
}

/// What a process carries in its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkFound {
    /// The state folder of the daemon that started it.
    pub state_dir: Option<String>,
    /// The session it was started for.
    pub session: Option<String>,
}

impl MarkFound {
    fn is_none(&self) -> bool {
        self.state_dir.is_none() && self.session.is_none()
    }
}

/// What ties an agent to somebody although its parent is an init; read for agents alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ties {
    /// True when it is in the foreground of a terminal.
    pub in_foreground: bool,
    /// True when its cgroup is that of a systemd service.
    pub in_unit: bool,
}

/// One living process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its stat line.
    pub stat: Stat,
    /// Whose it is.
    pub uid: u32,
    /// What it is.
    pub role: Role,
    /// Its marks; none when they could not be read.
    pub mark: MarkFound,
    /// Default for what is no agent.
    pub ties: Ties,
}

/// Why a tree counts as an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is marked, and its keeper is gone.
    KeeperGone,
    /// It is an agent, and its parent is gone.
    ParentGone,
}

impl Why {
    /// The wire name.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::KeeperGone => "keeper_gone",
            Self::ParentGone => "parent_gone",
        }
    }
}

/// A tree that nobody owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Its processes, the root first, parents before children.
    pub members: Vec<Stat>,
    /// Whose the root is.
    pub uid: u32,
    /// The topmost known agent in it.
    pub agent: Option<&'static str>,
    /// The root's marks.
    pub mark: MarkFound,
    /// Why it is listed.
    pub why: Why,
    /// Live keepers and daemons inside it. They own what is below them, which is no part of the
    /// tree.
    pub owners: Vec<ProcIdentity>,
}

impl Orphan {
    /// The topmost process.
    ///
    /// # Panics
    /// Never: a tree has a root.
    #[must_use]
    pub fn root(&self) -> &Stat {
        self.members.first().expect("a tree begins with its root")
    }
}

/// A keeper whose daemon is gone. It is no orphan: it waits for the next daemon, and ends its tree
/// and itself when none comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The keeper.
    pub keeper: ProcIdentity,
    /// Whose it is.
    pub uid: u32,
    /// The marks of what it keeps.
    pub mark: MarkFound,
    /// How many processes are below it.
    pub processes: usize,
}

/// The process table at one moment.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: BTreeMap<i32, Row>,
    children: BTreeMap<i32, Vec<i32>>,
    /// Live daemons, by their state folders.
    daemons: BTreeMap<String, i32>,
}

impl Table {
    /// Of these processes and daemons.
    #[must_use]
    pub fn new(rows: Vec<Row>, daemons: BTreeMap<String, i32>) -> Self {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for row in &rows {
            let pid = row.stat.identity.pid();
            children.entry(row.stat.parent).or_default().push(pid);
        }
        let rows = rows.into_iter().map(|row| (row.stat.identity.pid(), row));
        Self {
            rows: rows.collect(),
            children,
            daemons,
        }
    }

    /// The trees that nobody owns, in the order of their roots' pids.
    #[must_use]
    pub fn orphans(&self) -> Vec<Orphan> {
        let unowned: BTreeMap<i32, Why> = self
            .rows
            .iter()
            .filter_map(|(&pid, row)| Some((pid, self.why(row)?)))
            .collect();
        let is_topmost = |pid: i32| !self.above(pid).any(|above| unowned.contains_key(&above));
        let roots = unowned.iter().filter(|(pid, _)| is_topmost(**pid));
        roots
            .filter_map(|(&pid, &why)| self.tree(pid, why))
            .collect()
    }

    /// The keepers without a daemon, in the order of their pids.
    #[must_use]
    pub fn waiting(&self) -> Vec<Waiting> {
        let keepers = self.rows.values().filter(|row| row.role == Role::Keeper);
        keepers.filter_map(|row| self.waits(row)).collect()
    }

    /// The processes from `pid`'s parent up.
    fn above(&self, pid: i32) -> impl Iterator<Item = i32> {
        let parent = |pid: &i32| self.rows.get(pid).map(|row| row.stat.parent);
        std::iter::successors(parent(&pid), parent).take(ANCESTORS_MAX)
    }

    /// Why nobody owns this process; `None`: somebody does.
    fn why(&self, row: &Row) -> Option<Why> {
        let pid = row.stat.identity.pid();
        let line: Vec<i32> = self.above(pid).collect();
        let is_whole = line.last() == Some(&1);
        if !is_whole || self.is_owner(pid) || line.iter().any(|&above| self.is_owner(above)) {
            None
        } else if !row.mark.is_none() {
            Some(Why::KeeperGone)
        } else {
            self.is_abandoned(row).then_some(Why::ParentGone)
        }
    }

    /// True for a live keeper or daemon.
    fn is_owner(&self, pid: i32) -> bool {
        self.role(pid) == Some(Role::Keeper) || self.daemons.values().any(|&daemon| daemon == pid)
    }

    fn is_abandoned(&self, row: &Row) -> bool {
        let is_agent = matches!(row.role, Role::Agent(_));
        let Ties {
            in_foreground,
            in_unit,
        } = row.ties;
        let is_inits_own = row.stat.process_session == row.stat.parent;
        is_agent
            && self.role(row.stat.parent) == Some(Role::Init)
            && !(in_foreground || in_unit || is_inits_own)
    }

    fn role(&self, pid: i32) -> Option<Role> {
        // Pid 1 is nobody's identity, so it has no row; it is an init by its number.
        (pid == 1)
            .then_some(Role::Init)
            .or_else(|| self.rows.get(&pid).map(|row| row.role))
    }

    fn tree(&self, root: i32, why: Why) -> Option<Orphan> {
        let row = self.rows.get(&root)?;
        let (members, owners) = self.below(row);
        let agent = members.iter().find_map(|member| match member.role {
            Role::Agent(agent) => Some(agent),
            Role::Keeper | Role::Init | Role::Other => None,
        });
        Some(Orphan {
            uid: row.uid,
            agent,
            mark: row.mark.clone(),
            why,
            members: members.into_iter().map(|row| row.stat.clone()).collect(),
            owners: owners.into_iter().map(|row| row.stat.identity).collect(),
        })
    }

    /// A process and all below it, parents first; and apart from them the owners that were met,
    /// below which nothing was looked at.
    fn below<'a>(&'a self, root: &'a Row) -> (Vec<&'a Row>, Vec<&'a Row>) {
        let mut seen = BTreeSet::from([root.stat.identity.pid()]);
        let (mut found, mut owners) = (vec![root], Vec::new());
        let mut next = 0;
        while let Some(row) = found.get(next) {
            next += 1;
            let children = self.children.get(&row.stat.identity.pid());
            let new = children
                .into_iter()
                .flatten()
                .filter(|&&child| seen.insert(child));
            for (child, row) in new.filter_map(|child| Some((*child, self.rows.get(child)?))) {
                if self.is_owner(child) {
                    owners.push(row);
                } else {
                    found.push(row);
                }
            }
        }
        (found, owners)
    }

    fn waits(&self, keeper: &Row) -> Option<Waiting> {
        let Stat {
            identity, parent, ..
        } = keeper.stat;
        // While its daemon lives, that is its parent. A later daemon that has taken it over is
        // not; then the daemon's lock says that there is one.
        if self.role(parent) != Some(Role::Init) {
            return None;
        }
        let (kept, _) = self.below(keeper);
        let mut marks = kept.iter().map(|row| &row.mark);
        // What it keeps says which daemon it was; another user's does not say it to us, and may
        // have been taken over.
        let mark = marks.find(|mark| mark.state_dir.is_some())?;
        let has_daemon = mark
            .state_dir
            .as_ref()
            .is_some_and(|it| self.daemons.contains_key(it));
        (!has_daemon).then_some(Waiting {
            keeper: identity,
            uid: keeper.uid,
            mark: mark.clone(),
            processes: kept.len() - 1,
        })
    }
}

#[cfg(test)]
mod tests;
