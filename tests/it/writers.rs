//! One writer for each conversation (D29).

use std::fs::File;
use std::process::Stdio;

use drowse_messages::{MessageState, SessionEvent, SessionState};
use drowse_tests::fake::Dialect;
use drowse_tests::wait::{CEILING, wait_until};
use drowse_tests::{TestDaemon, daemon};
use nix::fcntl::{Flock, FlockArg};

/// A session that has answered once and sleeps, and the agent's own id of its conversation.
fn released(daemon: &TestDaemon) -> (String, String) {
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    let report = daemon.wait_state(&id, SessionState::Released);
    let conversation = report.conversation.expect("it has answered");
    (id, conversation.native_id)
}

fn wait_in_use(daemon: &TestDaemon, id: &str) -> String {
    let in_use = |event: &SessionEvent| {
        matches!(event, SessionEvent::StartFailed { error, retry_in_ms: Some(_), .. }
            if error.contains("in use by pid"))
    };
    daemon.wait_event(id, "in use", 1, in_use);
    daemon.report(id).last_error.unwrap_or_default()
}

/// D29: another process has the lock of the conversation; the message waits, its start says who has
/// it and is tried again, and works once the lock is free.
#[test]
fn a_conversation_that_is_locked_is_waited_for() {
    let daemon = daemon!("writers_lock").start();
    let (id, native) = released(&daemon);
    let folder = daemon.state_dir().join("conversations");
    let file = File::create(folder.join(format!("claude-{native}"))).expect("the folder is there");
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).expect("nobody has it");
    let message = daemon.post(&id, "FAKE:say two");
    let error = wait_in_use(&daemon, &id);
    assert!(
        error.contains(&format!("in use by pid {} (", std::process::id())),
        "{error}"
    );
    drop(lock);
    let message = daemon.settled(message);
    assert_eq!(message.state, MessageState::Answered);
    assert_eq!(message.answer, "SAID two (user turns seen: 2)");
    daemon.fake().assert_never_two();
}

/// D29: somebody resumed the conversation by hand: so long the session is not started, and the
/// other one is named. What it said there is in the conversation afterwards.
#[test]
fn a_conversation_that_somebody_resumed_is_left_to_them() {
    let daemon = daemon!("writers_foreign").start();
    let (id, native) = released(&daemon);
    let mut command = daemon
        .fake()
        .command(Dialect::Claude, &["--resume", &native]);
    let mut foreign = command
        .envs(daemon.agent_env())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the fake agent can be started");
    daemon.fake().wait_events("start", 2);
    let message = daemon.post(&id, "FAKE:say two");
    let error = wait_in_use(&daemon, &id);
    assert!(
        error.contains(&format!("in use by pid {} (", foreign.id())),
        "{error}"
    );
    drop(foreign.stdin.take());
    foreign.wait().expect("it is ours");
    assert_eq!(daemon.settled(message).state, MessageState::Answered);
}

/// Two sessions of one daemon in one conversation: the second is refused while the first lives.
#[test]
fn two_sessions_do_not_share_a_conversation() {
    let daemon = daemon!("writers_two").limit("idle_after", "off").start();
    let first = daemon.open("fake");
    daemon.say(&first, "FAKE:say one");
    let native = daemon
        .report(&first)
        .conversation
        .expect("it has answered")
        .native_id;
    let mut named = daemon.new_session("fake");
    named.args = vec!["--resume".to_owned(), native];
    daemon.get(async |client| client.release(&first).await);
    daemon.wait_state(&first, SessionState::Released);
    let second = daemon.open_as(&named);
    daemon.say(&second, "FAKE:say two");
    daemon.post(&first, "FAKE:say three");
    let in_use = |event: &SessionEvent| matches!(event, SessionEvent::StartFailed { error, .. } if error.contains(&second));
    daemon.wait_event(&first, "in use", 1, in_use);
    daemon.get(async |client| client.stop(&second).await);
    wait_until("the first one's answer", CEILING, || {
        (daemon.report(&first).queued == 0).then_some(())
    });
    daemon.fake().assert_never_two();
}
