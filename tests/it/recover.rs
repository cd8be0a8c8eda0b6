//! The daemon's own end, asked for or not, and what the next one makes of what it left.

use std::process::{Command, Stdio};
use std::time::Duration;

use drowse_messages::{MessageState, Reason, SessionState};
use drowse_tests::{ProcIdentity, TestDaemon, daemon, wait_until};
use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::json;

/// Agents do not outlive their daemon.
const ENDS_WITH_DAEMON: &str = "[server]\norphan_grace = \"off\"\n";

fn interrupted_turns(daemon: &TestDaemon) -> usize {
    let ends = daemon.fake().events("turn_end");
    ends.iter().filter(|end| end["failed"] == true).count()
}

/// Behaviours 21, 60, 87, D28: SIGTERM interrupts who works, once, ends all trees and exits with 0;
/// what waited is delivered by the next daemon, and nothing else is started.
#[test]
fn sigterm_drains_and_the_next_daemon_delivers_what_waited() {
    let mut daemon = daemon!("drain").limit("idle_after", "1h").start();
    let (working, resting) = (daemon.open("fake"), daemon.open("fake"));
    daemon.say(&resting, "FAKE:spawn setsid 2");
    let in_flight = daemon.post(&working, "FAKE:spawn ignore-term\nFAKE:slow 30");
    daemon.fake().wait_events("child", 3);
    let waiting = daemon.post(&working, "FAKE:say later");
    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(daemon.marked().is_empty(), "a tree outlived the daemon");
    assert!(daemon.processes(&working).is_empty() && daemon.processes(&resting).is_empty());
    assert_eq!(interrupted_turns(&daemon), 1);

    daemon.restart();
    let outcome = daemon.message(in_flight);
    assert!(
        matches!(outcome.state, MessageState::Failed | MessageState::Unknown),
        "{outcome:?}"
    );
    assert_eq!(
        daemon.settled(waiting).answer,
        "SAID later (user turns seen: 2)"
    );
    assert_eq!(daemon.report(&resting).state, SessionState::Released);
    assert_eq!(daemon.fake().events("start").len(), 3);
    daemon.fake().assert_never_two();
}

/// Behaviours 83 to 86, 99, D41: where agents are to end with their daemon, it is killed with one
/// session in mid-turn, one at rest and one held by a task. Keepers end their trees within the
/// graces; the next daemon starts nothing by itself, reports the message in flight as unknown, and
/// every session answers.
#[test]
fn after_a_kill_no_process_is_left_and_no_message_repeated() {
    let mut daemon = daemon!("kill9")
        .limit("idle_after", "1h")
        .config(ENDS_WITH_DAEMON)
        .start();
    let ids: Vec<String> = (0..3).map(|_| daemon.open("fake")).collect();
    for id in &ids {
        daemon.say(id, "FAKE:spawn setsid\nFAKE:spawn ignore-term");
    }
    let in_flight = daemon.post(&ids[0], "FAKE:slow 30");
    daemon.say(&ids[2], "FAKE:bg 60");
    daemon.fake().wait_events("turn", 5);
    daemon.kill9();
    for id in &ids {
        wait_until(
            "the keepers to end their trees",
            Duration::from_secs(5),
            || daemon.processes(id).is_empty().then_some(()),
        );
    }
    assert!(daemon.marked().is_empty());

    daemon.restart();
    let states: Vec<SessionState> = ids.iter().map(|id| daemon.report(id).state).collect();
    let slept = SessionState::Released;
    assert_eq!(states, [SessionState::Interrupted, slept, slept]);
    assert_eq!(daemon.message(in_flight).state, MessageState::Unknown);
    daemon.let_windows_pass(0);
    assert_eq!(
        daemon.fake().events("start").len(),
        3,
        "nothing starts by itself"
    );
    for (id, turns) in ids.iter().zip([3, 2, 3]) {
        assert_eq!(
            daemon.say(id, "FAKE:say on"),
            format!("SAID on (user turns seen: {turns})")
        );
    }
    daemon.fake().assert_never_two();
}

