//! The log of the daemon: one line per event on stderr, for a terminal, a file or the journal.
//!
//! `DROWSE_LOG` says what is logged (`info`; `debug`; `drowse::http=trace,info`),
//! `DROWSE_LOG_FORMAT=json` writes one object per line. Fields have one name each everywhere:
//! `session` (its id), `agent`, `incarnation`, `message` (its number), `reason`, `pid`, `peer`,
//! `error`; durations end in `_ms`, sizes in `_bytes`. Arguments, environments and what is said to
//! an agent are never fields.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Which events are logged.
const FILTER_VARIABLE: &str = "DROWSE_LOG";

/// How they are written.
const FORMAT_VARIABLE: &str = "DROWSE_LOG_FORMAT";

/// What is logged unless somebody says otherwise: what an operator acts on.
/// The web server's own notes on its sockets say nothing to people who run agents.
const FILTER_DEFAULT: &str = "info,actix_server=warn";

/// The journal sets this, and stamps every line itself.
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TelemetryError {
    /// A variable says something that cannot be understood.
    #[error("environment variable {name} = {value:?}: expected {expected}")]
    Variable {
        /// Which.
        name: &'static str,
        /// What it says.
        value: String,
        /// What it could say.
        expected: &'static str,
    },
}

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

/// Starts the log, as the environment of the process says, unless the process has one already.
///
/// # Errors
///
/// A variable that cannot be understood.
pub(crate) fn start() -> Result<(), TelemetryError> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let filter = filter(&variable(FILTER_VARIABLE))?;
    let format = format(&variable(FORMAT_VARIABLE))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_writer(io::stderr);
    let stamped = std::env::var_os(JOURNAL_VARIABLE).is_none();
    let started = match (format, stamped) {
        (Format::Json, _) => log.json().flatten_event(true).try_init(),
        (Format::Text, true) => log.try_init(),
        (Format::Text, false) => log.without_time().try_init(),
    };
    // A program that embeds the daemon may have a log of its own, and keeps it.
    drop(started);
    Ok(())
}

fn filter(value: &str) -> Result<EnvFilter, TelemetryError> {
    let directives = if value.trim().is_empty() {
        FILTER_DEFAULT
    } else {
        value
    };
    EnvFilter::try_new(directives).map_err(|_| TelemetryError::Variable {
        name: FILTER_VARIABLE,
        value: value.to_owned(),
        expected: "a level such as \"debug\", or targets such as \"drowse::http=trace,info\"",
    })
}

fn format(value: &str) -> Result<Format, TelemetryError> {
    match value.trim() {
        "" | "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        other => Err(TelemetryError::Variable {
            name: FORMAT_VARIABLE,
            value: other.to_owned(),
            expected: "\"text\" or \"json\"",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_variables_are_refused_by_name_and_blank_ones_are_defaults() {
        assert_eq!(filter(" ").unwrap().to_string(), "actix_server=warn,info");
        assert_eq!(
            filter("drowse=trace,warn").unwrap().to_string(),
            "drowse=trace,warn"
        );
        let error = filter("drowse=loud").unwrap_err().to_string();
        assert!(
            error.starts_with("environment variable DROWSE_LOG = \"drowse=loud\""),
            "{error}"
        );
        assert_eq!(format("json").unwrap(), Format::Json);
        assert_eq!(format("").unwrap(), Format::Text);
        assert!(
            format("xml")
                .unwrap_err()
                .to_string()
                .contains("DROWSE_LOG_FORMAT = \"xml\"")
        );
    }
}
