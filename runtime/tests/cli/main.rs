//! The command line as a person or a script meets it: the program, its exit codes, its output.
//!
//! The daemon is either the program's own, started on demand, or a small server that says exactly
//! what a test tells it to.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

mod server;
mod stay;

use server::{body, problem, serve, stream};

/// A folder of the test's own, as private as a state folder has to be.
fn folder() -> TempDir {
    let private = fs::Permissions::from_mode(0o700);
    let made = tempfile::Builder::new().permissions(private).tempdir();
    made.expect("a folder")
}

/// The program with a state folder of its own and nothing of ours around it.
fn drowse(dir: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drowse"));
    command
        .args(line.split_whitespace())
        .arg("--state-dir")
        .arg(dir)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", dir)
        .current_dir(dir)
        .stdin(Stdio::null());
    command
}

fn run(dir: &Path, line: &str) -> Output {
    drowse(dir, line).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

/// The table of exit codes, refusal by refusal.
#[test]
fn every_refusal_has_its_exit_code() {
    for (status, code, class, exit) in [
        (404, "no_such_session", "terminal_session", 4),
        (409, "held", "retryable", 6),
        (409, "cannot_resume", "terminal_request", 7),
        (503, "draining", "retryable", 75),
        (429, "inbox_full", "retryable", 75),
        (503, "store_failed", "retryable", 75),
        (422, "unknown_agent", "terminal_request", 2),
        (400, "invalid", "terminal_request", 2),
        (409, "ambiguous", "terminal_request", 2),
        (409, "name_taken", "terminal_request", 1),
        (409, "not_running", "terminal_request", 1),
        (410, "not_pending", "terminal_request", 1),
        (500, "session_failed", "outcome_unknown", 1),
        (401, "unauthorized", "terminal_request", 77),
        (403, "forbidden", "terminal_request", 5),
        (429, "something_new", "retryable", 75),
        (400, "something_new", "terminal_request", 1),
    ] {
        let dir = folder();
        serve(dir.path(), move |_| problem(status, code, class));
        let output = run(dir.path(), "show x");
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{code}: {err}");
        assert!(err.starts_with("drowse: because\n"), "{err}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn without_a_daemon_and_without_leave_to_start_one_it_is_69() {
    let dir = folder();
    let output = run(dir.path(), "ps --no-start");
    assert_eq!(output.status.code(), Some(69));
    let socket = dir.path().join("drowse.sock");
    let expected = format!(
        "drowse: no daemon is running (socket {})\n",
        socket.display()
    );
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn a_wrong_configuration_is_told_by_whoever_needed_it_and_is_78() {
    let dir = folder();
    let config = dir.path().join("config.toml");
    fs::write(&config, "[session]\nidle_after = \"soon\"\n").unwrap();
    for line in [
        "ps --config config.toml",
        "config check --config config.toml",
    ] {
        let output = run(dir.path(), line);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{line}: {err}");
        for part in ["config.toml", "idle_after", "soon"] {
            assert!(err.contains(part), "{line}: {err}");
        }
        assert!(
            err.lines().all(|line| line.starts_with("drowse: ")),
            "{err}"
        );
    }
}

/// Pids of the daemons that serve a state folder.
fn daemons(dir: &Path) -> Vec<i32> {
    let wanted = dir.to_str().expect("a plain path");
    let of_proc = fs::read_dir("/proc")
        .expect("/proc is mounted")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            let line = fs::read(path.join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            (line.contains(wanted) && line.contains("\0serve\0")).then_some(pid)
        });
    of_proc.collect()
}

/// Ends the daemons of a state folder, also when the test fails.
struct Reaped<'a>(&'a Path);

impl Drop for Reaped<'_> {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        for pid in daemons(self.0) {
            let pid = rustix::process::Pid::from_raw(pid).expect("no daemon has pid 0");
            // One that has ended meanwhile needs no signal.
            let _gone = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        while !daemons(self.0).is_empty() && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

/// Several that find no daemon at once start one, which outlives them, in its own process session
/// and with a log only its owner can read.
#[test]
fn one_daemon_is_started_however_many_need_it() {
    let dir = folder();
    let _reaped = Reaped(dir.path());
    let started: Vec<_> = (0..4)
        .map(|_| {
            drowse(dir.path(), "ps")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in started {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(
            text(&output.stdout).starts_with("ID "),
            "{}",
            text(&output.stdout)
        );
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    }
    let [pid] = daemons(dir.path())[..] else {
        panic!("one daemon: {:?}", daemons(dir.path()));
    };
    let own = rustix::process::Pid::from_raw(pid);
    assert_eq!(
        rustix::process::getsid(own).ok(),
        own,
        "it leads its own process session"
    );
    let log = fs::metadata(dir.path().join("serve.log")).unwrap();
    assert_eq!(log.permissions().mode() & 0o777, 0o600);
}

const QUEUED: &str = r#""event":"message_queued","message":3"#;
const PIECE: &str = r#""event":"output","message":3,"text":"fixed it""#;
const ANSWERED: &str = r#""event":"message_changed","message":3,"state":"answered","text":"x""#;
const UNKNOWN: &str = r#""event":"message_changed","message":3,"state":"unknown","text":"""#;

#[test]
fn send_prints_the_answer_alone_and_ends_with_its_fate() {
    for (events, exit, out, err) in [
        (vec![QUEUED, PIECE, ANSWERED], 0, "fixed it\n", ""),
        (
            vec![QUEUED, PIECE, UNKNOWN],
            1,
            "fixed it\n",
            "what became of message 3 is unknown",
        ),
    ] {
        let dir = folder();
        let answer = stream(&events);
        serve(dir.path(), move |_| answer.clone());
        let output = run(dir.path(), "send fix-tests go --key k");
        assert_eq!(output.status.code(), Some(exit));
        assert_eq!(text(&output.stdout), out);
        let told = text(&output.stderr);
        assert!(
            told.contains(err) && (exit == 0) == told.is_empty(),
            "{told}"
        );
    }
}

/// A daemon that ends in the middle of an answer is followed by another, or the answer is said to
/// be cut.
#[test]
fn send_says_when_no_daemon_goes_on_with_its_answer() {
    let dir = folder();
    let answer = stream(&[QUEUED, PIECE]);
    let asked = AtomicBool::new(false);
    serve(dir.path(), move |_| {
        if asked.swap(true, Ordering::Relaxed) {
            problem(503, "draining", "retryable")
        } else {
            answer.clone()
        }
    });
    let output = run(dir.path(), "send fix-tests go --key k");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "fixed it");
    let told = text(&output.stderr);
    assert!(
        told.contains("before the answer to message 3 was complete"),
        "{told}"
    );
}

/// A daemon that breaks off every time it is asked is not asked for ever.
#[test]
fn send_gives_up_when_every_answer_breaks_off() {
    let dir = folder();
    let answer = stream(&[QUEUED]);
    serve(dir.path(), move |_| answer.clone());
    let output = run(dir.path(), "send fix-tests go --key k");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn send_takes_its_text_from_stdin() {
    let dir = folder();
    serve(dir.path(), |request| {
        assert!(request.ends_with(r#"{"text":"two\nlines"}"#), "{request}");
        let sent = r#"{"message":3,"duplicate":false,"session":"000000000007"}"#;
        body("202 Accepted", "application/json", sent)
    });
    let mut command = drowse(dir.path(), "send fix-tests - --no-wait");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"two\nlines\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(0), "3\n")
    );
}

/// The agent gets the caller's folder and environment, whoever started the daemon.
#[test]
fn new_sends_folder_environment_and_arguments() {
    let dir = folder();
    let cwd = dir.path().to_str().unwrap().to_owned();
    serve(dir.path(), move |request| {
        let (_, json) = request.split_once("\r\n\r\n").unwrap();
        let new: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(new["cwd"], cwd.as_str());
        assert_eq!(new["env"]["MARK"], "here");
        assert_eq!(new["args"], serde_json::json!(["--model", "x"]));
        assert_eq!(new["limits"]["idle_after"], "10m");
        let report = r#"{"id":"000000000007","name":"n","agent":"claude","protocol":"claude",
            "cwd":"/","state":"new","state_since":0,"created":0,"last_active":0,
            "incarnation":0,"queued":0}"#;
        body("201 Created", "application/json", report)
    });
    let output = Command::new(env!("CARGO_BIN_EXE_drowse"))
        .args([
            "--state-dir",
            ".",
            "new",
            "claude",
            "--idle-after",
            "10m",
            "--",
            "--model",
            "x",
        ])
        .env("MARK", "here")
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stdout),
        "000000000007\n",
        "{}",
        text(&output.stderr)
    );
}

/// A reader that has seen enough (`| head -1`) ends a listing without a word.
#[test]
fn a_reader_that_leaves_is_no_error() {
    let dir = folder();
    let events: Vec<String> = (0..20_000)
        .map(|_| r#"{"seq":1,"at":0,"session":null,"event":"draining"}"#.to_owned())
        .collect();
    let list = format!("[{}]", events.join(","));
    serve(dir.path(), move |_| {
        body("200 OK", "application/json", &list)
    });
    let mut command = drowse(dir.path(), "logs x");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(0), "")
    );
}

/// Of several orders each has its line and the
/// first failure its code.
#[test]
fn of_several_orders_the_first_failure_gives_the_code() {
    let dir = folder();
    serve(dir.path(), |request| {
        if request.contains("/v1/sessions/gone") {
            return problem(404, "no_such_session", "terminal_session");
        }
        let report = r#"{"id":"000000000007","name":"n","agent":"claude","protocol":"claude",
            "cwd":"/","state":"released","state_since":0,"created":0,"last_active":0,
            "incarnation":1,"queued":0}"#;
        body("200 OK", "application/json", report)
    });
    let output = run(dir.path(), "release gone n");
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(text(&output.stdout), "n: has no process already\n");
    assert_eq!(text(&output.stderr), "drowse: gone: because\n");
}

