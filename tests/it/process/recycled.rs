//! D11, behaviour 51: numbers that are given to somebody else between two looks. In a pid
//! namespace of its own, where the next number can be chosen.

use std::fs;
use std::process::{Child, Command, Stdio};

use super::arms::{is_root, not_run};
use super::support::*;
use drowse::process::signal::{SignalError, Signaller};
use drowse::process::table::{Process, identify};
use drowse_messages::{ProcIdentity, ReapStep};
use rustix::process::Signal;

/// Tries to have a number given again within one clock tick of 10 ms; each takes about 1 ms.
const TRIES_MAX: u32 = 1000;

/// True in a process alone in a pid namespace; else runs this test in one.
fn in_a_namespace(test: &str) -> bool {
    if is_alone() {
        return true;
    }
    let unshare = ["unshare", "--pid", "--fork", "--mount-proc"];
    let mut tried = Command::new(unshare[0]);
    let works = tried.args(&unshare[1..]).arg("true").output();
    if !is_root() || !works.is_ok_and(|output| output.status.success()) {
        not_run(test, "it takes root and unshare to choose pids");
        return false;
    }
    let own = std::env::current_exe().expect("a test program");
    run_alone(test, Command::new(unshare[0]).args(&unshare[1..]).arg(own));
    false
}

fn sleeper() -> Child {
    let mut command = Command::new("sleep");
    command
        .arg("3600")
        .stdout(Stdio::null())
        .spawn()
        .expect("sleep")
}

/// A stranger with this number.
fn newcomer(pid: i32) -> (Child, ProcIdentity) {
    // Others may be given a number in between: nobody else is here, but for threads of ours.
    for _ in 0..TRIES_MAX {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).expect("root may");
        let mut child = sleeper();
        if child.id().cast_signed() == pid {
            return (child, identify(pid).expect("it runs"));
        }
        end(&mut child);
    }
    panic!("{pid} was not given again");
}

fn end(child: &mut Child) {
    child.kill().expect("ours");
    child.wait().expect("ours");
}

/// Even if it started in the same clock tick, so that its identity is the same: what was opened
/// when a process was found stays bound to that process.
#[test]
fn what_was_opened_never_reaches_the_newcomer() {
    if !in_a_namespace("process::recycled::what_was_opened_never_reaches_the_newcomer") {
        return;
    }
    for _ in 0..TRIES_MAX {
        let mut first = sleeper();
        let pid = first.id().cast_signed();
        let process = Process::open(pid).expect("it runs");
        let found = process.stat().expect("it runs");
        let held = process.hold().expect("a descriptor");
        end(&mut first);
        let (mut stranger, identity) = newcomer(pid);
        let signaller = Signaller::new();
        for sent in [
            signaller.send(&process, &found, Signal::KILL),
            signaller.send_through(&held, found.identity, Signal::KILL),
        ] {
            assert!(matches!(sent, Err(SignalError::Gone(_))), "{sent:?}");
        }
        if identity != found.identity {
            let sent = signaller.send_to(found.identity, Signal::KILL);
            assert!(
                matches!(sent, Err(SignalError::IdentityDiffers(_))),
                "{sent:?}"
            );
        }
        assert!(
            stranger.try_wait().expect("ours").is_none(),
            "the stranger was hit"
        );
        end(&mut stranger);
        if identity == found.identity {
            return;
        }
    }
    panic!("no number was given again within a tick");
}

/// Across the grace: what ended after SIGTERM has made room for a stranger, whom SIGKILL is not
/// to reach.
#[test]
fn a_kill_after_the_grace_does_not_reach_the_newcomer() {
    if !in_a_namespace("process::recycled::a_kill_after_the_grace_does_not_reach_the_newcomer") {
        return;
    }
    on_runtime(async {
        let pool = pool();
        let script = "report;fork[report;sleep];fork[setsid;ignore;report;sleep];sleep";
        let mut backend = Backend::start(script).await;
        let reported = backend.reports(3).await;
        backend.step(&pool, ReapStep::Snapshot).await;
        backend.step(&pool, ReapStep::Terminate).await;
        wait_until("two are collected", || {
            reported
                .iter()
                .filter(|process| identify(process.pid()).is_ok())
                .count()
                == 1
        });
        let left: Vec<_> = reported
            .iter()
            .filter(|process| is_alive(**process))
            .collect();
        let gone = reported.iter().filter(|process| !left.contains(process));
        let mut strangers: Vec<_> = gone.map(|process| newcomer(process.pid()).0).collect();
        assert_eq!(strangers.len(), 2);
        let report = backend.step(&pool, ReapStep::Kill).await;
        assert!(report.empty && report.processes.len() == 1, "{report:?}");
        for stranger in &mut strangers {
            assert!(
                stranger.try_wait().expect("ours").is_none(),
                "a stranger was hit"
            );
            end(stranger);
        }
        backend.leave(&pool).await;
    });
}
