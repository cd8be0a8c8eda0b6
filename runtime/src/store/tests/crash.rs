//! SIGKILL at any moment: what was acknowledged is there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::*;

/// Tells the child which folder to write in.
const FOLDER: &str = "DROWSE_STORE_TEST_FOLDER";

/// The child's part, and nothing without its variable: sends 1,000 messages, says which were
/// acknowledged, and saves in between.
#[test]
fn child_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let store = open(folder.as_ref());
    let mut out = std::io::stdout();
    for turn in 0..1_000 {
        let session = id(turn % 10);
        if turn < 10 {
            wait(store.open(profile(turn, &format!("s{turn}")))).unwrap();
        }
        let sent = wait(store.enqueue(session, message(&turn.to_string()))).unwrap();
        store.save(session, progress(SessionState::Working));
        writeln!(out, "acknowledged {} {turn}", sent.message).unwrap();
        out.flush().unwrap();
    }
}

/// D42, behaviour 80: killed during 1,000 saves, at several points: every acknowledged message is
/// there, nothing is damaged, and the next daemon goes on.
#[test]
fn every_acknowledged_message_survives_a_kill() {
    for point in [1, 57, 300, 731] {
        let folder = folder();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "store::tests::crash::child_that_is_killed",
            ])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = Vec::new();
        for line in lines.map_while(Result::ok) {
            // The first line may follow what the test program says before its tests.
            let Some((_, rest)) = line.split_once("acknowledged ") else {
                continue;
            };
            let (message, text) = rest.split_once(' ').unwrap();
            acknowledged.push((MessageId(message.parse().unwrap()), text.to_owned()));
            if acknowledged.len() == point {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success(), "it was killed");
        assert!(
            acknowledged.len() >= point,
            "{} of {point}",
            acknowledged.len()
        );
        let store = open(folder.path());
        assert_eq!(store.warning(), None);
        for (message, text) in acknowledged {
            assert_eq!(wait(store.message(message)).unwrap().text, text);
        }
        let found = wait(store.recover()).unwrap();
        assert!(!found.queued.is_empty());
        wait(store.enqueue(id(0), message("later"))).unwrap();
    }
}
