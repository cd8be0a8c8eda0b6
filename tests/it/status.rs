//! What the daemon says of itself, and what it costs to have it.

use std::fs;
use std::time::{Duration, Instant};

use drowse_messages::{Reason, SessionState};
use drowse_tests::wait::comes_true;
use drowse_tests::{TestDaemon, daemon, wait_until};
use nix::sys::signal::Signal;

fn descriptors(daemon: &TestDaemon) -> usize {
    let folder = format!("/proc/{}/fd", daemon.identity().pid);
    fs::read_dir(folder).expect("the daemon runs").count()
}

/// Starts and stops in the test below: 10 sessions, 30 rounds.
const ROUNDS: usize = 30;

/// Behaviour 46, D44, D50: 300 rounds, a third of them killed and a third failing to start, leave no
/// descriptor and no uncollected process.
#[test]
fn three_hundred_rounds_leave_nothing_behind() {
    let daemon = daemon!("rounds").limit("idle_after", "1h").start();
    let ids: Vec<String> = (0..10).map(|_| daemon.open("fake")).collect();
    let bad = daemon.open_behaving("fake", &[("fail_starts", "9999")]);
    let round = |number: usize| {
        let sent = ids
            .iter()
            .map(|id| daemon.post(id, &format!("FAKE:say {number}")));
        for message in sent.collect::<Vec<_>>() {
            daemon.settled(message);
        }
        for (nth, id) in ids.iter().enumerate() {
            match (nth + number) % 3 {
                0 => daemon.agent(id).signal(Signal::SIGKILL),
                1 => daemon.get(async |client| client.stop(id).await),
                _ => daemon.get(async |client| client.release(id).await),
            }
        }
        daemon.post(&bad, "FAKE:say never");
        daemon.get(async |client| client.stop(&bad).await);
        for id in ids.iter().chain([&bad]) {
            daemon.wait_report(id, "asleep", |report| !report.state.is_awake());
        }
    };
    round(0);
    let settled = || {
        let status = daemon.get(async |client| client.status().await);
        status.backends == 0 && daemon.uncollected() == 0
    };
    assert!(comes_true(Duration::from_secs(5), settled));
    let before = descriptors(&daemon);
    for number in 1..ROUNDS {
        round(number);
    }
    assert!(
        comes_true(Duration::from_secs(2), settled),
        "{} uncollected",
        daemon.uncollected()
    );
    wait_until(
        "the descriptors to be given back",
        Duration::from_secs(5),
        || (descriptors(&daemon) <= before + 5).then_some(()),
    );
    daemon.fake().assert_never_two();
}

/// D51: 60 sessions at rest cost the daemon next to nothing, and no walk of the process table.
#[test]
fn sessions_at_rest_cost_no_processor_time() {
    let daemon = daemon!("cost").limit("idle_after", "1h").start();
    let ids: Vec<String> = (0..60).map(|_| daemon.open("fake")).collect();
    let sent: Vec<_> = ids
        .iter()
        .map(|id| daemon.post(id, "FAKE:say hello"))
        .collect();
    for message in sent {
        daemon.settled(message);
    }
    let before = daemon.cpu_ticks();
    let end = Instant::now() + Duration::from_secs(3);
    assert!(comes_true(Duration::from_secs(10), || Instant::now() >= end));
    let spent = daemon.cpu_ticks() - before;
    assert!(spent <= 15, "{spent} ticks of 10 ms in 3 s");
    let status = daemon.get(async |client| client.status().await);
    assert_eq!(status.backends, 60);
}

/// Behaviours 96, 97: the status, the list, the metrics and the log agree on what happened.
#[test]
fn status_list_metrics_and_log_agree() {
    let daemon = daemon!("agree").start();
    let (id, fresh) = (daemon.open("fake"), daemon.open("fake"));
    daemon.say(&id, "FAKE:spawn plain 2");
    let report = daemon.wait_state(&id, SessionState::Released);
    let end = report.end.expect("it says why");
    assert_eq!(end.reason, Reason::Idle);
    assert_eq!(end.processes.len(), 3);
    assert!(end.released_bytes > 0);
    let status = daemon.get(async |client| client.status().await);
    assert_eq!((status.released_total, status.backends), (1, 0));
    assert_eq!(status.released_bytes_total, end.released_bytes);
    let of = |state| {
        status
            .states
            .iter()
            .find(|count| count.state == state)
            .unwrap()
            .sessions
    };
    assert_eq!((of(SessionState::Released), of(SessionState::New)), (1, 1));
    let page = daemon.get(async |client| client.sessions(&Default::default()).await);
    assert_eq!(page.total, 2);
    assert!(
        page.sessions
            .iter()
            .any(|listed| listed.id.to_string() == fresh)
    );
    let metrics = daemon.get(async |client| client.metrics().await);
    assert!(
        metrics.contains("drowse_") && metrics.ends_with("# EOF\n"),
        "{metrics}"
    );
}
