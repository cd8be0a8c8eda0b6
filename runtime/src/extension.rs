//! Extensions: actors of somebody else's, in this process.
//!
//! Each gets an arbiter, that is a thread, of its own, so that one that blocks or panics touches
//! no session. They start in the order they were registered, before anything is served, and end in
//! the reverse order, after all sessions did; they hear `Draining` before that.

use std::time::Duration;

use actix::{Actor, Addr, Handler};
use actix_rt::Arbiter;
use drowse_actors::DaemonHandle;
use drowse_messages::Event;
use tokio::sync::oneshot;

/// How long an extension may take to end once it was told to.
const STOP_MAX: Duration = Duration::from_secs(5);

/// What an extension starts with.
#[derive(Clone, Debug)]
pub struct ExtensionContext {
    name: String,
    daemon: DaemonHandle,
}

impl ExtensionContext {
    /// The name it was registered with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The way to ask the daemon for things.
    #[must_use]
    pub fn daemon(&self) -> DaemonHandle {
        self.daemon.clone()
    }

    /// Sends this actor every event from now on, a snapshot first. Delivery is bounded by the
    /// actor's mailbox: what it is too slow for is lost, followed by a `Gap`, and counted in the
    /// status report.
    pub fn subscribe<A>(&self, actor: &Addr<A>)
    where
        A: Actor<Context = actix::Context<A>> + Handler<Event>,
    {
        self.daemon
            .subscribe_actor(&self.name, actor.clone().recipient());
    }
}

/// Starts an extension.
pub(crate) type Start = Box<dyn FnOnce(ExtensionContext) + Send>;

/// A registered extension.
pub(crate) struct Extension {
    pub(crate) name: String,
    pub(crate) start: Start,
}

impl std::fmt::Debug for Extension {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extension")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Running extensions, in the order they were started.
#[derive(Debug, Default)]
pub(crate) struct Running {
    arbiters: Vec<(String, Arbiter)>,
}

impl Running {
    /// Starts them.
    pub(crate) fn start(extensions: Vec<Extension>, daemon: &DaemonHandle) -> Self {
        let mut arbiters = Vec::new();
        for Extension { name, start } in extensions {
            let arbiter = Arbiter::new();
            let context = ExtensionContext {
                name: name.clone(),
                daemon: daemon.clone(),
            };
            if !arbiter.spawn_fn(move || start(context)) {
                tracing::error!(extension = name, "failed to start an extension");
            }
            arbiters.push((name, arbiter));
        }
        Self { arbiters }
    }

    /// Ends them, the last one first; one that does not end in time is left behind.
    pub(crate) async fn stop(self) {
        for (name, arbiter) in self.arbiters.into_iter().rev() {
            arbiter.stop();
            // On a thread that nobody waits for: the runtime would wait for one of its own.
            let (done, joined) = oneshot::channel();
            std::thread::spawn(move || {
                // Whoever waited may have given up.
                let _late = done.send(arbiter.join());
            });
            match tokio::time::timeout(STOP_MAX, joined).await {
                Ok(Ok(Ok(()))) => {}
                Ok(_) => tracing::warn!(extension = name, "an extension panicked"),
                Err(_) => tracing::warn!(extension = name, "an extension did not end in time"),
            }
        }
    }
}
