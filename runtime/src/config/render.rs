//! Writes the configuration in force as a file that could be read again, secrets excepted.

use std::fmt::Write as _;

use drowse_messages::{LimitOverrides, Limits, Name};
use toml::Value;

use super::Config;
use super::limit::{LIMIT_KEYS, OBSERVED, limit_text};
use crate::redact::{REDACTED, Redactor, is_secret_name};

impl Config {
    /// Every key with its value in force, agents and projects with what they inherit. Values of
    /// secret variables and arguments are shown as `***`; `path` is the caller's PATH, for agents
    /// that need no entry.
    #[must_use]
    pub fn to_toml(&self, path: &str) -> String {
        let mut out = String::from("[session]\n");
        let session = Limits::default().with(&self.session);
        write_limits(&mut out, &session);
        let listen = self
            .listen
            .map_or_else(|| "off".to_owned(), |at| at.to_string());
        section(&mut out, &["limits"]);
        line(&mut out, "max_starting", &self.starting_max.to_string());
        section(&mut out, &["server"]);
        line(&mut out, "listen", &quoted(&listen));
        let grace = limit_text(self.orphan_grace);
        line(&mut out, "orphan_grace", &quoted(&grace));
        for (name, entry) in self.agents(path) {
            section(&mut out, &["agents", name.as_str()]);
            let redactor = Redactor::new(&entry.command, &entry.env);
            let argv = entry
                .command
                .iter()
                .map(|part| Value::String(redactor.redact(part)));
            line(
                &mut out,
                "command",
                &Value::Array(argv.collect()).to_string(),
            );
            line(&mut out, "protocol", &quoted(entry.protocol.as_str()));
            if self.agents.get(&name).is_some_and(|agent| agent.stateless) {
                line(&mut out, "stateless", "true");
            }
            let none = LimitOverrides::default();
            let limits = self.agents.get(&name).map_or(&none, |agent| &agent.limits);
            write_limits(&mut out, &session.clone().with(limits));
            self.write_env(&mut out, &name);
        }
        for (folder, limits) in &self.projects {
            section(&mut out, &["projects", &folder.to_string_lossy()]);
            write_limits(&mut out, &session.clone().with(limits));
        }
        out
    }

    fn write_env(&self, out: &mut String, name: &Name) {
        let Some(agent) = self.agents.get(name).filter(|agent| !agent.env.is_empty()) else {
            return;
        };
        section(out, &["agents", name.as_str(), "env"]);
        for (variable, value) in &agent.env {
            let shown = if is_secret_name(variable) {
                REDACTED
            } else {
                value
            };
            line(
                out,
                &super::setting::dotted([variable.as_str()].into_iter()),
                &quoted(shown),
            );
        }
    }
}

fn write_limits(out: &mut String, limits: &Limits) {
    for key in LIMIT_KEYS {
        line(out, key.name, &quoted(&key.shown(limits)));
    }
    let observed = if limits.observed { "on" } else { "off" };
    line(out, OBSERVED, &quoted(observed));
    let rules = limits
        .keep
        .iter()
        .map(|rule| Value::String(rule.to_string()));
    line(out, "keep", &Value::Array(rules.collect()).to_string());
}

fn section(out: &mut String, path: &[&str]) {
    let path = super::setting::dotted(path.iter().copied());
    writeln!(out, "\n[{path}]").expect("writing to a string cannot fail");
}

fn line(out: &mut String, key: &str, value: &str) {
    writeln!(out, "{key} = {value}").expect("writing to a string cannot fail");
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
