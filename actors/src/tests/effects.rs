//! Every effect reaches its port once, and in order.

use drowse_messages::{
    AgentStatus, Answer, AnswerAsk, Ask, AskKind, Interrupt, MessageState, Order, Refusal,
    SessionEvent, SessionState, StopHow,
};

use super::{HOUR, MINUTE, SECOND, World, client, on_paused_time, pass, settle, stop};

/// `Launch` and `Tell(Deliver)`: opening starts nothing, the first message starts one backend.
#[test]
fn a_first_message_launches_once_and_is_delivered_once() {
    on_paused_time(async {
        let world = World::new();
        let id = world.open(1).await;
        pass(HOUR).await;
        assert_eq!(world.launches(), 0);
        world.say(id, "hello").await;
        world.until(id, SessionState::Resting).await;
        let journal = &world.fakes.journal;
        assert_eq!(journal.of("backends: "), ["launch #1 new", "deliver 1"]);
        assert_eq!(journal.of("store: deliver"), [" 1"]);
    });
}

/// `Reap`, `Tell(Close)`, `Tell(Dismiss)` and `Save`, across ports: the record says what is about
/// to happen before the agent is told, and that it is over after the walk that found nothing.
#[test]
fn a_release_takes_its_rungs_in_order() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        world.fakes.journal.clear();
        pass(31 * MINUTE).await;
        assert_eq!(world.report(id).await.state, SessionState::Released);
        let rungs = [
            "store: save releasing",
            "trees: reap snapshot",
            "backends: close",
            "trees: reap terminate",
            "trees: reap verify",
            "backends: dismiss",
            "store: save released",
        ];
        let mut lines = world.fakes.journal.of("");
        lines.truncate(rungs.len());
        assert_eq!(lines, rungs);
    });
}

/// The ladder goes on when nobody obeys: SIGTERM after `eof_grace`, SIGKILL after `term_grace`.
#[test]
fn a_stubborn_tree_is_killed_after_its_graces() {
    on_paused_time(async {
        let world = World::new();
        world.fakes.behave(|manners| {
            manners.obeys_close = false;
            manners.obeys_term = false;
        });
        let id = world.rested(1).await;
        pass(31 * MINUTE).await;
        assert_eq!(world.report(id).await.state, SessionState::Released);
        let steps = world.fakes.journal.timed("trees: reap ");
        let rungs: Vec<_> = steps.iter().map(|(_, step)| step.as_str()).collect();
        assert_eq!(rungs, ["snapshot", "terminate", "kill"]);
        assert!(steps[1].0.since(steps[0].0) >= 2 * SECOND);
        assert!(steps[2].0.since(steps[1].0) >= 5 * SECOND);
        assert!(steps[2].0.since(steps[0].0) < 8 * SECOND);
    });
}

/// `Settle`: the answer is written down once.
#[test]
fn an_answer_is_settled_once() {
    on_paused_time(async {
        let world = World::new();
        let id = world.open(1).await;
        let message = world.say(id, "hello").await;
        world.until(id, SessionState::Resting).await;
        assert_eq!(world.fakes.journal.of("store: settle "), ["1 answered"]);
        let saved = world.daemon.message(message).await.unwrap();
        assert_eq!(saved.state, MessageState::Answered);
        assert_eq!(saved.answer, "re: hello");
    });
}

/// `Forget`: removed means gone, for the next question too (behaviour 89).
#[test]
fn a_removed_session_is_forgotten_once() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        world.daemon.order(id, stop(StopHow::Remove)).await.unwrap();
        pass(MINUTE).await;
        assert_eq!(world.fakes.journal.count("store: forget"), 1);
        assert_eq!(world.fakes.trees.standing(), 0);
        let gone = Err(Refusal::NoSuchSession {
            session: id.to_string(),
        });
        assert_eq!(world.daemon.report(id).await.map(|_| ()), gone);
        assert_eq!(world.daemon.order(id, super::wake()).await, gone);
        assert!(!world.fakes.backends.is_heard(id));
        let last = world.fakes.store.recorded().pop().unwrap();
        assert_eq!(last.what, SessionEvent::Removed);
    });
}

