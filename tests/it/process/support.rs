//! A backend under test: a keeper, a scripted agent below it, and what became of them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use drowse::process::cgroup::place::Cgroups;
use drowse::process::control::{Launch, ToKeeper};
use drowse::process::link::{AgentStdio, KeeperEvent, KeeperLink, TakeOverError};
use drowse::process::reaper::ReaperPool;
use drowse::process::signal::Signaller;
use drowse::process::spawn::KeeperProgram;
use drowse_messages::{
    ExitStatus, Incarnation, KeepRule, ProcIdentity, ReapReport, ReapRequest, ReapStep, SessionId,
};
use drowse_tests::Canary;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The ceiling of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Every launch here is the first of its session.
pub(crate) const INCARNATION: Incarnation = Incarnation(1);

pub(crate) const KEEPER: &str = env!("CARGO_BIN_EXE_drowse-dup");
pub(crate) const TREE_AGENT: &str = env!("CARGO_BIN_EXE_tree-agent");
pub(crate) const FAKE_DAEMON: &str = env!("CARGO_BIN_EXE_fake-daemon");

/// Where an unprivileged user finds these programs; see arms.rs.
pub(crate) const PROGRAMS_VARIABLE: &str = "DROWSE_TEST_PROGRAMS";

/// One of these programs, where this process may run it.
pub(crate) fn program(built: &str) -> PathBuf {
    let built = Path::new(built);
    match std::env::var_os(PROGRAMS_VARIABLE) {
        Some(folder) => Path::new(&folder).join(built.file_name().expect("a program")),
        None => built.to_owned(),
    }
}

/// Runs a test on a runtime of its own.
pub(crate) fn on_runtime<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(test)
}

/// Fails the test when `what` takes longer than the ceiling.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {PATIENCE:?}"),
    }
}

/// Waits for a fact that only looking can establish.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets a second pass in which nothing is to happen.
pub(crate) fn rest() {
    std::thread::sleep(Duration::from_secs(1));
}

/// A mark that no other test's processes carry.
pub(crate) fn new_session() -> SessionId {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    SessionId::from_random((u64::from(std::process::id()) << 24) + count)
}

pub(crate) fn launch(session: SessionId, argv: &[&str]) -> Launch {
    let env = [
        ("PATH".into(), "/usr/bin:/bin".into()),
        ("DROWSE_SESSION".into(), session.to_string().into()),
    ];
    Launch {
        argv: argv.iter().map(Into::into).collect(),
        env: env.to_vec(),
        cwd: "/".into(),
        cgroup: None,
        socket: None,
        orphan_grace: Duration::ZERO,
        eof_grace: Duration::from_millis(50),
        term_grace: Duration::from_millis(100),
        nofile: None,
    }
}

/// What was held beside the agent and its streams.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TakenOver {
    pub(crate) exited: Option<ExitStatus>,
    pub(crate) empty: bool,
    pub(crate) checkpoint: Vec<u8>,
}

pub(crate) struct Backend {
    pub(crate) session: SessionId,
    pub(crate) link: KeeperLink,
    pub(crate) agent: ProcIdentity,
    pub(crate) stdio: AgentStdio,
    pub(crate) said: Vec<u8>,
    /// What the agent was born in.
    pub(crate) cgroup: Option<PathBuf>,
    /// What the steps are to leave alone.
    pub(crate) keep: Vec<KeepRule>,
}

impl Backend {
    /// A `tree-agent` with this script, started.
    pub(crate) async fn start(script: &str) -> Self {
        Self::start_in(None, script).await
    }

    /// The same, in a cgroup of its own if there are any.
    pub(crate) async fn start_in(cgroups: Option<&Cgroups>, script: &str) -> Self {
        Self::run_in(cgroups, &[&program(TREE_AGENT).to_string_lossy(), script]).await
    }

    /// Any program.
    pub(crate) async fn run_in(cgroups: Option<&Cgroups>, argv: &[&str]) -> Self {
        let session = new_session();
        let create = |cgroups: &Cgroups| cgroups.create(session, INCARNATION);
        let cgroup = cgroups.map(|cgroups| create(cgroups).expect("a cgroup"));
        let mut launch = launch(session, argv);
        launch.cgroup = cgroup.map(|cgroup| cgroup.path().to_owned());
        Self::launch(session, launch).await
    }

    pub(crate) async fn launch(session: SessionId, launch: Launch) -> Self {
        let keeper = KeeperProgram::at(&program(KEEPER));
        let cgroup = launch.cgroup.clone();
        let mut link = KeeperLink::spawn(&keeper, session, launch)
            .await
            .expect("a keeper");
        match in_time("the start", link.next_message())
            .await
            .expect("understood")
        {
            Some(KeeperEvent::Started { agent, stdio }) => Self {
                session,
                link,
                agent,
                stdio,
                said: Vec::new(),
                cgroup,
                keep: Vec::new(),
            },
            other => panic!("the agent did not start: {other:?}"),
        }
    }

