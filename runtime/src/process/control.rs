//! What the daemon and a keeper say to each other over the keeper's control socket.
//!
//! Fed by: keeper.rs on one side, link.rs on the other. No I/O happens here; `frame.rs` has the
//! bytes.
//! Invariant: a frame is `version, kind, length (u32, little endian), payload`; every length is
//! checked against [`FRAME_BYTES_MAX`] before anything is kept for it, and what does not decode
//! ends the conversation. The encoding is by hand, so that a keeper carries no serializer.
//!
//! | to the keeper | meaning |
//! |---|---|
//! | `Launch` | start the agent; first frame, once |
//! | `TakeOver` | obey the sender from now on; first frame of a daemon that connected |
//! | `CloseStdin` | drop the keeper's copy of the agent's standard input |
//! | `Checkpoint` | keep this for the next daemon, in place of the one before |
//! | `Retire` | nobody listens to the agent any more: stay only as long as there are children |
//! | `End` | end the tree by the ladder, now |
//! | `Leave` | end as soon as there is no child, killing what is left first |
//!
//! | from the keeper | meaning |
//! |---|---|
//! | `Started` | the agent runs; three descriptors come with it: stdin, stdout, stderr |
//! | `LaunchFailed` | it does not; the keeper leaves |
//! | `Exited` | the agent itself has ended; once |
//! | `Empty` | the last process below the keeper is gone; once |
//! | `Held` | to a daemon that took over, first: all that the keeper has, with the descriptors that are still open |
//! | `Ending` | instead of `Held`: the keeper is ending its tree already |
//! | `Refused` | instead of `Held`: whoever connected did not ask to take over |

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use drowse_messages::{ExitStatus, ProcIdentity};
use thiserror::Error;

mod frame;
#[cfg(test)]
mod tests;

pub use frame::FrameBuffer;

/// The first byte of each frame. A daemon may meet keepers that an older one started.
const VERSION: u8 = 2;

/// 4 MiB: twice what Linux lets arguments and environment take with the usual 8 MiB stack.
pub const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;

/// 256 KiB: what an adapter must remember of a conversation is a few KiB; the rest is room for an
/// unfinished line of the agent's. Each keeper holds one, so it counts once per awake session.
pub const CHECKPOINT_BYTES_MAX: usize = 256 * 1024;

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
    /// The checkpoint would be too long to keep.
    #[error("a checkpoint has {0} bytes, more than {CHECKPOINT_BYTES_MAX}")]
    CheckpointTooLong(usize),
    /// A kind of frame that does not exist in this direction or at this point, or one that does
    /// not decode.
    #[error("a control frame of kind {0} cannot be decoded")]
    Malformed(u8),
}

/// Everything a keeper needs to start its agent, and to do without the daemon should it die.
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
    /// Where the keeper listens for the next daemon: an absolute path of any length, in a folder
    /// that exists. `None`: nowhere, and `orphan_grace` counts as zero.
    pub socket: Option<PathBuf>,
    /// How long the keeper waits for the next daemon once this one is gone, before it ends its
    /// tree.
    pub orphan_grace: Duration,
    /// How long an agent whose standard input ended may take to end by itself.
    pub eof_grace: Duration,
    /// How long it may take after SIGTERM.
    pub term_grace: Duration,
    /// The agent's limit of open descriptors, soft and hard: what the daemon had before it raised
    /// its own. `None`: what the keeper's program says, else the keeper's own. Below about 16 the
    /// agent's pipes cannot be made.
    pub nofile: Option<(u64, u64)>,
}

impl fmt::Debug for Launch {
    /// Arguments and environment hold secrets: they are counted, not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("argv", &self.argv.len())
            .field("env", &self.env.len())
            .field("orphan_grace", &self.orphan_grace)
            .field("eof_grace", &self.eof_grace)
            .field("term_grace", &self.term_grace)
            .finish_non_exhaustive()
    }
}

/// What a daemon leaves with a keeper for the daemon after it: at most [`CHECKPOINT_BYTES_MAX`]
/// bytes, which mean nothing to the keeper.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Checkpoint(pub Vec<u8>);

impl fmt::Debug for Checkpoint {
    /// It may hold what an agent said: it is counted, not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({} bytes)", self.0.len())
    }
}

/// From the daemon to the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToKeeper {
    /// Start the agent.
    Launch(Launch),
    /// Obey the sender from now on, and tell it what there is. One who only connects changes
    /// nothing.
    TakeOver,
    /// Drop the keeper's copy of the agent's standard input.
    CloseStdin,
    /// Keep this for the next daemon. Only the newest is kept.
    Checkpoint(Checkpoint),
    /// The session lets go of the agent, but some of its tree may live on: forget what it writes,
    /// and leave as soon as there is no child, with or without a daemon.
    Retire {
        /// After this time what is left is terminated and then killed; `None`: never.
        until: Option<Duration>,
    },
    /// End the tree as after the loss of the daemon, without waiting for another one.
    End,
    /// End when there is no child; kill what is left first.
    Leave,
}

/// From the keeper to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromKeeper {
    /// The agent runs. Its standard streams come along as descriptors.
    Started(ProcIdentity),
    /// The agent could not be started.
    LaunchFailed(LaunchError),
    /// The agent has ended, its descendants perhaps not.
    Exited(ExitStatus),
    /// The last process below the keeper is gone, zombies included.
    Empty,
    /// What the keeper has, for a daemon that took over. The agent's standard streams come along
    /// as descriptors: none when retired, else stdout and stderr, with stdin before them if that
    /// is open.
    Held {
        /// The agent, whether or not it still runs.
        agent: ProcIdentity,
        /// How it ended, once it has.
        exited: Option<ExitStatus>,
        /// The last process below the keeper is gone.
        empty: bool,
        /// The agent's standard input was not closed.
        stdin_open: bool,
        /// [`ToKeeper::Retire`] came.
        retired: bool,
        /// The newest checkpoint; empty if none came.
        checkpoint: Checkpoint,
    },
    /// The keeper is ending its tree and takes no orders any more.
    Ending,
    /// The keeper does not understand who connected, for instance because that is of another
    /// release: the version of this very frame says of which release the keeper is.
    Refused,
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
            LaunchStep::Socket => write!(f, "failed to listen on the keeper's socket: {cause}"),
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
    /// Listening for the next daemon.
    Socket,
}
