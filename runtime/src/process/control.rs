//! What the daemon and a keeper say to each other over the keeper's control socket.
//!
//! Fed by: keeper.rs on one side, link.rs on the other. No I/O happens here.
//! Invariant: a frame is `version, kind, length (u32, little endian), payload`; every length is
//! checked against [`FRAME_BYTES_MAX`] before anything is kept for it, and what does not decode
//! ends the conversation. The encoding is by hand, so that a keeper carries no serializer.
//!
//! | to the keeper | meaning |
//! |---|---|
//! | `Launch` | start the agent; first frame, once |
//! | `CloseStdin` | drop the keeper's copy of the agent's standard input |
//! | `Leave` | end as soon as there is no child, killing what is left first |
//!
//! | from the keeper | meaning |
//! |---|---|
//! | `Started` | the agent runs; three descriptors come with it: stdin, stdout, stderr |
//! | `LaunchFailed` | it does not; the keeper leaves |
//! | `Exited` | the agent itself has ended; once |
//! | `Empty` | the last process below the keeper is gone; once |

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use drowse_messages::{ExitStatus, ProcIdentity};
use thiserror::Error;

/// The first byte of each frame. A daemon may meet keepers that an older one started.
const VERSION: u8 = 1;

/// 4 MiB: twice what Linux lets arguments and environment take with the usual 8 MiB stack.
pub const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Version, kind and length.
const HEADER_BYTES: usize = 6;

/// How many descriptors come with `Started`: the agent's three standard streams.
pub const STARTED_FDS: usize = 3;

/// Bytes on the control socket that are not what they should be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ControlError {
    /// The other side is of another release.
    #[error("a control frame has version {0}, not {VERSION}")]
    Version(u8),
    /// The frame would be too long to keep.
    #[error("a control frame has {0} bytes, more than {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// A kind of frame that does not exist in this direction, or one that does not decode.
    #[error("a control frame of kind {0} cannot be decoded")]
    Malformed(u8),
}

/// Everything a keeper needs to start its agent, and to end it should the daemon die.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program and its arguments. The program is looked up in the `PATH` of `env` unless it
    /// holds a slash.
    pub argv: Vec<OsString>,
    /// The agent's whole environment; nothing is added to it.
    pub env: Vec<(OsString, OsString)>,
    /// The agent's working folder.
    pub cwd: PathBuf,
    /// The cgroup the agent is born in, as an absolute path; `None`: the keeper's own.
    pub cgroup: Option<PathBuf>,
    /// How long an agent whose standard input ended may take to end by itself.
    pub eof_grace: Duration,
    /// How long it may take after SIGTERM.
    pub term_grace: Duration,
}

impl fmt::Debug for Launch {
    /// Arguments and environment hold secrets: they are counted, not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("argv", &self.argv.len())
            .field("env", &self.env.len())
            .field("eof_grace", &self.eof_grace)
            .field("term_grace", &self.term_grace)
            .finish_non_exhaustive()
    }
}

/// From the daemon to the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToKeeper {
    /// Start the agent.
    Launch(Launch),
    /// Drop the keeper's copy of the agent's standard input.
    CloseStdin,
    /// End when there is no child; kill what is left first.
    Leave,
}

/// From the keeper to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromKeeper {
    /// The agent runs. Its standard streams come along as descriptors.
    Started(ProcIdentity),
    /// The agent could not be started.
    LaunchFailed(LaunchError),
    /// The agent has ended, its descendants perhaps not.
    Exited(ExitStatus),
    /// The last process below the keeper is gone, zombies included.
    Empty,
}

/// Why an agent could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchError {
    /// What was being done.
    pub step: LaunchStep,
    /// What the kernel said.
    pub errno: i32,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = io::Error::from_raw_os_error(self.errno);
        match self.step {
            LaunchStep::Cwd => write!(f, "failed to enter the working folder: {cause}"),
            LaunchStep::Pipes => write!(f, "failed to make the agent's pipes: {cause}"),
            LaunchStep::Program => write!(f, "failed to start the agent's program: {cause}"),
        }
    }
}

