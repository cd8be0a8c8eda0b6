//! Messages that wait: urgent ones, taken back ones, poisonous ones (behaviours E 79, I 99, I 117).

use drowse_messages::{
    AgentStatus, CancelMessage, DeliveryResult, Limits, MessageId, MessageQueued, Order, Priority,
    Progress, RecordOutcome, Refusal, SessionState, StopHow, TurnEnded, TurnOutcome,
};

use super::generate::me;
use super::story::{MINUTE, SECOND, Story};
use super::world::{DEAF, OBEDIENT, conversation, saved};
use crate::session::{AgentTraits, MESSAGE_TRIES_MAX, OUTCOME_BYTES_MAX, TURN_MESSAGES_MAX};

/// At work on message 1 with an agent that takes messages into a turn, or does not.
fn at_work(steers: bool) -> Story {
    let traits = AgentTraits {
        can_resume: true,
        reports_tasks: false,
        observed: false,
        steers,
    };
    let saved = saved(Progress::default(), &[]);
    let mut story = Story::with(&saved, OBEDIENT, Limits::default(), traits);
    story.message();
    story.wait(2 * SECOND);
    story.says(AgentStatus::Conversation(conversation(true)));
    story.forget();
    story
}

fn send(story: &mut Story, number: u64, priority: Priority) {
    let message = MessageId(number);
    story.feed(MessageQueued { message, priority });
    story.wait(SECOND);
}

fn ends(story: &mut Story, left: u32) {
    story.says(AgentStatus::TurnEnded(TurnEnded {
        outcome: TurnOutcome::Completed,
        text: "done".to_owned(),
        answers: true,
        left,
    }));
    story.wait(SECOND);
}

fn cancel(story: &mut Story, number: u64) -> Result<(), Refusal> {
    let message = MessageId(number);
    story.order(Order::Cancel(CancelMessage { message, by: me() }))
}

/// Urgent ones go first, and of equals the one that was accepted first.
#[test]
fn the_more_urgent_message_goes_first() {
    let mut story = at_work(false);
    for (number, priority) in [
        (2, Priority::Later),
        (3, Priority::Later),
        (4, Priority::Next),
        (5, Priority::Next),
    ] {
        send(&mut story, number, priority);
    }
    assert_eq!(story.done(), Vec::<String>::new(), "the turn goes on");
    for _ in 0..5 {
        ends(&mut story, 0);
    }
    let order = ["deliver(4)", "deliver(5)", "deliver(2)", "deliver(3)"];
    assert_eq!(story.done(), order);
}

/// `now` interrupts the turn, once, and is the next one, before what waits longer.
#[test]
fn a_message_that_cannot_wait_interrupts_the_turn() {
    let mut story = at_work(true);
    send(&mut story, 2, Priority::Later);
    send(&mut story, 3, Priority::Now);
    assert_eq!(story.count("interrupt"), 1);
    assert_eq!(story.count("settle(1, failed)"), 1);
    assert_eq!(story.count("deliver(3)"), 1);
    assert_eq!(story.count("deliver(2)"), 0);
    ends(&mut story, 0);
    assert_eq!(story.count("settle(3, answered)"), 1);
    assert_eq!(story.count("deliver(2)"), 1);
}

/// Also an agent that does not heed it is told once for however many messages.
#[test]
fn a_turn_is_interrupted_once() {
    let mut story = at_work(false);
    story.world.manners = DEAF;
    for number in 2..5 {
        send(&mut story, number, Priority::Now);
    }
    assert_eq!(story.count("interrupt"), 1);
    assert_eq!(story.count("deliver("), 0);
}

/// `next` goes into the turn that runs, and its end answers both; what waits for its turn does not.
#[test]
fn a_message_goes_into_the_turn() {
    let mut story = at_work(true);
    send(&mut story, 2, Priority::Later);
    send(&mut story, 3, Priority::Next);
    assert_eq!(story.done(), ["deliver(3)"]);
    assert_eq!(story.state(), SessionState::Working);
    ends(&mut story, 0);
    assert_eq!(story.count("settle(1, answered)"), 1);
    assert_eq!(story.count("settle(3, answered)"), 1);
    assert_eq!(story.count("deliver(2)"), 1);
}

