//! `new`: opens a session, with the caller's folder and environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drowse_client::Client;
use drowse_messages::NewSession;

use crate::cli::args::NewArgs;
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::talk::{self, Saying};
use crate::exit::Exit;

pub(crate) async fn run(
    client: &Client,
    args: &NewArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let cwd = folder(args.cwd.as_deref())?;
    let limits = args
        .idle_after
        .clone()
        .map(|limit| ("idle_after".to_owned(), limit));
    let report = client
        .open(&NewSession {
            agent: args.agent.clone(),
            name: args.name.clone(),
            cwd,
            args: args.args.clone(),
            env: environment(),
            limits: limits.into_iter().collect(),
        })
        .await?;
    let id = report.id.to_string();
    let Some(text) = &args.prompt else {
        if console.json {
            console.object(&report)?;
        } else {
            writeln!(console.out, "{id}")?;
            console.out.flush()?;
        }
        return Ok(Exit::Ok);
    };
    console.tell(&format!("session {id}"))?;
    let saying = Saying::new(id, text.clone().into(), None);
    talk::until_answered(client, &saying, console).await
}

/// The folder as an absolute path. That it is one is checked here, because here the person who
/// mistyped it still looks.
fn folder(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = match given {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_dir()?,
    };
    if path.is_dir() {
        Ok(path)
    } else {
        let text = format!("--cwd {}: there is no such folder", path.display());
        Err(Failure::new(Exit::Usage, text))
    }
}

/// The whole environment. Variables that are not UTF-8 are left out: they have no form in JSON,
/// and a program that needs one is yet to be met.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
