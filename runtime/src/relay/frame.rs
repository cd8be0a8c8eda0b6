//! What shim and daemon say to each other, as bytes.
//!
//! Fed by `server.rs` and `shim.rs` with what they read. A frame is `kind, length (u32, little
//! endian), payload`. Offsets count bytes of one direction since the session was opened, whatever
//! processes served it. `Pass` and `Show` may come before the
//! bytes they are on. Invariant: a length is checked before anything is kept for it, and what does
//! not decode ends the connection.
//!
//! | to the daemon | meaning |
//! |---|---|
//! | `Open` | open a session; first frame of a new shim |
//! | `Hello` | go on with a session; first frame of a shim that comes back |
//! | `Back` | bytes of the agent's that the shim has and knows no verdict on; after `Hello` |
//! | `In` | bytes of the host's |
//! | `Eof` | the host has closed its end |
//! | `Signal` | the shim was sent this signal |
//!
//! | to the shim | meaning |
//! |---|---|
//! | `Welcome` | which session, and how much of the host's bytes is dealt with; a [tally](super::tally) comes with it |
//! | `Refused` | why not |
//! | `Out` | bytes of the agent's, to be kept until a verdict |
//! | `Pass`, `Drop`, `Instead` | the verdict on all up to an offset: for the host, for nobody, replaced |
//! | `Show` | all up to an offset is for the host, and to be kept until the verdict |
//! | `Say` | bytes for the host that are not the agent's |
//! | `Err` | bytes for the host's stderr |
//! | `Ack` | the host's bytes up to here are dealt with, and need not be kept |
//! | `End` | the agent has ended |

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use drowse_messages::{HostEnd, Name, SessionId};
use serde::{Deserialize, Serialize};

/// Counts up when one side would misread the other. A shim lives as long as its host, so a daemon
/// meets older ones.
pub(crate) const VERSION: u32 = 2;

/// Kind and length.
const HEADER_BYTES: usize = 5;

/// 64 MiB: twice the longest line that is looked at, which may be replaced whole.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// A frame that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a relay frame has {0} bytes, more than {FRAME_BYTES_MAX}")]
    TooLong(usize),
    #[error("a relay frame of kind {0} cannot be decoded")]
    Malformed(u8),
}

/// Opens a session for a host. Arguments, environment and key are secrets.
#[derive(Serialize, Deserialize)]
pub(crate) struct OpenRelay {
    pub(crate) version: u32,
    /// The shim's process.
    pub(crate) pid: i32,
    pub(crate) key: String,
    /// The host's own command line.
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: PathBuf,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) agent: Option<Name>,
    pub(crate) protocol: Option<Name>,
    pub(crate) name: Option<Name>,
    pub(crate) limits: BTreeMap<String, String>,
}

impl fmt::Debug for OpenRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRelay")
            .field("pid", &self.pid)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// Goes on with a session.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) pid: i32,
    pub(crate) key: String,
    pub(crate) session: SessionId,
    /// Bytes of the agent's that came.
    pub(crate) received: u64,
    /// Of those, how many have a verdict. The others follow as `Back`.
    pub(crate) judged: u64,
    /// Bytes of the host's that are dealt with, as far as the shim knows.
    pub(crate) acked: u64,
    /// Of the piece behind them the agent has so many.
    pub(crate) partly: usize,
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// The answer to either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) session: SessionId,
    /// Bytes of the host's that are dealt with: what is behind them is to be sent, again too.
    pub(crate) from: u64,
    /// How long agents outlive this daemon should it die, in milliseconds.
    pub(crate) grace_ms: u64,
}

/// Why a session is not opened, or not gone on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// [`drowse_messages::Refusal::code`].
    pub(crate) code: String,
    /// For people.
    pub(crate) text: String,
    /// The same may be accepted later.
    pub(crate) again: bool,
}

