//! What comes through an agent's pipes, and how badly: none of it hurts its session or another's.

use drowse_messages::{MessageState, SessionEvent, SessionState};
use drowse_tests::{TestDaemon, daemon};

/// An agent that misbehaves beside one that must not notice.
fn beside(test: &'static str, check: impl FnOnce(&TestDaemon, &str)) {
    let daemon = daemon!(test).limit("idle_after", "1h").start();
    let (id, neighbour) = (daemon.open("fake"), daemon.open("fake"));
    daemon.say(&neighbour, "FAKE:say one");
    let working = daemon.post(&neighbour, "FAKE:slow 0.5\nFAKE:say two");
    check(&daemon, &id);
    assert_eq!(
        daemon.settled(working).answer,
        "SAID two (user turns seen: 2)"
    );
    let said = daemon.say(&id, "FAKE:say still");
    assert!(said.starts_with("SAID still"), "{said}");
    assert_eq!(
        daemon.say(&neighbour, "FAKE:say three"),
        "SAID three (user turns seen: 3)"
    );
    let pid = daemon.report(&neighbour).incarnation;
    assert_eq!(pid.0, 1, "the neighbour was started again");
}

fn notices(daemon: &TestDaemon, id: &str) -> Vec<String> {
    let events = daemon.log(id).into_iter().map(|event| event.what);
    let notice = |event| {
        let SessionEvent::Notice { text } = event else {
            return None;
        };
        Some(text)
    };
    events.filter_map(notice).collect()
}

/// D38: lines of 300 KB, 10 MB and 20 MiB are taken whole.
#[test]
fn long_lines_are_taken_whole() {
    beside("long", |daemon, id| {
        for bytes in [300_000, 10_000_000, 20 * 1024 * 1024] {
            let said = daemon.say(id, &format!("FAKE:line {bytes}\nFAKE:say after"));
            assert!(said.contains("SAID after"), "{bytes}: {} bytes", said.len());
        }
        assert!(notices(daemon, id).is_empty());
        assert_eq!(daemon.report(id).incarnation.0, 1);
    });
}

/// D38: a line of 40 MiB is dropped with a notice, and framing goes on behind it.
#[test]
fn a_line_beyond_the_bound_is_dropped_with_a_notice() {
    beside("flood", |daemon, id| {
        let said = daemon.say(
            id,
            &format!("FAKE:flood {}\nFAKE:say after", 40 * 1024 * 1024),
        );
        assert_eq!(said, "SAID after (user turns seen: 1)");
        let notices = notices(daemon, id);
        assert!(
            notices.iter().any(|text| text.contains("41943040")),
            "{notices:?}"
        );
    });
}

/// D39: a text that arrives byte by byte, with characters of several bytes and U+2028 in it, and a
/// line that is no UTF-8.
#[test]
fn split_and_broken_characters_disturb_nothing() {
    beside("bytes", |daemon, id| {
        let text = "漢字 🦀 \u{2028} fin";
        let mut stream = daemon.get(async |client| {
            client
                .send_streaming(
                    id,
                    &format!("FAKE:bytewise {text}\nFAKE:invalid-utf8"),
                    None,
                )
                .await
        });
        let mut output = String::new();
        while let Some(event) = daemon.get(async |_| stream.next().await) {
            if let SessionEvent::Output { text, .. } = &event.what {
                output.push_str(text);
            }
            if let SessionEvent::MessageChanged { state, .. } = event.what
                && state.is_final()
            {
                assert_eq!(state, MessageState::Answered);
                break;
            }
        }
        assert!(output.contains(text), "{output:?}");
    });
}

/// D39: the last line of an agent that exits without a newline is heard.
#[test]
fn a_last_line_without_a_newline_is_heard() {
    beside("newline", |daemon, id| {
        let said = daemon.say(id, "FAKE:say last\nFAKE:no-newline-exit");
        assert!(said.contains("SAID last"), "{said}");
        daemon.wait_report(id, "asleep", |report| !report.state.is_awake());
    });
}

/// D36: a grandchild that holds stdout does not keep an agent's end from being seen.
#[test]
fn a_grandchild_that_holds_stdout_does_not_hide_the_end() {
    beside("stdout", |daemon, id| {
        daemon.say(id, "FAKE:spawn holds-stdout\nFAKE:say before");
        let message = daemon.send(id, "FAKE:crash");
        assert_eq!(message.state, MessageState::Unknown);
        daemon.wait_state(id, SessionState::Interrupted);
        daemon.wait_gone(id);
    });
}

/// D37: a megabyte on stderr before the answer.
#[test]
fn a_flood_on_stderr_does_not_stop_the_answer() {
    beside("stderr", |daemon, id| {
        let said = daemon.say(id, "FAKE:stderr 1048576\nFAKE:say answer");
        assert_eq!(said, "SAID answer (user turns seen: 1)");
    });
}

/// D40: an agent that closes its stdin, and one that dies, while 2 MiB are on their way to it. Each
/// message has one fate: heard once and answered, or unknown, or kept for the next process.
#[test]
fn an_agent_that_stops_reading_costs_no_message_twice() {
    beside("epipe", |daemon, id| {
        let long = |directive: &str| format!("{directive}\n{}", "x".repeat(2 * 1024 * 1024));
        for round in 0..2 {
            let closing = daemon.post(id, "FAKE:close-stdin\nFAKE:say closed");
            let next = daemon.post(id, &long(&format!("FAKE:say long{round}")));
            assert_eq!(daemon.settled(closing).state, MessageState::Answered);
            let next = daemon.settled(next);
            let heard = daemon.fake().turns();
            let wanted = format!("FAKE:say long{round}\n");
            let times = heard
                .iter()
                .filter(|turn| turn.starts_with(&wanted))
                .count();
            if next.state == MessageState::Answered {
                assert_eq!(times, 1);
            } else {
                assert!(
                    next.state == MessageState::Unknown && times <= 1,
                    "{next:?}"
                );
            }
        }
    });
}
