//! Clients: people and programs that want things at random moments.

use std::collections::BTreeMap;
use std::time::Duration;

use drowse_messages::{
    CancelMessage, HoldId, HoldTaken, Interrupt, LimitOverrides, Limits, MessageId, MessageState,
    Order, Profile, Progress, Recipe, SavedSession, SessionId, Stop, StopHow, Wake, WallTime, Who,
};
use drowse_policy::{Input, registry};

use crate::world::{Delivery, Lane, Record, SESSIONS, World, announced};

const HOUR: Duration = Duration::from_secs(3600);
/// How much is wanted in one life.
const WISHES: u64 = 120;

/// A session that was opened and never started.
pub(crate) fn new_record(id: SessionId) -> Record {
    let name: drowse_messages::Name = "fake".parse().expect("a plain name");
    let profile = Profile {
        id,
        name: id.to_string(),
        recipe: Recipe {
            agent: name.clone(),
            protocol: name,
            argv: Vec::new(),
            cwd: "/".into(),
            env: BTreeMap::new(),
        },
        limits: LimitOverrides::default(),
        created: WallTime(0),
    };
    Record {
        saved: SavedSession {
            profile,
            progress: Progress::default(),
            queued: Vec::new(),
            state_since: WallTime(0),
            last_active: WallTime(0),
        },
        progress: Progress::default(),
        messages: BTreeMap::new(),
        vanished: false,
    }
}

/// Everything that will be wanted, over two days; often close together. In one of four lives the
/// daemon is told to end on the way.
pub(crate) fn plan(world: &mut World) {
    let mut at = Duration::ZERO;
    for _ in 0..WISHES {
        at += world.rng.time(HOUR);
        world.later(at, Delivery::Client);
    }
    if world.rng.chance(250) {
        let at = world.rng.time(at);
        world.later(at, Delivery::Drain);
    }
}

/// One wish.
pub(crate) fn act(world: &mut World) {
    let id = SessionId::from_random(world.rng.below(SESSIONS) + 1);
    let by = Who::Client("me".to_owned());
    let stop = |how, by| Order::Stop(Stop { how, by });
    let order = match world.rng.below(100) {
        0..56 => return send_message(world, id),
        56..60 => {
            let message = MessageId((world.messages + 1).saturating_sub(world.rng.below(8)));
            Order::Cancel(CancelMessage { message, by })
        }
        60..70 => stop(StopHow::Release, by),
        70..78 => stop(StopHow::Stop, by),
        78..79 => stop(StopHow::Remove, by),
        79..86 => {
            let fresh = world.rng.chance(200);
            Order::Wake(Wake { fresh, by })
        }
        86..92 => Order::Interrupt(Interrupt { by }),
        92..97 => Order::TakeHold(HoldTaken {
            id: HoldId(1),
            why: "deploy".to_owned(),
            owner: "ci".to_owned(),
            ttl: world.rng.time(6 * HOUR) + Duration::from_secs(1),
        }),
        _ => return change_limits(world, id),
    };
    pass(world, id, order);
}

/// Hands something to a session, by way of the registry.
fn pass(world: &mut World, id: SessionId, input: impl Into<Input>) {
    if world.admits() {
        let arrival = Delivery::Registry(registry::Input::Arrived(id), Some(input.into()));
        world.send(Lane::FromClients, arrival);
    }
}

/// On disk first, then announced.
fn send_message(world: &mut World, id: SessionId) {
    let message = MessageId(world.messages + 1);
    let admits = world.admits();
    if let Some(record) = world.store.get_mut(&id).filter(|_| admits) {
        record.messages.insert(message, MessageState::Queued);
        world.messages += 1;
        pass(world, id, announced(message));
    }
}

fn change_limits(world: &mut World, id: SessionId) {
    let idle = world.rng.time(2 * HOUR) + Duration::from_secs(1);
    let limits = Limits {
        idle_after: drowse_messages::Limit::After(idle),
        ..Limits::default()
    };
    if let Some(number) = world.actors.get(&id).map(|actor| actor.number) {
        let fact = Delivery::Fact(id, number, limits.into());
        world.send(Lane::FromRegistry(id), fact);
    }
}