/// `Publish`: every event is recorded once, with numbers that count up by one.
#[test]
fn events_are_recorded_once_in_order() {
    on_paused_time(async {
        let world = World::new();
        world.rested(1).await;
        pass(31 * MINUTE).await;
        let recorded = world.fakes.store.recorded();
        let numbers: Vec<_> = recorded.iter().map(|event| event.seq).collect();
        let expected: Vec<_> = (1..=recorded.len() as u64).collect();
        assert_eq!(numbers, expected);
        let states: Vec<_> = recorded
            .iter()
            .filter_map(|event| {
                if let SessionEvent::StateChanged { to, .. } = &event.what {
                    Some(to.code())
                } else {
                    None
                }
            })
            .collect();
        let life = ["starting", "working", "resting", "releasing", "released"];
        // The agent is at rest for a moment between its handshake and its first message.
        let states: Vec<_> = states.into_iter().skip_while(|s| *s == "resting").collect();
        assert_eq!(states, life);
    });
}

/// `Refuse`: whoever ordered hears why, and nothing changes.
#[test]
fn a_refusal_reaches_whoever_ordered() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        world.fakes.journal.clear();
        let order = Order::Interrupt(Interrupt { by: client() });
        let state = "resting".to_owned();
        let refused = Err(Refusal::NotRunning { state });
        assert_eq!(world.daemon.order(id, order).await, refused);
        assert_eq!(world.fakes.journal.of(""), Vec::<String>::new());
    });
}

/// `Tell(Interrupt)`: a turn is interrupted by protocol.
#[test]
fn an_interrupt_reaches_the_agent_once() {
    on_paused_time(async {
        let world = World::new();
        world.fakes.behave(|manners| manners.turn_takes = None);
        let id = world.open(1).await;
        let message = world.say(id, "count to a million").await;
        world.until(id, SessionState::Working).await;
        let order = Order::Interrupt(Interrupt { by: client() });
        world.daemon.order(id, order).await.unwrap();
        world.until(id, SessionState::Resting).await;
        assert_eq!(world.fakes.journal.count("backends: interrupt"), 1);
        assert_eq!(world.message_state(message).await, MessageState::Failed);
    });
}

fn approval(id: &str) -> AgentStatus {
    AgentStatus::Asked(Ask {
        id: id.to_owned(),
        kind: AskKind::Approval,
        title: "may I?".to_owned(),
        detail: String::new(),
    })
}

/// `Tell(Answer)`: the first answer reaches the agent, a second one is refused.
#[test]
fn an_answer_to_an_ask_reaches_the_agent_once() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        world.fakes.backends.say(id, approval("a1"));
        world.until(id, SessionState::NeedsYou).await;
        let answer = || {
            Order::Answer(AnswerAsk {
                id: "a1".to_owned(),
                answer: Answer::Allow,
                by: client(),
            })
        };
        world.daemon.order(id, answer()).await.unwrap();
        let again = world.daemon.order(id, answer()).await.unwrap_err();
        assert_eq!(again.code(), "not_pending");
        assert_eq!(world.fakes.journal.of("backends: answer"), [" a1 allow"]);
    });
}

/// `Tell(Withdraw)`: an approval nobody answers is taken back after a day (behaviour 27).
#[test]
fn an_expired_approval_is_withdrawn_once() {
    on_paused_time(async {
        let world = World::new();
        let id = world.rested(1).await;
        world.fakes.backends.say(id, approval("a1"));
        pass(25 * HOUR).await;
        assert_eq!(world.fakes.journal.of("backends: withdraw"), [" a1"]);
        assert_eq!(world.report(id).await.state, SessionState::Released);
    });
}

/// `AskStart` and `StartSettled`: the second start waits until the first agent is ready.
#[test]
fn a_start_waits_for_its_place_and_gives_it_back() {
    on_paused_time(async {
        let world = World::new();
        world.fakes.behave(|manners| manners.ready_takes = None);
        world.fakes.catalog.set_starting_max(1);
        world.daemon.reload();
        let (first, second) = (world.open(1).await, world.open(2).await);
        world.say(first, "hello").await;
        world.say(second, "hello").await;
        pass(SECOND).await;
        assert_eq!(world.launches(), 1);
        world.fakes.backends.say(first, AgentStatus::Ready);
        settle().await;
        assert_eq!(world.launches(), 2);
    });
}
