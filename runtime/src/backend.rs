//! Live backends: the port through which sessions start agents and speak to them.
//!
//! Fed by session actors. Each backend is one task on the arbiter of the core actors
//! ([`link`]), so that what an agent says reaches its session without crossing a thread.
//!
//! Invariants: each launch is answered exactly once; a backend of a session whose actor is gone
//! ends itself; nothing of argv or environment is logged.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use drowse_actors::ports::{Backends, Clock, Launch, Left, LocalPending, Store};
use drowse_actors::session::Facts;
use drowse_messages::{
    Adopted, AgentStatus, Conversation, HostEnd, Incarnation, Kept, KeptRelay, LaunchFailed, Limit,
    Name, ProcIdentity, Recipe, SessionId,
};
use drowse_policy::BackendOrder;
use tokio::sync::{mpsc, oneshot};

use crate::adapter::{Adapter, Plan};
use crate::adapters::Adapters;
use crate::config::{self, find_program};
use crate::kit;
use crate::process::cgroup::place::Cgroups;
use crate::process::reaper::ReaperPool;
use crate::process::spawn::KeeperProgram;
use crate::redact::Redactor;
use crate::relay::Hub;
use crate::token::SessionTokens;
use retired::{Retired, Retiring};

mod checkpoint;
pub(crate) mod claim;
mod launch;
mod lines;
mod link;
mod outbox;
mod retired;
mod strays;

use claim::Claims;
use link::{Link, Parts, Relayed, Taken, Ties};

/// 256 orders wait for one backend at most. Policy gives a handful for each turn.
const ORDERS_MAX: usize = 256;

/// How long all backends together may take to be let go. 8 s: above what each may take.
const SUSPEND_MAX: Duration = Duration::from_secs(8);

/// The variable that marks every process of this daemon's agents, for the sweep after a lost
/// keeper. Its value names the state folder.
pub(crate) const STATE_VARIABLE: &str = "DROWSE_STATE";

/// Room for what one read brings. All backends read into the same one, because a read and what
/// becomes of it are over before the next begins: one each would be most of what a backend costs.
type ReadBuffer = Rc<RefCell<Vec<u8>>>;

/// What all backends share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) adapters: Adapters,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Arc<config::Shared>,
    pub(crate) boot_id: String,
    pub(crate) pool: Arc<ReaperPool>,
    pub(crate) program: KeeperProgram,
    /// Where launches get their cgroups, on machines that have any for us.
    pub(crate) cgroups: Option<Cgroups>,
    /// The folder in which keepers listen for the next daemon.
    pub(crate) keepers: PathBuf,
    /// The value of [`STATE_VARIABLE`].
    pub(crate) state_key: String,
    /// Where whatever runs inside an agent reaches this daemon.
    pub(crate) socket: PathBuf,
    /// With what it does so.
    pub(crate) tokens: SessionTokens,
    /// Which conversations are taken.
    pub(crate) claims: Claims,
    /// The hosts of relayed sessions.
    pub(crate) hub: Rc<Hub>,
}

impl Shared {
    /// How long an agent outlives this daemon, should it die; zero: not at all.
    fn orphan_grace(&self) -> Duration {
        match self.config.current().orphan_grace() {
            Limit::After(grace) => grace,
            Limit::Off => Duration::ZERO,
        }
    }
}

