//! Why Drowse exists, in figures: thirteen idle sessions of a real agent before and after their
//! release, and the first answer after a wake beside the bare agent resumed by hand:
//! `cargo bench -p drowse-tests --bench thirteen [-- claude pi]`.
//!
//! Claude has an MCP server in each session that goes on after its stdin has ended, Pi an
//! extension. Memory is the proportional share of every process there is because of them: daemon,
//! keepers, agents, and whatever the agents started. Each conversation has one turn before, with
//! the mock model, which answers at once; so what is timed is the way there and back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use drowse_tests::agents::{Missing, RealAgent};
use drowse_tests::cli::{Cli, REAL_CEILING, is};
use drowse_tests::measure::{Bar, Cost, Samples, heading, line, millis, row, wanted};
use drowse_tests::process::descendants;
use drowse_tests::{MockModel, PipedAgent, ProcIdentity, TreeGuard, wait_until};
use serde_json::{Value, json};

const DROWSE: &str = env!("CARGO_BIN_EXE_drowse-dup");
/// As many as filled one machine of 59 GB.
const SESSIONS: usize = 13;
/// Sessions woken, by turns with the bare agent.
const WAKES: usize = 7;
const MIB: f64 = 1024.0 * 1024.0;

/// A real agent and what is particular to it.
struct Case {
    name: &'static str,
    install: fn(&MockModel) -> Result<RealAgent, Missing>,
    /// What makes the bare agent take this conversation up.
    resume: fn(&Value) -> [String; 2],
    /// A first message for the bare agent.
    first: fn() -> Value,
    /// Whether a line of the bare agent's is a piece of the answer.
    is_output: fn(&Value) -> bool,
}

const CASES: [Case; 2] = [
    Case {
        name: "claude",
        install: RealAgent::claude,
        resume: |conversation| ["--resume".to_owned(), word(&conversation["native_id"])],
        first: || {
            let content = json!([{ "type": "text", "text": "MOCK:say bare" }]);
            json!({ "type": "user", "message": { "role": "user", "content": content } })
        },
        is_output: |line| line["event"]["type"] == "content_block_delta",
    },
    Case {
        name: "pi",
        install: RealAgent::pi,
        resume: |conversation| ["--session".to_owned(), word(&conversation["path"])],
        first: || json!({ "id": "p", "type": "prompt", "message": "MOCK:say bare" }),
        is_output: |line| line["assistantMessageEvent"]["type"] == "text_delta",
    },
];

fn main() {
    let Some(names) = wanted() else { return };
    for case in &CASES {
        if names.is_empty() || names.iter().any(|name| name == case.name) {
            measure(case);
        }
    }
}

fn measure(case: &Case) {
    let guard = TreeGuard::new("thirteen");
    let model = MockModel::start();
    let agent = match (case.install)(&model) {
        Ok(agent) => agent,
        Err(missing) => return line(format_args!("NOT RUN: {}: {missing}", case.name)),
    };
    heading(&format!("thirteen sessions of {}", case.name));
    let limits = "idle_after = \"off\"\neof_grace = \"2s\"\nterm_grace = \"5s\"";
    let cli = Cli::start(DROWSE, &guard, &agent, limits);
    let sessions: Vec<String> = (1..=SESSIONS).map(|n| format!("session-{n}")).collect();
    let before = everything(&guard);

    let mcp = agent.mcp_args();
    let with = if case.name == "claude" { &mcp[..] } else { &[] };
    let args: Vec<&str> = with.iter().map(String::as_str).collect();
    for session in &sessions {
        cli.open(session, &args);
        cli.say(session, "MOCK:say one");
    }
    let awake = everything(&guard);
    let words = [
        vec!["release"],
        sessions.iter().map(String::as_str).collect(),
    ]
    .concat();
    let mut release = Samples::new();
    release.time(|| cli.ok(&words));
    // A keeper leaves after it has said that its tree is gone.
    let asleep = wait_until("the end of the keepers", REAL_CEILING, || {
        let asleep = everything(&guard);
        (asleep.0 <= before.0).then_some(asleep)
    });
    show("before the first session", before);
    show("idle", awake);
    show("released", asleep);
    row("all thirteen released at once", "ms", &release, None);

    let (woken, bare) = answers(case, &cli, &agent, &guard, &sessions);
    row(
        "wake: from send to the first word",
        "ms",
        &woken,
        Some(&bare),
    );
    row(
        "bare agent: from start to the first word",
        "ms",
        &bare,
        None,
    );

    line("\n# bars");
    let returned = 100.0 * (awake.1 - asleep.1) / (awake.1 - before.1);
    line(Bar::AtLeast(99.0).verdict("memory given back, %", Some(returned)));
    let ratio = woken.median() / bare.median();
    line(Bar::AtMost(1.1).verdict("a wake beside the bare agent", Some(ratio)));
}

/// How many processes there are, and their memory in bytes: all that are below this one, and
/// those with the mark that are not, should one have got away. MCP servers have no mark.
fn everything(guard: &TreeGuard) -> (usize, f64) {
    let mut alive = descendants(ProcIdentity::me().pid);
    alive.extend(guard.alive());
    let pids: BTreeSet<i32> = alive.iter().map(|it| it.pid).collect();
    let memory = pids.iter().map(|&pid| Cost::of(pid).pss_bytes);
    (pids.len(), memory.sum())
}

fn show(when: &str, (processes, bytes): (usize, f64)) {
    let case = format!("{when}: {processes} processes");
    row(&case, "MiB PSS", &Samples::from(bytes / MIB), None);
}

/// Milliseconds to the first word of a released session, and of the bare agent on the same
/// conversation, by turns.
fn answers(
    case: &Case,
    cli: &Cli,
    agent: &RealAgent,
    guard: &TreeGuard,
    sessions: &[String],
) -> (Samples, Samples) {
    let (mut woken, mut bare) = (Samples::new(), Samples::new());
    for session in sessions.iter().take(WAKES) {
        let begun = Instant::now();
        let mut saying = cli.saying(session, "MOCK:say two");
        saying.wait_for("the first output", is("output"));
        woken.push(millis(begun.elapsed()));
        saying.wait_exit();
        cli.ok(&["release", session]);
        bare.push(millis(start_bare(case, cli, agent, guard, session)));
    }
    (woken, bare)
}

fn start_bare(
    case: &Case,
    cli: &Cli,
    agent: &RealAgent,
    guard: &TreeGuard,
    session: &str,
) -> Duration {
    let mut words = (case.resume)(&cli.show(session)["conversation"]).to_vec();
    if case.name == "claude" {
        words.extend(agent.mcp_args());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let command = agent.command(&words);
    let begun = Instant::now();
    let mut bare = PipedAgent::spawn(command, guard).with_ceiling(REAL_CEILING);
    bare.send(&(case.first)());
    bare.wait_for("output of the bare agent", case.is_output);
    let took = begun.elapsed();
    // The bare agent has no keeper.
    bare.kill_tree();
    took
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
