//! What clients of one session's socket cost: `cargo bench -p drowse-tests --bench watchers`.
//!
//! | case | measures |
//! |---|---|
//! | `idle` | 1,000 watchers of a session in which nothing happens: memory of each, processor time in 10 s |
//! | `streaming` | 100 drivers at once, each with a session and an agent that streams: pieces a second, memory |
//!
//! The floor of `idle` is a server that does nothing but hold a WebSocket of the same library open,
//! in the same run. A client is a socket that has said hello and subscribed, and reads nothing more.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use drowse_client::Piece;
use drowse_messages::MessageState;
use drowse_tests::measure::{Bar, Cost, Samples, heading, line, millis, row, wanted};
use drowse_tests::{daemon, wait_until, watcher};
use futures_util::StreamExt as _;

/// The bar's number of watchers.
const WATCHERS: usize = 1_000;
/// Drivers that stream at once.
const DRIVERS: usize = 100;
/// Pieces each of their agents says: one every 100 ms is what the fake agent's ticks come to.
const STREAM_SECONDS: u32 = 5;
/// The time in which nothing is to happen; below the 15 s after which a silent client is pinged.
const REST: Duration = Duration::from_secs(10);
/// What a handshake and a subscription are answered with at most.
const ANSWERS_BYTES_MAX: usize = 64 * 1024;
/// How this program is told to be the floor.
const FLOOR: &str = "--floor";

fn main() {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(FLOOR) {
        return floor(&words.next().expect("where to listen"));
    }
    let Some(wanted) = wanted() else { return };
    let is_wanted = |case: &str| wanted.is_empty() || wanted.iter().any(|it| it == case);
    if is_wanted("idle") {
        idle();
    }
    if is_wanted("streaming") {
        streaming();
    }
}

/// A watcher: its handshake, hello and subscription are answered when this returns.
fn answered(socket: &Path, path: &str) -> UnixStream {
    let mut stream = watcher::subscribe(socket, path);
    let mut said = Vec::new();
    let mut chunk = [0; 4096];
    while !String::from_utf8_lossy(&said).contains(r#""id":1"#) {
        let count = stream.read(&mut chunk).expect("it answers");
        assert!(count > 0 && said.len() < ANSWERS_BYTES_MAX, "{said:?}");
        said.extend(&chunk[..count]);
    }
    stream
}

/// What so many watchers cost the process `pid`: memory of each in KiB, its processor time in ms.
fn cost_of_watchers(pid: i32, join: impl Fn() -> UnixStream) -> (Samples, Samples, Samples) {
    let first = join();
    let before = Cost::of(pid);
    let watchers: Vec<UnixStream> = (0..WATCHERS).map(|_| join()).collect();
    let [mut memory, mut cpu, mut switches] = [const { Samples::new() }; 3];
    let with = Cost::of(pid);
    thread::sleep(REST);
    let rested = Cost::of(pid);
    #[expect(clippy::cast_precision_loss, reason = "a thousand")]
    let each = (rested.pss_bytes - before.pss_bytes) / 1024.0 / WATCHERS as f64;
    memory.push(each);
    cpu.push(rested.cpu_ms - with.cpu_ms);
    switches.push(rested.switches - with.switches);
    drop((first, watchers));
    (memory, cpu, switches)
}

fn idle() {
    heading("1,000 watchers of a session in which nothing happens");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("floor.sock");
    let bare = Floor::start(&socket);
    let pid = i32::try_from(bare.0.id()).expect("a pid");
    let floor = cost_of_watchers(pid, || answered(&socket, "/"));
    drop(bare);
    let daemon = daemon!("bench_watchers").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    let socket = daemon.state_dir().join("drowse.sock");
    let path = format!("/v1/sessions/{id}/ws");
    let ours = cost_of_watchers(daemon.identity().pid, || answered(&socket, &path));
    row("bare actix-ws: memory of each", "KiB PSS", &floor.0, None);
    row("drowse: memory of each", "KiB PSS", &ours.0, Some(&floor.0));
    row("bare actix-ws: in 10 s", "ms of processor", &floor.1, None);
    row("drowse: in 10 s", "ms of processor", &ours.1, None);
    row("drowse: in 10 s", "context switches", &ours.2, None);
    line("\n# bars");
    line(Bar::AtMost(16.0).verdict("memory of a watcher, KiB", Some(ours.0.max())));
    line(Bar::AtMost(10.0).verdict("processor in 10 s, ms", Some(ours.1.max())));
}