/// What a link is told by others than its keeper and its agent.
#[derive(Debug)]
enum Told {
    /// By its session.
    Order(BackendOrder),
    /// By a daemon that is about to be replaced: let go where the next one can go on.
    Suspend(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Live {
    incarnation: Incarnation,
    /// Boxed: a queue makes room for 32 at a time, and most sessions wait without any.
    told: mpsc::Sender<Box<Told>>,
}

/// A backend that was taken over, until its session follows it.
#[derive(Debug)]
struct Parked {
    taken: Taken,
    protocol: Name,
    redactor: Redactor,
    /// What its observer knows of it.
    conversation: Option<Conversation>,
}

fn conversation_of(status: &AgentStatus) -> Option<Conversation> {
    if let AgentStatus::Conversation(conversation) = status {
        Some(conversation.clone())
    } else {
        None
    }
}

/// The backends of one daemon.
#[derive(Debug)]
pub(crate) struct LocalBackends {
    shared: Rc<Shared>,
    buffer: ReadBuffer,
    live: Rc<RefCell<BTreeMap<SessionId, Live>>>,
    retired: Retired,
    /// Taken over and not followed yet.
    taken: Rc<RefCell<BTreeMap<SessionId, Parked>>>,
    /// The daemon ends on purpose, and its agents with it.
    ending: Rc<Cell<bool>>,
}

impl LocalBackends {
    pub(crate) fn new(shared: Shared) -> Self {
        let ending = Rc::default();
        Self {
            shared: Rc::new(shared),
            buffer: Rc::new(RefCell::new(vec![0; link::READ_BYTES])),
            live: Rc::default(),
            retired: Retired::ending_with(Rc::clone(&ending)),
            taken: Rc::default(),
            ending,
        }
    }

    /// From now on a backend that nobody dismisses ends with the daemon.
    pub(crate) fn end_with_daemon(&self) {
        self.ending.set(true);
    }

    /// A place among the live ones, for as long as the future that is returned with it runs.
    fn enlist(&self, session: SessionId, incarnation: Incarnation) -> mpsc::Receiver<Box<Told>> {
        let (told, inbox) = mpsc::channel(ORDERS_MAX);
        let live = Live { incarnation, told };
        self.live.borrow_mut().insert(session, live);
        inbox
    }

    fn ties(
        &self,
        (session, incarnation): (SessionId, Incarnation),
        protocol: Name,
        redactor: Redactor,
        facts: Recipient<Facts>,
    ) -> Ties {
        Ties {
            session,
            incarnation,
            facts,
            redactor,
            claim: self.shared.claims.claim(session, &protocol),
            protocol,
            buffer: self.buffer.clone(),
            ending: self.ending.clone(),
        }
    }

    /// Knows what is secret of a backend: of its recipe, and the token it was given.
    fn redactor(&self, recipe: &Recipe, session: SessionId) -> Redactor {
        Redactor::for_recipe(recipe).and(self.shared.tokens.token(session))
    }

    fn retired(&self) -> Retired {
        self.retired.clone()
    }

    /// Runs a link, and gives its place up afterwards; a keeper that retires is watched over.
    fn run(
        &self,
        session: SessionId,
        incarnation: Incarnation,
        facts: Recipient<Facts>,
        link: impl Future<Output = Option<Retiring>> + 'static,
    ) {
        let (live, retired, shared) = (self.live.clone(), self.retired(), self.shared.clone());
        let hub = self.shared.hub.clone();
        actix_rt::spawn(async move {
            if let Some(retiring) = link.await {
                retired.hold(shared, (session, incarnation), retiring, facts);
            }
            let mut live = live.borrow_mut();
            let is_own = |live: &Live| live.incarnation == incarnation;
            if live.get(&session).is_some_and(is_own) {
                live.remove(&session);
            }
            drop(live);
            hub.tidy(session);
        });
    }

    /// A gate is open or shut when the step that decided so is over, not when a link hears of it:
    /// nothing of a host's is written in between.
    fn turn_gate(&self, session: SessionId, incarnation: Incarnation, order: &BackendOrder) {
        let is_own = |live: &Live| live.incarnation == incarnation;
        if !self.live.borrow().get(&session).is_some_and(is_own) {
            return;
        }
        let Some(host) = self.shared.hub.get(session) else {
            return;
        };
        match order {
            BackendOrder::OpenGate => host.open_gate(),
            BackendOrder::ShutGate { .. } => host.shut_gate(),
            BackendOrder::Deliver(_)
            | BackendOrder::Interrupt
            | BackendOrder::Answer { .. }
            | BackendOrder::Withdraw { .. }
            | BackendOrder::Close
            | BackendOrder::Dismiss
            | BackendOrder::Retire { .. } => {}
        }
    }

    /// Keepers that listen in the folder for sessions without a backend here.
    fn strays(&self, kept: &[(SessionId, Incarnation)]) -> Vec<PathBuf> {
        let (live, taken) = (self.live.borrow(), self.taken.borrow());
        let kept: BTreeSet<String> = kept
            .iter()
            .map(|(session, incarnation)| launch::socket_name(*session, *incarnation))
            .collect();
        let own = |name: &str| {
            let session = name.split('-').next().and_then(|id| id.parse().ok());
            kept.contains(name)
                || session
                    .is_some_and(|id: SessionId| live.contains_key(&id) || taken.contains_key(&id))
        };
        let entries = std::fs::read_dir(&self.shared.keepers);
        let names = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name());
        let strays = names.filter(|name| !name.to_str().is_some_and(own));
        strays.map(|name| self.shared.keepers.join(name)).collect()
    }
}

/// Starts a backend, once its conversation is nobody else's; `None` when that cannot be, which is told.
async fn begin(shared: Rc<Shared>, launch: Launch, mut ties: Ties) -> Option<Box<Link>> {
    let (error, retry) = match prepare(&shared, &launch) {
        Ok(prepared) => match ties.claim.take(&launch, &prepared).await {
            Ok(()) => return link::begin(&shared, launch, prepared, ties).await,
            Err(error) => (error, true),
        },
        Err(error) => (error, false),
    };
    let failed = LaunchFailed {
        incarnation: launch.incarnation,
        error,
        retry,
    };
    ties.facts.do_send(Facts(vec![failed.into()]));
    None
}

impl Backends for LocalBackends {
    fn launch(&self, launch: Launch, facts: Recipient<Facts>) {
        let (session, incarnation) = (launch.session, launch.incarnation);
        let inbox = self.enlist(session, incarnation);
        let recipe = &launch.recipe;
        let redactor = self.redactor(recipe, session);
        let whose = (session, incarnation);
        let ties = self.ties(whose, recipe.protocol.clone(), redactor, facts);
        let (shared, facts) = (self.shared.clone(), ties.facts.clone());
        // In memory of its own, which is given back: a start is over soon, and a backend lives long.
        let begun = Box::pin(begin(shared.clone(), launch, ties));
        self.run(session, incarnation, facts, async move {
            begun.await?.serve(&shared, inbox).await
        });
    }

