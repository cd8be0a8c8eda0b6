//! The exit codes of the command line: one table, used by every verb.
//!
//! Fed by failures of requests and by verbs themselves. Invariant: a code means the same after
//! every verb, so a script can act on it without reading text.

use std::process::ExitCode;

use drowse_client::{ClientError, Problem, Transport};
use drowse_messages::ProblemClass;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// It did what was asked.
    Ok,
    /// It did not, and no other code fits.
    Error,
    /// The command line itself has to be changed.
    Usage,
    /// An answer did not come in time.
    Timeout,
    /// There is no such session.
    NoSuchSession,
    /// Not allowed.
    Denied,
    /// Something holds the session.
    Held,
    /// The agent cannot take its conversation up again.
    CannotResume,
    /// No daemon is running, and none could be started.
    NoDaemon,
    /// The same command may succeed later.
    Temporary,
    /// The token is missing or wrong.
    Auth,
    /// The configuration is wrong.
    Config,
    /// The time given to `wait` passed.
    WaitTimedOut,
    /// Ctrl-C.
    Interrupted,
    /// As the command did that was run.
    Command(u8),
}

impl Exit {
    /// All that are Drowse's own, in the order of their codes.
    pub const ALL: [Self; 14] = [
        Self::Ok,
        Self::Error,
        Self::Usage,
        Self::Timeout,
        Self::NoSuchSession,
        Self::Denied,
        Self::Held,
        Self::CannotResume,
        Self::NoDaemon,
        Self::Temporary,
        Self::Auth,
        Self::Config,
        Self::WaitTimedOut,
        Self::Interrupted,
    ];

    /// The number the shell sees. 69 to 78 are those of `sysexits.h`, 124 is that of `timeout`,
    /// 130 that of a shell after SIGINT.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Error => 1,
            Self::Usage => 2,
            Self::Timeout => 3,
            Self::NoSuchSession => 4,
            Self::Denied => 5,
            Self::Held => 6,
            Self::CannotResume => 7,
            Self::NoDaemon => 69,
            Self::Temporary => 75,
            Self::Auth => 77,
            Self::Config => 78,
            Self::WaitTimedOut => 124,
            Self::Interrupted => 130,
            Self::Command(code) => code,
        }
    }

    /// The code for a request that failed.
    #[must_use]
    pub fn of(error: &ClientError) -> Self {
        match error {
            ClientError::Problem(problem) => Self::of_problem(problem),
            ClientError::Transport(Transport::NoDaemon { .. } | Transport::Connect { .. }) => {
                Self::NoDaemon
            }
            ClientError::Transport(Transport::NoAnswer { .. }) => Self::Timeout,
            ClientError::Transport(_) | _ => Self::Error,
        }
    }

    /// The code for the daemon's refusal. A refusal that only another command line can change is
    /// `Usage`; one that depends on how things stand is `Error`.
    #[must_use]
    pub fn of_problem(problem: &Problem) -> Self {
        match problem.code.as_str() {
            "no_such_session" | "no_such_message" => Self::NoSuchSession,
            "held" => Self::Held,
            "cannot_resume" => Self::CannotResume,
            "inbox_full" | "draining" | "store_failed" => Self::Temporary,
            "ambiguous" | "invalid" | "unknown_agent" => Self::Usage,
            "name_taken" | "not_running" | "not_pending" | "session_failed" | "cannot_restart" => {
                Self::Error
            }
            _ => match (problem.status, problem.class) {
                (401, _) => Self::Auth,
                (403, _) => Self::Denied,
                (_, ProblemClass::Retryable) => Self::Temporary,
                (
                    _,
                    ProblemClass::TerminalSession
                    | ProblemClass::TerminalRequest
                    | ProblemClass::OutcomeUnknown,
                ) => Self::Error,
            },
        }
    }

    /// The worse of two ends of one command with several parts: the first that is not `Ok`.
    #[must_use]
    pub fn or(self, later: Self) -> Self {
        if self == Self::Ok { later } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the documentation.
    #[test]
    fn the_codes_are_those_documented() {
        let codes = Exit::ALL.map(Exit::code);
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 69, 75, 77, 78, 124, 130]);
    }
}
