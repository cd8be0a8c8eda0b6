//! Keepers without a daemon: how long they wait, what they do then, and what they keep.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::daemon::{FakeDaemon, keeper_of};
use super::support::*;
use drowse::process::control::ToKeeper;
use drowse::process::link::{KeeperEvent, KeeperLink};
use drowse_messages::{ExitStatus, ProcIdentity};
use rustix::process::Signal;

/// Four processes that were made to escape.
const ESCAPING: &str = "report;fork[ignore;setsid;report;fork[fork[ignore;report;sleep]];sleep];\
                        times 2[fork[ignore;report;respawn[setsid;sleep]]];ignore;sleep";

/// Kills a daemon and waits until its keeper has left; returns how long that took.
fn lose_daemon(socket: &Path, orphan_grace: Duration) -> Duration {
    let session = new_session();
    let mut daemon = FakeDaemon::start(session, socket, orphan_grace, ESCAPING);
    let reported = daemon.reports(5);
    let keeper = keeper_of(reported[0]);
    assert!(socket.exists());
    let lost = Instant::now();
    daemon.kill();
    wait_until("the keeper has left", || !is_alive(keeper));
    let took = lost.elapsed();
    assert!(!reported.iter().any(|process| is_alive(*process)));
    assert!(marked(session).is_empty(), "{}", dump(session));
    assert!(!socket.exists(), "the socket goes with its keeper");
    took
}

/// Behaviour 86: nobody came, so the keeper ends its tree by itself, whatever that did to escape.
#[test]
fn when_the_grace_is_over_the_tree_is_ended() {
    const ORPHAN_GRACE: Duration = Duration::from_millis(400);
    let (_folder, socket) = place();
    let took = lose_daemon(&socket, ORPHAN_GRACE);
    assert!(took >= ORPHAN_GRACE, "{took:?}");
}

/// Behaviour 86: no grace, no waiting.
#[test]
fn without_a_grace_the_tree_is_ended_at_once() {
    let (_folder, socket) = place();
    lose_daemon(&socket, Duration::ZERO);
}

/// A daemon that wants the tree ended is not taken for one that died.
#[test]
fn an_order_to_end_does_not_wait_for_the_grace() {
    let (_folder, socket) = place();
    let session = new_session();
    let mut daemon = FakeDaemon::start(session, &socket, GRACE, ESCAPING);
    let reported = daemon.reports(5);
    let keeper = keeper_of(reported[0]);
    daemon.order("end");
    wait_until("the keeper has left", || !is_alive(keeper));
    assert!(marked(session).is_empty(), "{}", dump(session));
    assert!(!socket.exists());
}

/// A daemon that dies while it starts an agent has not started one.
#[test]
fn half_an_order_starts_nothing() {
    let (_folder, socket) = place();
    let session = new_session();
    let mut plan = launch(session, &[TREE_AGENT, "sleep"]);
    plan.socket = Some(socket.clone());
    plan.orphan_grace = GRACE;
    let order = ToKeeper::Launch(plan).encode().expect("short");
    for length in [0, 1, 6, order.len() - 1] {
        let (mut daemon, keeper) = UnixStream::pair().expect("sockets");
        let mut process = Command::new(KEEPER)
            .arg("keeper")
            .stdin(OwnedFd::from(keeper))
            .spawn()
            .expect("it starts");
        daemon.write_all(&order[..length]).expect("room");
        drop(daemon);
        assert!(process.wait().expect("ours").success(), "{length} bytes");
        assert!(marked(session).is_empty(), "{}", dump(session));
        assert!(!socket.exists());
    }
}

/// The grace counts no more once there is a daemon again.
#[test]
fn a_daemon_that_takes_over_in_time_keeps_the_agent() {
    const ORPHAN_GRACE: Duration = Duration::from_millis(1500);
    on_runtime(async {
        let (_folder, socket) = place();
        let session = new_session();
        let mut plan = launch(session, &[TREE_AGENT, "echo"]);
        plan.socket = Some(socket.clone());
        plan.orphan_grace = ORPHAN_GRACE;
        let backend = Backend::launch(session, plan).await;
        let keeper = backend.link.keeper();
        drop(backend);
        let taken = Backend::take_over(session, keeper, &socket).await;
        let mut backend = taken.expect("it waits").0;
        rest();
        rest();
        backend.say("still here\n").await;
        assert_eq!(backend.line().await, "still here\n");
        end(backend).await;
    });
}

/// The grace begins anew with each daemon that is lost.
#[test]
fn a_daemon_that_dies_while_it_takes_over_is_followed_by_another() {
    on_runtime(async {
        let (_folder, socket) = place();
        let mut backend = start_kept(&socket, "echo").await;
        let (session, keeper) = (backend.session, backend.link.keeper());
        for round in 0..20 {
            drop(backend);
            let taken = Backend::take_over(session, keeper, &socket).await;
            backend = taken.expect("it waits").0;
            if round % 2 == 0 {
                backend.say("x").await;
                assert_eq!(backend.bytes(1).await, b"x");
            }
        }
        end(backend).await;
    });
}

