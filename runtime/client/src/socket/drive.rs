//! Keeps one connection: sends calls, hands answers and events out, and redials when it breaks.
//!
//! Fed by [`super::Connection`] and by the daemon. Invariants: a call is settled once; after a break
//! the calls under way fail when it is known what became of the connection, and no call is ever
//! sent twice; events come in order, and what is missing between two of them is said.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drowse_messages::{
    CloseWhy, DropReason, EventNote, Failure, FailureCode, GapNote, Hello, Method, Notification,
    Position, SnapshotNote, Welcome,
};
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::dial::{Heard, Line, NoLine};
use super::error::{Closed, SocketError, UnknownOutcome};
use crate::call::Place;

/// 15 s of silence before a ping, as on the other side.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// 45 s of silence: three pings without an answer.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// 30 s a broken connection is redialled (behaviour 108).
pub const REDIAL_FOR: Duration = Duration::from_secs(30);

/// 150 s while the daemon answers and cannot let us in yet: it is being replaced, or still holds
/// the old connection.
pub const REDIAL_WHILE_BUSY: Duration = Duration::from_secs(150);

/// 50 ms before the second try, doubled up to [`PAUSE_MAX`]: a daemon that is replaced is back in
/// less than a second.
const PAUSE: Duration = Duration::from_millis(50);

/// 2 s between two tries at most.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What is asked of the connection.
#[derive(Debug)]
pub(super) enum Asked {
    /// A call.
    Call {
        /// Its number.
        id: u64,
        /// What.
        method: Method,
        /// With what.
        params: Value,
        /// Who waits.
        reply: oneshot::Sender<Result<Value, SocketError>>,
    },
    /// Nobody waits for this call any more.
    Forget(u64),
    /// The end, for this reason.
    End(Closed),
}

/// What is told to whoever listens.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// Unasked, by the daemon.
    Note(Arc<Notification>),
    /// The connection was taken up again.
    Resumed,
}

/// See the module.
pub(super) struct Driver {
    pub(super) place: Place,
    pub(super) name: String,
    pub(super) path: String,
    pub(super) hello: Hello,
    /// False: a break is the end.
    pub(super) resumes: bool,
    pub(super) asked: mpsc::Receiver<Asked>,
    pub(super) told: broadcast::Sender<Told>,
    /// `None`: over. `Some(false)`: redialling.
    pub(super) connected: watch::Sender<bool>,
    pub(super) closed: Arc<std::sync::OnceLock<Closed>>,
    /// Events are wanted; from behind this place.
    pub(super) events: Option<Option<Position>>,
    pub(super) pending: BTreeMap<u64, oneshot::Sender<Result<Value, SocketError>>>,
}

/// The number of the calls that the driver makes itself.
const OWN_CALL: u64 = 0;

impl Driver {
    /// Drives the connection to its end.
    pub(super) async fn drive(mut self, mut line: Line) {
        let closed = loop {
            let broken = self.attend(&mut line).await;
            self.connected.send_replace(false);
            let broken = match broken {
                Broken::Ended(closed) => {
                    line.close().await;
                    break closed;
                }
                Broken::Closed(closed) => break closed,
                Broken::Lost(reason) => reason,
            };
            if !self.resumes {
                break Closed::dropped(broken, "the connection broke");
            }
            match self.redial(broken).await {
                Ok(again) => line = again,
                Err(closed) => break closed,
            }
            self.connected.send_replace(true);
            // Only what was under way is in doubt: later calls have waited.
            for (_, reply) in std::mem::take(&mut self.pending) {
                let detail = "the connection broke during the call, and was taken up again";
                let unknown = UnknownOutcome::new(FailureCode::ConnectionResumed, detail);
                let _nobody_waits = reply.send(Err(unknown.into()));
            }
            let _nobody_listens = self.told.send(Told::Resumed);
        };
        self.end(closed);
    }

    fn end(mut self, closed: Closed) {
        // Said before anything fails, so that no call slips in between.
        let closed = self.closed.get_or_init(|| closed).clone();
        self.asked.close();
        for (_, reply) in std::mem::take(&mut self.pending) {
            let _nobody_waits = reply.send(Err(closed.clone().into()));
        }
        while let Ok(asked) = self.asked.try_recv() {
            if let Asked::Call { reply, .. } = asked {
                let _nobody_waits = reply.send(Err(closed.clone().into()));
            }
        }
    }

