//! The keeper: how agents start, how their ends are told, and what happens without a daemon.

use std::path::Path;
use std::time::Duration;

use super::daemon::{FakeDaemon, keeper_of};
use super::support::*;
use drowse::process::control::{LaunchStep, ToKeeper};
use drowse::process::link::{KeeperEvent, KeeperLink};
use drowse::process::reaper::{Full, ReaperPool};
use drowse::process::spawn::KeeperProgram;
use drowse_messages::{ExitStatus, ReapStep};

/// D50: descriptors 0 to 2, the environment and the folder given, and nothing else.
#[test]
fn an_agent_starts_clean() {
    on_runtime(async {
        let pool = pool();
        let session = new_session();
        let mut plan = launch(session, &[TREE_AGENT, "standing;sleep"]);
        plan.cwd = "/usr".into();
        // A descriptor that the daemon's program left open across exec by mistake.
        let leaked = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, 0.into());
        let mut backend = Backend::launch(session, plan).await;
        let line = backend.line().await;
        let expected = "fds=[0, 1, 2] cwd=/usr env=[\"PATH\", \"DROWSE_SESSION\"] nofile=";
        assert!(line.starts_with(expected), "{line}");
        let agent = std::fs::read_to_string(format!("/proc/{}/stat", backend.agent.pid()));
        let fields = agent.expect("alive");
        let fields: Vec<&str> = fields
            .rsplit(')')
            .next()
            .expect("split")
            .split(' ')
            .collect();
        let keeper = backend.link.keeper().pid().to_string();
        let agent = backend.agent.pid().to_string();
        assert_eq!(
            fields[2..5],
            [&keeper, &agent, &keeper],
            "parent, group, process session"
        );
        let cwd = std::fs::read_link(format!("/proc/{keeper}/cwd")).expect("alive");
        assert_eq!(cwd, Path::new("/"), "the keeper keeps no folder busy");
        drop(leaked);
        backend.step(&pool, ReapStep::Kill).await;
        backend.leave(&pool).await;
    });
}

/// Every signal is at its default and none is blocked, though the keeper blocks all of them.
#[test]
fn an_agent_starts_with_default_signals() {
    on_runtime(async {
        let pool = pool();
        let session = new_session();
        // Not a program in Rust: its runtime ignores SIGPIPE before `main`.
        let argv = ["grep", "-E", "^Sig(Ign|Blk|Pnd):", "/proc/self/status"];
        let mut backend = Backend::launch(session, launch(session, &argv)).await;
        assert_eq!(backend.exit().await, ExitStatus::Code(0));
        let text = backend.line().await;
        let sets: Vec<u64> = text
            .lines()
            .map(|line| line.split_whitespace().nth(1).expect("a set"))
            .map(|set| u64::from_str_radix(set, 16).expect("a number"))
            .collect();
        // The C library keeps signals 32 and 33 to itself and has every child that it spawns
        // start with them ignored.
        let own = 0b11 << 31;
        assert_eq!(
            sets.iter().map(|set| set & !own).collect::<Vec<u64>>(),
            [0, 0, 0],
            "{text}"
        );
        backend.leave(&pool).await;
    });
}

/// D10: nothing of the agent is in the keeper's arguments or environment.
#[test]
fn a_keeper_does_not_look_like_its_agent() {
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start("report;sleep").await;
        backend.reports(1).await;
        let keeper = backend.link.keeper().pid();
        let read = |file| std::fs::read_to_string(format!("/proc/{keeper}/{file}")).expect("alive");
        let session = backend.session;
        assert_eq!(read("cmdline"), format!("drowse\0keeper\0{session}\0"));
        assert_eq!(read("environ"), format!("DROWSE_SESSION={session}\0"));
        assert_eq!(read("comm"), "drowse-keeper\n");
        backend.step(&pool, ReapStep::Kill).await;
        backend.leave(&pool).await;
    });
}

/// D36: the agent's exit is told though a child of it holds its standard output.
#[test]
fn an_exit_is_told_while_a_child_holds_stdout() {
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start("fork[setsid;report;sleep];sleep").await;
        let child = backend.reports(1).await[0];
        let sent = drowse::process::signal::Signaller::new()
            .send_to(backend.agent, rustix::process::Signal::KILL);
        sent.expect("ours");
        assert_eq!(backend.exit().await, ExitStatus::Signal(9));
        assert!(is_alive(child));
        assert!(backend.step(&pool, ReapStep::Kill).await.empty);
        let event = in_time("the end", backend.link.next_message())
            .await
            .expect("understood");
        assert!(matches!(event, Some(KeeperEvent::Empty)), "{event:?}");
        backend.leave(&pool).await;
    });
}

