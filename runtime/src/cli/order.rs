//! `release`, `wake`, `stop`, `rm`: orders for sessions, waited for until they are carried out.
//!
//! Fed by ids, several at a time. Invariant: events are subscribed to before the order is given,
//! so its end cannot be missed; and what is told is what the daemon reported, never what was asked
//! for. A wait is bounded by the daemon's own next deadline and some spare time.

use std::time::Duration;

use drowse_client::{Client, ClientError, EventStream, EventsQuery};
use drowse_messages::{
    EndReport, KeptProcess, SessionEvent, SessionId, SessionReport, SessionState,
};
use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::cli::args::SessionsArgs;
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::render::{self, bytes, count, one_line};
use crate::exit::Exit;

/// 30 s beyond the session's next deadline: the walks and signals of a teardown on a loaded
/// machine.
const SPARE: Duration = Duration::from_secs(30);

/// 10 min of a session's own next deadline are waited for: graces longer than that are not.
const RUNG_MAX: Duration = Duration::from_secs(600);

/// 8 sessions at a time: a teardown is mostly waiting, and each takes two connections.
const AT_ONCE: usize = 8;

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Release,
    Wake {
        fresh: bool,
    },
    /// `all`: what the session keeps, too.
    Stop {
        all: bool,
    },
    Remove,
}

/// What became of one order.
#[derive(Debug, Serialize)]
struct Outcome {
    session: SessionId,
    name: String,
    /// One word.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<EndReport>,
    /// Kept processes that it ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept_ended: Vec<KeptProcess>,
}

pub(crate) async fn run(
    client: &Client,
    order: Order,
    args: &SessionsArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let mut exit = Exit::Ok;
    for ids in args.ids.chunks(AT_ONCE) {
        let orders = ids.iter().map(|id| one(client, order, id, !args.no_wait));
        for (id, result) in ids.iter().zip(join_all(orders).await) {
            exit = exit.or(report(id, result, args.ids.len() > 1, console)?);
        }
    }
    Ok(exit)
}

fn report(
    id: &str,
    result: Result<Outcome, Failure>,
    several: bool,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let which = if several {
        format!("{id}: ")
    } else {
        String::new()
    };
    match result {
        Ok(outcome) if console.json => console.object(&outcome)?,
        Ok(outcome) => writeln!(console.out, "{which}{}", words(&outcome))?,
        Err(Failure::Told { exit, text }) => {
            console.tell(&format!("{which}{text}"))?;
            return Ok(exit);
        }
        Err(Failure::NoReader) => return Err(Failure::NoReader),
    }
    Ok(Exit::Ok)
}

/// `released, freed 212 MB (3 processes)`.
fn words(outcome: &Outcome) -> String {
    let mut words = outcome.outcome.to_owned();
    if let Some(end) = &outcome.end {
        let freed = bytes(end.released_bytes);
        let processes = count(end.processes.len(), "process", "processes");
        words.push_str(&format!(", freed {freed} ({processes})"));
        words.push_str(&named("; kept: ", &end.kept));
    }
    words + &named("; ended what was kept: ", &outcome.kept_ended)
}

fn named(heading: &str, kept: &[KeptProcess]) -> String {
    let names: Vec<String> = kept
        .iter()
        .map(|kept| render::process(&kept.process))
        .collect();
    let heading = if names.is_empty() { "" } else { heading };
    format!("{heading}{}", names.join(", "))
}

async fn one(client: &Client, order: Order, id: &str, wait: bool) -> Result<Outcome, Failure> {
    let before = client.session(id).await?;
    let session = before.id.to_string();
    let keeps = before.kept.iter().any(|kept| kept.outlives);
    if let Some(already) = order.already(before.state, keeps) {
        return Ok(outcome(&before, already, None));
    }
    if !wait {
        give(client, order, &session).await?;
        return Ok(outcome(&before, "accepted", None));
    }
    let query = EventsQuery {
        session: Some(session.clone()),
        after: None,
    };
    let events = client.events(&query).await?;
    give(client, order, &session).await?;
    Wait {
        client,
        order,
        before,
        session,
        end: None,
        last_error: None,
        kept_ended: Vec::new(),
    }
    .until_done(events)
    .await
}

