//! The fake agent's home: its behaviour, its log, its locks, and how it leaves.
//!
//! `behaviour.json` keys (each also as `FAKE_AGENT_<KEY>` in the environment, which wins):
//!
//! | key | effect |
//! |---|---|
//! | `fail_starts` | the first N starts print `fail_text` and exit 1 after 300 ms |
//! | `fail_resumes` | the same for starts that resume |
//! | `fail_text` | what a failed start says on stderr |
//! | `start_delay_ms` | answers nothing for that long |
//! | `chokes_at` | is killed in the middle of a line that is longer than N bytes |
//! | `never_ready` | never answers anything |
//! | `ignore_eof`, `ignore_term` | stays; the first also when it is asked to end |
//! | `die_slowly_ms` | takes that long to end once it has decided to |
//! | `flush_after_eof_ms` | writes the conversation only that long after it decided to end |
//! | `sidecars` | N idle children from the start, or a list of roles |
//! | `exclusive` | refuses to start while another process of the session lives |
//! | `id_drift` | each resume goes on under a new session id |
//! | `forget` | resume: no such conversation |
//!
//! Events of the log: `start` (`argv`, `cwd`, `resumed`, `others_alive`), `failed_start`,
//! `failed_resume`, `refused`, `drift`, `heard` and `turn` (`text`), `turn_end` (`failed`),
//! `unprompted_turn`, `compaction`, `ask`, `answered`, `eof`, `term`, `stop` (`status`), and of
//! children `child` (`role`, `port`). Who is killed writes no `stop`.
//!
//! Fed by: main and the turn engine. Invariant: one entry of the log is one `write` call.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use drowse_tests::process::ProcIdentity;
use serde_json::{Value, json};

use crate::children;

/// Every key a behaviour may have; a misspelt one must not silently do nothing.
const KEYS: [&str; 14] = [
    "fail_starts",
    "fail_resumes",
    "fail_text",
    "start_delay_ms",
    "chokes_at",
    "never_ready",
    "ignore_eof",
    "ignore_term",
    "die_slowly_ms",
    "flush_after_eof_ms",
    "sidecars",
    "exclusive",
    "id_drift",
    "forget",
];

/// How long a start that fails pretends to try.
const FAILING_FOR: Duration = Duration::from_millis(300);

/// The home folder and what is known of this launch.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    behaviour: Value,
    launch: usize,
    session: String,
}

