//! Whole trees end: whatever a process did to escape, and nobody else's process.

use std::process::{Command, Stdio};
use std::time::Duration;

use drowse_messages::{ExitStatus, MessageState, Reason, SessionEvent, SessionState};
use drowse_tests::{ProcIdentity, TestDaemon, daemon};

/// The children the fake agents' log names.
fn children(daemon: &TestDaemon, count: usize) -> Vec<ProcIdentity> {
    let children = daemon.fake().wait_events("child", count);
    let who = |child: &serde_json::Value| ProcIdentity::parse(child["who"].as_str()?);
    children.iter().filter_map(who).collect()
}

fn assert_gone(processes: &[ProcIdentity]) {
    let left: Vec<_> = processes
        .iter()
        .filter(|p| p.is_alive())
        .map(ToString::to_string)
        .collect();
    assert!(left.is_empty(), "still alive: {left:?}");
}

/// Behaviours 45 to 49, 97, D01: agent, launcher and a server that goes on after its stdin ended.
/// The report names each with its start time.
#[test]
fn a_launcher_and_its_server_end_with_the_agent() {
    let daemon = daemon!("launcher").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:spawn launcher\nFAKE:spawn double-fork");
    let tree = children(&daemon, 3);
    let end = daemon
        .wait_state(&id, SessionState::Released)
        .end
        .expect("it says why");
    assert_gone(&tree);
    for process in &tree {
        let named = end.processes.iter().any(|named| {
            (named.identity.pid(), named.identity.start_ticks())
                == (process.pid, process.start_time)
        });
        assert!(named, "{process} is not in {end:?}");
    }
    assert_eq!(end.processes.len(), 4);
    daemon.wait_gone(&id);
}

/// Behaviours 48, 49, 55, D03: 20 processes in sessions of their own, whose leaders are gone; a
/// stranger that looks just like them, and another session's, are left alone.
#[test]
fn processes_of_vanished_leaders_end_and_strangers_do_not() {
    let daemon = daemon!("setsid").start();
    let mut stranger = Command::new(daemon.fake().program())
        .args(["--child", "setsid", "stranger"])
        .envs(daemon.agent_env())
        .stdin(Stdio::null())
        .spawn()
        .expect("the fake agent was built with the tests");
    let stranger_is = children(&daemon, 1)[0];
    let mut long = daemon.new_session("fake");
    long.limits.insert("idle_after".into(), "1h".into());
    let neighbour = daemon.open_as(&long);
    daemon.say(&neighbour, "FAKE:spawn double-fork");
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:spawn double-fork 20");
    let all = children(&daemon, 22);
    daemon.wait_state(&id, SessionState::Released);
    assert_gone(&all[2..]);
    assert!(all[1].is_alive(), "another session's process was ended");
    assert!(stranger_is.is_alive(), "a stranger was ended");
    daemon.get(async |client| client.stop(&neighbour).await);
    daemon.wait_gone(&neighbour);
    stranger.kill().expect("it is ours and alive");
    stranger.wait().expect("it is ours");
}

/// Behaviours 50, 54, D02, D04: leaves that ignore SIGTERM, also when their parent dies of it, and
/// a child that is born of it.
#[test]
fn who_ignores_sigterm_or_is_born_of_it_ends_too() {
    let daemon = daemon!("term").start();
    let id = daemon.open("fake");
    daemon.say(
        &id,
        "FAKE:spawn mid\nFAKE:spawn ignore-term 2\nFAKE:spawn term-forks",
    );
    children(&daemon, 5);
    let end = daemon
        .wait_state(&id, SessionState::Released)
        .end
        .expect("it says why");
    assert!(end.survivors.is_empty(), "{end:?}");
    let all = children(&daemon, 6);
    assert_gone(&all);
    let named = |process: &ProcIdentity| {
        let found = end
            .processes
            .iter()
            .find(|p| p.identity.pid() == process.pid);
        found.unwrap_or_else(|| panic!("{process} is not in {end:?}"))
    };
    // The first five were there before; the last was born in the grace, and found after it.
    assert!(
        all[..5]
            .iter()
            .all(|p| named(p).scan == 0 && named(p).signal.is_some())
    );
    assert!(
        named(&all[5]).scan >= 2 && named(&all[5]).signal == Some(9),
        "{end:?}"
    );
    assert!(all.iter().any(|p| named(p).signal == Some(15)), "{end:?}");
    daemon.wait_gone(&id);
}

/// Behaviours 50, 58, D05: an agent deaf to EOF and SIGTERM. The steps come in order, and all of it
/// is bounded by the graces.
#[test]
fn a_deaf_agent_is_ended_step_by_step() {
    let daemon = daemon!("deaf").start();
    let id = daemon.open_behaving("fake", &[("ignore_eof", "1"), ("ignore_term", "1")]);
    daemon.say(&id, "FAKE:say hello");
    let report = daemon.wait_state(&id, SessionState::Released);
    let end = report.end.expect("it says why");
    assert_eq!(end.reason, Reason::Idle);
    // The walk that finds nobody left can be faster than the keeper's word, which is waited for.
    assert_eq!(end.status, Some(ExitStatus::Signal(9)));
    let begun = daemon.time_of(&id, "ending", |e| matches!(e, SessionEvent::Ending { .. }));
    let done = daemon.time_of(&id, "released", |e| {
        matches!(e, SessionEvent::Released { .. })
    });
    assert!(
        (600..5000).contains(&(done - begun)),
        "took {} ms",
        done - begun
    );
    let at = |event: &str| daemon.fake().events(event)[0]["at_ms"].as_u64();
    assert!(
        at("eof") <= at("term"),
        "SIGTERM came before the end of stdin"
    );
    assert!(
        at("term") >= Some(begun + 300),
        "SIGTERM came before eof_grace had passed"
    );
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
    daemon.fake().assert_never_two();
}

