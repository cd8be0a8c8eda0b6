//! `ps`, `show`, `explain`: look at sessions. Looking is never activity.

use drowse_client::{Client, ListQuery};
use drowse_messages::{SessionPage, SessionReport};

use crate::cli::args::PsArgs;
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::render;
use crate::exit::Exit;

/// 50 sleepers are listed unless all are asked for: a screen, of what may be 100,000.
const SLEEPERS_LISTED: usize = 50;

/// 200 sessions in a page: one answer of some 200 kB.
const PAGE_SESSIONS: usize = 200;

pub(crate) async fn ps(
    client: &Client,
    args: &PsArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let sleepers_max = if args.all {
        usize::MAX
    } else {
        SLEEPERS_LISTED
    };
    let page = listed(client, args, sleepers_max).await?;
    if console.json {
        console.object(&page)?;
        return Ok(Exit::Ok);
    }
    let view = console.view();
    let text = render::list(&page.sessions, &view) + &render::kept_table(&page.sessions, &view);
    console.out.write_all(text.as_bytes())?;
    console.out.flush()?;
    let listed = u64::try_from(page.sessions.len()).unwrap_or(u64::MAX);
    if page.total > listed {
        let more = page.total - listed;
        writeln!(console.err, "... and {more} more (drowse ps --all)")?;
    }
    Ok(Exit::Ok)
}

/// All awake ones and so many sleepers; the daemon gives the awake ones first.
async fn listed(
    client: &Client,
    args: &PsArgs,
    sleepers_max: usize,
) -> Result<SessionPage, Failure> {
    let mut query = ListQuery {
        limit: Some(PAGE_SESSIONS),
        state: args.state,
        ..ListQuery::default()
    };
    let mut sessions = Vec::new();
    let mut sleepers = 0;
    loop {
        let page = client.sessions(&query).await?;
        for session in page.sessions {
            let asleep = !session.state.is_awake();
            if asleep && sleepers == sleepers_max {
                continue;
            }
            sleepers += usize::from(asleep);
            sessions.push(session);
        }
        let enough = page.next.is_none() || sleepers == sleepers_max;
        if enough {
            return Ok(SessionPage {
                sessions,
                total: page.total,
                next: None,
            });
        }
        query.after = page.next;
    }
}

pub(crate) async fn show(
    client: &Client,
    id: &str,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    describe(client, id, console, render::show).await
}

pub(crate) async fn explain(
    client: &Client,
    id: &str,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    describe(client, id, console, render::explain).await
}

async fn describe(
    client: &Client,
    id: &str,
    console: &mut Console<'_>,
    text: fn(&SessionReport, &render::View<'_>) -> String,
) -> Result<Exit, Failure> {
    let report = client.session(id).await?;
    if console.json {
        console.object(&report)?;
    } else {
        let text = text(&report, &console.view());
        console.out.write_all(text.as_bytes())?;
        console.out.flush()?;
    }
    Ok(Exit::Ok)
}