impl Home {
    pub(crate) fn open() -> Result<Self, String> {
        let path = path();
        fs::create_dir_all(path.join("sessions"))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        let file = path.join("behaviour.json");
        let mut behaviour = match fs::read_to_string(&file) {
            Ok(text) => {
                serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?
            }
            Err(_) => json!({}),
        };
        let Some(keys) = behaviour.as_object_mut() else {
            return Err(format!("{}: not an object", file.display()));
        };
        if let Some(key) = keys.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("{}: unknown key {key:?}", file.display()));
        }
        for key in KEYS {
            if let Ok(text) = std::env::var(format!("FAKE_AGENT_{}", key.to_uppercase())) {
                let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
                keys.insert(key.to_owned(), value);
            }
        }
        Ok(Self {
            path,
            behaviour,
            launch: 0,
            session: String::new(),
        })
    }

    /// Counts this launch, starts the sidecars and fails where the behaviour says so.
    pub(crate) fn start(&mut self) -> Result<(), u8> {
        self.launch = self.count_launch();
        if self.launch <= self.number("fail_starts") {
            return Err(self.fail("failed_start"));
        }
        std::thread::sleep(self.millis("start_delay_ms"));
        if let Some(roles) = self.behaviour["sidecars"].as_array() {
            roles
                .iter()
                .filter_map(Value::as_str)
                .for_each(|role| drop(children::spawn(role, 1)));
        }
        children::spawn("plain", self.number("sidecars"));
        Ok(())
    }

    /// Takes the session `id` for this process, as a new one or resumed.
    pub(crate) fn take_session(&mut self, id: &str, resumed: bool) -> Result<(), u8> {
        self.session = id.to_owned();
        let lock = self.path.join("sessions").join(format!("{id}.lock"));
        let others = self.others_alive(&lock);
        if self.flag("exclusive") && !others.is_empty() {
            self.log("refused", json!({ "others_alive": others }));
            refuse_text(&format!("session {id} is in use by {}", others.join(", ")));
            return Err(1);
        }
        let who = ProcIdentity::me().to_string();
        append(&lock, &format!("{who}\n"));
        let argv: Vec<String> = std::env::args().collect();
        let cwd = std::env::current_dir().unwrap_or_default();
        let start = json!({ "argv": argv, "cwd": cwd, "resumed": resumed, "others_alive": others });
        self.log("start", start);
        if resumed && self.events("failed_resume") < self.number("fail_resumes") {
            return Err(self.fail("failed_resume"));
        }
        Ok(())
    }

    /// Goes on under a new session id.
    pub(crate) fn drift_to(&mut self, id: &str) {
        self.log("drift", json!({ "to": id }));
        self.session = id.to_owned();
        let lock = self.path.join("sessions").join(format!("{id}.lock"));
        append(&lock, &format!("{}\n", ProcIdentity::me()));
    }

    /// A number of the behaviour; 0 when absent.
    pub(crate) fn number(&self, key: &str) -> usize {
        let number = self.behaviour[key].as_u64().unwrap_or(0);
        usize::try_from(number).unwrap_or(usize::MAX)
    }

    /// A duration of the behaviour; zero when absent.
    pub(crate) fn millis(&self, key: &str) -> Duration {
        Duration::from_millis(self.behaviour[key].as_u64().unwrap_or(0))
    }

    /// A switch of the behaviour: `true`, or any number but 0.
    pub(crate) fn flag(&self, key: &str) -> bool {
        let value = &self.behaviour[key];
        value
            .as_bool()
            .unwrap_or_else(|| value.as_u64().unwrap_or(0) != 0)
    }

    /// The file of the conversation `id`.
    pub(crate) fn conversation(&self, id: &str) -> PathBuf {
        self.path.join("sessions").join(format!("{id}.jsonl"))
    }

    /// Appends an entry to the log.
    pub(crate) fn log(&self, event: &str, facts: Value) {
        log_entry(&self.path, event, self.launch, &self.session, facts);
    }

    fn events(&self, event: &str) -> usize {
        let text = fs::read_to_string(self.path.join("log.jsonl")).unwrap_or_default();
        let is_event = |line: &&str| {
            serde_json::from_str::<Value>(line).is_ok_and(|entry| entry["event"] == event)
        };
        text.lines().filter(is_event).count()
    }

    fn count_launch(&self) -> usize {
        // The file's length is the count; append is atomic, so two starts get two numbers.
        let path = self.path.join("launches");
        append(&path, "|");
        fs::metadata(path).map_or(1, |meta| usize::try_from(meta.len()).unwrap_or(usize::MAX))
    }

    fn fail(&self, event: &str) -> u8 {
        self.log(event, json!({}));
        std::thread::sleep(FAILING_FOR);
        refuse_text(
            self.behaviour["fail_text"]
                .as_str()
                .unwrap_or("network unreachable"),
        );
        1
    }

    fn others_alive(&self, lock: &Path) -> Vec<String> {
        let me = ProcIdentity::me();
        let text = fs::read_to_string(lock).unwrap_or_default();
        text.lines()
            .filter_map(ProcIdentity::parse)
            .filter(|other| *other != me && other.is_alive())
            .map(|other| other.to_string())
            .collect()
    }
}

/// Where the home is.
pub(crate) fn path() -> PathBuf {
    std::env::var_os(drowse_tests::fake::HOME).map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".fake-agent"),
        PathBuf::from,
    )
}

/// Appends an entry to the log of the home at `path`.
pub(crate) fn log_entry(path: &Path, event: &str, launch: usize, session: &str, facts: Value) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let me = ProcIdentity::me();
    let mut entry = json!({
        "event": event,
        "at_ms": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        "pid": me.pid,
        "who": me.to_string(),
        "launch": launch,
        "session": session,
        "incarnation": std::env::var("DROWSE_INCARNATION").ok(),
    });
    if let (Some(entry), Value::Object(facts)) = (entry.as_object_mut(), facts) {
        entry.extend(facts);
    }
    append(&path.join("log.jsonl"), &format!("{entry}\n"));
}

/// Appends `text` to the file at `path` with one write.
pub(crate) fn append(path: &Path, text: &str) {
    let file: std::io::Result<File> = OpenOptions::new().create(true).append(true).open(path);
    // A test may have removed the home while the agent still ran: then there is nobody to tell.
    drop(file.and_then(|mut file| file.write_all(text.as_bytes())));
}

/// Says why on stderr and gives the exit status.
pub(crate) fn refuse(code: u8, why: &str) -> ExitCode {
    refuse_text(why);
    ExitCode::from(code)
}

/// Says why on stderr.
pub(crate) fn refuse_text(why: &str) {
    drowse_tests::wait::say(why);
}