/// D28: an agent that writes its conversation 1.5 s after it was told to end loses nothing, on any
/// path to its end.
#[test]
fn an_agent_may_finish_writing_on_every_path() {
    let mut daemon = daemon!("flush")
        .limit("eof_grace", "5s")
        .limit("idle_after", "1h")
        .start();
    let slow = [("flush_after_eof_ms", "1500")];
    let ids: Vec<String> = (0..4)
        .map(|_| daemon.open_behaving("fake", &slow))
        .collect();
    let mut idle = daemon.new_session("fake");
    idle.limits.insert("idle_after".into(), "100ms".into());
    idle.env
        .insert("FAKE_AGENT_FLUSH_AFTER_EOF_MS".into(), "1500".into());
    let idle = daemon.open_as(&idle);
    for id in ids.iter().chain([&idle]) {
        daemon.say(id, "FAKE:say one");
    }
    daemon.get(async |client| client.release(&ids[0]).await);
    daemon.get(async |client| client.stop(&ids[1]).await);
    daemon.wait_state(&ids[0], SessionState::Released);
    daemon.wait_state(&ids[1], SessionState::Stopped);
    daemon.wait_state(&idle, SessionState::Released);
    // The other two are awake when the daemon ends; they are ended at once, not one by one.
    assert!(daemon.terminate().success());
    assert_eq!(daemon.fake().events("stop").len(), 5);
    daemon.restart();
    for id in ids.iter().chain([&idle]) {
        assert_eq!(
            daemon.say(id, "FAKE:say two"),
            "SAID two (user turns seen: 2)"
        );
    }
}

/// Behaviour 59: a release, a stop and a second stop at once are one teardown.
#[test]
fn concurrent_stops_join_one_teardown() {
    let daemon = daemon!("join").limit("idle_after", "1h").start();
    let id = daemon.open_behaving("fake", &[("die_slowly_ms", "300")]);
    daemon.say(&id, "FAKE:say hello");
    daemon.get(async |client| client.release(&id).await);
    daemon.get(async |client| client.stop(&id).await);
    daemon.get(async |client| client.stop(&id).await);
    let report = daemon.wait_state(&id, SessionState::Stopped);
    assert_eq!(report.end.map(|end| end.reason), Some(Reason::Stopped));
    assert_eq!(
        daemon.count(&id, |e| matches!(e, SessionEvent::Released { .. })),
        1
    );
    assert_eq!(daemon.fake().events("stop").len(), 1);
}

/// Behaviour 90: a stop in mid-turn ends that session's work and no other's.
#[test]
fn a_stop_in_mid_turn_ends_that_session_only() {
    let daemon = daemon!("stop").limit("idle_after", "1h").start();
    let (id, other) = (daemon.open("fake"), daemon.open("fake"));
    let working = daemon.post(&id, "FAKE:slow 30");
    let others = daemon.post(&other, "FAKE:slow 1\nFAKE:say done");
    daemon.fake().wait_events("turn", 2);
    daemon.get(async |client| client.stop(&id).await);
    let report = daemon.wait_state(&id, SessionState::Stopped);
    let end = report.end.expect("it says why");
    // The turn was interrupted first, so that its outcome is known.
    assert!(!end.mid_turn && end.reason == Reason::Stopped, "{end:?}");
    let working = daemon.settled(working);
    assert_eq!(
        (working.state, &*working.answer),
        (MessageState::Failed, "interrupted")
    );
    assert_eq!(
        daemon.settled(others).answer,
        "SAID done (user turns seen: 1)"
    );
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
}

/// Sessions of the test below, with three sidecars each: 200 processes, and their keepers.
const MANY: usize = 50;

/// D07, D20: 50 sessions whose agents started three helpers each, one of them always a little
/// busy, are all released within 10 s of their turns, and remember.
#[test]
fn many_sessions_with_sidecars_are_all_released() {
    let daemon = daemon!("many").limit("idle_after", "2s").start();
    let sidecars = [("sidecars", r#"["plain","server:0","warm"]"#)];
    let ids: Vec<String> = (0..MANY)
        .map(|_| daemon.open_behaving("fake", &sidecars))
        .collect();
    let sent: Vec<_> = ids
        .iter()
        .map(|id| daemon.post(id, &format!("FAKE:say {id}")))
        .collect();
    for message in sent {
        let message = daemon.settled(message);
        assert!(message.answer.contains("user turns seen: 1"), "{message:?}");
    }
    let asleep = drowse_tests::wait::comes_true(Duration::from_secs(10), || {
        let status = daemon.get(async |client| client.status().await);
        status.backends == 0
    });
    assert!(asleep, "not all were released within 10 s");
    let everyone = daemon.fake().everyone();
    assert_eq!(everyone.len(), MANY * 4);
    assert_gone(&everyone);
    for id in &ids {
        assert_eq!(daemon.report(id).state, SessionState::Released);
    }
    for id in ids.iter().step_by(11) {
        let answer = daemon.say(id, "FAKE:say again");
        assert_eq!(answer, "SAID again (user turns seen: 2)");
    }
}
