//! Who is an orphan, and who is not, one case after another.

use super::*;

const STATE: &str = "/state";

/// A process `pid` below `parent`.
fn row(pid: i32, parent: i32, role: Role) -> Row {
    Row {
        stat: Stat {
            identity: ProcIdentity::new(pid, 5).expect("a pid above 1"),
            parent,
            state: 'S',
            group: pid,
            process_session: pid,
            threads: 1,
            name: "x".to_owned(),
        },
        uid: 1000,
        role,
        mark: MarkFound::default(),
        ties: Ties::default(),
    }
}

fn marked(pid: i32, parent: i32, role: Role) -> Row {
    let mark = MarkFound {
        state_dir: Some(STATE.to_owned()),
        session: Some("abc".to_owned()),
    };
    Row {
        mark,
        ..row(pid, parent, role)
    }
}

/// The roots of what nobody owns, with the sizes of their trees.
fn orphans(rows: Vec<Row>, daemon: Option<i32>) -> Vec<(i32, usize, Why)> {
    let daemons = daemon.map(|pid| (STATE.to_owned(), pid));
    let orphans = Table::new(rows, daemons.into_iter().collect()).orphans();
    let shown = |it: &Orphan| (it.root().identity.pid(), it.members.len(), it.why);
    orphans.iter().map(shown).collect()
}

const CLAUDE: Role = Role::Agent("claude");
const GONE: Why = Why::KeeperGone;
const LEFT: Why = Why::ParentGone;

/// Row 147: marked processes are owned by keepers and daemons alone.
#[test]
fn marked_processes_need_a_keeper() {
    use Role::{Keeper, Other};
    let cases = [
        (
            "below a keeper",
            vec![row(10, 1, Keeper), marked(11, 10, CLAUDE)],
            vec![],
        ),
        (
            "deep below",
            vec![
                row(10, 1, Keeper),
                row(11, 10, Other),
                marked(12, 11, Other),
            ],
            vec![],
        ),
        (
            "no keeper",
            vec![marked(11, 1, CLAUDE), marked(12, 11, Other)],
            vec![(11, 2, GONE)],
        ),
        ("no agent", vec![marked(11, 1, Other)], vec![(11, 1, GONE)]),
        (
            "a live stranger above",
            vec![row(9, 1, Other), marked(11, 9, Other)],
            vec![(11, 1, GONE)],
        ),
        ("a parent out of sight", vec![marked(11, 9, Other)], vec![]),
        (
            "a parent in another namespace",
            vec![marked(11, 0, Other)],
            vec![],
        ),
        (
            "who lost the mark goes with its parent",
            vec![
                marked(11, 1, Other),
                row(12, 11, Other),
                marked(13, 12, Other),
            ],
            vec![(11, 3, GONE)],
        ),
        (
            "two trees of one session",
            vec![marked(11, 1, CLAUDE), marked(12, 1, Other)],
            vec![(11, 1, GONE), (12, 1, GONE)],
        ),
        (
            "a keeper inside keeps its own",
            vec![
                marked(11, 1, CLAUDE),
                row(12, 11, Keeper),
                marked(13, 12, CLAUDE),
            ],
            vec![(11, 1, GONE)],
        ),
    ];
    for (what, rows, expected) in cases {
        assert_eq!(orphans(rows, None), expected, "{what}");
    }
}

/// What a keeper that was killed leaves to its daemon is the daemon's; and a daemon that an
/// agent started is nobody's orphan.
#[test]
fn a_daemon_owns_what_is_below_it_and_itself() {
    let adopted = vec![row(9, 1, Role::Other), marked(11, 9, CLAUDE)];
    assert_eq!(orphans(adopted.clone(), Some(9)), []);
    assert_eq!(orphans(adopted, None), [(11, 1, GONE)]);
    let inside = vec![
        marked(11, 1, CLAUDE),
        marked(9, 11, Role::Other),
        marked(12, 9, CLAUDE),
    ];
    assert_eq!(orphans(inside, Some(9)), [(11, 1, GONE)]);
}

/// D10: an agent without a mark is an orphan only below an init that did not start it.
#[test]
fn an_agent_is_abandoned_only_when_all_speaks_for_it() {
    let alone = |change: fn(&mut Row)| {
        let mut agent = row(11, 1, CLAUDE);
        change(&mut agent);
        vec![agent]
    };
    let nobody: Vec<(i32, usize, Why)> = vec![];
    let cases = [
        ("of pid 1", alone(|_| {}), vec![(11, 1, LEFT)]),
        (
            "of a group that is gone",
            alone(|it| it.stat.process_session = 7),
            vec![(11, 1, LEFT)],
        ),
        (
            "at a terminal",
            alone(|it| it.ties.in_foreground = true),
            nobody.clone(),
        ),
        (
            "of a service",
            alone(|it| it.ties.in_unit = true),
            nobody.clone(),
        ),
        (
            "started by init",
            alone(|it| it.stat.process_session = 1),
            nobody.clone(),
        ),
        (
            "of a user's init",
            vec![row(5, 1, Role::Init), row(11, 5, CLAUDE)],
            vec![(11, 1, LEFT)],
        ),
        (
            "of a shell",
            vec![row(5, 1, Role::Other), row(11, 5, CLAUDE)],
            nobody.clone(),
        ),
        (
            "parent out of sight",
            vec![row(11, 0, CLAUDE)],
            nobody.clone(),
        ),
        ("parent hidden", vec![row(11, 77, CLAUDE)], nobody.clone()),
        ("no agent", vec![row(11, 1, Role::Other)], nobody.clone()),
        (
            "one below another",
            vec![
                row(11, 1, Role::Agent("gemini")),
                row(12, 11, Role::Agent("gemini")),
            ],
            vec![(11, 2, LEFT)],
        ),
        (
            "of a keeper",
            vec![row(5, 1, Role::Keeper), row(11, 5, CLAUDE)],
            nobody,
        ),
    ];
    for (what, rows, expected) in cases {
        assert_eq!(orphans(rows, None), expected, "{what}");
    }
}

#[test]
fn a_tree_names_its_topmost_agent_and_its_marks() {
    let rows = vec![marked(11, 1, Role::Other), row(12, 11, CLAUDE)];
    let orphans = Table::new(rows, BTreeMap::new()).orphans();
    assert_eq!(orphans[0].agent, Some("claude"));
    assert_eq!(orphans[0].mark.session.as_deref(), Some("abc"));
}

/// A keeper waits when its daemon is gone and no other has taken it over.
#[test]
fn keepers_without_a_daemon_wait() {
    let waiting = |parent, daemon: Option<i32>| {
        let rows = vec![
            row(9, 1, Role::Other),
            row(10, parent, Role::Keeper),
            marked(11, 10, CLAUDE),
            row(12, 11, Role::Other),
        ];
        let daemons = daemon.map(|pid| (STATE.to_owned(), pid));
        let table = Table::new(rows, daemons.into_iter().collect());
        let waiting = table.waiting();
        waiting
            .iter()
            .map(|it| (it.keeper.pid(), it.processes))
            .collect::<Vec<_>>()
    };
    assert_eq!(waiting(1, None), [(10, 2)]);
    assert_eq!(waiting(1, Some(9)), [], "taken over");
    assert_eq!(waiting(9, None), [], "its daemon is there");
}

/// Parents that lead in a circle are nonsense, and no reason to hang.
#[test]
fn a_circle_ends() {
    let rows = vec![marked(11, 12, CLAUDE), marked(12, 11, Role::Other)];
    assert_eq!(orphans(rows, None), []);
}