const REPORT: &str = r#"{"id":"000000000007","name":"n","agent":"claude","protocol":"claude",
    "cwd":"/","state":"waiting","state_since":0,"created":0,"last_active":0,"incarnation":1,
    "queued":0,"awake":{"holds":[{"kind":"task","why":"bash: npm test","owner":"claude",
    "age_ms":240000,"ends_in_ms":14160000}]}}"#;

const RELEASED: &str = r#""event":"released","end":{"reason":"manual",
    "by":{"kind":"client","name":"cli"},"mid_turn":false,"processes":[],"released_bytes":212000000,
    "reaped":[],"status":null,"survivors":[],"stderr_tail":""}"#;

/// Behaviour 98: a release by hand waits for its end and says what it freed.
#[test]
fn release_waits_for_its_end() {
    let dir = folder();
    serve(dir.path(), |request| {
        if request.starts_with("GET /v1/events?session=000000000007 ") {
            stream(&[&RELEASED.replace('\n', "")])
        } else if request.starts_with("POST /v1/sessions/000000000007/release ") {
            body("202 Accepted", "application/json", "{}")
        } else {
            body("200 OK", "application/json", REPORT)
        }
    });
    let output = run(dir.path(), "release n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "released, freed 212 MB (0 processes)\n"
    );
    let output = run(dir.path(), "release n --json");
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&object["outcome"], &object["end"]["reason"]),
        (&"released".into(), &"manual".into())
    );
}

