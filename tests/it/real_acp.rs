//! Drowse with real agents that speak the Agent Client Protocol, driven by the command line as a
//! user would.
//!
//! The model is the mock. opencode and Gemini CLI are run always, the others where all agents are
//! wanted. Not run where an agent cannot be installed, and said so aloud; a failure in CI.

use std::time::Duration;

use drowse_messages::Answer;
use drowse_tests::MockModel;
use drowse_tests::agents::{Make, Missing, RealAgent, all_wanted};
use drowse_tests::cli::{Cli, becomes, is};
use nix::sys::signal::Signal;

use crate::real::{NAME, Stage, Tree, idle_after, is_final, wait_idle_release};

type Agent = fn(&MockModel) -> Result<RealAgent, Missing>;

/// Two minutes: Gemini is not woken before a minute has passed.
const WAKE_CEILING: Duration = Duration::from_secs(120);

/// Says something, allows whatever is asked meanwhile, and gives the answer.
#[track_caller]
fn say(cli: &Cli, text: &str) -> String {
    let mut saying = cli.saying(NAME, text).with_ceiling(WAKE_CEILING);
    loop {
        let line = saying.wait_for("its answer", |line| {
            is_final(line) || line["event"] == "asked"
        });
        if is_final(&line) {
            assert_eq!(line["state"], "answered", "{line}");
            return line["text"].as_str().unwrap_or_default().to_owned();
        }
        let ask = line["ask"]["id"].as_str().expect("it has an id").to_owned();
        cli.client(async |client| client.answer(NAME, &ask, Answer::Allow).await);
    }
}

/// Codex runs commands in a sandbox of processes, which ends with each of them.
fn outlives_its_command(stage: &Stage) -> bool {
    stage.agent.make() != Make::CodexAcp
}

/// Behaviours 10, 45 to 49, 67, 73, 74, 96: two turns, work that outlives its turn in two shapes,
/// a release that leaves nothing, inner processes included, and a wake in the same conversation.
#[track_caller]
fn released_and_woken(test: &str, agent: Agent) {
    let Some(stage) = Stage::set(test, agent, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME).with_ceiling(WAKE_CEILING);
    assert_eq!(say(cli, "MOCK:say one"), "SAID one (user turns seen: 1)");
    // Some shells hang up on what they leave behind before it could detach.
    let started = "MOCK:bash nohup sleep 1001 >/dev/null 2>&1 & \
        (setsid nohup sleep 1002 >/dev/null 2>&1 &); sleep 0.3; echo started";
    let said = say(cli, started);
    assert!(said.contains("started"), "{said}");
    let tree = Tree::of(cli);
    // Some end what stayed in the group of the command; what left it, none.
    if outlives_its_command(&stage) {
        tree.find("sleep 1002");
    }
    wait_idle_release(cli, &mut watch, &tree);
    let before = cli.show(NAME);
    let said = say(cli, "MOCK:say awake");
    assert_eq!(said, "SAID awake (user turns seen: 3)");
    stage.assert_history("MOCK:say awake", &["MOCK:say one", started]);
    let after = cli.show(NAME);
    assert_eq!(
        after["conversation"]["native_id"],
        before["conversation"]["native_id"]
    );
    assert_ne!(after["incarnation"], before["incarnation"]);
    let tree = Tree::of(cli);
    wait_idle_release(cli, &mut watch, &tree);
}

/// Behaviour 28, D16: a permission is never idle, and is answered over HTTP, yes and no.
#[track_caller]
fn permission_holds(test: &str, agent: Agent) {
    let Some(stage) = Stage::set(test, agent, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    for (answer, is_done) in [(Answer::Allow, true), (Answer::Deny, false)] {
        let gate = stage.agent.work().join("GATE");
        drop(std::fs::remove_file(&gate));
        let mut saying = cli.saying(NAME, "MOCK:bash touch GATE");
        let ask = saying.wait_for("the question", is("asked"))["ask"].clone();
        assert_eq!(ask["kind"], "approval", "{ask}");
        assert!(ask["title"].to_string().contains("touch GATE"), "{ask}");
        saying.wait_for("that somebody is needed", becomes("needs_you"));
        assert!(stage.holds().contains(&"approval".to_owned()));
        assert!(
            saying.is_silent_for(idle_after() * 3),
            "nothing happens to it"
        );
        let ask = ask["id"].as_str().expect("it has an id");
        cli.client(async |client| client.answer(NAME, ask, answer).await);
        saying.wait_for("the answer", is_final);
        assert_eq!(gate.exists(), is_done);
    }
    cli.wait_state(NAME, "released");
}

/// Behaviours 46, 49, 99: an interrupt leaves the process alone; a kill in a turn ends all of it,
/// and the next message goes on in the same conversation.
#[track_caller]
fn interrupted_and_killed(test: &str, agent: Agent) {
    let Some(stage) = Stage::set(test, agent, None) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME).with_ceiling(WAKE_CEILING);
    say(cli, "MOCK:say one");
    let agent = cli.agent(NAME);
    let mut saying = cli.saying(NAME, "MOCK:slow 50");
    saying.wait_for("a piece of the answer", is("output"));
    cli.client(async |client| client.interrupt(NAME).await);
    let outcome = saying.wait_for("its outcome", is_final);
    assert_eq!(
        (&outcome["state"], &outcome["text"]),
        (&"failed".into(), &"interrupted".into())
    );
    say(
        cli,
        "MOCK:bash (setsid nohup sleep 1001 >/dev/null 2>&1 &); sleep 0.3; echo started",
    );
    assert_eq!(cli.agent(NAME), agent, "the same process went on");

    let mut saying = cli.saying(NAME, "MOCK:slow 60");
    saying.wait_for("a piece of the answer", is("output"));
    let tree = Tree::of(cli);
    if outlives_its_command(&stage) {
        tree.find("sleep 1001");
    }
    agent.signal(Signal::SIGKILL);
    watch.wait_for("the interruption", becomes("interrupted"));
    tree.assert_gone();
    assert_eq!(saying.wait_for("its outcome", is_final)["state"], "unknown");
    let said = say(cli, "MOCK:say after");
    assert!(said.starts_with("SAID after"), "{said}");
    stage.assert_history("MOCK:say after", &["MOCK:say one"]);
}

