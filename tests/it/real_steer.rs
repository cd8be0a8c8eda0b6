//! Messages of all priorities with real agents that take them into a turn: Claude Code, Codex, Pi.
//!
//! The model is the mock, and what it is asked proves into which turn a message went.

use drowse_messages::{MessageId, MessageState, SavedMessage};
use drowse_tests::MockModel;
use drowse_tests::agents::{Missing, RealAgent};
use drowse_tests::cli::REAL_CEILING;
use drowse_tests::wait_until;
use serde_json::Value;

use crate::real::{NAME, Stage, Tree};

type Install = fn(&MockModel) -> Result<RealAgent, Missing>;

impl Stage {
    fn send(&self, priority: &str, text: &str) -> MessageId {
        let args = ["send", NAME, text, "--no-wait", "--priority", priority];
        MessageId(self.cli.json(&args)["message"].as_u64().expect("a number"))
    }

    fn message(&self, message: MessageId) -> SavedMessage {
        self.cli
            .client(async |client| client.message(message).await)
    }

    fn settled(&self, message: MessageId) -> SavedMessage {
        wait_until("the fate of a message", REAL_CEILING, || {
            let saved = self.message(message);
            saved.state.is_final().then_some(saved)
        })
    }

    /// At work on a shell command that goes on until the gate is open.
    fn at_work(&self) -> MessageId {
        let shell = format!("MOCK:bash {}; echo went", self.until_gate());
        let message = self.send("later", &shell);
        wait_until("the shell", REAL_CEILING, || {
            let runs = format!("{:?}", Tree::of(&self.cli)).contains("until [ -e");
            runs.then_some(())
        });
        message
    }

    fn turns(&self) -> Vec<Value> {
        let log = self.cli.ok(&["logs", NAME, "--limit", "1000", "--json"]);
        let events = log.lines().map(serde_json::from_str::<Value>);
        let events = events.map(|event| event.expect("a line is an event"));
        events
            .filter(|event| event["event"] == "turn_started")
            .map(|event| event["message"].clone())
            .collect()
    }
}

/// `next` reaches the model within the turn that runs, whose end answers both; `later` waits for a
/// turn of its own.
fn goes_into_the_turn(test: &str, agent: Install) {
    let Some(stage) = Stage::set(test, agent, None) else {
        return;
    };
    stage.cli.open(NAME, &[]);
    stage.cli.say(NAME, "MOCK:say one");
    let first = stage.at_work();
    let later = stage.send("later", "MOCK:say afterwards");
    let next = stage.send("next", "MOCK:say steered");
    wait_until("its delivery", REAL_CEILING, || {
        (stage.message(next).state == MessageState::Delivered).then_some(())
    });
    assert_eq!(stage.message(first).state, MessageState::Delivered);
    assert_eq!(stage.message(later).state, MessageState::Queued);
    stage.open_gate();
    let (first, next) = (stage.settled(first), stage.settled(next));
    assert_eq!(first.state, MessageState::Answered, "{first:?}");
    assert_eq!(next.state, MessageState::Answered, "{next:?}");
    assert_eq!(first.answer, next.answer, "one turn answered both");
    let later = stage.settled(later);
    assert_eq!(later.state, MessageState::Answered, "{later:?}");
    assert!(later.answer.contains("SAID afterwards"), "{later:?}");
    let asked = stage.model.requests();
    let heard = asked.iter().position(|request| {
        let items = format!("{:?}", request.items);
        items.contains("MOCK:say steered") && !items.contains("MOCK:say afterwards")
    });
    assert!(heard.is_some(), "the model was told within the turn");
    let turns = stage.turns();
    assert_eq!(turns.len(), 3, "{turns:?}");
}

/// `now` ends the turn that runs, and is answered by one of its own, before what waits longer.
fn interrupts_the_turn(test: &str, agent: Install) {
    let Some(stage) = Stage::set(test, agent, None) else {
        return;
    };
    stage.cli.open(NAME, &[]);
    stage.cli.say(NAME, "MOCK:say one");
    let first = stage.at_work();
    let later = stage.send("later", "MOCK:say afterwards");
    let now = stage.send("now", "MOCK:say urgent");
    let first = stage.settled(first);
    assert_eq!(first.state, MessageState::Failed, "{first:?}");
    assert_eq!(first.answer, "interrupted");
    let now = stage.settled(now);
    assert_eq!(now.state, MessageState::Answered, "{now:?}");
    assert!(now.answer.contains("SAID urgent"), "{now:?}");
    assert_eq!(stage.settled(later).state, MessageState::Answered);
    let asked = stage.model.requests();
    let first_with = |text: &str| asked.iter().position(|request| request.has_user(text));
    assert!(first_with("MOCK:say urgent") < first_with("MOCK:say afterwards"));
}

#[test]
fn a_message_goes_into_the_turn_of_claude() {
    goes_into_the_turn("a_message_goes_into_the_turn_of_claude", RealAgent::claude);
}

#[test]
fn a_message_goes_into_the_turn_of_codex() {
    goes_into_the_turn("a_message_goes_into_the_turn_of_codex", RealAgent::codex);
}

#[test]
fn a_message_goes_into_the_turn_of_pi() {
    goes_into_the_turn("a_message_goes_into_the_turn_of_pi", RealAgent::pi);
}

#[test]
fn an_urgent_message_interrupts_claude() {
    interrupts_the_turn("an_urgent_message_interrupts_claude", RealAgent::claude);
}

#[test]
fn an_urgent_message_interrupts_codex() {
    interrupts_the_turn("an_urgent_message_interrupts_codex", RealAgent::codex);
}

#[test]
fn an_urgent_message_interrupts_pi() {
    interrupts_the_turn("an_urgent_message_interrupts_pi", RealAgent::pi);
}
