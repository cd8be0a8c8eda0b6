//! Children, starts, ends and output of the fake agent, whatever its dialect; the tree guard.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;

use drowse_tests::fake::{Dialect, fingerprint};
use drowse_tests::process::descendants;
use drowse_tests::{CEILING, PipedAgent, ProcIdentity, TreeGuard, fake_agent, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{SESSION, ask, claude, is, user};

#[test]
fn every_kind_of_child_names_itself_and_outlives_the_agent() {
    let guard = TreeGuard::new("children");
    let fake = fake_agent!();
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    let roles = "plain launcher mid setsid double-fork ignore-term holds-stdout warm server:0";
    for role in roles.split(' ') {
        let said = ask(&mut agent, &format!("FAKE:spawn {role}"));
        assert!(said.starts_with("SPAWNED "), "{said}");
    }
    // Launcher and mid are two processes each.
    assert_eq!(fake.wait_events("child", 11).len(), 11);
    assert!(!descendants(agent.identity().pid).is_empty());
    agent.kill();
    let children: Vec<ProcIdentity> = fake
        .everyone()
        .into_iter()
        .filter(|who| *who != agent.identity())
        .collect();
    assert!(children.iter().all(ProcIdentity::is_alive));
    let port = fake
        .events("child")
        .iter()
        .filter_map(|c| c["port"].as_u64())
        .next()
        .unwrap();
    assert!(TcpListener::bind(("127.0.0.1", u16::try_from(port).unwrap())).is_err());
    for child in &children {
        child.signal(Signal::SIGKILL);
        child.wait_gone();
    }
    guard.wait_empty(CEILING);
}

#[test]
fn a_child_may_fork_when_it_is_told_to_end() {
    let guard = TreeGuard::new("term_forks");
    let fake = fake_agent!();
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    ask(&mut agent, "FAKE:spawn term-forks");
    let forker = fake.wait_events("child", 1)[0]["who"]
        .as_str()
        .and_then(ProcIdentity::parse);
    let forker = forker.unwrap();
    forker.signal(Signal::SIGTERM);
    let late = fake.wait_events("child", 2)[1]["who"]
        .as_str()
        .and_then(ProcIdentity::parse);
    forker.wait_gone();
    assert!(late.unwrap().is_alive());
    late.unwrap().signal(Signal::SIGKILL);
    late.unwrap().wait_gone();
}

#[test]
fn behaviour_at_start_and_end() {
    let guard = TreeGuard::new("behaviour");
    let fake = fake_agent!();
    fake.behave(
        &json!({ "fail_starts": 2, "fail_text": "network down", "sidecars": 3,
        "ignore_term": true, "flush_after_eof_ms": 50, "exclusive": true }),
    );
    for _ in 0..2 {
        let mut failing = claude(&fake, &guard, &["--session-id", SESSION]);
        assert_eq!(failing.wait_exit().code(), Some(1));
        failing.wait_stderr("network down");
    }
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    assert_eq!(ask(&mut agent, "FAKE:say x"), "SAID x (user turns seen: 1)");
    assert_eq!(fake.events("child").len(), 3);
    let conversation = fake.home().join(format!("sessions/{SESSION}.jsonl"));
    assert!(!conversation.exists(), "held back until the end");
    let mut second = claude(&fake, &guard, &["--resume", SESSION]);
    assert_eq!(second.wait_exit().code(), Some(1));
    second.wait_stderr("in use by");
    agent.identity().signal(Signal::SIGTERM);
    fake.wait_events("term", 1);
    agent.close_stdin();
    assert_eq!(agent.wait_exit().code(), Some(0));
    assert_eq!(fs::read_to_string(conversation).unwrap().lines().count(), 2);
    for child in fake.everyone() {
        child.signal(Signal::SIGKILL);
    }
    guard.wait_empty(CEILING);
}

#[test]
fn terminate_tells_of_stopped_tasks_and_gives_143() {
    let guard = TreeGuard::new("terminate");
    let fake = fake_agent!();
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    ask(&mut agent, "FAKE:bg 600\nFAKE:ambient");
    agent.identity().signal(Signal::SIGTERM);
    let stopped = agent.wait_for("the notice", |line| line["subtype"] == "task_notification");
    assert_eq!(stopped["status"], "stopped");
    assert_eq!(agent.wait_exit().code(), Some(143));
}

#[test]
fn session_id_drifts_when_asked_to() {
    let guard = TreeGuard::new("drift");
    let fake = fake_agent!();
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    ask(&mut agent, "FAKE:say one");
    agent.kill();
    fake.behave(&json!({ "id_drift": true }));
    let mut id = SESSION.to_owned();
    for round in 2..5 {
        let mut agent = claude(&fake, &guard, &["--resume", &id]);
        agent.send(&user("FAKE:say on"));
        let result = agent.wait_for("the result", is("result"));
        assert_eq!(
            result["result"],
            format!("SAID on (user turns seen: {round})")
        );
        let next = result["session_id"].as_str().unwrap().to_owned();
        assert_ne!(next, id);
        id = next;
        agent.kill();
    }
    assert_eq!(fake.events("start").len(), 4);
    fake.assert_never_two();
}

#[test]
fn odd_output_is_what_it_says() {
    let guard = TreeGuard::new("odd");
    let fake = fake_agent!();
    let args = ["--session-id", SESSION, "--include-partial-messages"];
    let mut agent = claude(&fake, &guard, &args);
    agent.send(&user(
        "FAKE:stderr 100000\nFAKE:line 300000\nFAKE:bytewise 日本🦀\u{2028}.\nFAKE:invalid-utf8",
    ));
    let mut sizes = Vec::new();
    let mut bytewise = false;
    let mut invalid = false;
    while let Some(line) = agent.next_bytes() {
        sizes.push(line.len());
        match std::str::from_utf8(&line) {
            Ok(text) => bytewise |= text.contains("日本🦀\u{2028}."),
            Err(_) => invalid = true,
        }
        if line.windows(15).any(|part| part == b"\"type\":\"result\"") {
            break;
        }
    }
    assert!(sizes.contains(&300_000) && bytewise && invalid, "{sizes:?}");
    agent.send(&user("FAKE:no-newline-exit\nFAKE:say last"));
    let result = agent.wait_for("the last result", is("result"));
    assert_eq!(result["result"], "SAID last (user turns seen: 2)");
    assert_eq!(agent.wait_exit().code(), Some(0));
}

#[test]
fn surroundings_are_told_without_values() {
    let guard = TreeGuard::new("surroundings");
    let fake = fake_agent!();
    let mut command = fake.command(Dialect::Claude, &["--session-id", SESSION, "--flag"]);
    command.env("TOKEN", "s3cr3t");
    let mut agent = PipedAgent::spawn(command, &guard);
    let said = ask(
        &mut agent,
        "FAKE:env TOKEN\nFAKE:env NOPE_X\nFAKE:cwd\nFAKE:argv",
    );
    assert!(
        said.contains(&format!("ENV TOKEN set {}", fingerprint("s3cr3t"))),
        "{said}"
    );
    assert!(
        said.contains("ENV NOPE_X unset") && said.contains("--flag"),
        "{said}"
    );
    assert!(!said.contains("s3cr3t"));
    agent.kill();
}

#[test]
fn a_crash_in_mid_turn_keeps_the_message() {
    let guard = TreeGuard::new("crash");
    let fake = fake_agent!();
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    agent.send(&user("FAKE:crash"));
    assert_eq!(agent.wait_exit().signal(), Some(9));
    let mut agent = claude(&fake, &guard, &["--resume", SESSION]);
    assert_eq!(
        ask(&mut agent, "FAKE:say on"),
        "SAID on (user turns seen: 2)"
    );
}

#[test]
#[should_panic(expected = "left processes behind")]
fn the_guard_fails_a_test_that_leaves_a_process() {
    let fake = fake_agent!();
    let guard = TreeGuard::new("guard");
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    ask(&mut agent, "FAKE:spawn setsid");
    agent.kill();
    drop(agent);
    drop(guard);
}

#[test]
fn an_agent_may_hear_nothing_and_heed_nothing() {
    let guard = TreeGuard::new("deaf");
    let fake = fake_agent!();
    fake.behave(&json!({ "never_ready": true, "ignore_eof": true, "ignore_term": true }));
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    agent.send(&user("FAKE:say x"));
    agent.close_stdin();
    fake.wait_events("eof", 1);
    agent.identity().signal(Signal::SIGTERM);
    fake.wait_events("term", 1);
    assert!(agent.identity().is_alive() && fake.turns().is_empty());
    agent.kill();
}

#[test]
fn a_resume_may_fail_for_a_while_or_for_good() {
    let guard = TreeGuard::new("resume_fails");
    let fake = fake_agent!();
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    ask(&mut agent, "FAKE:say one");
    agent.kill();
    fake.behave(&json!({ "fail_resumes": 1, "die_slowly_ms": 20, "start_delay_ms": 20 }));
    let mut failing = claude(&fake, &guard, &["--resume", SESSION]);
    assert_eq!(failing.wait_exit().code(), Some(1));
    let mut agent = claude(&fake, &guard, &["--resume", SESSION]);
    assert_eq!(
        ask(&mut agent, "FAKE:say two"),
        "SAID two (user turns seen: 2)"
    );
    agent.close_stdin();
    assert_eq!(agent.wait_exit().code(), Some(0));
    fake.behave(&json!({ "forget": true }));
    let mut forgetful = claude(&fake, &guard, &["--resume", SESSION]);
    let result = forgetful.wait_for("the error", is("result"));
    assert!(
        result["errors"][0]
            .as_str()
            .unwrap()
            .contains("No conversation found")
    );
}

#[test]
fn a_misspelt_behaviour_is_refused() {
    let guard = TreeGuard::new("misspelt");
    let fake = fake_agent!();
    fake.behave(&json!({ "ingore_term": true }));
    let mut agent = claude(&fake, &guard, &[]);
    assert_eq!(agent.wait_exit().code(), Some(64));
    agent.wait_stderr("ingore_term");
}

#[test]
fn a_closed_stdin_gives_the_writer_a_broken_pipe() {
    let guard = TreeGuard::new("closed_stdin");
    let fake = fake_agent!();
    let mut agent = claude(&fake, &guard, &["--session-id", SESSION]);
    ask(&mut agent, "FAKE:close-stdin\nFAKE:say deaf");
    wait_until("a broken pipe", CEILING, || agent.try_send_raw("x").err());
    assert!(agent.identity().is_alive());
    agent.kill();
}