    /// Takes over the keeper that listens at `socket`, or says why not.
    pub(crate) async fn take_over(
        session: SessionId,
        keeper: ProcIdentity,
        socket: &Path,
    ) -> Result<(Self, TakenOver), TakeOverError> {
        let taken = in_time("the take-over", KeeperLink::take_over(keeper, socket));
        let (link, held) = taken.await?;
        let backend = Self {
            session,
            link,
            agent: held.agent,
            stdio: held.stdio.expect("it is not retired"),
            said: Vec::new(),
            cgroup: None,
            keep: Vec::new(),
        };
        let taken = TakenOver {
            exited: held.exited,
            empty: held.empty,
            checkpoint: held.checkpoint.0,
        };
        Ok((backend, taken))
    }

    /// Reads on until `count` processes have reported themselves.
    pub(crate) async fn reports(&mut self, count: usize) -> Vec<ProcIdentity> {
        loop {
            let found = parse_reports(&self.said);
            if found.len() >= count {
                return found;
            }
            self.read_some().await;
        }
    }

    /// Reads on until what was said is enough.
    pub(crate) async fn until(&mut self, is_enough: impl Fn(&[u8]) -> bool) {
        while !is_enough(&self.said) {
            self.read_some().await;
        }
    }

    /// Reads on until a whole line has come.
    pub(crate) async fn line(&mut self) -> String {
        self.until(|said| said.contains(&b'\n')).await;
        String::from_utf8_lossy(&self.said).into_owned()
    }

    /// Reads on until `length` bytes have come.
    pub(crate) async fn bytes(&mut self, length: usize) -> &[u8] {
        self.until(|said| said.len() >= length).await;
        &self.said
    }

    async fn read_some(&mut self) {
        let mut bytes = [0; 4096];
        let read = in_time("output", self.stdio.stdout.read(&mut bytes))
            .await
            .expect("a pipe");
        assert!(
            read > 0,
            "output ended after {:?}",
            String::from_utf8_lossy(&self.said)
        );
        self.said.extend_from_slice(&bytes[..read]);
    }

    pub(crate) async fn say(&mut self, text: &str) {
        let stdin = self.stdio.stdin.as_mut().expect("it is open");
        stdin
            .write_all(text.as_bytes())
            .await
            .expect("the agent reads");
    }

    /// Ends the agent's standard input.
    pub(crate) async fn end_input(&mut self) {
        self.stdio.stdin = None;
        let told = self.link.send(ToKeeper::CloseStdin).await;
        told.expect("the keeper listens");
    }

    pub(crate) async fn step(&self, pool: &ReaperPool, step: ReapStep) -> ReapReport {
        let request = ReapRequest {
            agent: Some(self.agent),
            cgroup: self.cgroup.clone(),
            keep: self.keep.clone(),
            ..request(self.session, self.link.keeper(), step)
        };
        submit(pool, request).await
    }

    /// The next event that is an exit.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        match in_time("the exit", self.link.next_message())
            .await
            .expect("understood")
        {
            Some(KeeperEvent::Exited(status)) => status,
            other => panic!("not an exit: {other:?}"),
        }
    }

    /// Tells the keeper to leave and collects it.
    ///
    /// The cgroup is gone then too.
    pub(crate) async fn leave(mut self, pool: &ReaperPool) {
        // It may have left already, which is just as well.
        drop(self.link.send(ToKeeper::Leave).await);
        in_time("the keeper's leaving", async {
            while self
                .link
                .next_message()
                .await
                .expect("understood")
                .is_some()
            {}
        })
        .await;
        let status = collect(pool, self.link.keeper()).await;
        assert_eq!(
            status,
            Some(ExitStatus::Code(0)),
            "the keeper's exit status"
        );
        if let Some(cgroup) = &self.cgroup {
            assert!(!cgroup.exists(), "{} is left", cgroup.display());
        }
    }
}

/// Longer than any test.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// A folder for one socket, and the socket's path.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("keeper.sock");
    (folder, socket)
}

/// A backend whose keeper can be taken over. Dropped, it is a daemon that died: nothing is said,
/// everything is closed.
pub(crate) async fn start_kept(socket: &Path, script: &str) -> Backend {
    let session = new_session();
    let mut plan = launch(session, &[TREE_AGENT, script]);
    plan.socket = Some(socket.to_owned());
    plan.orphan_grace = GRACE;
    Backend::launch(session, plan).await
}

/// Kills the tree and lets the keeper go.
pub(crate) async fn end(backend: Backend) {
    let pool = pool();
    assert!(backend.step(&pool, ReapStep::Kill).await.empty);
    backend.leave(&pool).await;
}

pub(crate) fn signal(process: ProcIdentity, signal: Signal) {
    let sent = Signaller::new().send_to(process, signal);
    sent.expect("ours");
}

fn request(session: SessionId, keeper: ProcIdentity, step: ReapStep) -> ReapRequest {
    ReapRequest {
        session,
        incarnation: INCARNATION,
        keeper,
        agent: None,
        cgroup: None,
        keep: Vec::new(),
        step,
    }
}

