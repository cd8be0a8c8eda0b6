//! Answers what agents ask, by a rule: what begins with one of the words it was given is allowed, all
//! else is left to a person.
//!
//! `cargo run -p drowse-client --example approve -- SESSION WORD...`, with the daemon's socket in
//! `DROWSE_SOCKET`. Over HTTP: it needs no connection of its own and stands in no driver's way.

use std::error::Error;
use std::io::Write as _;

use drowse_client::{Client, EventsQuery};
use drowse_messages::{Answer, SessionEvent};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let session = words.next().ok_or("usage: approve SESSION WORD...")?;
    let allowed: Vec<String> = words.collect();
    let socket =
        std::env::var_os("DROWSE_SOCKET").ok_or("DROWSE_SOCKET says where the daemon is")?;
    let client = Client::unix(socket).named("approve");
    let id = client.session(&session).await?.id.to_string();
    let query = EventsQuery {
        session: Some(id.clone()),
        after: None,
    };
    let mut events = client.events(&query).await?;
    // What it asks already is in no event.
    let asked = client.session(&id).await?.awake.map(|awake| awake.asks);
    let mut waiting = asked.unwrap_or_default();
    let mut out = std::io::stdout();
    loop {
        for ask in waiting.drain(..) {
            if !allowed.iter().any(|word| ask.title.contains(word)) {
                writeln!(out, "left to a person: {}", ask.title)?;
                continue;
            }
            match client.answer(&id, &ask.id, Answer::Allow).await {
                Ok(()) => writeln!(out, "allowed: {}", ask.title)?,
                // Somebody was faster.
                Err(error) if error.code() == Some("not_pending") => {}
                Err(error) => return Err(error.into()),
            }
        }
        out.flush()?;
        let Some(event) = events.next().await? else {
            return Ok(());
        };
        if let SessionEvent::Asked { ask } = event.what {
            waiting.push(ask);
        }
    }
}