/// The agent's input ends only when both the daemon and the keeper let go of it.
#[test]
fn closing_stdin_ends_an_agent_that_heeds_it() {
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start("echo;exit 7").await;
        backend.say("hello\n").await;
        assert_eq!(backend.line().await, "hello\n");
        backend.end_input().await;
        let link = &mut backend.link;
        let event = in_time("the exit", link.next_message())
            .await
            .expect("understood");
        assert!(
            matches!(event, Some(KeeperEvent::Exited(ExitStatus::Code(7)))),
            "{event:?}"
        );
        let event = in_time("the end", link.next_message())
            .await
            .expect("understood");
        assert!(matches!(event, Some(KeeperEvent::Empty)), "{event:?}");
        link.send(ToKeeper::Leave).await.expect("a keeper");
        let event = in_time("the leaving", link.next_message())
            .await
            .expect("understood");
        assert!(event.is_none(), "{event:?}");
        let keeper = link.keeper();
        assert_eq!(collect(&pool, keeper).await, Some(ExitStatus::Code(0)));
    });
}

/// Behaviour 82: what was wrong is told apart.
#[test]
fn a_failed_launch_says_what_failed() {
    on_runtime(async {
        let pool = pool();
        let mut no_folder = launch(new_session(), &[TREE_AGENT, "sleep"]);
        no_folder.cwd = "/no/such/folder".into();
        let no_program = launch(new_session(), &["no-such-program"]);
        let not_executable = launch(new_session(), &["/etc/passwd"]);
        let no_argv = launch(new_session(), &[]);
        let zero_byte = launch(new_session(), &["a\0b"]);
        let cases = [
            (no_folder, LaunchStep::Cwd, libc::ENOENT),
            (no_program, LaunchStep::Program, libc::ENOENT),
            (not_executable, LaunchStep::Program, libc::EACCES),
            (no_argv, LaunchStep::Program, libc::ENOENT),
            (zero_byte, LaunchStep::Program, libc::EINVAL),
        ];
        for (plan, step, errno) in cases {
            let program = KeeperProgram::at(Path::new(KEEPER));
            let mut link = KeeperLink::spawn(&program, new_session(), plan)
                .await
                .expect("keeper");
            let event = in_time("the news", link.next_message())
                .await
                .expect("understood");
            let Some(KeeperEvent::LaunchFailed(error)) = event else {
                panic!("{step:?}: {event:?}");
            };
            assert_eq!((error.step, error.errno), (step, errno), "{error}");
            let event = in_time("the leaving", link.next_message())
                .await
                .expect("understood");
            assert!(event.is_none(), "{event:?}");
            assert_eq!(
                collect(&pool, link.keeper()).await,
                Some(ExitStatus::Code(0))
            );
        }
    });
}

