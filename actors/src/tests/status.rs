//! What readers see, and that reading changes nothing.

use std::time::Duration;

use drowse_messages::{Limit, Limits, MonoTime, SessionId, SessionState, StopHow};

use super::steps::Steps;
use super::{HOUR, MINUTE, SECOND, World, on_paused_time, pass, settle, stop};
use crate::ports::Page;

const TREE_BYTES: u64 = 2 * (100 << 20);

impl World {
    /// Every session is counted once, in the state it is in.
    async fn assert_counts(&self, expected: &[(SessionState, u64)]) {
        settle().await;
        for state in SessionState::ALL {
            let wanted = expected.iter().find(|(of, _)| *of == state);
            let wanted = wanted.map_or(0, |(_, sessions)| *sessions);
            assert_eq!(self.count_of(state).await, wanted, "{}", state.code());
        }
    }
}

/// The counts stay right while sessions wake, sleep, fail inside Drowse and are removed.
#[test]
fn counts_of_states_stay_right() {
    use SessionState::{New, Released, Resting, Stopped};
    on_paused_time(async {
        let world = World::new();
        world.assert_counts(&[]).await;
        let (one, two) = (world.open(1).await, world.open(2).await);
        world.assert_counts(&[(New, 2)]).await;
        for _ in 0..3 {
            world.say(one, "hello").await;
            world.until(one, Resting).await;
            world.assert_counts(&[(New, 1), (Resting, 1)]).await;
            world.until(one, Released).await;
            world.assert_counts(&[(New, 1), (Released, 1)]).await;
        }
        world.say(two, "hello").await;
        world.until(two, Resting).await;
        let daemon = &world.daemon;
        daemon.order(two, stop(StopHow::Stop)).await.unwrap();
        world.until(two, Stopped).await;
        world.assert_counts(&[(Released, 1), (Stopped, 1)]).await;
        daemon.order(one, stop(StopHow::Remove)).await.unwrap();
        pass(SECOND).await;
        world.assert_counts(&[(Stopped, 1)]).await;
        world.say(two, "hello").await;
        world.until(two, Resting).await;
        daemon.order(two, stop(StopHow::Remove)).await.unwrap();
        pass(SECOND).await;
        world.assert_counts(&[]).await;
    });
}

/// Each release counts once, with its bytes: a session that is woken does not count its last
/// release again, and one that is removed counts the end of its process.
#[test]
fn releases_are_counted_once_with_their_bytes() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        let totals = async || {
            let status = world.daemon.status().await.unwrap();
            (status.released_total, status.released_bytes_total)
        };
        assert_eq!(totals().await, (0, 0));
        world.until(id, SessionState::Released).await;
        assert_eq!(totals().await, (1, TREE_BYTES));
        world.say(id, "again").await;
        world.until(id, SessionState::Resting).await;
        assert_eq!(totals().await, (1, TREE_BYTES));
        world.until(id, SessionState::Released).await;
        assert_eq!(totals().await, (2, 2 * TREE_BYTES));
        world.say(id, "again").await;
        world.until(id, SessionState::Resting).await;
        let remove = stop(StopHow::Remove);
        world.daemon.order(id, remove).await.unwrap();
        pass(MINUTE).await;
        assert_eq!(totals().await, (3, 3 * TREE_BYTES));
    });
}

/// A report is as old as it says: ages grow and times to come shrink without a step.
#[test]
fn reports_age() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        let first = world.report(id).await.awake.unwrap();
        let steps = Steps::listen();
        pass(10 * MINUTE).await;
        let later = world.report(id).await.awake.unwrap();
        assert_eq!(steps.take(), Vec::<String>::new());
        let ten_minutes = 600_000;
        let aged = |then: Option<u64>, now: Option<u64>| now.unwrap().abs_diff(then.unwrap());
        assert!(aged(first.idle_ms, later.idle_ms).abs_diff(ten_minutes) < 10);
        let left = aged(first.releases_in_ms, later.releases_in_ms);
        assert!(left.abs_diff(ten_minutes) < 10);
        let oldest = |evidence: &[drowse_messages::Evidence]| evidence.last().unwrap().age_ms;
        let grown = oldest(&later.evidence) - oldest(&first.evidence);
        assert!(grown.abs_diff(ten_minutes) < 10);
        assert_eq!(later.usage.unwrap().pss_bytes, TREE_BYTES);
    });
}

