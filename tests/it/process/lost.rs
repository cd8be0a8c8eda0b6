//! A keeper that is killed from outside: its tree is found without it, and nobody else's is.

use super::arms::{Delegation, as_nobody, cgroups};
use super::support::*;
use drowse::process::adopted::adopt_orphans;
use drowse::process::signal::Signaller;
use drowse::process::sweep::{Mark, sweep_marked};
use drowse_messages::{ProcIdentity, ReapStep};

/// What nothing in the environment leads to, and no group, and no process session.
const BARE: &str = "report;fork[setsid;bare[report;fork[setsid;report;sleep];sleep]];sleep";

/// Kills the keeper and collects it; its tree lives on.
async fn lose_keeper(
    backend: &Backend,
    pool: &drowse::process::reaper::ReaperPool,
    tree: &[ProcIdentity],
) {
    let keeper = backend.link.keeper();
    Signaller::new()
        .send_to(keeper, rustix::process::Signal::KILL)
        .expect("ours");
    assert!(collect(pool, keeper).await.is_some());
    let alive = tree.iter().all(|process| is_alive(*process));
    assert!(alive, "they outlive the keeper");
}

/// A keeper killed from outside leaves its tree to init; the mark in the environment finds it.
#[test]
fn a_lost_keepers_tree_is_found_by_its_mark() {
    found_by_its_mark();
}

#[test]
fn a_lost_keepers_tree_is_found_by_its_mark_as_nobody() {
    let test = "process::lost::a_lost_keepers_tree_is_found_by_its_mark_as_nobody";
    if as_nobody(test, Delegation::None) {
        found_by_its_mark();
    }
}

fn found_by_its_mark() {
    on_runtime(async {
        let pool = pool();
        let script = "report;fork[setsid;report;fork[bare[report;sleep]];sleep];\
                      fork[setsid;leaderless[report;sleep]];sleep";
        let mut backend = Backend::start(script).await;
        let mut spared = Backend::start("report;sleep").await;
        let reported = backend.reports(4).await;
        spared.reports(1).await;
        lose_keeper(&backend, &pool, &reported).await;
        let report = backend.step(&pool, ReapStep::Kill).await;
        assert!(report.empty, "{report:?}");
        assert!(
            !reported.iter().any(|process| is_alive(*process)),
            "{report:?}"
        );
        let entry = format!("DROWSE_SESSION={}", spared.session);
        let excluding = Mark {
            entry,
            exclude: vec![spared.link.keeper()],
        };
        let outcome = sweep_marked(excluding).expect("proc");
        assert!(outcome.empty && outcome.processes.is_empty(), "{outcome:?}");
        assert!(is_alive(spared.agent));
        spared.step(&pool, ReapStep::Kill).await;
        spared.leave(&pool).await;
    });
}

/// Without any mark, they are still in their cgroup. Nobody removes that but the daemon.
#[test]
fn a_lost_keepers_tree_is_found_in_its_cgroup() {
    let Some(cgroups) = cgroups() else { return };
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start_in(Some(&cgroups), BARE).await;
        let reported = backend.reports(3).await;
        lose_keeper(&backend, &pool, &reported).await;
        let snapshot = backend.step(&pool, ReapStep::Snapshot).await;
        assert_eq!(snapshot.processes.len(), 3, "{snapshot:?}");
        let report = backend.step(&pool, ReapStep::Kill).await;
        assert!(report.empty, "{report:?}");
        assert!(!reported.iter().any(|process| is_alive(*process)));
        assert!(backend.step(&pool, ReapStep::Verify).await.empty);
        let cgroup = backend.cgroup.take().expect("asked for");
        drowse::process::cgroup::place::remove(&cgroup);
        assert!(!cgroups.folder().exists(), "the daemon's folder is left");
    });
}

/// What an earlier daemon left in its cgroups is ended when the next one starts, but not what
/// that one has adopted.
#[test]
fn leftovers_in_cgroups_are_ended() {
    let Some(cgroups) = cgroups() else { return };
    on_runtime(async {
        let pool = pool();
        let mut lost = Backend::start_in(Some(&cgroups), BARE).await;
        let mut adopted = Backend::start_in(Some(&cgroups), BARE).await;
        let reported = lost.reports(3).await;
        adopted.reports(3).await;
        lose_keeper(&lost, &pool, &reported).await;
        let kept = adopted.cgroup.clone().expect("asked for");
        let found = cgroups.end_leftovers(&[kept]).expect("readable");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with(": ended 3 processes"), "{found:?}");
        assert!(!reported.iter().any(|process| is_alive(*process)));
        assert!(!lost.cgroup.take().expect("asked for").exists());
        assert!(is_alive(adopted.agent));
        assert!(adopted.step(&pool, ReapStep::Kill).await.empty);
        adopted.leave(&pool).await;
        assert_eq!(cgroups.end_leftovers(&[]).expect("readable"), [""; 0]);
        assert!(!cgroups.folder().exists(), "the daemon's folder is left");
    });
}

/// A daemon that adopts orphans finds those without a mark too, collects them, and leaves alone
/// its other children: other sessions' keepers, and whatever was started by the program itself.
#[test]
fn a_lost_keepers_tree_is_adopted() {
    let test = "process::lost::a_lost_keepers_tree_is_adopted";
    if !alone(test) {
        return;
    }
    let (own_child, _notes) = canary(BARE);
    adopt_orphans().expect("anybody may");
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start(BARE).await;
        let mut spared = Backend::start(BARE).await;
        let mut other = Backend::start(&format!("report;fork[setsid;{BARE}];sleep")).await;
        let reported = backend.reports(3).await;
        spared.reports(3).await;
        let others = other.reports(4).await;
        // The marked ones of this lost tree are another session's, the bare ones anybody's.
        lose_keeper(&backend, &pool, &reported).await;
        lose_keeper(&other, &pool, &others).await;
        let report = backend.step(&pool, ReapStep::Kill).await;
        assert!(report.empty, "{report:?}");
        assert!(!reported.iter().any(|process| is_alive(*process)));
        assert!(is_alive(spared.agent) && is_alive(spared.link.keeper()));
        assert!(
            is_alive(others[0]) && is_alive(others[1]),
            "marked for another session"
        );
        assert!(other.step(&pool, ReapStep::Kill).await.empty);
        assert!(!others.iter().any(|process| is_alive(*process)));
        assert_eq!(zombies(), 0, "those adopted are collected");
        assert!(spared.step(&pool, ReapStep::Kill).await.empty);
        spared.leave(&pool).await;
    });
    assert_eq!(own_child.hurt(), None);
}
