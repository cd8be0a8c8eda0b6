//! Looks on while a session works, and says what happens, a line each: never a client that the agent
//! or another client has to wait for.
//!
//! `cargo run -p drowse-client --example watch -- SESSION`, with the daemon's socket in
//! `DROWSE_SOCKET`. It ends with its session.

use std::error::Error;
use std::io::Write as _;

use drowse_client::{Client, Heard, SocketError};
use drowse_messages::{FailureCode, SessionEvent};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let session = std::env::args().nth(1).ok_or("usage: watch SESSION")?;
    let socket =
        std::env::var_os("DROWSE_SOCKET").ok_or("DROWSE_SOCKET says where the daemon is")?;
    let client = Client::unix(socket).named("watch");
    let mut connection = client.connection(&session).connect().await?;
    let mut events = connection.events();
    let mut out = std::io::stdout();
    loop {
        let heard = match events.next().await {
            Ok(heard) => heard,
            Err(SocketError::Closed(closed)) if closed.code == FailureCode::NoSuchSession => {
                writeln!(out, "the session was removed")?;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        match heard {
            Heard::Snapshot(note) => writeln!(out, "it is {}", note.report.state.code())?,
            Heard::Event(note) => {
                if let Some(line) = line(&note.event.what) {
                    writeln!(out, "{line}")?;
                }
            }
            Heard::Gap(_) | Heard::Missed(_) => writeln!(out, "something was missed")?,
            Heard::Resumed | Heard::Warning { .. } | _ => {}
        }
        out.flush()?;
    }
}

/// What is worth a line.
fn line(event: &SessionEvent) -> Option<String> {
    if let SessionEvent::StateChanged { to, .. } = event {
        return Some(format!("it is {}", to.code()));
    }
    if let SessionEvent::MessageChanged { message, state, .. } = event {
        return Some(format!("message {message} is {}", state.code()));
    }
    if let SessionEvent::Asked { ask } = event {
        return Some(format!("it asks: {}", ask.title));
    }
    None
}
