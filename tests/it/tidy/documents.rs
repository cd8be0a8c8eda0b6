//! The documents: their links lead somewhere, their form is kept, and what the guide lists is what
//! the code has, no more and no less.
//!
//! What the guide lists stands in the first cells of the tables below a heading. What the code has
//! is read from its text: the compiler's own tests keep that text true (the help is compared with
//! the arguments, the codes are what is sent).

use std::collections::BTreeSet;

use super::{assert_none, files_with, read, root};

const GUIDE: &str = "docs/guide.md";

/// Folders whose paths, when a document names them, must exist.
const FOLDERS: [&str; 8] = [
    ".ci/",
    ".cargo/",
    ".config/",
    "actors/",
    "docs/",
    "messages/",
    "runtime/",
    "tests/",
];

type Names = BTreeSet<String>;

/// Compares what a section of the guide lists with what the code has.
#[track_caller]
fn assert_listed(heading: &str, in_code: &Names) {
    assert!(!in_code.is_empty(), "{heading}: nothing found in the code");
    let in_guide = listed(&section(GUIDE, heading));
    let missing = in_code.difference(&in_guide);
    let invented = in_guide.difference(in_code);
    let wrong: Vec<String> = missing
        .map(|name| format!("{name} is missing"))
        .chain(invented.map(|name| format!("{name} is not in the code")))
        .collect();
    assert_none(&format!("{GUIDE}, {heading}"), &wrong);
}

/// The part of a document below a heading of the second level.
fn section(path: &str, heading: &str) -> String {
    let text = read(path);
    let start = format!("\n## {heading}\n");
    let (_, rest) = text
        .split_once(&start)
        .unwrap_or_else(|| panic!("{path} has no section {heading:?}"));
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}

/// The words between the first backticks of each row of each table.
fn listed(section: &str) -> Names {
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
        .collect()
}

/// What stands between `start` and `end` in a file.
fn between(path: &str, start: &str, end: &str) -> String {
    let text = read(path);
    let (_, rest) = text
        .split_once(start)
        .unwrap_or_else(|| panic!("{path} has no {start:?}"));
    rest.split(end).next().unwrap_or_default().to_owned()
}

/// All texts in quotes that follow `before`, white space apart.
fn quoted_after(text: &str, before: &str) -> Names {
    let after = text.split(before).skip(1);
    let quoted = after.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split_once('"'));
    quoted.map(|(word, _)| word.to_owned()).collect()
}

