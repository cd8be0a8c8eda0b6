//! One daemon for each state folder.
//!
//! The lock is the kernel's (`flock`), so it ends with the process however that ends; the file's
//! text only tells people who holds it.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Why the state folder is not ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Somebody has it.
    #[error("{folder} belongs to a running drowse already ({holder})")]
    Held {
        /// The state folder.
        folder: PathBuf,
        /// What the holder wrote about itself.
        holder: String,
    },
    /// The file cannot be used.
    #[error("failed to lock {path}")]
    Io {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The held lock.
#[derive(Debug)]
pub(crate) struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes the lock of a state folder.
    pub(crate) fn take(folder: &Path, socket: &Path) -> Result<Self, LockError> {
        let path = folder.join("lock");
        let failed = |source| LockError::Io {
            path: path.clone(),
            source,
        };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            file.read_to_string(&mut holder).map_err(failed)?;
            let holder = holder.trim().to_owned();
            return Err(LockError::Held {
                folder: folder.to_owned(),
                holder,
            });
        }
        let text = format!("pid {}, socket {}\n", std::process::id(), socket.display());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(failed)?;
        Ok(Self { _file: file })
    }
}
