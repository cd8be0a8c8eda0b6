//! A daemon that says exactly what a test tells it to.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Answers `/readyz` with 200 and everything else with `answer`, for ever.
pub(crate) fn serve(dir: &Path, answer: impl Fn(&str) -> String + Send + 'static) {
    let listener = UnixListener::bind(dir.join("drowse.sock")).expect("a free socket");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let request = read_request(&mut stream);
            let answer = if request.starts_with("GET /readyz ") {
                body("200 OK", "text/plain", "ok")
            } else {
                answer(&request)
            };
            // A reader that left early is part of some tests.
            drop(stream.write_all(answer.as_bytes()));
        }
    });
}

fn read_request(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().expect("a number"));
            if body.len() >= length {
                return text;
            }
        }
        let count = stream.read(&mut piece).expect("a request");
        if count == 0 {
            return text;
        }
        bytes.extend_from_slice(&piece[..count]);
    }
}

/// A whole answer.
pub(crate) fn body(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// A refusal.
pub(crate) fn problem(status: u16, code: &str, class: &str) -> String {
    let json = format!(
        r#"{{"status":{status},"code":"{code}","class":"{class}","detail":"because","title":"t"}}"#
    );
    body(
        &format!("{status} Problem"),
        "application/problem+json",
        &json,
    )
}

/// The events of session 7, as one finished stream.
pub(crate) fn stream(events: &[&str]) -> String {
    let lines: Vec<String> = events
        .iter()
        .map(|event| {
            format!("data: {{\"seq\":1,\"at\":0,\"session\":\"000000000007\",{event}}}\n\n")
        })
        .collect();
    body("200 OK", "text/event-stream", &lines.concat())
}
