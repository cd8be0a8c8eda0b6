//! Why a session's processes ended: each cause has a reason, an actor and a list of its own.

use drowse_messages::{EndReport, ExitStatus, Reason, SessionEvent, SessionState, Who};
use drowse_tests::{ProcIdentity, TestDaemon, daemon};
use nix::sys::signal::Signal;

/// What is expected of one end, and how it comes about.
struct Cause {
    reason: Reason,
    by: Who,
    limits: &'static [(&'static str, &'static str)],
    end: fn(&TestDaemon, &str),
}

fn causes() -> Vec<Cause> {
    let client = || Who::Client("test".to_owned());
    let crashed = |status| Reason::Crashed {
        status: Some(status),
    };
    let cause = |reason, by, end| Cause {
        reason,
        by,
        limits: &[],
        end,
    };
    vec![
        Cause {
            limits: &[("idle_after", "200ms")],
            ..cause(Reason::Idle, Who::Rule, |_, _| {})
        },
        Cause {
            limits: &[("start_limit", "3s"), ("hard_limit", "3100ms")],
            ..cause(Reason::HardLimit, Who::Rule, |_, _| {})
        },
        cause(Reason::Manual, client(), |daemon, id| {
            daemon.get(async |client| client.release(id).await);
        }),
        cause(Reason::Stopped, client(), |daemon, id| {
            daemon.get(async |client| client.stop(id).await);
        }),
        cause(
            crashed(ExitStatus::Signal(9)),
            Who::Outside,
            |daemon, id| {
                daemon.agent(id).signal(Signal::SIGKILL);
            },
        ),
        cause(crashed(ExitStatus::Code(3)), Who::Outside, |daemon, id| {
            daemon.post(id, "FAKE:exit 3");
        }),
    ]
}

/// The end as the log has it, with the time at which it was published, in milliseconds.
fn logged_end(daemon: &TestDaemon, id: &str) -> (EndReport, u64) {
    let is_end = |event: &SessionEvent| matches!(event, SessionEvent::Released { .. });
    let SessionEvent::Released { end } = daemon.wait_event(id, "released", 1, is_end) else {
        unreachable!("it was matched above")
    };
    (*end, daemon.time_of(id, "released", is_end))
}

/// D17: an idle rule, a limit, a release, a stop, a kill from outside and an exit of the agent's
/// own are told apart, in the report and in the log, with who did it, when, and what ended.
#[test]
fn each_cause_has_its_own_reason_actor_and_list() {
    let daemon = daemon!("reasons").limit("idle_after", "off").start();
    let begun: Vec<(Cause, String, ProcIdentity)> = causes()
        .into_iter()
        .map(|cause| {
            let mut new = daemon.new_session("fake");
            let limits = cause.limits.iter();
            new.limits
                .extend(limits.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
            let id = daemon.open_as(&new);
            let said = daemon.say(&id, "FAKE:spawn setsid");
            let child = said.split(' ').find_map(ProcIdentity::parse);
            (cause, id, child.expect("the agent names its child"))
        })
        .collect();
    for (cause, id, _) in &begun {
        (cause.end)(&daemon, id);
    }
    let mut told = Vec::new();
    for (cause, id, child) in &begun {
        let report = daemon.wait_report(id, "asleep", |report| !report.state.is_awake());
        let end = report.end.expect("it says why");
        assert_eq!((end.reason, &end.by), (cause.reason, &cause.by), "{end:?}");
        let listed = end.processes.iter().any(|process| {
            (process.identity.pid(), process.identity.start_ticks())
                == (child.pid, child.start_time)
        });
        assert!(listed, "{child} is not in {end:?}");
        let (logged, at) = logged_end(&daemon, id);
        assert_eq!(logged, end);
        assert!(at >= report.created.0, "{at}");
        told.push(end.reason.to_string());
    }
    told.sort();
    told.dedup();
    assert_eq!(told.len(), begun.len(), "{told:?}");
}

/// D17: the daemon's own end is a reason too.
#[test]
fn a_daemon_that_ends_says_so() {
    let mut daemon = daemon!("shutdown").limit("idle_after", "off").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:spawn setsid");
    assert!(daemon.terminate().success());
    daemon.restart();
    let report = daemon.wait_state(&id, SessionState::Released);
    let end = report.end.expect("it says why");
    assert_eq!(
        (end.reason, &end.by),
        (Reason::DaemonShutdown, &Who::Daemon)
    );
    assert_eq!(end.processes.len(), 2);
    assert_eq!(logged_end(&daemon, &id).0, end);
}
