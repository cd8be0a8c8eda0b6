//! Every message becomes the right input.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use actix::{Actor, Addr, Handler, Message};
use drowse_messages::{
    Activity, ActivityKind, AgentStatus, BootedIdentity, ChildExited, Delivered, DeliveryResult,
    IdleTick, Incarnation, LaunchFailed, Launched, Limit, MessageId, MessageQueued, MonoTime,
    Priority, ProcIdentity, Profile, ReapReport, ReapStep, Running, StartGranted, StatusChanged,
    StatusReport, Stop, StopHow, TaskRoster, TreeEmptied, WallTime,
};
use drowse_policy::Input;
use drowse_policy::session::{Session, Times};
use tokio::sync::oneshot;

use super::steps::Steps;
use super::{HOUR, client, on_paused_time, wake};
use crate::bus::BusActor;
use crate::ports::{Catalog, Store};
use crate::reaper::ReaperActor;
use crate::registry::{Meet, RegistryActor};
use crate::session::{Facts, Handed, Parcel, Peers, Relimit, SessionActor};
use crate::status::StatusActor;
use crate::testing::{Fakes, open, session};

const FIRST: Incarnation = Incarnation(1);

/// A session actor that the registry does not know, in a world that answers nothing.
struct Lone {
    actor: Addr<SessionActor>,
    steps: Steps,
    fakes: Fakes,
}

impl Lone {
    async fn new() -> Self {
        let fakes = Fakes::new();
        fakes.behave(|manners| {
            manners.launch_takes = 1000 * HOUR;
            manners.reap_takes = 1000 * HOUR;
        });
        let ports = fakes.ports();
        let asleep = BTreeMap::new();
        let status = StatusActor::new(ports.clone(), StatusReport::new("0.0.0", 2), asleep).start();
        let (clock, store) = (ports.clock.clone(), ports.store.clone());
        let peers = Peers {
            registry: RegistryActor::new(ports.clone()).start(),
            reaper: ReaperActor::new(ports.trees.clone()).start(),
            bus: BusActor::new(clock, store, status.clone(), 1).start(),
            status,
        };
        peers.registry.do_send(Meet(peers.clone()));
        let profile = Profile {
            id: session(1),
            name: "one".to_owned(),
            recipe: open(1).recipe,
            limits: open(1).limits,
            created: WallTime(0),
        };
        fakes.store.open(profile.clone()).await.unwrap();
        let saved = fakes.store.load(profile.id).await.unwrap();
        let (recipe, own) = (&profile.recipe, &profile.limits);
        let traits = fakes
            .catalog
            .traits(&recipe.agent, &recipe.protocol)
            .unwrap();
        let limits = fakes.catalog.limits(&recipe.agent, &recipe.cwd, own);
        let restored = Session::restore(&saved, traits, limits, MonoTime::default());
        let (profile, times) = (Rc::new(profile), Times::default());
        Self {
            actor: SessionActor::new(restored, profile, times, ports, peers).start(),
            steps: Steps::listen(),
            fakes,
        }
    }

    /// Sends a message: it becomes exactly one step, of this input.
    async fn becomes<M>(&self, message: M, input: &str)
    where
        M: Message<Result = ()> + Send + 'static,
        SessionActor: Handler<M>,
    {
        self.actor.send(message).await.unwrap();
        assert_eq!(self.steps.take_inputs(), [input]);
    }

    /// The session has a launched agent that is ready.
    async fn live(&self) {
        self.becomes(
            handed(MessageQueued {
                message: MessageId(1),
                priority: Priority::Later,
            }),
            "message(1)",
        )
        .await;
        self.becomes(handed(StartGranted), "start-granted").await;
        self.becomes(launched(), "launched(#1)").await;
        self.becomes(status(AgentStatus::Ready), "ready").await;
    }
}

fn handed(input: impl Into<Input>) -> Handed {
    Handed(Parcel::Input(input.into()))
}

fn launched() -> Launched {
    let identity = |pid| BootedIdentity {
        boot_id: "fake".to_owned(),
        process: ProcIdentity::new(pid, 7).unwrap(),
    };
    Launched {
        incarnation: FIRST,
        running: Running {
            agent: identity(101),
            keeper: identity(100),
            cgroup: None,
        },
    }
}