/// Behaviour 86, D41: a keeper that cannot act (it is stopped) leaves its tree to the next daemon,
/// which ends it before anything else.
#[test]
fn the_next_daemon_ends_what_a_stopped_keeper_left() {
    let mut daemon = daemon!("leftover").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:spawn setsid\nFAKE:spawn double-fork");
    let keeper = daemon
        .report(&id)
        .awake
        .and_then(|awake| awake.keeper)
        .expect("it runs");
    let keeper = ProcIdentity {
        pid: keeper.pid(),
        start_time: keeper.start_ticks(),
    };
    keeper.signal(Signal::SIGSTOP);
    daemon.kill9();
    assert_eq!(daemon.marked().len(), 3);
    daemon.restart();
    assert!(
        daemon
            .marked()
            .iter()
            .all(|process| *process == daemon.identity())
    );
    daemon.wait_gone(&id);
    let report = daemon.report(&id);
    assert_eq!(report.state, SessionState::Released);
    assert_eq!(
        report.end.map(|end| end.reason),
        Some(Reason::DaemonShutdown)
    );
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
    daemon.fake().assert_never_two();
}

/// Behaviours 51, 52, D11, D12: records of processes that are not what they say, or name what no
/// record may name, are closed and nobody is signalled.
#[test]
fn records_that_do_not_fit_are_never_signalled() {
    let mut daemon = daemon!("records").start();
    let mut stranger = Command::new(daemon.fake().program())
        .args(["--child", "plain", "stranger"])
        .envs(daemon.agent_env())
        .stdin(Stdio::null())
        .spawn()
        .expect("the fake agent was built with the tests");
    daemon.fake().wait_events("child", 1);
    let pid = i32::try_from(stranger.id()).unwrap();
    let who = ProcIdentity::of(pid).expect("it runs");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let record = |boot: &str, pid: i64, start: u64| {
        let process = json!({ "boot_id": boot, "process": { "pid": pid, "start_ticks": start } });
        json!({ "keeper": process, "agent": process }).to_string()
    };
    let me = i64::from(std::process::id());
    let my_start = ProcIdentity::me().start_time;
    let mut records = vec![
        record(boot.trim(), i64::from(pid), who.start_time + 1),
        record(
            "00000000-0000-4000-8000-000000000000",
            i64::from(pid),
            who.start_time,
        ),
        record("00000000-0000-4000-8000-000000000000", me, my_start),
        String::new(),
        "text".to_owned(),
        "{}".to_owned(),
    ];
    records.extend([0, 1, -1, -5, 1 << 31].map(|pid| record(boot.trim(), pid, 7)));
    let ids: Vec<String> = records.iter().map(|_| daemon.open("fake")).collect();
    for id in &ids {
        daemon.say(id, "FAKE:say one");
    }
    for id in &ids {
        daemon.wait_state(id, SessionState::Released);
    }
    assert!(daemon.terminate().success());
    let database = Connection::open(daemon.state_dir().join("drowse.db")).unwrap();
    for (id, record) in ids.iter().zip(&records) {
        let id: drowse_messages::SessionId = id.parse().unwrap();
        let id = i64::try_from(id.as_u64()).unwrap();
        let changed = database
            .execute(
                "UPDATE sessions SET running = ?2, state = 'resting' WHERE id = ?1",
                (id, record),
            )
            .unwrap();
        assert_eq!(changed, 1);
    }
    drop(database);
    daemon.restart();
    for id in &ids {
        let report = daemon.report(id);
        assert_eq!(report.state, SessionState::Released, "{report:?}");
        assert_eq!(
            daemon.say(id, "FAKE:say two"),
            "SAID two (user turns seen: 2)"
        );
    }
    assert!(who.is_alive(), "a stranger was signalled");
    stranger.kill().expect("it is ours and alive");
    stranger.wait().expect("it is ours");
}

/// D52: a second daemon on the same folder ends at once and names the first.
#[test]
fn a_second_daemon_on_one_folder_names_the_first() {
    let daemon = daemon!("second").start();
    let output = daemon.run(&["serve"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(&format!("pid {}", daemon.identity().pid)),
        "{said}"
    );
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say undisturbed");
}

/// Behaviour 85: a second kill and start changes nothing more.
#[test]
fn a_second_recovery_changes_nothing() {
    let mut daemon = daemon!("again")
        .limit("idle_after", "1h")
        .config(ENDS_WITH_DAEMON)
        .start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    let message = daemon.post(&id, "FAKE:slow 30");
    daemon.fake().wait_events("turn", 2);
    daemon.kill9();
    daemon.restart();
    let first = (daemon.report(&id), daemon.message(message));
    daemon.kill9();
    daemon.restart();
    assert_eq!((daemon.report(&id), daemon.message(message)), first);
    daemon.wait_gone(&id);
}