    /// Returns when the connection breaks or ends.
    async fn attend(&mut self, line: &mut Line) -> Broken {
        let mut heard = Instant::now();
        let mut pinged = heard;
        loop {
            let pulse = heard.max(pinged) + HEARTBEAT;
            tokio::select! {
                came = line.next() => {
                    heard = Instant::now();
                    match came {
                        Heard::Message(message) => self.message(message),
                        Heard::Pulse => {}
                        Heard::Closed(why) => return broken(why),
                    }
                }
                asked = self.asked.recv() => match asked {
                    Some(Asked::Call { id, method, params, reply }) => {
                        self.pending.insert(id, reply);
                        if line.call(id, method, params).await.is_err() {
                            return Broken::Lost(DropReason::TransportLost);
                        }
                    }
                    Some(Asked::Forget(id)) => drop(self.pending.remove(&id)),
                    Some(Asked::End(closed)) => return Broken::Ended(closed),
                    None => {
                        let detail = "the connection was dropped by its owner";
                        return Broken::Ended(Closed::new(FailureCode::ConnectionClosed, detail));
                    }
                },
                () = sleep_until(pulse) => {
                    if heard.elapsed() >= SILENCE_MAX || line.ping().await.is_err() {
                        return Broken::Lost(DropReason::TransportLost);
                    }
                    pinged = Instant::now();
                }
            }
        }
    }

    fn message(&mut self, mut message: Value) {
        if let Some(id) = message["id"].as_u64() {
            let Some(reply) = self.pending.remove(&id) else {
                return;
            };
            let failure = message["error"]["data"].take();
            let result = match serde_json::from_value::<Failure>(failure) {
                Ok(failure) => Err(SocketError::of(failure)),
                Err(_) => Ok(message["result"].take()),
            };
            let _nobody_waits = reply.send(result);
            return;
        }
        // What a newer daemon says unasked is passed over.
        let Ok(note) = serde_json::from_value::<Notification>(message) else {
            return;
        };
        if let Some(place) = &mut self.events
            && let Notification::Event(EventNote { at, .. })
            | Notification::Gap(GapNote { at, .. })
            | Notification::Snapshot(SnapshotNote { at, .. }) = &note
        {
            *place = Some(at.clone());
        }
        let _nobody_listens = self.told.send(Told::Note(Arc::new(note)));
    }

    /// Takes the connection up again.
    async fn redial(&mut self, broken: DropReason) -> Result<Line, Closed> {
        let began = Instant::now();
        let mut pause = PAUSE;
        let mut reason = broken;
        loop {
            match Line::dial(&self.place, &self.name, &self.path, &self.hello).await {
                Ok((mut line, welcome)) => {
                    self.resume_from(&welcome);
                    if self.subscribe(&mut line).await {
                        return Ok(line);
                    }
                }
                Err(NoLine::Never(SocketError::Closed(closed))) => return Err(closed),
                Err(NoLine::Never(error)) => {
                    return Err(Closed::dropped(DropReason::ProxyError, chain(&error)));
                }
                Err(NoLine::Again(SocketError::Refused(_))) => reason = DropReason::ProxyRestart,
                Err(NoLine::Again(_)) => {}
            }
            let patience = match reason {
                DropReason::ProxyRestart => REDIAL_WHILE_BUSY,
                DropReason::TransportLost
                | DropReason::ProxyError
                | DropReason::Superseded
                | DropReason::ResumeRefused => REDIAL_FOR,
            };
            if began.elapsed() + pause >= patience {
                let seconds = patience.as_secs();
                let detail = format!("no connection within {seconds} s after it broke");
                return Err(Closed::dropped(reason, detail));
            }
            // Its owner may give up meanwhile; calls wait where they are.
            if self.asked.is_closed() {
                let detail = "the connection was dropped by its owner";
                return Err(Closed::new(FailureCode::ConnectionClosed, detail));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    pub(super) fn resume_from(&mut self, welcome: &Welcome) {
        self.hello.resume = Some(welcome.resume.clone());
        // It is the same connection: the place was taken once.
        self.hello.take_over = false;
    }

    /// Has events sent, from where they ended. False: the line is broken already.
    pub(super) async fn subscribe(&mut self, line: &mut Line) -> bool {
        let Some(place) = &self.events else {
            return true;
        };
        let params = match place {
            Some(after) => json!({ "after": after }),
            None => json!({}),
        };
        if line
            .call(OWN_CALL, Method::Subscribe, params)
            .await
            .is_err()
        {
            return false;
        }
        let answered = async {
            loop {
                match line.next().await {
                    Heard::Message(message) if message["id"] == OWN_CALL => return true,
                    Heard::Message(message) => self.message(message),
                    Heard::Pulse => {}
                    Heard::Closed(_) => return false,
                }
            }
        };
        timeout(crate::call::CONNECT_DEADLINE, answered)
            .await
            .unwrap_or(false)
    }
}

/// How a line ends.
enum Broken {
    /// Its owner has had enough.
    Ended(Closed),
    /// The daemon does not want it any more.
    Closed(Closed),
    /// It may be taken up again.
    Lost(DropReason),
}

fn broken(why: Option<CloseWhy>) -> Broken {
    match Closed::by_frame(why) {
        Some(closed) => Broken::Closed(closed),
        None if why == Some(CloseWhy::Draining) => Broken::Lost(DropReason::ProxyRestart),
        None => Broken::Lost(DropReason::TransportLost),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
