//! Looks at the head of each frame before its body is collected: a frame that claims more than a
//! message may have is refused at once.
//!
//! Fed by the connection; what passes is read by `actix-ws`, which looks at the size of a frame only
//! once all of it is there, and would keep a gigabyte until then. Pure but for the stream around it.
//! Invariant: nothing is changed of what passes, and nothing is kept of it.

use actix_web::FromRequest as _;
use actix_web::HttpRequest;
use actix_web::dev;
use actix_web::error::PayloadError;
use actix_web::web::Payload;
use bytes::Bytes;
use futures_util::StreamExt as _;

use super::MESSAGE_BYTES_MAX;

/// The longest head: two bytes, a length of eight, a mask of four.
const HEAD_BYTES_MAX: usize = 14;

/// Where in a frame the bytes are.
#[derive(Debug)]
struct Gate {
    head: [u8; HEAD_BYTES_MAX],
    /// Of the head, read already.
    have: usize,
    /// Of the body, still to come.
    left: u64,
}

impl Gate {
    const fn new() -> Self {
        Self {
            head: [0; HEAD_BYTES_MAX],
            have: 0,
            left: 0,
        }
    }

    /// True when the bytes may pass.
    fn passes(&mut self, mut bytes: &[u8]) -> bool {
        while let Some(&first) = bytes.first() {
            if self.left > 0 {
                let step = usize::try_from(self.left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                self.left -= step as u64;
                bytes = &bytes[step..];
                continue;
            }
            self.head[self.have] = first;
            self.have += 1;
            bytes = &bytes[1..];
            let Some(length) = self.length() else {
                continue;
            };
            if length > MESSAGE_BYTES_MAX as u64 {
                return false;
            }
            self.left = length;
            self.have = 0;
        }
        true
    }

    /// The length of the body, once the whole head is there.
    fn length(&self) -> Option<u64> {
        if self.have < 2 {
            return None;
        }
        let mask = if self.head[1] & 0x80 == 0 { 0 } else { 4 };
        let (wide, short) = match self.head[1] & 0x7f {
            126 => (2, 0),
            127 => (8, 0),
            length => (0, u64::from(length)),
        };
        if self.have < 2 + wide + mask {
            return None;
        }
        let digits = self.head[2..2 + wide].iter();
        Some(digits.fold(short, |length, byte| (length << 8) | u64::from(*byte)))
    }
}

/// The payload of a handshake behind a gate.
pub(super) async fn guard(request: &HttpRequest, payload: Payload) -> Payload {
    let mut gate = Gate::new();
    let guarded = payload.scan(false, move |over, bytes: Result<Bytes, PayloadError>| {
        let passed = match bytes {
            _ if *over => None,
            Ok(bytes) if gate.passes(&bytes) => Some(Ok(bytes)),
            Ok(_) => {
                *over = true;
                Some(Err(PayloadError::Overflow))
            }
            Err(error) => Some(Err(error)),
        };
        std::future::ready(passed)
    });
    let mut guarded: dev::Payload = dev::Payload::Stream {
        payload: Box::pin(guarded),
    };
    Payload::from_request(request, &mut guarded)
        .await
        .expect("a payload is taken as it is")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: u64) -> Vec<u8> {
        let mut bytes = vec![0x81];
        match length {
            0..126 => bytes.push(0x80 | u8::try_from(length).unwrap()),
            126..0x1_0000 => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
            _ => {
                bytes.push(0x80 | 127);
                bytes.extend(length.to_be_bytes());
            }
        }
        bytes.extend([1, 2, 3, 4]);
        bytes
    }

    /// However the bytes are cut, frames pass, and the head of one that is too long does not.
    #[test]
    fn a_claim_is_refused_with_its_head() {
        let mut bytes = Vec::new();
        for length in [0, 5, 125, 126, 127, 65_535, 65_536] {
            bytes.extend(frame(length));
            bytes.extend(vec![0xff; usize::try_from(length).unwrap()]);
        }
        let claims = [MESSAGE_BYTES_MAX as u64 + 1, 1 << 30, u64::MAX];
        for piece in [1, 2, 3, 7, 1000, bytes.len()] {
            for claim in claims {
                let mut gate = Gate::new();
                assert!(bytes.chunks(piece).all(|bytes| gate.passes(bytes)));
                let mut head = frame(MESSAGE_BYTES_MAX as u64);
                assert!(Gate::new().passes(&head));
                head = frame(claim);
                assert!(!head.chunks(piece).all(|bytes| gate.passes(bytes)));
            }
        }
    }
}
