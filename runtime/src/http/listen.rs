//! Where the endpoint listens: a Unix socket only we can open, and loopback TCP with a token.
//!
//! Fed by the configuration. Invariants: the socket appears under its name with its final mode;
//! one that somebody listens on is never taken; the token is on disk before TCP listens (D54,
//! behaviour 100).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::token::is_same;

/// What the kernel has room for, without the NUL behind it.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// 32 random bytes: nobody guesses them.
const TOKEN_BYTES: usize = 32;

/// Why the endpoint does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The path does not fit a socket address.
    #[error(
        "socket path {path:?} is {bytes} bytes long, and {SOCKET_PATH_BYTES_MAX} are possible; \
         choose a shorter one with --socket"
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// Other users could put something of theirs in the folder's place.
    #[error("cannot put the socket in folder {folder:?}: {why}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another daemon.
    #[error("somebody listens on {path:?} already")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket has its name.
    #[error("{path:?} is in the way: it is no socket")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The token could not be kept.
    #[error("failed to write the token file {path:?}")]
    Token {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system said no.
    #[error("failed to listen on {on}")]
    Io {
        /// The path or address.
        on: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A bound Unix socket. Its name goes when it is dropped, unless another one has taken it.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl UnixSocket {
    /// Binds `path`. A missing folder is made with mode 0700; one that exists must be ours, and
    /// nobody else may write to it. A socket nobody listens on is replaced.
    ///
    /// # Errors
    ///
    /// See [`ListenError`].
    pub fn bind(path: &Path) -> Result<Self, ListenError> {
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX {
            return Err(ListenError::PathTooLong {
                path: path.to_owned(),
                bytes,
            });
        }
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        own_folder(folder)?;
        refuse_taken(path)?;
        Self::bind_in(folder, path).map_err(|source| ListenError::Io {
            on: path.display().to_string(),
            source,
        })
    }

    /// Binds under another name first, because a socket is born with the mode of the umask.
    fn bind_in(folder: &Path, path: &Path) -> io::Result<Self> {
        let born = folder.join(format!(".{}", std::process::id()));
        match fs::remove_file(&born) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&born)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(&born, fs::Permissions::from_mode(0o600))?;
        fs::rename(&born, path)?;
        let meta = fs::symlink_metadata(path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            device_and_inode: (meta.dev(), meta.ino()),
        })
    }

    /// Its name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == self.device_and_inode);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the socket stays behind");
        }
    }
}

fn own_folder(folder: &Path) -> Result<(), ListenError> {
    let wrong = |why: String| ListenError::Folder {
        folder: folder.to_owned(),
        why,
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| wrong(format!("it cannot be made: {error}")))?;
    let meta = fs::symlink_metadata(folder).map_err(|error| wrong(error.to_string()))?;
    let me = nix::unistd::geteuid().as_raw();
    if !meta.is_dir() {
        return Err(wrong("it is no folder, or a link to one".to_owned()));
    }
    if meta.uid() != me {
        return Err(wrong(format!(
            "it belongs to user {}, and you are {me}",
            meta.uid()
        )));
    }
    let mode = meta.mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(wrong(format!(
            "others may write to it (mode {mode:o}); chmod 700 ends that"
        )));
    }
    Ok(())
}

fn refuse_taken(path: &Path) -> Result<(), ListenError> {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !meta.file_type().is_socket() {
        return Err(ListenError::NotASocket {
            path: path.to_owned(),
        });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        // A full queue of connections is somebody, too.
        Ok(_) | Err(_) => Err(ListenError::InUse {
            path: path.to_owned(),
        }),
    }
}

/// A bound loopback address and the token that opens it.
#[derive(Debug)]
pub struct TcpSocket {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
    pub(super) token: Token,
    /// Opens what only looks.
    pub(super) read_token: Token,
}

/// What is put behind the name of the token's file for the one that only looks.
const READ_SUFFIX: &str = "-read";

impl TcpSocket {
    /// Reads or writes the tokens, then binds. The one that only looks has a file of its own
    /// beside the other's. The address is loopback: the configuration refuses others, and so does
    /// this.
    ///
    /// # Errors
    ///
    /// See [`ListenError`].
    pub fn bind(address: SocketAddr, token_file: &Path) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Io {
            on: address.to_string(),
            source,
        };
        if !address.ip().is_loopback() {
            return Err(failed(io::Error::other("not a loopback address")));
        }
        let keep = |path: &Path| {
            Token::keep(path).map_err(|source| ListenError::Token {
                path: path.to_owned(),
                source,
            })
        };
        let token = keep(token_file)?;
        let mut read_file = token_file.as_os_str().to_owned();
        read_file.push(READ_SUFFIX);
        let read_token = keep(Path::new(&read_file))?;
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            token,
            read_token,
        })
    }

    /// Where it listens; the port is never 0.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// What a client on TCP must know: 64 hexadecimal digits.
#[derive(Clone)]
pub(super) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The token of the file, or a new one written to it. One that others could read, or that is
    /// damaged, is replaced.
    fn keep(path: &Path) -> io::Result<Self> {
        match Self::read(path) {
            Ok(Some(token)) => return Ok(token),
            Ok(None) => tracing::warn!(path = %path.display(), "the token was unusable: a new one"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let token = Self::random()?;
        token.write(path)?;
        Ok(token)
    }

    fn read(path: &Path) -> io::Result<Option<Self>> {
        let open = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path);
        let file = open?;
        let meta = file.metadata()?;
        let private = meta.mode() & 0o077 == 0 && meta.uid() == nix::unistd::geteuid().as_raw();
        let mut text = String::new();
        let limit = TOKEN_BYTES as u64 * 4;
        if file.take(limit).read_to_string(&mut text).is_err() {
            return Ok(None);
        }
        let digits = text.trim_end();
        let whole = digits.len() == TOKEN_BYTES * 2
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        Ok((private && whole).then(|| Self(digits.to_owned())))
    }

    fn random() -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// Written beside and renamed, so that a reader sees a whole token or none.
    fn write(&self, path: &Path) -> io::Result<()> {
        let beside = path.with_extension("new");
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file: File = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        writeln!(file, "{}", self.0)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    }

    /// Compares in a time that depends on the length alone.
    pub(super) fn is(&self, offered: &[u8]) -> bool {
        is_same(self.0.as_bytes(), offered)
    }
}
