//! What the configuration accepts, what it refuses, and the exact words it refuses with.

mod durations;
mod keep;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use drowse_messages::Limit;
use tempfile::TempDir;

use super::*;

const TRAITS: AgentTraits = AgentTraits {
    can_resume: true,
    reports_tasks: false,
    observed: false,
    steers: false,
};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn protocols() -> Vec<Protocol> {
    let one = |protocol: &str, agent: &str| Protocol {
        name: name(protocol),
        agents: vec![(name(agent), vec![agent.to_owned()])],
        traits: TRAITS,
    };
    let raw = Protocol {
        name: name("raw"),
        agents: Vec::new(),
        traits: TRAITS,
    };
    vec![one("claude", "claude"), one("pi", "pi"), raw]
}

/// D18: an agent that cannot resume is released only where somebody says that it keeps nothing.
#[test]
fn an_agent_is_stateless_where_that_is_said() {
    let can_resume = |config: &Config, agent: &str| {
        let traits = config.traits(&name(agent), &name("mcp"));
        traits.expect("it is spoken").can_resume
    };
    let text = "[agents.files]\ncommand = [\"x\"]\nprotocol = \"mcp\"\nstateless = true\n\
        [agents.browser]\ncommand = [\"x\"]\nprotocol = \"mcp\"\nstateless = false\n";
    let mut written = Written::new(text).variable("DROWSE_AGENTS__MORE__STATELESS", "true");
    let traits = AgentTraits {
        can_resume: false,
        ..TRAITS
    };
    written.sources.protocols.push(Protocol {
        name: name("mcp"),
        agents: vec![(name("more"), vec!["more".to_owned()])],
        traits,
    });
    let config = written.load();
    let said = ["files", "browser", "more", "other"].map(|agent| can_resume(&config, agent));
    assert_eq!(said, [true, false, true, false]);
    let problem = Written::new("[agents.claude]\nstateless = 1\n").refusal();
    assert!(
        problem.contains("is a number; expected true or false"),
        "{problem}"
    );
}

/// A configuration of one file, in a folder of its own.
struct Written {
    folder: TempDir,
    sources: Sources,
}

