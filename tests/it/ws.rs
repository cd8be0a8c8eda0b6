//! Connections to a session that break, and clients that do not read: the real daemon, real sockets,
//! and the client that programs use.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use drowse_client::{Client, Connection, Heard, Piece, SocketError};
use drowse_messages::{FailureCode, MessageState, Prompted, SessionEvent};
use drowse_tests::daemon::TestDaemon;
use drowse_tests::proxy::{Cut, Mode, Proxy};
use drowse_tests::{daemon, wait_until, watcher};

/// 200 cuts, from the first byte of a prompt to a while after its answer: no moment and kind twice.
const CUTS: u64 = 200;
/// 60 moments of a prompt: a turn of the fake agent takes some tens of steps.
const CUT_MOMENTS: u64 = 60;
/// 1 ms between two of them.
const CUT_STEP: Duration = Duration::from_millis(1);
/// 5 ms without a byte before a break: long enough for each side to have something on its way.
const CUT_FREEZE: Duration = Duration::from_millis(5);

/// Two heartbeats of 15 s, and some spare time.
const HEARTBEATS: Duration = Duration::from_secs(40);

fn proxy(daemon: &TestDaemon) -> Proxy {
    let socket = daemon.state_dir().join("drowse.sock");
    Proxy::start(daemon.path("p.sock"), &socket)
}

fn client(proxy: &Proxy) -> Client {
    Client::unix(proxy.path()).named("test")
}

/// Runs a client of its own on one thread.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime of one thread needs nothing special")
        .block_on(future)
}

async fn drive(client: &Client, id: &str) -> Connection {
    let connection = client.connection(id).drive().connect().await;
    connection.unwrap_or_else(|error| panic!("not connected: {error} {:?}", error.code()))
}

/// The answer of a prompt; when its outcome is unknown, the same key finds it.
async fn answer(connection: &Connection, text: &str, key: &str, unknown: &mut u64) -> Prompted {
    loop {
        match connection.prompt(text, Some(key)).await {
            Ok(prompted) => return prompted,
            Err(SocketError::Unknown(error)) => {
                assert_eq!(error.code, FailureCode::ConnectionResumed, "{error}");
                *unknown += 1;
            }
            Err(error) => panic!("{error} {:?}", error.code()),
        }
    }
}

/// Breaks the connection in the way and at the moment of this number, counted from now.
async fn break_at(proxy: &Proxy, cut: u64) {
    let small = |number: u64| u32::try_from(number).expect("small");
    tokio::time::sleep(CUT_STEP * small(cut % CUT_MOMENTS)).await;
    // Each round of moments begins with another kind.
    match (cut + cut / CUT_MOMENTS) % 4 {
        0 => proxy.cut(Cut::Both),
        1 => proxy.cut(Cut::ToClient),
        2 => proxy.cut(Cut::ToDaemon),
        _ => {
            proxy.mode(Mode::Freeze);
            tokio::time::sleep(CUT_FREEZE).await;
            proxy.cut(Cut::Both);
            proxy.mode(Mode::Pass);
        }
    }
}

/// D33, rows 99, 109, 113: cut at any moment of a prompt, each answer arrives once, each message is
/// one turn, an outcome that is not known is said to be so, and events come in order without a hole.
#[test]
fn a_client_cut_at_any_moment_loses_nothing() {
    let daemon = daemon!("cuts").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let proxy = proxy(&daemon);
    let (mut unknown, mut texts) = (0, Vec::new());
    run(async {
        let mut connection = drive(&client(&proxy), &id).await;
        let mut events = connection.events();
        for cut in 0..CUTS {
            let (text, key) = (format!("FAKE:say {cut}"), format!("key {cut}"));
            let asked = answer(&connection, &text, &key, &mut unknown);
            let broken = break_at(&proxy, cut);
            let (prompted, ()) = tokio::join!(asked, broken);
            assert_eq!(prompted.state, MessageState::Answered);
            assert!(
                prompted.answer.starts_with(&format!("SAID {cut} ")),
                "{prompted:?}"
            );
            texts.push(text);
        }
        let last = answer(&connection, "FAKE:say last", "last", &mut unknown).await;
        texts.push("FAKE:say last".to_owned());
        let mut answered = Vec::new();
        let mut place = 0;
        while answered.last() != Some(&last.message) {
            let heard = events.next().await.expect("the connection stands");
            if let Heard::Snapshot(note) = &heard {
                place = note.at.seq;
            }
            if matches!(heard, Heard::Snapshot(_) | Heard::Resumed) {
                continue;
            }
            let Heard::Event(note) = heard else {
                panic!("{heard:?}");
            };
            assert_eq!(note.at.seq, place + 1, "in order, none twice, none missing");
            place = note.at.seq;
            if let SessionEvent::MessageChanged { message, state, .. } = note.event.what
                && state.is_final()
            {
                answered.push(message);
            }
        }
        assert_eq!(answered.len(), texts.len(), "each message ended once");
        connection.close().await;
        assert!(!connection.is_connected());
    });
    assert_eq!(daemon.fake().turns(), texts, "each message was one turn");
    assert_eq!(
        daemon.fake().events("start").len(),
        1,
        "one agent all the time"
    );
    assert!(unknown > 0, "some cuts fell into a call");
    assert!(proxy.accepted() > usize::try_from(CUTS / 2).expect("small"));
}

