//! The bytes of the control protocol: encoding, decoding, and cutting a stream into frames.
//!
//! Fed by: keeper and link, with what they read. Nothing is kept beyond one frame and what one
//! read brought.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use drowse_messages::{ExitStatus, ProcIdentity, millis};

use super::{
    CHECKPOINT_BYTES_MAX, Checkpoint, ControlError, FRAME_BYTES_MAX, FromKeeper, Launch,
    LaunchError, LaunchStep, ToKeeper, VERSION,
};

/// Version, kind and length.
const HEADER_BYTES: usize = 6;

const KIND_LAUNCH: u8 = 1;
const KIND_CLOSE_STDIN: u8 = 2;
const KIND_LEAVE: u8 = 3;
const KIND_CHECKPOINT: u8 = 4;
const KIND_RETIRE: u8 = 5;
const KIND_END: u8 = 6;
const KIND_TAKE_OVER: u8 = 7;
const KIND_STARTED: u8 = 65;
const KIND_LAUNCH_FAILED: u8 = 66;
const KIND_EXITED: u8 = 67;
const KIND_EMPTY: u8 = 68;
const KIND_HELD: u8 = 69;
const KIND_ENDING: u8 = 70;
const KIND_REFUSED: u8 = 71;

impl ToKeeper {
    /// The frame.
    ///
    /// # Errors
    /// [`ControlError::TooLong`]: argv and environment are more than the kernel takes anyway.
    /// [`ControlError::CheckpointTooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, ControlError> {
        match self {
            Self::Launch(launch) => frame(KIND_LAUNCH, |payload| put_launch(payload, launch)),
            Self::TakeOver => frame(KIND_TAKE_OVER, |_| ()),
            Self::CloseStdin => frame(KIND_CLOSE_STDIN, |_| ()),
            Self::Checkpoint(Checkpoint(bytes)) if bytes.len() > CHECKPOINT_BYTES_MAX => {
                Err(ControlError::CheckpointTooLong(bytes.len()))
            }
            Self::Checkpoint(Checkpoint(bytes)) => {
                frame(KIND_CHECKPOINT, |payload| payload.extend_from_slice(bytes))
            }
            Self::Retire { until } => frame(KIND_RETIRE, |payload| {
                put_optional(payload, *until, put_duration);
            }),
            Self::End => frame(KIND_END, |_| ()),
            Self::Leave => frame(KIND_LEAVE, |_| ()),
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        let mut rest = payload;
        let message = match kind {
            KIND_LAUNCH => Self::Launch(take_launch(&mut rest)?),
            KIND_TAKE_OVER => Self::TakeOver,
            KIND_CLOSE_STDIN => Self::CloseStdin,
            KIND_CHECKPOINT => Self::Checkpoint(take_checkpoint(&mut rest)?),
            KIND_RETIRE => Self::Retire {
                until: take_optional(&mut rest, take_duration)?,
            },
            KIND_END => Self::End,
            KIND_LEAVE => Self::Leave,
            _ => return None,
        };
        rest.is_empty().then_some(message)
    }
}

