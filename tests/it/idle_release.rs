//! The idle rule end to end: what is released, what is not, and what a message meanwhile does.

use std::time::{Duration, Instant};

use drowse_messages::{MessageId, MessageState, Reason, SessionEvent, SessionState};
use drowse_tests::wait::comes_true;
use drowse_tests::{TestDaemon, daemon};

/// What is left of a window of 400 ms when its first event was stamped late and its last was not.
const SHORTEST_MS: u64 = 350;

fn is_ending(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Ending { .. })
}

fn is_turn_end(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::TurnEnded { .. })
}

/// Milliseconds from the end of the newest turn to the release that followed it.
fn quiet_ms(daemon: &TestDaemon, id: &str) -> u64 {
    let ended = daemon.time_of(id, "turn ended", is_turn_end);
    daemon.time_of(id, "ending", is_ending) - ended
}

/// Behaviours 10, 13, 67: a full window after the turn the session is released, and the next
/// message resumes the same conversation.
#[test]
fn an_idle_session_is_released_and_the_next_message_resumes_it() {
    let daemon = daemon!("idle").start();
    let id = daemon.open("fake");
    assert_eq!(
        daemon.say(&id, "FAKE:say one"),
        "SAID one (user turns seen: 1)"
    );
    let report = daemon.wait_state(&id, SessionState::Released);
    let end = report.end.expect("a released session says why");
    assert_eq!(end.reason, Reason::Idle);
    assert!(!end.mid_turn && !end.processes.is_empty(), "{end:?}");
    assert!(quiet_ms(&daemon, &id) >= SHORTEST_MS);
    daemon.wait_gone(&id);
    assert_eq!(
        daemon.say(&id, "FAKE:say two"),
        "SAID two (user turns seen: 2)"
    );
    let starts = daemon.fake().events("start");
    assert_eq!(starts[1]["session"], starts[0]["session"]);
    daemon.fake().assert_never_two();
}

/// Behaviour 26, D15: a tool call that says nothing for three windows, and one that streams.
#[test]
fn a_running_turn_is_never_released() {
    let daemon = daemon!("silent").start();
    for text in ["FAKE:silent 1.3", "FAKE:slow 1.3", "FAKE:compact 1.3"] {
        let id = daemon.open("fake");
        daemon.say(&id, text);
        assert_eq!(daemon.count(&id, is_ending), 0, "{text}");
        daemon.wait_state(&id, SessionState::Released);
        assert!(
            quiet_ms(&daemon, &id) >= SHORTEST_MS,
            "a full window from the end of {text}"
        );
    }
    assert_eq!(daemon.fake().events("start").len(), 3);
}

