//! Settings as they were written: a path of keys, a value, and the place, whatever the source.
//!
//! Fed by files, the environment and flags; read by `apply`. Knows nothing of what a key means.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::problem::{Place, Problem, shown};

/// 1 MiB: a configuration of hundreds of agents is smaller, and it is read whole.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Environment variables of the form `DROWSE_SECTION__KEY` are configuration; others that begin
/// with the same prefix (`DROWSE_STATE`) are not.
const VARIABLE_PREFIX: &str = "DROWSE_";
const VARIABLE_SEPARATOR: &str = "__";

/// A value before anybody knows what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    /// As written: the reader decides what a number may be.
    Number(String),
    Flag(bool),
    List(Vec<Self>),
    /// A table without entries; others are flattened into their entries.
    Table,
    /// Something no key takes, by its name.
    Other(&'static str),
}

impl Value {
    /// What it is, for an error.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Number(_) => "a number",
            Self::Flag(_) => "a boolean",
            Self::List(_) => "an array",
            Self::Table => "a table",
            Self::Other(kind) => kind,
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Integer(number) => Self::Number(number.to_string()),
            DeValue::Float(number) => Self::Number(number.to_string()),
            DeValue::Boolean(flag) => Self::Flag(*flag),
            DeValue::Datetime(_) => Self::Other("a date"),
            DeValue::Array(list) => Self::List(
                list.iter()
                    .map(|item| Self::from_toml(item.get_ref()))
                    .collect(),
            ),
            DeValue::Table(_) => Self::Table,
        }
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) path: Vec<String>,
    pub(super) value: Value,
    /// The value as written, for errors.
    pub(super) shown: String,
    pub(super) place: Place,
}

impl Setting {
    /// The key as an error names it: parts that need quotes have them.
    pub(super) fn key(&self) -> String {
        dotted(self.path.iter().map(String::as_str))
    }

    /// A problem with this setting. The value of an agent's environment stays out of it.
    pub(super) fn problem(&self, detail: String) -> Problem {
        let secret = self.path.first().is_some_and(|part| part == "agents")
            && self
                .path
                .get(2)
                .is_some_and(|part| part == "env" || part == "command");
        // A table is all that is written under its key: too much to repeat.
        let value = (!secret && self.value != Value::Table).then(|| self.shown.clone());
        Problem {
            place: self.place.clone(),
            key: self.key(),
            value,
            detail,
        }
    }
}

/// Joins parts of a key as TOML writes them.
pub(super) fn dotted<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let bare = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    let quoted = parts.map(|part| {
        if bare(part) {
            part.to_owned()
        } else {
            format!("{part:?}")
        }
    });
    quoted.collect::<Vec<_>>().join(".")
}

