//! One socket from its handshake to its end.
//!
//! Fed by frames, by the switchboard and by the calls it runs. Invariants: a request is answered
//! once or not at all; events go out in the order of the tape; whatever is awaited here has a bound.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use actix_web::rt;
use actix_web::web::Data;
use actix_ws::{AggregatedMessage, AggregatedMessageStream, ProtocolError, Session};
use bytestring::ByteString;
use drowse_messages::{
    CloseWhy, Failure, FailureCode, GapNote, Method, Notification, SessionId, SnapshotNote,
    Subscribe, WarningNote, Who, millis,
};
use drowse_policy::connections::{CallId, Farewell, Input, SocketId};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::super::Context;
use super::super::access::Reach;
use super::calls::{self, Outcome};
use super::farewell::{End, code_of, detail, end_by, say_goodbye};
use super::greet::{self, NoEntry};
use super::switchboard::{Feed, Join, Leave, ORDERS_MAX, Told};
use super::tape::{Cursor, Found, Tape};
use super::words::{self, Request};
use super::{CLOSE_TIMEOUT, HELLO_TIMEOUT, WRITE_TIMEOUT};

/// 64 answers wait for a socket that is busy writing: as many calls are under way at most.
const OUTCOMES_MAX: usize = 64;

/// 64 frames of the tape go out before anything else is looked at.
const FRAMES_AT_ONCE: usize = 64;

/// Both ends of a bounded queue.
type Queue<T> = (mpsc::Sender<T>, mpsc::Receiver<T>);

/// What a socket does next; an end breaks off.
type Step = Result<(), End>;

/// A call between its request and its answer.
#[derive(Debug)]
enum Call {
    /// Policy has not said yet whether it may run.
    Asked(Request),
    /// It runs.
    Runs { id: Value },
    /// Its answer waits for policy.
    Done { id: Value, outcome: Outcome },
}

impl Call {
    fn id(self) -> Value {
        match self {
            Self::Asked(Request { id, .. }) | Self::Runs { id } | Self::Done { id, .. } => id,
        }
    }
}

/// What a socket has once its hello was granted.
#[derive(Debug)]
struct Granted {
    tape: Arc<Tape>,
    moved: watch::Receiver<u64>,
    /// `None`: no events are wanted.
    cursor: Option<Cursor>,
}

/// What a socket waits for.
enum Moment {
    /// The daemon ends.
    Stopping,
    /// The switchboard says something.
    Told(Option<Box<Told>>),
    /// A call is done.
    Outcome(CallId, Outcome),
    /// The client says something.
    Frame(Option<Result<AggregatedMessage, ProtocolError>>),
    /// There are events to send.
    Moved,
    /// No hello came in time.
    HelloDue,
}

/// See the module.
pub(super) struct Socket {
    context: Data<Context>,
    number: SocketId,
    /// As it stands in the path.
    path: String,
    by: Who,
    reach: Reach,
    out: Session,
    /// Known once somebody said hello.
    session: Option<SessionId>,
    /// The id of a hello that is not answered.
    hello: Option<Value>,
    granted: Option<Granted>,
    calls: BTreeMap<CallId, Call>,
    /// Made for the first call: whoever only looks on has none.
    outcomes: Option<Queue<(CallId, Outcome)>>,
    /// Boxed: a queue makes room for 32 at a time, and most are empty.
    orders: Queue<Box<Told>>,
}

impl Socket {
    pub(super) fn new(
        context: Data<Context>,
        path: String,
        by: Who,
        reach: Reach,
        out: Session,
    ) -> Self {
        let number = SocketId(context.sockets.number());
        Self {
            context,
            number,
            path,
            by,
            reach,
            out,
            session: None,
            hello: None,
            granted: None,
            calls: BTreeMap::new(),
            outcomes: None,
            orders: mpsc::channel(ORDERS_MAX),
        }
    }

