//! An error with its causes, as one line.

use std::error::Error;

/// The error's text and those of its causes, outermost first, with colons between them.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