impl FromKeeper {
    /// The frame.
    ///
    /// # Errors
    /// None in practice: these frames are shorter than what a keeper accepts.
    pub fn encode(&self) -> Result<Vec<u8>, ControlError> {
        match self {
            Self::Started(agent) => frame(KIND_STARTED, |payload| put_identity(payload, *agent)),
            Self::LaunchFailed(error) => frame(KIND_LAUNCH_FAILED, |payload| {
                payload.push(error.step as u8);
                payload.extend(error.errno.to_le_bytes());
            }),
            Self::Exited(status) => frame(KIND_EXITED, |payload| put_status(payload, *status)),
            Self::Empty => frame(KIND_EMPTY, |_| ()),
            Self::Held {
                agent,
                exited,
                empty,
                stdin_open,
                retired,
                checkpoint,
            } => frame(KIND_HELD, |payload| {
                put_identity(payload, *agent);
                put_optional(payload, *exited, put_status);
                payload.extend([*empty, *stdin_open, *retired].map(u8::from));
                payload.extend_from_slice(&checkpoint.0);
            }),
            Self::Ending => frame(KIND_ENDING, |_| ()),
            Self::Refused => frame(KIND_REFUSED, |_| ()),
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        let mut rest = payload;
        let message = match kind {
            KIND_STARTED => Self::Started(take_identity(&mut rest)?),
            KIND_LAUNCH_FAILED => {
                let step = match take::<1>(&mut rest)? {
                    [0] => LaunchStep::Cwd,
                    [1] => LaunchStep::Pipes,
                    [2] => LaunchStep::Program,
                    [3] => LaunchStep::Socket,
                    _ => return None,
                };
                let errno = i32::from_le_bytes(take(&mut rest)?);
                Self::LaunchFailed(LaunchError { step, errno })
            }
            KIND_EXITED => Self::Exited(take_status(&mut rest)?),
            KIND_EMPTY => Self::Empty,
            KIND_HELD => Self::Held {
                agent: take_identity(&mut rest)?,
                exited: take_optional(&mut rest, take_status)?,
                empty: take_flag(&mut rest)?,
                stdin_open: take_flag(&mut rest)?,
                retired: take_flag(&mut rest)?,
                checkpoint: take_checkpoint(&mut rest)?,
            },
            KIND_ENDING => Self::Ending,
            KIND_REFUSED => Self::Refused,
            _ => return None,
        };
        rest.is_empty().then_some(message)
    }
}

/// Bytes as they arrive, cut into frames.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
}

impl FrameBuffer {
    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message to a keeper, once all of its frame is here.
    ///
    /// # Errors
    /// The bytes are no frame; nothing after them can be trusted.
    pub fn next_to_keeper(&mut self) -> Result<Option<ToKeeper>, ControlError> {
        self.next(ToKeeper::decode)
    }

    /// The next message from a keeper, once all of its frame is here.
    ///
    /// # Errors
    /// As [`FrameBuffer::next_to_keeper`].
    pub fn next_from_keeper(&mut self) -> Result<Option<FromKeeper>, ControlError> {
        self.next(FromKeeper::decode)
    }

