//! The real daemon under test: its own folder, fake agents, and a blocking way to ask it.
//!
//! Fed by: end-to-end tests. A daemon is described by [`Setup`], runs as [`TestDaemon`], and can be
//! killed, ended and started again on the same folder.
//! Invariants: everything it starts carries the test's mark; on drop the daemon is gone, and so is
//! every process of its sessions, keepers included, or the test fails; a failing test shows the
//! daemon's log, its sessions and its processes.

mod ask;
mod end;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use drowse_client::Client;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::fake::{Dialect, FakeAgent, HOME};
use crate::process::{ProcIdentity, TreeGuard, children};
use crate::wait::{CEILING, wait_until};

/// 30 s: one message's life in the slowest test, several starts with pauses between them included.
pub const MESSAGE_CEILING: Duration = Duration::from_secs(30);
/// A daemon's end: its longest teardown in a test and some spare time.
const END_CEILING: Duration = Duration::from_secs(20);
/// Processes of sessions carry their session's id in this variable, keepers too.
const SESSION_VARIABLE: &str = "DROWSE_SESSION";

/// What a daemon is started with.
#[derive(Debug)]
pub struct Setup {
    test: &'static str,
    program: PathBuf,
    /// What the program is run by, and that one's arguments; empty: by nobody.
    through: Vec<String>,
    fake: FakeAgent,
    session: BTreeMap<String, String>,
    more: String,
    env: BTreeMap<String, String>,
}

impl Setup {
    /// Short limits, and agents `fake` (Claude's protocol), `fakepi`, `fakepi073` and `raw`
    /// (`cat`). Use [`daemon!`](crate::daemon!).
    #[must_use]
    pub fn new(test: &'static str, program: &str, fake: FakeAgent) -> Self {
        let mut setup = Self {
            test,
            program: program.into(),
            through: Vec::new(),
            fake,
            session: BTreeMap::new(),
            more: String::new(),
            env: BTreeMap::new(),
        };
        for (key, value) in [
            ("idle_after", "400ms"),
            ("eof_grace", "300ms"),
            ("term_grace", "300ms"),
            ("start_limit", "10s"),
        ] {
            setup = setup.limit(key, value);
        }
        setup
    }

    /// A limit for all sessions.
    #[must_use]
    pub fn limit(mut self, key: &str, value: &str) -> Self {
        self.session.insert(key.to_owned(), value.to_owned());
        self
    }

    /// More configuration, after what there is.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.more.push_str(toml);
        self
    }

    /// Has the program run by another one, which has to become it or to be its parent.
    #[must_use]
    pub fn through(mut self, words: &[&str]) -> Self {
        self.through = words.iter().map(ToString::to_string).collect();
        self
    }

    /// A variable of the daemon's own environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Prepares the folder and starts nothing.
    ///
    /// # Panics
    /// When the folder cannot be made.
    #[must_use]
    pub fn ready(self) -> TestDaemon {
        let folder = tempfile::Builder::new()
            .prefix("drowse-e2e-")
            .tempdir()
            .expect("the temporary folder can be written");
        let work = folder.path().join("work");
        fs::create_dir(&work).expect("the folder is ours");
        let client = Client::unix(folder.path().join("state").join("drowse.sock"));
        let daemon = TestDaemon {
            guard: TreeGuard::new(self.test),
            client: client.named("test"),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime of one thread needs nothing special"),
            setup: self,
            folder,
            work,
            child: None,
            opened: RefCell::default(),
        };
        daemon.write_config(&daemon.config_text());
        daemon
    }

    /// Starts the daemon and waits until it takes requests.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    #[must_use]
    pub fn start(self) -> TestDaemon {
        let mut daemon = self.ready();
        daemon.restart();
        daemon
    }
}

/// A [`Setup`] with the binaries of this crate. Works in tests of this crate.
#[macro_export]
macro_rules! daemon {
    ($test:expr) => {
        $crate::daemon::Setup::new(
            $test,
            env!("CARGO_BIN_EXE_drowse-dup"),
            $crate::fake_agent!(),
        )
    };
}

/// See the module.
#[derive(Debug)]
pub struct TestDaemon {
    child: Option<Child>,
    client: Client,
    runtime: Runtime,
    work: PathBuf,
    folder: TempDir,
    setup: Setup,
    /// Sessions opened by this test: nothing of theirs may be left at the end.
    opened: RefCell<Vec<String>>,
    guard: TreeGuard,
}

impl TestDaemon {
    /// The fake agents' common home.
    #[must_use]
    pub fn fake(&self) -> &FakeAgent {
        &self.setup.fake
    }

