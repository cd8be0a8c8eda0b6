//! As much HTTP/1.1 as agents' model clients need, on a blocking socket.
//!
//! Fed by: one connection. Answers one request and closes; a length or a chunked body is read,
//! nothing is compressed. Invariant: what is read is bounded before it is kept.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// 64 KiB of request line and headers: ten times what any agent sends.
const HEAD_BYTES_MAX: u64 = 64 * 1024;

/// 64 MiB of body: a full context window with images.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A client that sends nothing for a minute is stuck.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Headers that say which conversation this is.
    pub(super) fn session_headers(&self) -> Vec<(String, String)> {
        let tells = |name: &str| {
            ["session", "thread", "conversation"]
                .iter()
                .any(|w| name.contains(w))
        };
        self.headers
            .iter()
            .filter(|(name, _)| tells(name))
            .cloned()
            .collect()
    }
}

/// The answering half of a connection.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    stream: &'a TcpStream,
}

impl<'a> Exchange<'a> {
    /// Reads the request of a fresh connection.
    pub(super) fn read(stream: &'a TcpStream) -> Result<(Request, Self)> {
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let mut reader = BufReader::new(stream);
        let mut request = read_head(&mut reader)?;
        if request.header("expect").is_some() {
            (&*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        request.body = read_body(&mut reader, &request)?;
        Ok((request, Self { stream }))
    }

    /// A complete JSON answer.
    pub(super) fn json(&mut self, status: u16, value: &Value) -> Result<()> {
        let body = value.to_string();
        let head = format!(
            "HTTP/1.1 {status} Mock\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        self.write(&(head + &body))
    }

    /// Begins a stream of server-sent events; the end of the connection ends it.
    pub(super) fn begin_events(&mut self) -> Result<()> {
        self.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        )
    }

    /// One event, with a name where the API wants one.
    pub(super) fn event(&mut self, name: Option<&str>, text: &str) -> Result<()> {
        let name = name
            .map(|name| format!("event: {name}\n"))
            .unwrap_or_default();
        self.write(&format!("{name}data: {text}\n\n"))
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.stream.write_all(text.as_bytes())
    }
}

fn read_head(reader: &mut impl BufRead) -> Result<Request> {
    let mut head = reader.take(HEAD_BYTES_MAX);
    let mut line = String::new();
    head.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(ErrorKind::InvalidData.into());
    };
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(Request {
        method,
        path,
        headers,
        body: Vec::new(),
    })
}

fn read_body(reader: &mut impl BufRead, request: &Request) -> Result<Vec<u8>> {
    if request
        .header("transfer-encoding")
        .is_some_and(|value| value.contains("chunked"))
    {
        return read_chunks(reader);
    }
    let length = request
        .header("content-length")
        .and_then(|value| value.parse().ok())
        .unwrap_or(0);
    let mut body = Vec::new();
    read_exactly(reader, length, &mut body)?;
    Ok(body)
}

fn read_chunks(reader: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.take(HEAD_BYTES_MAX).read_line(&mut line)?;
        let size = line.trim().split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size, 16).map_err(|_| ErrorKind::InvalidData)?;
        read_exactly(reader, size, &mut body)?;
        let mut newline = [0; 2];
        reader.read_exact(&mut newline)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

fn read_exactly(reader: &mut impl BufRead, size: usize, body: &mut Vec<u8>) -> Result<()> {
    if size.saturating_add(body.len()) > BODY_BYTES_MAX {
        return Err(Error::new(
            ErrorKind::InvalidData,
            "the request body is too large",
        ));
    }
    let from = body.len();
    body.resize(from + size, 0);
    reader.read_exact(&mut body[from..])
}
