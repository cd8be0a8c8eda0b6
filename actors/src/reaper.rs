//! The reaper actor: one step at a time on each process tree.
//!
//! Fed by sessions. The blocking work runs behind the `ProcessTrees` port, on threads of its own;
//! the answer goes straight to whoever asked. What it adds is the promise that a tree is never
//! worked on twice at once: a session that vanished and its successor may both ask.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, Recipient};
use drowse_messages::{ProcIdentity, ReapReport, ReapRequest};

use crate::ports::ProcessTrees;

/// 16 requests wait for one tree at most: a session has one outstanding, so more is a fault.
const WAITING_MAX: usize = 16;

/// Take a step and tell `answer` of it, exactly once.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reap {
    /// What to do.
    pub request: ReapRequest,
    /// Who hears of it.
    pub answer: Recipient<ReapReport>,
}

/// A step is done.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Done(ProcIdentity);

/// See the module.
#[derive(Debug)]
pub struct ReaperActor {
    trees: Arc<dyn ProcessTrees>,
    /// Trees being worked on, with what waits for them.
    busy: BTreeMap<ProcIdentity, VecDeque<Reap>>,
}

impl ReaperActor {
    /// A reaper over these trees.
    #[must_use]
    pub fn new(trees: Arc<dyn ProcessTrees>) -> Self {
        Self {
            trees,
            busy: BTreeMap::new(),
        }
    }

    fn begin(&self, Reap { request, answer }: Reap, this: Addr<Self>) {
        let keeper = request.keeper;
        tracing::debug!(session = %request.session, step = ?request.step, %keeper, "reaping");
        self.trees.reap(
            request,
            Box::new(move |report| {
                answer.do_send(report);
                this.do_send(Done(keeper));
            }),
        );
    }
}

impl Actor for ReaperActor {
    type Context = Context<Self>;
}

impl Handler<Reap> for ReaperActor {
    type Result = ();

    fn handle(&mut self, reap: Reap, ctx: &mut Context<Self>) {
        if let Some(waiting) = self.busy.get_mut(&reap.request.keeper) {
            if waiting.len() < WAITING_MAX {
                waiting.push_back(reap);
            }
            return;
        }
        self.busy.insert(reap.request.keeper, VecDeque::new());
        self.begin(reap, ctx.address());
    }
}

impl Handler<Done> for ReaperActor {
    type Result = ();

    fn handle(&mut self, Done(keeper): Done, ctx: &mut Context<Self>) {
        match self.busy.get_mut(&keeper).and_then(VecDeque::pop_front) {
            Some(next) => self.begin(next, ctx.address()),
            None => drop(self.busy.remove(&keeper)),
        }
    }
}
