//! Seals what is secret of a session: arguments and environment of its recipe, and what its host
//! gives to the agent.
//!
//! XChaCha20-Poly1305 under a key of this state folder, bound to the session, so that a sealed
//! recipe opens neither elsewhere nor for another session. The key is a file that only its owner
//! can read: this guards against the database being copied, backed up or looked into, not against
//! somebody who can read the whole folder as its owner. Invariant: a key is never replaced; one
//! that is lost or wrong fails the sessions that need it and nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use drowse_actors::ports::StoreError;
use drowse_messages::{KeptRelay, SessionId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::key::{self, random};

/// Of the cipher: large enough to be drawn at random for each sealing.
const NONCE_BYTES: usize = 24;

/// First byte of a sealed recipe, so that another way of sealing can follow.
const FORM: u8 = 1;

/// What is sealed: nothing for a recipe, which was the first.
const RECIPE: &[u8] = b"";
const RELAY: &[u8] = b"relay";

/// What is secret of a recipe.
#[derive(Serialize, Deserialize)]
pub(super) struct Secrets {
    /// See `Recipe::argv`.
    pub(super) argv: Vec<String>,
    /// See `Recipe::env`.
    pub(super) env: BTreeMap<String, String>,
}

/// Seals and opens. The key file is made with the first sealing and read once.
pub(super) struct Seal {
    path: PathBuf,
    cipher: OnceLock<XChaCha20Poly1305>,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Seal {
    /// Of the key file at `path`, which need not exist.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            cipher: OnceLock::new(),
        }
    }

    /// Seals the secrets of a session. Makes the key if there is none.
    pub(super) fn seal(&self, id: SessionId, secrets: &Secrets) -> Result<Vec<u8>, StoreError> {
        self.seal_as(id, RECIPE, secrets)
    }

    /// Opens what [`Seal::seal`] made for this session.
    pub(super) fn open(&self, id: SessionId, sealed: &[u8]) -> Result<Secrets, StoreError> {
        self.open_as(id, RECIPE, sealed)
    }

    /// Seals what a host gave.
    pub(super) fn seal_relay(
        &self,
        id: SessionId,
        kept: &KeptRelay,
    ) -> Result<Vec<u8>, StoreError> {
        self.seal_as(id, RELAY, kept)
    }

    /// Opens what [`Seal::seal_relay`] made for this session.
    pub(super) fn open_relay(&self, id: SessionId, sealed: &[u8]) -> Result<KeptRelay, StoreError> {
        self.open_as(id, RELAY, sealed)
    }

    fn seal_as(
        &self,
        id: SessionId,
        what: &[u8],
        secret: &impl Serialize,
    ) -> Result<Vec<u8>, StoreError> {
        let cipher = self
            .cipher(true)
            .map_err(|why| self.cannot("seal", id, &why))?;
        let plain = serde_json::to_vec(secret)
            .map_err(|error| self.cannot("seal", id, &error.to_string()))?;
        let nonce: [u8; NONCE_BYTES] =
            random().map_err(|error| self.cannot("seal", id, &error.to_string()))?;
        let sealed = cipher
            .encrypt(
                &XNonce::from(nonce),
                Payload {
                    msg: &plain,
                    aad: &bound(id, what),
                },
            )
            .map_err(|_| self.cannot("seal", id, "they are too long"))?;
        Ok([&[FORM], nonce.as_slice(), sealed.as_slice()].concat())
    }

    fn open_as<T: DeserializeOwned>(
        &self,
        id: SessionId,
        what: &[u8],
        sealed: &[u8],
    ) -> Result<T, StoreError> {
        let cipher = self
            .cipher(false)
            .map_err(|why| self.cannot("open", id, &why))?;
        let [FORM, rest @ ..] = sealed else {
            return Err(self.cannot(
                "open",
                id,
                "a newer drowse sealed them, or they are damaged",
            ));
        };
        let Some((nonce, body)) = rest.split_first_chunk::<NONCE_BYTES>() else {
            return Err(self.cannot("open", id, "they are cut short"));
        };
        let plain = cipher
            .decrypt(
                &XNonce::from(*nonce),
                Payload {
                    msg: body,
                    aad: &bound(id, what),
                },
            )
            .map_err(|_| self.cannot("open", id, "this is not the key they were sealed with"))?;
        // What serde says could repeat a piece of the secret, so it is not passed on.
        serde_json::from_slice(&plain)
            .map_err(|_| self.cannot("open", id, "they have a form drowse does not know"))
    }

    fn cannot(&self, verb: &str, id: SessionId, why: &str) -> StoreError {
        StoreError::Failed(format!(
            "cannot {verb} the secrets of session {id} with the key {}: {why}; \
             put the right key back and restart drowse, or remove the session and open it again",
            self.path.display()
        ))
    }

    fn cipher(&self, make: bool) -> Result<&XChaCha20Poly1305, String> {
        if let Some(cipher) = self.cipher.get() {
            return Ok(cipher);
        }
        let key = key::read(&self.path, make)?;
        Ok(self
            .cipher
            .get_or_init(|| XChaCha20Poly1305::new(&key.into())))
    }
}

/// What a sealing is bound to: a sealed recipe opens neither for another session nor as anything
/// else.
fn bound(id: SessionId, what: &[u8]) -> Vec<u8> {
    [&id.as_u64().to_be_bytes(), what].concat()
}
