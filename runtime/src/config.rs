//! The configuration: files, then the environment over them, then flags over both.
//!
//! Fed by `/etc/drowse/config.toml` and `$XDG_CONFIG_HOME/drowse/config.toml`, by variables
//! `DROWSE_SECTION__KEY`, and by flags; asked by whoever starts or limits something. With none of
//! them Drowse works on defaults. Invariant: a [`Config`] that exists is whole and consistent;
//! everything wrong with one is said at once, with its place, key and value.
//!
//! A session's limits are merged from the general to the special: the defaults, `[session]`, its
//! agent, its project (the longest that holds its folder), and what was asked for it alone.

mod agents;
mod apply;
mod limit;
mod problem;
mod render;
mod setting;
mod shared;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drowse_messages::{Limit, LimitOverrides, Limits, Name};
use drowse_policy::session::AgentTraits;

pub(crate) use agents::find_program;
pub use agents::{AgentEntry, Protocol};
use limit::LimitKey;
pub(crate) use limit::keep_ttl;
pub use problem::{ConfigError, Place, Problem};
use setting::Setting;
pub use shared::Shared;

/// Four agents at once keep a small machine busy; a start is seconds of a processor each.
const STARTING_MAX_DEFAULT: usize = 4;

/// 60 s: an upgrade by hand, or a service manager that waits before it starts the daemon again.
const ORPHAN_GRACE_DEFAULT: Duration = Duration::from_secs(60);

/// What an agent gets of the daemon's environment when the caller sent none: what a login would
/// set, and nothing that only concerns the daemon.
const BASE_VARIABLES: [&str; 12] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
];

/// A file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it is.
    pub path: PathBuf,
    /// False when it may be absent.
    pub required: bool,
}

/// A flag that stands for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// As typed: `--listen`.
    pub flag: String,
    /// The dotted key it sets: `server.listen`.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// Where the configuration comes from.
#[derive(Clone, Default)]
pub struct Sources {
    /// The later one wins.
    pub files: Vec<ConfigFile>,
    /// The environment of the process.
    pub variables: Vec<(OsString, OsString)>,
    /// They win over everything.
    pub flags: Vec<Flag>,
    /// What Drowse speaks.
    pub protocols: Vec<Protocol>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The environment holds secrets.
        f.debug_struct("Sources")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Sources {
    /// The sources of this process: its environment, and the files where they usually are, or
    /// `file` instead of them, which must exist then.
    #[must_use]
    pub fn of_process(file: Option<&Path>, flags: Vec<Flag>, protocols: Vec<Protocol>) -> Self {
        let files = match file {
            Some(path) => vec![ConfigFile {
                path: path.to_owned(),
                required: true,
            }],
            None => usual_files(),
        };
        Self {
            files,
            variables: std::env::vars_os().collect(),
            flags,
            protocols,
        }
    }
}

fn usual_files() -> Vec<ConfigFile> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|folder| folder.is_absolute())
    };
    let own = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    let folders = [Some(PathBuf::from("/etc")), own];
    let file = |folder: PathBuf| folder.join("drowse").join("config.toml");
    let found = folders.into_iter().flatten().map(file);
    found
        .map(|path| ConfigFile {
            path,
            required: false,
        })
        .collect()
}

/// What is configured of one agent; the rest is known or inherited.
#[derive(Clone, Default, PartialEq, Eq)]
struct AgentConfig {
    command: Option<Vec<String>>,
    protocol: Option<Name>,
    env: BTreeMap<String, String>,
    /// Its processes keep nothing that matters: another one is as good.
    stateless: bool,
    limits: LimitOverrides,
}

