//! A thread with a bounded queue in front of it, ended by dropping it.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

/// How long dropping the store waits for each of its threads. A healthy disk takes what is queued
/// in far less; one that hangs must not keep the daemon from ending.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The thread and the way to it.
pub(super) struct Lane<T> {
    /// `None` while it is being dropped.
    queue: Option<Sender<T>>,
    /// Disconnected when the thread is over.
    over: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl<T> std::fmt::Debug for Lane<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Lane<T> {
    /// Starts a thread that is given the other end of the queue, and ends when that ends.
    pub(super) fn start(
        name: &str,
        capacity: usize,
        run: impl FnOnce(Receiver<T>) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, calls) = bounded(capacity);
        let (alive, over) = bounded(0);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                run(calls);
                drop::<Sender<()>>(alive);
            })?;
        Ok(Self {
            queue: Some(queue),
            over,
            thread: Some(thread),
        })
    }

    /// Queues a call if there is room at once.
    pub(super) fn offer(&self, call: T) -> Result<(), T> {
        match &self.queue {
            Some(queue) => queue.try_send(call).map_err(|refused| refused.into_inner()),
            None => Err(call),
        }
    }

    /// Queues a call, waiting for room for so long.
    pub(super) fn put(&self, call: T, wait: Duration) -> Result<(), T> {
        match &self.queue {
            Some(queue) => queue
                .send_timeout(call, wait)
                .map_err(|refused| refused.into_inner()),
            None => Err(call),
        }
    }
}

impl<T> Drop for Lane<T> {
    fn drop(&mut self) {
        // The thread takes what is queued, finds the queue disconnected, and ends.
        drop(self.queue.take());
        let late = self
            .over
            .recv_timeout(CLOSE_WAIT_MAX)
            .is_err_and(|error| error.is_timeout());
        let Some(thread) = self.thread.take() else {
            return;
        };
        if late {
            let name = thread.thread().name().unwrap_or_default();
            tracing::error!(
                thread = name,
                "the disk did not take the last writes in time"
            );
        } else if thread.join().is_err() {
            tracing::error!("a thread of the store panicked");
        }
    }
}
