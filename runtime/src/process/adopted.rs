//! Processes that became children of this one because their keeper was killed from outside.
//!
//! Fed by: the daemon's start (once), reap.rs (a lost keeper's tree) and reaper.rs (their
//! zombies). Without it, a process that has left its keeper's cgroup and cleared its environment
//! goes to init, and nothing leads to it any more.
//! Invariant: nothing is found or collected here unless [`adopt_orphans`] made this process a
//! subreaper, which only a program does that starts no children but keepers. A program that embeds
//! the daemon may have children of its own and does not call it. Even then a process counts only
//! if
//! - it is a direct child of this process,
//! - it is of another process session than this one: whatever a keeper's agent started is, since
//!   the keeper began a session of its own and nobody can join one,
//! - it is no keeper, and
//! - it does not carry another session's mark.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drowse_messages::{ProcIdentity, ProcReport};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::reap::wait_until_ended;
use super::sweep::{Mark, is_keeper};
use super::table::{self, Process, Stat};

/// 1 s for killed processes to become zombies: they need microseconds once their memory is given
/// back, and that was waited for.
const COLLECT_MAX: Duration = Duration::from_secs(1);

/// Keepers of this process that are not collected yet.
static OWN: Mutex<BTreeSet<ProcIdentity>> = Mutex::new(BTreeSet::new());

/// Set once, never unset: what was adopted stays.
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// Makes this process the one to which processes go whose keeper is killed from outside, so that
/// they stay below the daemon instead of going to init. For programs alone that start no children
/// but keepers: see the module. To be called once; not inherited by what this process starts.
///
/// # Errors
/// The kernel does not know the call (Linux before 3.4).
pub fn adopt_orphans() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    ADOPTS.store(true, Ordering::Relaxed);
    Ok(())
}

/// Those of them that live and may belong to the session with this mark, in no particular order.
///
/// One without any mark is found for whichever session of a lost keeper asks first: the trees of
/// all of those are being ended.
///
/// # Errors
/// `/proc` cannot be read.
pub(super) fn find(mark: &Mark) -> io::Result<Vec<i32>> {
    let mut found = candidates()?;
    found.retain(|stat| {
        let pid = stat.identity.pid();
        stat.is_alive() && !is_keeper(pid) && !mark.is_of_another(pid)
    });
    Ok(found.iter().map(|stat| stat.identity.pid()).collect())
}

/// Notes a keeper that this process started or took over: whoever lets go of it collects it.
pub(super) fn note_own(keeper: ProcIdentity) {
    own_keepers().insert(keeper);
}

/// It is collected.
pub(super) fn forget_own(keeper: ProcIdentity) {
    own_keepers().remove(&keeper);
}

fn own_keepers() -> MutexGuard<'static, BTreeSet<ProcIdentity>> {
    // A set is whole after a panic, too.
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects those that have ended, each by its number; also a keeper that an agent had started.
/// Those in `ended` were killed, and may need a moment to be dead: a cgroup counts as empty a
/// little earlier.
pub(super) fn collect(ended: &[ProcReport]) {
    let deadline = Instant::now() + COLLECT_MAX;
    let is_ended = |stat: &Stat| ended.iter().any(|it| it.identity == stat.identity);
    // What cannot be read now is collected next time.
    for stat in candidates().unwrap_or_default() {
        let is_own = own_keepers().contains(&stat.identity);
        let is_over = is_ended(&stat) && wait_until_ended(stat.identity, deadline);
        if !is_own && (is_over || !stat.is_alive()) {
            let pid = Pid::from_raw(stat.identity.pid());
            // Whoever collected it first did what was wanted.
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }
}

/// Children that were adopted, and keepers.
fn candidates() -> io::Result<Vec<Stat>> {
    if !ADOPTS.load(Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let own = Process::open(std::process::id().cast_signed())?;
    let stat = own.stat()?;
    let mut children = Vec::new();
    own.children(stat.threads, &mut children)?;
    let others = children
        .into_iter()
        .filter_map(|pid| table::stat_of(pid).ok());
    Ok(others
        .filter(|child| child.process_session != stat.process_session)
        .collect())
}
