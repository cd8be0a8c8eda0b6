//! `drowse demo`: a real daemon on a temporary folder, with agents that pretend to be Claude Code.
//!
//! Everything is as in earnest: a daemon process, its socket, keepers, agents with helper
//! processes of their own, one of them in a process session of its own. What is printed was
//! measured, and the exit code is 0 only if all that is claimed was seen to be true.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use drowse_client::{Client, ListQuery};
use drowse_messages::{
    MessageState, NewSession, ProcIdentity, SessionEvent, SessionReport, SessionState,
};

use crate::cli::Globals;
use crate::exit::Exit;

mod agent;
mod screen;

pub(crate) use agent::agent_if_asked;
use screen::Screen;

/// The whole demo may take this long; it is done in half of it.
const DEMO_MAX: Duration = Duration::from_secs(30);
/// How often the table is drawn again.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a keeper without a tree may take to leave.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// What the demo's daemon is configured with.
const CONFIG: &str = r#"[session]
idle_after = "2s"
eof_grace = "500ms"
term_grace = "1s"

[agents.demo]
protocol = "claude"
command = ["{program}", "demo-agent"]
"#;

/// The sessions: what they are called and what they are told.
const PROMPTS: [(&str, &str); 3] = [
    ("parser", "remember that the parser lives in src/lexer.rs"),
    ("website", "remember that the headline is blue"),
    (
        "tests",
        "run the whole test suite in the background for 6 seconds",
    ),
];

/// Something did not happen as it should.
type Wrong = Box<dyn std::error::Error>;

/// Runs the demo.
pub(crate) fn run(_: &Globals) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let shown = runtime.map_err(Wrong::from).and_then(|runtime| {
        runtime.block_on(async {
            tokio::time::timeout(DEMO_MAX, show())
                .await
                .unwrap_or_else(|_| Err(format!("not done within {DEMO_MAX:?}").into()))
        })
    });
    match shown {
        Ok(()) => ExitCode::from(Exit::Ok.code()),
        Err(wrong) => {
            crate::cli::say_error(&*wrong);
            ExitCode::from(Exit::Error.code())
        }
    }
}

/// The daemon of the demo, and its folder. Both are gone when it is dropped.
struct Stage {
    daemon: Child,
    client: Client,
    folder: tempfile::TempDir,
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Ended already unless something went wrong. Its keepers then end what is left.
        let _ended = self.daemon.kill();
        let _collected = self.daemon.wait();
    }
}

async fn show() -> Result<(), Wrong> {
    let mut screen = Screen::new(std::io::stdout().is_terminal());
    let stage = begin(&mut screen).await?;
    let client = &stage.client;
    let cwd = stage.folder.path().join("work");
    std::fs::create_dir(&cwd)?;
    for (name, prompt) in PROMPTS {
        open(client, name, &cwd).await?;
        let answer = ask(client, name, prompt).await?;
        screen.say(&format!("{name}: {prompt:?}\n      → {answer}"))?;
    }
    let before = look(client).await?;
    let rows: Vec<&SessionReport> = before.values().collect();
    check(
        rows.iter().all(|row| pss(row) > 0),
        "every session has processes to begin with",
    )?;
    screen.say("\nNow nobody says anything for two seconds (idle_after = 2s).")?;
    let after = wait(client, &mut screen, &before, |rows| {
        let asleep = |name| state(rows, name) == Some(SessionState::Released);
        asleep("parser") && asleep("website")
    })
    .await?;
    check(
        state(&after, "tests") == Some(SessionState::Waiting),
        "tests is held by its task",
    )?;
    let held = &after["tests"]
        .awake
        .as_ref()
        .ok_or("tests has a process")?
        .holds;
    let why = held.first().ok_or("something holds tests")?;
    screen.say(&format!(
        "\ntests is kept: {} ({}). The others were idle: released, whole tree.",
        why.kind.code(),
        why.why
    ))?;
    check_gone(&before, &["parser", "website"]).await?;
    let freed = tell_ends(&mut screen, &after, &["parser", "website"])?;
    screen.say("\nA message wakes a released session, in the same conversation:")?;
    let answer = ask(client, "parser", "what did I ask you before?").await?;
    screen.say(&format!(
        "parser: \"what did I ask you before?\"\n      → {answer}"
    ))?;
    check(
        answer.contains("src/lexer.rs"),
        "the woken session knows its earlier turn",
    )?;
    let last = wait(client, &mut screen, &before, |rows| {
        rows.values().all(|row| row.state == SessionState::Released)
    })
    .await?;
    check_gone(&before, &["tests"]).await?;
    let freed_later = tell_ends(&mut screen, &last, &["tests"])?;
    end(stage, &before).await?;
    let freed = megabytes(freed + freed_later);
    screen.say(&format!(
        "\nFreed {freed}; no process and no file is left. That is all of it:"
    ))?;
    screen.say("  drowse serve        (or any verb: the daemon starts by itself)")?;
    screen.say("  drowse new claude && drowse ps")?;
    Ok(())
}