/// One that the agent had not taken in when the turn ended is answered by the turn after it.
#[test]
fn a_message_that_came_too_late_has_a_turn_of_its_own() {
    let mut story = at_work(true);
    send(&mut story, 2, Priority::Next);
    ends(&mut story, 1);
    assert_eq!(story.count("settle(1, answered)"), 1);
    assert_eq!(story.count("settle(2"), 0);
    assert_eq!(story.state(), SessionState::Working);
    ends(&mut story, 0);
    assert_eq!(story.count("settle(2, answered)"), 1);
    assert_eq!(story.state(), SessionState::Resting);
}

/// The turn ends while the message is on its way: the agent cannot have taken it in.
#[test]
fn a_message_on_its_way_is_not_answered_by_the_end_it_meets() {
    let mut story = at_work(true);
    let (message, priority) = (MessageId(2), Priority::Next);
    story.feed(MessageQueued { message, priority });
    story.turn_ends();
    assert_eq!(story.count("settle(1, answered)"), 1);
    assert_eq!(story.count("settle(2"), 0);
    story.wait(SECOND);
    ends(&mut story, 0);
    assert_eq!(story.count("settle(2, answered)"), 1);
    assert_eq!(story.count("deliver(2)"), 1);
}

/// One at a time is handed over, and only so many go into one turn.
#[test]
fn only_so_many_messages_go_into_a_turn() {
    let mut story = at_work(true);
    for number in 2..40 {
        let message = MessageId(number);
        let priority = Priority::Next;
        story.feed(MessageQueued { message, priority });
    }
    assert_eq!(story.count("deliver("), 1, "one is on its way");
    story.wait(SECOND);
    assert_eq!(story.count("deliver("), TURN_MESSAGES_MAX - 1);
    ends(&mut story, 0);
    let answered = |number: &u64| story.count(&format!("settle({number}, answered)")) == 1;
    let answered: Vec<u64> = (1..40).filter(answered).collect();
    assert_eq!(answered, (1..=TURN_MESSAGES_MAX as u64).collect::<Vec<_>>());
    assert_eq!(story.count("deliver(17)"), 1, "the next turn");
}

/// I 99: what went into a turn that crashed is unknown, all of it, and not repeated.
#[test]
fn all_messages_of_a_crashed_turn_are_unknown() {
    let mut story = at_work(true);
    send(&mut story, 2, Priority::Next);
    send(&mut story, 3, Priority::Later);
    story.exits(1);
    story.wait(20 * SECOND);
    assert_eq!(story.count("settle(1, unknown)"), 1);
    assert_eq!(story.count("settle(2, unknown)"), 1);
    assert_eq!(story.count("deliver(3)"), 1);
    assert_eq!(story.count("deliver(1)") + story.count("deliver(2)"), 1);
}

/// An agent that closes its input during a turn ends neither the turn nor the message.
#[test]
fn a_message_that_the_turn_does_not_take_waits() {
    let mut story = at_work(true);
    story.world.manners.delivery = DeliveryResult::NotWritten;
    send(&mut story, 2, Priority::Next);
    send(&mut story, 3, Priority::Next);
    assert_eq!(story.count("settle(2, queued)"), 1);
    assert_eq!(story.count("deliver(3)"), 0, "it takes nothing more");
    assert_eq!(story.state(), SessionState::Working);
    story.world.manners.delivery = DeliveryResult::Written;
    ends(&mut story, 0);
    assert_eq!(story.count("settle(1, answered)"), 1);
    assert_eq!(story.count("deliver(2)"), 2);
}

/// A message that waits can be taken back, whatever the session does; one that was delivered
/// cannot, and nothing is changed by the attempt.
#[test]
fn a_waiting_message_can_be_taken_back() {
    let mut story = at_work(false);
    send(&mut story, 2, Priority::Later);
    send(&mut story, 3, Priority::Later);
    assert_eq!(cancel(&mut story, 2), Ok(()));
    assert_eq!(story.count("settle(2, cancelled)"), 1);
    for (number, word) in [(1, "delivered"), (2, "over"), (9, "over")] {
        let Err(Refusal::NotQueued { message, state }) = cancel(&mut story, number) else {
            panic!("{number} was taken back");
        };
        assert_eq!((message, state.as_str()), (MessageId(number), word));
    }
    ends(&mut story, 0);
    assert_eq!(story.count("deliver(2)"), 0);
    assert_eq!(story.count("deliver(3)"), 1);
}

