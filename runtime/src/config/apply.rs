//! What each key means: puts settings into a configuration, one after the other.
//!
//! Fed by `load`, in the order of the sources, so that a later setting wins. Invariant: every
//! setting either changes the configuration or becomes a problem; none is ignored.

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use drowse_messages::{KeepRule, Name};

use super::limit::{LIMIT_KEYS, LimitKey, OBSERVED, read_limit, read_switch};
use super::problem::Problem;
use super::setting::{Setting, Value, dotted};
use super::{AgentConfig, Config};

/// 256: each is a backend that uses a processor at once; more only make one another slow.
const STARTING_MAX: usize = 256;

/// 256 agents and 1,024 projects: every pair of them is checked for limits that do not fit.
const AGENTS_MAX: usize = 256;
const PROJECTS_MAX: usize = 1024;

/// 64 rules: each is looked at for every process of a tree that is being ended.
const KEEP_RULES_MAX: usize = 64;
/// 24 h: agents that nobody looks after for a day are forgotten, not waited for.
const ORPHAN_GRACE_MAX: Duration = Duration::from_secs(24 * 3600);

const SECTIONS: [&str; 5] = ["session", "limits", "server", "agents", "projects"];
const SESSION_KEYS: [&str; 2] = ["keep", "observed"];
const LIMITS_KEYS: [&str; 1] = ["max_starting"];
const SERVER_KEYS: [&str; 2] = ["listen", "orphan_grace"];
const AGENT_KEYS: [&str; 4] = ["command", "protocol", "env", "stateless"];

impl Config {
    /// Puts one setting in.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<(), Problem> {
        let path: Vec<&str> = setting.path.iter().map(String::as_str).collect();
        let applied = match path.as_slice() {
            [section] if SECTIONS.contains(section) => section_given(&setting.value),
            ["session", key] if LimitKey::find(key).is_some() => {
                set_limit(key, &setting.value, &mut self.session)
            }
            ["session", "keep"] => {
                keep_rules(&setting.value).map(|rules| self.session.keep = rules)
            }
            ["session", OBSERVED] => {
                read_switch(&setting.value).map(|on| self.session.observed = Some(on))
            }
            ["limits", "max_starting"] => {
                starting_max(&setting.value).map(|count| self.starting_max = count)
            }
            ["server", "listen"] => listen(&setting.value).map(|at| self.listen = at),
            ["server", "orphan_grace"] => read_limit(&setting.value, true, Some(ORPHAN_GRACE_MAX))
                .map(|grace| self.orphan_grace = grace),
            ["agents", name, rest @ ..] => self.apply_to_agent(name, rest, setting),
            ["projects", project, rest @ ..] => self.apply_to_project(project, rest, setting),
            _ => Err(unknown(&path)),
        };
        applied.map_err(|detail| setting.problem(detail))?;
        self.places.insert(place_key(&path), setting.place.clone());
        Ok(())
    }

    fn apply_to_agent(
        &mut self,
        name: &str,
        rest: &[&str],
        setting: &Setting,
    ) -> Result<(), String> {
        let name: Name = name.parse().map_err(|error| format!("{error}"))?;
        if self.agents.len() >= AGENTS_MAX && !self.agents.contains_key(&name) {
            return Err(format!("there are more than {AGENTS_MAX} agents"));
        }
        let protocols = self.protocol_names();
        let agent = self.agents.entry(name.clone()).or_default();
        let value = &setting.value;
        match rest {
            [] | ["env"] => section_given(value),
            ["command"] => command(value).map(|argv| agent.command = Some(argv)),
            ["protocol"] => protocol(value, &protocols).map(|it| agent.protocol = Some(it)),
            ["env", variable] => set_variable(agent, variable, value),
            ["stateless"] => flag(value).map(|it| agent.stateless = it),
            ["keep"] => keep_rules(value).map(|rules| agent.limits.keep = rules),
            [OBSERVED] => read_switch(value).map(|on| agent.limits.observed = Some(on)),
            [key] if LimitKey::find(key).is_some() => set_limit(key, value, &mut agent.limits),
            _ => Err(unknown(&[&["agents", name.as_str()], rest].concat())),
        }
    }

    fn apply_to_project(
        &mut self,
        project: &str,
        rest: &[&str],
        setting: &Setting,
    ) -> Result<(), String> {
        let folder = project_folder(project)?;
        if self.projects.len() >= PROJECTS_MAX && !self.projects.contains_key(&folder) {
            return Err(format!("there are more than {PROJECTS_MAX} projects"));
        }
        let limits = self.projects.entry(folder).or_default();
        match rest {
            [] => section_given(&setting.value),
            ["keep"] => keep_rules(&setting.value).map(|rules| limits.keep = rules),
            [OBSERVED] => read_switch(&setting.value).map(|on| limits.observed = Some(on)),
            [key] if LimitKey::find(key).is_some() => set_limit(key, &setting.value, limits),
            _ => Err(unknown(&[&["projects", project], rest].concat())),
        }
    }
}

