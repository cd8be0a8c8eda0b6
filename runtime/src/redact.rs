//! Takes secrets out of text: the values that an agent got as arguments and environment.
//!
//! Fed by a session's recipe; used on everything an agent said that ends up in a log, an event, a
//! report or a file (D53). Invariant: what a name marks as secret is replaced wherever it occurs
//! literally. It does not guess: a secret under an innocent name, or one that is encoded, stays.

use std::collections::BTreeMap;

use drowse_messages::Recipe;

/// What stands for a secret.
pub(crate) const REDACTED: &str = "***";

/// 6 bytes: a shorter value occurs in ordinary text, and replacing it would only spoil that.
const SECRET_BYTES_MIN: usize = 6;

/// 1,024 values: an environment has a few dozen secrets; the longest are kept when there are more.
const SECRETS_MAX: usize = 1024;

/// Words that mark a name as secret, alone or with an `S` behind.
const SECRET_WORDS: [&str; 12] = [
    "APIKEY",
    "AUTH",
    "AUTHORIZATION",
    "COOKIE",
    "CREDENTIAL",
    "KEY",
    "PASS",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "SECRET",
    "TOKEN",
];

/// True when a part of the name says that its value is secret: `OPENAI_API_KEY`, `--auth-token`,
/// `apiKey`; not `KEYBOARD`.
#[must_use]
pub(crate) fn is_secret_name(name: &str) -> bool {
    words(name).any(|word| {
        let singular = word.strip_suffix('S').unwrap_or(&word);
        SECRET_WORDS.contains(&word.as_str()) || SECRET_WORDS.contains(&singular)
    })
}

/// Parts of a name in upper case, cut at punctuation and where a capital follows a small letter.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut cut = String::with_capacity(name.len() + 8);
    let mut small_before = false;
    for c in name.chars() {
        if small_before && c.is_uppercase() {
            cut.push('_');
        }
        small_before = c.is_lowercase();
        cut.extend(c.to_uppercase());
    }
    let parts: Vec<String> = cut
        .split(|c: char| !c.is_alphanumeric())
        .map(str::to_owned)
        .collect();
    parts.into_iter()
}

/// Replaces the secrets of one recipe.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    /// Longest first, so that a secret inside another one does not leave the rest of it behind.
    secrets: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor")
            .field("secrets", &self.secrets.len())
            .finish()
    }
}

impl Redactor {
    /// Knows the secrets of a recipe.
    #[must_use]
    pub(crate) fn for_recipe(recipe: &Recipe) -> Self {
        Self::new(&recipe.argv, &recipe.env)
    }

    /// Knows the secrets of an argument list and an environment.
    #[must_use]
    pub(crate) fn new(argv: &[String], env: &BTreeMap<String, String>) -> Self {
        let marked = env.iter().filter(|(name, _)| is_secret_name(name));
        let values = marked
            .map(|(_, value)| value.as_str())
            .chain(of_arguments(argv));
        // A value of several lines is met line by line in what an agent says.
        let lines = values.flat_map(str::lines).map(str::trim);
        let mut secrets: Vec<String> = lines
            .filter(|line| line.len() >= SECRET_BYTES_MIN)
            .map(str::to_owned)
            .collect();
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        secrets.truncate(SECRETS_MAX);
        Self { secrets }
    }

    /// Knows one more, whatever its name.
    #[must_use]
    pub(crate) fn and(mut self, secret: String) -> Self {
        let longer = |known: &String| known.len() >= secret.len();
        let at = self.secrets.partition_point(longer);
        self.secrets.insert(at, secret);
        self
    }

    /// The text with `***` for every secret in it.
    #[must_use]
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        for secret in &self.secrets {
            if clean.contains(secret.as_str()) {
                clean = clean.replace(secret.as_str(), REDACTED);
            }
        }
        clean
    }
}

/// Secret values among arguments: after a flag with a secret name, and behind `=` or `:` in one.
fn of_arguments(argv: &[String]) -> impl Iterator<Item = &str> {
    let follows = argv.windows(2).filter_map(|pair| {
        let is_flag = pair[0].starts_with('-') && !pair[0].contains('=');
        (is_flag && is_secret_name(&pair[0])).then_some(pair[1].as_str())
    });
    let inside = argv.iter().filter_map(|argument| {
        let (name, value) = argument.split_once(['=', ':'])?;
        // Of "Authorization: Bearer abc" the last word is the secret.
        is_secret_name(name).then(|| value.split_whitespace().next_back().unwrap_or(value))
    });
    follows.chain(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(argv: &[&str], env: &[(&str, &str)]) -> Redactor {
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        let env = env
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        Redactor::new(&argv, &env)
    }

    #[test]
    fn a_name_is_secret_by_its_parts() {
        for secret in [
            "TOKEN",
            "openai_api_key",
            "--api-key",
            "apiKey",
            "GITHUB_TOKENS",
            "DB.PASSWORD",
        ] {
            assert!(is_secret_name(secret), "{secret}");
        }
        for plain in [
            "KEYBOARD",
            "PATH",
            "MONKEY",
            "TOKENIZER",
            "PWD",
            "PASSAGE",
            "",
        ] {
            assert!(!is_secret_name(plain), "{plain}");
        }
    }

    /// D53: secrets of the environment and of arguments are in nothing an agent is quoted with.
    #[test]
    fn every_way_to_pass_a_secret_is_known() {
        let redactor = redactor(
            &[
                "agent",
                "--api-key",
                "s3cr3t",
                "--token=t0k3n-1",
                "-H",
                "Authorization: Bearer b34r3r",
            ],
            &[
                ("MY_SECRET", "line-one\nline-two"),
                ("HOME", "/home/me"),
                ("A_KEY", "short"),
            ],
        );
        let text = "s3cr3t t0k3n-1 b34r3r line-two line-one /home/me short Bearer";
        assert_eq!(
            redactor.redact(text),
            "*** *** *** *** *** /home/me short Bearer"
        );
    }

    #[test]
    fn a_secret_inside_a_longer_one_leaves_nothing_behind() {
        let redactor = redactor(&[], &[("A_KEY", "abcdef"), ("B_KEY", "abcdef-ghijkl")]);
        assert_eq!(redactor.redact("abcdef-ghijkl abcdef"), "*** ***");
        assert_eq!(format!("{redactor:?}"), "Redactor { secrets: 2 }");
    }
}