    /// Where sessions run unless a test says otherwise.
    #[must_use]
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// A path in the test's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The daemon's state folder.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.path("state")
    }

    /// What the daemon wrote to stderr so far, of all its runs.
    #[must_use]
    pub fn log_text(&self) -> String {
        fs::read_to_string(self.path("serve.log")).unwrap_or_default()
    }

    fn config_text(&self) -> String {
        let mut text = String::from("[session]\n");
        for (key, value) in &self.setup.session {
            text.push_str(&format!("{key} = {value:?}\n"));
        }
        let agents = [
            ("fake", Dialect::Claude, "claude"),
            ("fakepi", Dialect::Pi, "pi"),
            ("fakepi073", Dialect::Pi073, "pi"),
        ];
        for (name, dialect, protocol) in agents {
            let mut command = vec![self.setup.fake.program().display().to_string()];
            command.extend(dialect.args().iter().map(ToString::to_string));
            text.push_str(&format!(
                "\n[agents.{name}]\nprotocol = {protocol:?}\ncommand = {command:?}\n"
            ));
        }
        text.push_str("\n[agents.raw]\nprotocol = \"raw\"\ncommand = [\"cat\"]\n");
        text + &self.setup.more
    }

    /// Changes limits in the configuration file; nobody is told.
    pub fn rewrite_limits(&mut self, limits: &[(&str, &str)]) {
        let change = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        self.setup.session.extend(limits.iter().map(change));
        self.write_config(&self.config_text());
    }

    /// Replaces the configuration file; nobody is told.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_config(&self, text: &str) {
        let part = self.path("config.part");
        fs::write(&part, text).expect("the folder is ours");
        fs::rename(part, self.path("config.toml")).expect("the folder is ours");
    }

    /// Adds to the configuration and waits until it applies.
    ///
    /// # Panics
    /// When the daemon does not take it.
    #[track_caller]
    pub fn add_config(&self, toml: &str) {
        self.write_config(&(self.config_text() + toml));
        let read = || {
            self.log_text()
                .matches("configuration was read again")
                .count()
        };
        let before = read();
        self.hang_up();
        wait_until("the new configuration", CEILING, || {
            (read() > before).then_some(())
        });
    }

    /// The program with this daemon's folders, its configuration and a scrubbed environment.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let program = self.setup.program.clone().into_os_string();
        let through = self.setup.through.iter().map(Into::into);
        let mut words = through.chain([program]);
        let mut command = Command::new(words.next().expect("at least the program"));
        command
            .args(words)
            .arg("--state-dir")
            .arg(self.state_dir())
            .arg("--config")
            .arg(self.path("config.toml"))
            .args(args)
            .env_clear()
            .envs(self.agent_env())
            .envs(&self.setup.env)
            .current_dir(&self.work);
        command
    }

    /// The environment agents get: the test's mark, the fake agent's home, and no more than a
    /// program needs.
    #[must_use]
    pub fn agent_env(&self) -> BTreeMap<String, String> {
        let (mark, token) = self.guard.env();
        let home = self.folder.path().display().to_string();
        [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("HOME", &home),
            (mark, token),
            (HOME, &self.fake().home().display().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// Starts the daemon without waiting for it.
    ///
    /// # Panics
    /// When one of ours runs.
    #[track_caller]
    pub fn spawn(&mut self) {
        self.spawn_hearing(Stdio::null());
    }

    /// Starts the daemon with this standard input, without waiting for it.
    ///
    /// # Panics
    /// When one of ours runs.
    #[track_caller]
    pub fn spawn_hearing(&mut self, stdin: Stdio) {
        assert!(self.child.is_none(), "one daemon at a time");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("serve.log"))
            .expect("the folder is ours");
        let child = self
            .command(&["serve"])
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program was built with the tests");
        self.child = Some(child);
    }

    /// Starts the daemon on the folder as it is and waits until it takes requests.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    pub fn restart(&mut self) {
        self.spawn();
        self.wait_ready();
    }

    /// Waits until the daemon takes requests.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    pub fn wait_ready(&self) {
        wait_until("a daemon that takes requests", CEILING, || {
            let ready = self.ask(async |client| client.ready().await);
            matches!(ready, Ok(true)).then_some(())
        });
    }

    /// Who the daemon is.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    #[must_use]
    pub fn identity(&self) -> ProcIdentity {
        let child = self.child.as_ref().expect("the daemon runs");
        let pid = i32::try_from(child.id()).expect("a pid fits into i32");
        ProcIdentity::of(pid).expect("a child that is not collected has an entry")
    }

    /// Children of the daemon that have ended and were not collected.
    #[must_use]
    pub fn uncollected(&self) -> usize {
        let children = children(self.identity().pid);
        children.iter().filter(|stat| !stat.is_alive()).count()
    }

    /// User and system time the daemon has used, in clock ticks (100 a second).
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    #[must_use]
    pub fn cpu_ticks(&self) -> u64 {
        let pid = self.identity().pid;
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = text.rsplit(')').next().unwrap_or_default().split(' ');
        let spent: Vec<u64> = fields
            .skip(12)
            .take(2)
            .filter_map(|t| t.parse().ok())
            .collect();
        assert_eq!(spent.len(), 2, "the daemon runs");
        spent.iter().sum()
    }

    /// Kills the daemon with no last word.
    pub fn kill9(&mut self) {
        self.identity().signal(Signal::SIGKILL);
        self.wait_exit();
    }

    /// Sends SIGTERM and waits for the end.
    #[track_caller]
    pub fn terminate(&mut self) -> ExitStatus {
        self.identity().signal(Signal::SIGTERM);
        self.wait_exit()
    }

    /// Waits until the daemon has ended.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("the daemon runs");
        let status = wait_until("the end of the daemon", END_CEILING, || {
            child.try_wait().expect("the child is ours to wait for")
        });
        self.child = None;
        status
    }

    /// Runs a verb to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args)
            .stdin(Stdio::null())
            .output()
            .expect("the program was built with the tests")
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        self.identity().signal(Signal::SIGHUP);
    }
}