/// Output alone moves what a reader sees within two seconds: a session that talks does not look
/// quiet, and its release does not look near.
#[test]
fn output_shows_in_the_report() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        pass(20 * MINUTE).await;
        for _ in 0..50 {
            world.fakes.backends.print(id, "still here");
            pass(Duration::from_millis(100)).await;
        }
        let awake = world.report(id).await.awake.unwrap();
        assert!(awake.idle_ms.unwrap() < 2_000, "{:?}", awake.idle_ms);
        assert!(awake.releases_in_ms.unwrap() > 1_790_000);
    });
}

/// Pages: awake ones first, then the most recently used, each once, and all of them.
#[test]
fn pages_have_every_session_once() {
    on_paused_time(async {
        let world = World::new();
        let mut asleep = Vec::new();
        for number in 1..=7 {
            asleep.push(world.rested(number).await);
            pass(SECOND).await;
        }
        pass(31 * MINUTE).await;
        let awake = vec![world.rested(9).await, world.rested(8).await];
        let mut page = Page {
            limit: 3,
            ..Page::default()
        };
        let mut listed: Vec<SessionId> = Vec::new();
        loop {
            let answer = world.daemon.list(page.clone()).await.unwrap();
            assert_eq!(answer.total, 9);
            listed.extend(answer.sessions.iter().map(|report| report.id));
            page.after = answer.next;
            if page.after.is_none() {
                break;
            }
        }
        asleep.reverse();
        let newest_first: Vec<_> = awake.into_iter().rev().chain(asleep).collect();
        assert_eq!(listed, newest_first);
        let resting = Page {
            limit: 100,
            state: Some(SessionState::Resting),
            ..Page::default()
        };
        let answer = world.daemon.list(resting).await.unwrap();
        assert_eq!(answer.sessions.len(), 2);
        assert!(answer.sessions[0].awake.as_ref().unwrap().usage.is_some());
    });
}

async fn released_at(poll: bool) -> MonoTime {
    let world = World::new();
    let limits = |limits: &mut Limits| limits.idle_after = Limit::After(2 * MINUTE);
    world.fakes.catalog.set_limits(limits);
    let id = world.rested(1).await;
    for _ in 0..1_210 {
        if poll {
            world.report(id).await;
            world.daemon.status().await.unwrap();
            world.daemon.list(Page::default()).await.unwrap();
        }
        pass(Duration::from_millis(100)).await;
    }
    assert_eq!(world.report(id).await.state, SessionState::Released);
    world.fakes.journal.timed("trees: reap snapshot")[0].0
}

/// Reading never counts as use, and never delays a release (behaviour 19).
#[test]
fn a_poll_every_100_ms_delays_no_release() {
    let (quiet, polled) =
        on_paused_time(async { (released_at(false).await, released_at(true).await) });
    assert!(polled.as_millis().abs_diff(quiet.as_millis()) <= 2);
}

/// A reader of a sleeping session loads its record and nothing else.
#[test]
fn reading_wakes_nobody() {
    on_paused_time(async {
        let world = World::new();
        let id = world.open(1).await;
        let steps = Steps::listen();
        for _ in 0..100 {
            assert_eq!(world.report(id).await.state, SessionState::New);
        }
        world.daemon.list(Page::default()).await.unwrap();
        pass(HOUR).await;
        assert_eq!(steps.take(), Vec::<String>::new());
        world.assert_counts(&[(SessionState::New, 1)]).await;
    });
}
