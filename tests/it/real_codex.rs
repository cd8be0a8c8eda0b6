//! Drowse with the real Codex, driven by the command line as a user would.
//!
//! The model is the mock, and Codex has an MCP server that ignores the end of its input. Not run
//! where Codex cannot be installed, and said so aloud; a failure in CI.

use drowse_messages::{Answer, MessageId};
use drowse_tests::agents::RealAgent;
use drowse_tests::cli::{REAL_CEILING, becomes, is};
use drowse_tests::{PipedAgent, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::real::{
    NAME, Stage, Tree, assert_woken, between, idle_after, is_final, say_figures, wait_end,
    wait_idle_release,
};

/// Arguments with which Codex asks before it does what its sandbox does not let it.
const ASKING: [&str; 4] = [
    "-c",
    "approval_policy=\"on-request\"",
    "-c",
    "sandbox_mode=\"read-only\"",
];

/// A command for which leave has to be asked.
fn needs_leave(command: &str) -> String {
    let input = json!({
        "cmd": command, "sandbox_permissions": "require_escalated", "justification": "need it",
        "yield_time_ms": 30_000,
    });
    format!("MOCK:tool exec_command {input}")
}

/// What a client says until it is in the conversation `id`.
fn greeting(id: &str) -> Vec<Value> {
    let client = json!({ "clientInfo": { "name": "bare", "version": "1" } });
    vec![
        json!({ "id": 1, "method": "initialize", "params": client }),
        json!({ "method": "initialized" }),
        json!({ "id": 2, "method": "thread/resume", "params": { "threadId": id } }),
    ]
}

fn conversation(shown: &Value) -> &str {
    let id = shown["conversation"]["native_id"].as_str();
    id.expect("the conversation has an id")
}

/// Behaviours 10, 45 to 48, 67, 69, 71, 96: an MCP server that ignores the end of its input, and a
/// command that left Codex's session, are released with it, and it is woken where it was.
#[test]
fn codex_is_released_with_all_it_started_and_woken_where_it_was() {
    let test = "codex_is_released_with_all_it_started_and_woken_where_it_was";
    let Some(stage) = Stage::set(test, RealAgent::codex, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    let earlier = [
        "MOCK:say one",
        "MOCK:tool mcp__stubborn/where {}",
        "MOCK:bash setsid nohup sleep 1001 >/dev/null 2>&1 & echo started",
    ];
    assert_eq!(cli.say(NAME, earlier[0]), "SAID one (user turns seen: 1)\n");
    let said = cli.say(NAME, earlier[1]);
    assert!(said.contains("pid "), "{said}");
    let said = cli.say(NAME, earlier[2]);
    assert!(said.contains("started"), "{said}");
    let tree = Tree::of(cli);
    tree.find("mcp_server.js");
    tree.find("sleep 1001");
    let end = wait_idle_release(cli, &mut watch, &tree);
    let before = cli.show(NAME);
    assert_woken(&stage, &earlier, &before);
    let tree = Tree::of(cli);
    wait_idle_release(cli, &mut watch, &tree);
    // Released again without a turn in between, and spoken to while it goes.
    cli.ok(&["wake", NAME]);
    watch.wait_for("the decision", is("ending"));
    let said = cli.say(NAME, "MOCK:say five");
    assert_eq!(said, "SAID five (user turns seen: 5)\n");
    wait_end(&mut watch);
    wait_end(&mut watch);

    let id = conversation(&before);
    let mut first = greeting(id);
    let input = json!([{ "type": "text", "text": "MOCK:say bare" }]);
    let params = json!({ "threadId": id, "input": input });
    first.push(json!({ "id": 3, "method": "turn/start", "params": params }));
    let is_output = |line: &Value| line["method"] == "item/agentMessage/delta";
    let bare = PipedAgent::spawn(stage.agent.command(&[]), &stage.guard);
    say_figures(bare, &end, &first, is_output);
}

/// Behaviours 17, 30, D14: a command that outlives its turn holds the session until it ends, and
/// then a full window passes: Codex begins no turn of its own.
#[test]
fn a_background_command_of_codex_holds_until_it_ends() {
    let test = "a_background_command_of_codex_holds_until_it_ends";
    let Some(stage) = Stage::set(test, RealAgent::codex, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    cli.say(NAME, &format!("MOCK:bg {}", stage.until_gate()));
    cli.wait_state(NAME, "waiting");
    assert_eq!(stage.holds(), ["task"]);
    let refused = cli.run(&["release", NAME]);
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(refused.err.contains("task"), "{refused:?}");
    for _ in 0..2 {
        let deferred = watch.wait_for("a deferral", is("release_deferred"));
        let held_by = deferred["held_by"].to_string();
        assert!(held_by.contains("task"), "{deferred}");
    }
    // Another turn beside it changes nothing.
    cli.say(NAME, "MOCK:say meanwhile");
    assert_eq!(stage.holds(), ["task"]);
    let tree = Tree::of(cli);
    tree.find("until [ -e");
    stage.open_gate();
    let over = watch.wait_for("the empty roster", |line| {
        is("tasks_changed")(line) && line["tasks"] == json!([])
    });
    let releasing = watch.wait_for("the decision", is("ending"));
    assert!(
        between(&over, &releasing) >= idle_after(),
        "{over} {releasing}"
    );
    wait_end(&mut watch);
    tree.assert_gone();
}

/// Behaviour 30, D14: a sub-agent is a thread of its own, and works on when the turn that started
/// it is over.
#[test]
fn a_sub_agent_of_codex_holds_until_it_is_done() {
    let test = "a_sub_agent_of_codex_holds_until_it_is_done";
    let Some(stage) = Stage::set(test, RealAgent::codex, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    let message = format!("MOCK:bash {}", stage.until_gate());
    let input = json!({ "message": message, "agent_type": "default" }).to_string();
    // The model goes by the last directive it sees, and this one is for the sub-agent.
    let input = input.replace("MOCK", "\\u004dOCK");
    cli.say(
        NAME,
        &format!("MOCK:tool multi_agent_v1/spawn_agent {input}"),
    );
    cli.wait_state(NAME, "waiting");
    assert_eq!(stage.holds(), ["task"]);
    for _ in 0..2 {
        watch.wait_for("a deferral", is("release_deferred"));
    }
    stage.open_gate();
    wait_end(&mut watch);
    assert!(cli.say(NAME, "MOCK:say after").starts_with("SAID after"));
}

/// Behaviours 26 to 28, D16: a pending approval is never idle, and is answered over HTTP.
#[test]
fn an_approval_that_codex_waits_for_holds_and_is_answered() {
    let test = "an_approval_that_codex_waits_for_holds_and_is_answered";
    let Some(stage) = Stage::set(test, RealAgent::codex, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &ASKING);
    let file = stage.agent.work().join("allowed");
    let order = needs_leave(&format!("touch {}", file.display()));
    for (answer, done) in [(Answer::Deny, false), (Answer::Allow, true)] {
        let mut saying = cli.saying(NAME, &order);
        let ask = saying.wait_for("the question", is("asked"))["ask"].clone();
        assert_eq!(ask["kind"], "approval", "{ask}");
        assert!(ask["title"].to_string().contains("touch"), "{ask}");
        saying.wait_for("that somebody is needed", becomes("needs_you"));
        assert!(stage.holds().contains(&"approval".to_owned()));
        assert!(
            saying.is_silent_for(idle_after() * 3),
            "nothing happens to it"
        );
        assert!(!file.exists());
        let ask = ask["id"].as_str().expect("it has an id");
        cli.client(async |client| client.answer(NAME, ask, answer).await);
        saying.wait_for("that it is settled", is("settled"));
        let outcome = saying.wait_for("the answer", is_final);
        assert_eq!(outcome["state"], "answered", "{outcome}");
        assert_eq!(file.exists(), done);
    }
    cli.wait_state(NAME, "released");
}

/// Behaviours 46 to 49, 99: when Codex dies in a turn, nothing it started lives on, and the
/// conversation goes on; even when that turn was the first. An interrupt (behaviour 92) leaves the
/// process alone.
#[test]
fn codex_is_interrupted_by_order_and_by_a_kill_and_goes_on() {
    let test = "codex_is_interrupted_by_order_and_by_a_kill_and_goes_on";
    let Some(stage) = Stage::set(test, RealAgent::codex, None) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    let mut saying = cli.saying(NAME, "MOCK:slow 60");
    saying.wait_for("a piece of the answer", is("output"));
    cli.agent(NAME).signal(Signal::SIGKILL);
    watch.wait_for("the interruption", becomes("interrupted"));
    assert_eq!(saying.wait_for("its outcome", is_final)["state"], "unknown");
    cli.say(NAME, "MOCK:say one");
    stage.assert_history("MOCK:say one", &["MOCK:slow 60"]);

    let agent = cli.agent(NAME);
    let mut saying = cli.saying(NAME, "MOCK:slow 50");
    saying.wait_for("a piece of the answer", is("output"));
    cli.client(async |client| client.interrupt(NAME).await);
    let outcome = saying.wait_for("its outcome", is_final);
    assert_eq!(
        (&outcome["state"], &outcome["text"]),
        (&json!("failed"), &json!("interrupted"))
    );
    cli.say(
        NAME,
        &format!("MOCK:bg trap '' HUP; {}", stage.until_gate()),
    );
    assert_eq!(cli.agent(NAME), agent, "the same process went on");

    let mut saying = cli.saying(NAME, "MOCK:slow 40");
    saying.wait_for("a piece of the answer", is("output"));
    let tree = Tree::of(cli);
    tree.find("until [ -e");
    agent.signal(Signal::SIGKILL);
    watch.wait_for("the interruption", becomes("interrupted"));
    tree.assert_gone();
    assert_eq!(saying.wait_for("its outcome", is_final)["state"], "unknown");
    let said = cli.say(NAME, "MOCK:say after");
    assert!(said.starts_with("SAID after"), "{said}");
    let earlier = [
        "MOCK:slow 60",
        "MOCK:say one",
        "MOCK:slow 50",
        "MOCK:slow 40",
    ];
    stage.assert_history("MOCK:say after", &earlier);
}

/// Behaviour 77: a conversation that is gone is said to be, the message waits, and only an order
/// begins another.
#[test]
fn a_conversation_that_codex_lost_is_never_replaced_in_silence() {
    let test = "a_conversation_that_codex_lost_is_never_replaced_in_silence";
    if let Some(stage) = Stage::set(test, RealAgent::codex, None) {
        stage.assert_lost_conversation(".codex/sessions");
    }
}

/// D24, D29: while another Codex has the conversation, the session says so and loses nothing; it
/// goes on once the other is gone.
#[test]
fn a_conversation_that_another_codex_has_is_waited_for() {
    let test = "a_conversation_that_another_codex_has_is_waited_for";
    let Some(stage) = Stage::set(test, RealAgent::codex, None) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    cli.say(NAME, "MOCK:say one");
    let before = cli.show(NAME);
    cli.ok(&["release", NAME]);
    let other = PipedAgent::spawn(stage.agent.command(&[]), &stage.guard);
    let mut other = other.with_ceiling(REAL_CEILING);
    for line in greeting(conversation(&before)) {
        other.send(&line);
    }
    other.wait_for("the conversation", |line| line["id"] == 2);
    let sent = cli.json(&["send", NAME, "MOCK:say two", "--no-wait"]);
    wait_until("that it says why", REAL_CEILING, || {
        let text = cli.ok(&["explain", NAME]);
        text.contains("already has an active writer").then_some(())
    });
    other.kill_tree();
    cli.ok(&["wake", NAME]);
    let message = MessageId(sent["message"].as_u64().expect("a message has a number"));
    let saved = wait_until("the fate of the message", REAL_CEILING, || {
        let saved = cli.client(async |client| client.message(message).await);
        saved.state.is_final().then_some(saved)
    });
    assert_eq!(saved.answer, "SAID two (user turns seen: 2)");
    assert_eq!(cli.show(NAME)["conversation"], before["conversation"]);
}

/// Behaviours 11, D21: a turn that the model refuses ends, and is followed by a release.
#[test]
fn a_refused_turn_of_codex_ends_and_is_released() {
    let test = "a_refused_turn_of_codex_ends_and_is_released";
    let Some(stage) = Stage::set(test, RealAgent::codex, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    let failed = cli.run(&["send", NAME, "MOCK:status 400"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.err.contains("as the test wants it"), "{failed:?}");
    let tree = Tree::of(cli);
    wait_idle_release(cli, &mut watch, &tree);
    assert!(cli.say(NAME, "MOCK:say three").starts_with("SAID three"));
}

/// Behaviours 83 to 86, D41: Codex works on while its daemon dies, and while it is replaced.
#[test]
fn codex_outlives_its_daemon() {
    let test = "codex_outlives_its_daemon";
    if let Some(mut stage) = Stage::set(test, RealAgent::codex, None) {
        stage.assert_outlives_the_daemon();
    }
}

/// D16, D41: what Codex asked before its daemon died can be answered after.
#[test]
fn what_codex_asks_outlives_its_daemon() {
    let test = "what_codex_asks_outlives_its_daemon";
    let Some(mut stage) = Stage::set(test, RealAgent::codex, None) else {
        return;
    };
    stage.cli.open(NAME, &ASKING);
    stage.cli.say(NAME, "MOCK:say one");
    let agent = stage.cli.agent(NAME);
    let prompt = needs_leave("touch asked");
    stage.cli.ok(&["send", NAME, &prompt, "--no-wait"]);
    stage.cli.wait_state(NAME, "needs_you");
    stage.cli.kill_daemon();
    stage.cli.serve();
    let shown = stage.cli.wait_state(NAME, "needs_you");
    let asks = shown["awake"]["asks"].as_array().expect("it asks").clone();
    assert_eq!(asks.len(), 1, "{shown}");
    let ask = asks[0]["id"].as_str().expect("it has an id").to_owned();
    let allow = Answer::Allow;
    stage
        .cli
        .client(async |client| client.answer(NAME, &ask, allow).await);
    stage.cli.wait_state(NAME, "resting");
    assert!(stage.agent.work().join("asked").exists());
    assert_eq!(stage.cli.agent(NAME), agent);
}
