//! Event streams (SSE): frames, the heartbeat, and the end.
//!
//! Fed by a [`Source`] of events, read by one client. A client that is too slow stops the stream
//! from being asked; its events pile up to the subscription's bound, and then a `gap` says that
//! some are lost. Invariant: a stream ends when its source does, when its client is gone (its
//! place and its subscription go with it) or when the endpoint stops.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::CACHE_CONTROL;
use bytes::Bytes;
use drowse_messages::{EVENT_STREAM, Event, SessionEvent};
use futures_util::future::{Either, select};
use futures_util::stream::{Stream, unfold};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::Context;
use super::problem::{Problem, TOO_MANY_STREAMS};

/// A comment, so that proxies and clients see that the stream lives, and we that a client died.
const HEARTBEAT: &[u8] = b": heartbeat\n\n";

/// What a stream is made of.
pub(super) trait Source {
    /// The next frame; `None`: the stream ends. Dropped while it waits, it has taken nothing.
    async fn next(&mut self) -> Option<Bytes>;
}

/// A place among the streams there may be.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    stopping: watch::Receiver<bool>,
    heartbeat_every: Duration,
}

impl Place {
    /// Takes a place, before anything is done for the request.
    pub(super) fn take(context: &Context) -> Result<Self, Problem> {
        let permit = context.streams.clone().try_acquire_owned().map_err(|_| {
            let limit = context.bounds.streams_max;
            Problem::new(
                TOO_MANY_STREAMS,
                format!("{limit} streams are open already"),
            )
        })?;
        Ok(Self {
            _permit: permit,
            stopping: context.stopping.clone(),
            heartbeat_every: context.bounds.heartbeat_every,
        })
    }

    /// Waits until the source is over; false when the time, or the daemon, is over first.
    pub(super) async fn wait(mut self, mut source: impl Source, at_most: Duration) -> bool {
        let over = pin!(async { while source.next().await.is_some() {} });
        let stop = pin!(self.stopping.wait_for(|stopping| *stopping));
        let waited = tokio::time::timeout(at_most, select(over, stop)).await;
        matches!(waited, Ok(Either::Left(_)))
    }

    /// Answers with the stream.
    pub(super) fn stream(self, source: impl Source + 'static) -> HttpResponse {
        HttpResponse::Ok()
            .content_type(EVENT_STREAM)
            .insert_header((CACHE_CONTROL, "no-store"))
            .streaming(frames(self, source))
    }
}

fn frames(place: Place, source: impl Source) -> impl Stream<Item = Result<Bytes, Infallible>> {
    unfold((place, source), async |(mut place, mut source)| {
        let frame = {
            let next = pin!(tokio::time::timeout(place.heartbeat_every, source.next()));
            let stop = pin!(place.stopping.wait_for(|stopping| *stopping));
            // The source is asked first: what was published before the end is still delivered.
            match select(next, stop).await {
                Either::Left((Ok(frame), _)) => frame?,
                Either::Left((Err(_), _)) => Bytes::from_static(HEARTBEAT),
                Either::Right(_) => return None,
            }
        };
        Some((Ok(frame), (place, source)))
    })
}

/// One event as a frame, with this id. A client repeats the id of the last frame that had one when
/// it comes back, and gets what followed it.
pub(super) fn frame(event: &Event, id: Option<u64>) -> Bytes {
    #[derive(Deserialize)]
    struct Tag<'a> {
        #[serde(borrow)]
        event: std::borrow::Cow<'a, str>,
    }
    let json = serde_json::to_string(event).expect("events have no maps with odd keys");
    let tag: Tag<'_> = serde_json::from_str(&json).expect("every event is tagged with its name");
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {}\ndata: {json}\n\n", tag.event).into()
}

/// The id an event has in a stream. A gap has none, so that a client which comes back asks again
/// for what it missed: it may have been kept.
pub(super) fn id_of(event: &Event) -> Option<u64> {
    (!matches!(event.what, SessionEvent::Gap { .. })).then_some(event.seq)
}
