//! `send`: says something to an agent and prints the answer as it comes.
//!
//! Fed by the stream of one message's life. Invariant: the exit code is 0 only when the daemon
//! said that the message was answered; however else it ends, stderr says how, and what to do next.
//! Ending the command (Ctrl-C) ends nothing else: the turn goes on.

use std::io::{self, Read};

use drowse_client::{Client, ClientError, EventStream};
use drowse_messages::{Event, MessageId, MessageState, NewMessage, Reason, SessionEvent};

use crate::chain::chain;
use crate::cli::again::of_next_daemon;
use crate::cli::args::SendArgs;
use crate::cli::ask::Asking;
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::render::{event_line, safe};
use crate::exit::Exit;

/// 16 MiB from stdin: more than any agent's context, less than what would hurt us.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// 8 daemons in the course of one answer; more of them are not replaced, they fail.
const RETURNS_MAX: u32 = 8;

/// What is said to whom.
#[derive(Clone, Debug)]
pub(crate) struct Saying {
    session: String,
    message: NewMessage,
    key: String,
}

impl Saying {
    /// Without a key of the caller's it gets one, so that it can be repeated safely in any case.
    pub(crate) fn new(session: String, message: NewMessage, key: Option<String>) -> Self {
        let key = key.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        Self {
            session,
            message,
            key,
        }
    }
}

pub(crate) async fn run(
    client: &Client,
    args: &SendArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let text = if args.text == "-" {
        read_text(io::stdin().lock())?
    } else {
        args.text.clone()
    };
    if text.trim().is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "there is nothing to send: the text is empty",
        ));
    }
    let priority = args.priority;
    let message = NewMessage { text, priority };
    let saying = Saying::new(args.id.clone(), message, args.key.clone());
    if !args.no_wait {
        return until_answered(client, &saying, console).await;
    }
    let sent = client
        .send(&saying.session, saying.message.clone(), Some(&saying.key))
        .await;
    let sent = sent.map_err(|error| not_sent(error, &saying))?;
    if console.json {
        console.object(&sent)?;
    } else {
        writeln!(console.out, "{}", sent.message)?;
    }
    Ok(Exit::Ok)
}

pub(crate) fn read_text(stdin: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let count = stdin.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if count as u64 > TEXT_BYTES_MAX {
        let text = format!("the text on stdin is longer than {TEXT_BYTES_MAX} bytes");
        return Err(Failure::new(Exit::Usage, text));
    }
    let text = String::from_utf8(bytes);
    let mut text = text.map_err(|_| Failure::new(Exit::Usage, "the text on stdin is not UTF-8"))?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

/// A request of unknown outcome can be repeated with its key: that is the way to find out.
fn not_sent(error: ClientError, saying: &Saying) -> Failure {
    let unknown = error.may_have_run();
    let failure = Failure::from(error);
    if unknown {
        failure.with(&again(saying))
    } else {
        failure
    }
}

fn again(saying: &Saying) -> String {
    let (session, key) = (&saying.session, &saying.key);
    format!(
        "the same command with --key {key} shows its answer and sends nothing twice (drowse logs {session} shows what happened)"
    )
}

/// Sends it and follows it to its end.
pub(crate) async fn until_answered(
    client: &Client,
    saying: &Saying,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let sent = client
        .send_streaming(&saying.session, saying.message.clone(), Some(&saying.key))
        .await;
    let events = sent.map_err(|error| not_sent(error, saying))?;
    follow(client, saying, events, console).await
}

/// What came next of a message.
enum Next {
    Event(Event),
    /// The stream broke off, for this reason.
    Broke(String),
    /// The next daemon goes on with it.
    Back(EventStream),
    /// There is no next daemon.
    Gone(String),
}

/// Of a stream, or, since it broke off, of the next daemon: the same key is the same message.
async fn next(events: &mut Result<EventStream, String>, client: &Client, saying: &Saying) -> Next {
    match events {
        Ok(stream) => match stream.next().await {
            Ok(Some(event)) => Next::Event(event),
            Ok(None) => Next::Broke("the daemon ended".to_owned()),
            Err(error) => Next::Broke(chain(&error)),
        },
        Err(why) => {
            let Saying {
                session,
                message,
                key,
            } = saying;
            let ask = async || {
                let message = message.clone();
                client.send_streaming(session, message, Some(key)).await
            };
            let back = of_next_daemon(ask).await;
            back.map_or_else(|| Next::Gone(why.clone()), Next::Back)
        }
    }
}

async fn follow(
    client: &Client,
    saying: &Saying,
    events: EventStream,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let mut events = Ok(events);
    let mut returns = 0;
    let mut answer = Answer::default();
    let mut asking = Asking::new(&saying.session, console.can_ask);
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            next = next(&mut events, client, saying) => match next {
                Next::Event(event) => {
                    if let Some(exit) = answer.take(&event, console)? {
                        return Ok(exit);
                    }
                    asking.take(&event.what, console)?;
                }
                Next::Broke(why) if returns == RETURNS_MAX => {
                    return Err(answer.broken_off(saying, &why));
                }
                Next::Broke(why) => events = Err(why),
                Next::Back(stream) => {
                    returns += 1;
                    answer.missed(console)?;
                    events = Ok(stream);
                }
                Next::Gone(why) => return Err(answer.broken_off(saying, &why)),
            },
            line = asking.line() => asking.answer(client, line, console).await?,
            _ = &mut interrupt => {
                answer.end_line(console)?;
                let session = &saying.session;
                console.tell(&format!(
                    "detached; the turn goes on (drowse logs {session}, drowse stop {session})"
                ))?;
                return Ok(Exit::Interrupted);
            }
        }
    }
}