fn streaming() {
    heading("100 drivers that stream at once");
    let daemon = daemon!("bench_streaming").limit("idle_after", "1h").start();
    let ids: Vec<String> = (0..DRIVERS).map(|_| daemon.open("fake")).collect();
    for id in &ids {
        daemon.post(id, "FAKE:say awake");
    }
    for id in &ids {
        wait_until("an agent", Duration::from_secs(120), || {
            let messages = daemon.get(async |client| client.messages(id, 1).await);
            (messages[0].state == MessageState::Answered).then_some(())
        });
    }
    let pid = daemon.identity().pid;
    let before = Cost::of(pid);
    let begun = Instant::now();
    let (pieces, lags) = daemon
        .get(async |client| {
            let all = ids.iter().map(async |id| {
                let driver = client.connection(id).drive().connect().await;
                let driver = driver.expect("a driver");
                let text = format!("FAKE:slow {STREAM_SECONDS}");
                let stream = driver.prompt_stream(&text, None).await;
                let mut stream = stream.expect("a stream");
                let (mut pieces, mut last, mut lags) = (0_u32, Instant::now(), Vec::new());
                while let Some(piece) = stream.next().await.expect("it goes on") {
                    if let Piece::Output(_) = piece {
                        pieces += 1;
                        lags.push(millis(last.elapsed()));
                        last = Instant::now();
                    }
                }
                (pieces, lags)
            });
            Ok(futures_util::future::join_all(all).await)
        })
        .into_iter()
        .fold((0, Samples::new()), |(pieces, mut lags), (more, times)| {
            // The first piece waits for the agent.
            times.into_iter().skip(1).for_each(|time| lags.push(time));
            (pieces + more, lags)
        });
    let took = begun.elapsed();
    let after = Cost::of(pid);
    let per_second = Samples::from(f64::from(pieces) / took.as_secs_f64());
    let cpu = Samples::from((after.cpu_ms - before.cpu_ms) * 1000.0 / f64::from(pieces));
    #[expect(clippy::cast_precision_loss, reason = "a hundred")]
    let each = (after.pss_bytes - before.pss_bytes) / 1024.0 / DRIVERS as f64;
    row("pieces a second, all together", "pieces", &per_second, None);
    row("from one piece to the next of a stream", "ms", &lags, None);
    row("processor of the daemon for a piece", "us", &cpu, None);
    row(
        "memory of a driver that streamed",
        "KiB PSS",
        &Samples::from(each),
        None,
    );
}

/// A server that holds WebSockets open.
struct Floor(Child);

impl Floor {
    fn start(socket: &Path) -> Self {
        let program = std::env::current_exe().expect("this program");
        let child = Command::new(program)
            .arg(FLOOR)
            .arg(socket)
            .stdin(Stdio::null())
            .spawn()
            .expect("this program starts");
        wait_until("the floor", Duration::from_secs(30), || {
            UnixStream::connect(socket).is_ok().then_some(())
        });
        Self(child)
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn floor(socket: &str) {
    let server = async {
        HttpServer::new(|| App::new().default_service(web::to(hold_open)))
            .workers(1)
            .bind_uds(socket)
            .expect("the socket is free")
            .run()
            .await
    };
    drop(actix_web::rt::System::new().block_on(server));
}

/// Answers the second message as the daemon would, so that its clients are the same.
async fn hold_open(
    request: HttpRequest,
    body: web::Payload,
) -> Result<HttpResponse, actix_web::Error> {
    let (response, mut session, mut messages) = actix_ws::handle(&request, body)?;
    actix_web::rt::spawn(async move {
        let mut heard = 0;
        while let Some(Ok(_)) = messages.next().await {
            heard += 1;
            if heard == 2 && session.text(r#"{"jsonrpc":"2.0","id":1}"#).await.is_err() {
                return;
            }
        }
    });
    Ok(response)
}
