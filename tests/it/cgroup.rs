//! Each live agent has a cgroup of its own, where there are any, and nothing of it is left behind.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use drowse::process::cgroup::place::Cgroups;
use drowse_messages::{SessionEvent, SessionState};
use drowse_tests::{TestDaemon, daemon};

/// Where the daemon, which is in the cgroup of this test, has its cgroups.
fn folder(daemon: &TestDaemon) -> Option<PathBuf> {
    match Cgroups::find(&daemon.state_dir().display().to_string()) {
        Ok(cgroups) => Some(cgroups.folder().to_owned()),
        Err(error) => {
            drowse_tests::wait::say_aloud(&format!("NOT RUN: cgroups of a daemon: {error}"));
            None
        }
    }
}

/// The cgroups that are there.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn processes(cgroup: &Path) -> BTreeSet<i32> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).expect("it is there");
    text.lines()
        .map(|pid| pid.parse().expect("a pid"))
        .collect()
}

/// Made at each start under the number of the launch, with everything in it that the agent
/// started; removed with the tree, and the daemon's folder with the last one.
#[test]
fn a_backend_has_a_cgroup_while_it_lives() {
    let mut daemon = daemon!("cgroup").limit("idle_after", "1h").start();
    let Some(folder) = folder(&daemon) else {
        return;
    };
    let (first, second) = (daemon.open("fake"), daemon.open("fake"));
    daemon.say(&first, "FAKE:spawn double-fork");
    daemon.say(&second, "hello");
    let expected: BTreeSet<_> = [format!("{first}-1"), format!("{second}-1")].into();
    assert_eq!(names(&folder), expected);
    let leaf = &daemon.fake().wait_events("child", 1)[0]["who"];
    let leaf = leaf
        .as_str()
        .and_then(|who| who.split('@').next()?.parse().ok());
    let inside = processes(&folder.join(format!("{first}-1")));
    assert!(
        inside.len() == 2 && inside.contains(&leaf.expect("it said who it is")),
        "{inside:?}"
    );

    daemon.get(async |client| client.stop(&first).await);
    daemon.wait_state(&first, SessionState::Stopped);
    daemon.wait_gone(&first);
    assert_eq!(names(&folder), [format!("{second}-1")].into());
    daemon.say(&first, "hello again");
    let expected: BTreeSet<_> = [format!("{first}-2"), format!("{second}-1")].into();
    assert_eq!(names(&folder), expected);

    assert!(daemon.terminate().success());
    assert!(!folder.exists(), "{} is left", folder.display());
}

/// A start that fails leaves nothing either.
#[test]
fn a_failed_start_leaves_no_cgroup() {
    let place = tempfile::tempdir().expect("a folder");
    let script = place.path().join("broken");
    fs::write(&script, "#!/no/such/interpreter\n").expect("ours");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    let config = format!("[agents.broken]\nprotocol = \"raw\"\ncommand = [{script:?}]\n");
    let mut daemon = daemon!("broken").config(&config).start();
    let Some(folder) = folder(&daemon) else {
        return;
    };
    let id = daemon.open("broken");
    daemon.post(&id, "hello");
    daemon.wait_event(&id, "a failed start", 1, |event| {
        matches!(event, SessionEvent::StartFailed { .. })
    });
    assert_eq!(names(&folder), BTreeSet::new());
    assert!(daemon.terminate().success());
    assert!(!folder.exists(), "{} is left", folder.display());
}