/// Row 107 and its kin: delays change nothing, and a stream of a prompt survives a break.
#[test]
fn a_stream_survives_a_break_in_its_middle() {
    let daemon = daemon!("stream").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let proxy = proxy(&daemon);
    proxy.mode(Mode::Delay(Duration::from_millis(5)));
    run(async {
        let connection = drive(&client(&proxy), &id).await;
        let stream = connection
            .prompt_stream("FAKE:slow 1\nFAKE:say done", None)
            .await;
        let mut stream = stream.expect("it is accepted");
        let (mut pieces, mut ended) = (0, None);
        while let Some(piece) = stream
            .next()
            .await
            .expect("the connection is taken up again")
        {
            if let Piece::Output(_) = piece {
                pieces += 1;
                if pieces == 3 {
                    proxy.cut(Cut::Both);
                }
            } else if let Piece::Ended(prompted) = piece {
                ended = Some(prompted);
            } else {
                panic!("{piece:?}");
            }
        }
        assert!(pieces >= 10, "a tick each 100 ms and the answer: {pieces}");
        assert_eq!(ended.expect("it ends").state, MessageState::Answered);
    });
    assert!(proxy.accepted() >= 2);
}

/// Rows 110, 111, 115, 116: without taking up again a break is the end, and says why; the agent works
/// on, and another client finds the answer. A goodbye in mid-turn cancels nothing either.
#[test]
fn a_break_without_resuming_is_the_end_of_the_connection_alone() {
    let daemon = daemon!("noresume").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let proxy = proxy(&daemon);
    let gate = daemon.path("gate");
    let text = format!("FAKE:wait {}\nFAKE:say done", gate.display());
    let fake = daemon.fake();
    let message = std::thread::scope(|scope| {
        scope.spawn(|| {
            fake.wait_events("turn", 1);
            proxy.cut(Cut::Both);
        });
        run(async {
            let client = client(&proxy);
            let builder = client.connection(&id).drive().resume(false);
            let connection = builder.connect().await.expect("a driver");
            let error = connection.prompt(&text, Some("K")).await;
            let error = error.expect_err("it was cut");
            assert!(error.is_terminal() && error.may_have_run(), "{error}");
            let closed = connection.closed().expect("it is over");
            let reason = closed.drop_reason.map(|it| it.code());
            assert_eq!(reason, Some("transport_lost"));
            let after = connection.show().await;
            assert!(after.is_err_and(|error| error.is_terminal()));
            let other = drive(&client, &id).await;
            std::fs::write(&gate, "").expect("the folder is ours");
            let prompted = other.prompt(&text, Some("K")).await;
            let prompted = prompted.expect("the same message");
            assert!(prompted.duplicate, "{prompted:?}");
            assert_eq!(prompted.answer, "SAID done (user turns seen: 1)");
            let leaving = other
                .prompt_stream("FAKE:slow 0.5\nFAKE:say on", None)
                .await;
            let message = leaving.expect("accepted").message();
            other.close().await;
            message
        })
    });
    assert_eq!(daemon.settled(message).state, MessageState::Answered);
    assert_eq!(daemon.fake().turns().len(), 2);
}

