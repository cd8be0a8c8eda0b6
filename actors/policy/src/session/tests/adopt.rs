//! From one daemon to the next (behaviours F 83 to 85, D41).

use drowse_messages::{
    Adopted, AgentStatus, Ask, AskKind, BootedIdentity, ChangeAccount, Conversation, EndTask,
    HoldKind, Incarnation, Limits, MessageId, MonoTime, Order, ProcIdentity, Progress, Running,
    SessionState, StartTask, StopHow, Suspend, TurnOutcome, Who,
};

use super::story::{HOUR, MINUTE, SECOND, Story};
use super::world::{OBEDIENT, after, conversation, ended, saved, task};

use crate::session::may_be_adopted;

fn running() -> Running {
    let identity = |pid| BootedIdentity {
        boot_id: "boot".to_owned(),
        process: ProcIdentity::new(pid, 1).unwrap(),
    };
    Running {
        keeper: identity(100),
        agent: identity(101),
        cgroup: None,
    }
}

fn adopted(in_flight: Option<u64>) -> Adopted {
    Adopted {
        incarnation: Incarnation(3),
        running: running(),
        ages: None,
        in_flight: in_flight.map(MessageId).into_iter().collect(),
        on_its_way: false,
        unknown: Vec::new(),
        tasks: None,
        statuses: Vec::new(),
    }
}

/// What the next daemon reads of a session that was in this state.
fn left(state: SessionState, queued: &[u64]) -> Story {
    let progress = Progress {
        state,
        incarnation: Incarnation(3),
        running: Some(running()),
        conversation: Some(conversation(true)),
        ..Progress::default()
    };
    let mut story = Story::restored(&saved(progress, queued), OBEDIENT, Limits::default());
    story.world.goes_on(Incarnation(3));
    story
}

/// D41: what is adopted is decided by the state alone: what runs is, what was starting or ending
/// is not.
#[test]
fn only_what_runs_is_adopted() {
    let adoptable = SessionState::ALL.into_iter().filter(|s| may_be_adopted(*s));
    assert_eq!(
        adoptable.collect::<Vec<_>>(),
        [
            SessionState::Working,
            SessionState::NeedsYou,
            SessionState::Waiting,
            SessionState::Resting
        ]
    );
}

/// F 84, D41: the turn that ran goes on, and its end answers its message, once; nothing is
/// started, and the message behind it is delivered to the same agent.
#[test]
fn a_turn_goes_on_and_its_message_is_answered() {
    let mut story = left(SessionState::Working, &[8]);
    story.feed(adopted(Some(7)));
    assert_eq!(story.state(), SessionState::Working);
    assert_eq!(story.done(), Vec::<String>::new());
    story.turn_ends();
    assert_eq!(story.count("settle(7, answered)"), 1);
    assert_eq!(story.done(), ["deliver(8)"]);
    assert_eq!(story.count("ask-start"), 0);
}

/// Behaviour 99: a message that the agent is not known to have got whole is unknown, once, and the
/// session goes on.
#[test]
fn a_message_on_its_way_is_unknown() {
    let mut story = left(SessionState::Working, &[]);
    story.feed(Adopted {
        unknown: vec![MessageId(7)],
        ..adopted(None)
    });
    assert_eq!(story.count("settle(7, unknown)"), 1);
    assert_eq!(story.state(), SessionState::Resting);
}

/// Behaviour 99: a turn that ended unheard leaves its message unknown, never answered.
#[test]
fn a_turn_that_ended_unheard_is_no_answer() {
    let mut story = left(SessionState::Working, &[]);
    story.feed(adopted(Some(7)));
    story.says(ended(TurnOutcome::Lost));
    assert_eq!(story.count("settle(7, unknown)"), 1);
    assert_eq!(story.state(), SessionState::Resting);
}

/// An end that the earlier daemon heard and had not written down answers the message; a turn of
/// the agent's own that began after it goes on.
#[test]
fn an_end_that_was_heard_is_not_lost() {
    let mut story = left(SessionState::Working, &[]);
    story.feed(Adopted {
        statuses: vec![ended(TurnOutcome::Completed), AgentStatus::TurnStarted],
        ..adopted(Some(7))
    });
    assert_eq!(story.count("settle(7, answered)"), 1);
    assert_eq!(story.state(), SessionState::Working);
    story.turn_ends();
    assert_eq!(story.state(), SessionState::Resting);
}

/// D16: what was asked is asked still, is not asked a second time, and can be answered.
#[test]
fn an_ask_can_still_be_answered() {
    let mut story = left(SessionState::NeedsYou, &[]);
    let ask = Ask {
        id: "a1".to_owned(),
        kind: AskKind::Approval,
        title: "rm".to_owned(),
        detail: String::new(),
    };
    story.feed(Adopted {
        statuses: vec![AgentStatus::TurnStarted, AgentStatus::Asked(ask)],
        ..adopted(Some(7))
    });
    assert_eq!(story.state(), SessionState::NeedsYou);
    assert_eq!(story.count("!Asked"), 0);
    story.answer("a1");
    assert_eq!(story.done(), ["answer(a1)"]);
    assert_eq!(story.state(), SessionState::Working);
}

