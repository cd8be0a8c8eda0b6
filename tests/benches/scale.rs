//! What many sessions cost one daemon: `cargo bench -p drowse-tests --bench scale [-- CASE.. SIZE..]`.
//!
//! | case | measures |
//! |---|---|
//! | `asleep` | 1,000, 10,000 and 100,000 released sessions: start, memory, descriptors, switches at rest, answers |
//! | `awake` | 1,000 awake ones: memory and descriptors of each; then all fall due at once |
//!
//! Sizes replace those of the table. Sleeping sessions are rows that the real store wrote; awake
//! ones are real processes, a fake agent below a keeper each. What an awake one costs the daemon
//! is counted without memory from files, which keepers share with it. The floor of an `asleep` row
//! is a daemon without sessions that took turns with the other one; the floor of falling due is
//! as many agents without Drowse.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use drowse::clock::SystemClock;
use drowse::store::SqliteStore;
use drowse_actors::ports::Store;
use drowse_client::{Client, ListQuery};
use drowse_messages::{
    Conversation, EndReport, Incarnation, Profile, Progress, Reason, Recipe, SessionId,
    SessionState, WallTime, Who,
};
use drowse_tests::fake::Dialect;
use drowse_tests::measure::{Cost, Samples, heading, row, wanted};
use drowse_tests::process::ProcStat;
use drowse_tests::{TestDaemon, wait_until};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The sizes of the table in docs/PERFORMANCE.md.
const ASLEEP: [usize; 3] = [1_000, 10_000, 100_000];
/// 1,000 agents with keepers: 3 GB, and more than anybody runs on one machine.
const AWAKE: [usize; 1] = [1_000];
/// 512 sessions are on their way to the disk at a time; the store takes 1,024 questions.
const WRITES_MAX: usize = 512;
/// 30 variables of 60 bytes: an ordinary shell's environment.
const VARIABLES: usize = 30;
/// Starts of each daemon.
const STARTS: usize = 7;
/// Requests of each kind.
const REQUESTS: usize = 500;
/// Whole `drowse ps` processes.
const LISTINGS: usize = 40;
/// 12 s: threads for blocking calls that have nothing to do end after 10 s.
const SETTLE: Duration = Duration::from_secs(12);
/// The time in which nothing is to happen.
const REST: Duration = Duration::from_secs(10);
/// 1 ms between two looks at a daemon that starts: the resolution of that figure.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// 2 ms between two requests of the one who watches while sessions fall due.
const WATCH_EVERY: Duration = Duration::from_millis(2);
/// What a start, or the end of all trees, may take before the program gives up.
const GIVE_UP: Duration = Duration::from_secs(120);

fn main() {
    let Some(words) = wanted() else { return };
    let (sizes, cases): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| is_number(word));
    let sizes: Vec<usize> = sizes.iter().filter_map(|size| size.parse().ok()).collect();
    let is_wanted = |case: &str| cases.is_empty() || cases.iter().any(|one| one == case);
    let or = |usual: &[usize]| {
        if sizes.is_empty() {
            usual.to_vec()
        } else {
            sizes.clone()
        }
    };
    if is_wanted("asleep") {
        heading("sessions asleep; floor: a daemon without sessions");
        or(&ASLEEP).into_iter().for_each(asleep);
    }
    if is_wanted("awake") {
        heading("sessions awake; floor of falling due: the same agents without Drowse");
        or(&AWAKE).into_iter().for_each(awake);
    }
}

fn is_number(word: &str) -> bool {
    word.parse::<usize>().is_ok()
}

