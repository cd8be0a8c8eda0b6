//! Listens to the line that the session actor logs for each step.

use std::fmt::{Debug, Write};
use std::sync::mpsc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

/// The steps of all sessions of this thread, for as long as it lives.
pub(super) struct Steps {
    lines: mpsc::Receiver<String>,
    _listening: DefaultGuard,
}

impl Steps {
    pub(super) fn listen() -> Self {
        let (sender, lines) = mpsc::channel();
        Self {
            lines,
            _listening: tracing::subscriber::set_default(Ear(sender)),
        }
    }

    /// The steps since the last call: `input -> effects`, without the time.
    pub(super) fn take(&self) -> Vec<String> {
        let without_time = |line: String| line.split_once(' ').unwrap().1.to_owned();
        self.lines.try_iter().map(without_time).collect()
    }

    /// How many of those were ticks.
    pub(super) fn take_ticks(&self) -> usize {
        let steps = self.take();
        let is_tick = |step: &&String| step.starts_with("tick ->");
        steps.iter().filter(is_tick).count()
    }
}

struct Ear(mpsc::Sender<String>);

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
        // The listener may have ended before the last actor.
        let _gone = self.0.send(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
