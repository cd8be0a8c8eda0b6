//! What goes to the agent: messages and orders become lines on its stdin.
//!
//! Fed by `link.rs`. Invariants: a message is marked delivered on disk before it is written, so a
//! crash can leave it unknown and never deliver it twice; and the keeper is told that something of
//! ours is being written before it is, so no daemon ever goes on behind half a line. Of what a
//! host said the host's shim is told, as soon as it is written.

use std::time::Duration;

use drowse_actors::ports::StoreError;
use drowse_messages::{Delivered, DeliveryResult, MessageId};
use drowse_policy::BackendOrder;
use memchr::memchr;

use super::{Link, Relayed, Shared};
use crate::adapter::Direction;
use crate::chain::chain;
use crate::process::control::ToKeeper;

/// How long to wait before a delivery that the disk refused is tried again.
const DISK_RETRY_AFTER: Duration = Duration::from_secs(1);

impl Link {
    pub(super) async fn write(&mut self) {
        if self.relayed.as_ref().is_some_and(|it| !it.host().is_open()) {
            self.outbox.drop_of_host();
        }
        if self.stdin.is_none() || !self.mark_writing().await {
            return;
        }
        let Some(stdin) = &self.stdin else { return };
        let mut written = Vec::new();
        let host = self.relayed.as_mut().map(Relayed::host_to_give_to);
        let host = host.as_deref();
        let result = self.outbox.write(stdin, host, |bytes, message| {
            written.push((bytes, message));
        });
        for (bytes, message) in written {
            if let Some(message) = message {
                self.in_flight.push(message);
                self.answered = None;
                // First of all: what the observer makes of its lines may be their answer.
                self.delivered(message, DeliveryResult::Written);
            }
            let is_stream = self.relayed.as_ref().is_some_and(Relayed::is_stream);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let end = memchr(b'\n', rest).filter(|_| !is_stream);
                let end = end.map_or(rest.len(), |at| at + 1);
                let (line, behind) = rest.split_at(end);
                let seen = self.observer.observe(Direction::In, line.trim_ascii_end());
                self.take(seen, None);
                rest = behind;
            }
        }
        if result.is_err() {
            self.stop_writing();
        } else if self.closing && self.outbox.is_empty() {
            self.close_stdin().await;
        }
    }

    /// Ends the agent's input: our end of the pipe and the keeper's copy of it.
    pub(super) async fn close_stdin(&mut self) {
        self.stdin = None;
        if let Some(keeper) = &mut self.keeper
            && let Err(error) = keeper.send(ToKeeper::CloseStdin).await
        {
            tracing::debug!(
                error = chain(&error),
                "failed to have the keeper close stdin"
            );
        }
    }

    /// The agent reads no more.
    pub(super) fn stop_writing(&mut self) {
        self.stdin = None;
        for (message, result) in self.outbox.give_up() {
            self.delivered(message, result);
        }
    }

    pub(super) fn on_order(&mut self, shared: &Shared, order: BackendOrder) {
        let seen = match order {
            BackendOrder::Deliver(message) => return self.begin_delivery(shared, message, None),
            BackendOrder::Interrupt => self.observer.interrupt(),
            BackendOrder::Answer { id, answer } => self.observer.answer(&id, &answer),
            BackendOrder::Withdraw { id } => {
                self.observer.answer(&id, &drowse_messages::Answer::Deny)
            }
            BackendOrder::Close => {
                self.closing = true;
                self.observer.close()
            }
            BackendOrder::ShutGate { quiet } => return self.on_shut_gate(quiet),
            // The gate is open already, and the host's turn comes.
            BackendOrder::OpenGate | BackendOrder::Dismiss | BackendOrder::Retire { .. } => return,
        };
        self.take(seen, None);
    }

    /// Marks the message delivered on disk before the agent sees it: a crash in between leaves it
    /// unknown, never delivered twice.
    fn begin_delivery(&mut self, shared: &Shared, message: MessageId, after: Option<Duration>) {
        let store = shared.store.clone();
        self.delivery = Some(Box::pin(async move {
            if let Some(after) = after {
                tokio::time::sleep(after).await;
            }
            (message, store.deliver(message).await)
        }));
    }

    pub(super) fn on_delivery(
        &mut self,
        shared: &Shared,
        message: MessageId,
        text: Result<String, StoreError>,
    ) {
        self.delivery = None;
        match text {
            Ok(_) if self.stdin.is_none() => self.delivered(message, DeliveryResult::NotWritten),
            Ok(text) => {
                let seen = self.observer.prompt(&text);
                self.take(seen, Some(message));
            }
            Err(StoreError::Failed(error)) => {
                tracing::error!(%message, error, "failed to read a message; trying again");
                self.begin_delivery(shared, message, Some(DISK_RETRY_AFTER));
            }
            Err(_) => self.delivered(message, DeliveryResult::Void),
        }
    }

    fn delivered(&mut self, message: MessageId, result: DeliveryResult) {
        let incarnation = self.incarnation;
        self.seen.push(
            Delivered {
                incarnation,
                message,
                result,
            }
            .into(),
        );
    }
}