/// The second driver takes over on purpose, and the first one is told so and does not come back by
/// itself; who only watches is not touched.
#[test]
fn a_take_over_is_told_and_not_undone() {
    let daemon = daemon!("takeover").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let proxy = proxy(&daemon);
    run(async {
        let client = client(&proxy);
        let mut first = drive(&client, &id).await;
        let watcher = client.connection(&id).connect().await.expect("a watcher");
        let refused = client.connection(&id).drive().connect().await;
        assert_eq!(
            refused.expect_err("driven").code(),
            Some(FailureCode::Driven)
        );
        let second = client
            .connection(&id)
            .take_over()
            .connect()
            .await
            .expect("it may");
        let mut events = first.events();
        let closed = loop {
            match events.next().await {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        let SocketError::Closed(closed) = closed else {
            panic!("{closed}");
        };
        assert_eq!(closed.drop_reason.map(|it| it.code()), Some("superseded"));
        assert!(second.is_connected() && watcher.is_connected());
        let refused = watcher.prompt("FAKE:say x", None).await;
        assert_eq!(
            refused.expect_err("it watches").code(),
            Some(FailureCode::NotDriver)
        );
        assert_eq!(
            watcher.show().await.expect("it may look").id.to_string(),
            id
        );
    });
    assert!(daemon.fake().turns().is_empty());
}

/// A driver that is gone without a goodbye holds its session, and one that looked on does not.
#[test]
fn the_session_is_held_for_a_driver_that_dropped() {
    let daemon = daemon!("held").start();
    let id = daemon.open("fake");
    let proxy = proxy(&daemon);
    run(async {
        let connection = drive(&client(&proxy), &id).await;
        connection
            .prompt("FAKE:say x", None)
            .await
            .expect("an answer");
        // Its line is frozen for good, so it cannot say goodbye.
        proxy.mode(Mode::Freeze);
        proxy.cut(Cut::Both);
    });
    drop(proxy);
    daemon.let_windows_pass(2);
    let held = daemon.wait_report(&id, "held for its client", |report| {
        let awake = report.awake.as_ref();
        awake.is_some_and(|awake| awake.holds.iter().any(|hold| hold.owner == "connections"))
    });
    assert!(held.state.is_awake(), "{held:?}");
    daemon.get(async |client| client.stop(&id).await);
}

/// D34: a client that stands still, its socket open, is noticed within two heartbeats; its place is
/// kept, and when it moves again it has its connection back.
#[test]
fn a_frozen_client_is_noticed_and_comes_back() {
    let daemon = daemon!("frozen").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let proxy = proxy(&daemon);
    let is_held = || {
        let awake = daemon.report(&id).awake;
        awake.is_some_and(|awake| awake.holds.iter().any(|hold| hold.owner == "connections"))
    };
    std::thread::scope(|scope| {
        let (thaw, thawed) = std::sync::mpsc::channel();
        let client = client(&proxy);
        let frozen = &proxy;
        let id = &id;
        let there = scope.spawn(move || {
            run(async {
                let connection = drive(&client, id).await;
                connection
                    .prompt("FAKE:say x", None)
                    .await
                    .expect("an answer");
                frozen.mode(Mode::Freeze);
                thawed.recv().expect("the test goes on");
                frozen.mode(Mode::Pass);
                connection
                    .show()
                    .await
                    .expect("asked again on the same connection");
                assert_eq!(frozen.accepted(), 2, "it was redialled");
                let refused = connection.interrupt().await.expect_err("nothing runs");
                connection.close().await;
                refused.code()
            })
        });
        wait_until("the break to be noticed", HEARTBEATS, || {
            is_held().then_some(())
        });
        thaw.send(()).expect("the client waits");
        let code = there.join().expect("the client has no complaint");
        assert_eq!(code, Some(FailureCode::NotRunning));
    });
    wait_until("the hold to be lifted", HEARTBEATS, || {
        (!is_held()).then_some(())
    });
}

/// A client that does not read.
fn lazy(daemon: &TestDaemon, id: &str) -> UnixStream {
    let socket = daemon.state_dir().join("drowse.sock");
    watcher::subscribe(&socket, &format!("/v1/sessions/{id}/ws"))
}

fn rss_bytes(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("every process has it") * 1024
}

/// D35: a client that does not read costs the daemon a bounded amount, slows nobody down, and is
/// closed for it (4011).
#[test]
fn a_client_that_does_not_read_is_felt_by_nobody() {
    const LINES: usize = 120;
    let daemon = daemon!("lazy").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let mut lazies: Vec<_> = (0..4).map(|_| lazy(&daemon, &id)).collect();
    let text = "FAKE:line 200000\n".repeat(LINES);
    run(async {
        let client = Client::unix(daemon.state_dir().join("drowse.sock"));
        let connection = drive(&client, &id).await;
        // After this every buffer has been as full as it gets: from here on nothing may grow.
        connection.prompt(&text, None).await.expect("an answer");
        let pid = daemon.identity().pid;
        let before = rss_bytes(pid);
        let mut grown = Vec::new();
        for _ in 0..10 {
            connection.prompt(&text, None).await.expect("an answer");
            grown.push(rss_bytes(pid).saturating_sub(before));
        }
        // What passes through at one moment comes and goes; what is kept is there in all of them.
        let kept = grown[5..].iter().min().expect("ten of them");
        assert!(*kept < 32 << 20, "grown by {} MiB at least", kept >> 20);
    });
    // What was under way when it stopped reading comes first, and the reason last.
    let stream = &mut lazies[0];
    wait_until(
        "the close of a lazy client",
        Duration::from_secs(30),
        || daemon.log_text().contains("does not read").then_some(()),
    );
    let mut rest = Vec::new();
    let _reset = stream.read_to_end(&mut rest);
    let reason = b"slow_consumer";
    assert!(
        rest.windows(reason.len()).any(|it| it == reason),
        "{} bytes",
        rest.len()
    );
}

/// Behaviours 102, 113, D47: at the hard limit of the session its driver's connection ends with 4009,
/// the call under way with an unknown outcome, which the message itself has; whoever watches is warned and
/// goes on.
#[test]
fn the_hard_limit_of_a_session_says_what_is_unknown() {
    let daemon = daemon!("hard_socket")
        .limit("idle_after", "1s")
        .limit("start_limit", "1s")
        .limit("hard_limit", "2s")
        .start();
    let id = daemon.open("fake");
    let client = Client::unix(daemon.state_dir().join("drowse.sock"));
    run(async {
        let mut watcher = client.connection(&id).connect().await.expect("a watcher");
        let mut events = watcher.events();
        let driver = drive(&client, &id).await;
        let prompted = driver.prompt("FAKE:silent 600", None).await;
        let error = prompted.expect_err("the turn is cut");
        assert_eq!(error.code(), Some(FailureCode::HardTimeout), "{error}");
        assert!(error.may_have_run() && error.is_terminal());
        assert!(!driver.is_connected());
        let (mut warned, mut over) = (false, false);
        while !over {
            let Heard::Event(note) = events.next().await.expect("it looks on") else {
                continue;
            };
            warned |= matches!(note.event.what, SessionEvent::LimitWarned { .. });
            if let SessionEvent::MessageChanged { state, .. } = note.event.what {
                // It heeds the interrupt that comes first.
                over = state == MessageState::Failed;
            }
        }
        assert!(warned, "before it");
        assert!(watcher.is_connected());
        // The session is not over: the next message resumes it.
        let driver = drive(&client, &id).await;
        let prompted = driver.prompt("FAKE:say on", None).await.expect("an answer");
        assert_eq!(prompted.state, MessageState::Answered);
    });
}

/// A connection without events has no streams, instead of one that never ends.
#[test]
fn a_stream_needs_events() {
    let daemon = daemon!("no_events").start();
    let id = daemon.open("fake");
    let client = Client::unix(daemon.state_dir().join("drowse.sock"));
    run(async {
        let driver = client.connection(&id).drive().events(false).connect().await;
        let driver = driver.expect("a driver");
        let refused = driver.prompt_stream("FAKE:say x", None).await;
        let error = refused.expect_err("nothing would come");
        assert_eq!(error.code(), Some(FailureCode::Invalid));
        let prompted = driver.prompt("FAKE:say x", None).await.expect("an answer");
        assert_eq!(prompted.state, MessageState::Answered);
    });
}