/// A frame to the daemon.
#[derive(Debug)]
pub(crate) enum ToDaemon<'a> {
    Open(Box<OpenRelay>),
    Hello(Hello),
    Back(&'a [u8]),
    In { offset: u64, bytes: &'a [u8] },
    Eof,
    Signal(i32),
}

/// A frame to the shim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToShim<'a> {
    Welcome(Welcome),
    Refused(Refused),
    Out(&'a [u8]),
    Pass { upto: u64 },
    Drop { upto: u64 },
    Instead { upto: u64, bytes: &'a [u8] },
    Show { upto: u64 },
    Say(&'a [u8]),
    Err(&'a [u8]),
    Ack { offset: u64 },
    End(HostEnd),
}

const OPEN: u8 = 1;
const HELLO: u8 = 2;
const BACK: u8 = 3;
const IN: u8 = 4;
const EOF: u8 = 5;
const SIGNAL: u8 = 6;
const WELCOME: u8 = 65;
const REFUSED: u8 = 66;
const OUT: u8 = 67;
const PASS: u8 = 68;
const DROP: u8 = 69;
const INSTEAD: u8 = 70;
const SAY: u8 = 71;
const ERR: u8 = 72;
const ACK: u8 = 73;
const END: u8 = 74;
const SHOW: u8 = 75;

impl<'a> ToDaemon<'a> {
    /// What stands before the bytes of an `In`.
    pub(crate) const IN_HEAD_BYTES: usize = HEADER_BYTES + size_of::<u64>();

    /// Appends the head of an `In` whose bytes take another way.
    pub(crate) fn put_in_head(offset: u64, length: usize, into: &mut Vec<u8>) {
        let length = u32::try_from(size_of::<u64>() + length).expect("a read is bounded");
        into.push(IN);
        into.extend_from_slice(&length.to_le_bytes());
        into.extend_from_slice(&offset.to_le_bytes());
    }

    /// Appends the frame.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::Open(open) => put(into, OPEN, &[&json(open)]),
            Self::Hello(hello) => put(into, HELLO, &[&json(hello)]),
            Self::Back(bytes) => put(into, BACK, &[bytes]),
            Self::In { offset, bytes } => put(into, IN, &[&offset.to_le_bytes(), bytes]),
            Self::Eof => put(into, EOF, &[]),
            Self::Signal(number) => put(into, SIGNAL, &[&number.to_le_bytes()]),
        }
    }

    fn decode(kind: u8, payload: &'a [u8]) -> Option<Self> {
        Some(match kind {
            OPEN => Self::Open(serde_json::from_slice(payload).ok()?),
            HELLO => Self::Hello(serde_json::from_slice(payload).ok()?),
            BACK => Self::Back(payload),
            IN => {
                let (offset, bytes) = offset_of(payload)?;
                Self::In { offset, bytes }
            }
            EOF if payload.is_empty() => Self::Eof,
            SIGNAL => Self::Signal(i32::from_le_bytes(payload.try_into().ok()?)),
            _ => return None,
        })
    }

    /// The first whole frame of `bytes`, and how many of them it takes.
    pub(crate) fn first(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((kind, payload, length)) = split(bytes)? else {
            return Ok(None);
        };
        let frame = Self::decode(kind, payload).ok_or(FrameError::Malformed(kind))?;
        Ok(Some((frame, length)))
    }
}

impl<'a> ToShim<'a> {
    /// Appends the head of an `Out` whose bytes take another way.
    pub(crate) fn put_out_header(length: usize, into: &mut Vec<u8>) {
        let length = u32::try_from(length).expect("a read is bounded");
        into.push(OUT);
        into.extend_from_slice(&length.to_le_bytes());
    }

    /// It is the head of an `Out` alone.
    pub(crate) fn is_head(bytes: &[u8]) -> bool {
        matches!(bytes, [OUT, length @ ..] if length.len() == HEADER_BYTES - 1)
    }

    /// What came of an `Out` whose rest will never come: it is in no pipe any more.
    pub(crate) fn part_of_out(bytes: &'a [u8]) -> &'a [u8] {
        match bytes.split_first_chunk::<HEADER_BYTES>() {
            Some(([OUT, ..], part)) => part,
            Some(_) | None => &[],
        }
    }

    /// Appends the frame.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::Welcome(welcome) => put(into, WELCOME, &[&json(welcome)]),
            Self::Refused(refused) => put(into, REFUSED, &[&json(refused)]),
            Self::Out(bytes) => put(into, OUT, &[bytes]),
            Self::Pass { upto } => put(into, PASS, &[&upto.to_le_bytes()]),
            Self::Drop { upto } => put(into, DROP, &[&upto.to_le_bytes()]),
            Self::Instead { upto, bytes } => put(into, INSTEAD, &[&upto.to_le_bytes(), bytes]),
            Self::Show { upto } => put(into, SHOW, &[&upto.to_le_bytes()]),
            Self::Say(bytes) => put(into, SAY, &[bytes]),
            Self::Err(bytes) => put(into, ERR, &[bytes]),
            Self::Ack { offset } => put(into, ACK, &[&offset.to_le_bytes()]),
            Self::End(end) => put(into, END, &[&json(end)]),
        }
    }

    fn decode(kind: u8, payload: &'a [u8]) -> Option<Self> {
        let only_offset = || offset_of(payload).filter(|(_, rest)| rest.is_empty());
        Some(match kind {
            WELCOME => Self::Welcome(serde_json::from_slice(payload).ok()?),
            REFUSED => Self::Refused(serde_json::from_slice(payload).ok()?),
            OUT => Self::Out(payload),
            PASS => Self::Pass {
                upto: only_offset()?.0,
            },
            DROP => Self::Drop {
                upto: only_offset()?.0,
            },
            INSTEAD => {
                let (upto, bytes) = offset_of(payload)?;
                Self::Instead { upto, bytes }
            }
            SHOW => Self::Show {
                upto: only_offset()?.0,
            },
            SAY => Self::Say(payload),
            ERR => Self::Err(payload),
            ACK => Self::Ack {
                offset: only_offset()?.0,
            },
            END => Self::End(serde_json::from_slice(payload).ok()?),
            _ => return None,
        })
    }

    /// The first whole frame of `bytes`, and how many of them it takes.
    pub(crate) fn first(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((kind, payload, length)) = split(bytes)? else {
            return Ok(None);
        };
        let frame = Self::decode(kind, payload).ok_or(FrameError::Malformed(kind))?;
        Ok(Some((frame, length)))
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("text keys and plain values always become JSON")
}

fn put(into: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).expect("frames are made of bounded parts");
    into.push(kind);
    into.extend_from_slice(&length.to_le_bytes());
    for part in parts {
        into.extend_from_slice(part);
    }
}

/// Kind and payload of a frame, and how many bytes it takes.
type Split<'a> = (u8, &'a [u8], usize);

