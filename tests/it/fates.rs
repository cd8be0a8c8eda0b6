//! What becomes of a message when the daemon is killed, at each stage of its life.

use std::fs::{self, File};

use drowse::process::control::{Checkpoint, ToKeeper};
use drowse::process::link::KeeperLink;
use drowse_messages::{MessageId, MessageState, SessionState};
use drowse_tests::{CEILING, ProcIdentity, TestDaemon, daemon, wait_until};
use nix::sys::signal::Signal;
use tokio::runtime::Builder;

/// What a pipe holds, unless somebody made it larger.
const PIPE_BYTES: u64 = 64 * 1024;

/// Bytes that were written to a process and that it has not read.
fn unread(process: &ProcIdentity) -> u64 {
    let stdin = File::open(format!("/proc/{}/fd/0", process.pid)).expect("it is ours");
    rustix::io::ioctl_fionread(stdin).expect("its input is a pipe")
}

fn wait_unread(process: &ProcIdentity, bytes: u64) {
    wait_until("bytes that are not read", CEILING, || {
        (unread(process) >= bytes).then_some(())
    });
}

fn is_heard(daemon: &TestDaemon, what: &str) -> usize {
    let turns = daemon.fake().turns();
    turns.iter().filter(|turn| turn.contains(what)).count()
}

fn starts(daemon: &TestDaemon) -> usize {
    daemon.fake().events("start").len()
}

/// An agent that has half of a message in its pipe and does not read, and one message behind that.
fn half_written(daemon: &TestDaemon) -> (String, ProcIdentity, [MessageId; 2]) {
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    let agent = daemon.agent(&id);
    agent.signal(Signal::SIGSTOP);
    let half = daemon.post(&id, &format!("FAKE:say half {}", "x".repeat(128 * 1024)));
    wait_unread(&agent, PIPE_BYTES);
    // It is on disk when this returns; by then the link has told its keeper that it wrote.
    let behind = daemon.post(&id, "FAKE:say behind");
    (id, agent, [half, behind])
}

/// Behaviour 99, D41: killed while half a message is in the agent's pipe and the rest waits for
/// room. How much was written is known, so the next daemon writes the rest, and nothing else.
#[test]
fn half_a_message_is_completed_by_the_next_daemon() {
    let mut daemon = daemon!("half-written").limit("idle_after", "1h").start();
    let (_, agent, messages) = half_written(&daemon);
    daemon.kill9();
    daemon.restart();
    agent.signal(Signal::SIGCONT);
    let answers = messages.map(|message| daemon.settled(message).answer);
    let whole = format!("SAID half {} (user turns seen: 2)", "x".repeat(128 * 1024));
    assert!(answers[0] == whole, "{:.100}", answers[0]);
    assert_eq!(answers[1], "SAID behind (user turns seen: 3)");
    assert_eq!(starts(&daemon), 1);
}

/// What a daemon leaves that dies within write(2): it said that it writes, and not that it is done.
/// In the place of that daemon, because nobody can kill one at that moment on purpose.
fn die_while_writing(daemon: &TestDaemon, id: &str, keeper: &ProcIdentity) {
    let folder = daemon.state_dir().join("keepers");
    let socket = folder.join(format!("{id}-1.sock"));
    let keeper = drowse_messages::ProcIdentity::new(keeper.pid, keeper.start_time);
    let keeper = keeper.expect("it is a process");
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime of one thread needs nothing special");
    runtime.block_on(async {
        let taken = KeeperLink::take_over(keeper, &socket).await;
        let (mut link, held) = taken.expect("its daemon is dead");
        let known = held.checkpoint.0;
        let end = known.iter().position(|&byte| byte == b'\n');
        let (about, rest) = known.split_at(end.expect("it begins with a line"));
        let about = String::from_utf8_lossy(about);
        let writing = about.replace("\"writing\":false", "\"writing\":true");
        assert!(writing.contains("\"writing\":true"), "{about}");
        let known = Checkpoint([writing.as_bytes(), rest].concat());
        let sent = link.send(ToKeeper::Checkpoint(known)).await;
        sent.expect("the keeper listens");
        link.sent().await.expect("the keeper listens");
    });
}

