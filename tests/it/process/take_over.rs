//! Keepers that outlive their daemon: what the next one finds, and who is refused.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::daemon::{FakeDaemon, keeper_of};
use super::support::*;
use drowse::process::control::{
    CHECKPOINT_BYTES_MAX, Checkpoint, FromKeeper, LaunchStep, ToKeeper,
};
use drowse::process::link::{KeeperEvent, KeeperLink, TakeOverError};
use drowse::process::spawn::KeeperProgram;
use drowse::process::table::identify;
use drowse_messages::{ExitStatus, ProcIdentity, ReapStep};
use rustix::process::Signal;

/// D41: the next daemon has the same agent, can speak to it and hears it, and gets what the one
/// before left for it.
#[test]
fn an_agent_outlives_its_daemon() {
    let (_folder, socket) = place();
    let session = new_session();
    let mut daemon = FakeDaemon::start(session, &socket, GRACE, "report;echo;sleep");
    let agent = daemon.reports(1)[0];
    let keeper = keeper_of(agent);
    daemon.order("checkpoint first");
    daemon.order("say before");
    assert_eq!(daemon.line(), "before\n");
    daemon.order("checkpoint second");
    assert_eq!(daemon.kill(), b"");
    on_runtime(async {
        let taken = Backend::take_over(session, keeper, &socket).await;
        let (mut backend, held) = taken.expect("it waits");
        let expected = TakenOver {
            checkpoint: b"second".to_vec(),
            ..TakenOver::default()
        };
        assert_eq!((backend.agent, held), (agent, expected));
        assert!(is_alive(agent));
        backend.say("after\n").await;
        assert_eq!(backend.line().await, "after\n");
        assert!(backend.step(&pool(), ReapStep::Kill).await.empty);
        assert_eq!(backend.exit().await, ExitStatus::Signal(9));
        let event = in_time("the end", backend.link.next_message()).await;
        assert!(matches!(event, Ok(Some(KeeperEvent::Empty))), "{event:?}");
        let sent = backend.link.send(ToKeeper::Leave).await;
        sent.expect("a keeper");
    });
    wait_until("the keeper has left", || !is_alive(keeper));
    assert!(!socket.exists(), "the socket goes with its keeper");
    assert!(marked(session).is_empty(), "{}", dump(session));
}

/// D41, D36: what an agent writes while nobody reads arrives whole, also when it is more than the
/// pipe holds and the agent had to wait.
#[test]
fn what_is_written_meanwhile_arrives_byte_for_byte() {
    const LENGTH: usize = 300_000;
    const PIPE_BYTES: u64 = 65_536;
    let (_folder, socket) = place();
    let session = new_session();
    let script = format!("onterm[flood {LENGTH};exit 5];sleep");
    let mut daemon = FakeDaemon::start(session, &socket, GRACE, &script);
    let agent = daemon.reports(1)[0];
    let keeper = keeper_of(agent);
    assert_eq!(daemon.kill(), b"");
    let before = written(agent);
    signal(agent, Signal::TERM);
    wait_until("the pipe is full", || written(agent) - before == PIPE_BYTES);
    on_runtime(async {
        let taken = Backend::take_over(session, keeper, &socket).await;
        let (mut backend, held) = taken.expect("it waits");
        assert_eq!(held, TakenOver::default());
        let said = backend.bytes(LENGTH).await;
        let expected: Vec<u8> = (0..=250).cycle().take(LENGTH).collect();
        assert!(said == expected, "{} bytes came", said.len());
        assert_eq!(backend.exit().await, ExitStatus::Code(5));
        let sent = backend.link.send(ToKeeper::Leave).await;
        sent.expect("a keeper");
    });
    wait_until("the keeper has left", || !is_alive(keeper));
}

