//! Many at once, and often: what holds for one session holds for dozens, and for the hundredth time.

use std::fs;
use std::time::{Duration, Instant};

use drowse_messages::{MessageState, SessionEvent, SessionState};
use drowse_tests::wait::comes_true;
use drowse_tests::{ProcIdentity, TestDaemon, daemon};
use nix::sys::signal::Signal;

/// Lets time go by: for what must not happen meanwhile.
fn let_pass(time: Duration) {
    let end = Instant::now() + time;
    assert!(comes_true(time * 10, || Instant::now() >= end));
}

fn released(daemon: &TestDaemon, ids: &[String]) -> usize {
    let is_release = |event: &SessionEvent| matches!(event, SessionEvent::Released { .. });
    ids.iter().map(|id| daemon.count(id, is_release)).sum()
}

/// Sessions of the test below.
const AT_REST: usize = 6;

/// D23: a daemon that was stopped for more than three windows releases nobody when it goes on: each
/// session gets a whole window of its own, and then they go.
#[test]
fn a_daemon_that_stood_still_releases_nobody_at_once() {
    let idle_after = Duration::from_secs(2);
    let daemon = daemon!("still").limit("idle_after", "2s").start();
    let ids: Vec<String> = (0..AT_REST).map(|_| daemon.open("fake")).collect();
    let sent: Vec<_> = ids
        .iter()
        .map(|id| daemon.post(id, "FAKE:say hello"))
        .collect();
    for message in sent {
        daemon.settled(message);
    }
    daemon.identity().signal(Signal::SIGSTOP);
    // A deadline that is missed by 5 s proves that the daemon did not run.
    let_pass(idle_after * 3 + Duration::from_secs(2));
    daemon.identity().signal(Signal::SIGCONT);
    let thawed = Instant::now();
    let mut quiet = idle_after;
    while thawed.elapsed() < idle_after / 2 {
        assert_eq!(
            released(&daemon, &ids),
            0,
            "{:?} after it went on",
            thawed.elapsed()
        );
        for id in &ids {
            let awake = daemon.report(id).awake.expect("it is not released");
            let left = awake.releases_in_ms.expect("nothing holds it");
            quiet = quiet.min(Duration::from_millis(left));
        }
    }
    assert!(quiet > Duration::ZERO, "one was due at once");
    for id in &ids {
        daemon.wait_state(id, SessionState::Released);
    }
}

/// Sessions of the test below.
const FLUSHING: usize = 24;

/// D28: 24 agents that take 1.5 s to write their conversations after the end of stdin: all of them
/// do when the daemon ends, and all at the same time.
#[test]
fn a_daemon_that_ends_waits_for_all_agents_at_once() {
    let mut daemon = daemon!("flushing")
        .limit("eof_grace", "8s")
        .limit("idle_after", "1h")
        .start();
    let slow = [("flush_after_eof_ms", "1500")];
    let ids: Vec<String> = (0..FLUSHING)
        .map(|_| daemon.open_behaving("fake", &slow))
        .collect();
    let sent: Vec<_> = ids
        .iter()
        .map(|id| daemon.post(id, &format!("FAKE:say {id}")))
        .collect();
    for message in sent {
        assert_eq!(daemon.settled(message).state, MessageState::Answered);
    }
    let begun = Instant::now();
    assert_eq!(daemon.terminate().code(), Some(0));
    let took = begun.elapsed();
    assert!(
        took < Duration::from_millis(1500) * 8,
        "one after the other: {took:?}"
    );
    assert_eq!(daemon.fake().events("stop").len(), FLUSHING);
    let folder = daemon.fake().home().join("sessions");
    let mut whole = 0;
    for file in fs::read_dir(folder).expect("the agents made it").flatten() {
        if file
            .path()
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            let text = fs::read_to_string(file.path()).expect("it is there");
            assert_eq!(text.lines().count(), 2, "{text}");
            whole += 1;
        }
    }
    assert_eq!(whole, FLUSHING);
}

/// Sessions of the test below, and how many of them have work when the daemon starts.
const ASLEEP: usize = 40;
const WAITED_FOR: usize = 12;
/// Starts that may be under way at once in it.
const STARTING_MAX: usize = 3;

/// D43: of 40 sessions, the 12 that have a message are started, three at a time, and answer; the
/// others stay asleep.
#[test]
fn a_start_wakes_only_those_with_work_and_a_few_at_a_time() {
    let mut daemon = daemon!("herd")
        .limit("idle_after", "150ms")
        .config(&format!("[limits]\nmax_starting = {STARTING_MAX}\n"))
        .start();
    // They take their time to get ready, so that starts under way at once would be seen.
    let slow = [("start_delay_ms", "100")];
    let ids: Vec<String> = (0..ASLEEP)
        .map(|_| daemon.open_behaving("fake", &slow))
        .collect();
    let sent: Vec<_> = ids
        .iter()
        .map(|id| daemon.post(id, "FAKE:say one"))
        .collect();
    for message in sent {
        daemon.settled(message);
    }
    for id in &ids {
        daemon.wait_state(id, SessionState::Released);
    }
    let (woken, others) = ids.split_at(WAITED_FOR);
    let waiting: Vec<_> = woken
        .iter()
        .map(|id| daemon.post(id, "FAKE:say two"))
        .collect();
    daemon.kill9();
    daemon.restart();
    let mut answered = 0;
    for message in waiting {
        let message = daemon.settled(message);
        // The first may have been handed over before the kill.
        let is_well = matches!(
            message.state,
            MessageState::Answered | MessageState::Unknown
        );
        assert!(is_well, "{message:?}");
        answered += usize::from(message.state == MessageState::Answered);
    }
    let twos = daemon
        .fake()
        .turns()
        .iter()
        .filter(|turn| *turn == "FAKE:say two")
        .count();
    assert!(
        twos <= WAITED_FOR && answered + 3 >= WAITED_FOR,
        "{answered} answered, {twos} heard"
    );
    for id in others {
        let report = daemon.report(id);
        let is_asleep = report.state == SessionState::Released && report.incarnation.0 == 1;
        assert!(is_asleep, "{report:?}");
    }
    let most = most_starts_at_once(&daemon, woken);
    assert!((1..=STARTING_MAX).contains(&most), "{most} starts at once");
}

