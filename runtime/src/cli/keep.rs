//! `keep`: a process outlives the release of its session.
//!
//! Invariant: what is told is what the daemon found and keeps, never what was asked for.

use drowse_client::Client;
use drowse_messages::NewKeep;

use crate::cli::args::KeepArgs;
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::render;
use crate::exit::Exit;

pub(crate) async fn run(
    client: &Client,
    args: &KeepArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let new = NewKeep {
        pid: args.pid,
        listen: args.listen.map(i64::from),
        ttl: args.ttl.clone(),
        session: args.session.clone(),
    };
    let report = client.keep(&new).await?;
    if console.json {
        console.object(&report)?;
    } else {
        writeln!(
            console.out,
            "{}",
            render::kept_line(&report, &console.view())
        )?;
    }
    Ok(Exit::Ok)
}
