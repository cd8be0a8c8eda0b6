//! Processes that cannot be ended, or must not be: said by name, and within a bound.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::arms::{Delegation, as_nobody, cgroups, is_root, not_run};
use super::support::*;
use drowse::process::cgroup::Cgroup;
use drowse_messages::ReapStep;

/// A freezer of the first version: what is frozen by it is in uninterruptible sleep, and SIGKILL
/// waits until it is thawed. Removed on drop.
struct Freezer {
    group: PathBuf,
    mount: Option<tempfile::TempDir>,
}

impl Freezer {
    fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("proc");
        let is_freezer = |line: &&str| line.contains(" - cgroup ") && line.ends_with("freezer");
        let usual = mounts
            .lines()
            .find(is_freezer)
            .and_then(|line| line.split(' ').nth(4));
        let (mount, own) = match usual {
            Some(mount) => (PathBuf::from(mount), None),
            None => {
                let own = tempfile::tempdir().expect("a folder");
                let mut command = Command::new("mount");
                let mounted = command
                    .args(["-t", "cgroup", "-o", "freezer", "none"])
                    .arg(own.path());
                if !mounted.output().is_ok_and(|output| output.status.success()) {
                    return None;
                }
                (own.path().to_owned(), Some(own))
            }
        };
        let group = mount.join(format!("drowse-test-{}", std::process::id()));
        fs::create_dir(&group).expect("root may");
        Some(Self { group, mount: own })
    }

    fn freeze(&self, pid: i32) {
        fs::write(self.group.join("cgroup.procs"), pid.to_string()).expect("root may");
        fs::write(self.group.join("freezer.state"), "FROZEN").expect("root may");
        wait_until("it is frozen", || {
            fs::read_to_string(self.group.join("freezer.state")).expect("there") == "FROZEN\n"
        });
    }

    fn thaw(&self) {
        fs::write(self.group.join("freezer.state"), "THAWED").expect("root may");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        // Busy for as long as a process of a failing test is in it.
        drop(fs::remove_dir(&self.group));
        if let Some(mount) = &self.mount {
            drop(Command::new("umount").arg(mount.path()).status());
        }
    }
}

/// D46: bounded, named, and never said to be gone; ended once it can be.
#[test]
fn uninterruptible_sleep_is_reported_and_tried_again() {
    let freezer = is_root().then(Freezer::make).flatten();
    let Some(freezer) = freezer else {
        return not_run(
            "uninterruptible sleep",
            "there is no cgroup freezer, or we are not root",
        );
    };
    for cgroups in [None, cgroups()] {
        on_runtime(async {
            let pool = pool();
            let script = "report;fork[setsid;report;sleep];fork[report;sleep];sleep";
            let mut backend = Backend::start_in(cgroups.as_ref(), script).await;
            let reported = backend.reports(3).await;
            let asleep = reported[1];
            freezer.freeze(asleep.pid());
            let report = backend.step(&pool, ReapStep::Kill).await;
            assert!(!report.empty, "{report:?}");
            let [survivor] = &report.survivors[..] else {
                panic!("one is left: {report:?}");
            };
            assert_eq!((survivor.process.identity, survivor.state), (asleep, 'D'));
            assert_eq!(survivor.why, "not killable: in uninterruptible sleep");
            let left = backend.step(&pool, ReapStep::Verify).await;
            assert!(!left.empty && left.processes.len() == 1, "{left:?}");
            assert!(!is_alive(reported[0]) && !is_alive(reported[2]));
            freezer.thaw();
            assert!(backend.step(&pool, ReapStep::Kill).await.empty);
            backend.leave(&pool).await;
        });
    }
}

/// Root's processes below an unprivileged user's agent: a keeper alone cannot end them, and says
/// whose they are; in a cgroup they are ended.
#[test]
fn processes_of_another_user() {
    let test = "process::unkillable::processes_of_another_user";
    if as_nobody(test, Delegation::None) {
        on_runtime(of_another_user(false));
    }
}

#[test]
fn processes_of_another_user_in_a_cgroup() {
    let test = "process::unkillable::processes_of_another_user_in_a_cgroup";
    if as_nobody(test, Delegation::Cgroup) {
        on_runtime(of_another_user(true));
    }
}

