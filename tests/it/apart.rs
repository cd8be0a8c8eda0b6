//! Agents stand apart from the daemon and from whoever started it: neither its terminal, its
//! process group nor its limits are theirs.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use drowse_tests::daemon::Setup;
use drowse_tests::process::ProcStat;
use drowse_tests::{CEILING, ProcIdentity, TestDaemon, daemon, wait_until};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

const TREE_AGENT: &str = env!("CARGO_BIN_EXE_tree-agent");

fn setup(test: &'static str) -> Setup {
    let agent = format!("[agents.tree]\nprotocol = \"raw\"\ncommand = [{TREE_AGENT:?}]\n");
    daemon!(test).limit("idle_after", "1h").config(&agent)
}

/// A session whose agent runs this script.
fn open(daemon: &TestDaemon, script: String) -> String {
    let mut new = daemon.new_session("tree");
    new.args = vec![script];
    let id = daemon.open_as(&new);
    daemon.post(&id, "hello");
    id
}

/// An agent and a child of it that write down every signal they get.
struct Watched {
    id: String,
    agent: ProcIdentity,
    file: std::path::PathBuf,
}

impl Watched {
    fn start(daemon: &TestDaemon) -> Self {
        let file = daemon.path("watched");
        let id = open(daemon, format!("into {};fork[watch];watch", file.display()));
        let watched = Self {
            agent: daemon.agent(&id),
            id,
            file,
        };
        wait_until("two that watch", CEILING, || {
            (watched.text().matches("ready\n").count() == 2).then_some(())
        });
        watched
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).unwrap_or_default()
    }

    #[track_caller]
    fn assert_untouched(&self, daemon: &TestDaemon) {
        assert!(!self.text().contains(" from "), "{}", self.text());
        assert_eq!(daemon.agent(&self.id), self.agent);
        assert_eq!(daemon.report(&self.id).incarnation.0, 1);
    }
}

fn times_reloaded(daemon: &TestDaemon) -> usize {
    daemon
        .log_text()
        .matches("configuration was read again")
        .count()
}

/// D50: the daemon raises its own limit of descriptors; an agent has the one the daemon was started
/// with.
#[test]
fn an_agent_has_the_descriptor_limit_of_whoever_started_the_daemon() {
    let limited = "ulimit -Sn 321; exec \"$0\" \"$@\"";
    let daemon = setup("nofile").through(&["sh", "-c", limited]).start();
    let file = daemon.path("standing");
    open(&daemon, format!("into {};standing;sleep", file.display()));
    let said = wait_until("the agent's limits", CEILING, || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.ends_with('\n').then_some(text)
    });
    assert!(said.contains(" nofile=321:"), "{said}");
}

/// A terminal's hang-up, and whatever else is sent to a whole process group, reaches the daemon
/// and none of its agents.
#[test]
fn a_signal_to_the_daemons_group_reaches_no_agent() {
    let daemon = setup("group").through(&["setsid"]).start();
    let watched = Watched::start(&daemon);
    let group = daemon.identity().pid;
    assert_eq!(ProcStat::read(group).expect("it runs").group, group);
    for times in 1..=3 {
        killpg(Pid::from_raw(group), Signal::SIGHUP).expect("the group is the daemon's own");
        wait_until("the daemon to hear it", CEILING, || {
            (times_reloaded(&daemon) >= times).then_some(())
        });
    }
    watched.assert_untouched(&daemon);
}

/// A terminal of this test, and its other end.
fn terminal() -> (OwnedFd, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).expect("a terminal");
    grantpt(&ours).expect("it is ours");
    unlockpt(&ours).expect("it is ours");
    let path = ptsname(&ours, Vec::new()).expect("it has a name");
    let path = path.to_str().expect("a name of ASCII").to_owned();
    let theirs = File::options().read(true).write(true).open(path);
    (ours, theirs.expect("its other end"))
}

/// The terminal that a daemon was started on is closed: the daemon goes on, and so do its agents,
/// which have no terminal.
#[test]
fn a_closed_terminal_ends_neither_daemon_nor_agents() {
    let (ours, theirs) = terminal();
    let mut daemon = setup("terminal").through(&["setsid", "--ctty"]).ready();
    daemon.spawn_hearing(Stdio::from(theirs));
    daemon.wait_ready();
    let terminal_of = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let mut fields = text.rsplit(')').next().unwrap_or_default().split(' ');
        fields.nth(5).map(str::to_owned)
    };
    assert_ne!(terminal_of(daemon.identity().pid).as_deref(), Some("0"));
    let watched = Watched::start(&daemon);
    assert_eq!(terminal_of(watched.agent.pid).as_deref(), Some("0"));
    drop(ours);
    wait_until("the hang-up", Duration::from_secs(10), || {
        (times_reloaded(&daemon) >= 1).then_some(())
    });
    watched.assert_untouched(&daemon);
    let other = daemon.open("fake");
    assert_eq!(
        daemon.say(&other, "FAKE:say on"),
        "SAID on (user turns seen: 1)"
    );
}