/// How many agents were launched and not ready, at the worst moment. Those that a kill kept from
/// getting ready do not count.
fn most_starts_at_once(daemon: &TestDaemon, ids: &[String]) -> usize {
    let mut changes: Vec<(u64, i32)> = Vec::new();
    for id in ids {
        let mut launched = 0;
        for event in daemon.log(id) {
            if let SessionEvent::Launched { .. } = event.what {
                launched = event.seq;
            } else if let SessionEvent::Ready { incarnation, .. } = event.what
                && incarnation.0 > 1
            {
                changes.extend([(launched, 1), (event.seq, -1)]);
            }
        }
    }
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or(0)
}

/// Tries of the test below: 10 rounds of 10 sessions at once.
const TRIES: (usize, usize) = (10, 10);

/// D40: a hundred times, an agent closes its stdin or ends while a message that fits no pipe is
/// written to it. The message is heard once at most: answered by the next process, or unknown.
#[test]
fn a_hundred_agents_that_stop_reading_lose_and_repeat_nothing() {
    let daemon = daemon!("deafened").limit("idle_after", "1h").start();
    let neighbour = daemon.open("fake");
    daemon.say(&neighbour, "FAKE:say hello");
    let (rounds, sessions) = TRIES;
    let ids: Vec<String> = (0..sessions).map(|_| daemon.open("fake")).collect();
    for round in 0..rounds {
        let working = daemon.post(&neighbour, "FAKE:silent 0.1");
        let sent: Vec<_> = ids
            .iter()
            .enumerate()
            .map(|(nth, id)| {
                let last = [
                    "FAKE:close-stdin\nFAKE:say x",
                    "FAKE:say x\nFAKE:no-newline-exit",
                ];
                let first = daemon.post(id, last[(nth + round) % 2]);
                // A pipe holds 64 KiB. Two megabytes take the same way, and longer.
                let bytes = if nth == 0 { 2 * 1024 * 1024 } else { 200_000 };
                let name = format!("FAKE:say try{round}-{nth}\n");
                let text = format!("{name}{}", "x".repeat(bytes));
                (first, daemon.post(id, &text), name)
            })
            .collect();
        for (first, second, name) in sent {
            let first = daemon.settled(first).state;
            let is_over = matches!(first, MessageState::Answered | MessageState::Unknown);
            assert!(is_over, "{first:?}");
            let state = daemon.settled(second).state;
            let turns = daemon.fake().turns();
            let heard = turns.iter().filter(|turn| turn.starts_with(&name)).count();
            match state {
                MessageState::Answered => assert_eq!(heard, 1, "{name}"),
                MessageState::Unknown => assert!(heard <= 1, "{name}: heard {heard} times"),
                MessageState::Queued
                | MessageState::Delivered
                | MessageState::Failed
                | MessageState::Cancelled
                | MessageState::Parked => panic!("{name}: {state:?}"),
            }
        }
        assert_eq!(daemon.settled(working).state, MessageState::Answered);
    }
    assert_eq!(
        daemon.report(&neighbour).incarnation.0,
        1,
        "it was started again"
    );
    daemon.fake().assert_never_two();
}

/// D44: an agent that never collects its children: a killed one is gone, and a stop does not wait
/// for it. Were it counted as alive, the stop would take both graces.
#[test]
fn a_child_that_nobody_collects_does_not_delay_a_stop() {
    let grace = Duration::from_secs(8);
    let script = |daemon: &TestDaemon| {
        let (file, program) = (
            daemon.path("child"),
            daemon.fake().program().display().to_string(),
        );
        let into = file.display();
        format!("fork[into {into};report;sleep];become {program} --dialect claude")
    };
    let tree_agent = env!("CARGO_BIN_EXE_tree-agent");
    let daemon = daemon!("uncollected")
        .limit("idle_after", "1h")
        .limit("eof_grace", "8s")
        .limit("term_grace", "8s")
        .config(&format!(
            "[agents.tree]\nprotocol = \"claude\"\ncommand = [{tree_agent:?}]\n"
        ))
        .start();
    let mut new = daemon.new_session("tree");
    new.args = vec![script(&daemon)];
    let id = daemon.open_as(&new);
    daemon.say(&id, "FAKE:say hello");
    let text = fs::read_to_string(daemon.path("child")).expect("the child has written it");
    let child = ProcIdentity::parse(text.trim()).expect("an identity");
    child.signal(Signal::SIGKILL);
    child.wait_gone();
    let begun = Instant::now();
    daemon.get(async |client| client.stop(&id).await);
    daemon.wait_state(&id, SessionState::Stopped);
    assert!(begun.elapsed() < grace, "it took {:?}", begun.elapsed());
    let end = daemon.report(&id).end.expect("it says why");
    assert!(end.survivors.is_empty(), "{end:?}");
}
