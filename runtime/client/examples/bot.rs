//! Says something to an agent and prints the answer as it comes, whatever happens to the connection.
//!
//! `cargo run -p drowse-client --example bot -- SESSION TEXT`, with the daemon's socket in
//! `DROWSE_SOCKET`. The key makes it safe to ask again after an unknown outcome: it is the same
//! message. Killed at any moment, it leaves the agent's turn alone; run again with the same key, it
//! shows the answer.

use std::error::Error;
use std::io::Write as _;

use drowse_client::{Client, Piece, SocketError};
use drowse_messages::{Answer, MessageState};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(session), Some(text)) = (words.next(), words.next()) else {
        return Err("usage: bot SESSION TEXT [KEY]".into());
    };
    let key = words
        .next()
        .unwrap_or_else(|| format!("bot-{}", std::process::id()));
    let socket =
        std::env::var_os("DROWSE_SOCKET").ok_or("DROWSE_SOCKET says where the daemon is")?;
    let client = Client::unix(socket).named("bot");
    let connection = client.connection(&session).take_over().connect().await?;
    let mut stream = loop {
        match connection.prompt_stream(&*text, Some(&key)).await {
            Ok(stream) => break stream,
            // Whether it was accepted is not known: the same key asks for the same message.
            Err(SocketError::Unknown(_)) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let mut out = std::io::stdout();
    while let Some(piece) = stream.next().await? {
        match piece {
            Piece::Output(text) => {
                write!(out, "{text}")?;
                out.flush()?;
            }
            // Nobody is here to decide.
            Piece::Asked(ask) => connection.answer(&ask.id, Answer::Deny).await?,
            Piece::Ended(prompted) if prompted.state == MessageState::Answered => {
                writeln!(out, "\n[answered: {}]", prompted.answer)?;
            }
            Piece::Ended(prompted) => {
                let state = prompted.state.code();
                return Err(format!("{state}: {}", prompted.answer).into());
            }
            Piece::Settled(_) | Piece::Missed | _ => {}
        }
    }
    connection.close().await;
    Ok(())
}