    fn order(&self, session: SessionId, incarnation: Incarnation, order: BackendOrder) {
        if self.retired.order(session, incarnation, &order) {
            return;
        }
        self.turn_gate(session, incarnation, &order);
        let live = self.live.borrow();
        let Some(backend) = live
            .get(&session)
            .filter(|live| live.incarnation == incarnation)
        else {
            return;
        };
        if let Err(error) = backend.told.try_send(Box::new(Told::Order(order))) {
            tracing::error!(%session, %incarnation, %error, "failed to pass an order on");
        }
    }

    fn adopt(&self, left: Left) -> LocalPending<Result<Adopted, String>> {
        let (shared, all) = (self.shared.clone(), self.taken.clone());
        let redactor = self.redactor(&left.recipe, left.session);
        Box::pin(async move {
            let (taken, adopted) = Taken::over(&shared, &left).await?;
            let parked = Parked {
                taken,
                redactor,
                protocol: left.recipe.protocol,
                conversation: adopted.statuses.iter().find_map(conversation_of),
            };
            all.borrow_mut().insert(left.session, parked);
            Ok(adopted)
        })
    }

    fn follow(&self, session: SessionId, incarnation: Incarnation, facts: Recipient<Facts>) {
        let parked = self.taken.borrow_mut().remove(&session);
        let Some(Parked {
            taken,
            protocol,
            redactor,
            conversation,
        }) = parked
        else {
            return;
        };
        let inbox = self.enlist(session, incarnation);
        let mut ties = self.ties((session, incarnation), protocol, redactor, facts.clone());
        if let Some(conversation) = &conversation {
            ties.claim.follow(conversation);
        }
        let shared = self.shared.clone();
        self.run(session, incarnation, facts, async move {
            taken.follow(ties).serve(&shared, inbox).await
        });
    }