/// Gives an order, and says what stands in its way.
pub(crate) async fn give(client: &Client, order: Order, session: &str) -> Result<(), Failure> {
    let given = match order {
        Order::Release => client.release(session).await,
        Order::Wake { fresh } => client.wake(session, fresh).await,
        Order::Stop { all: false } => client.stop(session).await,
        Order::Stop { all: true } => client.stop_all(session).await,
        Order::Remove => client.remove(session).await,
    };
    let Err(error) = given else { return Ok(()) };
    Err(match (error.code(), &error) {
        (Some("held"), ClientError::Problem(problem)) => {
            let holds = holds(client, session)
                .await
                .unwrap_or_else(|| problem.held_by.clone());
            Failure::new(
                Exit::Held,
                format!("held, not released:\n{}", indented(&holds)),
            )
        }
        (Some("cannot_resume"), _) => Failure::from(error).with(&match order {
            Order::Wake { .. } => fresh_advice(session),
            Order::Release | Order::Stop { .. } | Order::Remove => {
                format!("drowse stop {session} ends it nevertheless")
            }
        }),
        _ => error.into(),
    })
}

fn fresh_advice(session: &str) -> String {
    format!("drowse wake --fresh {session} begins a new conversation")
}

/// The holds with their ages and ends; `None`: there is nothing to tell beyond the refusal.
async fn holds(client: &Client, session: &str) -> Option<Vec<String>> {
    let report = client.session(session).await.ok()?;
    let holds = report.awake?.holds;
    (!holds.is_empty()).then(|| holds.iter().map(render::hold).collect())
}

fn indented(lines: &[String]) -> String {
    let lines: Vec<String> = lines
        .iter()
        .map(|line| format!("  {}", one_line(line)))
        .collect();
    lines.join("\n")
}

fn outcome(of: &SessionReport, word: &'static str, end: Option<EndReport>) -> Outcome {
    Outcome {
        session: of.id,
        name: of.name.clone(),
        outcome: word,
        end,
        kept_ended: Vec::new(),
    }
}

impl Order {
    /// The word for a session that is as the order wants it already.
    fn already(self, state: SessionState, keeps: bool) -> Option<&'static str> {
        // One that is starting may be waiting to, which an order cuts short.
        let on_its_way = matches!(
            state,
            SessionState::Starting | SessionState::Releasing | SessionState::Stopping
        );
        match self {
            Self::Release if !state.is_awake() => Some("has no process already"),
            Self::Wake { .. } if state.is_awake() && !on_its_way => Some("is awake already"),
            Self::Stop { all } if state == SessionState::Stopped && !(all && keeps) => {
                Some("is stopped already")
            }
            Self::Release | Self::Wake { .. } | Self::Stop { .. } | Self::Remove => None,
        }
    }

    /// True when a session is as the order wants it.
    fn reached(self, report: &SessionReport) -> bool {
        let state = report.state;
        let keeps = report.kept.iter().any(|kept| kept.outlives);
        match self {
            Self::Release => !state.is_awake(),
            Self::Stop { all } => !(state.is_awake() || all && keeps),
            Self::Wake { .. } => matches!(
                state,
                SessionState::Working
                    | SessionState::NeedsYou
                    | SessionState::Waiting
                    | SessionState::Resting
            ),
            Self::Remove => false,
        }
    }

    /// What is told once it is carried out.
    const fn done(self) -> &'static str {
        match self {
            Self::Release => "released",
            Self::Wake { .. } => "awake",
            Self::Stop { .. } => "stopped",
            Self::Remove => "removed",
        }
    }
}

