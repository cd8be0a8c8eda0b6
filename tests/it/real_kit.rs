//! The agent kit with the real agents: hooks of Claude Code and the extension of Pi, as
//! `drowse integrate` prints them.
//!
//! Not run where an agent cannot be installed, and said so aloud; a failure in CI.

use std::fs;

use drowse_tests::agents::RealAgent;
use drowse_tests::cli::is;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::real::{DROWSE, NAME, Stage, Tree, between, idle_after, wait_end};

/// A command of `drowse` as a shell of the agent runs it.
fn drowse(words: &str) -> String {
    format!("'{DROWSE}' {words}")
}

/// The background tasks that were told, with their owner.
fn told(stage: &Stage) -> Vec<(String, String)> {
    let report = stage.cli.show(NAME);
    let tasks = report["awake"]["tasks"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = |task: &Value, key: &str| task[key].as_str().unwrap_or_default().to_owned();
    let pair = |task: &Value| (text(task, "id"), text(task, "owner"));
    tasks
        .iter()
        .map(pair)
        .filter(|(_, owner)| owner != "claude")
        .collect()
}

/// A script that Claude's model runs tells of a task, which holds until it is told to be over; then
/// a full window passes.
#[test]
fn a_script_inside_claude_keeps_its_session() {
    let test = "a_script_inside_claude_keeps_its_session";
    let Some(stage) = Stage::set(test, RealAgent::claude, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    cli.say(
        NAME,
        &format!("MOCK:bash {}", drowse("task start deploy --why 'ships it'")),
    );
    cli.wait_state(NAME, "waiting");
    let deferred = watch.wait_for("a deferral", is("release_deferred"));
    assert!(
        deferred["held_by"].to_string().contains("ships it"),
        "{deferred}"
    );
    let explained = cli.ok(&["explain", NAME]);
    assert!(
        explained.contains("ships it (task, told by inside the agent)"),
        "{explained}"
    );
    cli.say(NAME, &format!("MOCK:bash {}", drowse("task end deploy")));
    let ended = watch.wait_for("the end of the turn", is("turn_ended"));
    let releasing = watch.wait_for("the decision", is("ending"));
    assert!(
        between(&ended, &releasing) >= idle_after(),
        "{ended} {releasing}"
    );
    wait_end(&mut watch);
}

/// The hooks of `drowse integrate claude`: at the end of its turn Claude lists the background
/// command it started; it is told beside what the protocol reports, holds, and its end is told at
/// the end of the turn that it wakes Claude for.
#[test]
fn hooks_of_claude_tell_of_background_work() {
    let test = "hooks_of_claude_tell_of_background_work";
    let Some(stage) = Stage::set(test, RealAgent::claude, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    let settings = cli.ok(&["integrate", "claude"]);
    let folder = stage.agent.home().join(".claude");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("settings.json"), settings).unwrap();
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    cli.say(NAME, &format!("MOCK:bg {}", stage.until_gate()));
    cli.wait_state(NAME, "waiting");
    let told = drowse_tests::wait_until(
        "what the hook tells",
        drowse_tests::cli::REAL_CEILING,
        || Some(told(&stage)).filter(|told| !told.is_empty()),
    );
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].1, "hooks of claude");
    watch.wait_for("a deferral", is("release_deferred"));
    stage.open_gate();
    watch.wait_for("the turn nobody asked for", |event| {
        event["event"] == "turn_ended" && event["message"] == Value::Null
    });
    wait_end(&mut watch);
    let end = cli.show(NAME)["end"].clone();
    assert_eq!(end["reason"], "idle", "{end}");
}

/// The extension of `drowse integrate pi`, loaded first: a job told on Pi's event bus holds; a
/// conversation that Pi leaves takes its jobs along, and what they still say is ignored.
#[test]
fn the_extension_of_pi_tells_of_jobs_and_conversations() {
    let test = "the_extension_of_pi_tells_of_jobs_and_conversations";
    let Some(stage) = Stage::set(test, RealAgent::pi, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    let file = |name: &str, text: &str| {
        let path = stage.agent.home().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let ours = file("drowse.js", &cli.ok(&["integrate", "pi"]));
    let users = file("users.js", USERS_EXTENSION);
    cli.open(NAME, &["-e", &ours, "-e", &users]);
    let mut watch = cli.watch(NAME);
    cli.say(NAME, "MOCK:say one");
    cli.say(
        NAME,
        &format!("MOCK:tool job {}", json!({ "text": "npm test" })),
    );
    cli.wait_state(NAME, "waiting");
    let report = cli.show(NAME);
    let task = &report["awake"]["tasks"][0];
    assert_eq!(
        (&task["id"], &task["description"]),
        (&json!("drowse:background:tests"), &json!("npm test"))
    );
    watch.wait_for("a deferral", is("release_deferred"));
    cli.say(NAME, &format!("MOCK:tool job {}", json!({ "text": "" })));
    wait_end(&mut watch);

    // The same job, and then another conversation: the old one's extension reports once more, as
    // it goes, and is not heard.
    cli.say(
        NAME,
        &format!("MOCK:tool job {}", json!({ "text": "npm test" })),
    );
    cli.wait_state(NAME, "waiting");
    cli.ok(&["send", "--no-wait", NAME, "/leave"]);
    watch.wait_for("the empty roster", |event| {
        event["event"] == "tasks_changed" && event["tasks"] == json!([])
    });
    let report = cli.show(NAME);
    assert_eq!(report["awake"]["tasks"], json!([]), "{report}");
}

/// C 30, D20: a command that Pi's model left running, which Pi says nothing of, holds while it runs,
/// as the process tree shows it.
#[test]
fn a_command_that_pi_left_running_holds() {
    let test = "a_command_that_pi_left_running_holds";
    let Some(stage) = Stage::set_with(test, RealAgent::pi, Some(idle_after()), "") else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    cli.say(NAME, "MOCK:bash sleep 1001 >/dev/null 2>&1 & echo started");
    let deferred = watch.wait_for("a deferral", is("release_deferred"));
    let held_by = deferred["held_by"].to_string();
    assert!(held_by.contains("observed: sleep"), "{deferred}");
    let sleep = Tree::of(cli).find("sleep 1001");
    sleep.signal(Signal::SIGKILL);
    wait_end(&mut watch);
    assert_eq!(cli.show(NAME)["end"]["reason"], "idle");
}

/// A user's own extension: a tool that tells of a job, and a command that leaves the conversation.
const USERS_EXTENSION: &str = r"
'use strict';
module.exports = (pi) => {
  pi.registerTool({
    name: 'job', label: 'job', description: 'tell of a job',
    parameters: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
    async execute(_id, { text }) {
      pi.events.emit('drowse:background', { job: 'tests', text });
      return { content: [{ type: 'text', text: 'told' }], details: {} };
    },
  });
  pi.on('session_shutdown', (_event, ctx) => {
    ctx.ui.setStatus('drowse:background:late', 'late');
    pi.events.emit('drowse:background', { job: 'later', text: 'later' });
  });
  pi.registerCommand('leave', {
    description: 'begin another conversation',
    handler: async (_args, ctx) => { await ctx.newSession(); },
  });
};
";