/// Behaviour 99, D41: killed within the write of a message. How much of it arrived nobody knows:
/// the backend is ended, the message unknown and never said again, and what waited behind it is
/// heard by the next one, once.
#[test]
fn a_message_in_doubt_is_unknown_and_never_said_again() {
    let mut daemon = daemon!("writing").limit("idle_after", "1h").start();
    let (id, agent, [half, behind]) = half_written(&daemon);
    let keeper = daemon.keeper(&id);
    daemon.kill9();
    die_while_writing(&daemon, &id, &keeper);
    daemon.restart();

    assert_eq!(daemon.settled(half).state, MessageState::Unknown);
    let behind = daemon.settled(behind);
    assert!(behind.answer.starts_with("SAID behind"), "{behind:?}");
    assert!(!agent.is_alive());
    let log = daemon.log_text();
    assert!(log.contains("ended while it wrote"), "{log}");
    assert_eq!(
        (is_heard(&daemon, "half"), is_heard(&daemon, "behind")),
        (0, 1)
    );
    assert_eq!(starts(&daemon), 2);
    daemon.fake().assert_never_two();
}

/// One message at each stage, and the session it is in.
struct Stage {
    session: String,
    message: MessageId,
}

impl Stage {
    fn of(daemon: &TestDaemon, session: String, text: &str) -> Self {
        let message = daemon.post(&session, text);
        Self { session, message }
    }

    fn awake(daemon: &TestDaemon, text: &str) -> Self {
        let session = daemon.open("fake");
        daemon.say(&session, "FAKE:say one");
        Self::of(daemon, session, text)
    }

    fn fate(&self, daemon: &TestDaemon) -> (MessageState, String) {
        let message = daemon.settled(self.message);
        (message.state, message.answer)
    }
}

/// Behaviours 96, 99, D41: killed with messages that wait for a start and behind a turn, one that is
/// written and not read, one that is worked on, one that is answered, and one whose agent dies with
/// the daemon. Each has one fate, and is heard once at most.
#[test]
fn each_stage_has_its_fate() {
    let mut daemon = daemon!("fates").limit("idle_after", "1h").start();
    let gate = daemon.path("gate");
    let until_gate = |word: &str| format!("FAKE:wait {}\nFAKE:say {word}", gate.display());
    let working = Stage::awake(&daemon, &until_gate("working"));
    let behind = Stage::of(&daemon, working.session.clone(), "FAKE:say behind");
    let answered = Stage::awake(&daemon, "FAKE:say answered");
    answered.fate(&daemon);
    let lost = Stage::awake(&daemon, &until_gate("lost"));
    let after = Stage::of(&daemon, lost.session.clone(), "FAKE:say after");
    daemon.fake().wait_events("turn", 6);
    let unread = daemon.open("fake");
    daemon.say(&unread, "FAKE:say one");
    let agent = daemon.agent(&unread);
    agent.signal(Signal::SIGSTOP);
    let unread = Stage::of(&daemon, unread, "FAKE:say unread");
    wait_unread(&agent, 1);
    let starting = daemon.open_behaving("fake", &[("start_delay_ms", "1500")]);
    let starting = Stage::of(&daemon, starting, "FAKE:say starting");
    daemon.wait_state(&starting.session, SessionState::Starting);

    let keeper = daemon.keeper(&lost.session);
    daemon.kill9();
    keeper.signal(Signal::SIGKILL);
    daemon.restart();
    agent.signal(Signal::SIGCONT);
    fs::write(&gate, "").expect("the folder is ours");

    for (stage, answer) in [
        (&working, "SAID working (user turns seen: 2)"),
        (&behind, "SAID behind (user turns seen: 3)"),
        (&answered, "SAID answered (user turns seen: 2)"),
        (&unread, "SAID unread (user turns seen: 2)"),
        (&starting, "SAID starting (user turns seen: 1)"),
        (&after, "SAID after (user turns seen: 3)"),
    ] {
        let fate = (MessageState::Answered, answer.to_owned());
        assert_eq!(stage.fate(&daemon), fate);
    }
    assert_eq!(lost.fate(&daemon).0, MessageState::Unknown);
    for word in [
        "working", "behind", "answered", "lost", "after", "unread", "starting",
    ] {
        assert_eq!(is_heard(&daemon, &format!("say {word}")), 1, "{word}");
    }
    daemon.fake().assert_never_two();
}
