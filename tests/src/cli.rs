//! A running Drowse as its user has it: a state folder, a daemon, and verbs on the command line.
//!
//! Fed by tests that drive the real program with real agents. Nothing here reaches around the
//! command line, except [`Cli::client`] for what only the HTTP API offers.
//! Invariant: everything carries the test's mark, and the daemon is gone when this is dropped; a
//! failing test shows its log and what happened to each session.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use drowse_client::{Client, ClientError};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agents::RealAgent;
use crate::piped::PipedAgent;
use crate::process::{ProcIdentity, TreeGuard, descendants};
use crate::wait::{say, wait_until};

/// A minute: a real agent takes seconds to start, and many times that beside a compiler.
pub const REAL_CEILING: Duration = Duration::from_secs(60);

/// 200 lines of the daemon's log are shown when a test fails, the last ones.
const LOG_LINES_SHOWN: usize = 200;

/// What one verb did.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; `None`: a signal.
    pub code: Option<i32>,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

/// See the module.
#[derive(Debug)]
pub struct Cli {
    program: PathBuf,
    env: Vec<(String, String)>,
    mark: (String, String),
    agent: String,
    agent_args: Vec<String>,
    work: PathBuf,
    folder: TempDir,
    daemon: Option<(Child, ProcIdentity)>,
}

impl Cli {
    /// Starts a daemon with a state folder of its own and `agent` as the only agent; `session` are
    /// lines for the configuration's `[session]`.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    #[must_use]
    pub fn start(program: &str, guard: &TreeGuard, agent: &RealAgent, session: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("drowse-cli-")
            .tempdir()
            .expect("the temporary folder can be written");
        let name = agent.make().name();
        let command = json!(agent.program());
        let config = format!("[session]\n{session}\n\n[agents.{name}]\ncommand = {command}\n");
        fs::write(folder.path().join("config.toml"), config).expect("the folder is ours");
        let (mark, value) = guard.env();
        let mut cli = Self {
            program: program.into(),
            env: agent.env().to_vec(),
            mark: (mark.to_owned(), value.to_owned()),
            agent: name.to_owned(),
            agent_args: agent.model_args(),
            work: agent.work(),
            folder,
            daemon: None,
        };
        cli.serve();
        cli
    }

    /// Where the daemon keeps its state.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Runs the daemon, and returns once it takes requests.
    ///
    /// # Panics
    /// When it does not come up, or one is running.
    #[track_caller]
    pub fn serve(&mut self) {
        assert!(self.daemon.is_none(), "one daemon at a time");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("the folder is ours");
        let child = self
            .command(&["serve"])
            .env("DROWSE_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program was built with the tests");
        let identity = identity(&child);
        self.daemon = Some((child, identity));
        wait_until("a daemon that takes requests", REAL_CEILING, || {
            (self.run(&["ps", "--no-start"]).code == Some(0)).then_some(())
        });
    }

    /// Asks the daemon to end, as an init system does, and waits until it has.
    ///
    /// # Panics
    /// When it does not end, or not well.
    #[track_caller]
    pub fn end_daemon(&mut self) {
        let (mut child, daemon) = self.daemon.take().expect("a daemon is running");
        daemon.signal(Signal::SIGTERM);
        let status = wait_until("the end of the daemon", REAL_CEILING, || {
            child.try_wait().expect("the child is ours to wait for")
        });
        assert!(status.success(), "the daemon ended with {status}");
    }

    /// Kills the daemon: nothing is told, nothing is put in order.
    ///
    /// # Panics
    /// When none is running.
    #[track_caller]
    pub fn kill_daemon(&mut self) {
        let (mut child, daemon) = self.daemon.take().expect("a daemon is running");
        daemon.signal(Signal::SIGKILL);
        drop(child.wait());
    }

