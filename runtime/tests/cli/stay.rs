//! The verbs that stay: `wait` and `attach`, with a daemon that says what a test tells it to and
//! ends every stream at once.

use std::io::Write;
use std::process::{Output, Stdio};

use super::server::{body, problem, serve, stream};
use super::{PIECE, QUEUED, REPORT, drowse, folder, run, text};

const ASKED: &str =
    r#""event":"asked","ask":{"id":"a","kind":"approval","title":"rm","detail":""}"#;

/// What was asked and settled before anybody could look is still what was waited for.
#[test]
fn a_wait_is_over_by_what_it_hears() {
    let dir = folder();
    serve(dir.path(), |request| {
        if request.starts_with("GET /v1/events?session=n ") {
            stream(&[ASKED])
        } else {
            body("200 OK", "application/json", REPORT)
        }
    });
    let output = run(dir.path(), "wait n --for approval");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "waiting\n");
}

/// Streams that break off do not end a wait, and its time does: with 124, and an object that says
/// how things stood.
#[test]
fn a_wait_ends_with_its_time() {
    let dir = folder();
    serve(dir.path(), |request| {
        if request.starts_with("GET /v1/events") {
            stream(&[])
        } else {
            body("200 OK", "application/json", REPORT)
        }
    });
    let output = run(dir.path(), "wait n --for released --timeout 300ms --json");
    assert_eq!(output.status.code(), Some(124), "{}", text(&output.stderr));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["outcome"], "timed_out");
    assert_eq!(
        (&object["for"], &object["state"]),
        (&"released".into(), &"waiting".into())
    );
    let told = text(&output.stderr);
    assert!(
        told.starts_with("drowse: not released: it is waiting after "),
        "{told}"
    );
}

/// A session that is gone when the stream is asked for again was removed.
#[test]
fn a_wait_for_what_was_removed_is_over() {
    for (what, code) in [("idle", 1), ("ended", 0)] {
        let dir = folder();
        serve(dir.path(), |request| {
            if request.starts_with("GET /v1/events?session=n ") {
                stream(&[])
            } else if request.starts_with("GET /v1/events") {
                problem(404, "no_such_session", "terminal_session")
            } else {
                body("200 OK", "application/json", REPORT)
            }
        });
        let output = run(dir.path(), &format!("wait n --for {what}"));
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    }
}

fn attach(answer: impl Fn(&str) -> String + Send + 'static, lines: &str) -> Output {
    let dir = folder();
    serve(dir.path(), answer);
    let mut command = drowse(dir.path(), "attach n");
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(lines.as_bytes()).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn sent(number: u64) -> String {
    let sent = format!(r#"{{"message":{number},"duplicate":false,"session":"000000000007"}}"#);
    body("202 Accepted", "application/json", &sent)
}

/// The same words as the piece: whichever of the two is heard in time is what is shown.
const WHOLE: &str = r#""event":"message_changed","message":3,"state":"answered","text":"fixed it""#;

/// D33: however often a stream is begun again, an answer is shown once.
#[test]
fn a_stream_that_repeats_itself_shows_an_answer_once() {
    let answer = |request: &str| {
        if request.starts_with("GET /v1/events") {
            stream(&[QUEUED, PIECE, WHOLE])
        } else if request.starts_with("POST ") {
            sent(3)
        } else {
            body("200 OK", "application/json", REPORT)
        }
    };
    let output = attach(answer, "go\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "fixed it\n");
}

/// What is refused ends a pipe with the refusal's code, and what follows it is not said: it may
/// mean something else.
#[test]
fn a_refused_line_is_the_last() {
    let answer = |request: &str| {
        if request.starts_with("GET /v1/events") {
            stream(&[])
        } else if request.starts_with("POST ") {
            assert!(!request.contains("second"), "{request}");
            problem(429, "inbox_full", "retryable")
        } else {
            body("200 OK", "application/json", REPORT)
        }
    };
    let output = attach(answer, "first\nsecond\n");
    assert_eq!(output.status.code(), Some(75));
    assert_eq!(text(&output.stderr), "drowse: not sent: because\n");
}
