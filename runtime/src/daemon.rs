//! A daemon from its options to its end: what is opened in which order, and given up in reverse.
//!
//! Config → folders and lock → store → reaper's threads → core actors → leftovers of an earlier
//! daemon → extensions → listeners → ready … drain → extensions → listeners → store.
//!
//! Invariant: nothing is served before everything it needs is there, and the process does not end
//! with a tree of its own alive unless its exit code says so.

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use drowse_actors::ports::{Backends, Clock, Ports, Store};
use drowse_actors::{Daemon as Core, DaemonHandle, Recovery, RestartAsked};
use drowse_messages::{Limit, Refusal, Restarting, StatusReport};
use tokio::sync::mpsc;

use crate::adapter::Adapter;
use crate::adapters::Adapters;
use crate::backend::claim::Claims;
use crate::backend::{LocalBackends, STATE_VARIABLE, Shared as Backing};
use crate::chain::chain;
use crate::clock::SystemClock;
use crate::config::{ConfigError, Flag, Shared, Sources};
use crate::exit::Exit;
use crate::extension::{Extension, ExtensionContext, Running};
use crate::http::{self, Bounds, Server, TcpSocket, UnixSocket};
use crate::lock::{LockError, StateLock};
use crate::paths::{PathSources, Paths, PathsError};
use crate::process::adopted::adopt_orphans;
use crate::process::cgroup::place::Cgroups;
use crate::process::reaper::{QUEUE_MAX, ReaperPool, THREADS};
use crate::process::spawn::{KeeperProgram, raise_descriptor_limit};
use crate::process::table;
use crate::relay::{self, Hub};
use crate::signals::{Asked, Signals};
use crate::store::{OpenError, SqliteStore};
use crate::successor::Successor;
use crate::telemetry::{self, TelemetryError};
use crate::token::{SessionTokens, TokenError};
use crate::trees::LocalTrees;

/// How long a drain may take. 60 s: all sessions are ended at once, which takes 19 s at most with
/// the graces as they are unless configured. Of a tree that takes longer the keeper takes care,
/// with the same graces: it outlives the daemon.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// How long the reaper's threads may finish what is queued.
const REAPER_STOP_MAX: Duration = Duration::from_secs(10);

/// Where a daemon lives and what it is told from outside.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The configuration file; `None`: the usual ones.
    pub config: Option<PathBuf>,
    /// Where state and socket are.
    pub paths: Paths,
    /// Over the configuration's `server.listen`: an address, or `off`.
    pub listen: Option<String>,
}

impl ServeOptions {
    /// What `drowse serve` without flags uses.
    ///
    /// # Errors
    /// When there is no place for the state, or the socket's path is too long.
    pub fn of_process() -> Result<Self, PathsError> {
        let paths = Paths::resolve(&PathSources::of_process(None, None))?;
        Ok(Self {
            config: None,
            paths,
            listen: None,
        })
    }
}

