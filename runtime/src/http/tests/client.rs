//! A client that says exactly what a test wants, and waits ten seconds at most.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

trait Stream: Read + Write + Send {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

/// One connection.
pub(super) struct Client(BufReader<Box<dyn Stream>>);

/// One whole answer.
pub(super) struct Reply {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

/// One frame of an event stream.
#[derive(Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) id: Option<u64>,
    pub(super) event: String,
    pub(super) json: serde_json::Value,
}

impl Client {
    pub(super) fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(Box::new(stream)))
    }

    pub(super) fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(Box::new(stream)))
    }

    /// Writes bytes as they are. The other side may have closed already.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let _closed_already = self.0.get_mut().write_all(bytes);
    }

    /// One request with `Host: localhost` unless the headers name another, and its answer.
    pub(super) fn ask(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Reply {
        self.begin(method, path, headers, body);
        self.reply()
    }

    pub(super) fn begin(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|header| header.starts_with("Host:")) {
            head.push_str("Host: localhost\r\n");
        }
        headers
            .iter()
            .for_each(|header| head.push_str(&format!("{header}\r\n")));
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        self.write(head.as_bytes());
        self.write(body);
    }

    pub(super) fn reply(&mut self) -> Reply {
        let (status, headers) = self.head();
        let mut reply = Reply {
            status,
            headers,
            body: Vec::new(),
        };
        let length = reply
            .header("content-length")
            .map_or(0, |length| length.parse().unwrap());
        reply.body.resize(length, 0);
        self.0.read_exact(&mut reply.body).unwrap();
        reply
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(super) fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let first = self.line();
        let status = first
            .split(' ')
            .nth(1)
            .unwrap_or_else(|| panic!("no answer: {first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            headers.push((name.to_lowercase(), value.to_owned()));
        }
        (status.parse().unwrap(), headers)
    }

    /// Begins to read an event stream.
    pub(super) fn follow(&mut self, path: &str, headers: &[&str]) {
        self.begin("GET", path, headers, b"");
        self.stream_begins();
    }

    pub(super) fn stream_begins(&mut self) {
        let (status, headers) = self.head();
        assert_eq!(status, 200);
        assert!(headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())));
    }

    /// The next chunk of a stream, which is one frame; `None`: it ended.
    pub(super) fn chunk(&mut self) -> Option<String> {
        let size = usize::from_str_radix(&self.line(), 16).unwrap();
        let mut bytes = vec![0; size + 2];
        self.0.read_exact(&mut bytes).unwrap();
        bytes.truncate(size);
        (size > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    /// The next frame; `None`: the stream ended.
    pub(super) fn frame(&mut self) -> Option<Frame> {
        let chunk = self.chunk()?;
        let field = |name: &str| chunk.lines().find_map(|line| line.strip_prefix(name));
        assert!(chunk.ends_with("\n\n"), "{chunk:?}");
        let json = serde_json::from_str(field("data: ").unwrap()).unwrap();
        let id = field("id: ").map(|id| id.parse().unwrap());
        Some(Frame {
            id,
            event: field("event: ").unwrap().to_owned(),
            json,
        })
    }

    /// So many bytes; `None`: it ended before.
    pub(super) fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        match self.0.read_exact(&mut bytes) {
            Ok(()) => Some(bytes),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ) =>
            {
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads to the end of the connection, however it ends.
    pub(super) fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            Ok(_) | Err(_) => String::from_utf8(bytes).unwrap(),
        }
    }
}
