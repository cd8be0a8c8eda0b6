//! Kept processes as the shells handle them (behaviour 146): found, listed, watched, ended.

use std::time::Duration;

use drowse_messages::{
    KeepRule, KeepTarget, Refusal, SessionEvent, SessionId, SessionState, StatusReport, StopHow,
};

use super::{HOUR, MINUTE, SECOND, World, client, on_paused_time, pass, settle, stop};
use crate::ports::Recovered;
use crate::testing::session;
use crate::{Daemon, DaemonHandle, KeepWish};

const PORT: u16 = 3000;

/// A daemon whose agents have a server each, which the configuration keeps or does not.
async fn serving(kept: bool) -> (World, SessionId) {
    let world = World::new();
    world.fakes.behave(|manners| manners.serves = Some(PORT));
    let rules = kept.then_some(KeepRule::Listen(PORT));
    let rules = rules.into_iter().collect();
    world.fakes.catalog.set_limits(|limits| limits.keep = rules);
    let id = world.rested(1).await;
    (world, id)
}

fn wish(target: KeepTarget, ttl: Option<Duration>) -> KeepWish {
    KeepWish {
        target,
        session: None,
        ttl,
        by: client(),
    }
}

async fn pids(daemon: &DaemonHandle) -> Vec<i32> {
    let kept = daemon.kept().await.unwrap();
    let pid = |report: &drowse_messages::KeptReport| report.kept.process.identity.pid();
    kept.iter().map(pid).collect()
}

fn count(world: &World, is_it: impl Fn(&SessionEvent) -> bool) -> usize {
    let recorded = world.fakes.store.recorded();
    recorded.iter().filter(|event| is_it(&event.what)).count()
}

/// D09 in the large: it outlives the release and the next one, is listed while its session
/// sleeps, and ends when all is stopped.
#[test]
fn a_kept_process_is_listed_while_its_session_sleeps() {
    on_paused_time(async {
        let (world, id) = serving(true).await;
        assert_eq!(pids(&world.daemon).await, []);
        world.until(id, SessionState::Released).await;
        settle().await;
        assert_eq!(pids(&world.daemon).await, [1002]);
        let report = world.report(id).await;
        assert_eq!(report.kept.len(), 1);
        assert!(report.kept[0].outlives);
        assert_eq!(report.kept[0].session, id);
        assert!(report.awake.is_none(), "it sleeps all the same");
        let saved = world.fakes.store.progress(id).unwrap();
        assert_eq!(saved.keeping.kept.len(), 1);
        world
            .daemon
            .order(id, stop(StopHow::StopAll))
            .await
            .unwrap();
        world.until(id, SessionState::Released).await;
        settle().await;
        assert_eq!(pids(&world.daemon).await, []);
        assert_eq!(world.fakes.trees.standing(), 0);
        assert!(!world.fakes.backends.is_heard(id), "its actor is gone");
        let ended = count(&world, |it| matches!(it, SessionEvent::KeptEnded { .. }));
        assert_eq!(ended, 1);
    });
}

/// What ended meanwhile is not listed, and its session is let go.
#[test]
fn a_kept_process_that_ends_by_itself_is_forgotten() {
    on_paused_time(async {
        let (world, id) = serving(true).await;
        world.until(id, SessionState::Released).await;
        world.fakes.trees.end_kept();
        pass(SECOND).await;
        assert_eq!(pids(&world.daemon).await, []);
        assert!(!world.fakes.backends.is_heard(id));
        assert!(world.fakes.store.progress(id).unwrap().keeping.is_empty());
    });
}

/// By its number or its port, for a time, while its session lives.
#[test]
fn a_process_is_kept_by_hand() {
    on_paused_time(async {
        let (world, id) = serving(false).await;
        let ttl = Some(HOUR);
        let report = world.daemon.keep(wish(KeepTarget::Pid(1002), ttl)).await;
        let report = report.unwrap();
        assert_eq!((report.session, report.outlives), (id, false));
        assert_eq!(report.kept.process.listens, [PORT]);
        let again = wish(KeepTarget::Listen(PORT), ttl);
        let report = world.daemon.keep(again).await.unwrap();
        assert_eq!(report.kept.rule, KeepRule::Listen(PORT));
        assert_eq!(pids(&world.daemon).await, [1002], "once");
        world.until(id, SessionState::Released).await;
        assert_eq!(pids(&world.daemon).await, [1002]);
        pass(HOUR).await;
        assert_eq!(pids(&world.daemon).await, []);
        assert_eq!(world.fakes.trees.standing(), 0);
    });
}

/// D12: nobody's processes, agents and keepers are not kept, and a wrong session has nothing.
#[test]
fn what_cannot_be_kept_is_refused() {
    on_paused_time(async {
        let (world, _) = serving(false).await;
        for pid in [7, 1000, 1001] {
            let refused = world.daemon.keep(wish(KeepTarget::Pid(pid), None)).await;
            let refused = refused.unwrap_err();
            assert!(
                matches!(refused, Refusal::Invalid { .. }),
                "{pid}: {refused}"
            );
        }
        let agent = wish(KeepTarget::Pid(1001), None);
        let refused = world.daemon.keep(agent).await.unwrap_err().to_string();
        assert!(refused.contains("is the agent of session"), "{refused}");
        let elsewhere = KeepWish {
            session: Some(session(2)),
            ..wish(KeepTarget::Pid(1002), None)
        };
        world.daemon.keep(elsewhere).await.unwrap_err();
        assert_eq!(pids(&world.daemon).await, []);
    });
}

/// F 87: the end of the daemon leaves nothing, also of sessions that sleep.
#[test]
fn a_drain_ends_what_is_kept() {
    on_paused_time(async {
        let (world, id) = serving(true).await;
        world.until(id, SessionState::Released).await;
        world.daemon.drain().await;
        assert_eq!(world.fakes.trees.standing(), 0);
        let saved = world.fakes.store.progress(id).unwrap();
        assert_eq!(saved.state, SessionState::Released);
        assert!(saved.keeping.is_empty());
    });
}

/// The next daemon ends none of it, lists it, and hears of its end.
#[test]
fn the_next_daemon_takes_up_what_is_kept() {
    on_paused_time(async {
        let (world, id) = serving(true).await;
        world.until(id, SessionState::Released).await;
        let kept = world.fakes.store.progress(id).unwrap().keeping.kept;
        let recovered = Recovered {
            keeping: vec![(id, kept)],
            states: world.fakes.store.states(),
            next_seq: 100,
            ..Recovered::default()
        };
        let report = StatusReport::new("0.0.0", 1);
        let next = Daemon::start(world.fakes.ports(), recovered.into(), report);
        next.end_leftovers().await;
        let daemon = next.handle();
        next.serve();
        settle().await;
        assert_eq!(world.fakes.journal.of("backends: watch"), [" #1"]);
        assert_eq!(world.fakes.trees.standing(), 1);
        assert_eq!(pids(&daemon).await, [1002]);
        world.fakes.trees.end_kept();
        pass(MINUTE).await;
        assert_eq!(pids(&daemon).await, []);
        assert!(world.fakes.store.progress(id).unwrap().keeping.is_empty());
    });
}
