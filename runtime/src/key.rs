//! Keys of a state folder: 32 random bytes each, in a file that only its owner can read.
//!
//! Invariant: a key is made once and never replaced; one that is lost or damaged is said.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// 32 bytes: what the ciphers take.
pub(crate) const KEY_BYTES: usize = 32;

/// The key at `path`; says for people why there is none. `make_one`: one is made where none is.
pub(crate) fn read(path: &Path, make_one: bool) -> Result<[u8; KEY_BYTES], String> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && make_one => {
            make(path).map_err(|error| format!("cannot make it: {error}"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("the file is missing".to_owned())
        }
        Err(error) => Err(error.to_string()),
        Ok(bytes) => <[u8; KEY_BYTES]>::try_from(bytes.as_slice())
            .map_err(|_| format!("the file has {} bytes instead of {KEY_BYTES}", bytes.len())),
    }
}

/// Makes a key and brings it to the disk, name and all, before anything is sealed with it: a
/// sealed recipe must not outlive its key in a power cut.
fn make(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let key: [u8; KEY_BYTES] = random()?;
    let unfinished = path.with_extension("unfinished");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(&key)?;
    file.sync_all()?;
    // A link fails where a rename would replace: a key that appeared meanwhile stays.
    fs::hard_link(&unfinished, path)?;
    fs::remove_file(&unfinished)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(key)
}

pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}