/// What has been printed of an answer.
#[derive(Debug, Default)]
struct Answer {
    message: Option<MessageId>,
    /// True once a piece was printed.
    begun: bool,
    /// True when what was printed last does not end its line.
    mid_line: bool,
    /// True when pieces were lost on the way.
    gap: bool,
}

impl Answer {
    /// Pieces went by unseen.
    fn missed(&mut self, console: &mut Console<'_>) -> io::Result<()> {
        self.gap = true;
        let text = "pieces of the answer were lost; all of it follows at the end";
        self.aside(text, console)
    }

    /// Shows what an event brings; `Some` when it was the last.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "whatever else happens to the session meanwhile is not part of the answer"
    )]
    fn take(&mut self, event: &Event, console: &mut Console<'_>) -> Result<Option<Exit>, Failure> {
        if console.json {
            console.object(event)?;
        }
        match &event.what {
            SessionEvent::MessageQueued { message } => self.message = Some(*message),
            SessionEvent::Output { text, .. } if !console.json => self.piece(text, console)?,
            SessionEvent::MessageChanged {
                message,
                state,
                text,
            } if state.is_final() => {
                self.message = Some(*message);
                return Ok(Some(self.ended(*state, text, console)?));
            }
            SessionEvent::Gap { .. } => self.missed(console)?,
            // What is asked begins a line of its own.
            SessionEvent::Asked { .. } if console.columns.is_some() => self.end_line(console)?,
            SessionEvent::Woken { reason, .. } if !is_expected(*reason) => {
                self.tell(event, console)?;
            }
            SessionEvent::Notice { .. } | SessionEvent::StartFailed { .. } => {
                self.tell(event, console)?;
            }
            _ => {}
        }
        Ok(None)
    }

    /// Says what else happened, without the time: it is now.
    fn tell(&mut self, event: &Event, console: &mut Console<'_>) -> io::Result<()> {
        let line = event_line(event, false);
        let what = line.split_once("  ").map_or(line.as_str(), |(_, it)| it);
        self.aside(what, console)
    }

    fn piece(&mut self, text: &str, console: &mut Console<'_>) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if console.columns.is_some() {
            console.out.write_all(safe(text).as_bytes())?;
        } else {
            console.out.write_all(text.as_bytes())?;
        }
        console.out.flush()?;
        self.begun = true;
        self.mid_line = !text.ends_with('\n');
        Ok(())
    }

    fn end_line(&mut self, console: &mut Console<'_>) -> io::Result<()> {
        if std::mem::take(&mut self.mid_line) {
            console.out.write_all(b"\n")?;
            console.out.flush()?;
        }
        Ok(())
    }

    /// Says something on stderr; on a terminal, on a line of its own.
    fn aside(&mut self, text: &str, console: &mut Console<'_>) -> io::Result<()> {
        if console.columns.is_some() {
            self.end_line(console)?;
        }
        console.tell(text)
    }

    fn ended(
        &mut self,
        state: MessageState,
        text: &str,
        console: &mut Console<'_>,
    ) -> Result<Exit, Failure> {
        let answered = state == MessageState::Answered;
        if answered && !console.json && (self.gap || !self.begun) {
            self.end_line(console)?;
            self.piece(text, console)?;
        }
        self.end_line(console)?;
        if answered {
            return Ok(Exit::Ok);
        }
        console.tell(&account(self.message, state, text))?;
        Ok(Exit::Error)
    }

    fn broken_off(&self, saying: &Saying, why: &str) -> Failure {
        let which = self
            .message
            .map_or_else(String::new, |number| format!(" to message {number}"));
        let text = format!("{why}, before the answer{which} was complete; the turn may go on");
        Failure::new(Exit::Error, text).with(&again(saying))
    }
}

/// True for an end of the last process that its user has asked for, or set a time for.
pub(crate) const fn is_expected(reason: Reason) -> bool {
    match reason {
        Reason::Idle
        | Reason::Manual
        | Reason::AccountChange
        | Reason::Stopped
        | Reason::Removed
        | Reason::DaemonShutdown => true,
        // A failed start was told when it failed.
        Reason::StartFailed => true,
        Reason::TaskHoldExpired
        | Reason::ApprovalExpired
        | Reason::HardLimit
        | Reason::Detached
        | Reason::Crashed { .. } => false,
    }
}

