//! How it ends: as the bare agent would have.

use std::os::unix::process::ExitStatusExt;

use super::*;

/// Exit codes and stderr are the agent's own.
#[test]
fn exit_codes_and_stderr_are_the_agents() {
    let daemon = daemon!("relay-exit").start();
    for code in [0, 1, 7, 255] {
        let script = format!("echo out; echo oops >&2; exit {code}");
        let mut host = host_of(&daemon, &["sh", "-c", &script]);
        host.wait_code(code);
        assert_eq!(host.heard(), b"out\n");
        assert_eq!(host.complaints(), "oops\n");
    }
}

/// A signal reaches the agent; if it dies of it, so does the shim, and if it does not, neither does
/// the shim.
#[test]
fn signals_reach_the_agent() {
    let daemon = daemon!("relay-signal").limit("idle_after", "1h").start();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut host = host_of(&daemon, &["sh", "-c", "echo up; exec sleep 60"]);
        host.wait_bytes(3);
        host.signal(signal);
        let status = host.wait_exit();
        assert_eq!(
            status.signal(),
            Some(signal as i32),
            "{status:?} {}",
            host.complaints()
        );
    }
    let script = "trap 'echo caught; exit 3' TERM; echo up; while :; do sleep 0.05; done";
    let mut host = host_of(&daemon, &["sh", "-c", script]);
    host.wait_bytes(3);
    host.signal(Signal::SIGTERM);
    host.wait_code(3);
    assert_eq!(host.heard(), b"up\ncaught\n");
}

/// A signal that ends the shim's sleeping agent ends the shim.
#[test]
fn a_signal_while_asleep_ends_the_host() {
    let daemon = daemon!("relay-asleep").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    turn(&mut host, "FAKE:say hello");
    let id = session(&daemon);
    daemon.wait_state(&id, SessionState::Released);
    host.signal(Signal::SIGTERM);
    let status = host.wait_exit();
    assert_eq!(
        status.signal(),
        Some(Signal::SIGTERM as i32),
        "{}",
        host.complaints()
    );
    assert_eq!(daemon.fake().events("start").len(), 1);
}

/// An agent that ends by itself is no release: the host hears of it as it would have.
#[test]
fn an_agent_that_ends_by_itself_ends_the_shim() {
    let daemon = daemon!("relay-self").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    turn(&mut host, "FAKE:say hello");
    prompt(&mut host, "FAKE:exit 9");
    host.wait_code(9);
    let mut host = super::host(&daemon, Dialect::Claude, &[]);
    prompt(&mut host, "FAKE:crash");
    let status = host.wait_exit();
    assert_eq!(
        status.signal(),
        Some(Signal::SIGKILL as i32),
        "{}",
        host.complaints()
    );
}

/// Stopped and removed by somebody: the host is told by its agent's end.
#[test]
fn a_stop_ends_the_shim() {
    let daemon = daemon!("relay-stop").limit("idle_after", "1h").start();
    for verb in ["stop", "rm"] {
        let mut host = host(&daemon, Dialect::Claude, &["--name", verb]);
        turn(&mut host, "FAKE:say hello");
        let done = daemon.run(&[verb, verb]);
        assert!(done.status.success(), "{done:?}");
        host.wait_exit();
    }
}

/// A daemon that ends on purpose ends the agents of its hosts, and says so.
#[test]
fn a_daemon_that_ends_tells_its_hosts() {
    let mut daemon = daemon!("relay-drain").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    turn(&mut host, "FAKE:say hello");
    daemon.wait_state(&session(&daemon), SessionState::Released);
    daemon.terminate();
    host.wait_code(75);
    assert!(
        host.complaints().contains("the daemon was stopped"),
        "{}",
        host.complaints()
    );
}

/// What is wrong with the command is said as a shell would; nothing is started for it.
#[test]
fn what_cannot_be_run_is_said() {
    let daemon = daemon!("relay-wrong").start();
    let mut host = host_of(&daemon, &["no-such-agent-anywhere"]);
    host.wait_code(127);
    assert!(
        host.complaints().contains("no-such-agent-anywhere"),
        "{}",
        host.complaints()
    );
    let words = ["run", "--protocol", "klingon", "--", "cat"];
    let mut host = Host::spawn(daemon.command(&words));
    host.wait_code(2);
    assert!(
        host.complaints().contains("klingon"),
        "{}",
        host.complaints()
    );
    assert_eq!(sessions(&daemon).len(), 0);
}

/// Without a daemon the host is told, or gets the bare agent if it asked for that.
#[test]
fn without_a_daemon_there_is_the_bare_agent_or_an_error() {
    let daemon = daemon!("relay-none").ready();
    let agent = ["sh", "-c", "cat; echo bare >&2; exit 5"];
    let plain = [&["--no-start", "run", "--"][..], &agent].concat();
    let mut host = Host::spawn(daemon.command(&plain));
    host.wait_code(69);
    assert!(
        host.complaints().contains("no daemon is running"),
        "{}",
        host.complaints()
    );
    let fallback = [&["--no-start", "run", "--fallback", "--"][..], &agent].concat();
    let mut host = Host::spawn(daemon.command(&fallback));
    host.write(b"as it is");
    host.close();
    host.wait_code(5);
    assert_eq!(host.heard(), b"as it is");
    let said = host.complaints();
    assert!(
        said.contains("running the agent directly") && said.ends_with("bare\n"),
        "{said}"
    );
}
