//! Listens to the line that the session actor logs for each step.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::{Once, mpsc};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    static LISTENER: RefCell<Option<mpsc::Sender<String>>> = const { RefCell::new(None) };
}

/// The steps of all sessions of this thread, for as long as it lives.
pub(super) struct Steps(mpsc::Receiver<String>);

impl Steps {
    pub(super) fn listen() -> Self {
        // One subscriber for all threads: tracing caches, for all of them, whether one is
        // interested, so subscribers of single threads would deafen each other.
        static EAR: Once = Once::new();
        EAR.call_once(|| {
            tracing::subscriber::set_global_default(Ear).unwrap();
            tracing::callsite::rebuild_interest_cache();
        });
        let (sender, lines) = mpsc::channel();
        LISTENER.set(Some(sender));
        Self(lines)
    }

    /// The steps since the last call: `input -> effects`, without the time.
    pub(super) fn take(&self) -> Vec<String> {
        let without_time = |line: String| line.split_once(' ').unwrap().1.to_owned();
        self.0.try_iter().map(without_time).collect()
    }

    /// The inputs of those.
    pub(super) fn take_inputs(&self) -> Vec<String> {
        let input = |step: String| step.split_once(" ->").unwrap().0.to_owned();
        self.take().into_iter().map(input).collect()
    }

    /// How many of those were ticks.
    pub(super) fn take_ticks(&self) -> usize {
        let inputs = self.take_inputs();
        inputs.iter().filter(|input| *input == "tick").count()
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        LISTENER.set(None);
    }
}

struct Ear;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "drowse_actors::session"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        LISTENER.with_borrow(|listener| {
            if let Some(listener) = listener {
                listener.send(text.0).unwrap();
            }
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