/// The wire names of an enum of the vocabulary.
fn codes(path: &str, name: &str) -> Names {
    let block = between(path, &format!("\nimpl {name} {{"), "\n}");
    quoted_after(&block, "=>")
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (place, c) in name.chars().enumerate() {
        if c.is_uppercase() && place > 0 {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

#[test]
fn the_guide_has_every_configuration_key() {
    const APPLY: &str = "runtime/src/config/apply.rs";
    let limits = quoted_after(&read("runtime/src/config/limit.rs"), "name:");
    let keys = |list: &str| {
        let array = between(APPLY, &format!("const {list}: "), ";\n");
        // Another `;` stands in the array's type.
        let array = array.split_once('=').map(|(_, items)| items.to_owned());
        let array = array.unwrap_or_else(|| between(APPLY, &format!("const {list}"), "];"));
        let quoted = array.split('"').skip(1).step_by(2);
        quoted.map(str::to_owned).collect::<Names>()
    };
    let mut all = Names::new();
    for (section, names) in [
        ("session", limits),
        ("session", keys("SESSION_KEYS")),
        ("limits", keys("LIMITS_KEYS")),
        ("server", keys("SERVER_KEYS")),
        ("agents.NAME", keys("AGENT_KEYS")),
    ] {
        all.extend(names.iter().map(|name| format!("{section}.{name}")));
    }
    assert_listed("Configuration", &all);
}

/// `help.txt` is what the command line prints; its own test holds that.
#[test]
fn the_guide_has_every_verb() {
    let help = between("runtime/src/cli/help.txt", "\nCommands:\n", "\n\n");
    let in_help: Names = help
        .lines()
        .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
        .collect();
    let guide = section(GUIDE, "The verbs");
    let headings = guide
        .lines()
        .filter_map(|line| line.strip_prefix("### `drowse "));
    let in_guide: Names = headings
        .map(|rest| {
            let end = |c: char| !(c.is_alphanumeric() || c == '-');
            rest.split(end).next().unwrap_or_default().to_owned()
        })
        .collect();
    assert_eq!(in_guide, in_help);
}

#[test]
fn the_guide_has_every_exit_code() {
    let table = between(
        "runtime/src/exit.rs",
        "pub const fn code(self)",
        "\n    }\n",
    );
    let numbers = table.lines().filter_map(|line| line.split_once("=> "));
    let in_code = numbers
        .map(|(_, number)| number.trim_end_matches(',').to_owned())
        // Another program's code is none of ours.
        .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    assert_listed("Exit codes", &in_code.collect());
}

#[test]
fn the_guide_has_every_event() {
    let block = between("messages/src/event.rs", "pub enum SessionEvent {", "\n}");
    let in_code = block.lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?.trim_end_matches([',', '{', ' ']);
        let is_variant = name.starts_with(char::is_uppercase) && !name.contains(' ');
        is_variant.then(|| snake(name))
    });
    assert_listed("Events", &in_code.collect());
}

#[test]
fn the_guide_has_every_path() {
    let routes = read("runtime/src/http/routes.rs");
    let quoted = routes.split('"').skip(1).step_by(2);
    let in_code: Names = quoted
        .filter(|text| {
            text.starts_with("/v1/")
                || ["/livez", "/readyz", "/metrics", "/openapi.json"].contains(text)
        })
        .filter(|text| !text.ends_with("{}"))
        .map(str::to_owned)
        .collect();
    assert_listed("HTTP", &in_code);
}

#[test]
fn the_guide_has_every_code() {
    let reason = "messages/src/reason.rs";
    let mut problems = codes(reason, "Refusal");
    let own = read("runtime/src/http/problem.rs");
    let own = own.split("FailureCode::").skip(1);
    let name = |rest: &str| {
        snake(
            rest.split(|c: char| !c.is_alphanumeric())
                .next()
                .unwrap_or_default(),
        )
    };
    problems.extend(own.map(name).filter(|name| name != "from"));
    assert_listed("Problems", &problems);
    assert_listed("Why a process ended", &codes(reason, "Reason"));
    assert_listed("States", &codes("messages/src/status.rs", "SessionState"));
    assert_listed("Messages", &codes("messages/src/saved.rs", "MessageState"));
    assert_listed("Holds", &codes("messages/src/hold.rs", "HoldKind"));
}

#[test]
fn the_changelog_keeps_its_form() {
    const GROUPS: [&str; 6] = [
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    ];
    let text = read("CHANGELOG.md");
    assert!(text.starts_with("# Changelog\n"), "no title");
    let mut versions = Vec::new();
    let mut wrong = Vec::new();
    let mut in_group = false;
    for line in text.lines() {
        if let Some(version) = line.strip_prefix("## ") {
            versions.push(version);
            in_group = false;
        } else if let Some(group) = line.strip_prefix("### ") {
            in_group = GROUPS.contains(&group);
            if !in_group {
                wrong.push(format!("unknown group: {line}"));
            }
        } else if line.starts_with("- ") && !in_group {
            wrong.push(format!("outside of a group: {line}"));
        }
    }
    let dated = |version: &&str| match version.split_once("] - ") {
        Some((number, date)) => number.starts_with('[') && date.len() == "2026-11-30".len(),
        None => false,
    };
    let undated = versions.iter().skip(1).filter(|version| !dated(version));
    wrong.extend(undated.map(|version| format!("not \"[1.2.3] - YYYY-MM-DD\": {version}")));
    assert_eq!(versions.first(), Some(&"[Unreleased]"), "comes first");
    assert_none("CHANGELOG.md", &wrong);
}

/// A document without its blocks of code.
fn prose(path: &str) -> String {
    let text = read(path);
    let blocks = text.split("\n```").step_by(2);
    blocks.collect::<Vec<_>>().join("\n")
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(path: &str) -> Names {
    let text = prose(path);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            title
                .chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for path in files_with(".md") {
        let text = prose(&path);
        let targets = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'));
        for (target, _) in targets {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let file = if file.is_empty() {
                path.clone()
            } else {
                joined(folder, file)
            };
            let there = root().join(&file).exists();
            if !there || !(anchor.is_empty() || anchors(&file).contains(anchor)) {
                wrong.push(format!("{path}: {target}"));
            }
        }
    }
    assert_none("links to nowhere", &wrong);
}

/// A relative path seen from a folder, `..` resolved.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A file that a document names between backticks is there.
#[test]
fn named_files_exist() {
    let mut wrong = Vec::new();
    for path in files_with(".md") {
        let text = prose(&path);
        for word in text.split('`').skip(1).step_by(2) {
            let is_path = FOLDERS.iter().any(|folder| word.starts_with(folder))
                && !word.contains([' ', '*', '{', '<', '\n']);
            if is_path && !root().join(word).exists() {
                wrong.push(format!("{path}: {word}"));
            }
        }
    }
    assert_none("files that are not there", &wrong);
}