/// D36, D41: an agent that ended while nobody looked is told of as if somebody had.
#[test]
fn the_end_of_an_agent_is_kept_for_the_next_daemon() {
    let (_folder, socket) = place();
    let session = new_session();
    let script = "onterm[flood 10;exit 7]";
    let mut daemon = FakeDaemon::start(session, &socket, GRACE, script);
    let agent = daemon.reports(1)[0];
    let keeper = keeper_of(agent);
    daemon.kill();
    signal(agent, Signal::TERM);
    wait_until("the agent was collected", || identify(agent.pid()).is_err());
    on_runtime(async {
        let taken = Backend::take_over(session, keeper, &socket).await;
        let (mut backend, held) = taken.expect("it waits, though it has no child");
        let expected = TakenOver {
            exited: Some(ExitStatus::Code(7)),
            empty: true,
            checkpoint: Vec::new(),
        };
        assert_eq!((backend.agent, held), (agent, expected));
        assert_eq!(backend.bytes(10).await, (0..10).collect::<Vec<u8>>());
        let sent = backend.link.send(ToKeeper::Leave).await;
        sent.expect("a keeper");
        let event = in_time("the leaving", backend.link.next_message()).await;
        assert!(matches!(event, Ok(None)), "{event:?}");
    });
    wait_until("the keeper has left", || !is_alive(keeper));
}

/// A daemon that hangs is replaced: it finds its keeper gone.
#[test]
fn a_newer_daemon_takes_the_place_of_the_one_before() {
    on_runtime(async {
        let (_folder, socket) = place();
        let mut older = start_kept(&socket, "echo").await;
        let (session, keeper) = (older.session, older.link.keeper());
        let taken = Backend::take_over(session, keeper, &socket).await;
        let (mut newer, held) = taken.expect("it is there");
        assert_eq!(held, TakenOver::default());
        let event = in_time("the end", older.link.next_message()).await;
        assert!(matches!(event, Ok(None)), "{event:?}");
        drop(older);
        newer.say("hello\n").await;
        assert_eq!(newer.line().await, "hello\n");
        end(newer).await;
    });
}

/// Whoever only connects, or does not speak as a daemon does, changes nothing.
#[test]
fn only_a_daemon_takes_over() {
    on_runtime(async {
        let (_folder, socket) = place();
        let mut backend = start_kept(&socket, "echo").await;
        let silent = UnixStream::connect(&socket).expect("a keeper listens");
        backend.say("1\n").await;
        assert_eq!(backend.line().await, "1\n");
        drop(silent);
        for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[9, 7, 0, 0, 0, 0]] {
            let mut stranger = UnixStream::connect(&socket).expect("a keeper listens");
            stranger.write_all(nonsense).expect("it reads");
            let mut reply = [0; 6];
            stranger.read_exact(&mut reply).expect("it answers");
            assert_eq!(
                reply,
                *FromKeeper::Refused.encode().expect("short"),
                "it says its own version"
            );
        }
        backend.say("2\n").await;
        assert_eq!(backend.bytes(4).await, b"1\n2\n");
        end(backend).await;
    });
}

/// Another user's program gets nothing, even where the folder and the file let it connect.
#[test]
fn another_user_is_hung_up_on() {
    const NOBODY: u32 = 65_534;
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED another_user_is_hung_up_on: only root can become another user");
        return;
    }
    on_runtime(async {
        let (folder, socket) = place();
        let mut backend = start_kept(&socket, "echo").await;
        let mode = |path: &Path, mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, mode).expect("ours");
        };
        let found = std::fs::metadata(&socket).expect("it is there");
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        mode(folder.path(), 0o755);
        mode(&socket, 0o666);
        // Where the program was built, another user may not be let in.
        let program = folder.path().join("tree-agent");
        std::fs::copy(TREE_AGENT, &program).expect("room");
        let ask = |user: u32| {
            let script = format!("connect {}", socket.display());
            let asked = Command::new(&program)
                .arg(script)
                .uid(user)
                .gid(user)
                .output();
            String::from_utf8(asked.expect("it runs").stdout).expect("text")
        };
        assert_eq!(ask(NOBODY), "got 0 bytes\n");
        backend.say("still here\n").await;
        assert_eq!(backend.line().await, "still here\n");
        assert_ne!(ask(0), "got 0 bytes\n", "the keeper's own user is answered");
        let session = backend.session;
        let keeper = backend.link.keeper();
        drop(backend);
        let taken = Backend::take_over(session, keeper, &socket).await;
        end(taken.expect("it waits").0).await;
    });
}

