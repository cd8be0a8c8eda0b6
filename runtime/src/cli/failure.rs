//! Why a verb did not do what was asked: a code for the shell and lines for a person.

use std::io;

use drowse_client::ClientError;

use crate::chain::chain;
use crate::exit::Exit;
use crate::paths::PathsError;

/// The end of a verb that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// To be told.
    Told {
        /// For the shell.
        exit: Exit,
        /// For a person; what can be done about it comes on further lines.
        text: String,
    },
    /// Nobody reads our output any more: nothing to say, and nobody to say it to.
    NoReader,
}

impl Failure {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::Told { exit, text }
    }

    /// The same failure with a line on what to do about it.
    pub(crate) fn with(self, advice: &str) -> Self {
        match self {
            Self::Told { exit, text } => Self::new(exit, format!("{text}\n{advice}")),
            Self::NoReader => Self::NoReader,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Told { text, .. } => f.write_str(text),
            Self::NoReader => f.write_str("nobody reads what is said"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::NoReader
        } else {
            Self::new(Exit::Error, error.to_string())
        }
    }
}

impl From<PathsError> for Failure {
    fn from(error: PathsError) -> Self {
        Self::new(Exit::Config, chain(&error))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let failure = Self::new(Exit::of(&error), chain(&error));
        match error.code() {
            Some("draining" | "inbox_full" | "store_failed") => {
                failure.with("nothing was accepted; try again later")
            }
            None if error.may_have_run() => {
                failure.with("it may have been carried out nevertheless: look before you repeat it")
            }
            Some(_) | None => failure,
        }
    }
}
