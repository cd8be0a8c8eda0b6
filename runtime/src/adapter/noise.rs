//! Noise: lines that are no lines of an agent, or are broken, or are of another shape.
//!
//! Whatever an agent prints, an observer neither panics nor takes it for the end of anything.

use drowse_messages::AgentStatus;
use proptest::prelude::*;

use super::golden::transcripts;
use super::{Acp, Adapter, Claude, Codex, Direction, Fact, Mcp, Pi};

const ADAPTERS: [&dyn Adapter; 5] = [&Acp, &Claude, &Codex, &Mcp, &Pi];

const SHAPES: [&str; 8] = ["null", "7", "-1.5", "\"\"", "[]", "{}", "[[]]", "true"];

/// True for the facts that end something: noise must never produce one.
fn is_verdict(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Status(
            AgentStatus::TurnEnded(_)
                | AgentStatus::CannotResume { .. }
                | AgentStatus::CannotStart { .. }
                | AgentStatus::NotTaken { .. }
        )
    )
}

/// The line with one value somewhere in it replaced by `value`: well-formed, of another shape.
fn bent(line: &str, at: usize, value: serde_json::Value) -> Option<String> {
    fn count(part: &serde_json::Value) -> usize {
        1 + children(part).map(count).sum::<usize>()
    }
    fn children(part: &serde_json::Value) -> impl Iterator<Item = &serde_json::Value> {
        let items = part.as_array().into_iter().flatten();
        items.chain(
            part.as_object()
                .into_iter()
                .flat_map(serde_json::Map::values),
        )
    }
    fn replace(part: &mut serde_json::Value, at: &mut usize, value: &serde_json::Value) {
        if *at == 0 {
            *part = value.clone();
        }
        *at = at.wrapping_sub(1);
        let items = part
            .as_array_mut()
            .into_iter()
            .flatten()
            .collect::<Vec<_>>();
        for item in items {
            replace(item, at, value);
        }
        for item in part
            .as_object_mut()
            .into_iter()
            .flat_map(serde_json::Map::values_mut)
        {
            replace(item, at, value);
        }
    }
    let mut whole: serde_json::Value = serde_json::from_str(line).ok()?;
    // Not the whole line.
    let mut at = 1 + at % (count(&whole) - 1).max(1);
    replace(&mut whole, &mut at, &value);
    Some(whole.to_string())
}

/// Feeds every transcript with one value of each line replaced.
fn follow_bent(adapter: &dyn Adapter, at: usize, value: &str) {
    let value: serde_json::Value = serde_json::from_str(value).expect("a value");
    for (_, lines) in transcripts(adapter.protocol().as_str()) {
        let mut observer = adapter.observe(None, "fresh");
        observer.open();
        for recorded in lines {
            let Some(direction) = recorded.direction() else {
                continue;
            };
            if let Some(line) = bent(&recorded.line, at, value.clone()) {
                observer.observe(direction, line.as_bytes());
            }
        }
    }
}

proptest! {
    // Each case reads all transcripts.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// D39: bytes that are no line end nothing.
    #[test]
    fn bytes_decide_nothing(lines in prop::collection::vec(any::<Vec<u8>>(), 0..20)) {
        for adapter in ADAPTERS {
            let mut observer = adapter.observe(None, "fresh");
            observer.open();
            for line in &lines {
                for direction in [Direction::In, Direction::Out] {
                    let seen = observer.observe(direction, line);
                    prop_assert!(!seen.facts.iter().any(is_verdict));
                }
            }
        }
    }

    /// D39: a recorded line that was cut anywhere, or has a bad byte, ends nothing.
    #[test]
    fn broken_lines_decide_nothing(
        pick in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        for adapter in ADAPTERS {
            let all = transcripts(adapter.protocol().as_str());
            let said = all.iter().flat_map(|(_, lines)| lines).filter(|line| line.dir == "out");
            let mut line = pick.get(&said.collect::<Vec<_>>()).line.clone().into_bytes();
            let at = at.index(line.len());
            if cut { line.truncate(at) } else { line[at] = 0xff }
            let seen = adapter.observe(None, "fresh").observe(Direction::Out, &line);
            prop_assert!(!seen.facts.iter().any(is_verdict));
        }
    }

    /// Well-formed lines of another shape are survived.
    #[test]
    fn odd_shapes_are_survived(at in 0..200_usize, value in prop::sample::select(&SHAPES[..])) {
        for adapter in ADAPTERS {
            follow_bent(adapter, at, value);
        }
    }
}