/// Behaviour 96: a refused release names what holds the session, whose it is and for how long.
#[test]
fn a_held_session_is_not_released_and_says_why() {
    let dir = folder();
    serve(dir.path(), |request| {
        if request.starts_with("GET /v1/events") {
            stream(&[])
        } else if request.starts_with("POST ") {
            problem(409, "held", "retryable")
        } else {
            body("200 OK", "application/json", REPORT)
        }
    });
    let output = run(dir.path(), "release n");
    assert_eq!(output.status.code(), Some(6));
    let expected = "drowse: held, not released:\n\
                    drowse:   task: bash: npm test (claude, for 4m, ends in 3h 56m)\n";
    assert_eq!(text(&output.stderr), expected);
}

/// Awake ones and the 50 used last; how many more there are goes to stderr.
#[test]
fn ps_lists_what_fits_under_the_eyes() {
    let dir = folder();
    let asleep = REPORT
        .split(r#","awake""#)
        .next()
        .unwrap()
        .replace("waiting", "released")
        + "}";
    serve(dir.path(), move |request| {
        let second = request.contains("after=p2");
        let mut sessions = vec![asleep.as_str(); 40];
        if !second {
            sessions.insert(0, REPORT);
        }
        let next = if second { "" } else { r#","next":"p2""# };
        let page = format!(
            r#"{{"sessions":[{}],"total":81{next}}}"#,
            sessions.join(",")
        );
        body("200 OK", "application/json", &page)
    });
    let output = run(dir.path(), "ps");
    let out = text(&output.stdout);
    assert_eq!(out.lines().count(), 1 + 1 + 50, "{out}");
    assert_eq!(text(&output.stderr), "... and 30 more (drowse ps --all)\n");
    let output = run(dir.path(), "ps --all");
    assert_eq!(text(&output.stdout).lines().count(), 1 + 81);
    assert!(output.stderr.is_empty());
}

#[test]
fn doctor_needs_no_daemon_and_starts_none() {
    let dir = folder();
    let output = run(dir.path(), "doctor --json");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    for what in [
        "state folder",
        "daemon",
        "free disk",
        "agents",
        "pidfd",
        "cgroup v2",
    ] {
        assert!(
            checks.iter().any(|check| check["what"] == what),
            "{what}: {report}"
        );
    }
    assert_eq!(output.status.code(), Some(i32::from(report["ok"] == false)));
    assert!(daemons(dir.path()).is_empty());
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        0,
        "it leaves nothing behind"
    );
}

#[test]
fn completions_and_manual_come_from_the_same_definition() {
    let dir = folder();
    let script = text(&run(dir.path(), "completions bash").stdout);
    assert!(
        script.contains("explain") && !script.contains("demo-agent__"),
        "{script}"
    );
    let page = text(&run(dir.path(), "man").stdout);
    assert!(page.starts_with(".ie") || page.contains(".TH"), "{page}");
    assert!(text(&run(dir.path(), "man send").stdout).contains("no\\-wait"));
    assert_eq!(run(dir.path(), "man frobnicate").status.code(), Some(2));
}
