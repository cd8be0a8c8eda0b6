//! Arguments of the verbs that speak with agents, and wait for them.
//!
//! Fed by the command line. See `args.rs`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use drowse_messages::{MessageId, Priority};

#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    /// Id, unique prefix or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// What to say; "-" reads it from stdin
    #[arg(value_name = "TEXT|-", allow_hyphen_values = true)]
    pub(crate) text: String,
    /// Do not wait for the answer; print the message's number
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// now: interrupts the turn and goes first; next: goes into the turn where the agent takes that,
    /// else first; later: waits for its turn
    #[arg(long, value_name = "now|next|later", default_value = "later", hide_default_value = true, value_parser = priority)]
    pub(crate) priority: Priority,
    /// Same key, same message: a repeat shows the first one's answer
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

fn priority(text: &str) -> Result<Priority, String> {
    Priority::from_code(text).ok_or_else(|| {
        let known = Priority::ALL.map(Priority::code);
        format!("there is: {}", known.join(", "))
    })
}

/// A message, by its number.
#[derive(Args, Debug)]
pub(crate) struct MessageArgs {
    /// The message's number, as `send --no-wait` prints it
    #[arg(value_name = "MESSAGE", value_parser = number)]
    pub(crate) message: MessageId,
}

fn number(text: &str) -> Result<MessageId, String> {
    let number = text.parse().map(MessageId);
    number.map_err(|_| "not the number of a message".to_owned())
}

#[derive(Args, Debug)]
pub(crate) struct OutcomeArgs {
    /// Id, unique prefix or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// What came of it, at most 4 KiB; "-" reads it from stdin [default: show what is recorded]
    #[arg(value_name = "TEXT|-", allow_hyphen_values = true)]
    pub(crate) text: Option<String>,
    /// Take back what is recorded
    #[arg(long, conflicts_with = "text")]
    pub(crate) clear: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    /// Id, unique prefix or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// What for
    #[arg(long = "for", value_name = "WHAT")]
    pub(crate) awaited: Awaited,
    /// How long at most: a duration (10m) [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

/// What `wait` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Awaited {
    /// Nothing runs, nothing waits and nothing holds it
    Idle,
    /// It was released
    Released,
    /// No turn runs, and no message waits for one
    Turn,
    /// The agent asks a person
    Approval,
    /// It has no process any more, for whatever reason
    Ended,
}

impl Awaited {
    /// As it is written on the command line.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Released => "released",
            Self::Turn => "turn",
            Self::Approval => "approval",
            Self::Ended => "ended",
        }
    }

    /// What a session is then.
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Released => "released",
            Self::Turn => "done with its turn",
            Self::Approval => "in need of an answer",
            Self::Ended => "ended",
        }
    }
}
