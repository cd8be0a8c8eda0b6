//! A subscriber that records what it hears, as slowly as told.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, WrapFuture};
use drowse_messages::Event;

use super::{Lock, lock};

/// What a recorder heard so far.
#[derive(Clone, Debug, Default)]
pub struct Recording(Arc<Lock<Vec<Event>>>);

impl Recording {
    /// All of it, in order.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        lock(&self.0).clone()
    }
}

/// An actor of an extension.
#[derive(Debug, Default)]
pub struct Recorder {
    recording: Recording,
    pause: Duration,
    panics_at: Option<usize>,
}

impl Recorder {
    /// One that hears nothing else for this long after each event.
    #[must_use]
    pub fn slow(pause: Duration) -> Self {
        Self {
            pause,
            ..Self::default()
        }
    }

    /// One that panics at the event with this number, counted from 1.
    #[must_use]
    pub fn faulty(panics_at: usize) -> Self {
        Self {
            panics_at: Some(panics_at),
            ..Self::default()
        }
    }

    /// What it has heard, also after its end.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.recording.clone()
    }
}

impl Actor for Recorder {
    type Context = Context<Self>;
}

impl Handler<Event> for Recorder {
    type Result = ();

    fn handle(&mut self, event: Event, ctx: &mut Context<Self>) {
        let heard = {
            let mut events = lock(&self.recording.0);
            events.push(event);
            events.len()
        };
        assert!(self.panics_at != Some(heard), "a fault on purpose");
        if !self.pause.is_zero() {
            ctx.wait(tokio::time::sleep(self.pause).into_actor(self));
        }
    }
}
