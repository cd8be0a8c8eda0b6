//! Starts: what an agent is started with, and what becomes of messages when it does not start.

use std::collections::BTreeSet;
use std::fs;

use drowse_messages::{MessageState, SessionEvent, SessionState};
use drowse_tests::daemon::MESSAGE_CEILING;
use drowse_tests::fake::fingerprint;
use drowse_tests::{TestDaemon, daemon, wait_until};
use serde_json::Value;

fn failed_starts(daemon: &TestDaemon, id: &str) -> Vec<(String, Option<u64>)> {
    let events = daemon.log(id).into_iter().map(|event| event.what);
    let failed = |event| {
        let SessionEvent::StartFailed {
            error, retry_in_ms, ..
        } = event
        else {
            return None;
        };
        Some((error, retry_in_ms))
    };
    events.filter_map(failed).collect()
}

/// Behaviour 80, D32: two starts fail, the third works; three messages are each delivered once, in
/// their order.
#[test]
fn messages_survive_starts_that_fail() {
    let daemon = daemon!("twice").start();
    let id = daemon.open_behaving("fake", &[("fail_starts", "2")]);
    let sent = ["a", "b", "c"].map(|text| daemon.post(&id, &format!("FAKE:say {text}")));
    for (message, text) in sent.into_iter().zip(["a", "b", "c"]) {
        let message = daemon.settled(message);
        assert_eq!(message.state, MessageState::Answered, "{message:?}");
        assert!(
            message.answer.starts_with(&format!("SAID {text} ")),
            "{message:?}"
        );
    }
    assert_eq!(
        daemon.fake().turns(),
        ["FAKE:say a", "FAKE:say b", "FAKE:say c"]
    );
    let failed = failed_starts(&daemon, &id);
    assert_eq!(failed.len(), 2);
    let pauses: Vec<u64> = failed.iter().filter_map(|(_, pause)| *pause).collect();
    assert!(
        pauses.len() == 2 && pauses[1] > pauses[0],
        "pauses grow: {pauses:?}"
    );
}

/// D52: an agent that never starts is given up, with its last words and its message kept; a wake
/// tries again.
#[test]
fn an_agent_that_never_starts_is_given_up_and_can_be_woken() {
    let daemon = daemon!("never").start();
    // An agent that ends at once, so that only the pauses take time.
    let id = daemon.open_behaving(
        "fake",
        &[("fail_text", "no key found"), ("fail_starts", "5")],
    );
    let message = daemon.post(&id, "FAKE:say kept");
    let report = wait_until("failing", MESSAGE_CEILING, || {
        Some(daemon.report(&id)).filter(|report| report.state == SessionState::Failing)
    });
    let error = report.last_error.expect("it says why");
    assert!(
        error.contains("no key found") && error.contains("exit 1"),
        "{error}"
    );
    assert_eq!(report.queued, 1);
    assert_eq!(daemon.message(message).state, MessageState::Queued);
    let pauses: Vec<_> = failed_starts(&daemon, &id)
        .into_iter()
        .map(|(_, pause)| pause)
        .collect();
    assert!(
        pauses[..4].is_sorted() && pauses.len() == 5 && pauses[4].is_none(),
        "{pauses:?}"
    );
    daemon.get(async |client| client.wake(&id, false).await);
    assert_eq!(
        daemon.settled(message).answer,
        "SAID kept (user turns seen: 1)"
    );
}

/// D21: an agent that never says that it is ready is ended after `start_limit`.
#[test]
fn an_agent_that_never_gets_ready_is_ended() {
    let daemon = daemon!("ready").limit("start_limit", "300ms").start();
    let id = daemon.open_behaving("fake", &[("never_ready", "1")]);
    let message = daemon.post(&id, "FAKE:say x");
    let is_failed = |event: &SessionEvent| matches!(event, SessionEvent::StartFailed { .. });
    daemon.wait_event(&id, "failed", 1, is_failed);
    let (error, retry) = failed_starts(&daemon, &id).remove(0);
    assert!(
        error.contains("start_limit") && retry.is_some(),
        "{error} {retry:?}"
    );
    assert_eq!(daemon.message(message).state, MessageState::Queued);
    daemon.get(async |client| client.stop(&id).await);
    assert_eq!(daemon.settled(message).state, MessageState::Cancelled);
    daemon.wait_gone(&id);
}

/// Behaviour 82, D26: a folder that is gone is named, the message kept, and delivered once the
/// folder is back; the daemon itself sits in no folder of a session.
#[test]
fn a_missing_folder_is_named_and_the_message_waits_for_it() {
    let daemon = daemon!("folder").start();
    let mut new = daemon.new_session("fake");
    new.cwd = daemon.work().join("tree");
    fs::create_dir(&new.cwd).unwrap();
    let id = daemon.open_as(&new);
    daemon.say(&id, "FAKE:say one");
    daemon.wait_state(&id, SessionState::Released);
    fs::remove_dir(&new.cwd).unwrap();
    let message = daemon.post(&id, "FAKE:say two");
    let report = daemon.wait_state(&id, SessionState::Failing);
    let error = report.last_error.expect("it says why");
    assert!(error.contains(new.cwd.to_str().unwrap()), "{error}");
    assert_eq!(daemon.message(message).state, MessageState::Queued);
    fs::create_dir(&new.cwd).unwrap();
    daemon.get(async |client| client.wake(&id, false).await);
    assert_eq!(
        daemon.settled(message).answer,
        "SAID two (user turns seen: 2)"
    );
    let own = fs::read_link(format!("/proc/{}/cwd", daemon.identity().pid)).unwrap();
    assert_eq!(own.to_str(), Some("/"));
}