/// Why a daemon did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[error(transparent)]
    Paths(#[from] PathsError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Tokens(#[from] TokenError),
    #[error(transparent)]
    Listen(#[from] http::ListenError),
    #[error("failed to read what the store holds: {0}")]
    Recover(drowse_actors::ports::StoreError),
    #[error("failed to {doing}")]
    System {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("two extensions are named {0:?}")]
    DuplicateExtension(String),
    #[error("two adapters speak the protocol {0}")]
    DuplicateAdapter(drowse_messages::Name),
    #[error("not every process could be ended within {DRAIN_MAX:?}; see the log")]
    LeftBehind,
}

impl ServeError {
    fn exit(&self) -> Exit {
        match self {
            Self::Config(_) | Self::Telemetry(_) => Exit::Config,
            Self::Paths(_)
            | Self::Lock(_)
            | Self::Store(_)
            | Self::Tokens(_)
            | Self::Listen(_)
            | Self::Recover(_)
            | Self::System { .. }
            | Self::DuplicateExtension(_)
            | Self::DuplicateAdapter(_)
            | Self::LeftBehind => Exit::Error,
        }
    }
}

fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> ServeError {
    move |source| ServeError::System { doing, source }
}

/// The daemon; see [`Daemon::builder`].
#[derive(Debug)]
pub struct Daemon;

impl Daemon {
    /// Begins to put a daemon together. The adapters Drowse ships are there already.
    #[must_use]
    pub fn builder(options: ServeOptions) -> DaemonBuilder {
        DaemonBuilder {
            options,
            adapters: Adapters::shipped(),
            extensions: Vec::new(),
            program: KeeperProgram::default(),
            own_process: false,
            problem: None,
        }
    }
}

/// A daemon that does not run yet.
#[derive(Debug)]
pub struct DaemonBuilder {
    options: ServeOptions,
    adapters: Adapters,
    extensions: Vec<Extension>,
    program: KeeperProgram,
    own_process: bool,
    problem: Option<ServeError>,
}

impl DaemonBuilder {
    /// Adds a kind of agent. A second one for the same protocol is an error at `run`.
    #[must_use]
    pub fn adapter(mut self, adapter: impl Adapter + 'static) -> Self {
        if let Err(protocol) = self.adapters.add(Arc::new(adapter)) {
            self.problem = self
                .problem
                .or(Some(ServeError::DuplicateAdapter(protocol)));
        }
        self
    }

    /// Adds actors in this process: `start` runs on an arbiter of their own, before anything is
    /// served. A second extension of the same name is an error at `run`.
    #[must_use]
    pub fn extend(
        mut self,
        name: &str,
        start: impl FnOnce(ExtensionContext) + Send + 'static,
    ) -> Self {
        if self
            .extensions
            .iter()
            .any(|extension| extension.name == name)
        {
            let problem = ServeError::DuplicateExtension(name.to_owned());
            self.problem = self.problem.or(Some(problem));
        }
        self.extensions.push(Extension {
            name: name.to_owned(),
            start: Box::new(start),
        });
        self
    }

    /// Starts keepers from this program instead of the running one. Its `main` must call
    /// [`crate::keeper_if_asked`] first.
    #[must_use]
    pub fn keeper_program(mut self, path: &std::path::Path) -> Self {
        self.program = KeeperProgram::at(path);
        self
    }

    /// The process is the daemon's alone: what a keeper leaves behind that was killed from outside
    /// becomes a child of it, and a restart exchanges its program (execve) for the one it was
    /// started from, with the same arguments. Without this a restart is refused.
    #[must_use]
    pub fn own_process(mut self) -> Self {
        self.own_process = true;
        self
    }

    /// Runs the daemon until it is told to end; says why on stderr if it cannot.
    ///
    /// The code is 0 after a clean end, 78 for a configuration that is refused, 1 otherwise.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let exit = match self.try_run() {
            Ok(None) => Exit::Ok,
            Ok(Some(successor)) => {
                let source = successor.replace();
                let doing = "start the program again";
                crate::cli::say_error(&ServeError::System { doing, source });
                Exit::Error
            }
            Err(error) => {
                crate::cli::say_error(&error);
                error.exit()
            }
        };
        ExitCode::from(exit.code())
    }

    /// Runs it; what is to take its place is returned.
    fn try_run(self) -> Result<Option<Successor>, ServeError> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        telemetry::start()?;
        let Self {
            options,
            adapters,
            extensions,
            program,
            own_process,
            ..
        } = self;
        let successor = Successor::of_process().map_err(system("see how it was started"))?;
        if own_process && let Err(error) = adopt_orphans() {
            tracing::warn!(%error, "what a lost keeper leaves behind will be looked for instead");
        }
        let flags = options.listen.iter().map(|listen| Flag {
            flag: "--listen".to_owned(),
            key: "server.listen".to_owned(),
            value: listen.clone(),
        });
        let (file, protocols) = (options.config.as_deref(), adapters.protocols());
        let sources = Sources::of_process(file, flags.collect(), protocols);
        let config = Arc::new(Shared::load(sources)?);
        options.paths.create()?;
        let lock = StateLock::take(&options.paths.state_dir, &options.paths.socket)?;
        options.paths.create_keepers()?;
        let program = with_descriptor_limit(program);
        // A daemon inside somebody's folder would keep it from being removed (D26).
        std::env::set_current_dir("/").map_err(system("leave the working folder"))?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store = SqliteStore::open(&options.paths.state_dir, clock.clone())?;
        if let Some(warning) = store.warning() {
            tracing::error!("{warning}");
        }
        let parts = Parts {
            paths: options.paths,
            adapters,
            extensions,
            program,
            config,
            clock,
            successor,
            own_process,
        };
        let ended = actix::System::new().block_on(parts.serve(Arc::new(store)))?;
        Ok(ended.map(|successor| successor.holding(lock)))
    }
}

/// What a daemon is made of.
struct Parts {
    paths: Paths,
    adapters: Adapters,
    extensions: Vec<Extension>,
    program: KeeperProgram,
    config: Arc<Shared>,
    clock: Arc<dyn Clock>,
    successor: Successor,
    own_process: bool,
}