fn asleep(sessions: usize) {
    let case = |what: &str| format!("{sessions} asleep: {what}");
    let (mut empty, mut full) = (described(), described());
    let mut writing = Samples::default();
    writing.time(|| fill(&full.state_dir(), sessions));
    row(&case("rows written"), "ms", &writing, None);

    let (mut floor, mut ours) = (Samples::default(), Samples::default());
    for left in (0..STARTS).rev() {
        floor.time(|| start(&mut empty));
        ours.time(|| start(&mut full));
        if left > 0 {
            empty.terminate();
            full.terminate();
        }
    }
    row(&case("floor of ready"), "ms", &floor, None);
    row(&case("ready after"), "ms", &ours, Some(&floor));

    memory(&case, sessions, [&empty, &full]);
    rest(&case, &[&empty, &full]);
    answers(&case, [&empty, &full]);
    memory(
        &|what| case(&format!("after listing, {what}")),
        sessions,
        [&empty, &full],
    );
}

fn described() -> TestDaemon {
    drowse_tests::daemon!("scale")
        .limit("idle_after", "1h")
        .ready()
}

/// Starts a daemon, until it takes requests.
fn start(daemon: &mut TestDaemon) {
    let begun = Instant::now();
    daemon.spawn();
    while !matches!(daemon.ask(async |client| client.ready().await), Ok(true)) {
        assert!(begun.elapsed() < GIVE_UP, "no daemon came up");
        thread::sleep(LOOK_EVERY);
    }
}

/// Writes sessions down as a daemon does that opened, used and released them.
fn fill(folder: &Path, sessions: usize) {
    let store = SqliteStore::open(folder, Arc::new(SystemClock)).expect("a new store");
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let mut writing = VecDeque::new();
        for number in 0..sessions {
            let profile = profile(number);
            let id = profile.id;
            writing.push_back(store.open(profile));
            store.save(id, released(number));
            if writing.len() == WRITES_MAX
                && let Some(oldest) = writing.pop_front()
            {
                oldest.await.expect("a session is written");
            }
        }
        for last in writing {
            last.await.expect("a session is written");
        }
    });
}