impl Written {
    fn new(text: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, text).unwrap();
        let files = vec![ConfigFile {
            path,
            required: true,
        }];
        Self {
            folder,
            sources: Sources {
                files,
                protocols: protocols(),
                ..Sources::default()
            },
        }
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources.variables.push((name.into(), value.into()));
        self
    }

    fn flag(mut self, flag: &str, key: &str, value: &str) -> Self {
        let text = str::to_owned;
        self.sources.flags.push(Flag {
            flag: text(flag),
            key: text(key),
            value: text(value),
        });
        self
    }

    fn load(&self) -> Config {
        Config::load(&self.sources).unwrap()
    }

    /// The refusal, with the folder of the file taken out.
    fn refusal(&self) -> String {
        let error = Config::load(&self.sources).unwrap_err().to_string();
        error.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

fn idle_after(config: &Config, agent: &str, cwd: &str) -> Limit {
    config
        .limits(&name(agent), Path::new(cwd), &LimitOverrides::default())
        .idle_after
}

fn after(seconds: u64) -> Limit {
    Limit::After(Duration::from_secs(seconds))
}

/// Behaviours 1 and 8: the documented defaults, with no configuration at all.
#[test]
fn without_any_source_there_are_defaults() {
    let sources = Sources {
        files: vec![ConfigFile {
            path: PathBuf::from("/nonexistent/c.toml"),
            required: false,
        }],
        ..Sources::default()
    };
    let config = Config::load(&sources).unwrap();
    let limits = config.limits(&name("x"), Path::new("/"), &LimitOverrides::default());
    assert_eq!(limits, Limits::default());
    assert_eq!(limits.idle_after, after(1800));
    assert_eq!(limits.task_hold_max, after(4 * 3600));
    assert_eq!((config.starting_max(), config.listen()), (4, None));
}

/// Everything that is wrong is said together, in the order of the lines.
#[test]
fn all_problems_are_reported_one_per_line() {
    let written = Written::new(
        "idle_after = \"1m\"\n[sesion]\n[session]\nidle_affter = \"1m\"\nhard_limit = 5\n\
         keep = 1\n[limits]\nmax_starting = 0\n[server]\nlisten = \"0.0.0.0:7077\"\n\
         [agents.claude]\nprotocol = \"claud\"\ncommand = \"claude\"\nenvv = {}\n\
         env = { TOKEN = 12345678 }\n[agents.Bad]\n[projects.\"work\"]\nidle_after = \"1m\"\n",
    );
    let durations = "expected a duration such as \"30m\", \"90s\" or \"1h 30m\", or \"off\"";
    let loopback = "expected \"127.0.0.1:7077\", another loopback address, or \"off\"";
    let lines = [
        "config.toml:1: idle_after = \"1m\": unknown key; did you mean session.idle_after?",
        "config.toml:2: sesion: unknown key; did you mean session?",
        "config.toml:4: session.idle_affter = \"1m\": unknown key; did you mean session.idle_after?",
        &format!("config.toml:5: session.hard_limit = 5: is a number without a unit; {durations}"),
        "config.toml:6: session.keep = 1: is a number; expected an array such as \
         [\"listen:3000\", \"exe:postgres\"]",
        "config.toml:8: limits.max_starting = 0: is out of range; expected a whole number from 1 \
         to 256",
        &format!(
            "config.toml:10: server.listen = \"0.0.0.0:7077\": can be reached from other machines; \
             {loopback}"
        ),
        "config.toml:12: agents.claude.protocol = \"claud\": is no protocol of drowse; expected \
         one of: claude, pi, raw",
        "config.toml:13: agents.claude.command: is text; expected an array of text such as \
         [\"claude\"]",
        "config.toml:14: agents.claude.envv: unknown key; did you mean agents.claude.env?",
        "config.toml:15: agents.claude.env.TOKEN: is a number; expected text",
        "config.toml:16: agents.Bad: \"Bad\" is not a name (1 to 64 of a-z, 0-9, \
         '-', '_', '.')",
        "config.toml:18: projects.work.idle_after = \"1m\": is not an absolute path without \"..\"",
    ];
    let refusal = written.refusal();
    let found: Vec<&str> = refusal.lines().collect();
    assert_eq!(found, lines);
}

/// A file that cannot be read as one says so, with its path, and half of it is never used.
#[test]
fn unreadable_files() {
    for (bytes, start) in [
        (
            &b"[session]\nidle_after = \"1m\n"[..],
            "config.toml:2: is not TOML: ",
        ),
        (b"[session]\nx = \"\xff\"\n", "config.toml:2: is not UTF-8"),
        (
            b"[session]\nhard_limit=\"1h\"\nhard_limit=\"2h\"\n",
            "config.toml:3: is not TOML: ",
        ),
        (
            &[b'#'; (1 << 20) + 1],
            "config.toml: is larger than 1048576 bytes",
        ),
    ] {
        let refusal = Written::new(bytes).refusal();
        assert!(refusal.starts_with(start), "{refusal}");
    }
    let mut written = Written::new("");
    written.sources.files[0].path = written.folder.path().to_owned();
    let error = Config::load(&written.sources).unwrap_err().to_string();
    assert!(error.contains("cannot be read: Is a directory"), "{error}");
    written.sources.files[0].path.push("missing.toml");
    let error = Config::load(&written.sources).unwrap_err().to_string();
    assert!(
        error.contains("missing.toml: cannot be read: No such file"),
        "{error}"
    );
}

/// Behaviour 4: the environment overrides the files, a flag overrides both.
#[test]
fn the_later_source_wins() {
    let file = "[session]\nidle_after = \"1m\"\nhard_limit = \"2h\"\n[agents.claude]\n\
                env = { A = \"file\", B = \"file\" }\n";
    let mut written = Written::new(file)
        .variable("DROWSE_SESSION__IDLE_AFTER", " 2m ")
        .variable("DROWSE_SERVER__LISTEN", "127.0.0.1:1")
        .variable("DROWSE_AGENTS__CLAUDE__IDLE_AFTER", "3m")
        .variable(
            "DROWSE_AGENTS__CLAUDE__COMMAND",
            "[\"/opt/claude\", \"--x\"]",
        )
        .variable("DROWSE_AGENTS__CLAUDE__ENV__B", "variable")
        .variable("DROWSE_AGENTS__CLAUDE__ENV__c__D", "variable")
        .flag("--listen", "server.listen", "[::1]:2");
    let other = written.folder.path().join("over.toml");
    fs::write(&other, "[session]\nhard_limit = \"3h\"\n").unwrap();
    written.sources.files.push(ConfigFile {
        path: other,
        required: true,
    });
    let config = written.load();
    assert_eq!(idle_after(&config, "pi", "/"), after(120));
    assert_eq!(idle_after(&config, "claude", "/"), after(180));
    assert_eq!(config.listen(), Some("[::1]:2".parse().unwrap()));
    let limits = config.limits(&name("pi"), Path::new("/"), &LimitOverrides::default());
    assert_eq!(limits.hard_limit, after(3 * 3600), "the later file wins");
    let agent = config.agent(&name("claude"), "", Path::new("/")).unwrap();
    assert_eq!(agent.command, ["/opt/claude", "--x"]);
    let env: Vec<_> = agent.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(env, ["A=file", "B=variable", "c__D=variable"]);
}

/// Behaviour 5: a bad variable is refused as a bad file is; a blank one is not set.
#[test]
fn bad_variables_are_refused_and_blank_ones_are_unset() {
    for blank in ["", "  "] {
        let written = Written::new("").variable("DROWSE_SESSION__IDLE_AFTER", blank);
        assert_eq!(idle_after(&written.load(), "claude", "/"), after(1800));
    }
    // Without the double underscore it is no setting.
    let written = Written::new("")
        .variable("DROWSE_SESSION", "x")
        .variable("DROWSE_STATE", "/");
    written.load();
    let written = Written::new("")
        .variable("DROWSE_SESSION__IDLE_AFTER", "ten")
        .variable("DROWSE_SESSION__IDEL_AFTER", "10m")
        .flag("--listen", "server.listen", "8080");
    let durations = "expected a duration such as \"30m\", \"90s\" or \"1h 30m\", or \"off\"";
    assert_eq!(
        written.refusal(),
        format!(
            "environment variable DROWSE_SESSION__IDEL_AFTER: session.idel_after = \"10m\": \
             unknown key; did you mean session.idle_after?\n\
             environment variable DROWSE_SESSION__IDLE_AFTER: session.idle_after = \"ten\": \
             is not a duration; {durations}\n\
             flag --listen: server.listen = \"8080\": is not an IP address with a port; expected \
             \"127.0.0.1:7077\", another loopback address, or \"off\""
        )
    );
}

/// Behaviour 1: the order of overrides, and projects by whole parts of the path.
#[test]
fn special_limits_win_over_general_ones() {
    let config = Written::new(
        "[session]\nidle_after = \"1m\"\n[agents.claude]\nidle_after = \"2m\"\n\
         [projects.\"/home/me/work\"]\nidle_after = \"3m\"\n\
         [projects.\"/home/me/work/deep/\"]\nidle_after = \"4m\"\n",
    )
    .load();
    for (agent, cwd, seconds) in [
        ("pi", "/", 60),
        ("claude", "/home/me", 120),
        ("claude", "/home/me/workshop", 120),
        ("claude", "/home/me/work", 180),
        ("pi", "/home/me/work/deeper", 180),
        ("pi", "/home/me/work/deep/er", 240),
    ] {
        assert_eq!(
            idle_after(&config, agent, cwd),
            after(seconds),
            "{agent} in {cwd}"
        );
    }
    let texts = BTreeMap::from([("idle_after".to_owned(), "5m".to_owned())]);
    let over = Config::parse_overrides(&texts).unwrap();
    let limits = config.limits(&name("claude"), Path::new("/home/me/work"), &over);
    assert_eq!(limits.idle_after, after(300));
}

#[test]
fn limits_of_a_request_are_read_alike() {
    let parse = |key: &str, text: &str| {
        Config::parse_overrides(&BTreeMap::from([(key.to_owned(), text.to_owned())]))
    };
    assert_eq!(
        parse("hard_limit", "off").unwrap().hard_limit,
        Some(Limit::Off)
    );
    assert_eq!(
        parse("eof_grace", "1s").unwrap().eof_grace,
        Some(Duration::from_secs(1))
    );
    let problem = parse("idle_after", "10").unwrap_err();
    assert_eq!(problem.key, "idle_after");
    assert!(
        problem
            .about_value()
            .starts_with("\"10\": is a number without a unit; expected")
    );
    let problem = parse("idel_after", "10m").unwrap_err().to_string();
    assert_eq!(
        problem,
        "request: idel_after = \"10m\": unknown limit; did you mean idle_after?"
    );
}

/// Behaviour 9: limits that do not fit each other are refused where they were set, in every
/// combination a session can meet.
#[test]
fn limits_that_do_not_fit_are_refused() {
    for (text, refusal) in [
        (
            "[session]\nhard_limit = \"10m\"\n",
            "config.toml:2: session.hard_limit: hard_limit (10m) must be longer than idle_after \
             (30m)",
        ),
        (
            "[session]\nhard_limit = \"1h\"\n[agents.claude]\nidle_after = \"1h\"\n",
            "config.toml:4: agents.claude.idle_after: hard_limit (1h) must be longer than \
             idle_after (1h)",
        ),
        (
            "[session]\nidle_after = \"1s\"\nhard_limit = \"1m\"\n",
            "config.toml:3: session.hard_limit: hard_limit (1m) must be longer than start_limit \
             (1m)",
        ),
        (
            "[agents.claude]\nhard_limit = \"1h\"\n[projects.\"/w//\"]\nidle_after = \"2h\"\n",
            "config.toml:4: projects.\"/w\".idle_after: hard_limit (1h) must be longer than \
             idle_after (2h)",
        ),
        (
            "[agents.mine]\nprotocol = \"raw\"\n",
            "config.toml:2: agents.mine.command: is missing, and drowse does not know this agent",
        ),
        (
            "[agents.mine]\ncommand = [\"x\"]\n",
            "config.toml:2: agents.mine.protocol: is missing, and drowse does not know this \
             agent; expected one of: claude, pi, raw",
        ),
    ] {
        assert_eq!(Written::new(text).refusal(), refusal);
    }
    // The hold limits count from later moments: any value of them fits.
    Written::new("[session]\ntask_hold_max = \"1m\"\napproval_hold_max = \"1m\"\n").load();
    Written::new("[session]\nidle_after = 0\nhard_limit = \"10m\"\n").load();
}

#[test]
fn agents_are_found_on_the_callers_path_or_configured() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("claude");
    fs::write(&program, "").unwrap();
    fs::write(folder.path().join("pi"), "not executable").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let config =
        Written::new("[agents.mine]\ncommand = [\"./claude\"]\nprotocol = \"raw\"\n").load();
    let path = format!("/nonexistent:{}", folder.path().display());
    let names = |path: &str| -> Vec<String> {
        config
            .agents(path)
            .iter()
            .map(|(name, _)| name.to_string())
            .collect()
    };
    assert_eq!(names(&path), ["claude", "mine"]);
    assert_eq!(names(""), ["mine"]);
    let agent = |agent: &str, path: &str| config.agent(&name(agent), path, folder.path());
    assert_eq!(
        agent("claude", &path).unwrap().found_at,
        Some(program.clone())
    );
    assert_eq!(agent("claude", "").unwrap().found_at, None);
    assert_eq!(
        agent("claude", ":/x").unwrap().found_at,
        Some(program),
        "an empty part is cwd"
    );
    assert!(agent("mine", "").unwrap().found_at.is_some());
    assert!(agent("pi", &path).unwrap().found_at.is_none());
    assert_eq!(agent("other", &path), None);
}

