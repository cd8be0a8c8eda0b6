//! `logs` and `events`: what happened, and what happens.

use std::time::Duration;

use drowse_client::{Client, EventStream, EventsQuery};
use drowse_messages::{Event, SessionEvent};
use tokio::time::timeout;

use crate::cli::again::of_next_daemon;
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
            if follow {
                return live(client, session, console).await;
            }
            let after = Some(0);
            let events = client.events(&EventsQuery { session, after }).await?;
            kept(events, console).await
        }
    }
}

/// Until Ctrl-C, or the end of the last daemon.
async fn live(
    client: &Client,
    session: Option<String>,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let with_session = session.is_none();
    let mut query = EventsQuery {
        session,
        after: None,
    };
    let mut events = client.events(&query).await?;
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = &mut interrupt => return Ok(Exit::Interrupted),
        };
        if let Ok(Some(event)) = event {
            // The next daemon begins with how things stand, too.
            if query.after.is_none() || !matches!(event.what, SessionEvent::Snapshot { .. }) {
                print(&event, with_session, console)?;
                console.out.flush()?;
            }
            query.after = query.after.max(Some(event.seq));
            continue;
        }
        let back = tokio::select! {
            back = of_next_daemon(async || client.events(&query).await) => back,
            _ = &mut interrupt => return Ok(Exit::Interrupted),
        };
        let ended = || Failure::new(Exit::NoDaemon, "the daemon ended");
        events = back.ok_or_else(ended)?;
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