/// See the module.
#[derive(Clone)]
pub struct Config {
    session: LimitOverrides,
    starting_max: usize,
    listen: Option<SocketAddr>,
    orphan_grace: Limit,
    agents: BTreeMap<Name, AgentConfig>,
    projects: BTreeMap<PathBuf, LimitOverrides>,
    protocols: Vec<Protocol>,
    base_env: BTreeMap<String, String>,
    /// Where each key was last set.
    places: BTreeMap<String, Place>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Commands and environments of agents hold secrets.
        f.debug_struct("Config")
            .field("session", &self.session)
            .field("starting_max", &self.starting_max)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Reads all sources.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with any of them.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let mut config = Self {
            session: LimitOverrides::default(),
            starting_max: STARTING_MAX_DEFAULT,
            listen: None,
            orphan_grace: Limit::After(ORPHAN_GRACE_DEFAULT),
            agents: BTreeMap::new(),
            projects: BTreeMap::new(),
            protocols: sources.protocols.clone(),
            base_env: base_env(&sources.variables),
            places: BTreeMap::new(),
        };
        for file in &sources.files {
            let settings = setting::from_file(&file.path, file.required, &mut problems);
            config.apply_all(&settings, &mut problems);
        }
        let settings = setting::from_environment(&sources.variables, &mut problems);
        config.apply_all(&settings, &mut problems);
        let settings: Vec<Setting> = sources.flags.iter().map(flag_setting).collect();
        config.apply_all(&settings, &mut problems);
        if problems.is_empty() {
            config.check(&mut problems);
        }
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::new(problems))
        }
    }

    fn apply_all(&mut self, settings: &[Setting], problems: &mut Vec<Problem>) {
        problems.extend(
            settings
                .iter()
                .filter_map(|setting| self.apply(setting).err()),
        );
    }

    /// The limits of a session: see the module for their order.
    #[must_use]
    pub fn limits(&self, agent: &Name, cwd: &Path, session: &LimitOverrides) -> Limits {
        let mut limits = Limits::default().with(&self.session);
        if let Some(agent) = self.agents.get(agent) {
            limits = limits.with(&agent.limits);
        }
        // Compared part by part: "/home/me/work" does not hold "/home/me/workshop".
        let holds = |(folder, _): &(&PathBuf, &LimitOverrides)| cwd.starts_with(folder);
        let innermost = |(folder, _): &(&PathBuf, &LimitOverrides)| folder.components().count();
        if let Some((_, project)) = self.projects.iter().filter(holds).max_by_key(innermost) {
            limits = limits.with(project);
        }
        limits.with(session)
    }

    /// Reads limits that a client wants for one session: keys of `[session]` with text as in the
    /// configuration.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with them.
    pub fn parse_overrides(texts: &BTreeMap<String, String>) -> Result<LimitOverrides, Problem> {
        let mut over = LimitOverrides::default();
        for (key, text) in texts {
            let setting = setting::from_text(vec![key.clone()], text, Place::Request);
            let applied = match LimitKey::find(key) {
                Some(known) => known.apply(&setting.value, &mut over),
                None if key == limit::OBSERVED => {
                    limit::read_switch(&setting.value).map(|on| over.observed = Some(on))
                }
                None => Err(apply::unknown_limit(key)),
            };
            applied.map_err(|detail| setting.problem(detail))?;
        }
        Ok(over)
    }

    /// Checks merged limits against each other.
    ///
    /// # Errors
    ///
    /// Says for people which two do not fit, and why.
    pub fn check_limits(limits: &Limits) -> Result<(), String> {
        limit::conflict(limits).map_or(Ok(()), |conflict| Err(conflict.text))
    }

    /// What policy must know of an agent that speaks a protocol; `None`: there is no such protocol.
    #[must_use]
    pub fn traits(&self, agent: &Name, protocol: &Name) -> Option<AgentTraits> {
        let known = self
            .protocols
            .iter()
            .find(|known| known.name == *protocol)?;
        let is_stateless = self.agents.get(agent).is_some_and(|it| it.stateless);
        Some(AgentTraits {
            can_resume: known.traits.can_resume || is_stateless,
            ..known.traits
        })
    }

    /// How many backends may be starting at once.
    #[must_use]
    pub const fn starting_max(&self) -> usize {
        self.starting_max
    }

    /// Where to listen on TCP; `None`: nowhere.
    #[must_use]
    pub const fn listen(&self) -> Option<SocketAddr> {
        self.listen
    }

    /// How long agents outlive a daemon that died, waiting for the next one; off: not at all.
    #[must_use]
    pub const fn orphan_grace(&self) -> Limit {
        self.orphan_grace
    }

    /// The environment of an agent whose caller sent none.
    #[must_use]
    pub const fn base_env(&self) -> &BTreeMap<String, String> {
        &self.base_env
    }

    /// Finds agents that lack something, and limits that do not fit each other, alone and in
    /// every combination a session can meet.
    fn check(&self, problems: &mut Vec<Problem>) {
        for (name, agent) in &self.agents {
            if let Some((key, detail)) = self.missing(name, agent) {
                let whole = format!("agents.{}", setting::dotted([name.as_str()].into_iter()));
                let place = self.place_under(&whole);
                problems.push(Problem {
                    place,
                    key: format!("{whole}.{key}"),
                    value: None,
                    detail,
                });
            }
        }
        let session = Limits::default().with(&self.session);
        if self.report_conflict(&session, &["session"], problems) {
            return;
        }
        let agents = self.agents.iter().map(|(name, agent)| {
            (
                setting::dotted(["agents", name.as_str()].into_iter()),
                &agent.limits,
            )
        });
        let projects = self.projects.iter().map(|(folder, limits)| {
            (
                setting::dotted(["projects", &folder.to_string_lossy()].into_iter()),
                limits,
            )
        });
        let fits = |(scope, over): &(String, &LimitOverrides), problems: &mut Vec<Problem>| {
            !self.report_conflict(&session.clone().with(over), &[scope, "session"], problems)
        };
        let agents: Vec<_> = agents.filter(|it| fits(it, problems)).collect();
        let projects: Vec<_> = projects.filter(|it| fits(it, problems)).collect();
        for (agent, over) in &agents {
            let limits = session.clone().with(over);
            for (project, over) in &projects {
                let scopes = [project.as_str(), agent, "session"];
                self.report_conflict(&limits.clone().with(over), &scopes, problems);
            }
        }
    }

    /// Reports a conflict at the place of whichever of its two keys is set most specially.
    fn report_conflict(
        &self,
        limits: &Limits,
        scopes: &[&str],
        problems: &mut Vec<Problem>,
    ) -> bool {
        let Some(conflict) = limit::conflict(limits) else {
            return false;
        };
        let keys = scopes
            .iter()
            .flat_map(|scope| conflict.keys.map(|key| format!("{scope}.{key}")));
        let set = keys
            .into_iter()
            .find_map(|key| Some((key.clone(), self.places.get(&key)?)));
        let (key, place) = set.expect("the defaults fit each other, so one of the keys was set");
        problems.push(Problem {
            place: place.clone(),
            key,
            value: None,
            detail: conflict.text,
        });
        true
    }

    fn place_under(&self, whole: &str) -> Place {
        let inside =
            |key: &str| key == whole || key.strip_prefix(whole).is_some_and(|r| r.starts_with('.'));
        let mut found = self.places.iter().filter(|(key, _)| inside(key));
        found
            .next()
            .expect("an agent exists because a key of it was set")
            .1
            .clone()
    }
}

fn flag_setting(flag: &Flag) -> Setting {
    let path = flag.key.split('.').map(str::to_owned).collect();
    setting::from_text(path, &flag.value, Place::Flag(flag.flag.clone()))
}

fn base_env(variables: &[(OsString, OsString)]) -> BTreeMap<String, String> {
    let text = |(name, value): &(OsString, OsString)| {
        Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
    };
    let all = variables.iter().filter_map(text);
    all.filter(|(name, _)| BASE_VARIABLES.contains(&name.as_str()))
        .collect()
}
