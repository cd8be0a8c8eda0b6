//! Keeps the texts of one turn apart. An agent says several, with tools in between; run together
//! they would read as one.
//!
//! Fed by observers with the words as they come. Invariant: words are passed on verbatim; only
//! between two texts of the same turn a blank line is put.

use serde::{Deserialize, Serialize};

use super::text::{ANSWER_BYTES_MAX, cut};
use super::{Fact, Seen};

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Paragraphs {
    /// Something was said in this turn.
    said: bool,
    /// What is said next is a text of its own.
    begins: bool,
}

impl Paragraphs {
    /// The next words begin a text.
    pub(super) fn begin(&mut self) {
        self.begins = true;
    }

    /// The turn is over: the next text is the first again.
    pub(super) fn turn_ended(&mut self) {
        *self = Self::default();
    }

    /// Passes words on to whoever watches.
    pub(super) fn say(&mut self, seen: &mut Seen, words: &str) {
        if words.is_empty() {
            return;
        }
        let begins = std::mem::take(&mut self.begins);
        let gap = if std::mem::replace(&mut self.said, true) && begins {
            "\n\n"
        } else {
            ""
        };
        let words = cut(words, ANSWER_BYTES_MAX);
        seen.facts.push(Fact::Output(format!("{gap}{words}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_one_turn_are_apart_and_turns_begin_anew() {
        let (mut paragraphs, mut seen) = (Paragraphs::default(), Seen::default());
        for text in [["I ", "look."], ["", "Done."]] {
            paragraphs.begin();
            for words in text {
                paragraphs.say(&mut seen, words);
            }
        }
        paragraphs.turn_ended();
        paragraphs.begin();
        paragraphs.say(&mut seen, "Next");
        let said = ["I ", "look.", "\n\nDone.", "Next"].map(|words| Fact::Output(words.to_owned()));
        assert_eq!(seen.facts, said);
    }
}