/// Nobody but the very keeper meant is believed.
#[test]
fn another_process_at_the_socket_is_not_taken_for_the_keeper() {
    on_runtime(async {
        let (_folder, socket) = place();
        let mut backend = start_kept(&socket, "echo").await;
        let keeper = backend.link.keeper();
        let own = identify(std::process::id().cast_signed()).expect("alive");
        let older = ProcIdentity::new(keeper.pid(), keeper.start_ticks() - 1);
        for wrong in [own, older.expect("a pid above 1")] {
            let refused = KeeperLink::take_over(wrong, &socket).await;
            let error = refused.expect_err("it is another one");
            let TakeOverError::IdentityDiffers { found, .. } = error else {
                panic!("{error:?}");
            };
            assert_eq!(found, Some(keeper));
        }
        backend.say("undisturbed\n").await;
        assert_eq!(backend.line().await, "undisturbed\n");
        end(backend).await;
    });
}

/// One that is ending its tree cannot be taken over any more, and says so.
#[test]
fn a_keeper_that_ends_its_tree_says_so() {
    on_runtime(async {
        let (_folder, socket) = place();
        let session = new_session();
        let mut plan = launch(session, &[TREE_AGENT, "ignore;report;sleep"]);
        plan.socket = Some(socket.clone());
        plan.orphan_grace = GRACE;
        plan.term_grace = GRACE;
        let mut backend = Backend::launch(session, plan).await;
        backend.reports(1).await;
        let keeper = backend.link.keeper();
        backend.link.end();
        for _ in 0..2 {
            let refused = KeeperLink::take_over(keeper, &socket).await;
            let error = refused.expect_err("it is too late");
            assert!(matches!(error, TakeOverError::Ending { .. }), "{error:?}");
        }
        let pool = pool();
        let report = step_on(&pool, session, keeper, ReapStep::Kill).await;
        assert!(report.empty);
        assert_eq!(collect(&pool, keeper).await, Some(ExitStatus::Code(0)));
        assert!(!socket.exists());
    });
}

/// Whoever cannot be taken over is told apart.
#[test]
fn a_failed_take_over_says_what_failed() {
    on_runtime(async {
        let (_folder, socket) = place();
        let own = identify(std::process::id().cast_signed()).expect("alive");
        let take_over = || async {
            let taken = KeeperLink::take_over(own, &socket).await;
            taken.expect_err("there is no keeper")
        };
        let error = take_over().await;
        assert!(matches!(error, TakeOverError::Gone { .. }), "{error:?}");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let answer = |bytes: &'static [u8]| {
            let listener = listener.try_clone().expect("a descriptor");
            std::thread::spawn(move || {
                let (mut peer, _) = listener.accept().expect("somebody comes");
                let order = ToKeeper::TakeOver.encode().expect("short");
                peer.read_exact(&mut vec![0; order.len()])
                    .expect("an order");
                peer.write_all(bytes).expect("somebody reads");
            })
        };
        let other_release = answer(&[9, 200, 0, 0, 0, 0]);
        let error = take_over().await;
        let is_told = matches!(error, TakeOverError::Version { version: 9, .. });
        assert!(is_told, "{error:?}");
        let nonsense = answer(&[2, 200, 0, 0, 0, 0]);
        let error = take_over().await;
        assert!(matches!(error, TakeOverError::Link { .. }), "{error:?}");
        let dying = answer(&[2, 69, 9]);
        let error = take_over().await;
        assert!(matches!(error, TakeOverError::Gone { .. }), "{error:?}");
        for thread in [other_release, nonsense, dying] {
            thread.join().expect("it did its part");
        }
        // Nobody answers: the clock goes on as soon as nothing else does.
        tokio::time::pause();
        let error = take_over().await;
        assert!(matches!(error, TakeOverError::Timeout { .. }), "{error:?}");
        tokio::time::resume();
        drop(listener);
        let error = take_over().await;
        assert!(matches!(error, TakeOverError::Gone { .. }), "{error:?}");
    });
}

