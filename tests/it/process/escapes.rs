//! Nothing that an agent starts survives a kill, however it tries; nothing else is touched. Each
//! way is tried below a keeper alone and in a cgroup, as root and as an unprivileged user.

use super::arms::{Delegation, as_nobody, cgroups, is_root, not_run};
use super::support::*;
use drowse::process::cgroup::place::{self, Cgroups};
use drowse::process::reaper::ReaperPool;
use drowse::process::table::walk;
use drowse_messages::{ProcIdentity, ReapStep};

/// What the behaviour or case asks for, the script, and how many processes report themselves.
const ESCAPES: &[(&str, &str, usize)] = &[
    (
        "D01, 47: a launcher that forks its server, which does not heed end of input",
        "report;fork[report;fork[ignore;report;sleep];sleep];sleep",
        3,
    ),
    (
        "D02, 49: the parent is gone, so no walk down from the agent finds the leaf",
        "report;fork[report;fork[ignore;report;spin]];sleep",
        3,
    ),
    (
        "D03, 48: 20 process sessions whose leaders are gone",
        "report;times 20[fork[setsid;fork[report;sleep]]];sleep",
        21,
    ),
    (
        "48: a process session of its own",
        "report;fork[setsid;report;sleep];sleep",
        2,
    ),
    (
        "49: a double fork in the same group",
        "report;fork[fork[report;sleep]];sleep",
        2,
    ),
    (
        "daemonized, with all descriptors closed",
        "report;fork[setsid;fork[report;closeall;sleep]];sleep",
        2,
    ),
    (
        "53: a wrapper that runs itself again",
        "report;fork[reexec[report;reexec[sleep]]];sleep",
        2,
    ),
    (
        "50: ignores HUP, INT and TERM",
        "ignore;report;fork[ignore;report;sleep];sleep",
        2,
    ),
    (
        "stopped",
        "report;fork[report;fork[report;stop];stop];sleep",
        3,
    ),
    (
        "forked by another thread",
        "report;thread[fork[report;sleep];sleep];sleep",
        2,
    ),
    (
        "a process without its first thread, which shows as a zombie and lives",
        "fork[leaderless[report;fork[setsid;report;sleep];sleep]];report;sleep",
        3,
    ),
    ("a respawner", "report;respawn[setsid;report;sleep]", 2),
    (
        "nested respawners",
        "report;respawn[setsid;report;respawn[setsid;report;sleep]]",
        3,
    ),
    (
        "a storm of a child every 5 ms",
        "report;fork[setsid;report;storm 5000];sleep",
        2,
    ),
    (
        "three parents that fork every 0.2 ms",
        "report;times 3[fork[setsid;report;storm 200]];sleep",
        4,
    ),
    (
        "a small fork bomb",
        "report;fork[setsid;report;bomb 60];sleep",
        2,
    ),
    ("a runner", "report;fork[setsid;report;runner];sleep", 2),
    (
        "three runners",
        "report;times 3[fork[report;runner]];sleep",
        4,
    ),
    (
        "cleared environments",
        "report;fork[setsid;bare[report;fork[setsid;report;sleep];sleep]];sleep",
        3,
    ),
    (
        "a supervisor of somebody else's, itself a subreaper",
        "report;fork[subreaper;report;fork[fork[setsid;report;sleep]];sleep];sleep",
        3,
    ),
    (
        "parents that wait in vfork",
        "report;fork[report;vfork[report;vfork[report;sleep]]];sleep",
        4,
    ),
    (
        "D44: zombies that their parent never collects",
        "times 50[fork[exit 0]];report;sleep",
        1,
    ),
    (
        "D13: names that look like the fields behind them",
        "report;fork[name x) S 1 1 (y;report;fork[name ( ) ( ) ( ) (;report;sleep];sleep];sleep",
        3,
    ),
    (
        "more processes than are awaited at once",
        "report;times 20[fork[report;times 20[fork[setsid;report;sleep]];sleep]];sleep",
        421,
    ),
];

#[test]
fn below_a_keeper() {
    all_are_ended(None);
}

#[test]
fn in_a_cgroup() {
    if let Some(cgroups) = cgroups() {
        all_are_ended(Some(&cgroups));
        assert!(!cgroups.folder().exists(), "the daemon's folder is left");
    }
}

#[test]
fn below_a_keeper_as_nobody() {
    if as_nobody(
        "process::escapes::below_a_keeper_as_nobody",
        Delegation::None,
    ) {
        all_are_ended(None);
    }
}

/// A cgroup that is not handed over is not usable, and that is said.
#[test]
fn nobody_has_no_cgroup_unless_it_is_handed_over() {
    let test = "process::escapes::nobody_has_no_cgroup_unless_it_is_handed_over";
    if as_nobody(test, Delegation::None) && is_alone() {
        let error = Cgroups::find("nobody")
            .expect_err("root's cgroup is root's")
            .to_string();
        assert!(
            error.contains("may not make cgroups in") || error.contains("no cgroup v2"),
            "{error}"
        );
    }
}

#[test]
fn in_a_cgroup_as_nobody() {
    let test = "process::escapes::in_a_cgroup_as_nobody";
    if as_nobody(test, Delegation::Cgroup)
        && let Some(cgroups) = cgroups()
    {
        all_are_ended(Some(&cgroups));
        assert!(!cgroups.folder().exists(), "the daemon's folder is left");
    }
}