/// The key under which a setting's place is kept: a project by its folder, however it was spelt.
fn place_key(path: &[&str]) -> String {
    if let ["projects", project, rest @ ..] = path
        && let Ok(folder) = project_folder(project)
    {
        let folder = folder.to_string_lossy();
        return dotted(
            ["projects", &*folder]
                .into_iter()
                .chain(rest.iter().copied()),
        );
    }
    dotted(path.iter().copied())
}

fn section_given(value: &Value) -> Result<(), String> {
    match value {
        Value::Table => Ok(()),
        Value::Text(_) | Value::Number(_) | Value::Flag(_) | Value::List(_) | Value::Other(_) => {
            Err(format!("is {}; expected a table", value.kind()))
        }
    }
}

fn set_limit(
    key: &str,
    value: &Value,
    over: &mut drowse_messages::LimitOverrides,
) -> Result<(), String> {
    let known = LimitKey::find(key).expect("the pattern matched a known key");
    known.apply(value, over)
}

fn starting_max(value: &Value) -> Result<usize, String> {
    let written = match value {
        Value::Text(text) | Value::Number(text) => text.as_str(),
        Value::Flag(_) | Value::List(_) | Value::Table | Value::Other(_) => "",
    };
    match written.parse() {
        Ok(count) if (1..=STARTING_MAX).contains(&count) => Ok(count),
        Ok(_) | Err(_) => Err(format!(
            "is out of range; expected a whole number from 1 to {STARTING_MAX}"
        )),
    }
}

fn listen(value: &Value) -> Result<Option<SocketAddr>, String> {
    const EXPECTED: &str = "expected \"127.0.0.1:7077\", another loopback address, or \"off\"";
    let Value::Text(text) = value else {
        return Err(format!("is {}; {EXPECTED}", value.kind()));
    };
    if text == "off" {
        return Ok(None);
    }
    let address: SocketAddr = text
        .parse()
        .map_err(|_| format!("is not an IP address with a port; {EXPECTED}"))?;
    if !address.ip().is_loopback() {
        return Err(format!("can be reached from other machines; {EXPECTED}"));
    }
    Ok(Some(address))
}

fn command(value: &Value) -> Result<Vec<String>, String> {
    const EXPECTED: &str = "expected an array of text such as [\"claude\"]";
    let Value::List(items) = value else {
        return Err(format!("is {}; {EXPECTED}", value.kind()));
    };
    let mut argv = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Value::Text(text) if text.contains('\0') => {
                return Err(format!("contains a NUL; {EXPECTED}"));
            }
            Value::Text(text) => argv.push(text.clone()),
            Value::Number(_) | Value::Flag(_) | Value::List(_) | Value::Table | Value::Other(_) => {
                return Err(format!("has {} in it; {EXPECTED}", item.kind()));
            }
        }
    }
    if argv.first().is_none_or(String::is_empty) {
        return Err(format!("names no program; {EXPECTED}"));
    }
    Ok(argv)
}

/// What outlives a release. A process by its number would mean another one after a while.
fn keep_rules(value: &Value) -> Result<Vec<KeepRule>, String> {
    const EXPECTED: &str = "expected an array such as [\"listen:3000\", \"exe:postgres\"]";
    let Value::List(items) = value else {
        return Err(format!("is {}; {EXPECTED}", value.kind()));
    };
    if items.len() > KEEP_RULES_MAX {
        return Err(format!("has more than {KEEP_RULES_MAX} rules"));
    }
    let rule = |item: &Value| {
        let Value::Text(text) = item else {
            return Err(format!("has {} in it; {EXPECTED}", item.kind()));
        };
        match text.parse()? {
            KeepRule::Process(_) => Err(format!("names a process by its number; {EXPECTED}")),
            rule @ (KeepRule::Listen(_) | KeepRule::Exe(_)) => Ok(rule),
        }
    };
    items.iter().map(rule).collect()
}