impl Parts {
    async fn serve(self, store: Arc<SqliteStore>) -> Result<Option<Successor>, ServeError> {
        let mut signals = Signals::take().map_err(system("take signals over"))?;
        let pool = ReaperPool::start(THREADS, QUEUE_MAX).map_err(system("start the reaper"))?;
        let pool = Arc::new(pool);
        let recovered = store.recover().await.map_err(ServeError::Recover)?;
        let cgroups = find_cgroups(&self.state_key());
        let hub = Rc::new(Hub::default());
        let backends = Rc::new(self.backends(&pool, &store, cgroups.clone(), hub.clone())?);
        let disk = store.clone();
        let ports = self.ports(&pool, store, backends.clone(), cgroups);
        let report = StatusReport::new(env!("CARGO_PKG_VERSION"), std::process::id());
        let recovery = Recovery::take_over(&ports, recovered).await;
        let mut core = Core::start(ports, recovery, report);
        let mut restarts = Restarts {
            asked: self.own_process.then(|| core.restarts()),
            config: self.config.clone(),
            successor: self.successor,
        };
        core.end_leftovers().await;
        let daemon = core.handle();
        let extensions = Running::start(self.extensions, &daemon);
        let listening = listen(&self.paths, &self.config, &daemon);
        let server = match listening {
            Ok(server) => server,
            Err(error) => {
                extensions.stop().await;
                return Err(error);
            }
        };
        let relay = self.adapters.clone();
        let relay = listen_for_hosts(&self.paths, &self.config, &daemon, hub, disk, relay);
        core.serve();
        tracing::info!(socket = %self.paths.socket.display(), "ready");
        notify(&[sd_notify::NotifyState::Ready]);
        let end = wait_for_end(&mut signals, &self.config, &daemon, &mut restarts).await;
        notify(&[sd_notify::NotifyState::Stopping]);
        let restarting = end == End::Restart;
        if restarting && suspend(&mut signals, &daemon).await == End::Restart {
            extensions.stop().await;
            drop(relay);
            server.stop().await;
            return Ok(Some(restarts.successor));
        }
        backends.end_with_daemon();
        let clean = drain(&mut signals, &daemon).await;
        drop(relay);
        if restarting && clean {
            end_let_go(&backends).await;
        }
        extensions.stop().await;
        server.stop().await;
        // Keepers that were told to leave are collected, so that none outlives the daemon.
        let collected = tokio::time::timeout(REAPER_STOP_MAX, pool.idle())
            .await
            .is_ok();
        if clean && collected {
            Ok(None)
        } else {
            Err(ServeError::LeftBehind)
        }
    }

    fn backends(
        &self,
        pool: &Arc<ReaperPool>,
        store: &Arc<SqliteStore>,
        cgroups: Option<Cgroups>,
        hub: Rc<Hub>,
    ) -> Result<LocalBackends, ServeError> {
        Ok(LocalBackends::new(Backing {
            adapters: self.adapters.clone(),
            store: store.clone(),
            clock: self.clock.clone(),
            config: self.config.clone(),
            boot_id: table::boot_id().map_err(system("read the boot id"))?,
            pool: pool.clone(),
            program: self.program.clone(),
            cgroups,
            keepers: self.paths.keepers(),
            state_key: self.state_key(),
            hub,
            socket: self.paths.socket.clone(),
            tokens: SessionTokens::of(&self.paths.state_dir)?,
            claims: Claims::of(&self.paths.state_dir),
        }))
    }

    fn state_key(&self) -> String {
        self.paths.state_dir.display().to_string()
    }

    fn ports(
        &self,
        pool: &Arc<ReaperPool>,
        store: Arc<SqliteStore>,
        backends: Rc<LocalBackends>,
        cgroups: Option<Cgroups>,
    ) -> Ports {
        let mark = format!("{STATE_VARIABLE}={}", self.state_key());
        let trees = LocalTrees::new(pool.clone(), mark, cgroups);
        Ports {
            clock: self.clock.clone(),
            store,
            trees: Arc::new(trees),
            catalog: self.config.clone(),
            backends,
        }
    }
}

/// Ends keepers that were left to a daemon that does not come after all: nobody else would tell them
/// that their trees are gone.
async fn end_let_go(backends: &LocalBackends) {
    for found in backends.end_strays(Vec::new()).await {
        tracing::info!("was left to the next daemon: {found}");
    }
}

/// Cgroups make the end of a tree quicker and surer; the keepers do without.
fn find_cgroups(state_key: &str) -> Option<Cgroups> {
    match Cgroups::find(state_key) {
        Ok(cgroups) => {
            tracing::info!(folder = %cgroups.folder().display(), "each agent gets a cgroup");
            Some(cgroups)
        }
        Err(error) => {
            tracing::info!(why = chain(&error), "agents get no cgroups");
            None
        }
    }
}

