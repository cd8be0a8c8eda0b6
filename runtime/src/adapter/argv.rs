//! Reads and changes command lines: which options are there, which to take away, where to add.
//!
//! Fed by the adapters' `plan`. It knows no agent: an option is named by its spellings and by
//! whether it takes a value. Words after `--` belong to the agent and are never looked at.

/// An option of an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opt {
    /// All spellings.
    pub(super) names: &'static [&'static str],
    /// Whether a value follows.
    pub(super) value: Value,
}

/// Whether a value follows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Never.
    No,
    /// Unless another option or nothing follows.
    Maybe,
    /// Always.
    Yes,
}

impl Opt {
    /// An option without a value.
    pub(super) const fn flag(names: &'static [&'static str]) -> Self {
        Self {
            names,
            value: Value::No,
        }
    }

    /// An option with a value.
    pub(super) const fn with_value(names: &'static [&'static str]) -> Self {
        Self {
            names,
            value: Value::Yes,
        }
    }

    fn is(&self, word: &str) -> bool {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        self.names.contains(&name)
    }

    /// Its value in `argv`, the last one given.
    pub(super) fn value_in(&self, argv: &[String]) -> Option<String> {
        let argv = &argv[..end(argv)];
        let at = argv.iter().rposition(|word| self.is(word))?;
        match argv[at].split_once('=') {
            Some((_, value)) => Some(value.to_owned()),
            None => argv.get(at + 1).cloned(),
        }
    }

    /// Words this option takes up, beginning with itself.
    fn len(&self, words: &[String]) -> usize {
        let inline = words[0].contains('=');
        let followed = match self.value {
            Value::No => false,
            Value::Maybe => words.get(1).is_some_and(|word| !word.starts_with('-')),
            Value::Yes => words.len() > 1,
        };
        if followed && !inline { 2 } else { 1 }
    }
}

/// True when `option` is given in `argv`.
pub(super) fn has(argv: &[String], option: &Opt) -> bool {
    argv[..end(argv)].iter().any(|word| option.is(word))
}

/// `argv` without these options and their values.
pub(super) fn without(argv: &[String], options: &[Opt]) -> Vec<String> {
    let end = end(argv);
    let mut kept = Vec::with_capacity(argv.len());
    let mut at = 0;
    while at < end {
        match options.iter().find(|option| option.is(&argv[at])) {
            Some(option) => at += option.len(&argv[at..end]),
            None => {
                kept.push(argv[at].clone());
                at += 1;
            }
        }
    }
    kept.extend_from_slice(&argv[end..]);
    kept
}

/// Adds `words` as the last options of `argv`.
pub(super) fn add(argv: &mut Vec<String>, words: &[&str]) {
    let end = end(argv);
    argv.splice(end..end, words.iter().map(|word| (*word).to_owned()));
}

/// Where the options end.
fn end(argv: &[String]) -> usize {
    argv.iter()
        .position(|word| word == "--")
        .unwrap_or(argv.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    /// D27: nothing but the named options changes.
    #[test]
    fn options_go_with_their_values() {
        let resume = Opt {
            names: &["--resume", "-r"],
            value: Value::Maybe,
        };
        let id = Opt::with_value(&["--session-id"]);
        let both = [resume, id];
        assert_eq!(
            without(&words("a -r x -v --session-id=y z"), &both),
            words("a -v z")
        );
        assert_eq!(
            without(&words("a -r -v --session-id y"), &both),
            words("a -v")
        );
        assert_eq!(without(&words("a -- -r x"), &both), words("a -- -r x"));
        assert!(has(&words("a --resume=x"), &resume));
        assert!(!has(&words("a -- --resume"), &resume));
        assert_eq!(
            id.value_in(&words("a --session-id x --session-id=y"))
                .as_deref(),
            Some("y")
        );
        assert_eq!(id.value_in(&words("a --session-id")), None);
        assert_eq!(id.value_in(&words("a -- --session-id x")), None);
    }

    /// Row 69: what is added is an option, not a word for the model.
    #[test]
    fn options_are_added_before_the_dashes() {
        let mut argv = words("a b -- c");
        add(&mut argv, &["-p", "x"]);
        assert_eq!(argv, words("a b -p x -- c"));
    }
}
