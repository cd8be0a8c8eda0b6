//! What the tests with both real agents share: a release looked at from all sides, and figures.

use std::time::{Duration, Instant};

use drowse_tests::agents::RealAgent;
use drowse_tests::cli::{Cli, REAL_CEILING, is};
use drowse_tests::process::command_line;
use drowse_tests::wait::say_aloud;
use drowse_tests::{MockModel, PipedAgent, ProcIdentity};
use serde_json::{Value, json};

/// The program under test.
pub(crate) const DROWSE: &str = env!("CARGO_BIN_EXE_drowse-dup");

/// The session all of these tests speak of.
pub(crate) const NAME: &str = "fix-tests";

/// A process tree as it was, with the command lines it had.
#[derive(Debug)]
pub(crate) struct Tree(Vec<(ProcIdentity, String)>);

impl Tree {
    /// What runs for the session now.
    #[track_caller]
    pub(crate) fn of(cli: &Cli) -> Self {
        let described = |who: ProcIdentity| (who, command_line(who.pid));
        Self(cli.tree(NAME).into_iter().map(described).collect())
    }

    /// The one process with `text` in its command line.
    #[track_caller]
    pub(crate) fn find(&self, text: &str) -> ProcIdentity {
        let found = self.0.iter().find(|(_, line)| line.contains(text));
        found.unwrap_or_else(|| panic!("{text:?} is in {self:?}")).0
    }

    /// Everything that was in it is gone; to be asked when the daemon has said so.
    #[track_caller]
    pub(crate) fn assert_gone(&self) {
        let left: Vec<_> = self.0.iter().filter(|(who, _)| who.is_alive()).collect();
        assert!(left.is_empty(), "still alive: {left:?}");
    }

    /// Below the keeper.
    fn processes(&self) -> usize {
        self.0.len() - 1
    }
}

/// Waits for the end of the session's process, and gives the report of it.
#[track_caller]
pub(crate) fn wait_end(watch: &mut PipedAgent) -> Value {
    watch.wait_for("the release", is("released"))["end"].clone()
}

/// Waits for a release for idleness: the tree is gone by identity, and `explain` says why, when,
/// how many processes it had and what that freed.
#[track_caller]
pub(crate) fn wait_idle_release(cli: &Cli, watch: &mut PipedAgent, tree: &Tree) -> Value {
    let end = wait_end(watch);
    tree.assert_gone();
    assert_eq!(end["reason"], "idle", "{end}");
    assert_eq!(end["by"]["kind"], "rule");
    let ended = end["processes"].as_array().map_or(0, Vec::len);
    assert_eq!(ended, tree.processes(), "{end} of {tree:?}");
    let freed = end["released_bytes"].as_u64().unwrap_or(0);
    assert!(freed > 50_000_000, "a real agent frees more: {end}");
    cli.wait_state(NAME, "released");
    let text = cli.ok(&["explain", NAME]);
    let processes = if ended == 1 { "process" } else { "processes" };
    let counted = format!("idle, by drowse: {ended} {processes} ended, ");
    for said in [
        "is released",
        "It has been released for",
        "since ",
        &counted,
        " MB freed",
    ] {
        assert!(text.contains(said), "{said:?} in:\n{text}");
    }
    end
}

/// The message after a release reaches the same conversation, and the model is given all of it.
#[track_caller]
pub(crate) fn assert_woken(cli: &Cli, model: &MockModel, earlier: &[&str], before: &Value) {
    let turns = earlier.len() + 1;
    let woken = Instant::now();
    let mut saying = cli.saying(NAME, "MOCK:say awake");
    saying.wait_for("the first output", is("output"));
    let took = woken.elapsed();
    let answered = saying.wait_for("the answer", is_final);
    assert_eq!(
        answered["text"],
        format!("SAID awake (user turns seen: {turns})")
    );
    let request = model.wait_for_request("awake", |r| r.has_user("MOCK:say awake"));
    for text in earlier {
        assert!(request.has_user(text), "{text} in {:?}", request.items);
    }
    let after = cli.show(NAME);
    assert_eq!(after["conversation"], before["conversation"]);
    assert_eq!(
        after["incarnation"].as_u64(),
        before["incarnation"].as_u64().map(|n| n + 1)
    );
    say_aloud(&format!(
        "  {}: send to first output of a released session {} ms",
        after["agent"],
        took.as_millis()
    ));
}

/// Whether an event says what finally became of a message.
pub(crate) fn is_final(line: &Value) -> bool {
    let state = line["state"].as_str().unwrap_or_default();
    line["event"] == "message_changed" && !["queued", "delivered"].contains(&state)
}

/// Says what a release freed, and how long the bare agent takes from its start to its first
/// output, `first` being what it is told and `is_output` what that looks like.
pub(crate) fn say_figures(
    bare: PipedAgent,
    end: &Value,
    first: &[Value],
    is_output: impl FnMut(&Value) -> bool,
) {
    let began = Instant::now();
    let mut bare = bare.with_ceiling(REAL_CEILING);
    for line in first {
        bare.send(line);
    }
    bare.wait_for("output of the bare agent", is_output);
    let took = began.elapsed();
    let megabytes = end["released_bytes"].as_u64().unwrap_or(0) / 1_000_000;
    let processes = end["processes"].as_array().map_or(0, Vec::len);
    say_aloud(&format!(
        "  freed {megabytes} MB ({processes} processes); the bare agent, started anew, has first \
         output after {} ms",
        took.as_millis()
    ));
    bare.kill();
}

/// The milliseconds between two events.
#[track_caller]
pub(crate) fn between(first: &Value, second: &Value) -> Duration {
    let at = |event: &Value| event["at"].as_u64().expect("an event has a time");
    Duration::from_millis(at(second).saturating_sub(at(first)))
}

/// A shell loop that goes on until `agent`'s work folder has a file `gate`; the model's shell tool
/// refuses long plain sleeps.
pub(crate) fn until_gate(agent: &RealAgent) -> String {
    let gate = agent.work().join("gate");
    format!("until [ -e {} ]; do sleep 0.05; done", gate.display())
}

/// The line of `ps --json` of the session.
#[track_caller]
pub(crate) fn holds(cli: &Cli) -> Vec<String> {
    let list = cli.json(&["ps"]);
    let sessions = list["sessions"].as_array().cloned().unwrap_or_default();
    let session = sessions.iter().find(|session| session["name"] == NAME);
    let holds = session.map_or(json!([]), |session| session["awake"]["holds"].clone());
    let kind = |hold: &Value| hold["kind"].as_str().unwrap_or_default().to_owned();
    holds
        .as_array()
        .map(|all| all.iter().map(kind).collect())
        .unwrap_or_default()
}
