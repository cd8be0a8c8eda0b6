//! A client of a session's socket that subscribes and reads nothing: a handshake and two calls,
//! byte by byte.
//!
//! Fed by: tests and benches. Invariant: whatever it is told stays unread unless its owner reads.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Its calls: a greeting, and a subscription to all that follows.
const CALLS: [&str; 2] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"hello","params":{"version":1}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"subscribe"}"#,
];
/// The head of a masked frame of text (RFC 6455, 5.2); a mask of zeros leaves it readable.
const TEXT: u8 = 0x81;
const MASKED: u8 = 0x80;

/// Connects to `socket` and subscribes at `path`. The answers are not waited for.
///
/// # Panics
/// When nobody listens.
#[must_use]
pub fn subscribe(socket: &Path, path: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("somebody listens");
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    for call in CALLS {
        let length = u8::try_from(call.len()).expect("short");
        let mut frame = vec![TEXT, MASKED | length, 0, 0, 0, 0];
        frame.extend(call.as_bytes());
        stream.write_all(&frame).expect("it reads");
    }
    stream
}
