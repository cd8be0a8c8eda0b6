//! Source files: their head, their size, their place in a crate, and words they do not use.

use std::collections::BTreeSet;
use std::path::Path;

use super::crates::metadata;
use super::{assert_none, files_with, read, root};

/// 800 lines: a file is read in one sitting; 500 is what is aimed at.
const LINES_MAX: usize = 800;
/// 1,200 lines of tests: they are read one at a time.
const TEST_LINES_MAX: usize = 1200;
/// Longer files are listed, for whoever wants to cut one.
const LINES_WANTED: usize = 500;

/// Who may sleep, and why: files, and all of a folder. Everybody else waits for a fact.
const SLEEPERS: &[(&str, &str)] = &[
    (
        "actors/examples/figures.rs",
        "lets the time of its fakes pass",
    ),
    (
        "actors/src/testing/",
        "fakes that take their time, on a clock that is advanced by hand",
    ),
    (
        "actors/src/tests",
        "the clock of these tests is advanced by hand",
    ),
    (
        "runtime/src/backend/link/deliver.rs",
        "a pause before a delivery that the disk refused is tried again",
    ),
    (
        "runtime/src/backend/strays.rs",
        "looks whether a keeper of nobody is gone: it is no child, and says nothing",
    ),
    (
        "runtime/client/src/socket/",
        "a pause before a broken connection is tried again, and the heartbeat",
    ),
    (
        "runtime/src/cli/again.rs",
        "looks for the next daemon: its socket appears without notice",
    ),
    (
        "runtime/src/cli/autostart.rs",
        "looks again for a daemon that is coming up: its socket appears without notice",
    ),
    (
        "runtime/src/relay/server.rs",
        "there are no descriptors left: they become free without notice",
    ),
    (
        "runtime/src/relay/shim.rs",
        "looks for the next daemon: its socket appears without notice",
    ),
    (
        "tests/it/relay.rs",
        "says something at chosen moments around the end of a window",
    ),
    (
        "tests/it/relay/bytes.rs",
        "gives an agent time in which nothing is to happen",
    ),
    ("tests/src/host.rs", "a host that does not read"),
    (
        "runtime/src/cli/restart.rs",
        "looks for the next daemon: its socket appears without notice",
    ),
    ("runtime/src/daemon.rs", "the bound of a drain"),
    (
        "runtime/src/demo.rs",
        "draws its table again, for people to watch",
    ),
    (
        "runtime/src/demo/agent.rs",
        "pretends to have work in the background",
    ),
    (
        "runtime/src/http/accept.rs",
        "tries again when there was no descriptor for a connection",
    ),
    (
        "runtime/src/http/socket/attend.rs",
        "the time that a client has for its first word",
    ),
    (
        "runtime/src/lock.rs",
        "tries again for the lock of a dead daemon: the kernel tells nobody that it is free",
    ),
    (
        "runtime/src/process/cgroup.rs",
        "looks again at a change that the kernel announces 10 ms late",
    ),
    (
        "runtime/src/process/reap/kill.rs",
        "lets a process on this very core take its SIGSTOP",
    ),
    (
        "runtime/src/process/reaper.rs",
        "the daemon's last look at whether its threads are done",
    ),
    (
        "runtime/src/successor.rs",
        "looks whether a program has said its version, with a bound",
    ),
    (
        "tests/benches/",
        "measures what happens while nothing is to happen",
    ),
    ("tests/bin/", "programs that are slow on purpose"),
    (
        "tests/it/process/support.rs",
        "looks again at a fact of the process table",
    ),
    (
        "tests/it/ws.rs",
        "breaks a connection at a chosen moment, whatever happens then",
    ),
    (
        "tests/src/agents/install.rs",
        "looks again at npm and at another process's lock",
    ),
    (
        "tests/src/cli.rs",
        "waits for the end of a daemon in a destructor, where nothing may panic",
    ),
    (
        "tests/src/wait.rs",
        "the one place where tests look again at a fact",
    ),
];

/// Who may start a program, and which. Everybody else asks for a keeper: nothing is looked up,
/// signalled or measured by another program, least of all by a name (D10).
const STARTERS: &[(&str, &str)] = &[
    (
        "runtime/src/cli/autostart.rs",
        "a daemon, which is this very program",
    ),
    (
        "runtime/src/cli/run.rs",
        "the bare agent, which takes this process",
    ),
    ("runtime/src/demo.rs", "its daemon, this very program"),
    ("runtime/src/demo/agent.rs", "its agents, this very program"),
    ("runtime/src/process/launch.rs", "the agent, in the keeper"),
    (
        "runtime/src/successor.rs",
        "the program that takes the daemon's place, in place and for its version",
    ),
    (
        "runtime/src/process/launch/born.rs",
        "the agent, in the keeper",
    ),
    (
        "runtime/src/process/spawn.rs",
        "a keeper, which is this very program",
    ),
];

