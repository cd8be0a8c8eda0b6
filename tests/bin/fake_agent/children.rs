//! The children a fake agent starts: every way to escape or outlive a stop that is known.
//!
//! | role | tree below the agent |
//! |---|---|
//! | `plain` | a leaf |
//! | `launcher` | a launcher that waits for a server which goes on after its stdin ends |
//! | `server:PORT` | such a server alone (0: any port) |
//! | `command:PORT` | a launcher and a shell, each of which waits, above such a server, all in a process group of their own |
//! | `mid` | a parent that dies on SIGTERM above a leaf that ignores it |
//! | `setsid` | a leaf in a session of its own |
//! | `double-fork` | a leaf in a session of its own whose parent has exited |
//! | `ignore-term` | a leaf that ignores SIGTERM |
//! | `term-forks` | on SIGTERM starts a `setsid` leaf, then exits |
//! | `holds-stdout` | a leaf that keeps the agent's stdout and stderr open |
//! | `warm` | a leaf that uses a few per cent of a CPU |
//!
//! Children are this same program with `--child ROLE`. Each writes itself into the log of the home
//! (event `child`), which is how the agent, and a test, learn who they are.
//! Invariant: a child lives until it is signalled; none watches its parent.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use drowse_tests::process::ProcIdentity;
use drowse_tests::wait::{CEILING, wait_until};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::{home, input};

/// Starts `count` trees of `role`, waits until all their members have said who they are, and
/// returns them as text: `ROLE pid@start` each, a server with its port.
pub(crate) fn spawn(role: &str, count: usize) -> Vec<String> {
    let mut named = Vec::new();
    for _ in 0..count {
        let token = format!("{}-{}", ProcIdentity::me(), unique());
        let Ok(mut child) = start(role, &token, role == "holds-stdout") else {
            return vec![format!("cannot start {role}")];
        };
        let expected = match role {
            "launcher" | "mid" => 2,
            _ if role.starts_with("command:") => 3,
            _ => 1,
        };
        named.extend(wait_until(
            "the children to name themselves",
            CEILING,
            || Some(names(&token)).filter(|names| names.len() >= expected),
        ));
        // The first process of a double fork is to be collected, all others run on.
        if role == "double-fork" {
            drop(child.wait());
        } else {
            std::thread::spawn(move || child.wait());
        }
    }
    named
}

/// Has a shell run a command and gives its exit code and what it printed.
pub(crate) fn run_command(command: &str) -> String {
    let ran = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .output();
    match ran {
        Ok(ran) => {
            let printed = [ran.stdout, ran.stderr].concat();
            let printed = String::from_utf8_lossy(&printed);
            let code = ran.status.code().unwrap_or(-1);
            format!("RAN {code} {}", printed.trim())
        }
        Err(why) => format!("CANNOT RUN {why}"),
    }
}

/// Starts a shell as agents do for the commands of their model: in a process session of its own.
pub(crate) fn start_shell(command: &str) -> String {
    let started = Command::new("setsid")
        .args(["sh", "-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut child) => {
            let pid = child.id();
            std::thread::spawn(move || child.wait());
            format!("SHELL {pid}")
        }
        Err(why) => format!("CANNOT START {why}"),
    }
}

/// Runs as a child: `ROLE TOKEN`.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let [role, token] = words else {
        return home::refuse(64, "--child needs ROLE and TOKEN");
    };
    match role.split_once(':').map_or(role.as_str(), |(role, _)| role) {
        "launcher" => return parent_of("server:0", role, token),
        "mid" => return parent_of("ignore-term", role, token),
        "double-fork" => {
            return match start("setsid", token, false) {
                Ok(_) => ExitCode::SUCCESS,
                Err(why) => home::refuse(1, &why.to_string()),
            };
        }
        "command" => {
            // A shell gives each command a group of its own.
            _ = nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
            return parent_of(&role.replace("command", "shell"), role, token);
        }
        "shell" => return parent_of(&role.replace("shell", "server"), role, token),
        "server" => return serve(role, token),
        "setsid" => {
            // It fails only for a group leader, and a fresh child is none.
            _ = nix::unistd::setsid();
        }
        "ignore-term" | "term-forks" => input::block_terminate(),
        _ => {}
    }
    introduce(role, token, json!({}));
    match role.as_str() {
        "term-forks" => {
            input::wait_terminate();
            spawn("setsid", 1);
            ExitCode::SUCCESS
        }
        "warm" => loop {
            busy_for(Duration::from_millis(5));
            std::thread::sleep(Duration::from_millis(95));
        },
        _ => rest(),
    }
}

fn start(role: &str, token: &str, keeps_output: bool) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg0("fake-agent-child")
        .args(["--child", role, token])
        .stdin(Stdio::null());
    if !keeps_output {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    command.spawn()
}

fn parent_of(below: &str, role: &str, token: &str) -> ExitCode {
    introduce(role, token, json!({}));
    match start(below, token, false).and_then(|mut child| child.wait()) {
        Ok(_) => rest(),
        Err(why) => home::refuse(1, &why.to_string()),
    }
}

fn serve(role: &str, token: &str) -> ExitCode {
    let port = role
        .split_once(':')
        .and_then(|(_, port)| port.parse().ok())
        .unwrap_or(0);
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(listener) => {
            let port = listener.local_addr().map_or(0, |address| address.port());
            introduce("server", token, json!({ "port": port }));
            for connection in listener.incoming() {
                drop(connection);
            }
            rest()
        }
        Err(why) => {
            introduce("server", token, json!({ "error": why.to_string() }));
            home::refuse(1, &why.to_string())
        }
    }
}

fn introduce(role: &str, token: &str, facts: Value) {
    let mut facts = facts;
    facts["role"] = json!(role);
    facts["token"] = json!(token);
    home::log_entry(&home::path(), "child", 0, "", facts);
}

fn names(token: &str) -> Vec<String> {
    let text = std::fs::read_to_string(home::path().join("log.jsonl")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|entry| entry["event"] == "child" && entry["token"] == token)
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let port = entry["port"].as_u64().map(|port| format!(" port {port}"));
            let error = entry["error"].as_str().map(|why| format!(" error {why}"));
            let more = port.or(error).unwrap_or_default();
            format!("{} {}{more}", text("role"), text("who"))
        })
        .collect()
}

fn unique() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn busy_for(duration: Duration) {
    let end = std::time::Instant::now() + duration;
    while std::time::Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn rest() -> ! {
    loop {
        std::thread::park();
    }
}
