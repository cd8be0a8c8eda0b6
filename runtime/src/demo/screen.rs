//! What the demo shows: plain lines, and on a terminal a table that is drawn in place.

use std::collections::BTreeMap;
use std::io::{self, Write};

use drowse_messages::SessionReport;

use super::{megabytes, pss};

/// Clears from the cursor to the end of the screen.
const CLEAR_BELOW: &str = "\x1b[J";

/// Where the demo is shown.
#[derive(Debug)]
pub(super) struct Screen {
    is_terminal: bool,
    /// Lines of the table on the screen that will be drawn over.
    drawn: usize,
    /// What was said last without a terminal, so that only changes are.
    last: Vec<String>,
}

impl Screen {
    pub(super) fn new(is_terminal: bool) -> Self {
        Self {
            is_terminal,
            drawn: 0,
            last: Vec::new(),
        }
    }

    /// Says something, below all that was said before.
    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }

    /// Shows how things stand.
    pub(super) fn table(
        &mut self,
        before: &BTreeMap<String, SessionReport>,
        now: &BTreeMap<String, SessionReport>,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let lines = lines(before, now);
        if self.is_terminal {
            if self.drawn > 0 {
                write!(out, "\x1b[{}A{CLEAR_BELOW}", self.drawn)?;
            }
            let head = [
                "SESSION",
                "STATE",
                "RELEASES IN",
                "PROCS",
                "MEMORY BEFORE",
                "MEMORY NOW",
            ];
            writeln!(out, "{}", row(head.map(str::to_owned)))?;
            for (line, _) in &lines {
                writeln!(out, "{line}")?;
            }
            self.drawn = lines.len() + 1;
        } else {
            for (_, fact) in &lines {
                if !self.last.contains(fact) {
                    writeln!(out, "  {fact}")?;
                }
            }
            self.last = lines.into_iter().map(|(_, fact)| fact).collect();
        }
        out.flush()
    }

    /// What is drawn stays; the next table begins below.
    pub(super) fn keep_table(&mut self) -> io::Result<()> {
        self.drawn = 0;
        self.last.clear();
        io::stdout().flush()
    }
}

fn row(cells: [String; 6]) -> String {
    let [session, state, left, procs, before, now] = cells;
    format!("{session:<9} {state:<10} {left:>11} {procs:>5}  {before:>13}  {now:>10}")
}

/// For each session its row, and what is worth a line when it changes.
fn lines(
    before: &BTreeMap<String, SessionReport>,
    now: &BTreeMap<String, SessionReport>,
) -> Vec<(String, String)> {
    now.values()
        .map(|report| {
            let was = before.get(&report.name).map(pss).unwrap_or_default();
            let awake = report.awake.as_ref();
            let usage = awake.and_then(|awake| awake.usage).unwrap_or_default();
            let left = awake.and_then(|awake| awake.releases_in_ms).map_or_else(
                || "-".to_owned(),
                |left| format!("{}.{}s", left / 1000, left % 1000 / 100),
            );
            let state = report.state.code().to_owned();
            let fact = format!("{} is {state}", report.name);
            let cells = [
                report.name.clone(),
                state,
                left,
                usage.processes.to_string(),
                megabytes(was),
                megabytes(usage.pss_bytes),
            ];
            (row(cells), fact)
        })
        .collect()
}
