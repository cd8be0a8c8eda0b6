//! Which processes of a tree the keep rules mean.
//!
//! Fed by reap.rs with a whole tree; pure but for one look at each program's file. Invariant: the
//! agent itself is never kept, and what is kept is always kept with all that is below it.
//!
//! A server is rarely started alone: `npm run dev` is a shell and a process of npm above the one
//! that listens, and ends with either of them. So a process is kept together with those above it
//! that are of its process group, unless that is the agent's own.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use drowse_messages::{KeepRule, ProcIdentity};

use crate::process::table::Stat;

/// What the kernel appends to the path of a program whose file was replaced or removed.
const DELETED: &[u8] = b" (deleted)";

/// The processes of `tree`, parents first, that `rules` keep; `ports` says who listens where.
pub(super) fn resolve(
    tree: &[Stat],
    rules: &[KeepRule],
    agent: Option<ProcIdentity>,
    ports: &HashMap<ProcIdentity, Vec<u16>>,
) -> BTreeSet<ProcIdentity> {
    let is_meant = |stat: &Stat| {
        rules.iter().any(|rule| match rule {
            KeepRule::Listen(port) => ports.get(&stat.identity).is_some_and(|p| p.contains(port)),
            KeepRule::Exe(name) => program(stat) == name.as_bytes(),
            KeepRule::Process(process) => *process == stat.identity,
        })
    };
    let mut tops = BTreeSet::new();
    if rules.is_empty() {
        return tops;
    }
    let by_pid: HashMap<i32, &Stat> = tree
        .iter()
        .map(|stat| (stat.identity.pid(), stat))
        .collect();
    let others = tree.iter().filter(|stat| Some(stat.identity) != agent);
    for stat in others.filter(|stat| is_meant(stat)) {
        tops.insert(top_of(stat, &by_pid, agent).identity);
    }
    with_all_below(tree, tops)
}

/// The highest process above this one that was started together with it.
fn top_of<'a>(
    stat: &'a Stat,
    by_pid: &HashMap<i32, &'a Stat>,
    agent: Option<ProcIdentity>,
) -> &'a Stat {
    // An agent is the leader of its group, and stays so.
    if agent.is_some_and(|agent| agent.pid() == stat.group) {
        return stat;
    }
    let mut top = stat;
    // Nobody is above himself, but a number may have been given away during the walk: the size of
    // the tree bounds the way up.
    for _ in 0..by_pid.len() {
        match by_pid.get(&top.parent) {
            Some(parent) if parent.group == stat.group => top = parent,
            _ => break,
        }
    }
    top
}

fn with_all_below(tree: &[Stat], mut kept: BTreeSet<ProcIdentity>) -> BTreeSet<ProcIdentity> {
    let mut pids: BTreeSet<i32> = kept.iter().map(|process| process.pid()).collect();
    // Parents come first in a tree, so one pass is enough.
    for stat in tree {
        if pids.contains(&stat.parent) {
            pids.insert(stat.identity.pid());
            kept.insert(stat.identity);
        }
    }
    kept
}

/// The base name of the program's file; the kernel's name for the process where that may not be
/// looked at, or there is none.
fn program(stat: &Stat) -> Vec<u8> {
    let path = fs::read_link(format!("/proc/{}/exe", stat.identity.pid()));
    let name = path.ok().and_then(|path| {
        let name = path.file_name().map(OsStr::as_bytes)?;
        Some(name.strip_suffix(DELETED).unwrap_or(name).to_vec())
    });
    name.unwrap_or_else(|| stat.name.clone().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// pid, parent, group.
    const TREE: &[(i32, i32, i32)] = &[
        // The agent, with a helper of its own group.
        (10, 2, 10),
        (11, 10, 10),
        // npm > sh > node > worker, a group of their own.
        (20, 10, 20),
        (21, 20, 20),
        (22, 21, 20),
        (23, 22, 20),
        // A shell of its own group that started another one.
        (30, 10, 30),
        (31, 30, 31),
    ];

    fn tree() -> Vec<Stat> {
        let stat = |&(pid, parent, group)| Stat {
            identity: ProcIdentity::new(pid, 7).expect("a pid above 1"),
            parent,
            group,
            process_session: group,
            state: 'S',
            threads: 1,
            // No process of this machine has such a number: its name is what counts.
            name: format!("p{pid}"),
        };
        TREE.iter().map(stat).collect()
    }

    fn kept(rules: &[KeepRule]) -> Vec<i32> {
        let listening = |pid| {
            (
                ProcIdentity::new(pid, 7).expect("a pid above 1"),
                vec![80, 3000],
            )
        };
        let ports = [listening(22), listening(10)].into();
        let kept = resolve(&tree(), rules, ProcIdentity::new(10, 7), &ports);
        kept.iter().map(|process| process.pid()).collect()
    }

    #[test]
    fn a_server_is_kept_with_its_whole_command() {
        assert_eq!(kept(&[KeepRule::Listen(3000)]), [20, 21, 22, 23]);
        assert!(kept(&[KeepRule::Listen(81)]).is_empty());
        assert!(kept(&[]).is_empty());
    }

    /// Behaviour of the rules on the agent: its port and its group do not keep it.
    #[test]
    fn the_agent_is_never_kept() {
        let process = |pid, start| KeepRule::Process(ProcIdentity::new(pid, start).expect("a pid"));
        assert!(kept(&[process(10, 7)]).is_empty());
        assert_eq!(kept(&[process(11, 7)]), [11]);
        // Another process had this number.
        assert!(kept(&[process(11, 8)]).is_empty());
    }

    #[test]
    fn another_group_above_is_not_kept_and_everything_below_is() {
        let process = |pid| KeepRule::Process(ProcIdentity::new(pid, 7).expect("a pid"));
        assert_eq!(kept(&[process(31)]), [31]);
        assert_eq!(kept(&[process(30)]), [30, 31]);
    }

    #[test]
    fn a_program_is_known_by_its_file() {
        let mut own = tree().remove(0);
        let pid = i32::try_from(std::process::id()).expect("a pid fits");
        own.identity = ProcIdentity::new(pid, 7).expect("a pid above 1");
        let file = std::env::current_exe().expect("we run");
        let name = file.file_name().expect("a file").as_bytes();
        assert_eq!(program(&own), name);
    }
}