/// Reads the settings of a file. One that is not there has none, unless it was asked for.
pub(super) fn from_file(path: &Path, required: bool, problems: &mut Vec<Problem>) -> Vec<Setting> {
    let whole = || Place::File {
        path: path.to_owned(),
        line: None,
    };
    let bytes = match read_bounded(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !required => return Vec::new(),
        Err(error) => {
            problems.push(Problem::of_place(
                whole(),
                format!("cannot be read: {error}"),
            ));
            return Vec::new();
        }
    };
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let detail = format!("is larger than {FILE_BYTES_MAX} bytes");
        problems.push(Problem::of_place(whole(), detail));
        return Vec::new();
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => from_toml(text, path, problems),
        Err(error) => {
            let line = bytes[..error.valid_up_to()]
                .iter()
                .filter(|&&b| b == b'\n')
                .count()
                + 1;
            let place = Place::File {
                path: path.to_owned(),
                line: Some(line),
            };
            problems.push(Problem::of_place(place, "is not UTF-8".to_owned()));
            Vec::new()
        }
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Flattens a document, in the order of its lines.
fn from_toml(text: &str, path: &Path, problems: &mut Vec<Problem>) -> Vec<Setting> {
    let place = |at: usize| {
        let line = text.as_bytes()[..at.min(text.len())]
            .iter()
            .filter(|&&b| b == b'\n')
            .count();
        Place::File {
            path: path.to_owned(),
            line: Some(line + 1),
        }
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // Half a document would only bring problems that are none.
        problems.extend(errors.iter().map(|error| {
            let at = error.span().map_or(text.len(), |span| span.start);
            Problem::of_place(place(at), format!("is not TOML: {}", error.message()))
        }));
        return Vec::new();
    }
    let mut found = Vec::new();
    flatten(document.get_ref(), &mut Vec::new(), &mut found);
    found.sort_by_key(|leaf: &Leaf<'_, '_>| leaf.at);
    let setting = |leaf: Leaf<'_, '_>| Setting {
        value: Value::from_toml(leaf.value),
        shown: shown(text.get(leaf.span).unwrap_or_default()),
        place: place(leaf.at),
        path: leaf.path,
    };
    found.into_iter().map(setting).collect()
}

/// A value that has no entries of its own.
struct Leaf<'d, 'i> {
    path: Vec<String>,
    value: &'d DeValue<'i>,
    at: usize,
    span: std::ops::Range<usize>,
}

fn flatten<'d, 'i>(table: &'d DeTable<'i>, path: &mut Vec<String>, found: &mut Vec<Leaf<'d, 'i>>) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        match value.get_ref().as_table() {
            Some(inner) if !inner.is_empty() => flatten(inner, path, found),
            Some(_) | None => found.push(Leaf {
                path: path.clone(),
                value: value.get_ref(),
                at: key.span().start,
                span: value.span(),
            }),
        }
        path.pop();
    }
}

/// Settings of environment variables, by name. A blank one is not set.
pub(super) fn from_environment(
    variables: &[(OsString, OsString)],
    problems: &mut Vec<Problem>,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (name, value) in variables {
        let Some(name) = name.to_str() else { continue };
        let Some(path) = variable_path(name) else {
            continue;
        };
        let place = Place::Variable(name.to_owned());
        match value.to_str() {
            Some(text) if text.trim().is_empty() => {}
            Some(text) => settings.push(from_text(path, text, place)),
            None => problems.push(Problem::of_place(place, "is not UTF-8".to_owned())),
        }
    }
    settings.sort_by(|a, b| a.path.cmp(&b.path));
    settings
}

/// `DROWSE_SESSION__IDLE_AFTER` is `session.idle_after`. The name of a variable for an agent
/// keeps its letters: environment variables tell upper from lower case.
fn variable_path(name: &str) -> Option<Vec<String>> {
    let rest = name.strip_prefix(VARIABLE_PREFIX)?;
    let parts: Vec<&str> = rest.split(VARIABLE_SEPARATOR).collect();
    if parts.len() < 2 {
        return None;
    }
    let lower = |parts: &[&str]| {
        parts
            .iter()
            .map(|part| part.to_lowercase())
            .collect::<Vec<_>>()
    };
    if let ["AGENTS", agent, "ENV", variable @ ..] = parts.as_slice() {
        let mut path = lower(&["AGENTS", agent, "ENV"]);
        path.push(variable.join(VARIABLE_SEPARATOR));
        return Some(path);
    }
    Some(lower(&parts))
}

/// A setting of a text source: a flag, a variable, a request.
pub(super) fn from_text(path: Vec<String>, text: &str, place: Place) -> Setting {
    // Text has no array syntax of its own, so an array is written as in the file.
    let command = path.len() == 3 && path[0] == "agents" && path[2] == "command";
    let array = command || path.last().is_some_and(|key| key == "keep");
    let value = match DeValue::parse(text) {
        Ok(value) if array => Value::from_toml(value.get_ref()),
        Ok(_) | Err(_) => Value::Text(text.trim().to_owned()),
    };
    Setting {
        path,
        value,
        shown: shown(&format!("{text:?}")),
        place,
    }
}