/// One taken back before its announcement came is not taken for a new one when it comes.
#[test]
fn a_message_taken_back_stays_back() {
    let saved = saved(Progress::default(), &[7]);
    let mut story = Story::restored(&saved, OBEDIENT, Limits::default());
    assert_eq!(cancel(&mut story, 7), Ok(()));
    send(&mut story, 7, Priority::Later);
    story.wait(MINUTE);
    assert_eq!(story.count("settle(7, cancelled)"), 1);
    assert_eq!(story.done(), Vec::<String>::new(), "nothing is started");
}

/// A message over which agents die while they read it is parked after so many of them, and does
/// not block the next; what it did before does not count against the start of the session.
#[test]
fn a_poisonous_message_is_parked() {
    let mut story = Story::resting(OBEDIENT);
    story.world.manners.delivery = DeliveryResult::CutShort;
    story.message();
    story.message();
    story.wait(SECOND);
    assert_eq!(story.count("settle(2, queued)"), 1, "it may be bad luck");
    while story.count("settle(2, parked)") == 0 {
        story.wait(SECOND);
        if story.count("deliver(2)") == MESSAGE_TRIES_MAX as usize {
            story.world.manners.delivery = DeliveryResult::Written;
        }
    }
    story.wait(20 * SECOND);
    assert_eq!(story.count("deliver(2)"), MESSAGE_TRIES_MAX as usize);
    assert_eq!(story.count("settle(2, unknown)"), 0);
    assert_eq!(story.count("deliver(3)"), 1);
    assert_eq!(story.state(), SessionState::Working);
}

/// Starts that fail, agents that read nothing and daemons that end say nothing of the message.
#[test]
fn outages_do_not_spend_the_tries_of_a_message() {
    let mut story = Story::resting(OBEDIENT);
    story.world.manners.delivery = DeliveryResult::NotWritten;
    story.message();
    story.wait(60 * MINUTE);
    assert_eq!(story.state(), SessionState::Failing);
    assert_eq!(story.count("settle(2, parked)"), 0);
    assert_eq!(
        story
            .session()
            .report(
                &saved(Progress::default(), &[]).profile,
                Default::default(),
                story.now
            )
            .queued,
        1
    );
}

/// D 60: an unread message of a session that is stopped is cancelled, not parked or unknown.
#[test]
fn a_stop_cancels_what_was_cut_short() {
    let mut story = Story::resting(OBEDIENT);
    story.world.manners.delivery = DeliveryResult::CutShort;
    story.message();
    story.stop(StopHow::Stop).unwrap();
    story.wait(20 * SECOND);
    assert_eq!(story.count("settle(2, cancelled)"), 1);
    assert_eq!(story.count("settle(2, unknown)"), 0);
}

/// I 117: an outcome is the client's, readable in every state, and only a client takes it back.
#[test]
fn an_outcome_is_recorded_by_clients_only() {
    let record = |story: &mut Story, text: Option<&str>| {
        let text = text.map(str::to_owned);
        story.order(Order::RecordOutcome(RecordOutcome { text, by: me() }))
    };
    let mut story = at_work(false);
    let outcome = |story: &Story| story.saved.outcome.clone().map(|outcome| outcome.text);
    assert_eq!(outcome(&story), None);
    record(&mut story, Some("merged")).unwrap();
    assert_eq!(outcome(&story).as_deref(), Some("merged"));
    ends(&mut story, 0);
    story.stop(StopHow::Stop).unwrap();
    story.wait(MINUTE);
    assert_eq!(story.state(), SessionState::Stopped);
    assert_eq!(
        outcome(&story).as_deref(),
        Some("merged"),
        "it outlives the process"
    );
    record(&mut story, Some("reverted")).unwrap();
    assert_eq!(outcome(&story).as_deref(), Some("reverted"));
    let long = "x".repeat(OUTCOME_BYTES_MAX + 1);
    for wrong in ["", &long] {
        let refused = record(&mut story, Some(wrong));
        assert!(matches!(refused, Err(Refusal::Invalid { .. })));
    }
    assert_eq!(outcome(&story).as_deref(), Some("reverted"));
    record(&mut story, None).unwrap();
    assert_eq!(outcome(&story), None);
}
