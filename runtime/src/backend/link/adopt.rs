//! A backend that an earlier daemon left: taken over from its keeper, and gone on with.
//!
//! Fed by `backend.rs` at start. Taking over reads nothing of what the agent said meanwhile, so
//! that it is all there for whoever follows. Invariant: a backend of which anything is doubtful
//! that matters (half a line to it, its input closed) is ended, never gone on with.

use std::path::PathBuf;

use drowse_actors::ports::Left;
use drowse_messages::{Adopted, AgentStatus, ExitStatus, MessageId};

use super::{Lines, Link, Parts, Relayed, Ties};
use crate::adapter::{Adapter, Fact, Observer, Seen};
use crate::backend::checkpoint::Checkpoint;
use crate::backend::{Shared, launch};
use crate::chain::chain;
use crate::process::link::{AgentStdio, Held, KeeperLink};

/// A backend that was taken over and is not followed yet.
#[derive(Debug)]
pub(in crate::backend) struct Taken {
    keeper: KeeperLink,
    stdio: AgentStdio,
    observer: Box<dyn Observer>,
    checkpoint: Checkpoint,
    /// What to write first.
    write: Vec<Vec<u8>>,
    exited: Option<ExitStatus>,
    empty: bool,
    cgroup: Option<PathBuf>,
    relayed: Option<Parts>,
}

impl Taken {
    /// Takes over what an earlier daemon left, or says why not; then the keeper is told to end it.
    pub(in crate::backend) async fn over(
        shared: &Shared,
        left: &Left,
    ) -> Result<(Self, Adopted), String> {
        if left.running.keeper.boot_id != shared.boot_id {
            return Err("it ran before the machine was started".to_owned());
        }
        let adapter = shared
            .adapters
            .get(&left.recipe.protocol)
            .ok_or_else(|| format!("there is no adapter for {}", left.recipe.protocol))?;
        let socket = launch::socket_of(shared, left.session, left.incarnation);
        let (keeper, held) = KeeperLink::take_over(left.running.keeper.process, &socket)
            .await
            .map_err(|error| chain(&error))?;
        match Understood::from(shared, left, &*adapter, held) {
            Ok(understood) => {
                let relayed = understood.relayed(shared, left, &*adapter).await;
                let (mut taken, adopted) = understood.taken(keeper, left);
                taken.relayed = relayed;
                Ok((taken, adopted))
            }
            Err(why) => {
                let identity = keeper.keeper();
                keeper.end();
                launch::collect(shared, identity, left.running.cgroup.clone());
                Err(why)
            }
        }
    }

    /// Goes on with it.
    pub(in crate::backend) fn follow(self, ties: Ties) -> Box<Link> {
        let Self {
            keeper,
            stdio,
            observer,
            checkpoint,
            write,
            exited,
            empty,
            cgroup,
            relayed,
        } = self;
        let mut link = Link::new(ties, keeper, stdio, observer);
        link.cgroup = cgroup;
        link.lines = Lines::after(checkpoint.partial);
        link.stderr_tail = checkpoint.stderr;
        link.outbox = checkpoint.outbox.into();
        link.in_flight = checkpoint.about.in_flight;
        link.answered = checkpoint.about.answered;
        let seen = Seen {
            facts: Vec::new(),
            write,
        };
        link.take(seen, None);
        if let (Some(parts), Some(note)) = (relayed, checkpoint.about.relay) {
            link.relayed = Some(Relayed::restored(parts, note));
        }
        let is_over = exited.is_some() || empty;
        if is_over && !link.defers_exit(exited, empty) {
            link.on_exited(exited);
            if empty {
                link.on_emptied();
            }
        }
        link.tell();
        link
    }
}

/// What a keeper holds, once it makes sense.
struct Understood {
    stdio: AgentStdio,
    observer: Box<dyn Observer>,
    checkpoint: Checkpoint,
    seen: Seen,
    exited: Option<ExitStatus>,
    empty: bool,
}

