//! Where a verb writes: the result to `out`, everything else to `err`.
//!
//! Invariant: with `json`, `out` carries JSON objects, one a line, and nothing else; and what an
//! agent said reaches a terminal without its control characters.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use drowse_messages::WallTime;
use serde::Serialize;

use crate::cli::failure::Failure;
use crate::cli::render::View;
use crate::exit::Exit;

/// Both ends, and who is at them.
pub(crate) struct Console<'a> {
    /// The result.
    pub(crate) out: &'a mut dyn Write,
    /// Diagnostics.
    pub(crate) err: &'a mut dyn Write,
    /// True when the result is wanted as JSON.
    pub(crate) json: bool,
    /// Characters in a line of the terminal that `out` is; `None`: it is none.
    pub(crate) columns: Option<usize>,
    /// True when a person can be asked: stdin and `err` are terminals.
    pub(crate) can_ask: bool,
    /// `$HOME`, which is shown as `~`.
    pub(crate) home: Option<PathBuf>,
}

impl Console<'_> {
    /// How and when the result is looked at.
    pub(crate) fn view(&self) -> View<'_> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        View {
            now: WallTime(now.map_or(0, drowse_messages::millis)),
            home: self.home.as_deref(),
            columns: self.columns,
        }
    }

    /// One object of the result.
    pub(crate) fn object(&mut self, object: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self.out, object)?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }

    /// Something a person should know; each line of it is marked as ours.
    pub(crate) fn tell(&mut self, text: &str) -> io::Result<()> {
        for line in text.lines() {
            writeln!(self.err, "drowse: {line}")?;
        }
        self.err.flush()
    }
}

/// Turns a verb's end into the process's.
pub(crate) struct End;

impl End {
    /// Runs a verb on stdin, stdout and stderr.
    pub(crate) fn with_stdio(
        json: bool,
        verb: impl FnOnce(&mut Console<'_>) -> Result<Exit, Failure>,
    ) -> ExitCode {
        let stdout = io::stdout();
        let columns = stdout.is_terminal().then(|| {
            rustix::termios::tcgetwinsize(&stdout).map_or(80, |size| usize::from(size.ws_col))
        });
        let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
        let result = verb(&mut Console {
            out: &mut stdout.lock(),
            err: &mut io::stderr(),
            json,
            columns,
            can_ask,
            home: std::env::var_os("HOME").map(PathBuf::from),
        });
        match result {
            Ok(exit) => exit.into(),
            Err(failure) => Self::of(failure),
        }
    }

    /// Says why on stderr.
    pub(crate) fn of(failure: Failure) -> ExitCode {
        match failure {
            Failure::NoReader => Exit::Ok.into(),
            Failure::Told { exit, text } => {
                for line in text.lines() {
                    // There is no place left to report a closed stderr to.
                    drop(writeln!(io::stderr(), "drowse: {line}"));
                }
                exit.into()
            }
        }
    }
}
