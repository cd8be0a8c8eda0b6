//! The table of `orphans`, and what `--reap` did.

use std::time::Duration;

use drowse_messages::{ProcReport, Survivor};
use nix::sys::signal::Signal;

use super::{View, bytes, count, cut, one_line, short, table};
use crate::cli::orphans::{Owner, Report, TreeReport, WaitingReport};

const HEADINGS: [&str; 11] = [
    "PID", "AGENT", "OWNER", "SESSION", "USER", "PROCS", "MEM", "AGE", "PORTS", "WHY", "CWD",
];

/// 40 characters of a state folder or session: they come from environments, where anything stands.
const MARK_CHARS_MAX: usize = 40;

/// 3 ports of a tree are shown; JSON has all.
const PORTS_SHOWN: usize = 3;

/// The orphans, or what became of ours.
pub(crate) fn orphans(report: &Report, view: &View<'_>) -> String {
    if let Some(ended) = &report.ended {
        return reaped(ended, report.survivors.as_deref().unwrap_or_default());
    }
    let mut text = if report.orphans.is_empty() {
        "no orphans\n".to_owned()
    } else {
        let rows: Vec<_> = report.orphans.iter().map(|tree| row(tree, view)).collect();
        table(&HEADINGS, &rows, view.columns)
    };
    for keeper in &report.waiting {
        text.push_str(&waiting(keeper));
    }
    text
}

fn row(tree: &TreeReport, view: &View<'_>) -> Vec<String> {
    let none = || "-".to_owned();
    let owner = match (tree.owner, &tree.state_dir) {
        (Owner::Ours, _) => "ours".to_owned(),
        (Owner::OtherDrowse, Some(state)) => cut(&view.path(state.as_ref()), MARK_CHARS_MAX),
        (Owner::OtherDrowse, None) => "drowse".to_owned(),
        (Owner::NotDrowse, _) => none(),
    };
    let session = tree.session.as_ref();
    // A sum of resident sizes counts shared pages more than once.
    let at_most = if tree.memory_kind == "pss" { "" } else { "<=" };
    let cwd = tree.cwd.as_ref();
    vec![
        tree.root.pid().to_string(),
        tree.agent
            .map_or_else(|| one_line(&tree.name).into_owned(), str::to_owned),
        owner,
        session.map_or_else(none, |session| cut(session, MARK_CHARS_MAX)),
        tree.user.clone(),
        tree.processes.len().to_string(),
        format!("{at_most}{}", bytes(tree.memory_bytes)),
        short(Duration::from_millis(tree.age_ms)),
        ports(&tree.listens),
        tree.why.replace('_', " "),
        cwd.map_or_else(none, |cwd| view.path(cwd)),
    ]
}

/// The first three: a line has to hold them.
fn ports(listens: &[u16]) -> String {
    let (shown, more) = listens.split_at(listens.len().min(PORTS_SHOWN));
    let mut shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
    if !more.is_empty() {
        shown.push("...".to_owned());
    }
    if shown.is_empty() {
        "-".to_owned()
    } else {
        shown.join(",")
    }
}

fn waiting(keeper: &WaitingReport) -> String {
    let session = keeper.session.as_ref();
    let session = session.map_or_else(String::new, |session| {
        format!(" of session {}", cut(session, MARK_CHARS_MAX))
    });
    let processes = count(keeper.processes, "process", "processes");
    format!(
        "keeper {}{session} ({processes}) waits for a daemon; if none comes, it ends them and \
         itself after orphan_grace, what is kept in its own time\n",
        keeper.keeper.pid()
    )
}

fn reaped(ended: &[ProcReport], survivors: &[Survivor]) -> String {
    if ended.is_empty() && survivors.is_empty() {
        return "nothing of ours to end\n".to_owned();
    }
    let mut lines: Vec<String> = ended.iter().map(ended_line).collect();
    lines.extend(survivors.iter().map(survivor_line));
    lines.concat()
}

fn ended_line(process: &ProcReport) -> String {
    let name = one_line(&process.name);
    let signal = process.signal.map_or("ended by itself", signal_name);
    format!("ended {} {name} ({signal})\n", process.identity.pid())
}