fn profile(number: usize) -> Profile {
    let name = |text: &str| text.parse().expect("a proper name");
    // An odd factor spreads the numbers over all ids, each once, as random ones are.
    let id = SessionId::from_random((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let variable = |number| (format!("VARIABLE_{number}"), "x".repeat(48));
    Profile {
        id,
        name: format!("session-{number}"),
        recipe: Recipe {
            agent: name("fake"),
            protocol: name("claude"),
            argv: vec!["fake-agent".into(), "--model".into(), "some-model".into()],
            cwd: format!("/home/somebody/projects/project-{}", number % 100).into(),
            env: (0..VARIABLES).map(variable).collect(),
        },
        limits: drowse_messages::LimitOverrides::default(),
        created: WallTime(1_790_000_000_000 + number as u64),
    }
}

fn released(number: usize) -> Progress {
    Progress {
        state: SessionState::Released,
        incarnation: Incarnation(1),
        conversation: Some(Conversation {
            native_id: format!("aaaaaaaa-0000-4000-8000-{number:012}"),
            resumable: true,
            ..Conversation::default()
        }),
        end: Some(EndReport {
            released_bytes: 180 << 20,
            ..EndReport::new(Reason::Manual, Who::Daemon, WallTime::default())
        }),
        ..Progress::default()
    }
}

fn cost(daemon: &TestDaemon) -> Cost {
    Cost::of(daemon.identity().pid)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn memory(case: &dyn Fn(&str) -> String, sessions: usize, daemons: [&TestDaemon; 2]) {
    let [floor, ours] = daemons.map(cost);
    let base = Samples::from(floor.pss_bytes / 1e6);
    row(&case("floor of memory"), "MB PSS", &base, None);
    row(
        &case("memory"),
        "MB PSS",
        &Samples::from(ours.pss_bytes / 1e6),
        Some(&base),
    );
    let each = (ours.pss_bytes - floor.pss_bytes) / sessions as f64;
    row(&case("memory of each"), "bytes", &Samples::from(each), None);
    let base = Samples::from(floor.descriptors);
    row(
        &case("descriptors"),
        "",
        &Samples::from(ours.descriptors),
        Some(&base),
    );
}

/// Context switches while nobody asks and nothing is due.
fn rest(case: &dyn Fn(&str) -> String, daemons: &[&TestDaemon]) {
    thread::sleep(SETTLE);
    let switches = || -> Vec<f64> { daemons.iter().map(|daemon| cost(daemon).switches).collect() };
    let before = switches();
    thread::sleep(REST);
    let names = ["switches at rest", "floor of switches at rest"];
    for ((before, after), name) in before.iter().zip(switches()).rev().zip(names) {
        let per_second = Samples::from((after - before) / REST.as_secs_f64());
        row(&case(name), "1/s", &per_second, None);
    }
}

fn answers(case: &dyn Fn(&str) -> String, daemons: [&TestDaemon; 2]) {
    take_turns(&case("GET /v1/status"), REQUESTS, daemons, |daemon| {
        daemon.get(async |client| client.status().await);
    });
    let query = ListQuery {
        limit: Some(50),
        ..ListQuery::default()
    };
    take_turns(
        &case("GET /v1/sessions?limit=50"),
        REQUESTS,
        daemons,
        |daemon| {
            daemon.get(async |client| client.sessions(&query).await);
        },
    );
    take_turns(
        &case("drowse ps, whole process"),
        LISTINGS,
        daemons,
        |daemon| {
            let output = daemon.run(&["ps"]);
            assert!(output.status.success(), "{output:?}");
        },
    );
}

fn take_turns(case: &str, rounds: usize, daemons: [&TestDaemon; 2], ask: impl Fn(&TestDaemon)) {
    let mut samples = [Samples::default(), Samples::default()];
    daemons.into_iter().for_each(&ask);
    for _ in 0..rounds {
        for (daemon, samples) in daemons.into_iter().zip(&mut samples) {
            samples.time(|| ask(daemon));
        }
    }
    let [floor, ours] = samples;
    row(&format!("{case}, floor"), "ms", &floor, None);
    row(case, "ms", &ours, Some(&floor));
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn awake(sessions: usize) {
    let case = |what: &str| format!("{sessions} awake: {what}");
    let mut daemon = described();
    start(&mut daemon);
    let base = cost(&daemon);
    let alone = Samples::from(base.pss_bytes / 1e6);
    row(
        "a daemon without sessions, alone: memory",
        "MB PSS",
        &alone,
        None,
    );
    let mut waking = Samples::default();
    let (half, ids) = waking.time(|| {
        let mut ids = wake(&daemon, sessions / 2);
        let half = cost(&daemon);
        ids.extend(wake(&daemon, sessions - sessions / 2));
        (half, ids)
    });
    row(
        &case("opened, answered a message and at rest"),
        "ms",
        &waking,
        None,
    );

    let now = cost(&daemon);
    let each = |after: f64, before: f64| Samples::from((after - before) / sessions as f64);
    let memory = each(now.anon_bytes, base.anon_bytes);
    row(&case("daemon's memory of each"), "bytes", &memory, None);
    // What the first ones have warmed up, caches of the database above all, is there once.
    let further = (now.anon_bytes - half.anon_bytes) / (sessions - sessions / 2) as f64;
    let further = Samples::from(further);
    row(
        &case("daemon's memory of each further one"),
        "bytes",
        &further,
        None,
    );
    let descriptors = each(now.descriptors, base.descriptors);
    row(
        &case("daemon's descriptors of each"),
        "",
        &descriptors,
        None,
    );
    row(
        &case("processor for each wake"),
        "ms",
        &each(now.cpu_ms, base.cpu_ms),
        None,
    );
    rest(&case, &[&daemon]);
    fall_due(&case, &mut daemon, &ids);
    let memory = each(cost(&daemon).anon_bytes, base.anon_bytes);
    row(
        &case("daemon's memory of each once released"),
        "bytes",
        &memory,
        None,
    );
}

/// Opens sessions and lets each answer once; returns their ids.
fn wake(daemon: &TestDaemon, sessions: usize) -> Vec<String> {
    let ids: Vec<String> = (0..sessions).map(|_| daemon.open("fake")).collect();
    let posted: Vec<_> = ids.iter().map(|id| daemon.post(id, "hello")).collect();
    posted
        .into_iter()
        .for_each(|message| drop(daemon.settled(message)));
    for id in &ids {
        daemon.wait_state(id, SessionState::Resting);
    }
    ids
}

/// Every session has been quiet for longer than the new limit, so all are due at this moment.
fn fall_due(case: &dyn Fn(&str) -> String, daemon: &mut TestDaemon, ids: &[String]) {
    let agents = ids.iter().map(|id| daemon.agent(id).pid);
    let with_keeper = |pid| [Some(pid), ProcStat::read(pid).map(|stat| stat.parent)];
    let trees: Vec<OwnedFd> = agents
        .flat_map(with_keeper)
        .map(|pid| open(pid.expect("an agent has a keeper")))
        .collect();
    let floor = without_drowse(daemon, ids.len());

    let before = cost(daemon);
    let stop = Arc::new(AtomicBool::new(false));
    let watching = watch(daemon, &stop);
    daemon.rewrite_limits(&[("idle_after", "1s")]);
    let mut ours = Samples::default();
    daemon.hang_up();
    ours.time(|| await_all(&trees));
    stop.store(true, Ordering::Relaxed);
    let lateness = watching.join().expect("the watcher got its answers");
    row(
        &case("all due, floor (stdin closed, no Drowse)"),
        "ms",
        &floor,
        None,
    );
    row(
        &case("all due, until no process is left"),
        "ms",
        &ours,
        Some(&floor),
    );
    row(
        &case("all due, GET /v1/status meanwhile"),
        "ms",
        &lateness,
        None,
    );
    let used = Samples::from(cost(daemon).cpu_ms - before.cpu_ms);
    row(
        &case("all due, processor used by the daemon"),
        "ms",
        &used,
        None,
    );
    for id in ids {
        daemon.wait_state(id, SessionState::Released);
    }
}

/// As many agents as there are sessions, started and told to end by hand.
fn without_drowse(daemon: &TestDaemon, agents: usize) -> Samples {
    let mut running: Vec<Child> = (0..agents)
        .map(|_| {
            let mut command: Command = daemon.fake().command(Dialect::Claude, &[]);
            command.env_clear().envs(daemon.agent_env());
            let piped = command
                .stdin(Stdio::piped())
                .stdout(File::create("/dev/null").expect("a sink"));
            piped
                .spawn()
                .expect("the program was built with the benches")
        })
        .collect();
    let started = || daemon.fake().events("start").len() >= 2 * agents;
    wait_until("agents that have started", GIVE_UP, || {
        started().then_some(())
    });
    let pidfds: Vec<OwnedFd> = running
        .iter()
        .map(|child| open(i32::try_from(child.id()).expect("a pid fits into i32")))
        .collect();
    let mut samples = Samples::default();
    samples.time(|| {
        running
            .iter_mut()
            .for_each(|child| drop(child.stdin.take()));
        await_all(&pidfds);
    });
    for mut child in running {
        child.wait().expect("the child is ours");
    }
    samples
}

fn open(pid: i32) -> OwnedFd {
    let pid = Pid::from_raw(pid).expect("a pid is not 0");
    pidfd_open(pid, PidfdFlags::empty()).expect("the process runs")
}

/// Sleeps until all of these have ended.
fn await_all(pidfds: &[OwnedFd]) {
    for pidfd in pidfds {
        poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None).expect("a pidfd can be waited for");
    }
}

/// Asks for the daemon's status again and again, as one who watches does.
fn watch(daemon: &TestDaemon, stop: &Arc<AtomicBool>) -> thread::JoinHandle<Samples> {
    let (socket, stop) = (daemon.state_dir().join("drowse.sock"), Arc::clone(stop));
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let client = Client::unix(socket);
        let mut samples = Samples::default();
        while !stop.load(Ordering::Relaxed) {
            samples.time(|| runtime.block_on(client.status()).expect("an answer"));
            thread::sleep(WATCH_EVERY);
        }
        samples
    })
}