    fn suspend(&self) -> LocalPending<()> {
        let told = |live: &Live| {
            let (done, let_go) = oneshot::channel();
            live.told.try_send(Box::new(Told::Suspend(done))).ok()?;
            Some(let_go)
        };
        let all: Vec<_> = self.live.borrow().values().filter_map(told).collect();
        Box::pin(async move {
            let all = async {
                for let_go in all {
                    // One that has ended has nothing to let go of.
                    let _gone = let_go.await;
                }
            };
            if tokio::time::timeout(SUSPEND_MAX, all).await.is_err() {
                tracing::warn!("not every backend came to a point at which it can be left");
            }
        })
    }

    fn end_strays(&self, kept: Vec<(SessionId, Incarnation)>) -> LocalPending<Vec<String>> {
        let strays = self.strays(&kept);
        Box::pin(strays::end(self.shared.clone(), strays))
    }

    fn end_host(&self, session: SessionId, end: HostEnd) {
        self.shared.hub.end(session, end);
    }

    fn watch(&self, session: SessionId, kept: Kept, facts: Recipient<Facts>) {
        let shared = self.shared.clone();
        self.retired().watch(shared, session, kept, facts);
    }
}

/// What a launch needs beyond its recipe.
#[derive(Debug)]
struct Prepared {
    adapter: Arc<dyn Adapter>,
    plan: Plan,
    fresh_id: String,
}

impl Prepared {
    /// What stands between the agent and a host, if it has one.
    async fn relayed(
        &self,
        shared: &Shared,
        launch: &Launch,
        agent: ProcIdentity,
    ) -> Option<Relayed> {
        if !launch.relayed {
            return None;
        }
        let kept = match shared.store.relay(launch.session).await {
            Ok(kept) => kept,
            Err(error) => {
                tracing::error!(session = %launch.session, %error, "a host's words are lost");
                KeptRelay::default()
            }
        };
        let memory = Some(&kept.memory[..]).filter(|memory| !memory.is_empty());
        let filter = self.adapter.relay(memory);
        let by_lines = filter.is_some();
        let is_known = |conversation: &Conversation| conversation.resumable;
        let first = !launch.conversation.as_ref().is_some_and(is_known);
        let parts = Parts {
            host: shared.hub.get_or_make(launch.session, 0, by_lines),
            filter,
            agent,
            store: shared.store.clone(),
            kept,
        };
        Some(Relayed::new(parts, first))
    }
}

/// Finds what can be known to fail before a process exists: the errors name what is missing.
fn prepare(shared: &Shared, launch: &Launch) -> Result<Prepared, String> {
    let recipe = &launch.recipe;
    let adapter = shared
        .adapters
        .get(&recipe.protocol)
        .ok_or_else(|| format!("there is no adapter for the protocol {}", recipe.protocol))?;
    if !recipe.cwd.is_dir() {
        return Err(format!(
            "the session's folder {} is missing",
            recipe.cwd.display()
        ));
    }
    let fresh_id = uuid::Uuid::new_v4().to_string();
    let conversation = launch.conversation.as_ref();
    let mut plan = if launch.relayed {
        adapter.relay_plan(recipe, conversation.filter(|known| known.resumable))
    } else {
        adapter.plan(recipe, conversation, &fresh_id)
    };
    plan.env
        .insert(STATE_VARIABLE.to_owned(), shared.state_key.clone());
    let kit = [
        (kit::SESSION_VARIABLE, launch.session.to_string()),
        (kit::SOCKET_VARIABLE, shared.socket.display().to_string()),
        (kit::TOKEN_VARIABLE, shared.tokens.token(launch.session)),
    ];
    let kit = kit.map(|(name, value)| (name.to_owned(), value));
    plan.env.extend(kit);
    let path = plan.env.get("PATH").map(String::as_str).unwrap_or_default();
    let program = plan.argv.first().cloned().unwrap_or_default();
    if find_program(&program, path, &recipe.cwd).is_none() {
        return Err(match program.contains('/') {
            true => format!("the program {program} is missing or cannot be run"),
            false => format!("there is no program {program} in PATH ({path})"),
        });
    }
    Ok(Prepared {
        adapter,
        plan,
        fresh_id,
    })
}
