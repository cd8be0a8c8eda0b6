//! Keepers that no session owns: the daemon that started them died before it had written them down,
//! or their sessions could not be taken over.
//!
//! Fed by `backend.rs` at start, with the sockets in the folder of this daemon's keepers, and at the
//! end of a daemon that had let go of them already. Each is told to end its tree, which is waited
//! for, and is collected: after a restart in place it is a child of this process. What is left then
//! is found by the sweep.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::{Shared, launch};
use crate::process::link::{KeeperLink, TakeOverError, keeper_at};

/// How long a keeper may take to end its tree. 15 s: above its graces unless configured; the sweep
/// comes after it.
const END_MAX: Duration = Duration::from_secs(15);

/// Ends them all at once; says for people which there were.
pub(super) async fn end(shared: Rc<Shared>, sockets: Vec<PathBuf>) -> Vec<String> {
    let ends: Vec<_> = sockets
        .into_iter()
        .map(|socket| {
            let shared = shared.clone();
            actix_rt::spawn(async move { end_one(&shared, &socket).await })
        })
        .collect();
    let mut found = Vec::new();
    for end in ends {
        found.extend(end.await.ok().flatten());
    }
    found
}

async fn end_one(shared: &Shared, socket: &Path) -> Option<String> {
    let Some(keeper) = keeper_at(socket).await else {
        // Nobody listens: it was killed from outside, or the machine was started anew.
        if let Err(error) = std::fs::remove_file(socket) {
            tracing::debug!(socket = %socket.display(), %error, "failed to remove a socket");
        }
        return None;
    };
    match KeeperLink::take_over(keeper, socket).await {
        Ok((link, _)) => link.end(),
        // It is gone or going.
        Err(TakeOverError::Ending { .. } | TakeOverError::Gone { .. }) => {}
        Err(error) => return Some(format!("keeper {keeper}, not ended: {error}")),
    }
    let gone = async {
        while keeper_at(socket).await == Some(keeper) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let ended = tokio::time::timeout(END_MAX, gone).await.is_ok();
    launch::collect(shared, keeper, None);
    let how = if ended {
        "ended"
    } else {
        "still ending its tree"
    };
    Some(format!("keeper {keeper}, {how}"))
}

/// 20 ms: a keeper with an agent that obeys is gone within a few.
const LOOK_EVERY: Duration = Duration::from_millis(20);
