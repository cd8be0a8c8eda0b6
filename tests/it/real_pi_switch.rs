//! What becomes of background work when the real Pi leaves a conversation, with the extension that
//! `drowse integrate pi` prints and one of a user's behind it (behaviours J).

use std::fs;
use std::path::Path;

use drowse_tests::agents::RealAgent;
use drowse_tests::cli::REAL_CEILING;
use drowse_tests::wait_until;

use crate::real::{NAME, Stage, Tree};

/// What `drowse integrate pi` prints.
fn marks(stage: &Stage) -> String {
    stage.cli.ok(&["integrate", "pi"])
}

/// Opens a session with both extensions.
fn open(stage: &Stage, first: Option<&str>) {
    let args = stage.agent.switch_args(first);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    stage.cli.open(NAME, &args);
}

/// Says a command of an extension, which is answered without a turn.
fn order(stage: &Stage, command: &str) {
    stage.cli.ok(&["send", NAME, command]);
}

fn conversation(stage: &Stage) -> String {
    let shown = stage.cli.show(NAME);
    let id = shown["conversation"]["native_id"].as_str();
    id.expect("Pi has named it").to_owned()
}

/// Behaviours 122, 124, 125, 128: a vetoed switch and a turn keep the work, a new conversation
/// begins without it; what that one starts is its session's, and a stop ends all of it.
#[test]
fn pi_leaves_a_conversation_and_its_session_goes_with_it() {
    let test = "pi_leaves_a_conversation_and_its_session_goes_with_it";
    let Some(stage) = Stage::set(test, RealAgent::pi, None) else {
        return;
    };
    let cli = &stage.cli;
    open(&stage, Some(&marks(&stage)));
    cli.say(NAME, "MOCK:say one");
    order(&stage, &format!("/job old {}", stage.until_gate()));
    cli.wait_state(NAME, "waiting");
    assert_eq!(stage.holds(), ["task"]);
    cli.say(NAME, "MOCK:say two");
    cli.wait_state(NAME, "waiting");
    assert_eq!(stage.holds(), ["task"], "a turn keeps the roster");

    let first = conversation(&stage);
    let veto = stage.agent.work().join("veto");
    fs::write(&veto, "").expect("the folder is ours");
    order(&stage, "/afresh");
    assert_eq!(conversation(&stage), first, "the switch was vetoed");
    assert_eq!(stage.holds(), ["task"], "and the work goes on");

    fs::remove_file(&veto).expect("it is there");
    order(&stage, "/afresh");
    wait_until("another conversation", REAL_CEILING, || {
        (conversation(&stage) != first).then_some(())
    });
    cli.wait_state(NAME, "resting");
    assert_eq!(
        stage.holds(),
        [""; 0],
        "the old conversation's work is nobody's"
    );
    order(&stage, "/job new sleep 1003");
    cli.wait_state(NAME, "waiting");
    cli.say(NAME, "MOCK:say three");
    assert_eq!(stage.holds(), ["task"]);
    let tree = Tree::of(cli);
    tree.find("until [ -e");
    tree.find("sleep 1003");
    cli.ok(&["stop", NAME]);
    tree.assert_gone();
    let said = cli.say(NAME, "MOCK:say four");
    assert_eq!(
        said, "SAID four (user turns seen: 2)\n",
        "in the new conversation"
    );
}

/// Behaviours 122, 129: a reload keeps the session and its conversation, and the marks change
/// neither the hooks of a user's extension nor their order.
#[test]
fn the_marks_change_nothing_for_other_extensions() {
    let test = "the_marks_change_nothing_for_other_extensions";
    let Some(stage) = Stage::set(test, RealAgent::pi, None) else {
        return;
    };
    let log = stage.agent.work().join("hooks.log");
    let hooks_with = |first: Option<&str>| {
        open(&stage, first);
        let cli = &stage.cli;
        cli.say(NAME, "MOCK:bash echo one");
        let (agent, before) = (cli.agent(NAME), conversation(&stage));
        order(&stage, "/anew");
        cli.say(NAME, "MOCK:say two");
        assert_eq!(conversation(&stage), before);
        assert_eq!(cli.agent(NAME), agent);
        cli.ok(&["rm", NAME]);
        take(&log)
    };
    let alone = hooks_with(None);
    assert!(alone.contains("tool_call\ntool_result\n"), "{alone}");
    assert_eq!(hooks_with(Some(&marks(&stage))), alone);
}

/// What the log has; it is empty afterwards.
fn take(log: &Path) -> String {
    let had = fs::read_to_string(log).expect("hooks have run");
    fs::remove_file(log).expect("it is there");
    had
}
