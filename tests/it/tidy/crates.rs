//! Which crate may know which, and how many there are.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use super::{assert_none, read, root};

/// What a crate may depend on. A new edge is a decision: it is made here, in review.
struct Rule {
    name: &'static str,
    /// Crates of this repository.
    ours: &'static [&'static str],
    /// Everybody else's; `None`: not restricted.
    others: Option<&'static [&'static str]>,
}

const RULES: [Rule; 5] = [
    // The vocabulary is plain data. Actix is behind a feature, for trait impls alone.
    Rule {
        name: "drowse-messages",
        ours: &[],
        others: Some(&["actix", "serde"]),
    },
    // Policy is a pure function: it knows no runtime, no clock and no I/O.
    Rule {
        name: "drowse-policy",
        ours: &["drowse-messages"],
        others: Some(&[]),
    },
    // Shells reach the outside through ports: no nix, no rustix, no channels of threads.
    Rule {
        name: "drowse-actors",
        ours: &["drowse-messages", "drowse-policy"],
        others: Some(&[
            "actix",
            "actix-rt",
            "futures-util",
            "serde",
            "tokio",
            "tracing",
        ]),
    },
    // A client of the daemon is none of its insides.
    Rule {
        name: "drowse-client",
        ours: &["drowse-messages"],
        others: None,
    },
    Rule {
        name: "drowse",
        ours: &[
            "drowse-actors",
            "drowse-client",
            "drowse-messages",
            "drowse-policy",
        ],
        others: None,
    },
];

/// The crate that sees everything, and that nothing may see.
const TESTS: &str = "drowse-tests";

/// 280 packages: there are 273, most of which come with actix-web, clap and SQLite, that is the
/// HTTP surface, the command line and the store. 17 come with sysinfo, which the bench of process
/// trees compares with; most of those are for other systems and never built. 27 came with
/// WebSockets on both sides (docs/design/websocket.md). One more of that size
/// is argued for in docs/design.
const PACKAGES_MAX: usize = 280;

/// The packages of this repository, as cargo understands their manifests.
pub(super) fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {said}");
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

/// What each package depends on when it is built for use, not for its own tests.
fn edges() -> BTreeMap<String, Vec<String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(&metadata()["packages"])
        .iter()
        .map(|package| {
            let used = list(&package["dependencies"]);
            let used = used.iter().filter(|it| it["kind"] != "dev");
            (
                text(&package["name"]),
                used.map(|it| text(&it["name"])).collect(),
            )
        })
        .collect()
}

#[test]
fn crates_depend_only_on_what_they_may() {
    let mut wrong = Vec::new();
    for (name, used) in edges() {
        if name == TESTS {
            continue;
        }
        let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
            wrong.push(format!("{name} has no rule in tests/it/tidy/crates.rs"));
            continue;
        };
        for other in used {
            let may = if other.starts_with("drowse") {
                rule.ours.contains(&other.as_str())
            } else {
                rule.others
                    .is_none_or(|others| others.contains(&other.as_str()))
            };
            if !may {
                wrong.push(format!("{name} -> {other}"));
            }
        }
    }
    assert_none("edges that are not allowed", &wrong);
}

#[test]
fn dependencies_do_not_grow_unnoticed() {
    let lock = read("Cargo.lock");
    let packages = lock.lines().filter(|line| *line == "[[package]]").count();
    assert!(
        packages <= PACKAGES_MAX,
        "{packages} packages in Cargo.lock, {PACKAGES_MAX} are allowed"
    );
}
