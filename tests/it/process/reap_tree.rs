//! The steps on a tree: what each finds, does and says, and what an earlier daemon left.

use std::process::Command;

use super::support::*;
use drowse::process::reap::{Leftover, end_leftover};
use drowse::process::table::{boot_id, identify, walk};
use drowse_messages::{BootedIdentity, ProcIdentity, ReapStep};

/// D04, behaviour 54: forked while the tree is being asked to end.
#[test]
fn born_during_the_grace_period() {
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start("onterm[fork[ignore;setsid;report;sleep]]").await;
        backend.reports(1).await;
        let asked = backend.step(&pool, ReapStep::Terminate).await;
        assert_eq!(asked.processes.len(), 1);
        assert_eq!(
            (asked.processes[0].scan, asked.processes[0].signal),
            (1, Some(15))
        );
        let late = backend.reports(2).await[1];
        let report = backend.step(&pool, ReapStep::Kill).await;
        assert!(report.empty, "{report:?}");
        let found = report.processes.iter().find(|found| found.identity == late);
        let found = found.expect("the late one is in the report");
        assert!(found.scan >= 2 && found.signal == Some(9), "{report:?}");
        assert!(!is_alive(late));
        backend.leave(&pool).await;
    });
}

/// Behaviour 50: asking reaches everybody, stopped ones too; those who ignore it stay.
#[test]
fn terminate_asks_everybody_and_kills_nobody() {
    on_runtime(async {
        let pool = pool();
        let script = "report;fork[ignore;report;sleep];fork[report;stop];sleep";
        let mut backend = Backend::start(script).await;
        let reported = backend.reports(3).await;
        backend.step(&pool, ReapStep::Terminate).await;
        wait_until("two have ended", || {
            reported.iter().filter(|p| is_alive(**p)).count() == 1
        });
        let left = backend.step(&pool, ReapStep::Verify).await;
        assert!(!left.empty);
        assert_eq!(left.processes.len(), 1);
        assert!(backend.step(&pool, ReapStep::Kill).await.empty);
        backend.leave(&pool).await;
    });
}

/// Behaviour 45: a snapshot lists parents before children and measures them.
#[test]
fn a_snapshot_measures_the_tree() {
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start("report;fork[name odd\u{7};report;sleep];sleep").await;
        let reported = backend.reports(2).await;
        let tree = backend.step(&pool, ReapStep::Snapshot).await;
        let found: Vec<_> = tree
            .processes
            .iter()
            .map(|process| process.identity)
            .collect();
        assert_eq!(found, reported);
        assert!(
            tree.processes
                .iter()
                .all(|process| process.pss_bytes > 10_000),
            "{tree:?}"
        );
        assert_eq!(tree.processes[0].parent, backend.link.keeper().pid());
        assert_eq!(tree.processes[1].name, "odd\u{fffd}");
        assert!(!tree.empty);
        assert_eq!(walk(backend.link.keeper()).expect("there").len(), 2);
        backend.step(&pool, ReapStep::Kill).await;
        backend.leave(&pool).await;
    });
}

/// Behaviour 55: the tree of another keeper is nobody else's business.
#[test]
fn another_sessions_processes_are_untouched() {
    on_runtime(async {
        let pool = pool();
        let mut first = Backend::start("report;fork[setsid;report;sleep];sleep").await;
        let mut second = Backend::start("report;fork[setsid;report;sleep];sleep").await;
        first.reports(2).await;
        let others = second.reports(2).await;
        assert!(first.step(&pool, ReapStep::Kill).await.empty);
        assert!(others.iter().all(|process| is_alive(*process)));
        assert!(second.step(&pool, ReapStep::Kill).await.empty);
        first.leave(&pool).await;
        second.leave(&pool).await;
    });
}

/// D11: records of other boots and of recycled numbers are closed without a signal; a true one
/// ends the tree and then the keeper.
#[test]
fn a_leftover_is_ended_only_if_it_is_the_one_recorded() {
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start("report;fork[setsid;report;sleep];sleep").await;
        let reported = backend.reports(2).await;
        let keeper = backend.link.keeper();
        let boot_id = boot_id().expect("proc");
        let later = ProcIdentity::new(keeper.pid(), keeper.start_ticks() + 1).expect("above 1");
        let record = |boot_id: &str, process| BootedIdentity {
            boot_id: boot_id.into(),
            process,
        };
        let other_boot = record("5a7c35ef-0000-0000-0000-000000000000", keeper);
        for strange in [other_boot, record(&boot_id, later)] {
            assert_eq!(
                end_leftover(&strange, None).expect("proc"),
                Leftover::IdentityDiffers
            );
        }
        assert!(reported.iter().all(|process| is_alive(*process)));
        let Leftover::Ended(outcome) = end_leftover(&record(&boot_id, keeper), None).expect("proc")
        else {
            panic!("the keeper was there");
        };
        assert!(outcome.empty && outcome.processes.len() == 2, "{outcome:?}");
        assert!(!reported.iter().any(|process| is_alive(*process)));
        assert!(!is_alive(keeper));
        let again = end_leftover(&record(&boot_id, keeper), None).expect("proc");
        assert_eq!(again, Leftover::Gone, "a zombie is gone");
        assert!(collect(&pool, keeper).await.is_some());
    });
}

/// D44: a process whose parent never collects it counts as ended, at once.
#[test]
fn an_uncollected_zombie_is_not_alive() {
    let mut child = Command::new("true").spawn().expect("true");
    let identity = identify(child.id().cast_signed()).expect("not collected");
    wait_until("it is a zombie", || !is_alive(identity));
    let ended =
        drowse::process::reap::wait_until_ended(identity, std::time::Instant::now() + PATIENCE);
    assert!(ended);
    child.wait().expect("ours");
}
