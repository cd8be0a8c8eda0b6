//! What a link leaves with its keeper for the daemon after this one.
//!
//! Fed by `link.rs`, after everything that changes it; read by `adopt.rs`. A line of JSON with the
//! lengths of the byte strings that follow it. It lives in the keeper's memory, so it is gone
//! exactly when the tree is, and is never on a disk. Invariant: what does not fit, or is of
//! another form, is never half read: such a backend is not taken over.

use drowse_messages::{Incarnation, MessageId, Name, SessionId, TurnEnded, TurnOutcome};
use serde::{Deserialize, Serialize};

use super::link::Note;
use super::outbox::Piece;
use crate::process::control::CHECKPOINT_BYTES_MAX;

/// Counts up when what an earlier release left would be misread.
const FORM: u32 = 2;

/// 16 KiB of an answer are kept until the next turn; each keeper holds one. A longer one is only
/// lost if the daemon dies between hearing it and its disk.
const ANSWER_KEPT_BYTES: usize = 16 * 1024;

/// What is said of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) session: SessionId,
    pub(super) incarnation: Incarnation,
    pub(super) protocol: Name,
    /// The messages that the agent has whole and has not answered.
    pub(super) in_flight: Vec<MessageId>,
    /// Those it answered last, and how: it may not be on disk yet.
    pub(super) answered: Option<(Vec<MessageId>, TurnEnded)>,
    /// Its input is being closed, so it is being ended.
    pub(super) closing: bool,
    /// Something is being written at this moment: how much of it arrived, nobody knows.
    pub(super) writing: bool,
    /// It belongs to a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) relay: Option<Note>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) about: About,
    /// See `Observer::checkpoint`.
    pub(super) observer: Vec<u8>,
    /// The start of a line that has no end yet.
    pub(super) partial: Vec<u8>,
    /// The agent's last complaints.
    pub(super) stderr: Vec<u8>,
    /// What the filter before its host remembers.
    pub(super) memory: Vec<u8>,
    /// What is still to be written.
    pub(super) outbox: Vec<Piece>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    form: u32,
    about: About,
    observer: usize,
    partial: usize,
    stderr: usize,
    #[serde(default)]
    memory: usize,
    /// Length, how much of it is written, and the message it belongs to.
    outbox: Vec<(usize, usize, Option<MessageId>)>,
}

impl Checkpoint {
    /// As bytes; `None` when there are too many of them.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let header = Header {
            form: FORM,
            about: self.about.clone(),
            observer: self.observer.len(),
            partial: self.partial.len(),
            stderr: self.stderr.len(),
            memory: self.memory.len(),
            outbox: self.outbox.iter().map(Piece::measures).collect(),
        };
        let mut bytes =
            serde_json::to_vec(&header).expect("text keys and plain values always become JSON");
        bytes.push(b'\n');
        for part in [&self.observer, &self.partial, &self.stderr, &self.memory] {
            bytes.extend(part);
        }
        for piece in &self.outbox {
            bytes.extend(piece.bytes());
        }
        (bytes.len() <= CHECKPOINT_BYTES_MAX).then_some(bytes)
    }

    /// From bytes of this form.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|&byte| byte == b'\n')?;
        let header: Header = serde_json::from_slice(&bytes[..end]).ok()?;
        let mut rest = &bytes[end + 1..];
        let mut take = |length: usize| {
            let (part, behind) = rest.split_at_checked(length)?;
            rest = behind;
            Some(part.to_vec())
        };
        let observer = take(header.observer)?;
        let partial = take(header.partial)?;
        let stderr = take(header.stderr)?;
        let memory = take(header.memory)?;
        let outbox = header
            .outbox
            .into_iter()
            .map(|(length, written, message)| Piece::restored(take(length)?, written, message))
            .collect::<Option<Vec<_>>>()?;
        (header.form == FORM && rest.is_empty()).then_some(Self {
            about: header.about,
            observer,
            partial,
            stderr,
            memory,
            outbox,
        })
    }
}

/// An end of a turn as it is kept: without a long answer it is one that was not heard.
pub(super) fn kept_end(ended: &TurnEnded) -> TurnEnded {
    if ended.text.len() <= ANSWER_KEPT_BYTES {
        return ended.clone();
    }
    TurnEnded {
        outcome: TurnOutcome::Lost,
        text: String::new(),
        answers: ended.answers,
        left: ended.left,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            about: About {
                session: SessionId::from_random(7),
                incarnation: Incarnation(3),
                protocol: "claude".parse().unwrap(),
                in_flight: vec![MessageId(9)],
                answered: None,
                closing: false,
                writing: true,
                relay: Some(Note::default()),
            },
            observer: b"{\"a\":\"\\n\"}".to_vec(),
            partial: vec![b'{', 0xff, b'"'],
            stderr: b"oh\nno".to_vec(),
            memory: b"handshake".to_vec(),
            outbox: vec![
                Piece::restored(b"half\n".to_vec(), 2, Some(MessageId(9))).unwrap(),
                Piece::restored(b"all\n".to_vec(), 0, None).unwrap(),
            ],
        }
    }

    /// D42: it reads back as it was; cut anywhere, or of another form, it is nothing at all.
    #[test]
    fn it_is_read_whole_or_not_at_all() {
        let bytes = checkpoint().encode().unwrap();
        assert_eq!(Checkpoint::decode(&bytes), Some(checkpoint()));
        for end in 0..bytes.len() {
            assert_eq!(Checkpoint::decode(&bytes[..end]), None, "{end} bytes");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(Checkpoint::decode(&longer), None);
        let text = String::from_utf8_lossy(&bytes).replace("\"form\":1", "\"form\":2");
        assert_eq!(Checkpoint::decode(text.as_bytes()), None);
    }

    #[test]
    fn one_that_is_too_long_is_none() {
        let mut long = checkpoint();
        long.partial = vec![b'x'; CHECKPOINT_BYTES_MAX];
        assert_eq!(long.encode(), None);
    }

    /// Behaviour 99: an answer that is not kept whole is not taken for one.
    #[test]
    fn a_long_answer_is_kept_as_unheard() {
        let ended = |text: &str, outcome| TurnEnded {
            outcome,
            text: text.to_owned(),
            answers: true,
            left: 0,
        };
        let short = ended("yes", TurnOutcome::Completed);
        assert_eq!(kept_end(&short), short);
        let long = ended(&"x".repeat(1 << 20), TurnOutcome::Completed);
        assert_eq!(kept_end(&long), ended("", TurnOutcome::Lost));
    }
}
