//! Makes text of an agent fit to be shown: bounded, and on one line without control characters
//! where a list shows it.
//!
//! Fed by the adapters. Invariant: a result is never longer than its bound, and a cut never
//! splits a character. Answers and output are only cut: they are the agent's words, verbatim.

/// 200: a title is one line of a list; more would not be read there.
pub(super) const TITLE_CHARS_MAX: usize = 200;

/// 64 KiB: a whole shell script or a patch to approve fits; more is read in the agent's own log.
pub(super) const DETAIL_BYTES_MAX: usize = 64 * 1024;

/// 1 MiB: far above the longest answer a model gives in one turn; it is kept with the message.
pub(super) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// 500: a notice is a sentence or two.
pub(super) const NOTICE_CHARS_MAX: usize = 500;

/// Characters looked at for each one kept, so that a flood of control characters costs little.
const LOOKED_AT_PER_KEPT: usize = 8;

/// `text` on one line of at most `chars_max` characters: white space and control characters
/// become single spaces, invisible direction marks go, and a cut ends in `…`.
pub(super) fn one_line(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    let mut kept = 0;
    let mut gap = false;
    for c in text
        .chars()
        .take(chars_max.saturating_mul(LOOKED_AT_PER_KEPT))
    {
        if c.is_whitespace() || c.is_control() {
            gap = kept > 0;
            continue;
        }
        if is_invisible(c) {
            continue;
        }
        let wanted = if gap { 2 } else { 1 };
        if kept + wanted > chars_max {
            shorten(&mut line);
            break;
        }
        if gap {
            line.push(' ');
        }
        line.push(c);
        kept += wanted;
        gap = false;
    }
    line
}

/// `text` over several lines, cut to `bytes_max`, without control characters but line ends and
/// tabs.
pub(super) fn block(text: &str, bytes_max: usize) -> String {
    let shown = |c: &char| matches!(c, '\n' | '\t') || !(c.is_control() || is_invisible(*c));
    cut(text, bytes_max).chars().filter(shown).collect()
}

/// The start of `text` that fits into `bytes_max`, at a character's edge.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Replaces the last character by the mark of a cut.
fn shorten(line: &mut String) {
    line.pop();
    line.push('…');
}

/// Marks that reorder or hide text: with them a title could read as another command.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 120: descriptions are cut to a bound and stripped of control characters.
    #[test]
    fn a_title_is_one_bounded_line() {
        assert_eq!(
            one_line("  Bash:\u{1b}[31m rm\n\t-rf  x\u{202e} ", 200),
            "Bash: [31m rm -rf x"
        );
        assert_eq!(one_line("日本語テキスト", 4), "日本語…");
        assert_eq!(one_line("日本語", 3), "日本語");
        assert_eq!(one_line("ab cd", 3), "a…");
        assert_eq!(one_line(&"\u{7}".repeat(1 << 20), 10), "");
        assert_eq!(one_line("a\u{2028}b", 10), "a b");
    }

    /// D39: a cut never splits a character.
    #[test]
    fn a_cut_is_at_an_edge() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(block("a\u{0}b\r\nc\td", 100), "ab\nc\td");
    }
}
