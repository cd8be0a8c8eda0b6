//! What holds for every life of a session. `watch.rs` checks each step:
//!
//! 1. no idle release while a turn runs, a task is known or unknown, or a hold is live;
//! 2. no idle release before a whole window of quiet;
//! 3. no SIGKILL before SIGTERM and its grace, except for somebody a verification found;
//! 4. one end of a session, and nothing after it;
//! 5. no start after a stop or a shutdown before somebody wants one;
//! 6. facts of an older launch change nothing but a counter;
//! 7. the reason of an end never becomes less important;
//!
//! and that no tree is launched beside another, no reap request joins one that is not answered, no
//! message is lost, settled or delivered twice, the place among the starting ones is given back, a
//! tick leaves no deadline behind, and what is written down is what is reported.

use std::time::Duration;

use drowse_messages::{IdleTick, Limits, Order};
use proptest::prelude::*;

use super::generate::lives;
use super::run::{Run, come_to_rest, settle_down};
use super::watch::SETTLED_AFTER_MAX;

use crate::session::Session;

/// 512 cases, or more by `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig {
        cases: config.cases.max(512),
        ..config
    }
}

proptest! {
    #![proptest_config(config())]

    /// Properties 1 to 7 and 10: every step of every life keeps them, and none panics.
    #[test]
    fn every_step_keeps_the_promises((setting, life) in lives()) {
        let _run = Run::live(setting, &life);
    }

    /// Property 8: ticks that come twice or too often, and orders to stop that are repeated,
    /// lead to the same session.
    #[test]
    fn repeats_change_nothing((setting, life) in lives()) {
        let mut once = Run::new(setting);
        let mut often = Run::new(setting);
        for (gap, what) in &life.0 {
            once.act(gap, what);
            once.step(&IdleTick.into());
            often.act(gap, what);
            if let super::generate::What::Order(order @ Order::Stop(_)) = what {
                often.step(&order.clone().into());
            }
            for _ in 0..3 {
                often.step(&IdleTick.into());
            }
            prop_assert_eq!(&once.session, &often.session, "{}\n{}", once.log, often.log);
        }
    }

    /// Property 9: from wherever a session is, quiet leads to sleep in bounded time and with a
    /// bounded number of ticks, whether or not the agent obeys.
    #[test]
    fn quiet_leads_to_sleep((mut setting, life) in lives(), obeys in any::<bool>()) {
        setting.traits.can_resume = true;
        let mut run = Run::live(setting, &life);
        let took = settle_down(&mut run, obeys);
        prop_assert!(took.is_some_and(|took| took < SETTLED_AFTER_MAX), "{:?}\n{}", took, run.log);
    }

    /// Property 9, the bound itself: whatever a session has been through, once it is at rest it is
    /// released after a window, the graces and a moment.
    #[test]
    fn rest_is_released_in_time((mut setting, life) in lives(), obeys in any::<bool>()) {
        setting.traits.can_resume = true;
        let mut run = Run::live(setting, &life);
        settle_down(&mut run, obeys);
        if come_to_rest(&mut run) {
            let took = settle_down(&mut run, obeys);
            let bound = Duration::from_secs(30 * 60 + 2 + 5 + 1);
            prop_assert!(took.is_some_and(|took| took < bound), "{:?}\n{}", took, run.log);
        }
    }

    /// Property 11: the same inputs give the same effects.
    #[test]
    fn a_life_can_be_replayed((setting, life) in lives()) {
        let (first, second) = (Run::live(setting, &life), Run::live(setting, &life));
        prop_assert_eq!(first.effects, second.effects);
        prop_assert_eq!(first.session, second.session);
    }

    /// Behaviour 146: whatever a session keeps, an order to stop all leaves nothing of it, in bounded
    /// time, and only such an order, its end, or its own end does.
    #[test]
    fn stopping_all_leaves_nothing_kept((setting, life) in lives()) {
        let mut run = Run::live(setting, &life);
        prop_assert!(super::run::stop_all(&mut run), "{}", run.log);
        prop_assert!(run.world.kept.is_empty(), "{:?}\n{}", run.world.kept, run.log);
    }

    /// A session that is read back from what it wrote down is at rest, and lost no message.
    #[test]
    fn a_restart_loses_nothing((setting, life) in lives()) {
        let run = Run::live(setting, &life);
        let report = run.watch.report(&run.session, run.now);
        let saved = run.watch.as_saved();
        let back = Session::restore(&saved, setting.traits, Limits::default(), run.now);
        prop_assert!(back.is_asleep());
        let again = run.watch.report(&back, run.now);
        prop_assert_eq!(again.queued, report.queued);
        prop_assert_eq!(again.conversation, report.conversation);
    }
}