impl Understood {
    fn from(
        shared: &Shared,
        left: &Left,
        adapter: &dyn Adapter,
        held: Held,
    ) -> Result<Self, String> {
        let no = |why: &str| Err(why.to_owned());
        let Some(stdio) = held.stdio else {
            return no("it was let go of before");
        };
        let Some(checkpoint) = Checkpoint::decode(&held.checkpoint.0) else {
            return no("what the earlier daemon knew of it cannot be read");
        };
        let about = &checkpoint.about;
        if (about.session, about.incarnation) != (left.session, left.incarnation)
            || about.protocol != left.recipe.protocol
        {
            return no("what the earlier daemon knew is of another backend");
        }
        let host_closed = about.relay.as_ref().is_some_and(|relay| relay.input_closed);
        let is_closed = stdio.stdin.is_none() && !host_closed;
        if about.closing || (is_closed && held.exited.is_none()) {
            return no("it was being ended");
        }
        if about.writing {
            return no("the earlier daemon ended while it wrote to it");
        }
        let now = shared.clock.wall();
        let Some((observer, seen)) = adapter.adopt(&checkpoint.observer, now) else {
            return no("its adapter cannot go on with it");
        };
        let (exited, empty) = (held.exited, held.empty);
        Ok(Self {
            stdio,
            observer,
            checkpoint,
            seen,
            exited,
            empty,
        })
    }

    /// What is needed to go on for a host.
    async fn relayed(&self, shared: &Shared, left: &Left, adapter: &dyn Adapter) -> Option<Parts> {
        let note = self.checkpoint.about.relay.as_ref()?;
        let mut kept = shared.store.relay(left.session).await.unwrap_or_default();
        if note.has_memory {
            kept.memory.clone_from(&self.checkpoint.memory);
        }
        let memory = Some(&kept.memory[..]).filter(|memory| !memory.is_empty());
        let filter = adapter.relay(memory);
        let host = shared
            .hub
            .get_or_make(left.session, note.host, filter.is_some());
        // From here on: a shim may be back before the link runs.
        host.link();
        Some(Parts {
            host,
            filter,
            agent: left.running.agent.process,
            store: shared.store.clone(),
            kept,
        })
    }

    fn taken(self, keeper: KeeperLink, left: &Left) -> (Taken, Adopted) {
        let Self {
            stdio,
            observer,
            mut checkpoint,
            seen,
            exited,
            empty,
        } = self;
        let mut adopted = Adopted {
            incarnation: left.incarnation,
            running: left.running.clone(),
            ages: None,
            in_flight: Vec::new(),
            on_its_way: false,
            unknown: Vec::new(),
            tasks: None,
            statuses: Vec::new(),
        };
        fates(left, &mut checkpoint, &mut adopted);
        for fact in seen.facts {
            match fact {
                Fact::Status(status) => adopted.statuses.push(status),
                Fact::Roster(tasks) => adopted.tasks = Some(tasks),
                Fact::Output(_) => {}
            }
        }
        let write = seen.write;
        let taken = Taken {
            keeper,
            stdio,
            observer,
            checkpoint,
            write,
            exited,
            empty,
            cgroup: left.running.cgroup.clone(),
            relayed: None,
        };
        (taken, adopted)
    }
}

/// What is known of the messages that the store has as delivered: one is worked on, or about to be
/// written, or was answered without the disk knowing; of any other nothing is known.
fn fates(left: &Left, checkpoint: &mut Checkpoint, adopted: &mut Adopted) {
    let is_open = |message: &MessageId| left.delivered.contains(message);
    let about = &mut checkpoint.about;
    about.in_flight.retain(is_open);
    if let Some((messages, ended)) = &mut about.answered {
        messages.retain(is_open);
        if !messages.is_empty() {
            let mut ended = ended.clone();
            ended.left = u32::try_from(about.in_flight.len()).unwrap_or(u32::MAX);
            adopted.statuses.push(AgentStatus::TurnEnded(ended));
            adopted.in_flight.clone_from(messages);
        }
    }
    adopted.in_flight.extend(&about.in_flight);
    let mut pieces = checkpoint.outbox.iter();
    let waiting = pieces.find_map(|piece| piece.measures().2).filter(is_open);
    adopted.in_flight.extend(waiting);
    adopted.on_its_way = waiting.is_some();
    let unknown = left.delivered.iter().copied();
    adopted.unknown = unknown
        .filter(|message| !adopted.in_flight.contains(message))
        .collect();
}