/// What an event means for a wait.
#[derive(Debug)]
enum Sign {
    /// It is done.
    Done(&'static str),
    /// It will not be done.
    Failed(Failure),
    /// It gets on, or events were lost: look how it stands.
    Look,
    /// Nothing.
    Nothing,
}

/// How it stands.
enum Progress {
    Done(&'static str),
    Until(Instant),
}

/// One order that was given, and what has been heard of it.
struct Wait<'a> {
    client: &'a Client,
    order: Order,
    before: SessionReport,
    session: String,
    end: Option<EndReport>,
    last_error: Option<String>,
    kept_ended: Vec<KeptProcess>,
}

impl Wait<'_> {
    async fn until_done(mut self, mut events: EventStream) -> Result<Outcome, Failure> {
        let mut progress = self.look().await?;
        loop {
            let deadline = match progress {
                Progress::Done(word) => {
                    return Ok(Outcome {
                        kept_ended: self.kept_ended,
                        ..outcome(&self.before, word, self.end)
                    });
                }
                Progress::Until(deadline) => deadline,
            };
            let event = timeout_at(deadline, events.next())
                .await
                .map_err(|_| self.too_late())??;
            let Some(event) = event else {
                let text = format!("the daemon ended before {} was done", self.session);
                return Err(Failure::new(Exit::Temporary, text));
            };
            progress = match self.sign(event.what) {
                Sign::Done(word) => Progress::Done(word),
                Sign::Failed(failure) => return Err(failure),
                Sign::Look => self.look().await?,
                Sign::Nothing => Progress::Until(deadline),
            };
        }
    }

    fn sign(&mut self, event: SessionEvent) -> Sign {
        match (self.order, event) {
            (_, SessionEvent::KeptEnded { processes, .. }) => {
                self.kept_ended.extend(processes);
                Sign::Look
            }
            // What is kept may end after it.
            (Order::Stop { all: true }, SessionEvent::Released { end }) => {
                self.end = Some(*end);
                Sign::Look
            }
            (Order::Release | Order::Stop { .. }, SessionEvent::Released { end }) => {
                self.end = Some(*end);
                Sign::Done(self.order.done())
            }
            // A removal tells of the process's end first, and of its own afterwards.
            (Order::Remove, SessionEvent::Released { end }) => {
                self.end = Some(*end);
                Sign::Nothing
            }
            (_, SessionEvent::Removed) => Sign::Done(Order::Remove.done()),
            (Order::Wake { .. }, SessionEvent::Ready { resumed: true, .. }) => {
                Sign::Done("awake, conversation resumed")
            }
            (Order::Wake { .. }, SessionEvent::Ready { resumed: false, .. }) => {
                Sign::Done("awake, new conversation")
            }
            (
                Order::Wake { .. },
                SessionEvent::StartFailed {
                    error, retry_in_ms, ..
                },
            ) => {
                self.last_error = Some(error);
                if retry_in_ms.is_some() {
                    Sign::Look
                } else {
                    Sign::Failed(self.cannot_start())
                }
            }
            (
                Order::Wake { .. },
                SessionEvent::StateChanged {
                    to: SessionState::Failing,
                    ..
                },
            ) => Sign::Failed(self.cannot_start()),
            (_, SessionEvent::ReleaseFailed { survivors }) => {
                let left = count(survivors.len(), "process", "processes");
                let text = format!("{left} could not be ended; it is tried again");
                Sign::Failed(Failure::new(Exit::Error, text).with(&self.explain_advice()))
            }
            (_, SessionEvent::StateChanged { .. } | SessionEvent::Gap { .. }) => Sign::Look,
            _ => Sign::Nothing,
        }
    }

    /// How it stands now, told by a report.
    async fn look(&mut self) -> Result<Progress, Failure> {
        let report = match self.client.session(&self.session).await {
            Ok(report) => report,
            Err(error) if error.code() == Some("no_such_session") => {
                return Ok(Progress::Done(Order::Remove.done()));
            }
            Err(error) => return Err(error.into()),
        };
        if self.order.reached(&report) {
            let has_process = self.before.state.is_awake();
            if has_process && matches!(self.order, Order::Release | Order::Stop { .. }) {
                // The report may be ahead of the event that tells of the end.
                self.end = report.end;
            }
            return Ok(Progress::Done(self.order.done()));
        }
        // Only while something is under way is the session's next deadline one of this order.
        let under_way = matches!(
            report.state,
            SessionState::Starting | SessionState::Releasing | SessionState::Stopping
        );
        let next = report.awake.and_then(|awake| awake.next_deadline_ms);
        let next = Duration::from_millis(next.filter(|_| under_way).unwrap_or(0));
        Ok(Progress::Until(Instant::now() + next.min(RUNG_MAX) + SPARE))
    }