/// Behaviour 11, D21: a failed turn is at rest too.
#[test]
fn a_failed_turn_is_released() {
    let daemon = daemon!("failed").start();
    let id = daemon.open("fake");
    let message = daemon.send(&id, "FAKE:fail overloaded");
    assert_eq!(message.state, MessageState::Failed);
    assert!(message.answer.contains("overloaded"), "{message:?}");
    let report = daemon.wait_state(&id, SessionState::Released);
    assert_eq!(report.end.map(|end| end.reason), Some(Reason::Idle));
    assert_eq!(
        daemon.say(&id, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
}

/// Behaviours 2, 6, D22: off is never, and 100,000 minutes, 24.9 days and the largest number of
/// milliseconds neither fire early nor keep a processor busy.
#[test]
fn off_and_very_long_limits_do_not_fire() {
    let daemon = daemon!("long").start();
    let limits = [
        "off",
        "0",
        "100000m",
        "24days 22h",
        "18446744073709551615ms",
    ];
    let quiet = limits.map(|limit| {
        let mut new = daemon.new_session("fake");
        new.limits.insert("idle_after".into(), limit.into());
        let id = daemon.open_as(&new);
        daemon.say(&id, "FAKE:say hello");
        let report = daemon.wait_state(&id, SessionState::Resting);
        let releases_in = report.awake.and_then(|awake| awake.releases_in_ms);
        match limit {
            // The last one is beyond what a clock can count to, which is never.
            "off" | "0" | "18446744073709551615ms" => assert_eq!(releases_in, None),
            _ => assert!(
                releases_in > Some(24 * 24 * 3600 * 1000),
                "{limit}: {releases_in:?}"
            ),
        }
        id
    });
    let before = daemon.cpu_ticks();
    let begun = Instant::now();
    assert!(!comes_true(Duration::from_secs(1), || {
        begun.elapsed() >= Duration::from_secs(1) && daemon.cpu_ticks() > before + 20
    }));
    daemon.let_windows_pass(2);
    for id in quiet {
        assert_eq!(daemon.report(&id).state, SessionState::Resting);
        assert_eq!(daemon.count(&id, is_ending), 0);
    }
}

/// Behaviours 19, 20: whoever reads the state, lists, or watches, does not use the session.
#[test]
fn reading_and_watching_do_not_postpone_a_release() {
    let daemon = daemon!("polled").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say hello");
    let mut reads = 0;
    let mut events = daemon.get(async |client| client.events(&Default::default()).await);
    assert!(comes_true(Duration::from_secs(10), || {
        reads += 1;
        daemon.get(async |client| client.sessions(&Default::default()).await);
        daemon.get(async |client| client.status().await);
        daemon.get(async |client| client.metrics().await);
        daemon.report(&id).state == SessionState::Released
    }));
    assert!(reads > 4, "only {reads} reads");
    let quiet = quiet_ms(&daemon, &id);
    assert!(
        (SHORTEST_MS..5000).contains(&quiet),
        "released after {quiet} ms"
    );
    let snapshot = daemon.get(async |_| events.next().await);
    assert!(matches!(
        snapshot.map(|event| event.what),
        Some(SessionEvent::Snapshot { .. })
    ));
}

/// Rounds of the race below; 8 sessions each.
const ROUNDS: usize = 25;

/// Behaviours 14, 60, 61, D30: 200 messages around the moment of release, to agents that
/// take a while to die and refuse to run beside their predecessors.
#[test]
fn a_message_that_races_the_release_is_answered_once_by_one_agent() {
    let daemon = daemon!("race").limit("idle_after", "200ms").start();
    let behaviour = [("die_slowly_ms", "100"), ("exclusive", "1")];
    let ids: Vec<String> = (0..8)
        .map(|_| daemon.open_behaving("fake", &behaviour))
        .collect();
    // Offsets that look random and are the same in every run.
    let mut dice = 12345_u64;
    let mut offset = || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_millis(100 + (dice >> 33) % 151)
    };
    for round in 0..ROUNDS {
        let mut due: Vec<(Instant, &String)> = Vec::new();
        for id in &ids {
            daemon.wait_report(id, "rest", |report| {
                !matches!(report.state, SessionState::Working | SessionState::Starting)
            });
            due.push((Instant::now() + offset(), id));
        }
        due.sort();
        let sent: Vec<MessageId> = due
            .into_iter()
            .map(|(at, id)| {
                assert!(comes_true(Duration::from_secs(1), || Instant::now() >= at));
                daemon.post(id, &format!("FAKE:say {id}-{round}"))
            })
            .collect();
        for message in sent {
            let message = daemon.settled(message);
            assert_eq!(message.state, MessageState::Answered, "{message:?}");
            let turns = format!("(user turns seen: {})", round + 1);
            assert!(message.answer.ends_with(&turns), "{message:?}");
        }
    }
    let mut turns = daemon.fake().turns();
    assert_eq!(turns.len(), 8 * ROUNDS);
    turns.sort();
    turns.dedup();
    assert_eq!(turns.len(), 8 * ROUNDS, "a message ran twice");
    assert_eq!(
        daemon.fake().events("refused").len(),
        0,
        "started beside its predecessor"
    );
    daemon.fake().assert_never_two();
    let wakes = daemon.fake().events("start").len();
    assert!(
        wakes > 16 && wakes < 8 * ROUNDS,
        "{wakes} starts: the race was not run"
    );
}