impl std::error::Error for LaunchError {}

/// The parts of a launch that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchStep {
    /// Entering the working folder.
    Cwd,
    /// Making the pipes of the standard streams.
    Pipes,
    /// Finding and running the program.
    Program,
}

const KIND_LAUNCH: u8 = 1;
const KIND_CLOSE_STDIN: u8 = 2;
const KIND_LEAVE: u8 = 3;
const KIND_STARTED: u8 = 65;
const KIND_LAUNCH_FAILED: u8 = 66;
const KIND_EXITED: u8 = 67;
const KIND_EMPTY: u8 = 68;

impl ToKeeper {
    /// The frame.
    ///
    /// # Errors
    /// [`ControlError::TooLong`]: argv and environment are more than the kernel takes anyway.
    pub fn encode(&self) -> Result<Vec<u8>, ControlError> {
        match self {
            Self::Launch(launch) => frame(KIND_LAUNCH, |payload| put_launch(payload, launch)),
            Self::CloseStdin => frame(KIND_CLOSE_STDIN, |_| ()),
            Self::Leave => frame(KIND_LEAVE, |_| ()),
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        let mut rest = payload;
        let message = match kind {
            KIND_LAUNCH => Self::Launch(take_launch(&mut rest)?),
            KIND_CLOSE_STDIN => Self::CloseStdin,
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
    /// None in practice: these frames are of a few bytes.
    pub fn encode(&self) -> Result<Vec<u8>, ControlError> {
        match self {
            Self::Started(agent) => frame(KIND_STARTED, |payload| {
                payload.extend(agent.pid().to_le_bytes());
                payload.extend(agent.start_ticks().to_le_bytes());
            }),
            Self::LaunchFailed(error) => frame(KIND_LAUNCH_FAILED, |payload| {
                payload.push(error.step as u8);
                payload.extend(error.errno.to_le_bytes());
            }),
            Self::Exited(status) => frame(KIND_EXITED, |payload| {
                let (by_signal, number) = match status {
                    ExitStatus::Code(code) => (0, code),
                    ExitStatus::Signal(signal) => (1, signal),
                };
                payload.push(by_signal);
                payload.extend(number.to_le_bytes());
            }),
            Self::Empty => frame(KIND_EMPTY, |_| ()),
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        let mut rest = payload;
        let message = match kind {
            KIND_STARTED => {
                let pid = i32::from_le_bytes(take(&mut rest)?);
                let start_ticks = u64::from_le_bytes(take(&mut rest)?);
                Self::Started(ProcIdentity::new(pid, start_ticks)?)
            }
            KIND_LAUNCH_FAILED => {
                let step = match take::<1>(&mut rest)? {
                    [0] => LaunchStep::Cwd,
                    [1] => LaunchStep::Pipes,
                    [2] => LaunchStep::Program,
                    _ => return None,
                };
                let errno = i32::from_le_bytes(take(&mut rest)?);
                Self::LaunchFailed(LaunchError { step, errno })
            }
            KIND_EXITED => {
                let by_signal = take::<1>(&mut rest)? == [1];
                let number = i32::from_le_bytes(take(&mut rest)?);
                let status = if by_signal {
                    ExitStatus::Signal
                } else {
                    ExitStatus::Code
                };
                Self::Exited(status(number))
            }
            KIND_EMPTY => Self::Empty,
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
    // No cgroup has an empty path.
    let cgroup = launch.cgroup.as_deref().unwrap_or(Path::new(""));
    put_text(payload, cgroup.as_os_str());
    for grace in [launch.eof_grace, launch.term_grace] {
        payload.extend(drowse_messages::millis(grace).to_le_bytes());
    }
}

fn take_launch(rest: &mut &[u8]) -> Option<Launch> {
    // Nothing is reserved by these counts, so a wrong one costs nothing.
    let argv = (0..take_count(rest)?)
        .map(|_| take_text(rest))
        .collect::<Option<_>>()?;
    let env = (0..take_count(rest)?)
        .map(|_| Some((take_text(rest)?, take_text(rest)?)))
        .collect::<Option<_>>()?;
    let cwd = take_text(rest)?.into();
    let cgroup = Some(take_text(rest)?).filter(|path| !path.is_empty());
    let eof_grace = Duration::from_millis(u64::from_le_bytes(take(rest)?));
    let term_grace = Duration::from_millis(u64::from_le_bytes(take(rest)?));
    Some(Launch {
        argv,
        env,
        cwd,
        cgroup: cgroup.map(PathBuf::from),
        eof_grace,
        term_grace,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            argv: vec!["agent".into(), OsString::from_vec(vec![0xff, b' ', b'\n'])],
            env: vec![
                ("TOKEN".into(), "s3cret".into()),
                ("EMPTY".into(), "".into()),
            ],
            cwd: "/tmp".into(),
            cgroup: Some("/sys/fs/cgroup/drowse/a".into()),
            eof_grace: Duration::from_secs(2),
            term_grace: Duration::MAX,
        }
    }

    /// Frames arrive in any pieces and come out whole and in order.
    #[test]
    fn frames_survive_any_cut() {
        let mut expected = launch();
        expected.term_grace = Duration::from_millis(u64::MAX);
        let expected = [
            ToKeeper::Launch(expected),
            ToKeeper::CloseStdin,
            ToKeeper::Leave,
        ];
        let mut bytes = ToKeeper::Launch(launch()).encode().expect("short");
        bytes.extend(ToKeeper::CloseStdin.encode().expect("short"));
        bytes.extend(ToKeeper::Leave.encode().expect("short"));
        for size in 1..bytes.len() {
            let mut buffer = FrameBuffer::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(size) {
                buffer.push(piece);
                while let Some(message) = buffer.next_to_keeper().expect("well formed") {
                    got.push(message);
                }
            }
            assert_eq!(got, expected, "pieces of {size}");
        }
    }

    #[test]
    fn every_message_from_a_keeper_reads_back() {
        let agent = ProcIdentity::new(77, u64::MAX).expect("a pid above 1");
        let steps = [LaunchStep::Cwd, LaunchStep::Pipes, LaunchStep::Program];
        let mut all = vec![FromKeeper::Started(agent), FromKeeper::Empty];
        all.extend(steps.map(|step| FromKeeper::LaunchFailed(LaunchError { step, errno: 2 })));
        all.extend([ExitStatus::Code(3), ExitStatus::Signal(9)].map(FromKeeper::Exited));
        for message in all {
            let mut buffer = FrameBuffer::default();
            buffer.push(&message.encode().expect("short"));
            assert_eq!(buffer.next_from_keeper(), Ok(Some(message)));
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut buffer = FrameBuffer::default();
            buffer.push(bytes);
            buffer.next_to_keeper().expect_err("it is not a frame")
        };
        assert_eq!(refused(&[9, 1, 0, 0, 0, 0]), ControlError::Version(9));
        assert_eq!(refused(&[1, 200, 0, 0, 0, 0]), ControlError::Malformed(200));
        assert_eq!(refused(&[1, 3, 1, 0, 0, 0, 7]), ControlError::Malformed(3));
        assert_eq!(
            refused(&[1, 1, 4, 0, 0, 0, 255, 255, 255, 255]),
            ControlError::Malformed(1)
        );
        let too_long = refused(&[1, 1, 255, 255, 255, 255]);
        assert_eq!(too_long, ControlError::TooLong(u32::MAX as usize));
        let mut huge = launch();
        huge.argv
            .push(OsString::from_vec(vec![b'x'; FRAME_BYTES_MAX]));
        assert!(ToKeeper::Launch(huge).encode().is_err());
    }

    /// Arguments and environment are secrets.
    #[test]
    fn a_launch_does_not_show_its_secrets() {
        assert!(!format!("{:?}", launch()).contains("s3cret"));
    }
}