    fn next<T>(
        &mut self,
        decode: impl FnOnce(u8, &[u8]) -> Option<T>,
    ) -> Result<Option<T>, ControlError> {
        let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [version, kind, length @ ..] = *header;
        if version != VERSION {
            return Err(ControlError::Version(version));
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(ControlError::TooLong(length));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let message = decode(kind, payload).ok_or(ControlError::Malformed(kind))?;
        self.bytes.drain(..HEADER_BYTES + length);
        if self.bytes.is_empty() {
            // A launch can be long and comes once: its room is given back.
            self.bytes = Vec::new();
        }
        Ok(Some(message))
    }
}

fn frame(kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u8>, ControlError> {
    let mut bytes = vec![VERSION, kind, 0, 0, 0, 0];
    fill(&mut bytes);
    let length = bytes.len() - HEADER_BYTES;
    match u32::try_from(length) {
        Ok(prefix) if length <= FRAME_BYTES_MAX => {
            bytes[2..HEADER_BYTES].copy_from_slice(&prefix.to_le_bytes());
            Ok(bytes)
        }
        _ => Err(ControlError::TooLong(length)),
    }
}

fn put_launch(payload: &mut Vec<u8>, launch: &Launch) {
    put_count(payload, launch.argv.len());
    for argument in &launch.argv {
        put_text(payload, argument);
    }
    put_count(payload, launch.env.len());
    for (name, value) in &launch.env {
        put_text(payload, name);
        put_text(payload, value);
    }
    put_text(payload, launch.cwd.as_os_str());
    // Neither a cgroup nor a socket has an empty path.
    for path in [&launch.cgroup, &launch.socket] {
        put_text(
            payload,
            path.as_deref().unwrap_or(Path::new("")).as_os_str(),
        );
    }
    for grace in [launch.orphan_grace, launch.eof_grace, launch.term_grace] {
        put_duration(payload, grace);
    }
    put_optional(payload, launch.nofile, |payload, (soft, hard)| {
        payload.extend(soft.to_le_bytes());
        payload.extend(hard.to_le_bytes());
    });
}

fn take_launch(rest: &mut &[u8]) -> Option<Launch> {
    let take_path = |rest: &mut &[u8]| -> Option<Option<PathBuf>> {
        let path = take_text(rest)?;
        Some((!path.is_empty()).then(|| path.into()))
    };
    // Nothing is reserved by these counts, so a wrong one costs nothing. The fields are evaluated
    // in the order written, which is that of the frame.
    Some(Launch {
        argv: (0..take_count(rest)?)
            .map(|_| take_text(rest))
            .collect::<Option<_>>()?,
        env: (0..take_count(rest)?)
            .map(|_| Some((take_text(rest)?, take_text(rest)?)))
            .collect::<Option<_>>()?,
        cwd: take_text(rest)?.into(),
        cgroup: take_path(rest)?,
        socket: take_path(rest)?,
        orphan_grace: take_duration(rest)?,
        eof_grace: take_duration(rest)?,
        term_grace: take_duration(rest)?,
        nofile: take_optional(rest, |rest| {
            Some((
                u64::from_le_bytes(take(rest)?),
                u64::from_le_bytes(take(rest)?),
            ))
        })?,
    })
}

fn put_identity(payload: &mut Vec<u8>, process: ProcIdentity) {
    payload.extend(process.pid().to_le_bytes());
    payload.extend(process.start_ticks().to_le_bytes());
}

fn take_identity(rest: &mut &[u8]) -> Option<ProcIdentity> {
    let pid = i32::from_le_bytes(take(rest)?);
    let start_ticks = u64::from_le_bytes(take(rest)?);
    ProcIdentity::new(pid, start_ticks)
}

fn put_status(payload: &mut Vec<u8>, status: ExitStatus) {
    let (by_signal, number) = match status {
        ExitStatus::Code(code) => (0, code),
        ExitStatus::Signal(signal) => (1, signal),
    };
    payload.push(by_signal);
    payload.extend(number.to_le_bytes());
}

fn take_status(rest: &mut &[u8]) -> Option<ExitStatus> {
    let status = if take_flag(rest)? {
        ExitStatus::Signal
    } else {
        ExitStatus::Code
    };
    Some(status(i32::from_le_bytes(take(rest)?)))
}

fn put_duration(payload: &mut Vec<u8>, duration: Duration) {
    payload.extend(millis(duration).to_le_bytes());
}

fn take_duration(rest: &mut &[u8]) -> Option<Duration> {
    Some(Duration::from_millis(u64::from_le_bytes(take(rest)?)))
}

fn put_optional<T>(payload: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    payload.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(payload, value);
    }
}

fn take_optional<T>(
    rest: &mut &[u8],
    take: impl FnOnce(&mut &[u8]) -> Option<T>,
) -> Option<Option<T>> {
    Some(if take_flag(rest)? {
        Some(take(rest)?)
    } else {
        None
    })
}

fn take_flag(rest: &mut &[u8]) -> Option<bool> {
    match take(rest)? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

/// A checkpoint is all that is left of its frame.
fn take_checkpoint(rest: &mut &[u8]) -> Option<Checkpoint> {
    let bytes = std::mem::take(rest);
    (bytes.len() <= CHECKPOINT_BYTES_MAX).then(|| Checkpoint(bytes.to_vec()))
}

fn put_count(payload: &mut Vec<u8>, count: usize) {
    // A count that does not fit belongs to a frame that `frame` refuses as too long.
    payload.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_text(payload: &mut Vec<u8>, text: &OsStr) {
    put_count(payload, text.len());
    payload.extend_from_slice(text.as_bytes());
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*bytes)
}

fn take_count(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(rest)?))
}

fn take_text(rest: &mut &[u8]) -> Option<OsString> {
    let length = take_count(rest)? as usize;
    let (text, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(OsString::from_vec(text.to_vec()))
}
