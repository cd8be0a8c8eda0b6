//! The shells on paused time: facts of actix they rest on, one test for each effect and each
//! message, and what the registry, the bus and the status actor promise.
//!
//! Everything runs on one thread, with the fakes of `crate::testing`. An hour of a session takes
//! a millisecond, and a test that waits waits for a fact.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use actix::System;
use drowse_messages::{
    MessageId, MessageState, Order, SessionId, SessionReport, SessionState, Stop, StopHow, Wake,
    Who,
};

use crate::DaemonHandle;
use crate::testing::{Fakes, message, open, session};

mod actix_facts;
mod adopt;
mod bus;
mod drain;
mod effects;
mod holds;
mod inputs;
mod keep;
mod life;
mod registry;
mod status;
mod steps;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs a test with a clock that stands still while anything is left to do.
fn on_paused_time<T>(test: impl Future<Output = T>) -> T {
    System::new().block_on(async {
        tokio::time::pause();
        test.await
    })
}

/// Lets virtual time pass, and everything that is due in it happen.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Lets everything that is already under way happen.
async fn settle() {
    pass(Duration::from_millis(1)).await;
}

/// Lets every task that is ready have this many turns. Unlike tokio's own `yield_now`, which lets
/// all of them run until none is ready.
async fn turns(turns: u32) {
    for _ in 0..turns {
        let mut yielded = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// A daemon over fakes.
struct World {
    fakes: Fakes,
    daemon: DaemonHandle,
}

impl World {
    fn new() -> Self {
        let fakes = Fakes::new();
        let daemon = fakes.serve();
        Self { fakes, daemon }
    }

    async fn open(&self, number: u64) -> SessionId {
        let report = self.daemon.open(open(number)).await.unwrap();
        assert_eq!(report.id, session(number));
        report.id
    }

    async fn say(&self, id: SessionId, text: &str) -> MessageId {
        self.daemon.send(id, message(text)).await.unwrap().message
    }

    /// Opens a session and lets it answer a first message; it rests then.
    async fn rested(&self, number: u64) -> SessionId {
        let id = self.open(number).await;
        self.say(id, "hello").await;
        self.until(id, SessionState::Resting).await;
        id
    }

    async fn report(&self, id: SessionId) -> SessionReport {
        self.daemon.report(id).await.unwrap()
    }

    /// Waits for a state, at most 10 hours of virtual time; looks the less often, the longer it
    /// has waited.
    async fn until(&self, id: SessionId, state: SessionState) {
        let began = tokio::time::Instant::now();
        while began.elapsed() < 10 * HOUR {
            if self.report(id).await.state == state {
                return;
            }
            pass((began.elapsed() / 50).clamp(Duration::from_millis(5), 10 * SECOND)).await;
        }
        panic!(
            "{id} never came to {state:?}: {:?}",
            self.fakes.journal.of("")
        );
    }

    async fn message_state(&self, id: MessageId) -> MessageState {
        self.daemon.message(id).await.unwrap().state
    }

    async fn count_of(&self, state: SessionState) -> u64 {
        let status = self.daemon.status().await.unwrap();
        let count = status.states.iter().find(|count| count.state == state);
        count.unwrap().sessions
    }

    fn launches(&self) -> usize {
        self.fakes.journal.count("backends: launch")
    }
}

fn client() -> Who {
    Who::Client("test".to_owned())
}

fn stop(how: StopHow) -> Order {
    Order::Stop(Stop { how, by: client() })
}

fn wake() -> Order {
    Order::Wake(Wake {
        fresh: false,
        by: client(),
    })
}