/// D53: what `config show` prints can be read again, and holds no secret.
#[test]
fn the_effective_configuration_is_whole_and_without_secrets() {
    let written = Written::new(
        "[session]\nidle_after = \"90s\"\nhard_limit = \"18446744073709551615ms\"\n\
         [agents.claude]\nterm_grace = \"1s\"\n\
         command = [\"claude\", \"--api-key\", \"s3cr3t\"]\n\
         env = { MY_TOKEN = \"s3cr3t-2\", \"odd name\" = \"x\" }\n[projects.\"/a b\"]\n",
    );
    let shown = written.load().to_toml("");
    assert!(!shown.contains("s3cr3t"), "{shown}");
    for line in [
        "[agents.claude]\ncommand = [\"claude\", \"--api-key\", \"***\"]\nprotocol = \"claude\"\n\
         idle_after = \"1m 30s\"\n",
        "[agents.claude.env]\nMY_TOKEN = \"***\"\n\"odd name\" = \"x\"\n",
        "[projects.\"/a b\"]\nidle_after = \"1m 30s\"\n",
        "[limits]\nmax_starting = 4\n\n[server]\nlisten = \"off\"\norphan_grace = \"1m\"\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let again = Written::new(&shown).load();
    let limits = |config: &Config| {
        config.limits(
            &name("claude"),
            Path::new("/a b"),
            &LimitOverrides::default(),
        )
    };
    // A project inherits what its section shows, so only the agent's own limits differ.
    assert_eq!(
        limits(&again).hard_limit,
        limits(&written.load()).hard_limit
    );
    assert_eq!(again.to_toml(""), shown);
    assert!(!format!("{:?} {:?}", written.load(), written.sources).contains("s3cr3t"));
}

/// Behaviour 7: a reload takes new values; a bad file keeps the old ones and says so.
#[test]
fn a_bad_reload_keeps_the_old_values() {
    let written = Written::new("[session]\nidle_after = \"1m\"\n");
    let path = written.sources.files[0].path.clone();
    let shared = Shared::load(written.sources.clone()).unwrap();
    fs::write(&path, "[session]\nidle_after = \"2m\"\n").unwrap();
    shared.reload().unwrap();
    assert_eq!(idle_after(&shared.current(), "pi", "/"), after(120));
    fs::write(&path, "[session]\nidle_after = -2\n").unwrap();
    let error = shared.reload().unwrap_err();
    assert_eq!(error.problems().len(), 1);
    assert_eq!(idle_after(&shared.current(), "pi", "/"), after(120));
}
