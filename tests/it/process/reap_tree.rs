//! Nothing that an agent starts survives a kill, however it tries; nothing else is touched.

use std::process::{Child, Command, Stdio};

use super::support::*;
use drowse::process::reap::{Leftover, end_leftover};
use drowse::process::signal::Signaller;
use drowse::process::sweep::{Mark, sweep_marked};
use drowse::process::table::{boot_id, identify, walk};
use drowse_messages::{BootedIdentity, ProcIdentity, ReapStep};

/// A stranger with the agent's program, name and arguments, outside of every session.
struct Canary(Child);

impl Canary {
    fn start(script: &str) -> Self {
        let mut command = Command::new(TREE_AGENT);
        command
            .arg(script)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Self(command.spawn().expect("the canary starts"))
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    fn assert_untouched(mut self) {
        assert!(
            self.0.try_wait().expect("ours").is_none(),
            "the canary was hit"
        );
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("alive");
        assert!(!status.contains(") T "), "the canary was stopped");
    }
}

impl Drop for Canary {
    /// Also when the test fails.
    fn drop(&mut self) {
        self.0.kill().expect("ours");
        self.0.wait().expect("ours");
    }
}

/// Starts `script`, waits for `count` reports, kills, and looks for survivors independently.
fn kill_leaves_nobody(script: &str, count: usize) {
    let canary = Canary::start("sleep");
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start(script).await;
        let reported = backend.reports(count).await;
        wait_until("a walk shows every living process", || {
            let seen = walk(backend.link.keeper()).expect("the keeper runs");
            let is_seen = |p: &ProcIdentity| seen.iter().any(|stat| stat.identity == *p);
            reported
                .iter()
                .all(|process| is_seen(process) || !is_alive(*process))
        });
        let report = backend.step(&pool, ReapStep::Kill).await;
        let session = backend.session;
        assert!(report.empty && report.survivors.is_empty(), "{report:?}");
        for process in &reported {
            assert!(!is_alive(*process), "{process} survived {script:?}");
        }
        assert!(
            marked(session).is_empty(),
            "survivors of {script:?}:\n{}",
            dump(session)
        );
        assert!(backend.step(&pool, ReapStep::Verify).await.empty);
        backend.leave(&pool).await;
        in_time("the end of the queue", pool.idle()).await;
    });
    canary.assert_untouched();
}

/// D01, behaviour 47: a launcher that forks its server; the server does not heed end of input.
#[test]
fn a_launcher_chain() {
    kill_leaves_nobody(
        "report;fork[report;fork[ignore;report;sleep];sleep];sleep",
        3,
    );
}

/// D02, behaviour 49: the parent is gone, so no walk down from the agent finds the leaf.
#[test]
fn a_leaf_whose_parent_has_ended() {
    kill_leaves_nobody("report;fork[report;fork[ignore;report;spin]];sleep", 3);
}

/// D03, behaviour 48: own process sessions, whose leaders are gone: 20 of them.
#[test]
fn process_sessions_without_a_leader() {
    kill_leaves_nobody("report;times 20[fork[setsid;fork[report;sleep]]];sleep", 21);
}

/// Behaviour 48.
#[test]
fn a_child_in_its_own_process_session() {
    kill_leaves_nobody("report;fork[setsid;report;sleep];sleep", 2);
}

/// Behaviour 49.
#[test]
fn a_double_fork_in_the_same_group() {
    kill_leaves_nobody("report;fork[fork[report;sleep]];sleep", 2);
}

#[test]
fn a_child_forked_by_another_thread() {
    kill_leaves_nobody("report;thread[fork[report;sleep];sleep];sleep", 2);
}

/// A process whose first thread has ended shows as a zombie and lives.
#[test]
fn a_process_without_its_first_thread() {
    kill_leaves_nobody(
        "fork[leaderless[report;fork[setsid;report;sleep];sleep]];report;sleep",
        3,
    );
}

#[test]
fn a_respawner() {
    kill_leaves_nobody("report;respawn[setsid;report;sleep]", 2);
}

#[test]
fn nested_respawners() {
    kill_leaves_nobody(
        "report;respawn[setsid;report;respawn[setsid;report;sleep]]",
        3,
    );
}

#[test]
fn a_fork_race() {
    kill_leaves_nobody("report;times 3[fork[setsid;report;storm]];sleep", 4);
}

#[test]
fn a_runner() {
    kill_leaves_nobody("report;fork[setsid;report;runner];sleep", 2);
}

#[test]
fn three_runners() {
    kill_leaves_nobody("report;times 3[fork[report;runner]];sleep", 4);
}

#[test]
fn cleared_environments() {
    kill_leaves_nobody(
        "report;fork[setsid;bare[report;fork[setsid;report;sleep];sleep]];sleep",
        3,
    );
}

/// A supervisor of somebody else's below ours.
#[test]
fn a_nested_subreaper() {
    kill_leaves_nobody(
        "report;fork[subreaper;report;fork[fork[setsid;report;sleep]];sleep];sleep",
        3,
    );
}

#[test]
fn stopped_processes() {
    kill_leaves_nobody("report;fork[report;fork[report;stop];stop];sleep", 3);
}

/// More processes than are awaited at once.
#[test]
fn a_wide_tree() {
    kill_leaves_nobody(
        "report;times 20[fork[report;times 20[fork[setsid;report;sleep]];sleep]];sleep",
        421,
    );
}

/// D13: names that look like the fields behind them.
#[test]
fn misleading_names() {
    let script =
        "report;fork[name x) S 1 1 (y;report;fork[name ( ) ( ) ( ) (;report;sleep];sleep];sleep";
    kill_leaves_nobody(script, 3);
}

/// D04, behaviour 54: forked while the tree is being asked to end.
#[test]
fn born_during_the_grace_period() {
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start("onterm[fork[ignore;setsid;report;sleep]]").await;
        backend.reports(1).await;
        let asked = backend.step(&pool, ReapStep::Terminate).await;
        assert_eq!(asked.processes.len(), 1);
        let late = backend.reports(2).await[1];
        let report = backend.step(&pool, ReapStep::Kill).await;
        assert!(report.empty, "{report:?}");
        assert!(
            report.processes.iter().any(|found| found.identity == late),
            "{report:?}"
        );
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

/// A keeper killed from outside leaves its tree to init; the mark in the environment finds it.
#[test]
fn a_lost_keepers_tree_is_found_by_its_mark() {
    on_runtime(async {
        let pool = pool();
        let script = "report;fork[setsid;report;fork[bare[report;sleep]];sleep];sleep";
        let mut backend = Backend::start(script).await;
        let mut spared = Backend::start("report;sleep").await;
        let reported = backend.reports(3).await;
        spared.reports(1).await;
        let keeper = backend.link.keeper();
        Signaller::new()
            .send_to(keeper, rustix::process::Signal::KILL)
            .expect("ours");
        assert!(collect(&pool, keeper).await.is_some());
        assert!(
            reported.iter().all(|process| is_alive(*process)),
            "they outlive the keeper"
        );
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