fn all_are_ended(cgroups: Option<&Cgroups>) {
    let agent = program(TREE_AGENT).to_string_lossy().into_owned();
    for (escape, script, count) in ESCAPES {
        let (canary, _notes) = canary(script);
        on_runtime(is_ended(cgroups, &[&agent, script], escape, *count));
        assert_eq!(canary.hurt(), None, "{escape}");
    }
    // An agent that is itself a daemon with a keeper and an agent.
    let daemon = program(FAKE_DAEMON).to_string_lossy().into_owned();
    let keeper = program(KEEPER).to_string_lossy().into_owned();
    let nested = [
        &*daemon,
        &keeper,
        "",
        "0",
        &agent,
        "report;fork[setsid;report;sleep];sleep",
    ];
    on_runtime(is_ended(cgroups, &nested, "a nested keeper", 2));
}

/// Starts an agent, waits for `count` reports, kills, and looks for survivors independently.
async fn is_ended(cgroups: Option<&Cgroups>, argv: &[&str], escape: &str, count: usize) {
    let pool = pool();
    let mut backend = Backend::run_in(cgroups, argv).await;
    if let Some(cgroup) = &backend.cgroup {
        assert!(
            place::holds(cgroup, backend.agent.pid()),
            "{escape}: born elsewhere"
        );
    }
    let reported = backend.reports(count).await;
    wait_until("a walk shows every living process", || {
        let seen = walk(backend.link.keeper()).expect("the keeper runs");
        let is_seen = |p: &ProcIdentity| seen.iter().any(|stat| stat.identity == *p);
        reported
            .iter()
            .all(|process| is_seen(process) || !is_alive(*process))
    });
    is_gone_after_a_kill(&pool, &backend, escape, &reported).await;
    backend.leave(&pool).await;
    in_time("the end of the queue", pool.idle()).await;
}

async fn is_gone_after_a_kill(
    pool: &ReaperPool,
    backend: &Backend,
    escape: &str,
    processes: &[ProcIdentity],
) {
    let report = backend.step(pool, ReapStep::Kill).await;
    assert!(
        report.empty && report.survivors.is_empty(),
        "{escape}: {report:?}"
    );
    for process in processes {
        assert!(!is_alive(*process), "{process} survived: {escape}");
    }
    let session = backend.session;
    assert!(
        marked(session).is_empty(),
        "survivors of {escape}:\n{}",
        dump(session)
    );
    assert!(backend.step(pool, ReapStep::Verify).await.empty, "{escape}");
}

/// The processes below have numbers of their own, which nobody outside knows.
#[test]
fn a_pid_namespace() {
    let unshare = match is_root() {
        true => &["unshare", "--pid", "--fork", "--mount-proc"][..],
        false => &[
            "unshare",
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ],
    };
    let bwrap = [
        "bwrap",
        "--unshare-pid",
        "--dev-bind",
        "/",
        "/",
        "--proc",
        "/proc",
    ];
    for wrapper in [unshare, &bwrap] {
        let tried = std::process::Command::new(wrapper[0])
            .args(&wrapper[1..])
            .arg("true")
            .output();
        if !tried.is_ok_and(|output| output.status.success()) {
            not_run(
                &format!("a pid namespace by {}", wrapper[0]),
                "it does not work here",
            );
            continue;
        }
        let agent = program(TREE_AGENT).to_string_lossy().into_owned();
        let script = "byte;fork[setsid;fork[ignore;byte;sleep];byte;sleep];sleep";
        let argv = [wrapper, &[&agent, script]].concat();
        for cgroups in [None, cgroups()] {
            on_runtime(async {
                let pool = pool();
                let mut backend = Backend::run_in(cgroups.as_ref(), &argv).await;
                backend.bytes(3).await;
                let tree = walk(backend.link.keeper()).expect("the keeper runs");
                let tree: Vec<_> = tree.iter().map(|stat| stat.identity).collect();
                assert!(tree.len() >= 4, "{tree:?}");
                is_gone_after_a_kill(&pool, &backend, wrapper[0], &tree).await;
                backend.leave(&pool).await;
            });
        }
    }
}

/// A process may leave its cgroup where it has the right to; the keeper still leads to it.
#[test]
fn a_process_that_leaves_its_cgroup() {
    let Some(cgroups) = cgroups() else { return };
    let above = cgroups
        .folder()
        .parent()
        .expect("a folder in a cgroup")
        .display();
    let script =
        format!("report;fork[setsid;cgroup {above};report;sleep];fork[report;sleep];sleep");
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start_in(Some(&cgroups), &script).await;
        let reported = backend.reports(3).await;
        let cgroup = backend.cgroup.clone().expect("asked for");
        let inside = reported
            .iter()
            .filter(|process| place::holds(&cgroup, process.pid()));
        assert_eq!(inside.count(), 2);
        let report = backend.step(&pool, ReapStep::Snapshot).await;
        assert_eq!(report.processes.len(), 3, "{report:?}");
        is_gone_after_a_kill(&pool, &backend, "leaves its cgroup", &reported).await;
        backend.leave(&pool).await;
    });
}

/// An agent may make cgroups below its own, and freeze them.
#[test]
fn cgroups_below_the_agents_own() {
    let Some(cgroups) = cgroups() else { return };
    on_runtime(async {
        let pool = pool();
        let mut backend =
            Backend::start_in(Some(&cgroups), "report;fork[report;sleep];sleep").await;
        let reported = backend.reports(2).await;
        let below = backend.cgroup.clone().expect("asked for").join("a/b");
        std::fs::create_dir_all(&below).expect("ours");
        std::fs::write(below.join("cgroup.procs"), reported[1].pid().to_string()).expect("ours");
        std::fs::write(below.join("cgroup.freeze"), "1").expect("ours");
        is_gone_after_a_kill(&pool, &backend, "a frozen cgroup below", &reported).await;
        backend.leave(&pool).await;
    });
}