fn listen(
    paths: &Paths,
    config: &Arc<Shared>,
    daemon: &DaemonHandle,
) -> Result<Server, ServeError> {
    let socket = UnixSocket::bind(&paths.socket)?;
    let address = config.current().listen();
    let tcp = match address {
        Some(address) => Some(TcpSocket::bind(address, &paths.state_dir.join("token"))?),
        None => None,
    };
    Ok(http::serve(
        Arc::new(daemon.clone()),
        config.clone(),
        socket,
        tcp,
        SessionTokens::of(&paths.state_dir)?,
        Bounds::default(),
    )?)
}

/// Without its socket no host can be served; everything else can.
fn listen_for_hosts(
    paths: &Paths,
    config: &Arc<Shared>,
    daemon: &DaemonHandle,
    hub: Rc<Hub>,
    store: Arc<SqliteStore>,
    adapters: Adapters,
) -> Option<relay::Server> {
    let path = relay::socket_beside(&paths.socket);
    let socket = match UnixSocket::bind(&path) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(error = chain(&error), "drowse run cannot be served");
            return None;
        }
    };
    let started =
        relay::Server::start(socket, hub, daemon.clone(), store, config.clone(), adapters);
    started
        .inspect_err(|error| tracing::error!(%error, "drowse run cannot be served"))
        .ok()
}

/// How the daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With every session.
    Drain,
    /// For another one, which goes on with the sessions.
    Restart,
}

/// Requests to replace the daemon, and what would replace it.
struct Restarts {
    /// `None`: nobody takes them, so they are refused.
    asked: Option<mpsc::Receiver<RestartAsked>>,
    config: Arc<Shared>,
    successor: Successor,
}

impl Restarts {
    /// Returns once the daemon is to be replaced; refuses until then what cannot be done.
    async fn next(&mut self) {
        while let Some(asked) = &mut self.asked
            && let Some(RestartAsked { answer }) = asked.recv().await
        {
            let checked = self.check().await;
            let goes = checked.is_ok();
            // Whoever asked may have gone meanwhile; it is done all the same.
            let _gone = answer.send(checked);
            if goes {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    async fn check(&self) -> Result<Restarting, Refusal> {
        let cannot = |detail| Refusal::CannotRestart { detail };
        if self.config.current().orphan_grace() == Limit::Off {
            let detail = "server.orphan_grace is off, so agents would end with this daemon";
            return Err(cannot(detail.to_owned()));
        }
        Ok(Restarting {
            from: env!("CARGO_PKG_VERSION").to_owned(),
            to: self.successor.version().await.map_err(cannot)?,
        })
    }
}

/// Serves until somebody says otherwise.
async fn wait_for_end(
    signals: &mut Signals,
    config: &Shared,
    daemon: &DaemonHandle,
    restarts: &mut Restarts,
) -> End {
    loop {
        let asked = tokio::select! {
            asked = signals.next() => asked,
            () = daemon.draining() => return End::Drain,
            () = restarts.next() => return End::Restart,
        };
        match asked {
            Asked::End => return End::Drain,
            Asked::Reload => match config.reload() {
                Ok(_) => {
                    tracing::info!("the configuration was read again");
                    daemon.reload();
                }
                Err(error) => tracing::error!("the old configuration stays in force: {error}"),
            },
        }
    }
}

/// Leaves every session to the next daemon, unless this one is told to end after all.
async fn suspend(signals: &mut Signals, daemon: &DaemonHandle) -> End {
    tracing::info!("leaving the sessions to the next daemon");
    let ended = async { while signals.next().await != Asked::End {} };
    tokio::select! {
        () = daemon.suspend() => End::Restart,
        () = ended => End::Drain,
    }
}

/// Ends every session; false when that was cut short.
async fn drain(signals: &mut Signals, daemon: &DaemonHandle) -> bool {
    tracing::info!("draining");
    let second = async {
        while signals.next().await != Asked::End {}
        tracing::warn!("asked again: ending at once; the keepers end what is left");
    };
    tokio::select! {
        () = daemon.drain() => true,
        () = second => false,
        () = tokio::time::sleep(DRAIN_MAX) => {
            tracing::error!("not every process could be ended within {DRAIN_MAX:?}");
            false
        }
    }
}

fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "failed to tell systemd");
    }
}

/// Raises the limit of open descriptors for the daemon, but not for its agents.
fn with_descriptor_limit(program: KeeperProgram) -> KeeperProgram {
    match raise_descriptor_limit() {
        Ok(before) => program.with_descriptor_limit(before),
        Err(error) => {
            tracing::warn!(%error, "failed to raise the limit of open descriptors");
            program
        }
    }
}
