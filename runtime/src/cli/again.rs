//! For verbs that follow something while the daemon ends: the next daemon, if one comes soon.
//!
//! A restart closes every connection, and the daemon that follows knows all that the old one did.
//! Nothing is asked here that must not be asked twice.

use std::time::Duration;

use drowse_client::ClientError;
use tokio::time::{Instant, sleep};

/// 10 s: a restart takes one or two; a daemon that ended for good is not waited for much longer.
const RETURN_MAX: Duration = Duration::from_secs(10);

/// 50 ms: often enough not to miss much of what is said.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks until the next daemon answers; `None`: none came in time.
pub(crate) async fn of_next_daemon<T>(ask: impl AsyncFn() -> Result<T, ClientError>) -> Option<T> {
    let begun = Instant::now();
    while begun.elapsed() < RETURN_MAX {
        // Also before the first time: one that has just ended is not back at once.
        sleep(LOOK_EVERY).await;
        if let Ok(answer) = ask().await {
            return Some(answer);
        }
    }
    None
}
