//! Every process seen during one teardown, each once.
//!
//! Fed by `ending.rs` with the reaper's reports, in the order they come. Invariant: a process keeps
//! the reading that first found it, and what was measured then; of the signals it was sent the last
//! one counts. Bounded; who comes too late for the bound is not named.

use std::collections::BTreeMap;

use drowse_messages::{ProcIdentity, ProcReport};

/// As many as one report of the reaper names.
pub(super) const FOUND_MAX: usize = 2048;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    processes: Vec<ProcReport>,
    places: BTreeMap<ProcIdentity, usize>,
}

impl Found {
    /// Adds what one reading found, or did.
    pub(super) fn note(&mut self, seen: &[ProcReport]) {
        for process in seen {
            let known = self.places.get(&process.identity);
            if let Some(known) = known.and_then(|&place| self.processes.get_mut(place)) {
                known.signal = process.signal.or(known.signal);
            } else if self.processes.len() < FOUND_MAX {
                self.places.insert(process.identity, self.processes.len());
                self.processes.push(process.clone());
            }
        }
    }

    /// All of them, in the order in which they were found.
    pub(super) fn take(&mut self) -> Vec<ProcReport> {
        self.places.clear();
        std::mem::take(&mut self.processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, scan: u32, signal: Option<i32>, pss_bytes: u64) -> ProcReport {
        let identity = ProcIdentity::new(pid, 1).expect("a pid above 1");
        ProcReport {
            scan,
            signal,
            pss_bytes,
            ..ProcReport::new(identity, 2, "p".to_owned())
        }
    }

    /// D04: the reading that found a process, the last signal, and the memory of the snapshot.
    #[test]
    fn the_first_reading_and_the_last_signal_count() {
        let mut found = Found::default();
        found.note(&[process(10, 0, None, 70), process(11, 0, None, 7)]);
        found.note(&[process(10, 1, Some(15), 0), process(12, 1, Some(15), 0)]);
        found.note(&[process(12, 2, Some(9), 0), process(13, 3, Some(9), 0)]);
        let expected = [
            process(10, 0, Some(15), 70),
            process(11, 0, None, 7),
            process(12, 1, Some(9), 0),
            process(13, 3, Some(9), 0),
        ];
        assert_eq!(found.take(), expected);
        assert_eq!(found, Found::default());
    }

    #[test]
    fn what_is_kept_of_a_teardown_is_bounded() {
        let mut found = Found::default();
        for pid in 2..=i32::try_from(2 * FOUND_MAX).expect("small") {
            found.note(&[process(pid, 2, Some(9), 0)]);
        }
        found.note(&[process(2, 3, Some(15), 0)]);
        let all = found.take();
        assert_eq!(all.len(), FOUND_MAX);
        assert_eq!(all[0].signal, Some(15));
    }
}