/// Text sources have no booleans.
fn flag(value: &Value) -> Result<bool, String> {
    match value {
        Value::Flag(flag) => Ok(*flag),
        Value::Text(text) if text == "true" => Ok(true),
        Value::Text(text) if text == "false" => Ok(false),
        Value::Text(_) => Err("is neither true nor false".to_owned()),
        Value::Number(_) | Value::List(_) | Value::Table | Value::Other(_) => {
            Err(format!("is {}; expected true or false", value.kind()))
        }
    }
}

fn protocol(value: &Value, known: &[String]) -> Result<Name, String> {
    let expected = || format!("expected one of: {}", known.join(", "));
    let Value::Text(text) = value else {
        return Err(format!("is {}; {}", value.kind(), expected()));
    };
    let name = known
        .iter()
        .find(|name| *name == text)
        .and_then(|name| name.parse().ok());
    name.ok_or_else(|| format!("is no protocol of drowse; {}", expected()))
}

fn set_variable(agent: &mut AgentConfig, variable: &str, value: &Value) -> Result<(), String> {
    if variable.is_empty() || variable.contains(['=', '\0']) {
        return Err("is not a name for an environment variable".to_owned());
    }
    match value {
        Value::Text(text) if text.contains('\0') => Err("contains a NUL".to_owned()),
        Value::Text(text) => {
            agent.env.insert(variable.to_owned(), text.clone());
            Ok(())
        }
        Value::Number(_) | Value::Flag(_) | Value::List(_) | Value::Table | Value::Other(_) => {
            Err(format!("is {}; expected text", value.kind()))
        }
    }
}

fn project_folder(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if path.is_absolute() && path.components().all(plain) {
        // Collected from its parts, so that "/a/b/" and "/a//b" are one project.
        Ok(path.components().collect())
    } else {
        Err("is not an absolute path without \"..\"".to_owned())
    }
}

/// Says that a key is unknown, and which one may have been meant.
fn unknown(path: &[&str]) -> String {
    let (last, parents) = path.split_last().unwrap_or((&"", &[]));
    let limits = LIMIT_KEYS.map(|key| key.name);
    let candidates: Vec<&str> = match parents {
        [] => SECTIONS.to_vec(),
        ["session"] | ["projects", _] => [SESSION_KEYS.as_slice(), limits.as_slice()].concat(),
        ["limits"] => LIMITS_KEYS.to_vec(),
        ["server"] => SERVER_KEYS.to_vec(),
        ["agents", _] => [
            AGENT_KEYS.as_slice(),
            SESSION_KEYS.as_slice(),
            limits.as_slice(),
        ]
        .concat(),
        _ => Vec::new(),
    };
    if let Some(near) = nearest(last, &candidates) {
        let whole = dotted(parents.iter().copied().chain([near]));
        return format!("unknown key; did you mean {whole}?");
    }
    if limits.contains(last) {
        return format!("unknown key; did you mean session.{last}?");
    }
    match candidates.as_slice() {
        [] => "unknown key".to_owned(),
        some => format!("unknown key; there is: {}", some.join(", ")),
    }
}

/// Says that a limit asked for by a client is unknown.
pub(super) fn unknown_limit(key: &str) -> String {
    let names = LIMIT_KEYS.iter().map(|known| known.name);
    let names: Vec<&str> = names.chain([OBSERVED]).collect();
    match nearest(key, &names) {
        Some(near) => format!("unknown limit; did you mean {near}?"),
        None => format!("unknown limit; there is: {}", names.join(", ")),
    }
}

/// The candidate that a slip of the fingers turns into `word`: at most a third of it differs.
fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let (distance, near) = candidates.iter().map(|it| (edits(word, it), *it)).min()?;
    (distance <= (word.len() / 3).max(1)).then_some(near)
}

/// Edits (insert, delete, replace) that turn `a` into `b`; long words are cut, they fit nothing.
fn edits(a: &str, b: &str) -> usize {
    const WORD_CHARS_MAX: usize = 64;
    let b: Vec<char> = b.chars().take(WORD_CHARS_MAX).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(WORD_CHARS_MAX).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