/// What became of a message that was not answered, and what to do next.
pub(crate) fn account(message: Option<MessageId>, state: MessageState, text: &str) -> String {
    let which = message.map_or_else(|| "the message".to_owned(), |id| format!("message {id}"));
    let text = safe(text.trim());
    let colon = if text.is_empty() { "" } else { ": " };
    match state {
        MessageState::Failed => format!(
            "{which} failed{colon}{text}\n\
             the conversation is kept: send again once the cause is gone"
        ),
        MessageState::Unknown => format!(
            "what became of {which} is unknown{colon}{text}\n\
             the agent ended while it worked on it, and it is not repeated by itself: look at its \
             work, then send what is still to be done"
        ),
        MessageState::Cancelled => format!("{which} was cancelled before it was delivered"),
        MessageState::Parked => {
            let again = message.map_or_else(String::new, |id| format!(" (drowse retry {id})"));
            format!(
                "{which} was put aside{colon}{text}\n\
                 no agent read it to its end, so nothing was done: it can be queued again{again}"
            )
        }
        MessageState::Queued | MessageState::Delivered | MessageState::Answered => {
            format!("{which} is {}", state.code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Seen {
        exit: Option<Exit>,
        out: String,
        err: String,
    }

    fn play(events: &[&str], json: bool, columns: Option<usize>) -> Seen {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut answer = Answer::default();
        let mut exit = None;
        for event in events {
            let event = format!(r#"{{"seq":1,"at":0,"session":"000000000007",{event}}}"#);
            let event = serde_json::from_str(&event).unwrap();
            let mut console = Console {
                out: &mut out,
                err: &mut err,
                json,
                columns,
                can_ask: false,
                home: None,
            };
            exit = answer.take(&event, &mut console).unwrap();
        }
        Seen {
            exit,
            out: String::from_utf8(out).unwrap(),
            err: String::from_utf8(err).unwrap(),
        }
    }

    const QUEUED: &str = r#""event":"message_queued","message":3"#;
    const HEL: &str = r#""event":"output","message":3,"text":"hel\u001b[1m""#;
    const LO: &str = r#""event":"output","message":3,"text":"lo""#;
    const ANSWERED: &str =
        r#""event":"message_changed","message":3,"state":"answered","text":"hello, whole""#;

    #[test]
    fn the_answer_is_printed_as_it_comes_and_once() {
        let seen = play(&[QUEUED, HEL, LO, ANSWERED], false, None);
        assert_eq!((seen.exit, seen.err.as_str()), (Some(Exit::Ok), ""));
        assert_eq!(seen.out, "hel\u{1b}[1mlo\n");
        // A terminal gets no commands from an agent.
        assert_eq!(
            play(&[QUEUED, HEL, LO, ANSWERED], false, Some(80)).out,
            "hel [1mlo\n"
        );
    }

    #[test]
    fn an_answer_without_pieces_and_one_with_a_gap_are_printed_whole() {
        assert_eq!(play(&[QUEUED, ANSWERED], false, None).out, "hello, whole\n");
        let seen = play(&[LO, r#""event":"gap","missed":2"#, ANSWERED], false, None);
        assert_eq!(seen.out, "lo\nhello, whole\n");
        assert!(seen.err.contains("lost"));
    }

    /// D32: each way not to be answered has its own words, on stderr, and none is a success.
    #[test]
    fn what_was_not_answered_says_which_and_what_to_do() {
        for (state, words) in [
            (
                "failed",
                "message 3 failed: no credit\ndrowse: the conversation is kept",
            ),
            (
                "unknown",
                "what became of message 3 is unknown: no credit\ndrowse: the agent ended",
            ),
            (
                "cancelled",
                "message 3 was cancelled before it was delivered",
            ),
        ] {
            let changed = format!(
                r#""event":"message_changed","message":3,"state":"{state}","text":"no credit""#
            );
            let seen = play(&[QUEUED, LO, &changed], false, None);
            assert_eq!((seen.exit, seen.out.as_str()), (Some(Exit::Error), "lo\n"));
            assert!(seen.err.contains(words), "{}", seen.err);
        }
        let delivered = r#""event":"message_changed","message":3,"state":"delivered","text":"""#;
        assert_eq!(play(&[delivered], false, None).exit, None);
    }

    #[test]
    fn json_is_one_object_a_line_and_nothing_else() {
        let seen = play(&[QUEUED, LO, ANSWERED], true, Some(80));
        assert_eq!(seen.out.lines().count(), 3);
        for line in seen.out.lines() {
            serde_json::from_str::<Event>(line).unwrap();
        }
    }

    #[test]
    fn stdin_is_bounded_text() {
        assert_eq!(read_text(&b"a\nb\n"[..]).unwrap(), "a\nb");
        assert!(read_text(&b"\xff"[..]).is_err());
        assert!(read_text(io::repeat(b'x')).is_err());
    }
}