    /// Runs a verb to its end.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Ran {
        let mut child = self.piped(args);
        let mut out = Vec::new();
        while let Some(line) = child.next_bytes() {
            out.extend(line);
            out.push(b'\n');
        }
        let code = child.wait_exit().code();
        wait_until("all of its stderr", REAL_CEILING, || {
            child.is_read().then_some(())
        });
        Ran {
            code,
            out: String::from_utf8_lossy(&out).into_owned(),
            err: child.stderr(),
        }
    }

    /// Runs a verb that has to succeed, and gives what it printed.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, Some(0), "drowse {args:?}: {ran:?}");
        ran.out
    }

    /// Runs a verb that has to succeed with `--json`, and gives the object it printed.
    ///
    /// # Panics
    /// When it does not succeed or prints something else.
    #[track_caller]
    #[must_use]
    pub fn json(&self, args: &[&str]) -> Value {
        let text = self.ok(&[args, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("drowse {args:?}: {e}: {text}"))
    }

    /// Opens a session in the agent's folder; `args` go to the agent after those that choose its
    /// model.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn open(&self, name: &str, args: &[&str]) {
        let cwd = self.work.display().to_string();
        let mut words = vec!["new", &self.agent, "--name", name, "--cwd", &cwd, "--"];
        words.extend(self.agent_args.iter().map(String::as_str));
        words.extend(args);
        self.ok(&words);
    }

    /// Says something and gives the answer.
    ///
    /// # Panics
    /// When it is not answered.
    #[track_caller]
    pub fn say(&self, session: &str, text: &str) -> String {
        self.ok(&["send", session, text])
    }

    /// Begins to say something; the events of the message's life come line by line.
    #[track_caller]
    #[must_use]
    pub fn saying(&self, session: &str, text: &str) -> PipedAgent {
        self.piped(&["send", session, text, "--json"])
    }

    /// Follows the events of a session; returns once nothing can be missed.
    ///
    /// # Panics
    /// When it cannot.
    #[track_caller]
    #[must_use]
    pub fn watch(&self, session: &str) -> PipedAgent {
        let mut watch = self.piped(&["events", "--follow", "--json", "--session", session]);
        watch.wait_for("the first event", is("snapshot"));
        watch
    }

    /// Everything that is known of a session.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    #[must_use]
    pub fn show(&self, session: &str) -> Value {
        self.json(&["show", session])
    }

    /// Waits until the session is in this state, and gives what is known of it then.
    ///
    /// # Panics
    /// When it does not get there.
    #[track_caller]
    pub fn wait_state(&self, session: &str, state: &str) -> Value {
        wait_until(&format!("{session} to be {state}"), REAL_CEILING, || {
            let report = self.show(session);
            (report["state"] == state).then_some(report)
        })
    }

    /// Everything that runs for the session now, its keeper first.
    ///
    /// # Panics
    /// When nothing runs for it.
    #[track_caller]
    #[must_use]
    pub fn tree(&self, session: &str) -> Vec<ProcIdentity> {
        let report = self.show(session);
        let keeper = report["awake"]["keeper"]["pid"].as_i64();
        let keeper = keeper.and_then(|pid| i32::try_from(pid).ok());
        let keeper = keeper.unwrap_or_else(|| panic!("nothing runs: {report}"));
        let mut tree: Vec<ProcIdentity> = ProcIdentity::of(keeper).into_iter().collect();
        tree.extend(descendants(keeper));
        tree
    }

    /// The agent's own process.
    ///
    /// # Panics
    /// When it has none.
    #[track_caller]
    #[must_use]
    pub fn agent(&self, session: &str) -> ProcIdentity {
        let report = self.show(session);
        let pid = report["awake"]["agent_pid"].as_i64();
        let agent = pid.and_then(|pid| ProcIdentity::of(i32::try_from(pid).ok()?));
        agent.unwrap_or_else(|| panic!("no agent runs: {report}"))
    }

    /// Calls the HTTP API.
    ///
    /// # Panics
    /// When the call fails.
    #[track_caller]
    pub fn client<T>(&self, call: impl AsyncFnOnce(&Client) -> Result<T, ClientError>) -> T {
        let client = Client::unix(self.state_dir().join("drowse.sock"));
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime of one thread needs nothing special")
            .block_on(call(&client))
            .expect("the daemon does what it is asked")
    }

    #[track_caller]
    fn piped(&self, args: &[&str]) -> PipedAgent {
        PipedAgent::spawn_marked(self.command(args)).with_ceiling(REAL_CEILING)
    }

    /// The program with this daemon's folders and the agent's environment.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // The agent's own arguments are behind two dashes, so ours come first.
        command
            .arg("--state-dir")
            .arg(self.state_dir())
            .arg("--config")
            .arg(self.folder.path().join("config.toml"))
            .args(args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env(&self.mark.0, &self.mark.1)
            .current_dir(&self.work);
        command
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("serve.log")
    }

    fn dump(&self) {
        say(&format!(
            "serve.log: {}",
            last_lines(&self.log(), LOG_LINES_SHOWN)
        ));
        let shown = self.command(&["ps", "--no-start", "--json"]).output();
        let Ok(shown) = shown else { return };
        let list: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        say(&format!("ps: {list:#}"));
        for session in list["sessions"].as_array().into_iter().flatten() {
            let id = session["id"].as_str().unwrap_or_default();
            if let Ok(logs) = self.command(&["logs", id, "--no-start"]).output() {
                say(&format!("{id}:\n{}", String::from_utf8_lossy(&logs.stdout)));
            }
        }
    }
}

impl Drop for Cli {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.dump();
        }
        let Some((mut child, daemon)) = self.daemon.take() else {
            return;
        };
        daemon.signal(Signal::SIGTERM);
        let end = Instant::now() + REAL_CEILING;
        while Instant::now() < end && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // The guard of the test ends what is left, and says so.
        drop(child.kill());
        drop(child.wait());
    }
}

/// Whether an event is of this kind.
pub fn is(event: &'static str) -> impl FnMut(&Value) -> bool {
    move |line| line["event"] == event
}

/// Whether an event is a change to this state.
pub fn becomes(state: &'static str) -> impl FnMut(&Value) -> bool {
    move |line| line["event"] == "state_changed" && line["to"] == state
}

fn identity(child: &Child) -> ProcIdentity {
    let pid = i32::try_from(child.id()).expect("a pid fits into i32");
    ProcIdentity::of(pid).expect("a child that is not collected has an entry")
}

fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
