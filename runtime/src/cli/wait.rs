//! `wait`: until a session is as somebody wants it, with an exit code for each way it can end.
//!
//! Fed by the session's events and by reports that are read when one comes: nothing is asked at
//! intervals, and nothing of it is use of the session. Invariant: events are subscribed to before
//! the first look, so what is waited for cannot go by in between; and "never" is said only of what
//! nothing that runs or waits can bring about.

use std::time::Duration;

use drowse_client::{Client, ClientError, EventStream, EventsQuery};
use drowse_messages::{SessionEvent, SessionId, SessionReport, SessionState};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::cli::again::{followed_on, of_either_daemon};
use crate::cli::args::{Awaited, WaitArgs};
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::render::{cut, long};
use crate::exit::Exit;

/// 160 characters of an error: two lines of a terminal.
const ERROR_CHARS_MAX: usize = 160;

/// How a session stands to what is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Reached,
    NotYet,
    /// Nothing that runs or waits will bring it about.
    Never(String),
}

/// What became of the wait.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    session: SessionId,
    name: &'a str,
    #[serde(rename = "for")]
    awaited: &'static str,
    /// `reached`, `timed_out` or `never`.
    outcome: &'static str,
    /// What the session is; `None`: removed.
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

pub(crate) async fn run(
    client: &Client,
    args: &WaitArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let query = EventsQuery {
        session: Some(args.id.clone()),
        after: None,
    };
    let events = client.events(&query).await?;
    let report = of_either_daemon(async || client.session(&args.id).await).await?;
    let mut wait = Wait {
        client,
        awaited: args.awaited,
        session: report.id.to_string(),
        report,
        removed: false,
    };
    let deadline = args.timeout.and_then(|limit| begun.checked_add(limit));
    let standing = tokio::select! {
        // A wait for what is so already returns at once, whatever the time.
        biased;
        standing = wait.until_told(events) => Some(standing?),
        () = passed(deadline) => None,
    };
    wait.tell(standing, begun.elapsed(), console)
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

struct Wait<'a> {
    client: &'a Client,
    awaited: Awaited,
    session: String,
    /// The newest one.
    report: SessionReport,
    removed: bool,
}

impl Wait<'_> {
    /// Until it is reached, or never will be.
    async fn until_told(&mut self, mut events: EventStream) -> Result<Standing, Failure> {
        let mut standing = standing(self.awaited, &self.report);
        while standing == Standing::NotYet {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) | Err(_) => {
                    let query = EventsQuery {
                        session: Some(self.session.clone()),
                        after: events.last_seq(),
                    };
                    match followed_on(self.client, &query).await {
                        Some(Ok(next)) => events = next,
                        Some(Err(_)) => return Ok(self.is_removed()),
                        None => return Err(Failure::new(Exit::NoDaemon, "the daemon ended")),
                    }
                    continue;
                }
            };
            standing = match said(self.awaited, &event.what) {
                Said::Removed => self.is_removed(),
                Said::Reached => Standing::Reached,
                Said::Nothing => Standing::NotYet,
                Said::Look => match self.client.session(&self.session).await {
                    Ok(report) => {
                        self.report = report;
                        self::standing(self.awaited, &self.report)
                    }
                    Err(error) => self.gone(error)?,
                },
            };
        }
        Ok(standing)
    }

    fn gone(&mut self, error: ClientError) -> Result<Standing, Failure> {
        match error.code() {
            Some("no_such_session") => Ok(self.is_removed()),
            // The daemon is ending: its stream ends next, and its successor is asked.
            Some("draining") | None => Ok(Standing::NotYet),
            Some(_) => Err(error.into()),
        }
    }

    fn is_removed(&mut self) -> Standing {
        self.removed = true;
        if self.awaited == Awaited::Ended {
            Standing::Reached
        } else {
            Standing::Never("the session was removed".to_owned())
        }
    }

    /// `None`: the time was over first.
    fn tell(
        &self,
        standing: Option<Standing>,
        waited: Duration,
        console: &mut Console<'_>,
    ) -> Result<Exit, Failure> {
        let (exit, outcome, why) = match standing {
            Some(Standing::Reached) => (Exit::Ok, "reached", None),
            Some(Standing::Never(why)) => (Exit::Error, "never", Some(why)),
            Some(Standing::NotYet) | None => {
                let (state, waited) = (self.report.state.code(), long(waited));
                let why = format!("it is {state} after {waited}");
                (Exit::WaitTimedOut, "timed_out", Some(why))
            }
        };
        let state = (!self.removed).then(|| self.report.state.code());
        if let Some(why) = &why {
            console.tell(&format!("not {}: {why}", self.awaited.in_words()))?;
        }
        if console.json {
            console.object(&Outcome {
                session: self.report.id,
                name: &self.report.name,
                awaited: self.awaited.code(),
                outcome,
                state,
                why,
            })?;
        } else if exit == Exit::Ok {
            writeln!(console.out, "{}", state.unwrap_or("removed"))?;
            console.out.flush()?;
        }
        Ok(exit)
    }
}

