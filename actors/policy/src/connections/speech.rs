//! What the connections of a session are told, and what they want done.
//!
//! Fed by the endpoint's switchboard, read by it. Plain data: the meaning is in `connections.rs`.

use std::time::Duration;

use drowse_messages::{CloseWhy, FailureCode, MonoTime, Role};

use super::CallKind;

/// One WebSocket, by a number that never comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u64);

/// One connection, by a number that never comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// One call, by a number that never comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What opens a connection again. 128 random bits: nobody guesses them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ResumeKey(pub [u8; 16]);

impl std::fmt::Debug for ResumeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResumeKey")
    }
}

/// What a client wants of a new socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// What for.
    pub role: Role,
    /// The client's name.
    pub name: String,
    /// Take the driver's place.
    pub take_over: bool,
    /// Which connection to take up again.
    pub resume: Option<ResumeKey>,
    /// False: the connection ends with its socket.
    pub keep: bool,
    /// Close it after so much silence without a call.
    pub idle: Option<Duration>,
    /// Close it after so much time.
    pub hard: Option<Duration>,
    /// The number of the connection, if it becomes a new one.
    pub fresh: ConnectionId,
    /// The key of it.
    pub key: ResumeKey,
}

/// How a socket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// The client said goodbye: it does not come back.
    Said,
    /// It broke.
    Lost,
}

/// What the switchboard feeds in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A socket said hello.
    Greeted(SocketId, Box<Greeting>),
    /// Something came in on a socket.
    Heard(SocketId),
    /// A request came in.
    Called {
        /// Where.
        socket: SocketId,
        /// Its number.
        call: CallId,
        /// What sort it is.
        kind: CallKind,
        /// The client's own bound for it; zero: none.
        timeout: Option<Duration>,
    },
    /// What a call does is done, and its answer is there.
    Answered(CallId),
    /// The socket is over.
    Gone(SocketId, Farewell),
    /// The client does not read.
    Stuck(SocketId),
    /// From now on the session waits for a person, or no longer.
    PersonAwaited(bool),
    /// The session is as old as it may become.
    SessionHardLimit,
    /// Everything ends: the session was removed, or the daemon is going.
    Ended(CloseWhy),
    /// Time has passed.
    Tick,
}

/// Why a hello was not granted. The socket may say another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The kind.
    pub code: FailureCode,
    /// Who drives, for `driven`.
    pub by: Option<String>,
    /// When it may be granted.
    pub retry_in: Option<Duration>,
    /// True: the connection asked for was replaced by another client.
    pub superseded: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answer a hello.
    Welcome {
        /// Where.
        socket: SocketId,
        /// Which connection it is now of.
        connection: ConnectionId,
        /// Its key.
        key: ResumeKey,
        /// What for.
        role: Role,
        /// True when it existed before.
        resumed: bool,
    },
    /// Answer a hello with a failure.
    Reject(SocketId, Rejection),
    /// Do what was asked.
    Run(SocketId, CallId),
    /// Send the answer.
    Deliver(SocketId, CallId),
    /// Answer with this instead.
    Fail(SocketId, CallId, FailureCode),
    /// Drop the answer, and log it: nobody waits for it any more.
    DropLate(CallId),
    /// Ask whether anybody is there.
    Ping(SocketId),
    /// Say that the hard limit is near.
    Warn(SocketId, Duration),
    /// Close the socket; these calls are under way, and their outcome is unknown.
    Close(SocketId, CloseWhy, Vec<CallId>),
    /// End the socket without a word: nobody is there.
    Cut(SocketId),
    /// Hold the session until then.
    Hold(MonoTime),
    /// Hold it no longer.
    Lift,
}
