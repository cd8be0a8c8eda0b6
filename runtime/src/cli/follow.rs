//! `logs` and `events`: what happened, and what happens.

use std::time::Duration;

use drowse_client::{Client, EventStream, EventsQuery};
use drowse_messages::{Event, SessionEvent};
use tokio::time::timeout;

use crate::cli::args::{EventsArgs, LogsArgs};
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::render::event_line;
use crate::exit::Exit;

/// 2 s of silence end a replay: kept events come without a pause, and the last one of them may
/// have been dropped from the store since its number was told.
const REPLAY_SILENCE_MAX: Duration = Duration::from_secs(2);

/// 1000 events of one session: as many as the daemon gives at once.
const SESSION_EVENTS_MAX: usize = 1000;

pub(crate) async fn logs(
    client: &Client,
    args: &LogsArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    for event in client.log(&args.id, args.limit).await? {
        print(&event, false, console)?;
    }
    console.out.flush()?;
    Ok(Exit::Ok)
}

pub(crate) async fn events(
    client: &Client,
    args: &EventsArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    match (&args.session, args.follow) {
        (Some(id), false) => {
            let id = id.clone();
            let limit = SESSION_EVENTS_MAX;
            logs(client, &LogsArgs { id, limit }, console).await
        }
        (session, follow) => {
            let session = session.clone();
            let with_session = session.is_none();
            let after = if follow { None } else { Some(0) };
            let events = client.events(&EventsQuery { session, after }).await?;
            if follow {
                live(events, with_session, console).await
            } else {
                kept(events, console).await
            }
        }
    }
}

/// Until Ctrl-C, or the daemon's end.
async fn live(
    mut events: EventStream,
    with_session: bool,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            event = events.next() => {
                let Some(event) = event? else {
                    return Err(Failure::new(Exit::NoDaemon, "the daemon ended"));
                };
                print(&event, with_session, console)?;
                console.out.flush()?;
            }
            _ = &mut interrupt => return Ok(Exit::Interrupted),
        }
    }
}

/// Up to the event that was the newest when we asked.
async fn kept(mut events: EventStream, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let mut newest = None;
    while let Ok(event) = timeout(REPLAY_SILENCE_MAX, events.next()).await {
        let Some(event) = event? else { break };
        if matches!(event.what, SessionEvent::Snapshot { .. }) {
            newest = Some(event.seq);
        } else {
            print(&event, true, console)?;
        }
        let done = match (&event.what, newest) {
            // The snapshot comes first and has the number of the newest one.
            (SessionEvent::Snapshot { .. }, Some(newest)) => newest == 0,
            (_, Some(newest)) => event.seq >= newest,
            (_, None) => false,
        };
        if done {
            break;
        }
    }
    console.out.flush()?;
    Ok(Exit::Ok)
}

fn print(event: &Event, with_session: bool, console: &mut Console<'_>) -> Result<(), Failure> {
    if console.json {
        serde_json::to_writer(&mut *console.out, event).map_err(std::io::Error::from)?;
        console.out.write_all(b"\n")?;
    } else {
        writeln!(console.out, "{}", event_line(event, with_session))?;
    }
    Ok(())
}
