//! `task`, `unhold`, `holds`: what is said of a session from inside its agent, or from beside it.
//!
//! Inside an agent the environment says where the daemon is, which session is meant and with what
//! right; `--session` speaks for another one, as everywhere else. Invariants: no daemon is started
//! by it, because what is told concerns a process that runs; the token is in no message.

use std::path::PathBuf;

use drowse_client::{Client, ListQuery};
use drowse_messages::{HoldId, HoldReport, NewTask, SessionReport};
use serde::Serialize;

use super::args::{Globals, OfSession, TaskVerb, UnholdArgs};
use super::console::Console;
use super::failure::Failure;
use super::{places, render};
use crate::exit::Exit;
use crate::kit::{SESSION_VARIABLE, SOCKET_VARIABLE, TOKEN_VARIABLE};

/// The name under which the daemon remembers the command line.
const CLIENT: &str = "drowse-cli";

/// 200 sessions in a page: one answer of some 200 kB.
const PAGE_SESSIONS: usize = 200;

/// Where a verb stands: inside an agent of a session, or beside all of them.
pub(super) struct Inside {
    socket: PathBuf,
    /// The session it is in, and its token.
    own: Option<(String, String)>,
}

/// A way to the daemon, and the session that is meant.
pub(super) struct Way {
    pub(super) client: Client,
    pub(super) session: String,
}

impl Inside {
    /// By the environment, which a place given by hand overrules: that is another daemon's.
    pub(super) fn of_process(globals: &Globals) -> Result<Self, Failure> {
        let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let by_hand = globals.socket.is_some() || globals.state_dir.is_some();
        let inside = variable(SESSION_VARIABLE)
            .zip(variable(TOKEN_VARIABLE))
            .zip(variable(SOCKET_VARIABLE))
            .filter(|_| !by_hand);
        if let Some((own, socket)) = inside {
            let (socket, own) = (socket.into(), Some(own));
            return Ok(Self { socket, own });
        }
        let paths = places(globals)?;
        paths.check()?;
        let (socket, own) = (paths.socket, None);
        Ok(Self { socket, own })
    }

    /// The way for one session. One that is named is spoken for by whoever runs this, not by the
    /// agent.
    pub(super) fn way(&self, of: &OfSession) -> Result<Way, Failure> {
        let own = self.own_way();
        match (&of.session, own) {
            (Some(session), Some(own)) if *session == own.session => Ok(own),
            (Some(session), _) => Ok(Way {
                client: self.beside(),
                session: session.clone(),
            }),
            (None, Some(own)) => Ok(own),
            (None, None) => {
                let text = "which session? give --session ID; inside an agent it is its own";
                Err(Failure::new(Exit::Usage, text))
            }
        }
    }

    /// The way for the session it is in; `None`: it is in none.
    pub(super) fn own_way(&self) -> Option<Way> {
        let (session, token) = self.own.as_ref()?;
        Some(Way {
            client: Client::unix_for_session(&self.socket, token).named(CLIENT),
            session: session.clone(),
        })
    }

    fn beside(&self) -> Client {
        Client::unix(&self.socket).named(CLIENT)
    }
}

/// What became of a task.
#[derive(Serialize)]
struct Told<'a> {
    session: &'a str,
    task: &'a str,
    outcome: &'static str,
}

pub(super) async fn task(
    inside: &Inside,
    verb: &TaskVerb,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let (way, task, outcome) = match verb {
        TaskVerb::Hook => return super::hook::run(inside, console).await,
        TaskVerb::Start(args) => {
            let way = inside.way(&args.of)?;
            let new = NewTask {
                name: args.name.clone(),
                kind: args.kind.clone(),
                why: args.why.clone(),
                ambient: args.ambient,
                owner: args.owner.clone(),
            };
            way.client.start_task(&way.session, &new).await?;
            (way, &args.name, "started")
        }
        TaskVerb::End { name, of } => {
            let way = inside.way(of)?;
            way.client.end_task(&way.session, name).await?;
            (way, name, "ended")
        }
    };
    // Quiet for people: hooks of agents show, or even act on, what they print.
    if console.json {
        let session = &way.session;
        console.object(&Told {
            session,
            task,
            outcome,
        })?;
    }
    Ok(Exit::Ok)
}

pub(super) async fn unhold(
    inside: &Inside,
    args: &UnholdArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let way = inside.way(&args.of)?;
    let id = HoldId(args.hold);
    way.client.lift_hold(&way.session, id).await?;
    if console.json {
        let (session, outcome) = (&way.session, "lifted");
        console.object(&serde_json::json!({
            "session": session, "id": id, "outcome": outcome,
        }))?;
    }
    Ok(Exit::Ok)
}

/// What holds one session.
#[derive(Serialize)]
struct Held {
    session: String,
    #[serde(flatten)]
    hold: HoldReport,
}

pub(super) async fn holds(
    inside: &Inside,
    of: &OfSession,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let held = if of.session.is_some() || inside.own.is_some() {
        let way = inside.way(of)?;
        let holds = way.client.holds(&way.session).await?;
        held(way.session, holds)
    } else {
        of_all(&inside.beside()).await?
    };
    if console.json {
        for hold in &held {
            console.object(hold)?;
        }
        return Ok(Exit::Ok);
    }
    let rows: Vec<_> = held
        .iter()
        .map(|held| render::hold_row(&held.session, &held.hold))
        .collect();
    let text = render::table(&render::HOLD_HEADINGS, &rows, console.columns);
    console.out.write_all(text.as_bytes())?;
    Ok(Exit::Ok)
}

fn held(session: String, holds: Vec<HoldReport>) -> Vec<Held> {
    let one = |hold| Held {
        session: session.clone(),
        hold,
    };
    holds.into_iter().map(one).collect()
}

/// Those of all sessions that are awake, which the daemon lists first.
async fn of_all(client: &Client) -> Result<Vec<Held>, Failure> {
    let mut query = ListQuery {
        limit: Some(PAGE_SESSIONS),
        ..ListQuery::default()
    };
    let mut all = Vec::new();
    loop {
        let page = client.sessions(&query).await?;
        let asleep = page.sessions.iter().any(|one| !one.state.is_awake());
        for SessionReport { id, awake, .. } in page.sessions {
            let holds = awake.map(|awake| awake.holds).unwrap_or_default();
            all.extend(held(id.to_string(), holds));
        }
        if asleep || page.next.is_none() {
            return Ok(all);
        }
        query.after = page.next;
    }
}
