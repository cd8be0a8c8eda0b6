//! `restart ID`: a session goes on in its conversation with another environment.
//!
//! Invariants: no value of the environment is shown, and what a person does not want in the list of
//! processes need not be on the command line; what is told is what the daemon reported. A session
//! that is busy is not waited for: that it waits is the result.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use drowse_client::{Client, EventStream, EventsQuery};
use drowse_messages::{RestartSession, SessionEvent, SessionReport, SessionState};
use serde::Serialize;
use tokio::time::timeout;

use super::args::RestartArgs;
use super::console::Console;
use super::failure::Failure;
use super::render::one_line;
use crate::exit::Exit;

/// 2 min between two events of a restart: each rung of a teardown and each try to start is one.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// 1 MiB: an environment has a few dozen lines.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What became of it.
#[derive(Serialize)]
struct Outcome {
    session: String,
    /// One word.
    outcome: &'static str,
    /// What it waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held_by: Vec<String>,
}

pub(super) async fn run(
    client: &Client,
    id: &str,
    args: &RestartArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let wanted = RestartSession {
        env: environment(args)?,
    };
    let before = client.session(id).await?;
    let session = before.id.to_string();
    let query = EventsQuery {
        session: Some(session.clone()),
        after: None,
    };
    let events = client.events(&query).await?;
    let restarted = client.restart_session(&session, &wanted).await;
    let restarted = restarted.map_err(|error| match error.code() {
        Some("cannot_resume") => {
            Failure::from(error).with("nothing was changed; its conversation would have been lost")
        }
        Some(_) | None => error.into(),
    })?;
    let outcome = if restarted.waits {
        "waits"
    } else if args.no_wait {
        "accepted"
    } else {
        until_ready(client, &before, events).await?
    };
    let outcome = Outcome {
        session,
        outcome,
        held_by: restarted.held_by,
    };
    print(&outcome, console)
}

fn print(outcome: &Outcome, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if console.json {
        console.object(outcome)?;
        return Ok(Exit::Ok);
    }
    let text = match outcome.outcome {
        "waits" => {
            let held_by = one_line(&outcome.held_by.join(", ")).into_owned();
            format!("waits until it is at rest, held by {held_by}")
        }
        other => other.to_owned(),
    };
    writeln!(console.out, "{text}")?;
    Ok(Exit::Ok)
}

/// Later ones win, and those of the command line over those of the file.
fn environment(args: &RestartArgs) -> Result<BTreeMap<String, String>, Failure> {
    let mut env = BTreeMap::new();
    if let Some(path) = &args.env_file {
        for line in read(path)?.lines() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                env.extend([variable(line)?]);
            }
        }
    }
    for text in &args.env {
        env.extend([variable(text)?]);
    }
    Ok(env)
}

fn read(path: &Path) -> Result<String, Failure> {
    let wrong = |why: &str| {
        let text = format!("cannot read {}: {why}", path.display());
        Failure::new(Exit::Usage, text)
    };
    let size = fs::metadata(path).map_err(|error| wrong(&error.to_string()))?;
    if size.len() > FILE_BYTES_MAX {
        return Err(wrong("it is larger than 1 MiB"));
    }
    fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))
}

/// `NAME=VALUE`, or `NAME` for the value it has here. A value is never repeated.
fn variable(text: &str) -> Result<(String, String), Failure> {
    let wrong = |why: String| Failure::new(Exit::Usage, why);
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => {
            let here = std::env::var(text);
            let here = here.map_err(|_| wrong(format!("there is no variable {text:?} here")));
            (text, here?)
        }
    };
    if name.is_empty() {
        return Err(wrong("a variable has no name before its \"=\"".to_owned()));
    }
    Ok((name.to_owned(), value))
}

/// Waits for the agent that has the new environment.
async fn until_ready(
    client: &Client,
    before: &SessionReport,
    mut events: EventStream,
) -> Result<&'static str, Failure> {
    let session = before.id.to_string();
    let advice = format!("drowse explain {session} says more");
    loop {
        let event = timeout(SILENCE_MAX, events.next()).await.map_err(|_| {
            let text = "not restarted in time; it may be later";
            Failure::new(Exit::Timeout, text).with(&advice)
        })??;
        let Some(event) = event else {
            let text = format!("the daemon ended before {session} was restarted");
            return Err(Failure::new(Exit::Temporary, text));
        };
        if let Some(done) = sign(&event.what, before) {
            return done.map_err(|failure| failure.with(&advice));
        }
        if let SessionEvent::Gap { .. } = event.what {
            let now = client.session(&session).await?;
            if is_ready(now.state) && now.incarnation > before.incarnation {
                return Ok("restarted");
            }
        }
    }
}

/// What an event means for it; `None`: nothing yet.
fn sign(what: &SessionEvent, before: &SessionReport) -> Option<Result<&'static str, Failure>> {
    if let SessionEvent::Ready {
        incarnation,
        resumed,
    } = what
        && *incarnation > before.incarnation
    {
        return Some(Ok(match resumed {
            true => "restarted, conversation resumed",
            false => "restarted, new conversation",
        }));
    }
    let failed = |text: String| Some(Err(Failure::new(Exit::Error, text)));
    if let SessionEvent::StartFailed {
        error,
        retry_in_ms: None,
        ..
    } = what
    {
        return failed(format!("could not be started: {}", one_line(error)));
    }
    if let SessionEvent::ReleaseFailed { .. } = what {
        let text = "its former processes could not be ended; it is tried again";
        return failed(text.to_owned());
    }
    None
}

const fn is_ready(state: SessionState) -> bool {
    matches!(
        state,
        SessionState::Working
            | SessionState::NeedsYou
            | SessionState::Waiting
            | SessionState::Resting
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(env: &[&str], file: Option<&Path>) -> RestartArgs {
        RestartArgs {
            id: Some("fix".to_owned()),
            env: env.iter().map(ToString::to_string).collect(),
            env_file: file.map(Path::to_owned),
            no_wait: false,
        }
    }

    #[test]
    fn a_file_and_the_command_line_make_an_environment() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "# account\n\nKEY=from=file\n  OTHER=\n").unwrap();
        let env = environment(&args(&["KEY=given", "PATH"], Some(file.path()))).unwrap();
        assert_eq!(env["KEY"], "given");
        assert_eq!(env["OTHER"], "");
        assert_eq!(env["PATH"], std::env::var("PATH").unwrap());
    }

    /// A value that does not belong there is not shown.
    #[test]
    fn what_is_wrong_is_said_without_values() {
        for (env, said) in [
            ("=secret", "no name"),
            ("NO_SUCH_VARIABLE_HERE", "NO_SUCH_VARIABLE_HERE"),
        ] {
            let failure = environment(&args(&[env], None)).unwrap_err();
            let text = format!("{failure:?}");
            assert!(text.contains(said) && !text.contains("secret"), "{text}");
        }
        let missing = environment(&args(&[], Some(Path::new("/no/such/file")))).unwrap_err();
        assert!(format!("{missing:?}").contains("/no/such/file"));
    }
}