/// Starts the daemon and waits until it is ready.
async fn begin(screen: &mut Screen) -> Result<Stage, Wrong> {
    let folder = tempfile::Builder::new().prefix("drowse-demo-").tempdir()?;
    let program = std::env::current_exe()?;
    let config = folder.path().join("config.toml");
    std::fs::write(
        &config,
        CONFIG.replace("{program}", &program.display().to_string()),
    )?;
    let state = folder.path().join("state");
    let log = std::fs::File::create(folder.path().join("serve.log"))?;
    let daemon = Command::new(&program)
        .arg("serve")
        .arg("--state-dir")
        .arg(&state)
        .arg("--config")
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    let client = Client::unix(state.join("drowse.sock"));
    let mut stage = Stage {
        daemon,
        client,
        folder,
    };
    let started = Instant::now();
    while !stage.client.ready().await.unwrap_or(false) {
        if let Some(status) = stage.daemon.try_wait()? {
            let log = std::fs::read_to_string(stage.folder.path().join("serve.log"))?;
            return Err(format!("the daemon ended at once ({status}): {}", log.trim()).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = started.elapsed().as_millis();
    screen.say(&format!(
        "A daemon runs (pid {}, ready in {took} ms).\n",
        stage.daemon.id()
    ))?;
    Ok(stage)
}

async fn open(client: &Client, name: &str, cwd: &Path) -> Result<(), Wrong> {
    let session = NewSession {
        agent: "demo".parse()?,
        name: Some(name.parse()?),
        cwd: cwd.to_owned(),
        args: Vec::new(),
        env: std::env::vars().collect(),
        limits: BTreeMap::new(),
    };
    client.open(&session).await?;
    Ok(())
}

/// Sends a message and waits for the answer.
async fn ask(client: &Client, name: &str, text: &str) -> Result<String, Wrong> {
    let mut stream = client.send_streaming(name, text, None).await?;
    while let Some(event) = stream.next().await? {
        if let SessionEvent::MessageChanged { state, text, .. } = event.what
            && state.is_final()
        {
            return match state {
                MessageState::Answered => Ok(text),
                MessageState::Queued
                | MessageState::Delivered
                | MessageState::Failed
                | MessageState::Unknown
                | MessageState::Cancelled
                | MessageState::Parked => {
                    Err(format!("the message to {name} is {}: {text}", state.code()).into())
                }
            };
        }
    }
    Err(format!("{name} did not answer").into())
}

async fn look(client: &Client) -> Result<BTreeMap<String, SessionReport>, Wrong> {
    let page = client.sessions(&ListQuery::default()).await?;
    Ok(page
        .sessions
        .into_iter()
        .map(|row| (row.name.clone(), row))
        .collect())
}

/// Draws the table until what is waited for has happened.
async fn wait(
    client: &Client,
    screen: &mut Screen,
    before: &BTreeMap<String, SessionReport>,
    done: impl Fn(&BTreeMap<String, SessionReport>) -> bool,
) -> Result<BTreeMap<String, SessionReport>, Wrong> {
    loop {
        let rows = look(client).await?;
        screen.table(before, &rows)?;
        if done(&rows) {
            screen.keep_table()?;
            return Ok(rows);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn state(rows: &BTreeMap<String, SessionReport>, name: &str) -> Option<SessionState> {
    rows.get(name).map(|row| row.state)
}

fn pss(row: &SessionReport) -> u64 {
    row.awake
        .as_ref()
        .and_then(|awake| awake.usage)
        .map_or(0, |usage| usage.pss_bytes)
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes / 1_000_000)
}

fn check(holds: bool, claim: &str) -> Result<(), Wrong> {
    if holds {
        Ok(())
    } else {
        Err(format!("not true: {claim}").into())
    }
}

/// The keepers and agents that were there before are not any more. A keeper leaves when its tree
/// is gone, a moment after that was said.
async fn check_gone(before: &BTreeMap<String, SessionReport>, names: &[&str]) -> Result<(), Wrong> {
    for name in names {
        let awake = before[*name].awake.as_ref().ok_or("it was awake")?;
        let pids = [awake.agent_pid, awake.keeper.map(ProcIdentity::pid)];
        for pid in pids.into_iter().flatten() {
            let path = format!("/proc/{pid}");
            let looked = Instant::now();
            while Path::new(&path).exists() && looked.elapsed() < LEAVE_MAX {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let gone = !Path::new(&path).exists();
            check(gone, &format!("process {pid} of {name} is gone"))?;
        }
    }
    Ok(())
}

/// Says why and how sessions were released; returns the bytes that were freed.
fn tell_ends(
    screen: &mut Screen,
    rows: &BTreeMap<String, SessionReport>,
    names: &[&str],
) -> Result<u64, Wrong> {
    let mut freed = 0;
    for name in names {
        let end = rows[*name]
            .end
            .as_ref()
            .ok_or("it says why it was released")?;
        let processes: Vec<String> = end
            .processes
            .iter()
            .map(|process| format!("{} {}", process.identity.pid(), process.name))
            .collect();
        check(
            end.processes.len() >= 3,
            "the tree had an agent and two helpers",
        )?;
        screen.say(&format!(
            "  {name}: released because {}, {} freed, {} processes ended ({})",
            end.reason,
            megabytes(end.released_bytes),
            processes.len(),
            processes.join(", ")
        ))?;
        freed += end.released_bytes;
    }
    Ok(freed)
}

/// Ends the daemon in order and looks whether anything is left.
async fn end(mut stage: Stage, before: &BTreeMap<String, SessionReport>) -> Result<(), Wrong> {
    let pid = rustix::process::Pid::from_child(&stage.daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    let status = loop {
        match stage.daemon.try_wait()? {
            Some(status) => break status,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    check(
        status.success(),
        "the daemon ended in order, with nothing left behind",
    )?;
    let names: Vec<&str> = before.keys().map(String::as_str).collect();
    check_gone(before, &names).await?;
    let folder = stage.folder.path().to_owned();
    drop(stage);
    check(!folder.exists(), "no file is left")?;
    std::io::stdout().flush()?;
    Ok(())
}