    fn cannot_start(&self) -> Failure {
        let error = self.last_error.as_deref().unwrap_or("see drowse explain");
        let text = format!("could not be started: {}", one_line(error));
        if error.contains("cannot resume") {
            Failure::new(Exit::CannotResume, text).with(&fresh_advice(&self.session))
        } else {
            Failure::new(Exit::Error, text).with(&self.explain_advice())
        }
    }

    fn too_late(&self) -> Failure {
        let text = format!("not {} in time; it may be later", self.order.done());
        Failure::new(Exit::Timeout, text).with(&self.explain_advice())
    }

    fn explain_advice(&self) -> String {
        format!("drowse explain {} says more", self.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::render::tests::{released, resting};

    fn wait(client: &Client, order: Order) -> Wait<'_> {
        let before = resting();
        Wait {
            client,
            order,
            session: before.id.to_string(),
            before,
            end: None,
            last_error: None,
            kept_ended: Vec::new(),
        }
    }

    fn released_event() -> SessionEvent {
        let end = Box::new(released().end.unwrap());
        SessionEvent::Released { end }
    }

    /// Behaviour 98: a release by hand says what it freed.
    #[test]
    fn a_release_says_what_it_freed() {
        let client = Client::unix("/nowhere");
        let mut wait = wait(&client, Order::Release);
        assert!(matches!(
            wait.sign(released_event()),
            Sign::Done("released")
        ));
        let outcome = outcome(&wait.before, "released", wait.end);
        assert_eq!(words(&outcome), "released, freed 212 MB (3 processes)");
    }

    #[test]
    fn a_removal_is_done_when_the_session_is_gone_not_when_its_process_is() {
        let client = Client::unix("/nowhere");
        let mut wait = wait(&client, Order::Remove);
        assert!(matches!(wait.sign(released_event()), Sign::Nothing));
        assert!(matches!(
            wait.sign(SessionEvent::Removed),
            Sign::Done("removed")
        ));
        assert!(wait.end.is_some(), "what it freed is still told");
    }

    #[test]
    fn a_wake_fails_only_when_no_further_try_follows() {
        let client = Client::unix("/nowhere");
        let failed = |retry_in_ms, error: &str| SessionEvent::StartFailed {
            incarnation: drowse_messages::Incarnation(1),
            error: error.to_owned(),
            retry_in_ms,
        };
        let mut wait = wait(&client, Order::Wake { fresh: false });
        assert!(matches!(
            wait.sign(failed(Some(1000), "exit 1")),
            Sign::Look
        ));
        let exit_of = |sign| {
            let Sign::Failed(Failure::Told { exit, .. }) = sign else {
                panic!("not a failure: {sign:?}");
            };
            exit
        };
        assert_eq!(exit_of(wait.sign(failed(None, "exit 1"))), Exit::Error);
        let gone = failed(None, "cannot resume: no such conversation");
        assert_eq!(exit_of(wait.sign(gone)), Exit::CannotResume);
    }

    #[test]
    fn an_order_for_what_is_so_already_is_no_failure() {
        let wake = Order::Wake { fresh: false };
        let is_so = |order: Order, state| order.already(state, true).is_some();
        assert!(is_so(Order::Release, SessionState::Released));
        assert!(!is_so(Order::Release, SessionState::Releasing));
        assert!(is_so(wake, SessionState::Resting));
        assert!(!is_so(wake, SessionState::Releasing));
        assert!(!is_so(wake, SessionState::Starting), "it may be waiting to");
        let (stop, all) = (Order::Stop { all: false }, Order::Stop { all: true });
        assert!(!is_so(stop, SessionState::Released));
        assert!(is_so(stop, SessionState::Stopped));
        assert!(!is_so(all, SessionState::Stopped), "it keeps something");
        assert!(all.already(SessionState::Stopped, false).is_some());
    }
}