/// Names that say nothing, or something else in this repository; see docs/GLOSSARY.md.
const EMPTY_WORDS: [&str; 13] = [
    "cleanup", "data", "handler", "helper", "helpers", "info", "job", "manager", "service", "util",
    "utils", "worker", "zombie",
];

fn is_tidy(path: &str) -> bool {
    path.starts_with("tests/it/tidy")
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Places (`path:line`) of lines for which `is_wrong`, in all source files for which `concerns`.
fn places(concerns: impl Fn(&str) -> bool, is_wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for path in files_with(".rs").iter().filter(|path| concerns(path)) {
        for (number, line) in read(path).lines().enumerate() {
            if is_wrong(line) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    found
}

#[test]
fn every_module_opens_with_its_contract() {
    let mut wrong = files_with(".rs");
    wrong.retain(|path| !read(path).starts_with("//! "));
    assert_none("no //! on top", &wrong);
}

#[test]
fn programs_are_started_where_that_is_allowed() {
    let is_source = |path: &str| {
        path.starts_with("runtime/src/") || path.starts_with("actors/") && !is_test(path)
    };
    let starts = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        // The parser of the command line has a type of this name as well.
        let named = [
            "process::Command",
            "posix_spawn",
            "execve",
            "Command::spawn",
        ];
        named.iter().any(|name| code.contains(name))
    };
    let concerns =
        |path: &str| is_source(path) && !STARTERS.iter().any(|(starter, _)| *starter == path);
    let mut found = places(concerns, starts);
    // Unit tests stand at the end of their files.
    found.retain(|place| !is_in_tests(place));
    assert_none("starts a program", &found);
}

/// True for a `path:line: text` behind the `mod tests` of its file, and in files of tests.
fn is_in_tests(place: &str) -> bool {
    let mut parts = place.splitn(3, ':');
    let path = parts.next().unwrap_or_default();
    let number: usize = parts.next().and_then(|line| line.parse().ok()).unwrap_or(0);
    let head = read(path);
    let tests = head.lines().position(|line| line == "mod tests {");
    is_test(path) || tests.is_some_and(|tests| tests < number)
}

#[test]
fn files_are_read_in_one_sitting() {
    let mut long = Vec::new();
    let mut wrong = Vec::new();
    for path in files_with(".rs") {
        let lines = read(&path).lines().count();
        let most = if is_test(&path) {
            TEST_LINES_MAX
        } else {
            LINES_MAX
        };
        if lines > most {
            wrong.push(format!("{path}: {lines} lines, {most} are allowed"));
        } else if lines > LINES_WANTED {
            long.push(format!("{path}: {lines} lines"));
        }
    }
    if !long.is_empty() {
        println!("over {LINES_WANTED} lines:\n  {}", long.join("\n  "));
    }
    assert_none("too long", &wrong);
}

/// A file that no `mod` names is not compiled, and its tests do not run.
#[test]
fn no_file_is_forgotten() {
    let targets: BTreeSet<String> = metadata()["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .filter_map(|target| Some(target["src_path"].as_str()?.to_owned()))
        .collect();
    let is_target = |path: &str| targets.contains(&*root().join(path).to_string_lossy());
    let mut wrong = files_with(".rs");
    wrong.retain(|path| !is_target(path) && !is_declared(path, &targets));
    assert_none("declared by no module", &wrong);
}

/// True when `mod NAME` stands in the file that a module of this name belongs to: the one named
/// like its folder, or a crate's root in the same folder.
fn is_declared(path: &str, targets: &BTreeSet<String>) -> bool {
    let path = Path::new(path);
    let (Some(folder), Some(name)) = (path.parent(), path.file_stem()) else {
        return false;
    };
    let name = name.to_string_lossy();
    let whole = root().join(folder);
    let roots = targets.iter().map(Path::new);
    let beside = roots.filter(|target| target.parent() == Some(&*whole));
    let parents = beside.map(Path::to_owned).chain([
        root().join(folder.with_extension("rs")),
        whole.join("mod.rs"),
    ]);
    let declares = |line: &str| {
        let line = line.trim();
        let declared = line.rsplit_once("mod ").map(|(_, rest)| rest);
        declared.is_some_and(|rest| rest.trim_end_matches([';', ' ', '{']) == name)
    };
    let texts = parents.filter_map(|parent| std::fs::read_to_string(parent).ok());
    texts.into_iter().any(|text| text.lines().any(&declares))
}

/// A lint that is in the way is expected with a reason, and complains once it is not needed.
#[test]
fn no_lint_is_allowed_without_a_reason() {
    let wrong = places(
        |path| !is_tidy(path),
        |line| line.trim_start().starts_with("#[allow(") || line.contains("#![allow("),
    );
    assert_none("use #[expect(lint, reason = \"...\")]", &wrong);
}

#[test]
fn nothing_is_left_for_later() {
    let wrong = places(
        |path| !is_tidy(path),
        |line| {
            let unfinished = ["todo!(", "unimplemented!(", "FIXME", "TODO", "XXX"];
            unfinished.iter().any(|word| line.contains(word))
                || line.trim_start().starts_with("#[ignore")
        },
    );
    assert_none("unfinished", &wrong);
}

#[test]
fn only_those_with_a_reason_sleep() {
    let asleep = places(|path| !is_tidy(path), sleeps);
    let allowed = |place: &str| SLEEPERS.iter().any(|(path, _)| place.starts_with(path));
    let wrong: Vec<String> = asleep
        .iter()
        .filter(|place| !allowed(place))
        .cloned()
        .collect();
    assert_none("wait for a fact instead", &wrong);
    let mut stale: Vec<String> = SLEEPERS
        .iter()
        .map(|(path, _)| (*path).to_owned())
        .collect();
    stale.retain(|path| !asleep.iter().any(|place| place.starts_with(path)));
    assert_none("sleeps no more: take it off the list", &stale);
}

/// True for a call of a function `sleep`, whatever it is imported from.
fn sleeps(line: &str) -> bool {
    let code = line.trim_start();
    !code.starts_with("//")
        && code.match_indices("sleep(").any(|(at, _)| {
            let before = code[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '"' | '.'))
        })
}

/// One mailbox per session: decisions are serialized without locks. Fakes of ports, which are
/// asked from several threads, have them.
#[test]
fn actors_have_no_locks() {
    let wrong = places(
        |path| path.starts_with("actors/") && !path.starts_with("actors/src/testing"),
        |line| {
            let code = line.trim_start();
            !code.starts_with("//") && (code.contains("Mutex") || code.contains("RwLock"))
        },
    );
    assert_none("locks", &wrong);
}

#[test]
fn public_names_say_something() {
    let wrong = places(
        |path| !path.starts_with("tests/") && !path.contains("/examples/"),
        |line| {
            public_name(line).is_some_and(|name| {
                words(name)
                    .iter()
                    .any(|word| EMPTY_WORDS.contains(&word.as_str()))
            })
        },
    );
    assert_none("see the glossary", &wrong);
}

/// The name of a public item or field that is declared on this line.
fn public_name(line: &str) -> Option<&str> {
    const KEYWORDS: [&str; 11] = [
        "async", "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union",
        "unsafe",
    ];
    let rest = line.trim_start().strip_prefix("pub ")?;
    let end = |c: char| !(c.is_alphanumeric() || c == '_');
    let mut names = rest.split(end).filter(|word| !word.is_empty());
    let name = names.find(|word| !KEYWORDS.contains(word))?;
    (name != "use").then_some(name)
}

/// `SessionReport`, `rss_bytes_max` and `IDLE_AFTER` in words.
fn words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in name.split('_') {
        let mut word = String::new();
        let mut before = None;
        for c in part.chars() {
            if c.is_uppercase() && before.is_some_and(char::is_lowercase) {
                words.push(std::mem::take(&mut word));
            }
            word.extend(c.to_lowercase());
            before = Some(c);
        }
        words.push(word);
    }
    words
}

#[test]
fn the_rules_see_what_they_should() {
    assert_eq!(
        public_name("    pub async fn cleanup(&self) {"),
        Some("cleanup")
    );
    assert_eq!(public_name("pub(crate) fn worker() {"), None);
    assert_eq!(public_name("pub use other::Manager;"), None);
    assert_eq!(words("JobManager_of"), ["job", "manager", "of"]);
    assert!(sleeps("std::thread::sleep(a);") && sleeps("    () = sleep(b).await"));
    assert!(!sleeps("Effect::Sleep => {}") && !sleeps("fn may_sleep(x)") && !sleeps("// sleep(1)"));
}
