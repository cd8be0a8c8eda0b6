//! What is wrong with a configuration, and where: one line per problem.
//!
//! Fed by every other part of the configuration. Invariant: a problem names its place, its key and
//! its value, so that nobody has to search; the value of an agent's environment is never shown.

use std::fmt;
use std::path::PathBuf;

/// 80 characters of a refused value are enough to recognise it.
const SHOWN_CHARS_MAX: usize = 80;

/// Where a setting was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a file, counted from 1; `None`: the file as a whole.
    File {
        /// Its path.
        path: PathBuf,
        /// The line.
        line: Option<usize>,
    },
    /// An environment variable, by its name.
    Variable(String),
    /// A flag on the command line, as typed.
    Flag(String),
    /// A request of a client.
    Request,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line: None } => write!(f, "{}", path.display()),
            Self::File {
                path,
                line: Some(line),
            } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Request => f.write_str("request"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The dotted key; empty when the place as a whole is meant.
    pub key: String,
    /// The value as written, cut to a bound; `None`: there is none, or it may be a secret.
    pub value: Option<String>,
    /// What is wrong with it, and what was expected.
    pub detail: String,
}

impl Problem {
    /// A problem of a place as a whole.
    pub(super) fn of_place(place: Place, detail: String) -> Self {
        Self {
            place,
            key: String::new(),
            value: None,
            detail,
        }
    }

    /// The value and what is wrong with it, without place and key.
    #[must_use]
    pub fn about_value(&self) -> String {
        match &self.value {
            Some(value) => format!("{value}: {}", self.detail),
            None => self.detail.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        match (&self.value, self.key.is_empty()) {
            (_, true) => f.write_str(&self.detail),
            (Some(value), false) => write!(f, "{} = {value}: {}", self.key, self.detail),
            (None, false) => write!(f, "{}: {}", self.key, self.detail),
        }
    }
}

/// A configuration that is refused: everything wrong with it, in the order it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    pub(super) const fn new(problems: Vec<Problem>) -> Self {
        Self { problems }
    }

    /// All of them; never empty.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.problems.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// A value as an error shows it: one line, bounded.
pub(super) fn shown(raw: &str) -> String {
    let mut text: String = raw
        .chars()
        .take(SHOWN_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if raw.chars().nth(SHOWN_CHARS_MAX).is_some() {
        text.push('…');
    }
    text
}