fn survivor_line(survivor: &Survivor) -> String {
    let ProcReport { identity, name, .. } = &survivor.process;
    let (name, why) = (one_line(name), one_line(&survivor.why));
    format!("left {} {name}: {why}\n", identity.pid())
}

fn signal_name(number: i32) -> &'static str {
    Signal::try_from(number).map_or("a signal", Signal::as_str)
}

#[cfg(test)]
mod tests {
    use drowse_messages::ProcIdentity;

    use super::super::tests::view;
    use super::*;

    fn process(pid: i32, name: &str, signal: Option<i32>) -> ProcReport {
        let identity = ProcIdentity::new(pid, 9).unwrap();
        ProcReport {
            signal,
            ..ProcReport::new(identity, 1, name.to_owned())
        }
    }

    fn tree(pid: i32, owner: Owner) -> TreeReport {
        TreeReport {
            root: ProcIdentity::new(pid, 9).unwrap(),
            name: "node".to_owned(),
            agent: Some("claude"),
            owner,
            state_dir: None,
            session: None,
            user: "me".to_owned(),
            processes: vec![process(pid, "node", None)],
            memory_bytes: 212_000_000,
            memory_kind: "pss",
            age_ms: 7_260_000,
            cwd: Some("/home/me/work".into()),
            listens: Vec::new(),
            why: "parent_gone",
        }
    }

    fn report(orphans: Vec<TreeReport>) -> Report {
        Report {
            state_dir: "/home/me/.local/state/drowse".to_owned(),
            daemon: None,
            orphans,
            waiting: Vec::new(),
            hidden: 0,
            complete: true,
            ended: None,
            survivors: None,
        }
    }

    /// Row 147: whose a tree is stands in its line, and what is not known is a dash.
    #[test]
    fn a_tree_is_a_line() {
        let ours = TreeReport {
            session: Some("3wdn5qaan911".to_owned()),
            why: "keeper_gone",
            listens: vec![3000, 3001, 3002, 3003],
            ..tree(4711, Owner::Ours)
        };
        let other = TreeReport {
            agent: None,
            state_dir: Some("/home/me/x\u{1b}[2J".to_owned()),
            memory_kind: "rss",
            cwd: None,
            ..tree(812, Owner::OtherDrowse)
        };
        let mut report = report(vec![ours, other, tree(9, Owner::NotDrowse)]);
        report.waiting.push(WaitingReport {
            keeper: ProcIdentity::new(70, 9).unwrap(),
            state_dir: None,
            session: Some("abc".to_owned()),
            user: "me".to_owned(),
            processes: 1,
        });
        let expected = "\
PID   AGENT   OWNER    SESSION       USER  PROCS  MEM       AGE  PORTS               WHY          CWD
4711  claude  ours     3wdn5qaan911  me    1      212 MB    2h   3000,3001,3002,...  keeper gone  ~/work
812   node    ~/x [2J  -             me    1      <=212 MB  2h   -                   parent gone  -
9     claude  -        -             me    1      212 MB    2h   -                   parent gone  ~/work
keeper 70 of session abc (1 process) waits for a daemon; if none comes, it ends them and itself after orphan_grace, what is kept in its own time
";
        assert_eq!(orphans(&report, &view()), expected);
        report.orphans.clear();
        report.waiting.clear();
        assert_eq!(orphans(&report, &view()), "no orphans\n");
    }

    #[test]
    fn what_was_ended_is_named_with_its_signal() {
        let mut report = report(Vec::new());
        report.ended = Some(vec![
            process(7, "node", Some(15)),
            process(8, "x\ny", Some(9)),
        ]);
        report.survivors = Some(vec![Survivor {
            process: process(9, "fuse", Some(9)),
            state: 'D',
            why: "not killable: in uninterruptible sleep".to_owned(),
        }]);
        let expected = "\
ended 7 node (SIGTERM)
ended 8 x y (SIGKILL)
left 9 fuse: not killable: in uninterruptible sleep
";
        assert_eq!(orphans(&report, &view()), expected);
        report.ended = Some(Vec::new());
        report.survivors = None;
        assert_eq!(orphans(&report, &view()), "nothing of ours to end\n");
    }
}