/// B 10: the countdown begins anew with a full window, and ends in a release.
#[test]
fn the_countdown_begins_anew() {
    let mut story = left(SessionState::Resting, &[]);
    story.feed(adopted(None));
    story.wait(30 * MINUTE - SECOND);
    assert_eq!(story.state(), SessionState::Resting);
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Released);
}

/// C 30: a roster that is known holds, as it did; it is not told again.
#[test]
fn a_task_still_holds() {
    let mut story = left(SessionState::Waiting, &[]);
    story.feed(Adopted {
        tasks: Some(vec![task("1")]),
        ..adopted(None)
    });
    assert_eq!(story.state(), SessionState::Waiting);
    assert_eq!(story.count("!TasksChanged"), 0);
    story.wait(HOUR);
    assert_eq!(story.state(), SessionState::Waiting);
}

/// A message that waits is not handed over while the agent is busy with something else, which is
/// known in the same step.
#[test]
fn what_waits_does_not_come_in_between() {
    let mut story = left(SessionState::Working, &[8]);
    story.feed(Adopted {
        statuses: vec![AgentStatus::TurnStarted],
        ..adopted(None)
    });
    assert_eq!(story.done(), Vec::<String>::new());
    story.turn_ends();
    assert_eq!(story.done(), ["deliver(8)"]);
}

/// The daemon is killed, and the next one takes over what it wrote down.
fn next_daemon(story: &Story, limits: &Limits, says: Adopted) -> Story {
    let written = story.progress();
    let (incarnation, ages) = (written.incarnation, written.ages.clone());
    let running = written.running.clone().expect("it runs");
    let mut next = Story::restored(&saved(written, &[]), OBEDIENT, limits.clone());
    next.now = story.now;
    next.world.goes_on(incarnation);
    next.feed(Adopted {
        incarnation,
        running,
        ages,
        ..says
    });
    next
}

/// What was told of a session, and is wanted of it, holds under the next daemon as well: nobody
/// says it a second time.
#[test]
fn what_was_told_and_asked_is_still_so() {
    let mut first = Story::working(OBEDIENT);
    first.says(AgentStatus::Conversation(conversation(true)));
    let start = StartTask {
        task: task("build"),
        owner: "hook".to_owned(),
    };
    first.order(Order::StartTask(start)).unwrap();
    let by = Who::Client("me".to_owned());
    let change = ChangeAccount { by };
    first.order(Order::ChangeAccount(change)).unwrap();
    first.wait(MINUTE);
    let mut next = next_daemon(&first, &Limits::default(), adopted(Some(1)));
    next.turn_ends();
    assert_eq!(next.state(), SessionState::Waiting);
    let hold = next.session().holds(next.now).remove(0);
    assert_eq!((&*hold.owner, next.now.since(hold.since)), ("hook", MINUTE));
    let id = "build".to_owned();
    next.order(Order::EndTask(EndTask { id })).unwrap();
    next.wait(10 * SECOND);
    assert_eq!(next.reason(), "account_change");
}

/// Behaviour 102: the hard limit counts from the launch, through two daemons, and is warned of once.
#[test]
fn the_hard_limit_is_not_begun_anew() {
    let limits = Limits {
        hard_limit: after(3600),
        ..Limits::default()
    };
    let mut first = Story::working(OBEDIENT);
    first.limit(limits.clone());
    let launched = first.progress().ages.expect("it runs").launched;
    first.wait(40 * MINUTE);
    let mut second = next_daemon(&first, &limits, adopted(Some(1)));
    second.wait(19 * MINUTE + 30 * SECOND);
    assert_eq!(second.count("!LimitWarned"), 1);
    assert_eq!(second.state(), SessionState::Working);
    let mut third = next_daemon(&second, &limits, adopted(Some(1)));
    third.wait(MINUTE);
    assert_eq!(third.count("!LimitWarned"), 0);
    assert_eq!(third.when("reap(snapshot)"), Some(launched.after(HOUR)));
    assert_eq!(third.reason(), "hard_limit");
}

/// A moment that lies ahead is of another clock: it cannot put a limit off.
#[test]
fn a_moment_of_another_clock_begins_now() {
    let limits = Limits {
        hard_limit: after(3600),
        ..Limits::default()
    };
    let mut story = Story::dormant(OBEDIENT);
    story.wait(5 * HOUR);
    story.message();
    story.wait(2 * SECOND);
    story.now = MonoTime::from_millis(0);
    let mut next = next_daemon(&story, &limits, adopted(Some(1)));
    next.wait(HOUR + MINUTE);
    assert_eq!(next.reason(), "hard_limit");
}

