//! `drowse restart`, and what may go wrong in the middle of it.

use std::fs::{self, File};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use drowse::exit::Exit;
use drowse_tests::{CEILING, ProcIdentity, daemon, wait_until};
use nix::sys::signal::Signal;
use rustix::fs::{FlockOperation, flock};

/// Pipes that a process has open.
fn pipes(process: &ProcIdentity) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", process.pid)).expect("it runs");
    let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let is_pipe = |file: &std::path::PathBuf| file.to_string_lossy().starts_with("pipe:");
    open.filter(is_pipe).count()
}

/// D44: after a restart the keepers are children still, those that no row leads to as well. They
/// stayed zombies until the daemon ended.
#[test]
fn a_stray_keeper_is_collected_after_a_restart() {
    let daemon = daemon!("collected").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say one");
    let database = rusqlite::Connection::open(daemon.state_dir().join("drowse.db")).unwrap();
    let sql = "UPDATE sessions SET running = NULL, state = 'released'";
    assert_eq!(database.execute(sql, []).unwrap(), 1);
    drop(database);
    assert!(daemon.run(&["restart"]).status.success());
    daemon.wait_gone(&id);
    wait_until("no zombie", CEILING, || {
        (daemon.uncollected() == 0).then_some(())
    });
}

/// Behaviour 87: told to end while it leaves its sessions to the next daemon, it ends what it let go
/// of as well. Those keepers waited for a daemon until `orphan_grace` was over, and whoever had asked
/// for the restart waited for the next daemon for 90 s.
#[test]
fn told_to_end_during_a_restart_no_keeper_waits() {
    let mut daemon = daemon!("torn").limit("idle_after", "1h").start();
    let [resting, stuck] = ["fake"; 2].map(|agent| daemon.open(agent));
    daemon.say(&resting, "FAKE:spawn setsid");
    daemon.say(&stuck, "FAKE:say one");
    // An agent that does not read: its link waits for it before it lets go.
    daemon.agent(&stuck).signal(Signal::SIGSTOP);
    daemon.post(&stuck, &format!("FAKE:say {}", "x".repeat(128 * 1024)));
    let me = daemon.identity();
    let before = pipes(&me);
    let mut verb = daemon.command(&["restart"]);
    verb.stdin(Stdio::null()).stdout(Stdio::null());
    let mut verb = verb.stderr(Stdio::null()).spawn().unwrap();
    wait_until("a link that lets go", CEILING, || {
        (pipes(&me) == before - 3).then_some(())
    });
    assert_eq!(daemon.terminate().code(), Some(0));
    let left = [&resting, &stuck].map(|id| daemon.processes(id));
    let ended = wait_until("the end of the verb", CEILING, || verb.try_wait().unwrap());
    assert_eq!(ended.code(), Some(i32::from(Exit::NoDaemon.code())));
    assert_eq!(left, [[], []]);
}

/// One daemon for each state folder, also between two programs in one process: nobody who tries all
/// the time gets its lock.
#[test]
fn the_state_folder_is_never_free_during_a_restart() {
    let daemon = daemon!("lock").start();
    let lock = File::open(daemon.state_dir().join("lock")).unwrap();
    let over = AtomicBool::new(false);
    let taken = thread::scope(|scope| {
        let trying = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    flock(&lock, FlockOperation::Unlock).unwrap();
                    return true;
                }
            }
            false
        });
        for _ in 0..3 {
            let output = daemon.run(&["restart"]);
            assert!(output.status.success(), "{output:?}");
        }
        over.store(true, Ordering::Relaxed);
        trying.join().unwrap()
    });
    assert!(!taken, "somebody else could have had it");
}
