//! What an earlier daemon left running and this one goes on with.
//!
//! Fed at start, before any actor exists. Invariants: nothing is started; what is not taken over
//! is put at rest, and ended by whoever comes next (`leftover.rs`); a daemon that dies in here
//! leaves rows from which another begins the same way.

use std::cell::RefCell;
use std::rc::Rc;

use drowse_messages::{Adopted, MessageId, SavedSession, SessionId};

use crate::ports::{Left, Ports, Recovered};

/// 64 at once: each waits for an answer of its keeper most of the time, and costs four
/// descriptors.
const ADOPTED_AT_ONCE: usize = 64;

/// A session with the backend it already has.
#[derive(Debug)]
pub(crate) struct TakenOver {
    pub(crate) saved: SavedSession,
    pub(crate) adopted: Adopted,
}

/// What is still to be tried, and what came of it so far.
#[derive(Debug, Default)]
struct Tries {
    left: Vec<(SessionId, Vec<MessageId>)>,
    taken: Vec<TakenOver>,
    failed: Vec<SessionId>,
}

/// What an earlier daemon left, once it is known what this one goes on with.
#[derive(Debug, Default)]
pub struct Recovery {
    pub(crate) taken: Vec<TakenOver>,
    /// The rest is at rest in it.
    pub(crate) recovered: Recovered,
}

impl From<Recovered> for Recovery {
    /// Nothing is taken over.
    fn from(recovered: Recovered) -> Self {
        let taken = Vec::new();
        Self { taken, recovered }
    }
}

impl Recovery {
    /// Takes over what can be taken over, and has the rest put at rest. On the arbiter of the core
    /// actors.
    pub async fn take_over(ports: &Ports, mut recovered: Recovered) -> Self {
        let tries = Rc::new(RefCell::new(Tries {
            left: std::mem::take(&mut recovered.adoptable),
            ..Tries::default()
        }));
        let lanes = tries.borrow().left.len().min(ADOPTED_AT_ONCE);
        let lanes: Vec<_> = (0..lanes)
            .map(|_| actix_rt::spawn(try_in_turn(ports.clone(), tries.clone())))
            .collect();
        for lane in lanes {
            if lane.await.is_err() {
                tracing::error!("taking sessions over failed inside drowse");
            }
        }
        let Tries {
            left,
            taken,
            mut failed,
        } = tries.take();
        // Those that a lane had no time for because it failed.
        failed.extend(left.into_iter().map(|(id, _)| id));
        if !failed.is_empty() {
            match ports.store.put_at_rest(failed).await {
                Ok(now) => recovered = now,
                Err(error) => tracing::error!(%error, "failed to put sessions at rest"),
            }
        }
        Self { taken, recovered }
    }
}

async fn try_in_turn(ports: Ports, tries: Rc<RefCell<Tries>>) {
    loop {
        let next = tries.borrow_mut().left.pop();
        let Some((id, delivered)) = next else { return };
        let tried = try_one(&ports, id, delivered).await;
        let mut tries = tries.borrow_mut();
        match tried {
            Ok(taken) => tries.taken.push(taken),
            Err(why) => {
                tracing::warn!(session = %id, "not taken over: {why}");
                tries.failed.push(id);
            }
        }
    }
}

async fn try_one(
    ports: &Ports,
    id: SessionId,
    delivered: Vec<MessageId>,
) -> Result<TakenOver, String> {
    let saved = ports.store.load(id).await;
    let saved = saved.map_err(|error| error.to_string())?;
    let running = saved.progress.running.clone();
    let left = Left {
        session: id,
        incarnation: saved.progress.incarnation,
        running: running.ok_or("no process of it is on record")?,
        recipe: saved.profile.recipe.clone(),
        delivered,
    };
    let adopted = Adopted {
        ages: saved.progress.ages.clone(),
        ..ports.backends.adopt(left).await?
    };
    tracing::info!(session = %id, agent = %adopted.running.agent.process, "taken over");
    Ok(TakenOver { saved, adopted })
}