async fn submit(pool: &ReaperPool, request: ReapRequest) -> ReapReport {
    let (reply, report) = tokio::sync::oneshot::channel();
    pool.submit(
        request,
        Box::new(|report| assert!(reply.send(report).is_ok())),
    );
    in_time("the report", report).await.expect("replied to")
}

pub(crate) async fn step_on(
    pool: &ReaperPool,
    session: SessionId,
    keeper: ProcIdentity,
    step: ReapStep,
) -> ReapReport {
    submit(pool, request(session, keeper, step)).await
}

pub(crate) async fn collect(pool: &ReaperPool, keeper: ProcIdentity) -> Option<ExitStatus> {
    let (reply, status) = tokio::sync::oneshot::channel();
    pool.collect(
        keeper,
        Box::new(|status| assert!(reply.send(status).is_ok())),
    )
    .expect("room");
    in_time("the keeper's status", status)
        .await
        .expect("replied to")
}

pub(crate) fn pool() -> ReaperPool {
    ReaperPool::start(2, 64).expect("threads")
}

pub(crate) fn parse_reports(said: &[u8]) -> Vec<ProcIdentity> {
    let whole = said.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    let text = String::from_utf8_lossy(&said[..whole]);
    text.lines()
        .map(|line| {
            let (pid, start) = line.split_once('@').expect("pid@start");
            let pid = pid.parse().expect("a pid");
            ProcIdentity::new(pid, start.parse().expect("ticks")).expect("a pid above 1")
        })
        .collect()
}

/// True while a process with this identity runs; a zombie does not. Reads `/proc` on its own, so
/// that the code under test does not testify for itself.
pub(crate) fn is_alive(process: ProcIdentity) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", process.pid())) else {
        return false;
    };
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .expect("split")
        .split_whitespace()
        .collect();
    let same = fields[19].parse() == Ok(process.start_ticks());
    same && (!matches!(fields[0], "Z" | "X") || fields[17] != "1")
}

/// The number of a field like `Threads` in the `status` file of a process.
pub(crate) fn status_field(process: ProcIdentity, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).expect("alive");
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
    number.expect("a number")
}

/// How many bytes a process has written, to whatever.
pub(crate) fn written(process: ProcIdentity) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", process.pid())).expect("alive");
    let field = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    let count = field.and_then(|count| count.parse().ok());
    count.expect("a number")
}

/// Every live process whose environment names this session, keepers left out.
pub(crate) fn marked(session: SessionId) -> BTreeSet<i32> {
    let entry = format!("DROWSE_SESSION={session}");
    let pids = fs::read_dir("/proc").expect("proc").filter_map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
    });
    pids.filter(|pid| {
        let read = |file| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let is_marked = read("environ")
            .split(|&byte| byte == 0)
            .any(|e| e == entry.as_bytes());
        is_marked && !read("cmdline").starts_with(b"drowse\0keeper\0")
    })
    .collect()
}

/// The names and states of marked processes, for a failing test.
pub(crate) fn dump(session: SessionId) -> String {
    marked(session)
        .into_iter()
        .fold(String::new(), |mut text, pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let _ = writeln!(text, "{}", stat.chars().take(80).collect::<String>());
            text
        })
}

/// How many zombies this process has.
pub(crate) fn zombies() -> usize {
    let own = std::process::id().to_string();
    let children = fs::read_dir("/proc/self/task")
        .expect("proc")
        .flat_map(|task| {
            let path = task.expect("a thread").path().join("children");
            let text = fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
    children
        .filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.contains(&format!(") Z {own} "))
        })
        .count()
}

pub(crate) fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("proc").count()
}

/// Set in a process that runs one test alone.
const ALONE_VARIABLE: &str = "DROWSE_TEST_ALONE";

/// True in a process that runs one test alone.
pub(crate) fn is_alone() -> bool {
    std::env::var_os(ALONE_VARIABLE).is_some()
}

/// True in a process that runs this test (its whole path) alone; else runs it in one, for tests
/// that count what their own process has.
pub(crate) fn alone(test: &str) -> bool {
    if !is_alone() {
        let own = std::env::current_exe().expect("a test program");
        run_alone(test, &mut std::process::Command::new(own));
    }
    is_alone()
}

/// Runs this test in another process: `command` begins with a test program.
pub(crate) fn run_alone(test: &str, command: &mut std::process::Command) {
    let output = command
        .args(["--exact", test, "--nocapture"])
        .env(ALONE_VARIABLE, "1")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    // What it skipped is seen even if nothing fails.
    let shown = std::io::stdout().write_all(&output.stdout);
    shown.expect("a place to write to");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{test} failed when run alone: {why}"
    );
    assert!(said.contains("1 passed"), "there is no test {test}");
}

/// A stranger with the same program, name and arguments as an agent, outside of every session, and
/// the folder of its notes.
pub(crate) fn canary(script: &str) -> (Canary, TempDir) {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let mut command = std::process::Command::new(program(TREE_AGENT));
    command.arg(script).env_clear();
    let canary = Canary::start(command, &folder.path().join("notes"));
    canary.wait_ready();
    (canary, folder)
}
