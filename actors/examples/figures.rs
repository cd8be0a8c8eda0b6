//! Prints what a session costs in memory and how fast steps go through its actor.
//!
//! Over the fakes, on virtual time, with every allocation counted. The figures are for people: no
//! time is asserted, because machines differ. Run it in release mode.

use std::alloc::{GlobalAlloc, Layout, System as Allocator};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;

use actix::System;
use drowse_actors::testing::{Fakes, message, open, session};
use drowse_actors::{DaemonHandle, session::SessionActor};
use drowse_messages::{Activity, ActivityKind, Order, SessionState, Stop, StopHow, Wake, Who};
use drowse_policy::{Input, session::Session};

/// Enough that what the daemon has once does not show in the mean.
const SESSIONS: isize = 2_000;
/// Pieces of output in one read of an agent's pipe.
const PIECES: usize = 50;
/// Reads of that pipe.
const READS: usize = 10_000;

static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

#[derive(Debug)]
struct Counting;

#[expect(unsafe_code, reason = "counting allocations takes an allocator")]
// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { Allocator.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { Allocator.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live_bytes() -> isize {
    LIVE_BYTES.load(Ordering::Relaxed)
}

#[expect(clippy::print_stdout, reason = "figures are what this prints")]
fn print(what: &str, figure: impl std::fmt::Display) {
    println!("{what:<58} {figure:>12}");
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

async fn assert_all(daemon: &DaemonHandle, state: SessionState) {
    let status = daemon.status().await.expect("the daemon serves");
    let count = status.states.iter().find(|count| count.state == state);
    let sessions = count.map_or(0, |count| count.sessions);
    assert_eq!(
        sessions,
        ids().count() as u64,
        "every session is {}",
        state.code()
    );
}

/// Bytes the actors hold, without what the fakes wrote down meanwhile.
fn bytes_of_actors(fakes: &Fakes) -> isize {
    fakes.journal.clear();
    fakes.store.clear_recorded();
    live_bytes()
}

fn ids() -> impl Iterator<Item = u64> {
    (0..).take(SESSIONS.unsigned_abs())
}

async fn order_all(daemon: &DaemonHandle, order: Order) {
    for number in ids() {
        let accepted = daemon.order(session(number), order.clone()).await;
        accepted.expect("each session takes the order");
    }
}

async fn print_memory(fakes: &Fakes, daemon: &DaemonHandle) {
    for number in ids() {
        let opened = daemon.open(open(number)).await;
        opened.expect("the store is empty");
        let accepted = daemon.send(session(number), message("hello")).await;
        accepted.expect("the daemon serves");
    }
    let by = || Who::Client("figures".to_owned());
    pass(Duration::from_secs(3600)).await;
    assert_all(daemon, SessionState::Released).await;
    let asleep = bytes_of_actors(fakes);

    let wake = Wake {
        fresh: false,
        by: by(),
    };
    order_all(daemon, Order::Wake(wake)).await;
    pass(Duration::from_secs(300)).await;
    assert_all(daemon, SessionState::Resting).await;
    let awake = bytes_of_actors(fakes);

    let how = StopHow::Release;
    order_all(daemon, Order::Stop(Stop { how, by: by() })).await;
    pass(Duration::from_secs(60)).await;
    assert_all(daemon, SessionState::Released).await;
    let asleep_again = bytes_of_actors(fakes);

    let each = |bytes: isize| bytes / SESSIONS;
    print("SessionActor, itself, bytes", size_of::<SessionActor>());
    print("Session (policy), itself, bytes", size_of::<Session>());
    print(
        "a session at rest, with its report and its fake tree, bytes",
        each(awake - asleep),
    );
    print(
        "left of it once released, bytes",
        each(asleep_again - asleep),
    );
}

#[expect(
    clippy::disallowed_types,
    reason = "how fast real steps are is not virtual time"
)]
async fn print_speed(fakes: &Fakes, daemon: &DaemonHandle) {
    let id = session(0);
    let accepted = daemon.send(id, message("talk")).await;
    accepted.expect("the daemon serves");
    fakes.behave(|manners| manners.turn_takes = None);
    pass(Duration::from_secs(1)).await;
    let piece = Input::Activity(Activity {
        incarnation: Some(fakes.backends.incarnation(id)),
        kind: ActivityKind::Output("forty bytes of an answer, more or less..".to_owned()),
    });
    let began = std::time::Instant::now();
    for _ in 0..READS {
        fakes.backends.tell(id, vec![piece.clone(); PIECES]);
    }
    // One round through every mailbox.
    pass(Duration::from_millis(1)).await;
    let nanos = began.elapsed().as_nanos();
    let steps = (READS * PIECES) as u128;
    print(
        "steps through one actor, each published, per second",
        steps * 1_000_000_000 / nanos,
    );
    print("one of them, ns", nanos / steps);
}

fn main() {
    System::new().block_on(async {
        tokio::time::pause();
        let fakes = Fakes::new();
        let daemon = fakes.serve();
        print_memory(&fakes, &daemon).await;
        print_speed(&fakes, &daemon).await;
    });
}
