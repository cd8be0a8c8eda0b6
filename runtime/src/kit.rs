//! The agent kit: what every backend is given so that whatever runs inside it can speak for its own
//! session.
//!
//! A hook, an extension or a script inside an agent says `drowse task start NAME` or `drowse hold`;
//! these variables tell the verb where the daemon is, which session it speaks for and with what
//! right. Set by `backend`, read by the command line. See [`crate::token`].

/// The session's id. It is also the mark by which processes of a lost keeper are found.
pub(crate) use crate::process::spawn::SESSION_VARIABLE;

/// The daemon's Unix socket.
pub(crate) const SOCKET_VARIABLE: &str = "DROWSE_SOCKET";

/// The session's token.
pub(crate) const TOKEN_VARIABLE: &str = "DROWSE_TOKEN";