/// Launches an agent that leaves a child behind, and retires its keeper once it has ended.
async fn retire(socket: &Path, child: &str, until: Option<Duration>) -> (Backend, ProcIdentity) {
    let script = format!("fork[setsid;{child}];exit 3");
    let mut backend = start_kept(socket, &script).await;
    let child = backend.reports(1).await[0];
    assert_eq!(backend.exit().await, ExitStatus::Code(3));
    let sent = backend.link.send(ToKeeper::Retire { until }).await;
    sent.expect("a keeper");
    (backend, child)
}

/// What is kept needs neither its agent nor a daemon, and when it ends nothing stays.
#[test]
fn a_retired_keeper_stays_as_long_as_what_it_keeps() {
    on_runtime(async {
        let (_folder, socket) = place();
        let (backend, child) = retire(&socket, "ignore;report;sleep", None).await;
        let keeper = backend.link.keeper();
        drop(backend);
        let (mut link, held) = in_time("the take-over", KeeperLink::take_over(keeper, &socket))
            .await
            .expect("it is there");
        assert_eq!(held.exited, Some(ExitStatus::Code(3)));
        assert!(!held.empty && held.stdio.is_none(), "{held:?}");
        assert!(is_alive(child));
        signal(child, Signal::KILL);
        let event = in_time("the end", link.next_message()).await;
        assert!(matches!(event, Ok(Some(KeeperEvent::Empty))), "{event:?}");
        let event = in_time("the leaving", link.next_message()).await;
        assert!(matches!(event, Ok(None)), "{event:?}");
        assert_eq!(
            collect(&pool(), keeper).await,
            Some(ExitStatus::Code(0)),
            "by itself"
        );
        assert!(!socket.exists());
    });
}

/// A kept server that still has the agent's output can go on writing its log, more than a pipe
/// holds: it is neither killed nor stopped because nobody reads that.
#[test]
fn what_is_kept_may_go_on_writing() {
    const LENGTH: u64 = 300_000;
    on_runtime(async {
        let (_folder, socket) = place();
        let script = format!("onterm[flood {LENGTH};sleep]");
        let (backend, child) = retire(&socket, &script, None).await;
        let keeper = backend.link.keeper();
        drop(backend);
        let before = written(child);
        signal(child, Signal::TERM);
        wait_until("all is written", || written(child) - before >= LENGTH);
        assert!(is_alive(child));
        signal(child, Signal::KILL);
        assert_eq!(collect_late(keeper).await, Some(ExitStatus::Code(0)));
    });
}

/// What is kept for some time only is ended after it, daemon or not.
#[test]
fn what_is_kept_for_a_time_is_ended_after_it() {
    on_runtime(async {
        const UNTIL: Duration = Duration::from_millis(300);
        let (_folder, socket) = place();
        let begun = Instant::now();
        let (backend, child) = retire(&socket, "ignore;report;sleep", Some(UNTIL)).await;
        let keeper = backend.link.keeper();
        drop(backend);
        assert_eq!(collect_late(keeper).await, Some(ExitStatus::Code(0)));
        assert!(begun.elapsed() >= UNTIL);
        assert!(!is_alive(child));
        assert!(!socket.exists());
    });
}

async fn collect_late(keeper: ProcIdentity) -> Option<ExitStatus> {
    wait_until("the keeper has left", || !is_alive(keeper));
    collect(&pool(), keeper).await
}

/// There is nothing to stay for.
#[test]
fn a_keeper_that_is_retired_when_nothing_is_left_leaves() {
    on_runtime(async {
        let (_folder, socket) = place();
        let mut backend = start_kept(&socket, "exit 0").await;
        backend.exit().await;
        let retired = ToKeeper::Retire { until: None };
        backend.link.send(retired).await.expect("a keeper");
        let keeper = backend.link.keeper();
        assert_eq!(collect_late(keeper).await, Some(ExitStatus::Code(0)));
    });
}

/// D45: an agent is not bound to the thread that had it started.
#[test]
fn an_agent_outlives_the_thread_that_started_it() {
    let (_folder, socket) = place();
    let at = socket.clone();
    let starts = move || {
        on_runtime(async {
            let mut backend = start_kept(&at, "report;echo").await;
            let agent = backend.reports(1).await[0];
            (backend.session, backend.link.keeper(), agent)
        })
    };
    let thread = std::thread::spawn(starts);
    let (session, keeper, agent) = thread.join().expect("it did its part");
    rest();
    assert!(is_alive(agent) && is_alive(keeper));
    on_runtime(async {
        let taken = Backend::take_over(session, keeper, &socket).await;
        let mut backend = taken.expect("it waits").0;
        backend.say("hello\n").await;
        assert_eq!(backend.line().await, "hello\n");
        end(backend).await;
    });
}

/// A keeper sleeps, with a daemon and without one.
#[test]
fn a_keeper_sleeps_while_nothing_happens() {
    on_runtime(async {
        let (_folder, socket) = place();
        let mut backend = start_kept(&socket, "report;sleep").await;
        backend.reports(1).await;
        let (session, keeper) = (backend.session, backend.link.keeper());
        let switches = || status_field(keeper, "voluntary_ctxt_switches");
        // What it had to do just now may not be done yet, so one second of several counts.
        let sleeps = || {
            let before = switches();
            rest();
            switches() == before
        };
        assert!((0..5).any(|_| sleeps()), "with a daemon");
        drop(backend);
        assert!((0..5).any(|_| sleeps()), "alone");
        let taken = Backend::take_over(session, keeper, &socket).await;
        end(taken.expect("it waits").0).await;
    });
}
