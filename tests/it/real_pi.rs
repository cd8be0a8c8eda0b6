//! Drowse with the real Pi, driven by the command line as a user would.
//!
//! The model is the mock, and Pi has an extension of ours with a background tool and a gate. Not
//! run where Pi cannot be installed, and said so aloud; a failure in CI.

use drowse_messages::Answer;
use drowse_tests::PipedAgent;
use drowse_tests::agents::RealAgent;
use drowse_tests::cli::{becomes, is};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::real::{
    NAME, Stage, Tree, assert_woken, between, idle_after, is_final, say_figures, wait_end,
    wait_idle_release,
};

/// Behaviours 10, 45 to 49, 67, 72, 96: what Pi's shell left running is released with it, however
/// it detached, and Pi is woken in the same conversation.
#[test]
fn pi_is_released_with_all_it_started_and_woken_where_it_was() {
    let test = "pi_is_released_with_all_it_started_and_woken_where_it_was";
    let Some(stage) = Stage::set(test, RealAgent::pi, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    let earlier = [
        "MOCK:say one",
        "MOCK:bash sleep 1001 >/dev/null 2>&1 & setsid sleep 1002 >/dev/null 2>&1 & echo started",
    ];
    assert_eq!(cli.say(NAME, earlier[0]), "SAID one (user turns seen: 1)\n");
    let said = cli.say(NAME, earlier[1]);
    assert!(said.contains("result=started"), "{said}");
    let tree = Tree::of(cli);
    tree.find("sleep 1001");
    tree.find("sleep 1002");
    let end = wait_idle_release(cli, &mut watch, &tree);
    let before = cli.show(NAME);
    assert_woken(&stage, &earlier, &before);
    let tree = Tree::of(cli);
    wait_idle_release(cli, &mut watch, &tree);

    let file = before["conversation"]["path"].as_str().unwrap();
    let bare = stage.agent.command(&["--session", file]);
    let first = json!({ "id": "p", "type": "prompt", "message": "MOCK:say bare" });
    let is_output = |line: &Value| line["assistantMessageEvent"]["type"] == "text_delta";
    let bare = PipedAgent::spawn(bare, &stage.guard);
    say_figures(bare, &end, &[first], is_output);
}

/// Behaviours 30, 121, 126: an extension's background task holds by its status key, and its end is
/// a turn nobody asked for.
#[test]
fn a_background_task_of_a_pi_extension_holds_until_its_own_turn_is_over() {
    let test = "a_background_task_of_a_pi_extension_holds_until_its_own_turn_is_over";
    let Some(stage) = Stage::set(test, RealAgent::pi, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    let command = json!({ "command": stage.until_gate() });
    cli.say(NAME, &format!("MOCK:tool bg_start {command}"));
    cli.wait_state(NAME, "waiting");
    assert_eq!(stage.holds(), ["task"]);
    for _ in 0..2 {
        let deferred = watch.wait_for("a deferral", is("release_deferred"));
        assert!(
            deferred["held_by"].to_string().contains("task"),
            "{deferred}"
        );
    }
    stage.open_gate();
    let began = watch.wait_for("the turn nobody asked for", is("turn_started"));
    assert_eq!(began["message"], Value::Null);
    let ended = watch.wait_for("its end", is("turn_ended"));
    let releasing = watch.wait_for("the decision", is("ending"));
    assert!(
        between(&ended, &releasing) >= idle_after(),
        "{ended} {releasing}"
    );
    wait_end(&mut watch);
}

/// Behaviour 28: a dialog of an extension is never idle, and is answered over HTTP.
#[test]
fn a_dialog_of_a_pi_extension_holds_and_is_answered() {
    let test = "a_dialog_of_a_pi_extension_holds_and_is_answered";
    let Some(stage) = Stage::set(test, RealAgent::pi, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    for (answer, expected) in [
        (Answer::Allow, "result=GATE"),
        (Answer::Deny, "result=denied"),
    ] {
        let mut saying = cli.saying(NAME, "MOCK:bash echo GATE");
        let ask = saying.wait_for("the question", is("asked"))["ask"].clone();
        assert_eq!(ask["kind"], "approval", "{ask}");
        saying.wait_for("that somebody is needed", becomes("needs_you"));
        assert!(stage.holds().contains(&"approval".to_owned()));
        assert!(
            saying.is_silent_for(idle_after() * 3),
            "nothing happens to it"
        );
        let ask = ask["id"].as_str().unwrap();
        cli.client(async |client| client.answer(NAME, ask, answer).await);
        let outcome = saying.wait_for("the answer", is_final);
        let text = outcome["text"].as_str().unwrap();
        assert!(text.contains(expected), "{outcome}");
    }
    cli.wait_state(NAME, "released");
}

/// Behaviours 46, 49, 99: Pi dies in a turn. An interrupt (behaviour 92) leaves the process alone.
#[test]
fn pi_is_interrupted_by_order_and_by_a_kill_and_goes_on() {
    let test = "pi_is_interrupted_by_order_and_by_a_kill_and_goes_on";
    let Some(stage) = Stage::set(test, RealAgent::pi, None) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    cli.say(NAME, "MOCK:say one");
    let agent = cli.agent(NAME);
    let mut saying = cli.saying(NAME, "MOCK:slow 50");
    saying.wait_for("a piece of the answer", is("output"));
    cli.client(async |client| client.interrupt(NAME).await);
    let outcome = saying.wait_for("its outcome", is_final);
    assert_eq!(
        (&outcome["state"], &outcome["text"]),
        (&json!("failed"), &json!("interrupted"))
    );
    cli.say(NAME, "MOCK:bash sleep 1001 >/dev/null 2>&1 & echo started");
    assert_eq!(cli.agent(NAME), agent, "the same process went on");

    let mut saying = cli.saying(NAME, "MOCK:slow 60");
    saying.wait_for("a piece of the answer", is("output"));
    let tree = Tree::of(cli);
    tree.find("sleep 1001");
    agent.signal(Signal::SIGKILL);
    watch.wait_for("the interruption", becomes("interrupted"));
    tree.assert_gone();
    assert_eq!(saying.wait_for("its outcome", is_final)["state"], "unknown");
    let said = cli.say(NAME, "MOCK:say after");
    assert!(said.starts_with("SAID after"), "{said}");
    stage.assert_history(
        "MOCK:say after",
        // Whether Pi had written the killed turn's prompt down by then is its own affair.
        &["MOCK:say one", "MOCK:slow 50"],
    );
}

/// Behaviours 72, 77: for a file that is gone Pi opens an empty conversation in silence. That is
/// noticed, the message waits, and only an order begins another.
#[test]
fn a_conversation_that_pi_lost_is_never_replaced_in_silence() {
    let test = "a_conversation_that_pi_lost_is_never_replaced_in_silence";
    if let Some(stage) = Stage::set(test, RealAgent::pi, None) {
        stage.assert_lost_conversation(".pi/agent/sessions");
    }
}

/// Behaviours 83 to 86, D41: Pi works on while its daemon dies, and while it is replaced.
#[test]
fn pi_outlives_its_daemon() {
    let test = "pi_outlives_its_daemon";
    if let Some(mut stage) = Stage::set(test, RealAgent::pi, None) {
        stage.assert_outlives_the_daemon();
    }
}