/// Behaviour 80: a program that is missing is refused when the session is opened; one that is gone
/// later is named, and the message kept until it is back.
#[test]
fn a_missing_program_is_named() {
    let mut setup = daemon!("program");
    for (agent, program) in [("gone", "/nowhere/agent"), ("nopath", "no-such-agent")] {
        let command = format!("protocol = \"claude\"\ncommand = [\"{program}\"]\n");
        setup = setup.config(&format!("[agents.{agent}]\n{command}"));
    }
    let daemon = setup.start();
    for agent in ["gone", "nopath"] {
        let new = daemon.new_session(agent);
        assert_eq!(
            daemon.refused(async |client| client.open(&new).await),
            "invalid",
            "{agent}"
        );
    }
    let new = daemon.new_session("unheard-of");
    assert_eq!(
        daemon.refused(async |client| client.open(&new).await),
        "unknown_agent"
    );

    let program = daemon.path("agent");
    let config = format!("[agents.link]\nprotocol = \"claude\"\ncommand = [{program:?}]\n");
    std::os::unix::fs::symlink(daemon.fake().program(), &program).unwrap();
    daemon.add_config(&config);
    let id = daemon.open("link");
    daemon.say(&id, "FAKE:say one");
    daemon.wait_state(&id, SessionState::Released);
    fs::remove_file(&program).unwrap();
    let message = daemon.post(&id, "FAKE:say two");
    let report = daemon.wait_state(&id, SessionState::Failing);
    let error = report.last_error.expect("it says why");
    assert!(error.contains(program.to_str().unwrap()), "{error}");
    assert_eq!(daemon.message(message).state, MessageState::Queued);
    std::os::unix::fs::symlink(daemon.fake().program(), &program).unwrap();
    daemon.get(async |client| client.wake(&id, false).await);
    assert_eq!(
        daemon.settled(message).answer,
        "SAID two (user turns seen: 2)"
    );
}

/// Behaviour 70, D27, D53: arguments, environment and folder are the same at each start, but for
/// the resume part, and secrets are nowhere on disk in clear.
#[test]
fn every_start_has_the_same_arguments_environment_and_folder() {
    let mut daemon = daemon!("recipe").start();
    let mut new = daemon.new_session("fake");
    new.cwd = daemon.work().join("sub");
    fs::create_dir(&new.cwd).unwrap();
    let secret = "s3cr3t-s3cr3t-s3cr3t";
    new.args = ["--model", "tiny", "--api-key", secret]
        .map(String::from)
        .into();
    new.env.insert("MY_TOKEN".into(), secret.into());
    new.env.insert("MY_MODE".into(), "plan".into());
    let id = daemon.open_as(&new);
    let ask = "FAKE:env MY_TOKEN\nFAKE:env MY_MODE\nFAKE:cwd";
    let first = daemon.say(&id, ask);
    assert!(
        first.contains(&format!("ENV MY_TOKEN set {}", fingerprint(secret))),
        "{first}"
    );
    daemon.wait_state(&id, SessionState::Released);
    let second = daemon.say(&id, ask);
    daemon.wait_state(&id, SessionState::Released);
    assert!(daemon.terminate().success());
    daemon.restart();
    let third = daemon.say(&id, ask);
    let bare = |answer: &str| answer.split(" (user").next().map(str::to_owned);
    assert_eq!(bare(&first), bare(&second));
    assert_eq!(bare(&first), bare(&third));

    let starts = daemon.fake().events("start");
    let words = |start: &Value| -> BTreeSet<String> {
        let argv = start["argv"].as_array().into_iter().flatten();
        argv.filter_map(|word| word.as_str().map(str::to_owned))
            .collect()
    };
    let session = starts[0]["session"].as_str().unwrap().to_owned();
    let without: BTreeSet<String> = ["--session-id", "--resume", &session]
        .map(String::from)
        .into();
    let common: Vec<BTreeSet<String>> = starts.iter().map(|s| &words(s) - &without).collect();
    assert!(common.iter().all(|argv| *argv == common[0]), "{common:?}");
    assert!(words(&starts[0]).contains("--session-id") && !words(&starts[0]).contains("--resume"));
    assert!(words(&starts[2]).contains("--resume") && !words(&starts[2]).contains("--session-id"));
    assert!(starts.iter().all(|start| start["cwd"] == starts[0]["cwd"]));

    for entry in fs::read_dir(daemon.state_dir()).unwrap().flatten() {
        if let Ok(bytes) = fs::read(entry.path()) {
            let found = bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "the secret is in {}", entry.path().display());
        }
    }
    let report = serde_json::to_string(&daemon.report(&id)).unwrap();
    assert!(!report.contains(secret) && !daemon.log_text().contains(secret));
}

/// D50: an agent inherits no descriptor of the daemon's beyond its three.
#[test]
fn an_agent_inherits_no_descriptors() {
    let daemon = daemon!("fds").limit("idle_after", "1h").start();
    let ids: Vec<String> = (0..3).map(|_| daemon.open("fake")).collect();
    for id in &ids {
        daemon.say(id, "FAKE:say hello");
    }
    for id in &ids {
        let agent = daemon.agent(id).pid;
        for fd in fs::read_dir(format!("/proc/{agent}/fd")).unwrap().flatten() {
            let target = fs::read_link(fd.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            let foreign = target.contains("drowse.db") || target.contains("socket");
            assert!(!foreign, "an agent has {target}");
        }
    }
}
