//! What no compiler checks: crate edges, files, words, and that the documents say what the code
//! says.
//!
//! Fed by: the files of the repository, read as text. Invariant: nothing is built and nothing is
//! downloaded, so all of it is done in a second or two. A rule that is in the way is changed here,
//! in a table with a reason, where it is seen in review.

mod crates;
mod documents;
mod files;
mod protocol;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the repository.
fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests
        .parent()
        .expect("the tests are a folder of the repository")
        .to_owned()
}

/// Reads a file, by its path from the root.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files below the root whose names end so, by their paths from the root, in order. What
/// cargo and git made is left out.
fn files_with(end: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository can be listed") {
            let entry = entry.expect("a folder of the repository can be listed");
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().expect("an entry has a type");
            if kind.is_dir() && name != "target" && name != ".git" {
                folders.push(entry.path());
            } else if kind.is_file() && name.ends_with(end) {
                let path = entry.path();
                let below = path.strip_prefix(root()).expect("it is below the root");
                found.push(below.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// Fails with everything that is wrong, one a line.
fn assert_none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

/// `tests/run` adds up what several runners print: it must not lose a failure.
#[test]
fn the_test_script_counts_right() {
    let output = Command::new("bash")
        .arg(root().join("tests/run"))
        .arg("--self-test")
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