fn split(bytes: &[u8]) -> Result<Option<Split<'_>>, FrameError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let [kind, length @ ..] = *header;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(length));
    }
    Ok(rest
        .get(..length)
        .map(|payload| (kind, payload, HEADER_BYTES + length)))
}

fn offset_of(payload: &[u8]) -> Option<(u64, &[u8])> {
    let (offset, rest) = payload.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*offset), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is cut anywhere is no frame yet; whole, it reads back; garbage is told.
    #[test]
    fn frames_read_back() {
        let frames = [
            ToShim::Welcome(Welcome {
                session: SessionId::from_random(7),
                from: 9,
                grace_ms: 60_000,
            }),
            ToShim::Out(b"\xff\n"),
            ToShim::Pass { upto: u64::MAX },
            ToShim::Drop { upto: 1 },
            ToShim::Instead {
                upto: 2,
                bytes: b"x",
            },
            ToShim::Show { upto: 5 },
            ToShim::Say(b"s"),
            ToShim::Err(b""),
            ToShim::Ack { offset: 3 },
            ToShim::End(HostEnd::Exited(Some(drowse_messages::ExitStatus::Signal(
                9,
            )))),
            ToShim::End(HostEnd::Ended),
        ];
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes));
        let mut rest = &bytes[..];
        for frame in &frames {
            let (read, length) = ToShim::first(rest).unwrap().expect("it is whole");
            assert_eq!(&read, frame);
            for cut in 0..length {
                assert_eq!(ToShim::first(&rest[..cut]), Ok(None));
            }
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
        let mut signal = Vec::new();
        ToDaemon::Signal(15).encode(&mut signal);
        assert!(matches!(
            ToDaemon::first(&signal),
            Ok(Some((ToDaemon::Signal(15), 9)))
        ));
        assert_eq!(
            ToShim::first(&signal),
            Err(FrameError::Malformed(SIGNAL)),
            "of the other direction"
        );
        assert!(matches!(
            ToDaemon::first(&[IN, 0xff, 0xff, 0xff, 0xff]),
            Err(FrameError::TooLong(_))
        ));
    }
}