/// A socket's address holds 108 bytes; state folders are where people want them.
#[test]
fn a_socket_may_be_far_down() {
    on_runtime(async {
        let (folder, _) = place();
        let part = "x".repeat(100);
        let deep = folder.path().join(&part).join(&part).join(&part);
        std::fs::create_dir_all(&deep).expect("room");
        let socket = deep.join("keeper.sock");
        assert!(socket.as_os_str().len() > 300);
        std::fs::write(&socket, "left by an earlier keeper").expect("room");
        let backend = start_kept(&socket, "sleep").await;
        let (session, keeper) = (backend.session, backend.link.keeper());
        drop(backend);
        let taken = Backend::take_over(session, keeper, &socket).await;
        end(taken.expect("it waits").0).await;
        assert!(!socket.exists());
    });
}

/// A keeper that takes its time to leave does not take the socket of the next one with it.
#[test]
fn a_socket_belongs_to_the_keeper_that_came_last() {
    on_runtime(async {
        let (_folder, socket) = place();
        let first = start_kept(&socket, "sleep").await;
        let second = start_kept(&socket, "sleep").await;
        let (session, keeper) = (second.session, second.link.keeper());
        end(first).await;
        drop(second);
        let taken = Backend::take_over(session, keeper, &socket).await;
        end(taken.expect("it waits").0).await;
        assert!(!socket.exists());
    });
}

/// An agent that could not be taken over is not started.
#[test]
fn a_keeper_that_cannot_listen_starts_nothing() {
    on_runtime(async {
        let (folder, _) = place();
        let occupied = folder.path().join("occupied");
        std::fs::create_dir(&occupied).expect("room");
        let cases = [
            (folder.path().join("no/folder"), libc::ENOENT),
            (folder.path().join("x".repeat(200)), libc::ENAMETOOLONG),
            (occupied, libc::EISDIR),
        ];
        let program = KeeperProgram::at(Path::new(KEEPER));
        for (socket, errno) in cases {
            let session = new_session();
            let mut plan = launch(session, &[TREE_AGENT, "sleep"]);
            plan.socket = Some(socket);
            let spawned = KeeperLink::spawn(&program, session, plan).await;
            let mut link = spawned.expect("a keeper");
            let event = in_time("the news", link.next_message()).await;
            let Ok(Some(KeeperEvent::LaunchFailed(error))) = event else {
                panic!("{event:?}");
            };
            assert_eq!((error.step, error.errno), (LaunchStep::Socket, errno));
            assert!(marked(session).is_empty(), "{}", dump(session));
            collect(&pool(), link.keeper()).await.expect("it left");
        }
    });
}

/// A keeper that does not listen keeps nobody waiting, and misses only what is out of date.
#[test]
fn a_checkpoint_waits_for_nobody() {
    on_runtime(async {
        let (_folder, socket) = place();
        let mut backend = start_kept(&socket, "sleep").await;
        let (session, keeper) = (backend.session, backend.link.keeper());
        signal(keeper, Signal::STOP);
        let checkpoint = |byte| Checkpoint(vec![byte; CHECKPOINT_BYTES_MAX]);
        for byte in 0..50 {
            let message = ToKeeper::Checkpoint(checkpoint(byte));
            let sent = in_time("the sending", backend.link.send(message)).await;
            sent.expect("a keeper");
        }
        let too_long = Checkpoint(vec![0; CHECKPOINT_BYTES_MAX + 1]);
        let refused = backend.link.send(ToKeeper::Checkpoint(too_long)).await;
        assert!(refused.is_err());
        signal(keeper, Signal::CONT);
        // This one is sent behind everything else.
        let sent = in_time("the rest", backend.link.send(ToKeeper::CloseStdin)).await;
        sent.expect("a keeper");
        drop(backend);
        let taken = Backend::take_over(session, keeper, &socket).await;
        let (backend, held) = taken.expect("it waits");
        assert!(held.checkpoint == checkpoint(49).0, "the newest");
        assert!(backend.stdio.stdin.is_none(), "it stays closed");
        end(backend).await;
    });
}
