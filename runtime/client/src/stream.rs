//! Events as they happen.
//!
//! Fed by one answer's body. Invariant: events come in the order they were sent, none is made up,
//! and an end is either clean (`Ok(None)`) or an error. It does not reconnect: the caller knows
//! whether it wants to, and from where ([`EventStream::last_seq`]).

use std::time::Duration;

use drowse_messages::{Event, SessionId, WallTime};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::timeout;

use crate::call::{Pump, bad_answer, lost};
use crate::error::{ClientError, Transport};
use crate::sse::{RawEvent, Splitter};

/// 60 s without a byte: the daemon sends a heartbeat every 15 s, so three were lost.
pub const HEARTBEAT_DEADLINE: Duration = Duration::from_secs(60);

/// What every event has, also one that this version does not know.
#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "seq")]
    _seq: u64,
    #[serde(rename = "at")]
    _at: WallTime,
    #[serde(rename = "session")]
    _session: Option<SessionId>,
    #[serde(rename = "event")]
    _event: String,
}

/// A stream of events. Dropping it ends the connection, and nothing else: the agent works on.
#[derive(Debug)]
pub struct EventStream {
    request: String,
    body: Incoming,
    splitter: Splitter,
    last_seq: Option<u64>,
    unknown_total: u64,
    _pump: Pump,
}

impl EventStream {
    pub(crate) fn new(request: String, body: Incoming, pump: Pump) -> Self {
        Self {
            request,
            body,
            splitter: Splitter::default(),
            last_seq: None,
            unknown_total: 0,
            _pump: pump,
        }
    }

    /// The next event; `None` when the daemon ended the stream. Heartbeats are waited over. May
    /// be dropped before it is done: nothing is lost by that.
    ///
    /// # Errors
    /// [`Transport::Lost`] when the connection was cut or fell silent, [`Transport::BadAnswer`]
    /// when what came is no event. After an error the stream is of no further use.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            while let Some(raw) = self.splitter.pop() {
                if let Some(event) = self.understand(&raw)? {
                    return Ok(Some(event));
                }
            }
            let frame = timeout(HEARTBEAT_DEADLINE, self.body.frame())
                .await
                .map_err(|silence| lost(self.request.clone(), silence))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| lost(self.request.clone(), error))?;
            // Trailers say nothing here.
            if let Ok(chunk) = frame.into_data() {
                self.splitter
                    .push(&chunk)
                    .map_err(|error| bad_answer(self.request.clone(), error))?;
            }
        }
    }

    /// The number of the newest event read: what to ask for events after.
    #[must_use]
    pub const fn last_seq(&self) -> Option<u64> {
        self.last_seq
    }

    /// Events passed over because this version does not know them.
    #[must_use]
    pub const fn unknown_total(&self) -> u64 {
        self.unknown_total
    }

    fn understand(&mut self, raw: &RawEvent) -> Result<Option<Event>, Transport> {
        if let Some(seq) = raw.id.as_deref().and_then(|id| id.parse().ok()) {
            self.last_seq = Some(seq);
        }
        match serde_json::from_str::<Event>(&raw.data) {
            Ok(event) => Ok(Some(event)),
            Err(_) if serde_json::from_str::<Envelope>(&raw.data).is_ok() => {
                self.unknown_total += 1;
                Ok(None)
            }
            Err(error) => Err(bad_answer(self.request.clone(), error)),
        }
    }
}
