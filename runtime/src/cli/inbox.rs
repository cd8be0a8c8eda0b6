//! `cancel`, `retry`, `interrupt`, `outcome`: what is said of messages and of what came of them.
//!
//! Invariant: what is told is what the daemon answered.

use std::io;

use drowse_client::Client;
use drowse_messages::{MessageId, SavedMessage};

use crate::cli::args::OutcomeArgs;
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::render::{moment, safe};
use crate::cli::talk::read_text;
use crate::exit::Exit;

pub(crate) async fn cancel(
    client: &Client,
    message: MessageId,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    tell(&client.cancel(message).await?, console)
}

pub(crate) async fn retry(
    client: &Client,
    message: MessageId,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    tell(&client.retry(message).await?, console)
}

fn tell(message: &SavedMessage, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if console.json {
        console.object(message)?;
    } else {
        let (id, state) = (message.id, message.state.code());
        writeln!(console.out, "message {id} is {state}")?;
    }
    Ok(Exit::Ok)
}

pub(crate) async fn interrupt(
    client: &Client,
    session: &str,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    client.interrupt(session).await?;
    if !console.json {
        writeln!(console.out, "interrupted")?;
    }
    Ok(Exit::Ok)
}

/// Without a text it shows what is recorded, and nothing when nothing is.
pub(crate) async fn outcome(
    client: &Client,
    args: &OutcomeArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let text = match args.text.as_deref() {
        Some("-") => Some(read_text(io::stdin().lock())?),
        text => text.map(str::to_owned),
    };
    if text.is_some() || args.clear {
        client.record_outcome(&args.id, text.as_deref()).await?;
        return Ok(Exit::Ok);
    }
    let report = client.session(&args.id).await?;
    if console.json {
        console.object(&report.outcome)?;
    } else if let Some(outcome) = report.outcome {
        let (by, at) = (outcome.by.to_string(), moment(outcome.at));
        writeln!(console.out, "{}", safe(&outcome.text))?;
        console.tell(&format!("said by {}, {at}", safe(&by)))?;
    } else {
        console.tell("nothing is recorded")?;
    }
    Ok(Exit::Ok)
}
