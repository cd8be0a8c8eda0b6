//! Drowse with the real Claude Code, driven by the command line as a user would.
//!
//! The model is the mock; everything else is what a user has. Not run where Claude Code cannot be
//! installed, and said so aloud; a failure in CI.

use std::time::{Duration, Instant};

use drowse_messages::Answer;
use drowse_tests::agents::RealAgent;
use drowse_tests::cli::{becomes, is};
use drowse_tests::wait::say_aloud;
use drowse_tests::{PipedAgent, ProcIdentity, scaled};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::real::{
    NAME, Stage, Tree, assert_woken, between, idle_after, is_final, say_figures, wait_end,
    wait_idle_release,
};

/// Behaviours 10, 45 to 48, 60, 67, 69, 96: a session with an MCP server that ignores the end of
/// its input, and with a command that left Claude's own session, is released whole and woken in the
/// same conversation; so it is when nothing ran in between, or when it is spoken to as it goes.
#[test]
fn claude_is_released_with_all_it_started_and_woken_where_it_was() {
    let test = "claude_is_released_with_all_it_started_and_woken_where_it_was";
    let Some(stage) = Stage::set(test, RealAgent::claude, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    let mcp = stage.agent.mcp_args();
    cli.open(NAME, &mcp.iter().map(String::as_str).collect::<Vec<_>>());
    let mut watch = cli.watch(NAME);
    let earlier = [
        "MOCK:say one",
        "MOCK:tool mcp__stubborn__where",
        "MOCK:bash setsid sleep 1001 >/dev/null 2>&1 & echo started",
    ];
    assert_eq!(cli.say(NAME, earlier[0]), "SAID one (user turns seen: 1)\n");
    let said = cli.say(NAME, earlier[1]);
    assert!(said.contains("result=pid "), "{said}");
    cli.say(NAME, earlier[2]);
    let tree = Tree::of(cli);
    tree.find("mcp_server.js");
    tree.find("sleep 1001");
    let end = wait_idle_release(cli, &mut watch, &tree);
    let left: Vec<&Value> = end["reaped"].as_array().into_iter().flatten().collect();
    assert!(left.iter().any(|it| it["name"] == "sleep"), "{end}");

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

    let id = before["conversation"]["native_id"].as_str().unwrap();
    let bare = stage.agent.command(&["--resume", id]);
    let content = json!([{ "type": "text", "text": "MOCK:say bare" }]);
    let message = json!({ "role": "user", "content": content });
    let first = json!({ "type": "user", "message": message });
    let is_output = |line: &Value| line["event"]["type"] == "content_block_delta";
    let bare = PipedAgent::spawn(bare, &stage.guard);
    say_figures(bare, &end, &[first], is_output);
}

/// Behaviours 17, 30, 93, 126: a background command holds the session while it runs, its end is a
/// turn nobody asked for, and then a full window passes.
#[test]
fn a_background_command_of_claude_holds_until_its_own_turn_is_over() {
    let test = "a_background_command_of_claude_holds_until_its_own_turn_is_over";
    let Some(stage) = Stage::set(test, RealAgent::claude, Some(idle_after())) else {
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
        assert!(
            deferred["held_by"].to_string().contains("task"),
            "{deferred}"
        );
    }
    let tree = Tree::of(cli);
    stage.open_gate();
    let began = watch.wait_for("the turn nobody asked for", is("turn_started"));
    assert_eq!(began["message"], Value::Null);
    let ended = watch.wait_for("its end", is("turn_ended"));
    assert_eq!(
        (&ended["message"], &ended["error"]),
        (&Value::Null, &Value::Null)
    );
    let releasing = watch.wait_for("the decision", is("ending"));
    assert!(
        between(&ended, &releasing) >= idle_after(),
        "{ended} {releasing}"
    );
    wait_end(&mut watch);
    tree.assert_gone();

    // Messages that meet the turns of tasks get their own answers, and only these.
    for round in 0..3 {
        cli.say(NAME, &format!("MOCK:bg sleep 0.0{round}"));
        for text in [format!("a{round}"), format!("b{round}")] {
            let said = cli.say(NAME, &format!("MOCK:say {text}"));
            let own = said.lines().last().unwrap_or_default();
            assert!(own.starts_with(&format!("SAID {text} ")), "{said}");
        }
    }
}

/// Behaviours 26 to 28: a pending permission is never idle, and is answered over HTTP; a question
/// is answered in words.
#[test]
fn a_permission_that_claude_waits_for_holds_and_is_answered() {
    let test = "a_permission_that_claude_waits_for_holds_and_is_answered";
    let Some(stage) = Stage::set(test, RealAgent::claude, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &["--permission-mode", "manual"]);
    let file = stage.agent.work().join("allowed");
    let order = format!("MOCK:bash touch {}", file.display());
    let mut saying = cli.saying(NAME, &order);
    let ask = saying.wait_for("the question", is("asked"))["ask"].clone();
    assert_eq!(ask["kind"], "approval", "{ask}");
    saying.wait_for("that somebody is needed", becomes("needs_you"));
    assert!(stage.holds().contains(&"approval".to_owned()));
    assert!(
        saying.is_silent_for(idle_after() * 3),
        "nothing happens to it"
    );
    assert!(!file.exists());
    cli.wait_state(NAME, "needs_you");
    let ask = ask["id"].as_str().unwrap();
    cli.client(async |client| client.answer(NAME, ask, Answer::Allow).await);
    saying.wait_for("that it is settled", is("settled"));
    assert_eq!(saying.wait_for("the answer", is_final)["state"], "answered");
    assert!(file.exists());

    let option = |label: &str| json!({ "label": label, "description": "" });
    let question = json!({
        "question": "Which?", "header": "Which", "multiSelect": false,
        "options": [option("red"), option("blue")],
    });
    let order = json!({ "questions": [question] });
    let mut saying = cli.saying(NAME, &format!("MOCK:tool AskUserQuestion {order}"));
    let ask = saying.wait_for("the question", is("asked"))["ask"].clone();
    assert_eq!(
        (&ask["kind"], &ask["title"]),
        (&json!("question"), &json!("Which?"))
    );
    let (ask, answer) = (ask["id"].as_str().unwrap(), Answer::Text("blue".to_owned()));
    cli.client(async |client| client.answer(NAME, ask, answer).await);
    let outcome = saying.wait_for("the answer", is_final);
    assert!(outcome["text"].to_string().contains("blue"), "{outcome}");
    cli.wait_state(NAME, "released");
}

/// Behaviours 46 to 49, 99: when Claude dies in a turn, nothing it started lives on, the outcome of
/// the message is unknown and it is not repeated, and the conversation goes on.
#[test]
fn claude_killed_in_a_turn_is_interrupted_and_resumed() {
    let test = "claude_killed_in_a_turn_is_interrupted_and_resumed";
    let Some(stage) = Stage::set(test, RealAgent::claude, None) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    cli.say(NAME, &format!("MOCK:bg {}", stage.until_gate()));
    let mut saying = cli.saying(NAME, "MOCK:slow 60");
    saying.wait_for("a piece of the answer", is("output"));
    let tree = Tree::of(cli);
    tree.find("until [ -e");
    let killed = Instant::now();
    cli.agent(NAME).signal(Signal::SIGKILL);
    watch.wait_for("the interruption", becomes("interrupted"));
    let took = killed.elapsed();
    tree.assert_gone();
    say_aloud(&format!(
        "  interrupted {} ms after a kill",
        took.as_millis()
    ));
    assert!(took < scaled(Duration::from_secs(1)), "{took:?}");
    assert_eq!(saying.wait_for("its outcome", is_final)["state"], "unknown");
    assert_eq!(saying.wait_exit().code(), Some(1));
    assert!(cli.ok(&["explain", NAME]).contains("crashed (signal 9)"));
    let said = cli.say(NAME, "MOCK:say after");
    assert!(said.starts_with("SAID after"), "{said}");
    // Whether Claude had written the killed turn's prompt down by then is its own affair.
    stage.assert_history("MOCK:say after", &["MOCK:bg until"]);
}

/// Behaviours 90 to 92: a stop ends a turn at once with everything, and the session goes on.
/// Behaviour 99 for the message. Then an interrupt, which leaves the process alone; and a timer of
/// Claude's own, which would be lost with it (behaviour 40).
#[test]
fn claude_is_stopped_and_interrupted_in_a_turn() {
    let test = "claude_is_stopped_and_interrupted_in_a_turn";
    let Some(stage) = Stage::set(test, RealAgent::claude, None) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    cli.say(NAME, "MOCK:say one");
    let mut saying = cli.saying(NAME, "MOCK:slow 60");
    saying.wait_for("a piece of the answer", is("output"));
    let tree = Tree::of(cli);
    cli.ok(&["stop", NAME]);
    tree.assert_gone();
    let outcome = saying.wait_for("its outcome", is_final);
    assert_ne!(outcome["state"], "answered");
    assert_eq!(cli.show(NAME)["state"], "stopped");
    cli.say(NAME, "MOCK:say two");
    stage.assert_history("MOCK:say two", &["MOCK:say one", "MOCK:slow 60"]);

    let agent = cli.agent(NAME);
    let mut saying = cli.saying(NAME, "MOCK:slow 50");
    saying.wait_for("a piece of the answer", is("output"));
    cli.client(async |client| client.interrupt(NAME).await);
    let outcome = saying.wait_for("its outcome", is_final);
    assert_eq!(
        (&outcome["state"], &outcome["text"]),
        (&json!("failed"), &json!("interrupted"))
    );
    cli.wait_state(NAME, "resting");
    let said = cli.say(NAME, "MOCK:say three");
    assert!(said.starts_with("SAID three"), "{said}");
    assert_eq!(cli.agent(NAME), agent, "the same process went on");

    let timer = json!({ "delaySeconds": 600, "reason": "look", "prompt": "go on" });
    cli.say(NAME, &format!("MOCK:tool ScheduleWakeup {timer}"));
    assert_eq!(stage.holds(), ["schedule"]);
    assert_eq!(cli.run(&["release", NAME]).code, Some(6));
}

/// Behaviours 83, 84, 87: a turn ends with a daemon that is told to end, and nothing of its tree
/// outlives it; the next daemon starts nothing by itself and knows the conversation.
#[test]
fn a_turn_of_claude_ends_with_the_daemon_and_the_conversation_does_not() {
    let test = "a_turn_of_claude_ends_with_the_daemon_and_the_conversation_does_not";
    let Some(mut stage) = Stage::set(test, RealAgent::claude, None) else {
        return;
    };
    stage.cli.open(NAME, &[]);
    stage.cli.say(NAME, "MOCK:say one");
    let before = stage.cli.show(NAME);
    let task = format!("MOCK:bg {}", stage.until_gate());
    stage.cli.say(NAME, &task);
    let mut saying = stage.cli.saying(NAME, "MOCK:slow 60");
    saying.wait_for("a piece of the answer", is("output"));
    let tree = Tree::of(&stage.cli);
    tree.find("until [ -e");
    // It interrupts the turn first.
    stage.cli.end_daemon();
    tree.wait_gone();
    assert_ne!(saying.wait_exit().code(), Some(0));
    stage.cli.serve();
    let asleep = stage.cli.show(NAME);
    assert_eq!(asleep["state"], "released");
    assert_eq!(asleep["awake"], Value::Null, "nothing starts by itself");
    let next = "MOCK:say two";
    stage.cli.say(NAME, next);
    stage.assert_history(next, &["MOCK:say one", "MOCK:bg until", "MOCK:slow 60"]);
    let after = stage.cli.show(NAME);
    assert_eq!(after["conversation"], before["conversation"]);
}

/// Behaviours 83 to 86, D41: Claude works on while its daemon dies, and while it is replaced.
#[test]
fn claude_outlives_its_daemon() {
    let test = "claude_outlives_its_daemon";
    if let Some(mut stage) = Stage::set(test, RealAgent::claude, None) {
        stage.assert_outlives_the_daemon();
    }
}

/// D16, D41: what Claude asked before its daemon died can be answered after.
#[test]
fn what_claude_asks_outlives_its_daemon() {
    let test = "what_claude_asks_outlives_its_daemon";
    let Some(mut stage) = Stage::set(test, RealAgent::claude, None) else {
        return;
    };
    stage.cli.open(NAME, &["--permission-mode", "manual"]);
    stage.cli.say(NAME, "MOCK:say one");
    let agent = stage.cli.agent(NAME);
    let prompt = "MOCK:bash touch asked; echo allowed";
    stage.cli.ok(&["send", NAME, prompt, "--no-wait"]);
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

/// Behaviour 77: a conversation that is gone is said to be, the message waits, and only an order
/// begins another.
#[test]
fn a_conversation_that_claude_lost_is_never_replaced_in_silence() {
    let test = "a_conversation_that_claude_lost_is_never_replaced_in_silence";
    if let Some(stage) = Stage::set(test, RealAgent::claude, None) {
        stage.assert_lost_conversation(".claude/projects");
    }
}

/// Behaviours 11, 37: a compaction ends like other turns do; so does a turn that the model refuses,
/// and both are followed by a release.
#[test]
fn a_compaction_and_a_refused_turn_of_claude_end_and_are_released() {
    let test = "a_compaction_and_a_refused_turn_of_claude_end_and_are_released";
    let Some(stage) = Stage::set(test, RealAgent::claude, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    cli.say(NAME, "MOCK:say one");
    cli.say(NAME, "MOCK:say two");
    let mut saying = cli.saying(NAME, "/compact");
    assert_eq!(
        saying.wait_for("its outcome", is_final)["state"],
        "answered"
    );
    let failed = cli.run(&["send", NAME, "MOCK:status 400"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.err.contains("failed: API Error: 400"), "{failed:?}");
    let tree = Tree::of(cli);
    wait_idle_release(cli, &mut watch, &tree);
    assert!(cli.say(NAME, "MOCK:say three").starts_with("SAID three"));
}

/// Behaviour 55: two sessions in one folder have two conversations and two trees.
#[test]
fn two_sessions_of_claude_in_one_folder_leave_each_other_alone() {
    let test = "two_sessions_of_claude_in_one_folder_leave_each_other_alone";
    let Some(stage) = Stage::set(test, RealAgent::claude, None) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    cli.open("other", &[]);
    cli.say(NAME, "MOCK:say one");
    cli.say("other", "MOCK:say two");
    let mut busy = cli.saying("other", "MOCK:slow 3");
    busy.wait_for("a piece of the answer", is("output"));
    let (tree, other) = (Tree::of(cli), cli.tree("other"));
    cli.ok(&["release", NAME]);
    tree.assert_gone();
    assert!(other.iter().all(ProcIdentity::is_alive));
    assert_eq!(
        cli.say(NAME, "MOCK:say three"),
        "SAID three (user turns seen: 2)\n"
    );
    assert_eq!(busy.wait_for("its outcome", is_final)["state"], "answered");
    assert_eq!(
        cli.say("other", "MOCK:say four"),
        "SAID four (user turns seen: 3)\n"
    );
    let id = |name| cli.show(name)["conversation"]["native_id"].clone();
    assert_ne!(id(NAME), id("other"));
}