async fn of_another_user(in_cgroup: bool) {
    if !program(TREE_AGENT)
        .with_file_name("tree-agent-suid")
        .exists()
    {
        return not_run("processes of another user", "only root can prepare this");
    }
    let cgroups = in_cgroup.then(cgroups).flatten();
    let pool = pool();
    let script = "report;fork[suid[report;echo]];fork[report;sleep];sleep";
    let mut backend = Backend::start_in(cgroups.as_ref(), script).await;
    let reported = backend.reports(3).await;
    let user = |pid| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(format!("/proc/{pid}"))
            .map(|folder| folder.uid())
            .ok()
    };
    let roots = reported
        .iter()
        .filter(|process| user(process.pid()) == Some(0));
    let [root] = roots.collect::<Vec<_>>()[..] else {
        return not_run(
            "processes of another user",
            "programs of root do not run as root here",
        );
    };
    let report = backend.step(&pool, ReapStep::Kill).await;
    assert_eq!(report.empty, in_cgroup, "{report:?}");
    if !in_cgroup {
        let [survivor] = &report.survivors[..] else {
            panic!("one is left: {report:?}");
        };
        assert_eq!(survivor.process.identity, *root);
        assert!(
            survivor.why.ends_with("belongs to another user"),
            "{report:?}"
        );
        assert!(is_alive(*root));
        // It reads its input until that ends.
        backend.end_input().await;
        wait_until("it ends by itself", || !is_alive(*root));
    }
    assert!(!reported.iter().any(|process| is_alive(*process)));
    assert!(backend.step(&pool, ReapStep::Verify).await.empty);
    backend.leave(&pool).await;
}

/// Behaviour 52: a cgroup that somebody moved the daemon into is not killed whole, nor frozen.
#[test]
fn a_cgroup_that_holds_the_daemon_is_not_killed() {
    let test = "process::unkillable::a_cgroup_that_holds_the_daemon_is_not_killed";
    if !is_root() {
        return not_run(test, "only root moves between cgroups");
    }
    if !alone(test) {
        return;
    }
    let Some(cgroups) = cgroups() else { return };
    on_runtime(async {
        let pool = pool();
        let script = "report;fork[setsid;report;sleep];sleep";
        let mut backend = Backend::start_in(Some(&cgroups), script).await;
        let reported = backend.reports(2).await;
        let above = cgroups
            .folder()
            .parent()
            .expect("a folder in a cgroup")
            .to_owned();
        let enter =
            |folder: PathBuf| fs::write(folder.join("cgroup.procs"), "0").expect("root may");
        enter(backend.cgroup.clone().expect("asked for"));
        let report = backend.step(&pool, ReapStep::Kill).await;
        enter(above);
        assert!(
            !reported.iter().any(|process| is_alive(*process)),
            "{report:?}"
        );
        assert!(
            report
                .survivors
                .iter()
                .all(|left| left.why.contains("this process")),
            "{report:?}"
        );
        assert!(backend.step(&pool, ReapStep::Verify).await.empty);
        backend.leave(&pool).await;
    });
}

/// A path from disk is believed only if it is the one made for this launch, in a cgroup v2.
#[test]
fn only_the_launchs_own_cgroup_is_opened() {
    let (session, other) = (new_session(), new_session());
    let folder = tempfile::tempdir().expect("a folder");
    let fake = folder.path().join(format!("{session}-1"));
    fs::create_dir(&fake).expect("ours");
    let error = Cgroup::of_launch(&fake, session, INCARNATION).expect_err("no cgroup");
    assert_eq!(error.to_string(), "not a cgroup of version 2");
    let Some(cgroups) = cgroups() else { return };
    let made = cgroups.create(session, INCARNATION).expect("root may");
    assert!(
        cgroups.create(session, INCARNATION).is_err(),
        "never used again"
    );
    assert!(Cgroup::of_launch(made.path(), session, INCARNATION).is_ok());
    assert!(Cgroup::of_launch(made.path(), other, INCARNATION).is_err());
    assert!(Cgroup::of_launch(&cgroups.folder().join(".."), session, INCARNATION).is_err());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(made.path(), &link).expect("ours");
    assert!(Cgroup::open(&link).is_err(), "a link is not followed");
    made.remove().expect("nobody is in it");
    assert!(!cgroups.folder().exists());
}
