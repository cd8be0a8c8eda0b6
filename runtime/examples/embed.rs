//! A daemon inside another program: opens a session with an agent of its own, asks it something,
//! prints the answer, and ends.
//!
//! `cargo run --example embed`

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example speaks to its reader"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

use drowse::messages::{
    LimitOverrides, OpenSession, Priority, Recipe, SendMessage, SessionEvent, SessionId, Who,
};
use drowse::paths::{PathSources, Paths};
use drowse::{Daemon, DaemonHandle, ExtensionContext, ServeOptions};

fn main() -> ExitCode {
    // Keepers are this same program, asked by its arguments.
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
    let (done, answer) = std::sync::mpsc::channel();
    let code = Daemon::builder(options)
        .extend("asker", move |cx: ExtensionContext| {
            // This runs on a thread of the extension's own.
            actix_rt::spawn(async move {
                let daemon = cx.daemon();
                // Whoever waits for the answer is below, and stays until it has come.
                let _heard = done.send(ask(&daemon).await.map_err(|error| error.to_string()));
                daemon.drain().await;
            });
        })
        .run();
    println!("the agent answered: {}", answer.recv()??.trim());
    Ok(code)
}

/// Opens a session and says something.
async fn ask(daemon: &DaemonHandle) -> Result<String, Box<dyn Error>> {
    let recipe = Recipe {
        agent: "shout".parse()?,
        // Any program that reads and writes lines.
        protocol: "raw".parse()?,
        argv: ["sed", "-u", "s/.*/\\U&/"].map(str::to_owned).to_vec(),
        cwd: std::env::temp_dir(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
    };
    let id = SessionId::from_random(0x1234_5678);
    let limits = LimitOverrides::default();
    daemon
        .open(OpenSession {
            id,
            name: None,
            recipe,
            limits,
        })
        .await?;
    let mut events = daemon.subscribe("embed", 64, Some(id));
    let by = Who::Extension("asker".to_owned());
    daemon
        .send(
            id,
            SendMessage {
                text: "hello from inside".to_owned(),
                key: None,
                priority: Priority::default(),
                by,
            },
        )
        .await?;
    while let Some(event) = events.next().await {
        if let SessionEvent::Output { text, .. } = event.what {
            return Ok(text);
        }
        if let SessionEvent::StartFailed { error, .. } = event.what {
            return Err(error.into());
        }
    }
    Err("the daemon ended first".into())
}
