//! Fakes of all ports, for tests on virtual time: agents that behave as told, trees that fall or
//! do not, a store in memory, a clock that follows tokio's.
//!
//! Fed by tests, with the feature `test-util`. Every port writes what it was asked into one
//! [`Journal`], so that a test reads the order of effects across ports. Everything runs on the
//! thread of the test: no second arbiter, no process, no file, so a paused runtime sees all there
//! is to wait for. Deliberately not here: any expectation. Fakes answer; tests judge.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use drowse_messages::{
    LimitOverrides, Limits, MonoTime, Name, OpenSession, Priority, Recipe, SendMessage, SessionId,
    StatusReport, WallTime, Who, millis,
};
use drowse_policy::session::AgentTraits;
use tokio::time::Instant;

use crate::ports::{Catalog, Clock, Ports, Recovered};
use crate::{Daemon, DaemonHandle, Recovery};

mod backends;
mod recorder;
mod store;
mod trees;

pub use backends::FakeBackends;
pub use recorder::{Recorder, Recording};
pub use store::FakeStore;
pub use trees::FakeTrees;

#[expect(
    clippy::disallowed_types,
    reason = "a test looks into the fakes while the actors use them"
)]
type Lock<T> = std::sync::Mutex<T>;

/// A fake that panicked on purpose is still looked into.
fn lock<T>(it: &Lock<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tokio's clock, paused or not, as the daemon's.
#[derive(Clone, Copy, Debug)]
pub struct FakeClock {
    start: Instant,
}

impl FakeClock {
    /// Any wall-clock time will do; this one is in 2023.
    const WALL_AT_START: u64 = 1_700_000_000_000;

    /// A clock that starts now, at zero.
    #[must_use]
    pub fn start() -> Self {
        let start = Instant::now();
        Self { start }
    }
}

impl Clock for FakeClock {
    fn now(&self) -> MonoTime {
        MonoTime::from_millis(millis(self.start.elapsed()))
    }

    fn wall(&self) -> WallTime {
        WallTime(Self::WALL_AT_START + self.now().as_millis())
    }
}

/// What all ports were asked, in order: `backends: launch #1`, `store: save resting`.
#[derive(Clone, Debug)]
pub struct Journal {
    clock: FakeClock,
    lines: Arc<Lock<Vec<(MonoTime, String)>>>,
}

impl Journal {
    fn new(clock: FakeClock) -> Self {
        let lines = Arc::default();
        Self { clock, lines }
    }

    fn note(&self, line: String) {
        lock(&self.lines).push((self.clock.now(), line));
    }

    /// The lines that begin with `prefix`, without it.
    #[must_use]
    pub fn of(&self, prefix: &str) -> Vec<String> {
        self.timed(prefix).into_iter().map(|(_, l)| l).collect()
    }

    /// The same with their times.
    #[must_use]
    pub fn timed(&self, prefix: &str) -> Vec<(MonoTime, String)> {
        lock(&self.lines)
            .iter()
            .filter_map(|(at, line)| Some((*at, line.strip_prefix(prefix)?.to_owned())))
            .collect()
    }

    /// How many lines begin with `prefix`.
    #[must_use]
    pub fn count(&self, prefix: &str) -> usize {
        self.of(prefix).len()
    }

    /// Forgets what was written so far.
    pub fn clear(&self) {
        *lock(&self.lines) = Vec::new();
    }
}

/// How the world behaves. A launch goes by what is set when it happens, everything else by what
/// is set when it is asked.
#[derive(Clone, Debug)]
pub struct Manners {
    /// From the launch to its answer.
    pub launch_takes: Duration,
    /// The launch fails with this text, and may be tried again.
    pub launch_fails: Option<String>,
    /// From there to the end of the handshake; `None`: the test says when.
    pub ready_takes: Option<Duration>,
    /// From delivery to the end of the turn; `None`: the test says when.
    pub turn_takes: Option<Duration>,
    /// The agent ends when its stdin is closed.
    pub obeys_close: bool,
    /// Its tree ends on SIGTERM.
    pub obeys_term: bool,
    /// Its tree ends on SIGKILL.
    pub obeys_kill: bool,
    /// How long a step on a tree takes.
    pub reap_takes: Duration,
    /// How long reading a session's record takes.
    pub load_takes: Duration,
    /// The port that the agent's child listens on, if it does.
    pub serves: Option<u16>,
    /// The backends port panics at the first order or launch whose line starts like this.
    pub panics_at: Option<&'static str>,
}

impl Default for Manners {
    /// A quick and obedient world.
    fn default() -> Self {
        Self {
            launch_takes: Duration::from_millis(10),
            launch_fails: None,
            ready_takes: Some(Duration::from_millis(100)),
            turn_takes: Some(Duration::from_secs(2)),
            obeys_close: true,
            obeys_term: true,
            obeys_kill: true,
            reap_takes: Duration::ZERO,
            load_takes: Duration::ZERO,
            serves: None,
            panics_at: None,
        }
    }
}

type SharedManners = Arc<Lock<Manners>>;

/// What the fake configuration says: one set of limits, which each session may override.
#[derive(Debug)]
pub struct FakeCatalog {
    /// See [`Catalog::limits`].
    limits: Lock<Limits>,
    starting_max: Lock<usize>,
    traits: Lock<BTreeMap<Name, AgentTraits>>,
}

impl FakeCatalog {
    fn new() -> Self {
        let can_resume = AgentTraits {
            can_resume: true,
            reports_tasks: false,
            observed: false,
            steers: false,
        };
        Self {
            limits: Lock::new(Limits::default()),
            starting_max: Lock::new(4),
            traits: Lock::new(BTreeMap::from([(name("fake"), can_resume)])),
        }
    }

    /// Changes the limits; sessions hear of it when the daemon reloads.
    pub fn set_limits(&self, change: impl FnOnce(&mut Limits)) {
        change(&mut lock(&self.limits));
    }

    /// Changes how many backends may be starting at once.
    pub fn set_starting_max(&self, most: usize) {
        *lock(&self.starting_max) = most;
    }

    /// Adds an adapter, or changes one; the agents of [`open`] speak `fake`.
    pub fn set_traits(&self, protocol: Name, traits: AgentTraits) {
        lock(&self.traits).insert(protocol, traits);
    }
}

impl Catalog for FakeCatalog {
    fn limits(&self, _: &Name, _: &Path, session: &LimitOverrides) -> Limits {
        lock(&self.limits).clone().with(session)
    }

    fn traits(&self, _: &Name, protocol: &Name) -> Option<AgentTraits> {
        lock(&self.traits).get(protocol).copied()
    }

    fn starting_max(&self) -> usize {
        *lock(&self.starting_max)
    }
}

/// All fakes of one daemon.
#[derive(Clone, Debug)]
pub struct Fakes {
    /// The time.
    pub clock: FakeClock,
    /// What the ports were asked.
    pub journal: Journal,
    /// The configuration.
    pub catalog: Arc<FakeCatalog>,
    /// The disk.
    pub store: Arc<FakeStore>,
    /// The trees.
    pub trees: Arc<FakeTrees>,
    /// The agents.
    pub backends: Rc<FakeBackends>,
    manners: SharedManners,
}

impl Default for Fakes {
    fn default() -> Self {
        Self::new()
    }
}

impl Fakes {
    /// A world that starts now, with nothing in it. Needs a running tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        let clock = FakeClock::start();
        let journal = Journal::new(clock);
        let manners = SharedManners::default();
        let store = Arc::new(FakeStore::new(clock, journal.clone(), manners.clone()));
        let trees = Arc::new(FakeTrees::new(journal.clone(), manners.clone()));
        let (agents, forest) = (store.clone(), trees.clone());
        let backends = FakeBackends::new(journal.clone(), manners.clone(), agents, forest);
        Self {
            clock,
            journal,
            catalog: Arc::new(FakeCatalog::new()),
            store,
            trees,
            backends: Rc::new(backends),
            manners,
        }
    }

    /// Changes how the world behaves from now on.
    pub fn behave(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut lock(&self.manners));
    }

    /// The fakes as the actors see them.
    #[must_use]
    pub fn ports(&self) -> Ports {
        Ports {
            clock: Arc::new(self.clock),
            store: self.store.clone(),
            trees: self.trees.clone(),
            catalog: self.catalog.clone(),
            backends: self.backends.clone(),
        }
    }

    /// Starts the core actors over an empty store and serves.
    #[must_use]
    pub fn serve(&self) -> DaemonHandle {
        self.serve_after(Recovered::default())
    }

    /// Starts them over what an earlier daemon left.
    #[must_use]
    pub fn serve_after(&self, recovered: Recovered) -> DaemonHandle {
        let daemon = self.start_from(recovered.into());
        let handle = daemon.handle();
        daemon.serve();
        handle
    }

    /// Starts them where an earlier daemon ended: what is in the store is recovered, and backends
    /// that still run are taken over.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn serve_next(&self) -> DaemonHandle {
        let ports = self.ports();
        let recovered = ports.store.recover().await;
        let recovered = recovered.expect("the store of the test works");
        let recovery = Recovery::take_over(&ports, recovered).await;
        let daemon = self.start_from(recovery);
        daemon.end_leftovers().await;
        let handle = daemon.handle();
        daemon.serve();
        handle
    }

    fn start_from(&self, recovery: Recovery) -> Daemon {
        let report = StatusReport::new("0.0.0", std::process::id());
        Daemon::start(self.ports(), recovery, report)
    }
}

/// The id of the session with this number.
#[must_use]
pub fn session(number: u64) -> SessionId {
    SessionId::from_random(number)
}

/// A name that is known to be one.
fn name(text: &'static str) -> Name {
    text.parse().expect("the fakes use plain names")
}

/// A request to open session `number`, of an agent that speaks `fake`.
#[must_use]
pub fn open(number: u64) -> OpenSession {
    OpenSession {
        id: session(number),
        name: None,
        recipe: Recipe {
            agent: name("fake"),
            protocol: name("fake"),
            argv: vec!["fake-agent".to_owned()],
            cwd: "/work".into(),
            env: BTreeMap::new(),
        },
        limits: LimitOverrides::default(),
    }
}

/// A message with this text.
#[must_use]
pub fn message(text: &str) -> SendMessage {
    SendMessage {
        text: text.to_owned(),
        key: None,
        priority: Priority::Later,
        by: Who::Client("test".to_owned()),
    }
}