/// Behaviour 27: an approval is withdrawn when it was pending for its whole time, whoever asked.
#[test]
fn what_is_asked_keeps_its_age() {
    let mut story = Story::working(OBEDIENT);
    story.says(AgentStatus::Conversation(conversation(true)));
    story.asks("a1");
    let asked = story.now;
    story.wait(20 * HOUR);
    let ask = Ask {
        id: "a1".to_owned(),
        kind: AskKind::Approval,
        title: "rm".to_owned(),
        detail: String::new(),
    };
    let limits = Limits::default();
    let mut next = next_daemon(
        &story,
        &limits,
        Adopted {
            statuses: vec![AgentStatus::TurnStarted, AgentStatus::Asked(ask)],
            ..adopted(Some(1))
        },
    );
    next.wait(5 * HOUR);
    assert_eq!(next.when("withdraw(a1)"), Some(asked.after(24 * HOUR)));
    assert_eq!(next.reason(), "approval_expired");
}

/// Behaviour 130: the budget of background tasks goes on, and so does the age of each.
#[test]
fn pins_and_tasks_keep_their_age() {
    let mut story = Story::resting(OBEDIENT);
    story.roster(&["1"]);
    let began = story.now;
    story.wait(2 * HOUR);
    let pinned = story.progress().ages.and_then(|ages| ages.pinned);
    let pinned = pinned.expect("a release was deferred").since;
    let mut next = next_daemon(
        &story,
        &Limits::default(),
        Adopted {
            tasks: Some(vec![task("1")]),
            ..adopted(None)
        },
    );
    let holds = next.session().holds(next.now);
    assert_eq!(
        holds.iter().map(|hold| hold.since).collect::<Vec<_>>(),
        [began]
    );
    next.wait(3 * HOUR);
    assert_eq!(next.when("reap(snapshot)"), Some(pinned.after(4 * HOUR)));
    assert_eq!(next.reason(), "task_hold_expired");
}

/// A lease holds until its own end, and a full window begins after it.
#[test]
fn a_lease_outlives_the_daemon() {
    let mut story = Story::resting(OBEDIENT);
    story.hold(1, HOUR).unwrap();
    let taken = story.now;
    story.wait(40 * MINUTE);
    let mut next = next_daemon(&story, &Limits::default(), adopted(None));
    let holds = next.session().holds(next.now);
    let lease = holds.first().expect("it is held still");
    assert_eq!(lease.kind, HoldKind::Lease);
    assert_eq!((lease.since, lease.until), (taken, Some(taken.after(HOUR))));
    next.wait(2 * HOUR);
    assert_eq!(next.when("!HoldLifted"), Some(taken.after(HOUR)));
    let released = taken.after(HOUR + 30 * MINUTE);
    assert_eq!(next.when("reap(snapshot)"), Some(released));
}

/// F 85: news of another launch adopts nothing.
#[test]
fn another_launch_is_not_adopted() {
    let mut story = left(SessionState::Resting, &[]);
    story.feed(Adopted {
        incarnation: Incarnation(2),
        ..adopted(None)
    });
    assert_eq!(story.state(), SessionState::Released);
}

/// A session that is left to the next daemon hears its turn to the end and begins nothing: no
/// delivery, no release, no timer.
#[test]
fn a_suspended_session_begins_nothing() {
    let mut story = Story::working(OBEDIENT);
    story.message();
    story.forget();
    story.feed(Suspend);
    assert_eq!(story.done(), ["suspended"]);
    story.says(AgentStatus::Conversation(Conversation {
        resumable: true,
        ..Conversation::default()
    }));
    story.turn_ends();
    assert_eq!(story.count("settle(1, answered)"), 1);
    assert_eq!(story.session().next_deadline(), None);
    story.wait(2 * HOUR);
    assert_eq!(story.state(), SessionState::Resting);
    assert_eq!(story.done(), ["suspended"]);
    // Unless the daemon is told to end after all.
    story.stop(StopHow::Shutdown).unwrap();
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Released);
}

/// F 88: a start is undone, and its message waits for the next daemon.
#[test]
fn a_start_is_undone_when_suspended() {
    for moment in [0, 50, 500] {
        let mut story = Story::dormant(OBEDIENT);
        story.message();
        story.wait(moment * SECOND / 1000);
        story.feed(Suspend);
        story.wait(MINUTE);
        assert!(story.session().is_asleep(), "{moment}: {:?}", story.state());
        assert_eq!(story.count("deliver("), 0, "{moment}");
        assert!(!story.world.tree, "{moment}");
    }
}

/// A release that runs comes to its end, and what waits behind it is left to the next daemon.
#[test]
fn a_release_completes_when_suspended() {
    let mut story = Story::resting(OBEDIENT);
    story.stop(StopHow::Release).unwrap();
    story.message();
    story.feed(Suspend);
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Released);
    assert_eq!(story.count("launch("), 0);
}
