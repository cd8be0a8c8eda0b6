//! What `attach` does with events: shows them, and keeps count of what is ours.
//!
//! Invariant: the end of each message is shown once, whether an event tells of it, a replay, or a
//! look after events were lost.

use drowse_messages::{Event, MessageId, MessageState, SessionEvent};

use super::{Attached, standing};
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::exit::Exit;

impl Attached<'_> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what else happens has been shown, and changes nothing here"
    )]
    pub(super) async fn heard(
        &mut self,
        event: &Event,
        console: &mut Console<'_>,
    ) -> Result<Option<Exit>, Failure> {
        let is_snapshot = matches!(event.what, SessionEvent::Snapshot { .. });
        if is_snapshot && self.replayed_to == u64::MAX {
            self.replayed_to = event.seq;
            return Ok(None);
        }
        if console.json {
            console.object(event)?;
        } else if self.concerns(&event.what) {
            let replayed = event.seq <= self.replayed_to;
            self.screen.take(event, replayed, console)?;
        }
        if let SessionEvent::Settled { .. } = event.what {
            self.screen.end_line(console)?;
        }
        self.asking.take(&event.what, console)?;
        self.prompted();
        match &event.what {
            SessionEvent::MessageQueued { message } => self.queued(*message, console).await?,
            SessionEvent::MessageChanged {
                message,
                state,
                text,
            } if state.is_final() => self.ended(*message, *state, text, console).await?,
            SessionEvent::Removed => {
                self.screen.aside("the session was removed", console)?;
                return Ok(Some(Exit::NoSuchSession));
            }
            SessionEvent::Gap { .. } => self.look_again(console).await?,
            SessionEvent::TurnStarted { .. } => self.warned = false,
            SessionEvent::StateChanged { .. }
            | SessionEvent::TasksChanged { .. }
            | SessionEvent::HoldTaken { .. }
            | SessionEvent::HoldLifted { .. } => self.status_due = true,
            _ => {}
        }
        Ok(None)
    }

    /// A pipe gets the answers to its own messages and nothing else.
    fn concerns(&self, what: &SessionEvent) -> bool {
        let (SessionEvent::TurnStarted { message }
        | SessionEvent::Output { message, .. }
        | SessionEvent::TurnEnded { message, .. }) = what
        else {
            return true;
        };
        self.person || message.is_some_and(|message| self.mine.contains(&message))
    }

    /// Somebody else's message is shown with its text.
    async fn queued(
        &mut self,
        message: MessageId,
        console: &mut Console<'_>,
    ) -> Result<(), Failure> {
        if !self.person || console.json || !self.known.add(message) {
            return Ok(());
        }
        // One that cannot be read was removed with its session, which is told next.
        if let Ok(saved) = self.client.message(message).await {
            self.screen.said(&saved.text, console)?;
        }
        Ok(())
    }

    async fn ended(
        &mut self,
        message: MessageId,
        state: MessageState,
        text: &str,
        console: &mut Console<'_>,
    ) -> Result<(), Failure> {
        let mine = self.mine.remove(&message);
        if !(mine || self.person) || !self.over.add(message) {
            return Ok(());
        }
        let answered = state == MessageState::Answered;
        if mine && !answered {
            self.exit = self.exit.or(Exit::Error);
        }
        if console.json {
            return Ok(());
        }
        // An event has the beginning of a long answer, the message all of it.
        let whole = if answered && self.screen.needs_whole(message) {
            self.client.message(message).await.ok()
        } else {
            None
        };
        let whole = whole.map_or_else(|| text.to_owned(), |saved| saved.answer);
        Ok(self.screen.ended(message, state, &whole, console)?)
    }

    /// Events were lost: asks for what they would have told.
    pub(super) async fn look_again(&mut self, console: &mut Console<'_>) -> Result<(), Failure> {
        for message in self.mine.clone() {
            if let Ok(saved) = self.client.message(message).await
                && saved.state.is_final()
            {
                self.ended(message, saved.state, &saved.answer, console)
                    .await?;
            }
        }
        if let Ok(report) = self.client.session(&self.session).await {
            let asks = report.awake.map(|awake| awake.asks).unwrap_or_default();
            self.asking.correct(&asks, console)?;
            self.prompted();
        }
        (self.status, self.status_due) = (None, true);
        Ok(())
    }

    pub(super) fn prompted(&mut self) {
        if self.person && self.asking.is_asking() {
            self.screen.prompted();
        }
    }

    /// Says how the session stands, when that has changed and no answer is cut in two by it.
    pub(super) async fn show_status(&mut self, console: &mut Console<'_>) -> Result<(), Failure> {
        if !(self.person && self.status_due && self.screen.is_free()) || console.json {
            return Ok(());
        }
        self.status_due = false;
        // A daemon that ends says so by its stream.
        let Ok(report) = self.client.session(&self.session).await else {
            return Ok(());
        };
        let standing = standing::standing(&report);
        if self.status.as_ref() != Some(&standing) {
            let line = format!("{standing}{}", standing::moving(&report));
            self.screen.aside(&line, console)?;
            self.status = Some(standing);
        }
        Ok(())
    }
}
