//! Extensions that misbehave touch no session: they have threads of their own.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use drowse_client::Client;
use drowse_messages::{NewSession, SessionState};
use drowse_tests::process::TreeGuard;
use drowse_tests::wait::{CEILING, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const STUBBORN: &str = env!("CARGO_BIN_EXE_stubborn");

/// One extension blocks its thread, another panics: sessions are opened, started and ended as if
/// they were not there; the status report says how they do; the daemon ends in order.
#[test]
fn a_blocked_and_a_panicking_extension_touch_no_session() {
    let guard = TreeGuard::new("a_blocked_and_a_panicking_extension_touch_no_session");
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let config = folder.path().join("config.toml");
    std::fs::write(
        &config,
        "[agents.cat]\ncommand = [\"cat\"]\nprotocol = \"raw\"\n",
    )
    .expect("the folder can be written");
    let (variable, value) = guard.env();
    let mut daemon = Command::new(STUBBORN)
        .args([&state, &config])
        .env(variable, value)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the daemon starts");
    let client = Client::unix(state.join("drowse.sock"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let ready = || runtime.block_on(client.ready()).ok().filter(|ready| *ready);
    wait_until("the daemon is ready", CEILING, ready);
    // Several sessions, so that there are more events than a mailbox holds.
    for name in ["one", "two", "three", "four"] {
        let session = NewSession {
            agent: "cat".parse().expect("a name"),
            name: Some(name.parse().expect("a name")),
            cwd: folder.path().to_owned(),
            args: Vec::new(),
            env: std::env::vars().collect(),
            limits: BTreeMap::new(),
        };
        runtime.block_on(client.open(&session)).expect("opened");
        runtime
            .block_on(client.wake(name, false))
            .expect("accepted");
        wait_until("the session rests", CEILING, || {
            let report = runtime.block_on(client.session(name)).ok()?;
            (report.state == SessionState::Resting).then_some(())
        });
    }
    let status = || runtime.block_on(client.status()).ok();
    wait_until(
        "both extensions are seen to be as they are",
        CEILING,
        || {
            let subscribers = status()?.subscribers;
            let of = |name: &str| subscribers.iter().find(|it| it.name == name);
            (!of("panics")?.alive && of("blocks")?.lagged_total > 0).then_some(())
        },
    );
    kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert!(daemon.wait().expect("it is ours").success());
    guard.wait_empty(CEILING);
}