fn status(status: AgentStatus) -> StatusChanged {
    StatusChanged {
        incarnation: FIRST,
        status,
    }
}

fn output(text: &str) -> Activity {
    Activity {
        incarnation: Some(FIRST),
        kind: ActivityKind::Output(text.to_owned()),
    }
}

/// What starts a session: `MessageQueued`, `StartGranted`, `Launched`, `StatusChanged`.
#[test]
fn messages_of_a_start_become_inputs() {
    on_paused_time(async {
        let lone = Lone::new().await;
        lone.live().await;
        let lines = lone.fakes.journal.of("backends: ");
        assert_eq!(lines, ["launch #1 new", "deliver 1"]);
    });
}

/// `LaunchFailed`.
#[test]
fn a_failed_launch_becomes_an_input() {
    on_paused_time(async {
        let lone = Lone::new().await;
        lone.becomes(
            handed(MessageQueued {
                message: MessageId(1),
                priority: Priority::Later,
            }),
            "message(1)",
        )
        .await;
        lone.becomes(handed(StartGranted), "start-granted").await;
        let failed = LaunchFailed {
            incarnation: FIRST,
            error: "no such file".to_owned(),
            retry: true,
        };
        lone.becomes(failed, "launch-failed(no such file)").await;
    });
}

/// What a live agent brings: `Delivered`, `Activity`, `TaskRoster`, `IdleTick`.
#[test]
fn messages_of_a_turn_become_inputs() {
    on_paused_time(async {
        let lone = Lone::new().await;
        lone.live().await;
        let delivered = Delivered {
            incarnation: FIRST,
            message: MessageId(1),
            result: DeliveryResult::Written,
        };
        lone.becomes(delivered, "delivered(1, written)").await;
        lone.becomes(output("a"), "activity").await;
        let roster = TaskRoster {
            incarnation: FIRST,
            tasks: Vec::new(),
        };
        lone.becomes(roster, "roster(0)").await;
        lone.becomes(IdleTick, "tick").await;
    });
}

/// What ends a process: `Stop`, `ReapReport`, `ChildExited`, `TreeEmptied`.
#[test]
fn messages_of_an_end_become_inputs() {
    on_paused_time(async {
        let lone = Lone::new().await;
        lone.live().await;
        let stop = Stop {
            how: StopHow::Stop,
            by: client(),
        };
        lone.becomes(stop, "stop").await;
        let report = ReapReport {
            session: session(1),
            incarnation: FIRST,
            step: ReapStep::Snapshot,
            processes: Vec::new(),
            survivors: Vec::new(),
            kept: Vec::new(),
            empty: false,
            took: Duration::ZERO,
        };
        lone.becomes(report, "reaped(snapshot, left)").await;
        let exited = ChildExited {
            incarnation: FIRST,
            status: None,
            stderr_tail: String::new(),
        };
        lone.becomes(exited, "exited").await;
        lone.becomes(TreeEmptied { incarnation: FIRST }, "tree-emptied")
            .await;
    });
}

/// An order becomes an input, and its answer goes to whoever waits.
#[test]
fn an_order_becomes_an_input_and_is_answered() {
    on_paused_time(async {
        let lone = Lone::new().await;
        let (reply, answer) = oneshot::channel();
        lone.becomes(Handed(Parcel::Order(wake(), reply)), "wake")
            .await;
        assert_eq!(answer.await, Ok(Ok(())));
    });
}

/// A changed configuration becomes the limits of this session.
#[test]
fn a_reload_becomes_limits() {
    on_paused_time(async {
        let lone = Lone::new().await;
        lone.fakes
            .catalog
            .set_limits(|limits| limits.idle_after = Limit::Off);
        lone.becomes(Relimit, "limits").await;
    });
}

/// All that one read of the agent's output brought is taken in its order.
#[test]
fn facts_become_inputs_in_their_order() {
    on_paused_time(async {
        let lone = Lone::new().await;
        lone.live().await;
        let facts = Facts(vec![
            status(AgentStatus::TurnStarted).into(),
            output("a").into(),
            IdleTick.into(),
        ]);
        lone.actor.send(facts).await.unwrap();
        assert_eq!(
            lone.steps.take_inputs(),
            ["turn-started", "activity", "tick"]
        );
    });
}
