//! Tokens of sessions: what an agent, and whatever runs inside it, shows to speak for its own
//! session and no other.
//!
//! Derived from a key of the state folder and the session's id, so that nothing is kept for each
//! session and a token outlives the daemon. Fed by backends, which hand them out, and by the
//! endpoint, which reads them. Invariants: a token is in no log, event or report; two are compared
//! in a time that says nothing of either.

use std::path::{Path, PathBuf};

use chacha20poly1305::aead::Aead;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use drowse_messages::SessionId;

use crate::key;

/// The key of the tokens, inside the state folder.
const KEY: &str = "tokens.key";

/// 32 bytes of a token: nobody guesses them.
const SECRET_BYTES: usize = 32;

/// Stands before the session's id in what a token is derived from, so that another thing can be
/// derived from the same key one day. With the id it is as long as the cipher's nonce.
const PURPOSE: &[u8; 16] = b"drowse:session:1";

/// Why there are no tokens.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the key of the session tokens, {path}: {why}", path = .path.display())]
pub struct TokenError {
    path: PathBuf,
    why: String,
}

/// Makes the tokens of one state folder and knows them again.
pub struct SessionTokens {
    cipher: XChaCha20Poly1305,
}

impl std::fmt::Debug for SessionTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionTokens")
    }
}

impl SessionTokens {
    /// Of this state folder. Makes the key if there is none.
    ///
    /// # Errors
    /// The key cannot be made or read, or is damaged.
    pub fn of(state_dir: &Path) -> Result<Self, TokenError> {
        let path = state_dir.join(KEY);
        let key = key::read(&path, true).map_err(|why| TokenError { path, why })?;
        let cipher = XChaCha20Poly1305::new(&key.into());
        Ok(Self { cipher })
    }

    /// The token of a session: its id, a dot, 64 hexadecimal digits.
    #[must_use]
    pub fn token(&self, session: SessionId) -> String {
        let secret = self.secret(session);
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{session}.{digits}")
    }

    /// The session that a token is for; `None`: it is none of ours.
    #[must_use]
    pub fn session(&self, token: &[u8]) -> Option<SessionId> {
        let (id, _) = std::str::from_utf8(token).ok()?.split_once('.')?;
        let session: SessionId = id.parse().ok()?;
        is_same(self.token(session).as_bytes(), token).then_some(session)
    }

    /// The key stream of the cipher under a nonce that belongs to the session alone: without the
    /// key it cannot be told from random bytes, nor can one be had from another.
    fn secret(&self, session: SessionId) -> Vec<u8> {
        let mut nonce = [0; PURPOSE.len() + size_of::<u64>()];
        let (purpose, id) = nonce.split_at_mut(PURPOSE.len());
        purpose.copy_from_slice(PURPOSE);
        id.copy_from_slice(&session.as_u64().to_be_bytes());
        let mut stream = self
            .cipher
            .encrypt(&XNonce::from(nonce), [0; SECRET_BYTES].as_slice())
            .expect("a few bytes are never too long for the cipher");
        // What follows authenticates the bytes and is no secret of its own.
        stream.truncate(SECRET_BYTES);
        stream
    }
}

/// True for a token of some session, by its form.
pub(crate) fn is_token_of_session(token: &[u8]) -> bool {
    token.contains(&b'.')
}

/// Compares in a time that depends on the lengths alone.
pub(crate) fn is_same(own: &[u8], offered: &[u8]) -> bool {
    let differing = own.iter().zip(offered).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differing) == 0 && own.len() == offered.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> SessionId {
        SessionId::from_random(number)
    }

    /// A token outlives the daemon, and is for one session of one state folder.
    #[test]
    fn a_token_is_for_its_session_alone() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tokens = SessionTokens::of(here.path()).unwrap();
        let token = tokens.token(id(7));
        assert_eq!(tokens.session(token.as_bytes()), Some(id(7)));
        let later = SessionTokens::of(here.path()).unwrap();
        assert_eq!(later.token(id(7)), token);
        let elsewhere = SessionTokens::of(there.path()).unwrap();
        assert_eq!(elsewhere.session(token.as_bytes()), None);

        let (_, secret) = token.split_once('.').unwrap();
        for wrong in [
            format!("{}.{secret}", id(8)),
            format!("{}.", id(7)),
            token[..token.len() - 1].to_owned(),
            format!("{token}0"),
            token.to_uppercase(),
            secret.to_owned(),
            String::new(),
            ".".to_owned(),
        ] {
            assert_eq!(tokens.session(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(tokens.session(b"\xff."), None);
    }

    #[test]
    fn a_damaged_key_is_said_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(KEY);
        std::fs::write(&path, "short").unwrap();
        let error = SessionTokens::of(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("tokens.key: the file has 5 bytes"),
            "{error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"short");
    }
}
