//! An account change: `drowse restart ID` with another environment, by the real command line.

use drowse_client::ClientError;
use drowse_messages::{MessageState, Reason, RestartSession, SessionEvent, SessionState};
use drowse_tests::fake::fingerprint;
use drowse_tests::wait::{CEILING, wait_until};
use drowse_tests::{ProcIdentity, TestDaemon, daemon};
use nix::sys::signal::Signal;

/// Values that occur nowhere else.
const OLD: &str = "old-account-7f3c9a";
const NEW: &str = "new-account-b81d04";

/// A session whose agent has an account, and has answered once.
fn opened(daemon: &TestDaemon) -> String {
    let mut new = daemon.new_session("fake");
    new.env.insert("ACCOUNT_KEY".to_owned(), OLD.to_owned());
    let id = daemon.open_as(&new);
    assert!(account(daemon, &id).contains(&fingerprint(OLD)));
    id
}

fn account(daemon: &TestDaemon, id: &str) -> String {
    daemon.say(id, "FAKE:env ACCOUNT_KEY")
}

fn restart(daemon: &TestDaemon, id: &str) -> String {
    let variable = format!("ACCOUNT_KEY={NEW}");
    let ran = daemon.run(&["restart", id, "--env", &variable]);
    let err = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{err}");
    String::from_utf8(ran.stdout)
        .expect("it prints text")
        .trim()
        .to_owned()
}

/// What is in the daemon's folder, of all its files.
fn is_kept(daemon: &TestDaemon, value: &str) -> bool {
    let mut folders = vec![daemon.state_dir()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)
            .expect("the folder is there")
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read(&path).is_ok_and(|bytes| {
                bytes
                    .windows(value.len())
                    .any(|part| part == value.as_bytes())
            }) {
                return true;
            }
        }
    }
    daemon.log_text().contains(value)
}

/// Behaviours 56, 145: at rest the session is released with all it started, also what left it, and
/// woken in the same conversation with the other environment, which the next daemon knows too. No
/// value is anywhere in clear.
#[test]
fn a_session_goes_on_with_another_account() {
    let mut daemon = daemon!("account").limit("idle_after", "off").start();
    let id = opened(&daemon);
    let said = daemon.say(&id, "FAKE:spawn setsid");
    let child = said
        .split_whitespace()
        .find_map(ProcIdentity::parse)
        .expect("it names itself");
    assert!(child.is_alive());
    assert_eq!(restart(&daemon, &id), "restarted, conversation resumed");
    assert!(!child.is_alive());
    let report = daemon.report(&id);
    let end = report.end.expect("its first process has ended");
    assert_eq!(end.reason, Reason::AccountChange);
    assert!(
        end.processes
            .iter()
            .any(|process| process.identity.pid() == child.pid)
    );
    let said = account(&daemon, &id);
    assert!(said.contains(&fingerprint(NEW)), "{said}");
    assert!(said.ends_with("(user turns seen: 3)"), "{said}");
    daemon.kill9();
    daemon.restart();
    daemon.get(async |client| client.release(&id).await);
    daemon.wait_state(&id, SessionState::Released);
    assert!(account(&daemon, &id).contains(&fingerprint(NEW)));
    assert!(!is_kept(&daemon, OLD) && !is_kept(&daemon, NEW));
    daemon.fake().assert_never_two();
}

/// Behaviour 44: a busy one works on, says that it waits, and is restarted with the end of its
/// turn; what was said meanwhile is answered with the new account.
#[test]
fn a_busy_session_is_restarted_once_it_is_at_rest() {
    let mut daemon = daemon!("account_busy").limit("idle_after", "off").start();
    let id = opened(&daemon);
    let gate = daemon.path("gate");
    let turn = daemon.post(&id, &format!("FAKE:wait {}", gate.display()));
    daemon.wait_state(&id, SessionState::Working);
    let told = restart(&daemon, &id);
    assert!(
        told.starts_with("waits until it is at rest, held by turn ("),
        "{told}"
    );
    let explained = daemon.run(&["explain", &id]);
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(
        explained.contains("with another environment, once it is at rest"),
        "{explained}"
    );
    // The next daemon knows of it, too.
    daemon.kill9();
    daemon.restart();
    let next = daemon.post(&id, "FAKE:env ACCOUNT_KEY");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(daemon.settled(turn).state, MessageState::Answered);
    let answer = daemon.settled(next).answer;
    assert!(answer.contains(&fingerprint(NEW)), "{answer}");
    assert!(
        daemon
            .report(&id)
            .awake
            .expect("it is awake")
            .account_change
            .is_none()
    );
    daemon.fake().assert_never_two();
}

/// A stop while it waits cancels the restart; the environment is the new one nevertheless.
#[test]
fn a_stop_cancels_a_restart_that_waits() {
    let daemon = daemon!("account_stop").limit("idle_after", "off").start();
    let id = opened(&daemon);
    daemon.post(&id, "FAKE:slow 600");
    daemon.wait_state(&id, SessionState::Working);
    restart(&daemon, &id);
    daemon.get(async |client| client.stop(&id).await);
    daemon.wait_state(&id, SessionState::Stopped);
    let launched = |event: &SessionEvent| matches!(event, SessionEvent::Launched { .. });
    assert_eq!(daemon.count(&id, launched), 1);
    assert!(account(&daemon, &id).contains(&fingerprint(NEW)));
}

/// A session that sleeps is started with the new account; one whose agent cannot resume is left as
/// it is, environment and all.
#[test]
fn a_restart_starts_what_sleeps_and_refuses_what_would_be_lost() {
    let daemon = daemon!("account_sleeps").start();
    let id = opened(&daemon);
    daemon.wait_state(&id, SessionState::Released);
    assert_eq!(restart(&daemon, &id), "restarted, conversation resumed");
    assert!(account(&daemon, &id).contains(&fingerprint(NEW)));

    let raw = daemon.open("raw");
    daemon.send(&raw, "hello");
    let agent = daemon.agent(&raw);
    let wanted = RestartSession::default();
    let code = daemon.refused(async |client| client.restart_session(&raw, &wanted).await);
    assert_eq!(code, "cannot_resume");
    assert!(agent.is_alive());
    let bad = RestartSession {
        env: [("A=B".to_owned(), "secret".to_owned())].into(),
    };
    let error = daemon.ask(async |client| client.restart_session(&id, &bad).await);
    let Err(ClientError::Problem(problem)) = error else {
        panic!("it was granted: {error:?}");
    };
    assert!(
        problem.code == "invalid" && !problem.to_string().contains("secret"),
        "{problem}"
    );
}

/// The agent dies while the change waits: it is woken at once, with the new account.
#[test]
fn a_crash_meanwhile_brings_the_new_account() {
    let daemon = daemon!("account_crash").limit("idle_after", "off").start();
    let id = opened(&daemon);
    daemon.post(&id, "FAKE:slow 600");
    daemon.wait_state(&id, SessionState::Working);
    restart(&daemon, &id);
    daemon.agent(&id).signal(Signal::SIGKILL);
    let ready = |event: &SessionEvent| matches!(event, SessionEvent::Ready { resumed: true, .. });
    wait_until("another agent", CEILING, || {
        (daemon.count(&id, ready) == 1).then_some(())
    });
    assert!(account(&daemon, &id).contains(&fingerprint(NEW)));
}
