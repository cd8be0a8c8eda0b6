//! For verbs that follow something while the daemon ends: the next daemon, if one comes soon.
//!
//! A restart closes every connection, and the daemon that follows knows all that the old one did.
//! Nothing is asked here that must not be asked twice.

use std::time::Duration;

use drowse_client::{Client, ClientError, EventStream, EventsQuery};
use tokio::time::{Instant, sleep};

/// 10 s: a restart takes one or two; a daemon that ended for good is not waited for much longer.
const RETURN_MAX: Duration = Duration::from_secs(10);

/// 60 s for verbs that stay for hours: as long as agents outlive a daemon that died, so whoever
/// starts the next one in time finds them still attached.
const FOLLOWED_MAX: Duration = Duration::from_secs(60);

/// 50 ms: often enough not to miss much of what is said.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks until the next daemon answers; `None`: none came in time.
pub(crate) async fn of_next_daemon<T>(ask: impl AsyncFn() -> Result<T, ClientError>) -> Option<T> {
    within(RETURN_MAX, ask).await
}

/// The stream that goes on where another broke off, of the same daemon or of the next; `None`:
/// none came in time. An error is that daemon's word on the session.
pub(crate) async fn followed_on(
    client: &Client,
    query: &EventsQuery,
) -> Option<Result<EventStream, ClientError>> {
    let ask = async || match client.events(query).await {
        Err(error) if error.code() == Some("no_such_session") => Ok(Err(error)),
        answer => answer.map(Ok),
    };
    within(FOLLOWED_MAX, ask).await
}

/// Asks, and asks the next daemon when this one ends meanwhile. Only for what can be asked twice.
pub(crate) async fn of_either_daemon<T>(
    ask: impl AsyncFn() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    match ask().await {
        Err(error) if matches!(error.code(), None | Some("draining")) => {
            within(FOLLOWED_MAX, ask).await.ok_or(error)
        }
        answer => answer,
    }
}

async fn within<T>(limit: Duration, ask: impl AsyncFn() -> Result<T, ClientError>) -> Option<T> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        // Also before the first time: one that has just ended is not back at once.
        sleep(LOOK_EVERY).await;
        if let Ok(answer) = ask().await {
            return Some(answer);
        }
    }
    None
}