#[test]
fn opencode_is_released_with_all_it_started_and_woken_where_it_was() {
    let test = "opencode_is_released_with_all_it_started_and_woken_where_it_was";
    released_and_woken(test, RealAgent::opencode);
}

#[test]
fn a_permission_of_opencode_holds_and_is_answered() {
    permission_holds(
        "a_permission_of_opencode_holds_and_is_answered",
        RealAgent::opencode,
    );
}

#[test]
fn opencode_is_interrupted_by_order_and_by_a_kill_and_goes_on() {
    let test = "opencode_is_interrupted_by_order_and_by_a_kill_and_goes_on";
    interrupted_and_killed(test, RealAgent::opencode);
}

/// Behaviours 73, 77, D24: opencode says of a conversation it has lost that something went wrong;
/// its list tells.
#[test]
fn a_conversation_that_opencode_lost_is_never_replaced_in_silence() {
    let test = "a_conversation_that_opencode_lost_is_never_replaced_in_silence";
    if let Some(stage) = Stage::set(test, RealAgent::opencode, None) {
        stage.assert_lost_conversation(".local/share/opencode");
    }
}

/// Behaviours 83 to 86, D41: opencode works on while its daemon dies, and while it is replaced.
#[test]
fn opencode_outlives_its_daemon() {
    let test = "opencode_outlives_its_daemon";
    if let Some(mut stage) = Stage::set(test, RealAgent::opencode, None) {
        stage.assert_outlives_the_daemon();
    }
}

/// Behaviour 73: and Gemini is not woken within a minute after its conversation began: it would lose
/// it.
#[test]
fn gemini_is_released_with_all_it_started_and_woken_where_it_was() {
    let test = "gemini_is_released_with_all_it_started_and_woken_where_it_was";
    released_and_woken(test, RealAgent::gemini);
}

#[test]
fn a_permission_of_gemini_holds_and_is_answered() {
    permission_holds(
        "a_permission_of_gemini_holds_and_is_answered",
        RealAgent::gemini,
    );
}

/// Behaviour 73: while it waits for the minute to pass, it says so, and a person may begin anew.
#[test]
fn a_young_conversation_of_gemini_is_waited_for() {
    let test = "a_young_conversation_of_gemini_is_waited_for";
    let Some(stage) = Stage::set(test, RealAgent::gemini, None) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    say(cli, "MOCK:say one");
    cli.ok(&["release", NAME]);
    cli.ok(&["send", NAME, "MOCK:say two", "--no-wait"]);
    let notice = watch.wait_for("why it waits", is("notice"));
    assert!(
        notice["text"].to_string().contains("would harm"),
        "{notice}"
    );
    cli.wait_state(NAME, "starting");
    let text = cli.ok(&["explain", NAME]);
    assert!(
        text.contains("until the conversation may be taken up"),
        "{text}"
    );
    cli.ok(&["wake", "--fresh", NAME]);
    let request = stage
        .model
        .wait_for_request("two", |request| request.has_user("MOCK:say two"));
    assert!(!request.has_user("MOCK:say one"));
}

/// Behaviour 74: killing the outer of Gemini's two processes leaves none.
#[test]
fn gemini_is_interrupted_by_order_and_by_a_kill_and_goes_on() {
    let test = "gemini_is_interrupted_by_order_and_by_a_kill_and_goes_on";
    interrupted_and_killed(test, RealAgent::gemini);
}

/// All of it with the agents that are large or slow.
#[track_caller]
fn with_each_other_agent(test: &str, run: fn(&str, Agent)) {
    if !all_wanted(test) {
        return;
    }
    let agents: [(Make, Agent); 3] = [
        (Make::Qwen, RealAgent::qwen),
        (Make::ClaudeAgentAcp, RealAgent::claude_agent_acp),
        (Make::CodexAcp, RealAgent::codex_acp),
    ];
    for (make, agent) in agents {
        run(&format!("{test}_{}", make.name()), agent);
    }
}

#[test]
fn other_agents_are_released_with_all_they_started_and_woken_where_they_were() {
    let test = "other_agents_are_released_with_all_they_started_and_woken_where_they_were";
    with_each_other_agent(test, released_and_woken);
}

#[test]
fn other_agents_are_interrupted_by_order_and_by_a_kill_and_go_on() {
    let test = "other_agents_are_interrupted_by_order_and_by_a_kill_and_go_on";
    with_each_other_agent(test, interrupted_and_killed);
}
