//! A canary tells what was done to it, or a test with one proves nothing.

use std::process::Command;

use drowse_tests::{Canary, ProcIdentity, TreeGuard, wait_until};
use nix::sys::signal::Signal;

#[test]
fn a_canary_tells_what_was_done_to_it() {
    let guard = TreeGuard::new("canary");
    let folder = tempfile::tempdir().unwrap();
    let canary = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tree-agent"));
        command.args(["sleep"]).envs([guard.env()]);
        let canary = Canary::start(command, &folder.path().join(name));
        canary.wait_ready();
        canary
    };
    let left_alone = canary("alone");
    for (signal, told) in [
        (
            Signal::SIGTERM,
            format!("signals: 15 from {}", std::process::id()),
        ),
        (Signal::SIGHUP, "signals: 1 from".to_owned()),
        (Signal::SIGCONT, "signals: 18 from".to_owned()),
        (Signal::SIGSTOP, "stopped".to_owned()),
        (Signal::SIGKILL, "killed".to_owned()),
    ] {
        let canary = canary(signal.as_str());
        ProcIdentity::of(canary.pid()).unwrap().signal(signal);
        let hurt = wait_until(
            &format!("a word of {signal}"),
            drowse_tests::CEILING,
            || canary.hurt(),
        );
        assert!(hurt.contains(&told), "{hurt}");
    }
    assert_eq!(left_alone.hurt(), None);
}
