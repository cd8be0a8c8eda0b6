//! The client for TypeScript: its types are what the schemas say, it compiles under the strictest
//! settings, and its own tests pass against the real daemon, by Node and by a browser's WebSocket.
//!
//! Not run where npm cannot install the compiler, and said so aloud; a failure in CI.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use drowse_tests::TreeGuard;
use drowse_tests::agents::{Library, library_or_not_run};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/client-ts")
}

/// A copy of the package that may be built in, with its development dependencies.
fn package(test: &str) -> Option<tempfile::TempDir> {
    let typescript = library_or_not_run(test, Library::TypeScript)?;
    let types = library_or_not_run(test, Library::NodeTypes)?;
    let folder = tempfile::Builder::new()
        .prefix("drowse-ts-")
        .tempdir()
        .expect("the temporary folder can be written");
    for name in ["package.json", "tsconfig.json", "README.md"] {
        fs::copy(source().join(name), folder.path().join(name)).expect("it is in the repository");
    }
    for name in ["src", "test"] {
        copy(&source().join(name), &folder.path().join(name));
    }
    let modules = folder.path().join("node_modules");
    fs::create_dir_all(modules.join("@types")).expect("the folder is ours");
    for (from, name) in [
        (&typescript, "typescript"),
        (&types, "@types/node"),
        (&types, "undici-types"),
    ] {
        symlink(from.join("node_modules").join(name), modules.join(name))
            .expect("nothing is there");
    }
    Some(folder)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder is ours");
    for entry in fs::read_dir(from).expect("it is in the repository") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("the folder is ours");
        }
    }
}

#[track_caller]
fn well(output: &Output) {
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
}

fn node(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("node");
    command.current_dir(folder).args(args);
    command
}

/// What is checked in is what the schemas say.
#[test]
fn the_types_are_those_of_the_schemas() {
    let test = "the_types_are_those_of_the_schemas";
    if library_or_not_run(test, Library::TypeScript).is_some() {
        let check = ["scripts/generate.mjs", "--check"];
        well(&node(&source(), &check).output().expect("node is there"));
    }
}

/// Behaviours 99, 105 to 114, 117: as a program in TypeScript sees them.
#[test]
fn the_client_for_typescript_keeps_its_promises() {
    let test = "the_client_for_typescript_keeps_its_promises";
    let guard = TreeGuard::new(test);
    let Some(package) = package(test) else {
        return;
    };
    let folder = package.path();
    let compile = ["node_modules/typescript/bin/tsc", "-p", "."];
    well(&node(folder, &compile).output().expect("node is there"));
    let (mark, token) = guard.env();
    let suites = ["frames", "http", "connection"].map(|name| format!("dist/test/{name}.test.js"));
    // Node 20 has a browser's WebSocket, but only when it is asked to.
    let mut args = vec!["--experimental-websocket", "--test"];
    args.extend(suites.iter().map(String::as_str));
    let output = node(folder, &args)
        .env(mark, token)
        .env("DROWSE_TEST_PROGRAM", env!("CARGO_BIN_EXE_drowse-dup"))
        .env("DROWSE_TEST_FAKE", env!("CARGO_BIN_EXE_fake-agent"))
        .output()
        .expect("node is there");
    well(&output);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("# skipped 0"), "{said}");
    let pack = ["pack", "--dry-run", "--json", "--ignore-scripts"];
    let packed = Command::new("npm")
        .current_dir(folder)
        .args(pack)
        .output()
        .expect("npm is there");
    well(&packed);
    let list = String::from_utf8_lossy(&packed.stdout);
    for wanted in ["dist/src/index.js", "dist/src/index.d.ts", "README.md"] {
        assert!(list.contains(wanted), "{wanted} is not in {list}");
    }
    assert!(!list.contains("dist/test"), "{list}");
}