/// As `execvp` does: the agent's own `PATH`, and the shell for scripts without `#!`.
#[test]
fn programs_are_found_as_execvp_finds_them() {
    on_runtime(async {
        let pool = pool();
        let folder = std::env::temp_dir().join(format!("drowse-keeper-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let script = folder.join("plain-script");
        std::fs::write(&script, "echo \"ran $1\"\n").expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).expect("ours");
        let session = new_session();
        let mut plan = launch(session, &["plain-script", "so"]);
        let path = format!("/no/such/folder:{}:/usr/bin:/bin", folder.display());
        plan.env[0].1 = path.into();
        let mut backend = Backend::launch(session, plan).await;
        assert_eq!(backend.line().await, "ran so\n");
        assert_eq!(backend.exit().await, ExitStatus::Code(0));
        backend.leave(&pool).await;
        std::fs::remove_dir_all(&folder).expect("ours");
    });
}

/// Behaviour 86: after `kill -9` of the daemon no process of its agents is left. Without a socket
/// nobody can come, so there is no grace.
#[test]
fn a_keeper_without_a_daemon_ends_its_tree() {
    let script = "report;fork[ignore;setsid;report;fork[fork[ignore;report;sleep]];sleep];\
                  times 2[fork[ignore;report;respawn[setsid;sleep]]];ignore;sleep";
    let session = new_session();
    let mut daemon = FakeDaemon::start(session, Path::new(""), Duration::from_secs(60), script);
    let reported = daemon.reports(5);
    let keeper = keeper_of(reported[0]);
    daemon.kill();
    wait_until("the keeper has left", || !is_alive(keeper));
    assert!(!reported.iter().any(|process| is_alive(*process)));
    assert!(marked(session).is_empty(), "{}", dump(session));
}

/// Without a grace, dropping the link ends the tree; `Leave` does so while children are left.
#[test]
fn letting_go_of_a_keeper_ends_its_tree() {
    on_runtime(async {
        let pool = pool();
        let mut dropped = Backend::start("ignore;report;fork[setsid;report;sleep];sleep").await;
        let first = dropped.reports(2).await;
        let keeper = dropped.link.keeper();
        drop(dropped);
        wait_until("the tree has ended", || {
            !first.iter().any(|process| is_alive(*process))
        });
        assert_eq!(collect(&pool, keeper).await, Some(ExitStatus::Code(0)));
        let mut asked = Backend::start("ignore;report;fork[setsid;report;sleep];sleep").await;
        let second = asked.reports(2).await;
        asked.leave(&pool).await;
        assert!(!second.iter().any(|process| is_alive(*process)));
    });
}

/// No signal a terminal, a logout or a service manager sends takes the keeper away from its tree.
#[test]
fn a_keeper_heeds_no_signal() {
    on_runtime(async {
        let pool = pool();
        let mut backend = Backend::start("report;sleep").await;
        backend.reports(1).await;
        let keeper = backend.link.keeper();
        for signal in (1..=31).filter_map(rustix::process::Signal::from_named_raw) {
            if ![rustix::process::Signal::KILL, rustix::process::Signal::STOP].contains(&signal) {
                drowse::process::signal::Signaller::new()
                    .send_to(keeper, signal)
                    .expect("ours");
            }
        }
        assert!(backend.step(&pool, ReapStep::Kill).await.empty);
        assert_eq!(backend.exit().await, ExitStatus::Signal(9));
        backend.leave(&pool).await;
    });
}

/// D44, D50: 300 rounds, a third of them killed, a third failing to start, a third leaving by
/// themselves, some of them given up halfway: no descriptor and no zombie stays.
#[test]
fn three_hundred_rounds_leave_nothing() {
    if !alone("process::keeper::three_hundred_rounds_leave_nothing") {
        return;
    }
    on_runtime(async {
        let pool = pool();
        // The runtime's own descriptors exist once anything was waited for.
        Backend::start("exit 0").await.leave(&pool).await;
        let before = open_descriptors();
        let program = KeeperProgram::at(Path::new(KEEPER));
        for round in 0..100 {
            let killed = Backend::start("sleep").await;
            assert!(killed.step(&pool, ReapStep::Kill).await.empty);
            killed.leave(&pool).await;
            let argv: &[&str] = if round % 2 == 0 {
                &["/no/such"]
            } else {
                &[TREE_AGENT, "exit 3"]
            };
            let plan = launch(new_session(), argv);
            let mut failing = KeeperLink::spawn(&program, new_session(), plan)
                .await
                .expect("one");
            if round % 3 != 0 {
                drop(
                    in_time("news", failing.next_message())
                        .await
                        .expect("understood"),
                );
            }
            let keeper = failing.keeper();
            drop(failing);
            assert!(collect(&pool, keeper).await.is_some());
            Backend::start("exit 0").await.leave(&pool).await;
        }
        assert_eq!(open_descriptors(), before);
        assert_eq!(zombies(), 0);
        in_time("the end of the queue", pool.idle()).await;
    });
}

/// A backend costs four descriptors.
#[test]
fn a_backend_costs_four_descriptors() {
    if !alone("process::keeper::a_backend_costs_four_descriptors") {
        return;
    }
    on_runtime(async {
        let pool = pool();
        Backend::start("exit 0").await.leave(&pool).await;
        let before = open_descriptors();
        let backend = Backend::start("sleep").await;
        assert_eq!(open_descriptors(), before + 4);
        backend.step(&pool, ReapStep::Kill).await;
        backend.leave(&pool).await;
    });
}

/// A future given up in the middle loses nothing.
#[test]
fn waiting_for_news_can_be_given_up() {
    on_runtime(async {
        let pool = pool();
        let plan = launch(new_session(), &[TREE_AGENT, "exit 5"]);
        let program = KeeperProgram::at(Path::new(KEEPER));
        let mut link = KeeperLink::spawn(&program, new_session(), plan)
            .await
            .expect("a keeper");
        let mut events = Vec::new();
        in_time("three events", async {
            while events.len() < 3 {
                let next = tokio::time::timeout(Duration::from_micros(1), link.next_message());
                if let Ok(event) = next.await {
                    events.push(event.expect("understood").expect("not gone"));
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(matches!(
            events[..],
            [
                KeeperEvent::Started { .. },
                KeeperEvent::Exited(ExitStatus::Code(5)),
                KeeperEvent::Empty
            ]
        ));
        link.send(ToKeeper::Leave).await.expect("a keeper");
        assert!(collect(&pool, link.keeper()).await.is_some());
    });
}

/// The queue is bounded, refuses when full, and what was accepted is replied to.
#[test]
fn a_full_queue_refuses_and_what_it_took_is_done() {
    let pool = ReaperPool::start(1, 1).expect("a thread");
    let (reply, replies) = crossbeam_channel::unbounded();
    let (release, wait) = crossbeam_channel::bounded::<()>(0);
    let (entered, started) = crossbeam_channel::bounded::<()>(0);
    let first = reply.clone();
    pool.measure(
        Vec::new(),
        Box::new(move |usage| {
            entered.send(()).expect("the test listens");
            wait.recv().expect("the test speaks");
            first.send(usage).expect("the test listens");
        }),
    )
    .expect("room");
    started.recv_timeout(PATIENCE).expect("the thread runs");
    let second = reply.clone();
    let queued = pool.measure(Vec::new(), Box::new(move |usage| drop(second.send(usage))));
    assert_eq!(queued, Ok(()));
    assert_eq!(pool.measure(Vec::new(), Box::new(|_| ())), Err(Full));
    release.send(()).expect("the thread listens");
    on_runtime(in_time("the end of the queue", pool.idle()));
    drop(reply);
    assert_eq!(replies.iter().count(), 2);
}
