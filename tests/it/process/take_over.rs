//! Keepers that outlive their daemon: what the next one finds, and who is refused.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::daemon::{FakeDaemon, keeper_of};
use super::support::*;
use drowse::process::control::{Checkpoint, LaunchStep, ToKeeper};
use drowse::process::link::{KeeperEvent, KeeperLink, TakeOverError};
use drowse::process::signal::Signaller;
use drowse::process::spawn::KeeperProgram;
use drowse::process::table::identify;
use drowse_messages::{ExitStatus, ProcIdentity, ReapStep, SessionId};
use rustix::process::Signal;
use tempfile::TempDir;

/// Longer than any test.
const GRACE: Duration = Duration::from_secs(60);

/// A folder for one socket, and the socket's path.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("keeper.sock");
    (folder, socket)
}

/// A backend whose keeper can be taken over.
async fn start(socket: &Path, script: &str) -> Backend {
    let session = new_session();
    let mut plan = launch(session, &[TREE_AGENT, script]);
    plan.socket = Some(socket.to_owned());
    plan.orphan_grace = GRACE;
    Backend::launch(session, plan).await
}

/// Dies as a daemon does: nothing is said, everything is closed.
fn die(backend: Backend) -> (SessionId, ProcIdentity) {
    (backend.session, backend.link.keeper())
}

fn signal(process: ProcIdentity, signal: Signal) {
    let sent = Signaller::new().send_to(process, signal);
    sent.expect("ours");
}

async fn end(backend: Backend) {
    let pool = pool();
    assert!(backend.step(&pool, ReapStep::Kill).await.empty);
    backend.leave(&pool).await;
}

/// D41: the next daemon has the same agent, can speak to it and hears it, and gets what the one
/// before left for it.
#[test]
fn an_agent_outlives_its_daemon() {
    let (_folder, socket) = place();
    let session = new_session();
    let mut daemon = FakeDaemon::start(session, &socket, GRACE, "report;echo;sleep");
    let agent = daemon.reports(1)[0];
    let keeper = keeper_of(agent);
    daemon.order("checkpoint first");
    daemon.order("say before");
    assert_eq!(daemon.line(), "before\n");
    daemon.order("checkpoint second");
    assert_eq!(daemon.kill(), b"");
    on_runtime(async {
        let taken = Backend::take_over(session, keeper, &socket).await;
        let (mut backend, held) = taken.expect("it waits");
        let expected = TakenOver {
            checkpoint: b"second".to_vec(),
            ..TakenOver::default()
        };
        assert_eq!((backend.agent, held), (agent, expected));
        assert!(is_alive(agent));
        backend.say("after\n").await;
        assert_eq!(backend.line().await, "after\n");
        assert!(backend.step(&pool(), ReapStep::Kill).await.empty);
        assert_eq!(backend.exit().await, ExitStatus::Signal(9));
        let event = in_time("the end", backend.link.next_message()).await;
        assert!(matches!(event, Ok(Some(KeeperEvent::Empty))), "{event:?}");
        let sent = backend.link.send(ToKeeper::Leave).await;
        sent.expect("a keeper");
    });
    wait_until("the keeper has left", || !is_alive(keeper));
    assert!(!socket.exists(), "the socket goes with its keeper");
    assert!(marked(session).is_empty(), "{}", dump(session));
}

/// D41, D36: what an agent writes while nobody reads arrives whole, also when it is more than the
/// pipe holds and the agent had to wait.
#[test]
fn what_is_written_meanwhile_arrives_byte_for_byte() {
    const LENGTH: usize = 300_000;
    const PIPE_BYTES: u64 = 65_536;
    let (_folder, socket) = place();
    let session = new_session();
    let script = format!("onterm[flood {LENGTH};exit 5];sleep");
    let mut daemon = FakeDaemon::start(session, &socket, GRACE, &script);
    let agent = daemon.reports(1)[0];
    let keeper = keeper_of(agent);
    assert_eq!(daemon.kill(), b"");
    let written = || {
        let io = std::fs::read_to_string(format!("/proc/{}/io", agent.pid())).expect("alive");
        let field = io.lines().find_map(|line| line.strip_prefix("wchar: "));
        let count: Option<u64> = field.and_then(|count| count.parse().ok());
        count.expect("a number")
    };
    let before = written();
    signal(agent, Signal::TERM);
    wait_until("the pipe is full", || written() - before == PIPE_BYTES);
    on_runtime(async {
        let taken = Backend::take_over(session, keeper, &socket).await;
        let (mut backend, held) = taken.expect("it waits");
        assert_eq!(held, TakenOver::default());
        let said = backend.bytes(LENGTH).await;
        let expected: Vec<u8> = (0..=250).cycle().take(LENGTH).collect();
        assert!(said == expected, "{} bytes came", said.len());
        assert_eq!(backend.exit().await, ExitStatus::Code(5));
        let sent = backend.link.send(ToKeeper::Leave).await;
        sent.expect("a keeper");
    });
    wait_until("the keeper has left", || !is_alive(keeper));
}

/// D36, D41: an agent that ended while nobody looked is told of as if somebody had.
#[test]
fn the_end_of_an_agent_is_kept_for_the_next_daemon() {
    let (_folder, socket) = place();
    let session = new_session();
    let script = "onterm[flood 10;exit 7]";
    let mut daemon = FakeDaemon::start(session, &socket, GRACE, script);
    let agent = daemon.reports(1)[0];
    let keeper = keeper_of(agent);
    daemon.kill();
    signal(agent, Signal::TERM);
    wait_until("the agent was collected", || identify(agent.pid()).is_err());
    on_runtime(async {
        let taken = Backend::take_over(session, keeper, &socket).await;
        let (mut backend, held) = taken.expect("it waits, though it has no child");
        let expected = TakenOver {
            exited: Some(ExitStatus::Code(7)),
            empty: true,
            checkpoint: Vec::new(),
        };
        assert_eq!((backend.agent, held), (agent, expected));
        assert_eq!(backend.bytes(10).await, (0..10).collect::<Vec<u8>>());
        let sent = backend.link.send(ToKeeper::Leave).await;
        sent.expect("a keeper");
        let event = in_time("the leaving", backend.link.next_message()).await;
        assert!(matches!(event, Ok(None)), "{event:?}");
    });
    wait_until("the keeper has left", || !is_alive(keeper));
}