    /// Attends to it until its end.
    pub(super) async fn attend(
        mut self: Box<Self>,
        mut frames: Box<AggregatedMessageStream>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut hello_due = std::pin::pin!(tokio::time::sleep(HELLO_TIMEOUT));
        let end = loop {
            let moment = self
                .wait(&mut frames, &mut stopping, hello_due.as_mut())
                .await;
            // On the heap only while there is something to do: most sockets wait most of the time,
            // and there are thousands.
            if let Err(end) = Box::pin(self.attend_to(moment)).await {
                break end;
            }
        };
        if let Some(session) = self.session {
            let farewell = match end {
                End::Closed(farewell) => farewell,
                End::Close(CloseWhy::Normal) => Farewell::Said,
                End::Close(_) | End::Cut => Farewell::Lost,
            };
            let socket = self.number;
            let leave = Leave {
                session,
                socket,
                farewell,
            };
            // A switchboard that is gone has nobody left.
            let _gone = self.context.sockets.board.send(leave).await;
        }
        match end {
            End::Close(why) => Box::pin(say_goodbye(self.out, *frames, why)).await,
            End::Closed(_) => drop(timeout(CLOSE_TIMEOUT, self.out.close(None)).await),
            End::Cut => {}
        }
    }

    async fn wait(
        &mut self,
        frames: &mut AggregatedMessageStream,
        stopping: &mut watch::Receiver<bool>,
        hello_due: Pin<&mut tokio::time::Sleep>,
    ) -> Moment {
        let greeted = self.granted.is_some();
        let moved = async {
            match &mut self.granted {
                Some(Granted {
                    cursor: Some(_),
                    moved,
                    ..
                }) => drop(moved.changed().await),
                Some(_) | None => std::future::pending().await,
            }
        };
        let outcomes = async {
            match &mut self.outcomes {
                Some((_, outcomes)) => outcomes.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => Moment::Stopping,
            told = self.orders.1.recv() => Moment::Told(told),
            Some((call, outcome)) = outcomes => Moment::Outcome(call, outcome),
            frame = frames.recv() => Moment::Frame(frame),
            () = moved => Moment::Moved,
            () = hello_due, if !greeted => Moment::HelloDue,
        }
    }

    async fn attend_to(&mut self, moment: Moment) -> Step {
        match moment {
            Moment::Stopping => Err(End::Close(CloseWhy::Draining)),
            Moment::Told(Some(told)) => self.told(*told).await,
            Moment::Outcome(call, outcome) => self.done(call, outcome).await,
            Moment::Told(None) => Err(End::Cut),
            Moment::Frame(frame) => self.frame(frame).await,
            Moment::Moved => self.send_events(FRAMES_AT_ONCE).await,
            Moment::HelloDue => Err(End::Close(CloseWhy::Forbidden)),
        }
    }

    async fn frame(&mut self, frame: Option<Result<AggregatedMessage, ProtocolError>>) -> Step {
        let Some(frame) = frame else {
            return Err(End::Closed(Farewell::Lost));
        };
        let message = frame.map_err(|error| end_by(&error))?;
        if let (Some(_), Some(session)) = (&self.granted, self.session) {
            self.feed(session, Input::Heard(self.number)).await?;
        }
        match message {
            AggregatedMessage::Text(text) => self.text(&text).await,
            AggregatedMessage::Binary(_) => Err(End::Close(CloseWhy::NotText)),
            AggregatedMessage::Ping(bytes) => {
                let pong = timeout(WRITE_TIMEOUT, self.out.pong(&bytes)).await;
                self.written(pong.ok().map(|sent| sent.is_ok())).await
            }
            AggregatedMessage::Pong(_) => Ok(()),
            AggregatedMessage::Close(reason) => {
                let said = reason.is_some_and(|it| u16::from(it.code) == CloseWhy::Normal.code());
                let farewell = if said { Farewell::Said } else { Farewell::Lost };
                Err(End::Closed(farewell))
            }
        }
    }

    async fn text(&mut self, text: &str) -> Step {
        let request = match Request::read(text) {
            Ok(request) => request,
            Err(refused) => return self.fail(&refused.id, &refused.failure).await,
        };
        let Some(session) = self.session.filter(|_| self.granted.is_some()) else {
            return self.greet(request).await;
        };
        match request.method {
            Method::Hello => {
                let failure = Failure::new(FailureCode::OutOfOrder, "hello was said already");
                self.fail(&request.id, &failure).await
            }
            Method::Ping => self.send(words::answer(&request.id, "{}")).await,
            Method::Close => {
                self.send(words::answer(&request.id, "{}")).await?;
                Err(End::Close(CloseWhy::Normal))
            }
            Method::Subscribe => self.subscribe(request).await,
            Method::Prompt
            | Method::Cancel
            | Method::Retry
            | Method::RecordOutcome
            | Method::Interrupt
            | Method::Answer
            | Method::Wake
            | Method::Release
            | Method::Stop
            | Method::Show
            | Method::Messages
            | Method::Message => {
                let call = CallId(self.context.sockets.number());
                let called = Input::Called {
                    socket: self.number,
                    call,
                    kind: calls::kind(request.method),
                    timeout: request.timeout,
                };
                self.calls.insert(call, Call::Asked(request));
                self.feed(session, called).await
            }
        }
    }

    async fn greet(&mut self, mut request: Request) -> Step {
        if self.hello.is_some() {
            let failure = Failure::new(FailureCode::OutOfOrder, "hello is not answered yet");
            return self.fail(&request.id, &failure).await;
        }
        let fresh = self.context.sockets.number();
        let (path, reach) = (&self.path, self.reach);
        let entry = greet::enter(&self.context, path, &self.by, reach, &mut request, fresh).await;
        let entry = match entry {
            Ok(entry) => entry,
            Err(NoEntry::Close(why)) => return Err(End::Close(why)),
            Err(NoEntry::Again(failure)) => return self.fail(&request.id, &failure).await,
        };
        self.by = entry.by;
        self.session = Some(entry.session);
        self.hello = Some(request.id);
        let join = Join {
            session: entry.session,
            socket: self.number,
            epoch: greet::epoch(&entry.greeting.key, fresh),
            greeting: entry.greeting,
            orders: self.orders.0.clone(),
            person_awaited: entry.person_awaited,
        };
        let joined = self.context.sockets.board.send(join).await;
        joined.map_err(|_| End::Close(CloseWhy::Draining))
    }

    async fn subscribe(&mut self, mut request: Request) -> Step {
        let wanted: Subscribe = match request.params() {
            Ok(wanted) => wanted,
            Err(failure) => return self.fail(&request.id, &failure).await,
        };
        let Some(granted) = &mut self.granted else {
            return Ok(());
        };
        let known = wanted.after.as_ref().and_then(|it| granted.tape.behind(it));
        let anew = known.is_none();
        granted.cursor = Some(known.unwrap_or_else(|| granted.tape.end()));
        let position = words_of(&granted.tape.position());
        self.send(words::answer(&request.id, &position)).await?;
        if anew && wanted.after.is_some() {
            self.gap(None).await?;
        } else if anew {
            self.snapshot().await?;
        }
        self.send_events(FRAMES_AT_ONCE).await
    }

    async fn told(&mut self, told: Told) -> Step {
        match told {
            Told::Welcome {
                connection,
                key,
                role,
                resumed,
                tape,
            } => {
                let (Some(id), Some(session)) = (self.hello.take(), self.session) else {
                    return Ok(());
                };
                let at = tape.position();
                let welcome = greet::welcome(session, connection, &key, role, resumed, at);
                self.granted = Some(Granted {
                    moved: tape.moved(),
                    tape,
                    cursor: None,
                });
                self.send(words::answer(&id, &words_of(&welcome))).await
            }
            Told::Rejected(rejection) => match self.hello.take() {
                Some(id) => self.fail(&id, &greet::rejected(rejection)).await,
                None => Ok(()),
            },
            Told::Run(call) => {
                self.run(call);
                Ok(())
            }
            Told::Deliver(call) => self.deliver(call).await,
            Told::Fail(call, code) => match self.calls.remove(&call) {
                Some(waiting) => {
                    let failure = Failure::new(code, detail(code));
                    self.fail(&waiting.id(), &failure).await
                }
                None => Ok(()),
            },
            Told::Ping => {
                let ping = timeout(WRITE_TIMEOUT, self.out.ping(b"")).await;
                self.written(ping.ok().map(|sent| sent.is_ok())).await
            }
            Told::Warn(left) => {
                let note = WarningNote {
                    limit: "hard_timeout".to_owned(),
                    in_ms: millis(left),
                };
                self.send(words::notification(&Notification::Warning(note)))
                    .await
            }
            Told::Close(why, unknown) => self.close(why, &unknown).await,
            Told::Cut => Err(End::Cut),
        }
    }

    /// Sends what is left to say, and which calls have an unknown outcome.
    async fn close(&mut self, why: CloseWhy, unknown: &[CallId]) -> Step {
        if why != CloseWhy::SlowConsumer {
            self.send_events(usize::MAX).await?;
            let code = code_of(why);
            for call in unknown {
                if let Some(waiting) = self.calls.remove(call) {
                    let failure = Failure::new(code, detail(code));
                    self.fail(&waiting.id(), &failure).await?;
                }
            }
        }
        Err(End::Close(why))
    }

    fn run(&mut self, call: CallId) {
        let Some(Call::Asked(request)) = self.calls.remove(&call) else {
            return;
        };
        let Some(session) = self.session else { return };
        let id = request.id.clone();
        self.calls.insert(call, Call::Runs { id });
        let (daemon, by) = (self.context.daemon.clone(), self.by.clone());
        let outcomes = self
            .outcomes
            .get_or_insert_with(|| mpsc::channel(OUTCOMES_MAX));
        let (board, done) = (self.context.sockets.board.clone(), outcomes.0.clone());
        rt::spawn(async move {
            let outcome = calls::run(daemon, session, by, request).await;
            if done.send((call, outcome)).await.is_err() {
                // The socket is over; policy knows whether anybody is owed an answer.
                let input = Input::Answered(call);
                let _gone = board.send(Feed { session, input }).await;
            }
        });
    }

    async fn done(&mut self, call: CallId, outcome: Outcome) -> Step {
        if let Some(Call::Runs { id }) = self.calls.remove(&call) {
            self.calls.insert(call, Call::Done { id, outcome });
        }
        let Some(session) = self.session else {
            return Ok(());
        };
        self.feed(session, Input::Answered(call)).await
    }

    async fn deliver(&mut self, call: CallId) -> Step {
        let Some(Call::Done { id, outcome }) = self.calls.remove(&call) else {
            return Ok(());
        };
        // What happened before the answer is told before it.
        self.send_events(usize::MAX).await?;
        match outcome {
            Ok(result) => self.send(words::answer(&id, &result)).await,
            Err(failure) => self.fail(&id, &failure).await,
        }
    }

    /// Sends on what is on the tape.
    async fn send_events(&mut self, at_most: usize) -> Step {
        for _ in 0..at_most {
            let Some(Granted {
                tape,
                cursor: Some(cursor),
                moved,
            }) = &mut self.granted
            else {
                return Ok(());
            };
            match tape.read(cursor) {
                Found::Frame(frame) => self.send(frame).await?,
                Found::Missing(missed) => self.gap(Some(missed)).await?,
                Found::Nothing => {
                    moved.mark_unchanged();
                    // It may have moved in between.
                    if matches!(tape.read(&mut cursor.clone()), Found::Nothing) {
                        return Ok(());
                    }
                }
            }
        }
        if let Some(granted) = &mut self.granted {
            granted.moved.mark_changed();
        }
        Ok(())
    }

    /// Says that events are missing, and how the session is now.
    async fn gap(&mut self, missed: Option<u64>) -> Step {
        let Some(granted) = &mut self.granted else {
            return Ok(());
        };
        // What is still there is in the report as well: it goes on behind it.
        granted.cursor = Some(granted.tape.end());
        let at = granted.tape.position();
        let note = Notification::Gap(GapNote { at, missed });
        self.send(words::notification(&note)).await?;
        self.snapshot().await
    }

    async fn snapshot(&mut self) -> Step {
        let (Some(granted), Some(session)) = (&self.granted, self.session) else {
            return Ok(());
        };
        let at = granted.tape.position();
        let report = self.context.daemon.report(session).await;
        let report = report.map_err(|_| End::Close(CloseWhy::NoSuchSession))?;
        let note = Notification::Snapshot(SnapshotNote {
            at,
            report: Box::new(report),
        });
        self.send(words::notification(&note)).await
    }

    async fn fail(&mut self, id: &Value, failure: &Failure) -> Step {
        self.send(words::failure(id, failure)).await
    }

    async fn send(&mut self, text: ByteString) -> Step {
        let sent = timeout(WRITE_TIMEOUT, self.out.text(text)).await;
        self.written(sent.ok().map(|sent| sent.is_ok())).await
    }

    /// `None`: it could not be written in time.
    async fn written(&mut self, sent: Option<bool>) -> Step {
        match sent {
            Some(true) => Ok(()),
            Some(false) => Err(End::Closed(Farewell::Lost)),
            None => {
                tracing::info!(
                    socket = self.number.0,
                    "closing a socket whose client does not read"
                );
                if let Some(session) = self.session {
                    self.feed(session, Input::Stuck(self.number)).await?;
                }
                Err(End::Close(CloseWhy::SlowConsumer))
            }
        }
    }

    async fn feed(&self, session: SessionId, input: Input) -> Step {
        let fed = self
            .context
            .sockets
            .board
            .send(Feed { session, input })
            .await;
        fed.map_err(|_| End::Close(CloseWhy::Draining))
    }
}

fn words_of(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("a welcome has no maps with odd keys")
}
