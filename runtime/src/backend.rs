//! Live backends: the port through which sessions start agents and speak to them.
//!
//! Fed by session actors. Each backend is one task on the arbiter of the core actors
//! ([`link`]), so that what an agent says reaches its session without crossing a thread.
//!
//! Invariants: each launch is answered exactly once; a backend of a session whose actor is gone
//! ends itself; nothing of argv or environment is logged.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::Recipient;
use drowse_actors::ports::{Backends, Launch, Store};
use drowse_actors::session::Facts;
use drowse_messages::{Incarnation, Kept, LaunchFailed, SessionId};
use drowse_policy::BackendOrder;
use tokio::sync::mpsc;

use crate::adapter::{Adapter, Plan};
use crate::adapters::Adapters;
use crate::config::find_program;
use crate::process::cgroup::place::Cgroups;
use crate::process::reaper::ReaperPool;
use crate::process::spawn::KeeperProgram;
use crate::redact::Redactor;
use retired::Retired;

mod launch;
mod lines;
mod link;
mod outbox;
mod retired;

/// 256 orders wait for one backend at most. Policy gives a handful for each turn.
const ORDERS_MAX: usize = 256;

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
    pub(crate) boot_id: String,
    pub(crate) pool: Arc<ReaperPool>,
    pub(crate) program: KeeperProgram,
    /// Where launches get their cgroups, on machines that have any for us.
    pub(crate) cgroups: Option<Cgroups>,
    /// The value of [`STATE_VARIABLE`].
    pub(crate) state_key: String,
}

#[derive(Debug)]
struct Live {
    incarnation: Incarnation,
    orders: mpsc::Sender<BackendOrder>,
}

/// The backends of one daemon.
#[derive(Debug)]
pub(crate) struct LocalBackends {
    shared: Rc<Shared>,
    buffer: ReadBuffer,
    live: Rc<RefCell<BTreeMap<SessionId, Live>>>,
    retired: Retired,
}

impl LocalBackends {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared: Rc::new(shared),
            buffer: Rc::new(RefCell::new(vec![0; link::READ_BYTES])),
            live: Rc::default(),
            retired: Retired::default(),
        }
    }
}

impl Backends for LocalBackends {
    fn launch(&self, launch: Launch, facts: Recipient<Facts>) {
        let (session, incarnation) = (launch.session, launch.incarnation);
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        self.live.borrow_mut().insert(
            session,
            Live {
                incarnation,
                orders,
            },
        );
        let (shared, live) = (self.shared.clone(), self.live.clone());
        let (buffer, retired) = (self.buffer.clone(), self.retired.clone());
        actix_rt::spawn(async move {
            let prepared = prepare(&shared, &launch);
            match prepared {
                Ok(prepared) => {
                    let heard = facts.clone();
                    let retiring = link::run(&shared, launch, prepared, facts, inbox, buffer).await;
                    if let Some(retiring) = retiring {
                        let whose = (session, incarnation);
                        retired.hold(shared.clone(), whose, retiring, heard);
                    }
                }
                Err(error) => {
                    let failed = LaunchFailed {
                        incarnation,
                        error,
                        retry: false,
                    };
                    facts.do_send(Facts(vec![failed.into()]));
                }
            }
            let mut live = live.borrow_mut();
            if live
                .get(&session)
                .is_some_and(|live| live.incarnation == incarnation)
            {
                live.remove(&session);
            }
        });
    }

    fn order(&self, session: SessionId, incarnation: Incarnation, order: BackendOrder) {
        if self.retired.order(session, incarnation, &order) {
            return;
        }
        let live = self.live.borrow();
        let Some(backend) = live
            .get(&session)
            .filter(|live| live.incarnation == incarnation)
        else {
            return;
        };
        if let Err(error) = backend.orders.try_send(order) {
            tracing::error!(%session, %incarnation, %error, "failed to pass an order on");
        }
    }

    fn watch(&self, session: SessionId, kept: Kept, facts: Recipient<Facts>) {
        self.retired
            .watch(self.shared.clone(), session, kept, facts);
    }
}

/// What a launch needs beyond its recipe.
#[derive(Debug)]
struct Prepared {
    adapter: Arc<dyn Adapter>,
    plan: Plan,
    fresh_id: String,
    redactor: Redactor,
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
    let mut plan = adapter.plan(recipe, launch.conversation.as_ref(), &fresh_id);
    plan.env
        .insert(STATE_VARIABLE.to_owned(), shared.state_key.clone());
    plan.env
        .insert("DROWSE_SESSION".to_owned(), launch.session.to_string());
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
        redactor: Redactor::for_recipe(recipe),
    })
}