/// What an event says by itself.
enum Said {
    Reached,
    Removed,
    /// It may have changed how the session stands: look.
    Look,
    Nothing,
}

/// What an event tells of may be gone again by the time a report is read.
fn said(awaited: Awaited, event: &SessionEvent) -> Said {
    match (awaited, event) {
        (_, SessionEvent::Removed) => Said::Removed,
        (Awaited::Approval, SessionEvent::Asked { .. })
        | (Awaited::Ended, SessionEvent::Released { .. }) => Said::Reached,
        (Awaited::Released, SessionEvent::StateChanged { to, .. })
            if *to == SessionState::Released =>
        {
            Said::Reached
        }
        // Pieces of an answer come by the hundred and change nothing.
        (_, SessionEvent::Output { .. }) => Said::Nothing,
        _ => Said::Look,
    }
}

/// What a report says of it.
fn standing(awaited: Awaited, report: &SessionReport) -> Standing {
    use SessionState as S;
    let (state, waits) = (report.state, report.queued > 0);
    // A message that waits starts the process, unless that has failed for good.
    let comes = state.is_awake() || waits && state != S::Failing;
    let reached = match awaited {
        Awaited::Idle => {
            let rests = [S::Resting, S::New, S::Released, S::Stopped, S::Interrupted];
            rests.contains(&state) && !waits
        }
        Awaited::Turn => !waits && !matches!(state, S::Working | S::NeedsYou),
        Awaited::Released => state == S::Released,
        Awaited::Approval => state == S::NeedsYou,
        Awaited::Ended => !(state.is_awake() || waits && state == S::New),
    };
    if reached {
        return Standing::Reached;
    }
    if comes {
        return Standing::NotYet;
    }
    let error = report.last_error.as_deref().filter(|_| state == S::Failing);
    let why = match (error, awaited) {
        (Some(error), _) => cut(error, ERROR_CHARS_MAX),
        (None, Awaited::Released) => "there is no process to release".to_owned(),
        (None, Awaited::Idle | Awaited::Turn | Awaited::Approval | Awaited::Ended) => {
            "nothing is under way".to_owned()
        }
    };
    Standing::Never(format!("it is {}: {why}", state.code()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::render::tests::{failing, released, resting};

    fn in_state(state: SessionState, queued: usize) -> SessionReport {
        let mut report = resting();
        report.state = state;
        report.queued = queued;
        report
    }

    /// Behaviour 96: every state has an answer to every wait, and only what nothing under way can
    /// bring about is called never.
    #[test]
    fn each_state_stands_to_each_wait() {
        // i: idle, r: released, t: turn, a: approval, e: ended. Upper case: with a message that
        // waits.
        const WAITS: [(char, Awaited); 5] = [
            ('i', Awaited::Idle),
            ('r', Awaited::Released),
            ('t', Awaited::Turn),
            ('a', Awaited::Approval),
            ('e', Awaited::Ended),
        ];
        let reached = |state, queued| {
            let report = in_state(state, queued);
            let is = |wanted: fn(&Standing) -> bool| {
                let fit = |(_, awaited): &&(char, Awaited)| wanted(&standing(*awaited, &report));
                WAITS
                    .iter()
                    .filter(fit)
                    .map(|(letter, _)| *letter)
                    .collect::<String>()
            };
            let never = is(|it| matches!(it, Standing::Never(_)));
            (is(|it| *it == Standing::Reached), never)
        };
        for (state, quiet, queued) in [
            (SessionState::New, ("ite", "ra"), ("", "")),
            (SessionState::Starting, ("t", ""), ("", "")),
            (SessionState::Working, ("", ""), ("", "")),
            (SessionState::NeedsYou, ("a", ""), ("a", "")),
            (SessionState::Waiting, ("t", ""), ("", "")),
            (SessionState::Resting, ("it", ""), ("", "")),
            (SessionState::Releasing, ("t", ""), ("", "")),
            (SessionState::Released, ("irte", "a"), ("re", "")),
            (SessionState::Stopping, ("t", ""), ("", "")),
            (SessionState::Stopped, ("ite", "ra"), ("e", "")),
            (SessionState::Interrupted, ("ite", "ra"), ("e", "")),
            (SessionState::Failing, ("te", "ira"), ("e", "irta")),
        ] {
            let seen = |queued| reached(state, queued);
            let as_text = |(a, b): (&str, &str)| (a.to_owned(), b.to_owned());
            assert_eq!(seen(0), as_text(quiet), "{state:?}, nothing waits");
            assert_eq!(seen(1), as_text(queued), "{state:?}, a message waits");
        }
    }

    #[test]
    fn never_says_why() {
        let Standing::Never(why) = standing(Awaited::Turn, &failing()) else {
            panic!("messages of a failing session wait for a person");
        };
        assert!(why.contains("no such model"), "{why}");
        let Standing::Never(why) = standing(Awaited::Approval, &released()) else {
            panic!("nobody asks in a session that sleeps");
        };
        assert!(why.contains("released"), "{why}");
    }
}
