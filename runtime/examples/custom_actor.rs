//! An actor of one's own inside the daemon: it hears every event, and holds a session while it
//! needs it.
//!
//! `cargo run --example custom_actor`

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example speaks to its reader"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use actix::{Actor, Context, Handler};
use drowse::messages::{
    Event, LimitOverrides, OpenSession, Order, Recipe, SessionEvent, SessionId, Wake, Who,
};
use drowse::paths::{PathSources, Paths};
use drowse::{Daemon, DaemonHandle, ExtensionContext, ServeOptions};

/// Prints what happens.
struct Notifier;

impl Actor for Notifier {
    type Context = Context<Self>;
}

impl Handler<Event> for Notifier {
    type Result = ();

    fn handle(&mut self, event: Event, _: &mut Context<Self>) {
        if let SessionEvent::StateChanged { from, to } = event.what {
            println!("a session was {} and is {}", from.code(), to.code());
        } else if let SessionEvent::HoldTaken { why, owner, .. } = event.what {
            println!("{owner} holds it: {why}");
        } else if let SessionEvent::HoldLifted { .. } = event.what {
            println!("the hold was lifted");
        }
    }
}

fn main() -> ExitCode {
    if let Some(code) = drowse::keeper_if_asked() {
        return code;
    }
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let state_dir = Some(folder.path().join("state"));
    let paths = Paths::resolve(&PathSources {
        state_dir,
        ..PathSources::default()
    })?;
    let options = ServeOptions {
        config: None,
        paths,
        listen: None,
    };
    Ok(Daemon::builder(options)
        .extend("notifier", |cx: ExtensionContext| {
            cx.subscribe(&Notifier.start());
            actix_rt::spawn(async move {
                let daemon = cx.daemon();
                if let Err(error) = hold_a_session(&daemon).await {
                    eprintln!("{error}");
                }
                daemon.drain().await;
            });
        })
        .run())
}

/// Starts a session and keeps it for a moment.
async fn hold_a_session(daemon: &DaemonHandle) -> Result<(), Box<dyn Error>> {
    let recipe = Recipe {
        agent: "cat".parse()?,
        protocol: "raw".parse()?,
        argv: vec!["cat".to_owned()],
        cwd: std::env::temp_dir(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
    };
    let id = SessionId::from_random(0x8765_4321);
    let limits = LimitOverrides::default();
    daemon
        .open(OpenSession {
            id,
            name: None,
            recipe,
            limits,
        })
        .await?;
    let mut events = daemon.subscribe("example", 64, Some(id));
    let by = Who::Extension("notifier".to_owned());
    daemon
        .order(id, Order::Wake(Wake { fresh: false, by }))
        .await?;
    while let Some(event) = events.next().await {
        if let SessionEvent::Ready { .. } = event.what {
            break;
        }
    }
    // The hold ends with the guard, and by itself a minute after this program crashed.
    let hold = daemon
        .hold(
            id,
            "notifier",
            "indexing its files",
            Duration::from_secs(60),
        )
        .await?;
    drop(hold);
    Ok(())
}
