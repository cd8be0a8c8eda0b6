//! What outlives a release, and who hears of what did not (behaviour 146, D09).

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Output;
use std::sync::atomic::{AtomicU16, Ordering};

use drowse::process::cgroup::place::Cgroups;
use drowse_messages::{KeptReport, Reason, SessionEvent, SessionState, Who};
use drowse_tests::wait::CEILING;
use drowse_tests::{ProcIdentity, TestDaemon, daemon, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A port that the kernel gives to nobody by itself: another one in each test process, and each time
/// in one that runs many tests.
fn own_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 4000).expect("below 4000");
    10_000 + 4 * own + GIVEN.fetch_add(1, Ordering::Relaxed)
}

fn rule(port: u16) -> String {
    format!("[\"listen:{port}\"]")
}

/// The newest `count` children of the fake agents: who they are, and their log entries.
fn children(daemon: &TestDaemon, count: usize) -> Vec<(ProcIdentity, Value)> {
    let all = daemon.fake().wait_events("child", count);
    let who = |entry: Value| {
        let who = ProcIdentity::parse(entry["who"].as_str()?)?;
        Some((who, entry))
    };
    all.into_iter().filter_map(who).collect()
}

fn is_listening(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ran(daemon: &TestDaemon, args: &[&str]) -> Output {
    let output = daemon.run(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    output
}

fn kept(daemon: &TestDaemon) -> Vec<KeptReport> {
    daemon.get(async |client| client.kept().await)
}

fn kept_pids(daemon: &TestDaemon) -> Vec<i32> {
    let pid = |report: &KeptReport| report.kept.process.identity.pid();
    kept(daemon).iter().map(pid).collect()
}

/// A session that was released while a server of its own ran, which is kept by a rule.
fn released(daemon: &TestDaemon, port: u16) -> (String, ProcIdentity) {
    let id = daemon.open("fake");
    daemon.say(&id, &format!("FAKE:spawn server:{port}"));
    let (server, _) = children(daemon, 1)[0];
    daemon.wait_state(&id, SessionState::Released);
    assert_eq!(kept_pids(daemon), [server.pid]);
    (id, server)
}

/// D09, D17: two servers, one of them declared. It outlives the release and the wake, with its
/// port, and is listed with its owner; the other one is ended, its port is free, and the next
/// wake names it. An order to stop all ends what is kept.
#[test]
fn a_declared_server_outlives_a_release_and_the_other_is_named() {
    let port = own_port();
    let daemon = daemon!("keep")
        .env("DROWSE_SESSION__KEEP", &rule(port))
        .start();
    let id = daemon.open("fake");
    daemon.say(
        &id,
        &format!("FAKE:spawn server:{port}\nFAKE:spawn server:0"),
    );
    let all = children(&daemon, 2);
    let ((keepme, _), (dev, entry)) = (&all[0], &all[1]);
    let dev_port = u16::try_from(entry["port"].as_u64().unwrap()).unwrap();
    let report = daemon.wait_state(&id, SessionState::Released);

    assert!(keepme.is_alive() && is_listening(port));
    assert!(!dev.is_alive() && is_free(dev_port));
    let end = report.end.unwrap();
    assert_eq!(end.servers.len(), 1, "{end:?}");
    assert_eq!(end.servers[0].listens, [dev_port]);
    assert_eq!(end.kept[0].process.identity.pid(), keepme.pid);
    let listed = &kept(&daemon)[0];
    assert_eq!(listed.session.to_string(), id);
    assert_eq!(listed.kept.process.listens, [port]);
    assert_eq!(listed.kept.rule.to_string(), format!("listen:{port}"));
    assert!(listed.outlives);
    let ps = text(&ran(&daemon, &["ps"]).stdout);
    let row = ps
        .lines()
        .find(|line| line.starts_with(&keepme.pid.to_string()));
    assert!(row.is_some_and(|row| row.contains(&id)), "{ps}");
    for verb in ["show", "explain"] {
        let shown = text(&ran(&daemon, &[verb, &id]).stdout);
        assert!(shown.contains(&format!("port {port}")), "{shown}");
        assert!(shown.contains(&format!("port {dev_port}")), "{shown}");
    }

    let sent = ran(&daemon, &["send", &id, "FAKE:say back"]);
    let notice = format!(
        "(pid {}, port {dev_port}); keep such a server with keep = [\"listen:{dev_port}\"] or \
         drowse keep",
        dev.pid
    );
    let said = text(&sent.stderr);
    assert!(said.contains(&notice), "{said}");
    assert_eq!(text(&sent.stdout), "SAID back (user turns seen: 2)\n");
    let woken = |event: &SessionEvent| {
        matches!(event, SessionEvent::Woken { reason: Reason::Idle, by: Who::Rule, processes, .. }
            if processes.iter().any(|it| it.identity.pid() == dev.pid))
    };
    assert_eq!(daemon.count(&id, woken), 1);
    daemon.wait_state(&id, SessionState::Released);
    assert!(keepme.is_alive() && is_listening(port), "across the wake");

    let stopped = text(&ran(&daemon, &["stop", "--all", &id]).stdout);
    assert!(stopped.contains("ended what was kept"), "{stopped}");
    assert!(!keepme.is_alive() && is_free(port));
    assert!(kept_pids(&daemon).is_empty());
    daemon.wait_gone(&id);
}

/// By hand, by its number or its port; what cannot be kept is refused in words (D12).
#[test]
fn a_process_is_kept_by_hand() {
    let daemon = daemon!("keep-hand").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(
        &id,
        "FAKE:spawn server:0\nFAKE:spawn server:0\nFAKE:spawn plain",
    );
    let all = children(&daemon, 3);
    let (by_pid, by_port, other) = (&all[0].0, &all[1].0, &all[2].0);
    let report = daemon.report(&id).awake.unwrap();
    let (agent, keeper) = (report.agent_pid.unwrap(), report.keeper.unwrap().pid());
    let me = i32::try_from(std::process::id()).unwrap();
    for (pid, words) in [
        (agent, "is the agent of session"),
        (keeper, "is a keeper"),
        (me, "belongs to no session"),
        (daemon.identity().pid, "is drowse itself"),
        (i32::MAX, "there is no process"),
        (1, "not the number of a process"),
        (0, "not the number of a process"),
        (-1, "not the number of a process"),
    ] {
        let output = daemon.run(&["keep", &pid.to_string()]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{pid}: {said}");
        assert!(said.contains(words), "{pid}: {said}");
    }
    let nobody = daemon.run(&["keep", "--listen", &own_port().to_string()]);
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");

    let output = ran(&daemon, &["keep", &by_pid.pid.to_string(), "--json"]);
    let kept: KeptReport = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (kept.session.to_string(), kept.outlives),
        (id.clone(), false)
    );
    let port = all[1].1["port"].as_u64().unwrap().to_string();
    ran(
        &daemon,
        &["keep", "--listen", &port, "--session", &id, "--ttl", "1h"],
    );
    let freed = text(&ran(&daemon, &["release", &id]).stdout);
    assert!(freed.contains("kept: "), "{freed}");
    assert!(by_pid.is_alive() && by_port.is_alive() && !other.is_alive());
    let mut pids = kept_pids(&daemon);
    pids.sort_unstable();
    let mut both = [by_pid.pid, by_port.pid];
    both.sort_unstable();
    assert_eq!(pids, both);
    // One of two ends by itself: it is not listed, and the other one goes on.
    by_port.signal(Signal::SIGKILL);
    by_port.wait_gone();
    assert_eq!(kept_pids(&daemon), [by_pid.pid]);
    ran(&daemon, &["rm", &id]);
    assert!(!by_pid.is_alive(), "it ends with its session");
    daemon.wait_gone(&id);
}

/// What is kept for a time ends with it, though its session sleeps. The time is given once it
/// sleeps: a slow machine must not spend it before.
#[test]
fn a_time_to_live_ends_a_kept_process() {
    let daemon = daemon!("keep-ttl").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:spawn server:0\nFAKE:spawn server:0");
    let all = children(&daemon, 2);
    let pids: Vec<String> = all.iter().map(|(it, _)| it.pid.to_string()).collect();
    for pid in &pids {
        ran(&daemon, &["keep", pid]);
    }
    daemon.wait_state(&id, SessionState::Released);
    let (short, long) = (&all[0].0, &all[1].0);
    assert!(short.is_alive() && long.is_alive());
    let by_rule =
        |event: &SessionEvent| matches!(event, SessionEvent::KeptEnded { by: Who::Rule, .. });
    // The first one ends alone, though both have one keeper.
    for (nth, process) in [(1, short), (2, long)] {
        ran(
            &daemon,
            &["keep", &process.pid.to_string(), "--ttl", "100ms"],
        );
        process.wait_gone();
        daemon.wait_event(&id, "the end of what was kept", nth, by_rule);
        assert_eq!(long.is_alive(), nth == 1);
    }
    assert_eq!(daemon.report(&id).state, SessionState::Released);
    assert!(kept_pids(&daemon).is_empty());
    daemon.wait_gone(&id);
}

/// A daemon that is killed leaves what is kept alone; the next one lists it, and hears of its end.
#[test]
fn what_is_kept_outlives_a_killed_daemon() {
    let port = own_port();
    let mut daemon = daemon!("keep-kill9")
        .env("DROWSE_SESSION__KEEP", &rule(port))
        .start();
    let (id, server) = released(&daemon, port);
    for _ in 0..2 {
        daemon.kill9();
        assert!(server.is_alive() && is_listening(port));
        daemon.restart();
        wait_until("what is kept to be listed", CEILING, || {
            (kept_pids(&daemon) == [server.pid]).then_some(())
        });
        assert!(server.is_alive());
    }
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
    server.signal(Signal::SIGKILL);
    let by_itself = |event: &SessionEvent| {
        matches!(
            event,
            SessionEvent::KeptEnded {
                by: Who::Outside,
                ..
            }
        )
    };
    daemon.wait_event(&id, "the end of what was kept", 1, by_itself);
    daemon.wait_state(&id, SessionState::Released);
    daemon.wait_gone(&id);
}

/// It can be ended by the daemon that did not start it.
#[test]
fn the_next_daemon_can_end_what_is_kept() {
    let port = own_port();
    let mut daemon = daemon!("keep-end")
        .env("DROWSE_SESSION__KEEP", &rule(port))
        .start();
    let (id, server) = released(&daemon, port);
    daemon.kill9();
    daemon.restart();
    ran(&daemon, &["stop", "--all", &id]);
    assert!(!server.is_alive() && is_free(port));
    daemon.wait_gone(&id);
}

/// A restart on purpose leaves what is kept alone, also while its session is awake.
#[test]
fn what_is_kept_outlives_a_restart() {
    let port = own_port();
    let daemon = daemon!("keep-restart")
        .env("DROWSE_SESSION__KEEP", &rule(port))
        .start();
    let (id, server) = released(&daemon, port);
    for text in ["FAKE:say awake", "FAKE:say again"] {
        daemon.say(&id, text);
        ran(&daemon, &["restart"]);
        wait_until("what is kept to be listed", CEILING, || {
            (kept_pids(&daemon) == [server.pid]).then_some(())
        });
        assert!(is_listening(port));
        daemon.wait_state(&id, SessionState::Released);
    }
    ran(&daemon, &["stop", "--all", &id]);
    assert!(!server.is_alive() && is_free(port));
    daemon.wait_gone(&id);
}

/// F 87: the end of the daemon leaves nothing, and its code says so.
#[test]
fn a_shutdown_ends_what_is_kept() {
    let port = own_port();
    let mut daemon = daemon!("keep-term")
        .env("DROWSE_SESSION__KEEP", &rule(port))
        .start();
    let (id, server) = released(&daemon, port);
    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(!server.is_alive());
    assert!(daemon.marked().is_empty(), "a tree outlived the daemon");
    daemon.restart();
    assert!(kept_pids(&daemon).is_empty());
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
}

/// `npm run dev`: a launcher, a shell and a server in a group of their own stay together, and end
/// together.
#[test]
fn a_command_is_kept_whole() {
    let port = own_port();
    let daemon = daemon!("keep-chain")
        .env("DROWSE_SESSION__KEEP", &rule(port))
        .start();
    let id = daemon.open("fake");
    daemon.say(&id, &format!("FAKE:spawn command:{port}"));
    let chain = children(&daemon, 3);
    daemon.wait_state(&id, SessionState::Released);
    for (process, entry) in &chain {
        assert!(process.is_alive(), "{entry}");
    }
    assert!(is_listening(port));
    let listed = kept(&daemon);
    assert_eq!(listed.len(), 1, "it is one command: {listed:?}");
    assert_eq!(listed[0].kept.process.listens, [port]);
    ran(&daemon, &["stop", "--all", &id]);
    for (process, entry) in &chain {
        assert!(!process.is_alive(), "{entry}");
    }
    daemon.wait_gone(&id);
}

/// The agent is killed: what is kept goes on, and the next one finds it running.
#[test]
fn a_crash_of_the_agent_keeps() {
    let port = own_port();
    let daemon = daemon!("keep-crash")
        .env("DROWSE_SESSION__KEEP", &rule(port))
        .start();
    let id = daemon.open("fake");
    daemon.say(&id, &format!("FAKE:spawn server:{port}"));
    let (server, _) = children(&daemon, 1)[0];
    daemon.agent(&id).signal(Signal::SIGKILL);
    wait_until("what is kept to be listed", CEILING, || {
        (kept_pids(&daemon) == [server.pid]).then_some(())
    });
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
    assert!(server.is_alive() && is_listening(port));
    ran(&daemon, &["rm", &id]);
    assert!(!server.is_alive());
}

/// A kept process whose keeper is killed has no owner: it is ended, never lost.
#[test]
fn what_a_killed_keeper_kept_is_ended() {
    let port = own_port();
    let daemon = daemon!("keep-lost")
        .env("DROWSE_SESSION__KEEP", &rule(port))
        .start();
    let (id, server) = released(&daemon, port);
    let keeper = drowse_tests::process::ProcStat::read(server.pid)
        .unwrap()
        .parent;
    ProcIdentity::of(keeper).unwrap().signal(Signal::SIGKILL);
    server.wait_gone();
    wait_until("nothing to be kept", CEILING, || {
        kept_pids(&daemon).is_empty().then_some(())
    });
    daemon.wait_gone(&id);
    // Its keeper would have removed it.
    if let Ok(cgroups) = Cgroups::look(&daemon.state_dir().display().to_string()) {
        wait_until("no cgroup to be left", CEILING, || {
            (!cgroups.folder().exists()).then_some(())
        });
    }
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
}
