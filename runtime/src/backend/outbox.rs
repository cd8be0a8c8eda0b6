//! What is to be written to an agent's stdin, in order, with the message each piece belongs to.
//!
//! Fed by `link.rs`. A pipe takes what it has room for; the rest waits here, so that an agent that
//! does not read keeps nobody waiting. Knows how far each message got, because that decides
//! whether it may be delivered again (D40).

use std::collections::VecDeque;
use std::io;

use drowse_messages::{DeliveryResult, MessageId};
use tokio::net::unix::pipe;

use crate::relay::Host;

/// What is written in one go, and how much of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    bytes: Vec<u8>,
    written: usize,
    message: Option<MessageId>,
    /// It is a host's.
    of_host: Option<OfHost>,
}

/// Where a piece of a host's stands among all that the host said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OfHost {
    /// It ends there.
    pub(super) upto: u64,
    /// A part of it counts too: it is no line.
    pub(super) by_parts: bool,
}

impl OfHost {
    /// How far the host's bytes have come, once so many of the piece are missing.
    fn reached(self, missing: usize) -> Option<u64> {
        match missing {
            0 => Some(self.upto),
            _ if self.by_parts => Some(self.upto - missing as u64),
            _ => None,
        }
    }
}

impl Piece {
    /// As an earlier daemon left it; `None`: it cannot have been so.
    pub(super) fn restored(
        bytes: Vec<u8>,
        written: usize,
        message: Option<MessageId>,
    ) -> Option<Self> {
        (written < bytes.len().max(1)).then_some(Self {
            bytes,
            written,
            message,
            of_host: None,
        })
    }

    /// Its length, how much of it is written, and the message it belongs to.
    pub(super) fn measures(&self) -> (usize, usize, Option<MessageId>) {
        (self.bytes.len(), self.written, self.message)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True when it is one line of JSON of which more than the end of the line is missing: whoever
    /// reads it has nothing to act on.
    fn is_unfinished_json(&self) -> bool {
        let text = self.bytes.trim_ascii_end();
        text.starts_with(b"{") && !text.contains(&b'\n') && self.written < text.len()
    }

    pub(super) fn is_of_host(&self) -> bool {
        self.of_host.is_some()
    }
}

/// Pieces in order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pieces: VecDeque<Piece>,
}

impl From<Vec<Piece>> for Outbox {
    fn from(pieces: Vec<Piece>) -> Self {
        let pieces = pieces.into();
        Self { pieces }
    }
}

impl Outbox {
    /// What is still to be written, in order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds lines; they make up one message when they belong to one.
    pub(super) fn push(&mut self, lines: Vec<Vec<u8>>, message: Option<MessageId>) {
        match message {
            Some(_) => {
                self.pieces.push_back(Piece {
                    bytes: lines.concat(),
                    written: 0,
                    message,
                    of_host: None,
                });
            }
            None => self.pieces.extend(lines.into_iter().map(|bytes| Piece {
                bytes,
                written: 0,
                message: None,
                of_host: None,
            })),
        }
    }

    /// Adds a piece of a host's. The agent has `written` bytes of it already.
    pub(super) fn push_of_host(&mut self, bytes: Vec<u8>, written: usize, of_host: OfHost) {
        self.pieces.push_back(Piece {
            written: written.min(bytes.len()),
            bytes,
            message: None,
            of_host: Some(of_host),
        });
    }

    /// What is not in the pipe whole is the host's to say again.
    pub(super) fn drop_of_host(&mut self) {
        self.pieces.retain(|piece| piece.of_host.is_none());
    }

    /// True while something waits that is no host's.
    pub(super) fn has_ours(&self) -> bool {
        self.pieces.iter().any(|piece| piece.of_host.is_none())
    }

    /// Writes what fits now, and hands out each piece that is in the pipe as a whole. What is a
    /// host's goes its own way.
    pub(super) fn write(
        &mut self,
        stdin: &pipe::Sender,
        host: Option<&Host>,
        mut written: impl FnMut(Vec<u8>, Option<MessageId>),
    ) -> io::Result<()> {
        while let Some(piece) = self.pieces.front_mut() {
            if piece.written == piece.bytes.len() {
                if let (Some(of_host), Some(host)) = (piece.of_host, host) {
                    host.reached(of_host.upto);
                }
                if let Some(Piece { bytes, message, .. }) = self.pieces.pop_front() {
                    written(bytes, message);
                }
                continue;
            }
            let rest = &piece.bytes[piece.written..];
            let put = match (piece.of_host, host) {
                (Some(of_host), Some(host)) => {
                    let reached = |missing| of_host.reached(missing);
                    host.put(stdin, rest, piece.written, reached)
                }
                (Some(_) | None, _) => stdin.try_write(rest),
            };
            match put {
                Ok(bytes) => piece.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The agent reads no more: how far each message in here got.
    pub(super) fn give_up(&mut self) -> Vec<(MessageId, DeliveryResult)> {
        let fate = |piece: Piece| {
            let result = match piece.written {
                0 => DeliveryResult::NotWritten,
                _ if piece.is_unfinished_json() => DeliveryResult::CutShort,
                _ => DeliveryResult::PartlyWritten,
            };
            Some((piece.message?, result))
        };
        self.pieces.drain(..).filter_map(fate).collect()
    }
}
