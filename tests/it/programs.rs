//! The examples of `drowse-client`, as the programs they are: run, killed and stopped.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use drowse_messages::{MessageState, SessionState};
use drowse_tests::{TestDaemon, daemon, scaled, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Two heartbeats of 15 s, and some spare time.
const HEARTBEATS: Duration = Duration::from_secs(45);

/// A running example and its lines.
struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    fn start(daemon: &TestDaemon, program: &str, args: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .env_clear()
            .envs(daemon.agent_env())
            .env("DROWSE_SOCKET", daemon.state_dir().join("drowse.sock"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was built with the tests");
        let out = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (line, lines) = channel();
        std::thread::spawn(move || {
            // Ends with the program.
            out.lines()
                .map_while(Result::ok)
                .for_each(|text| drop(line.send(text)));
        });
        Self { child, lines }
    }

    fn wait_line(&self, wanted: &str) -> String {
        wait_until(wanted, scaled(HEARTBEATS), || {
            self.lines.try_iter().find(|line| line.contains(wanted))
        })
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        kill(pid, signal).expect("it runs");
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it is ours")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn bot(daemon: &TestDaemon, args: &[&str]) -> Program {
    Program::start(daemon, env!("CARGO_BIN_EXE_example-bot"), args)
}

fn watch(daemon: &TestDaemon, id: &str) -> Program {
    Program::start(daemon, env!("CARGO_BIN_EXE_example-watch"), &[id])
}

/// Each does what it says.
#[test]
fn the_examples_do_what_they_say() {
    let daemon = daemon!("examples").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let mut watcher = watch(&daemon, &id);
    watcher.wait_line("it is new");
    let args = [&*id, "fake tool"];
    let approve = Program::start(&daemon, env!("CARGO_BIN_EXE_example-approve"), &args);
    let mut first = bot(&daemon, &[&id, "FAKE:say one"]);
    first.wait_line("[answered: SAID one (user turns seen: 1)]");
    assert!(first.wait().success());
    let asking = daemon.post(&id, "FAKE:approve rm -rf build");
    watcher.wait_line("it asks: ");
    let title = daemon
        .wait_state(&id, SessionState::NeedsYou)
        .awake
        .expect("awake")
        .asks[0]
        .clone();
    let left = approve.wait_line("left to a person: ");
    assert!(left.ends_with(&title.title), "{left}");
    daemon.get(async |client| {
        let answer = drowse_messages::Answer::Allow;
        client.answer(&id, &title.id, answer).await
    });
    assert_eq!(daemon.settled(asking).state, MessageState::Answered);
    watcher.wait_line("message 2 is answered");
    daemon.get(async |client| client.remove(&id).await);
    watcher.wait_line("the session was removed");
    assert!(watcher.wait().success());
}

/// D33, D34, behaviours 108, 115, 116: a driver that is killed leaves the turn alone, and the next one
/// with its key gets the answer.
#[test]
fn a_killed_client_loses_nothing() {
    let daemon = daemon!("killed_client").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let gate = daemon.path("gate");
    let text = format!(
        "FAKE:slow 0.3\nFAKE:wait {}\nFAKE:say through",
        gate.display()
    );
    let mut first = bot(&daemon, &[&id, &text, "key"]);
    daemon.fake().wait_events("turn", 1);
    first.signal(Signal::SIGKILL);
    first.wait();
    let report = daemon.report(&id);
    assert_eq!(report.state, SessionState::Working);
    let mut second = bot(&daemon, &[&id, &text, "key"]);
    std::fs::write(gate, "").unwrap();
    let answered = second.wait_line("[answered: ");
    assert!(answered.contains("SAID through"), "{answered}");
    assert!(second.wait().success());
    assert_eq!(daemon.fake().turns().len(), 1);
}

/// D34, D35: a client that is stopped is noticed within its heartbeats, keeps nobody waiting, and goes
/// on with the rest once it is continued.
#[test]
fn a_stopped_client_is_noticed_and_goes_on() {
    let daemon = daemon!("stopped_client").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    let gate = daemon.path("gate");
    let watcher = watch(&daemon, &id);
    let text = format!("FAKE:wait {}\nFAKE:say through", gate.display());
    let mut driver = bot(&daemon, &[&id, &text, "key"]);
    watcher.wait_line("message 1 is delivered");
    let open =
        || std::fs::read_dir(format!("/proc/{}/fd", daemon.identity().pid)).map(Iterator::count);
    let before = open().expect("the daemon is ours");
    driver.signal(Signal::SIGSTOP);
    wait_until("the end of its socket", scaled(HEARTBEATS), || {
        (open().expect("the daemon is ours") < before).then_some(())
    });
    std::fs::write(gate, "").unwrap();
    watcher.wait_line("message 1 is answered");
    driver.signal(Signal::SIGCONT);
    driver.wait_line("[answered: ");
    assert!(driver.wait().success());
    assert_eq!(daemon.fake().turns().len(), 1);
}
