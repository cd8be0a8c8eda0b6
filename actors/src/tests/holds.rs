//! Holds of extensions: leases, and guards that lift them.

use drowse_messages::{HoldId, HoldKind, SessionEvent, SessionState};

use super::{HOUR, MINUTE, SECOND, World, on_paused_time, pass, settle};
use crate::{DaemonHandle, HoldGuard};

/// Promise 4: a handle may be given to any thread, and so may a guard.
#[test]
fn handles_and_guards_may_be_sent() {
    fn check<T: Send + 'static>() {}
    check::<DaemonHandle>();
    check::<HoldGuard>();
}

fn lifted(world: &World) -> Vec<(HoldId, bool)> {
    let recorded = world.fakes.store.recorded().into_iter();
    let lifted = recorded.filter_map(|event| {
        if let SessionEvent::HoldLifted { id, expired } = event.what {
            Some((id, expired))
        } else {
            None
        }
    });
    lifted.collect()
}

/// Promise 5: dropping the guard lifts the hold, and a full window follows (behaviour 17).
#[test]
fn a_dropped_guard_lifts_its_hold() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        let guard = world.daemon.hold(id, "backup", "copying", 10 * HOUR).await;
        let guard = guard.unwrap();
        let holds = world.report(id).await.awake.unwrap().holds;
        assert_eq!(holds.len(), 1);
        assert_eq!(holds[0].kind, HoldKind::Lease);
        assert_eq!(holds[0].id, Some(guard.id()));
        assert_eq!((&*holds[0].owner, &*holds[0].why), ("backup", "copying"));
        pass(5 * HOUR).await;
        assert_eq!(world.report(id).await.state, SessionState::Resting);
        let held = guard.id();
        drop(guard);
        settle().await;
        assert_eq!(lifted(&world), [(held, false)]);
        pass(29 * MINUTE).await;
        assert_eq!(world.report(id).await.state, SessionState::Resting);
        pass(2 * MINUTE).await;
        assert_eq!(world.report(id).await.state, SessionState::Released);
    });
}

/// Promise 5: the hold of an extension that crashed ends by itself.
#[test]
fn a_hold_nobody_lifts_expires() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        let guard = world.daemon.hold(id, "crashed", "why", 45 * MINUTE).await;
        let guard = guard.unwrap();
        let held = guard.id();
        // What a crash is to the guard: it is never dropped.
        std::mem::forget(guard);
        pass(45 * MINUTE - SECOND).await;
        assert_eq!(lifted(&world), []);
        pass(2 * SECOND).await;
        assert_eq!(lifted(&world), [(held, true)]);
        pass(31 * MINUTE).await;
        assert_eq!(world.report(id).await.state, SessionState::Released);
    });
}

/// A renewed hold lasts from then on, under the same id.
#[test]
fn a_renewed_hold_lasts_longer() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        let guard = world.daemon.hold(id, "backup", "copying", HOUR).await;
        let mut guard = guard.unwrap();
        for _ in 0..5 {
            pass(HOUR - MINUTE).await;
            guard.renew(HOUR).await.unwrap();
        }
        assert_eq!(world.report(id).await.state, SessionState::Resting);
        assert_eq!(lifted(&world), []);
    });
}

/// There is nothing to hold in a session without a process, and asking starts none.
#[test]
fn a_sleeping_session_cannot_be_held() {
    on_paused_time(async {
        let world = World::new();
        let id = world.open(1).await;
        let refused = world.daemon.hold(id, "backup", "copying", HOUR).await;
        assert_eq!(refused.unwrap_err().code(), "not_running");
        settle().await;
        assert_eq!(world.launches(), 0);
        assert_eq!(world.count_of(SessionState::New).await, 1);
    });
}

/// A guard that outlives its process harms nothing: the session is not started for it.
#[test]
fn a_guard_dropped_late_starts_nothing() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        let guard = world.daemon.hold(id, "backup", "copying", MINUTE).await;
        world.until(id, SessionState::Released).await;
        drop(guard);
        pass(MINUTE).await;
        assert_eq!(world.launches(), 1);
        assert_eq!(world.report(id).await.state, SessionState::Released);
    });
}
