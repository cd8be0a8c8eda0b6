//! What was set in a conversation since it began: mode, model, options of the agent's own.
//!
//! Fed by the observer and the relay. The next process is told the same again, because it comes up
//! with what its command line says. Invariant: what only limits what the agent may do is set again
//! or the conversation is not gone on with: no process runs in a wider mode than the one before.

use std::collections::{BTreeMap, BTreeSet};

use drowse_messages::SETTINGS_MAX;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::rpc::{Dialect, Id};
use super::super::wire::{Part, read, text};
use super::lines::{ConfigOption, Current, OfSession, Session, Set, SetWhat, Update};

/// 512 bytes: names of models and modes are shorter by far.
const VALUE_BYTES_MAX: usize = 512;

const MODE: &str = "mode";
const MODEL: &str = "model";
const OPTION: &str = "option:";

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    /// What was set since the conversation began, to be set again.
    set: BTreeMap<String, String>,
    /// What holds in this process. Of options it is JSON, of the others plain text.
    now: BTreeMap<String, String>,
    /// Options that say what the agent may do.
    guards: BTreeSet<String>,
}

/// One setting and its value.
pub(super) type Setting = (String, String);

impl Settings {
    /// Of a conversation that is taken up again.
    pub(super) fn remembered(set: BTreeMap<String, String>) -> Self {
        Self {
            set,
            ..Self::default()
        }
    }

    /// What was set since the conversation began.
    pub(super) fn set(&self) -> &BTreeMap<String, String> {
        &self.set
    }

    /// What the agent says of a conversation it begins or takes up.
    pub(super) fn came_up(&mut self, session: &Session<'_>) {
        for part in [session.modes, session.models] {
            let current: Current<'_> = read(part).unwrap_or_default();
            for (key, value) in [(MODE, current.mode), (MODEL, current.model)] {
                if let Some(value) = text(value) {
                    put(&mut self.now, key.to_owned(), &value);
                }
            }
        }
        for (key, value) in self.options(session.config_options) {
            put(&mut self.now, key, &value);
        }
    }

    /// Takes note of which options guard, and gives the values of all.
    fn options(&mut self, part: Part<'_>) -> Vec<Setting> {
        let mut all = Vec::new();
        for option in read::<Vec<ConfigOption<'_>>>(part).unwrap_or_default() {
            let (Some(id), Some(value)) = (text(option.id), option.current) else {
                continue;
            };
            let key = format!("{OPTION}{id}");
            let guards = text(option.category).as_deref() == Some(MODE);
            if guards && self.guards.len() < SETTINGS_MAX && key.len() <= VALUE_BYTES_MAX {
                self.guards.insert(key.clone());
            }
            all.push((key, value.get().to_owned()));
        }
        all
    }

    /// What an update of the agent's changed by itself; true when that is to be remembered.
    pub(super) fn updated(&mut self, update: &Update<'_>) -> bool {
        let mut changed = false;
        let mode = text(update.mode_id).map(|mode| (MODE.to_owned(), mode.into_owned()));
        let options = self.options(update.config_options);
        for (key, value) in mode.into_iter().chain(options) {
            // An option that is offered from now on was set by nobody.
            if self.now.contains_key(&key) {
                changed |= self.became(key, &value);
            } else {
                put(&mut self.now, key, &value);
            }
        }
        changed
    }

    /// A setting has this value now; true when that is news.
    pub(super) fn became(&mut self, key: String, value: &str) -> bool {
        let is_news = self.now.get(&key).is_none_or(|known| known != value);
        if is_news {
            put(&mut self.now, key.clone(), value);
            put(&mut self.set, key, value);
        }
        is_news
    }

    /// It was set again in this process.
    pub(super) fn restored(&mut self, (key, value): Setting) {
        put(&mut self.now, key, &value);
    }

    /// What differs from what was set, modes last: what a model allows may depend on it.
    pub(super) fn missing(&self) -> Vec<Setting> {
        let differs = |(key, value): &(&String, &String)| self.now.get(*key) != Some(*value);
        let own = |(key, value): (&String, &String)| (key.clone(), value.clone());
        let mut missing: Vec<_> = self.set.iter().filter(differs).map(own).collect();
        missing.sort_by_key(|(key, _)| self.is_guard(key));
        missing
    }

    /// The mode it is in, as a setting: setting it again changes nothing.
    pub(super) fn mode(&self) -> Option<Setting> {
        let mode = self.now.get(MODE)?;
        Some((MODE.to_owned(), mode.clone()))
    }

    /// True for what says how much the agent may do.
    pub(super) fn is_guard(&self, key: &str) -> bool {
        key == MODE || self.guards.contains(key)
    }
}

fn put(map: &mut BTreeMap<String, String>, key: String, value: &str) {
    let fits = key.len() + value.len() <= VALUE_BYTES_MAX;
    if fits && (map.len() < SETTINGS_MAX || map.contains_key(&key)) {
        map.insert(key, value.to_owned());
    }
}

/// The setting that a request sets, by its method.
pub(super) fn requested(method: &str, params: &OfSession<'_>) -> Option<Setting> {
    let setting = match method {
        "session/set_mode" => Some((MODE.to_owned(), text(params.mode_id)?.into_owned())),
        "session/set_model" => Some((MODEL.to_owned(), text(params.model_id)?.into_owned())),
        "session/set_config_option" => {
            let key = format!("{OPTION}{}", text(params.config_id)?);
            Some((key, params.value?.get().to_owned()))
        }
        _ => None,
    };
    setting.filter(|(key, value)| key.len() + value.len() <= VALUE_BYTES_MAX)
}

/// The request that sets it; `None` for one that no request sets.
pub(super) fn request(id: &Id, session: &str, (key, value): &Setting) -> Option<Vec<u8>> {
    let option: Option<Box<RawValue>> = serde_json::from_str(value).ok();
    let (method, what) = match key.as_str() {
        MODE => ("session/set_mode", SetWhat::Mode { mode_id: value }),
        MODEL => ("session/set_model", SetWhat::Model { model_id: value }),
        key => {
            let config_id = key.strip_prefix(OPTION)?;
            let value = option.as_deref()?;
            (
                "session/set_config_option",
                SetWhat::Option { config_id, value },
            )
        }
    };
    let set = Set {
        session_id: session,
        what,
    };
    Some(Dialect::Tagged.request(id, method, &set))
}
