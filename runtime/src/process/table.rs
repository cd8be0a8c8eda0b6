//! Reads the process table: one process, the tree below one, never the whole of `/proc`.
//!
//! Fed by: everything else in this folder. Sends no signal and decides nothing.
//! Invariant: what is read through one [`Process`] concerns one and the same process, because the
//! open `/proc/PID` folder stays bound to it when the number is given to another.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use drowse_messages::{ProcIdentity, ProcReport};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;

/// 65,536 processes in one tree: above the default `pid_max` of most machines, and a bound on
/// what one walk may cost (about a second).
pub const WALK_PROCESSES_MAX: usize = 65_536;

/// 3 walks: enough for one process that ends at a bad moment, and cheap for trees with zombies.
const WALK_TRIES_MAX: u32 = 3;

/// 1 KiB: a stat line has 52 numbers of at most 20 digits and a name of 15 bytes; real ones are
/// below 400 bytes, and what is cut off lies behind the fields read here.
const STAT_BYTES_MAX: usize = 1024;

/// One page, which is what the kernel hands out of a `children` file at a time.
const CHILDREN_CHUNK_BYTES: usize = 4096;

/// A read that leaves more room than this has come to the end of the file: the kernel stops short
/// of a full page only where the next number (at most 10 digits and a space) did not fit.
const CHILDREN_ROOM_BYTES: usize = 16;

/// Big enough for 40 entries of a `task` folder; more threads only mean more reads.
const TASKS_CHUNK_BYTES: usize = 1024;

/// A smaps rollup is about 700 bytes; the second line with `Pss:` comes within the first 200.
const ROLLUP_BYTES_MAX: usize = 2048;

/// One line of `/proc/PID/stat`, the fields Drowse needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Which process.
    pub identity: ProcIdentity,
    /// The pid of its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its process session.
    pub process_session: i32,
    /// The state letter of its first thread.
    pub state: char,
    /// How many threads it has.
    pub threads: u32,
    /// Its name, control characters replaced.
    pub name: String,
}

impl Stat {
    /// False for a zombie: it runs no more, and only its parent can remove it.
    ///
    /// A process whose first thread ended before the others shows `Z` as well, and lives.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }

    /// True when its first thread has ended before the others, who live.
    #[must_use]
    pub fn is_leaderless(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads > 1
    }

    /// True when it cannot fork before it has taken a pending SIGSTOP: it is stopped, traced to a
    /// stop, dead, or asleep in the kernel (a vfork parent waits in `D` for its stopped child).
    #[must_use]
    pub fn is_still(&self) -> bool {
        matches!(self.state, 'T' | 't' | 'D') || !self.is_alive()
    }

    /// The report of it, not measured.
    #[must_use]
    pub fn report(&self) -> ProcReport {
        ProcReport::new(self.identity, self.parent, self.name.clone())
    }
}

/// A process held by its open `/proc/PID` folder.
#[derive(Debug)]
pub struct Process {
    folder: OwnedFd,
    pid: i32,
}

impl Process {
    /// Opens the process that has this number now; [`io::ErrorKind::NotFound`] if none has.
    ///
    /// # Errors
    /// The process is gone, hidden, or the daemon is out of descriptors.
    pub fn open(pid: i32) -> io::Result<Self> {
        let path = format!("/proc/{pid}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { folder, pid })
    }

    /// The number it was opened by.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Its stat line, read now.
    ///
    /// # Errors
    /// The process has been collected ([`io::ErrorKind::NotFound`]), or its line is not one.
    pub fn stat(&self) -> io::Result<Stat> {
        read_stat(self.open_file("stat")?.as_fd())
    }

    /// Appends the pids of its children, of all its threads, to `into`.
    ///
    /// `threads` is what [`Stat::threads`] said: a single thread spares listing them.
    ///
    /// # Errors
    /// As [`Process::stat`].
    pub fn children(&self, threads: u32, into: &mut Vec<i32>) -> io::Result<()> {
        if threads == 1 {
            return self.children_of_thread(self.pid, into);
        }
        let tasks = self.open_file("task")?;
        let mut buffer = [MaybeUninit::uninit(); TASKS_CHUNK_BYTES];
        let mut entries = RawDir::new(tasks.as_fd(), &mut buffer);
        while let Some(entry) = entries.next() {
            let thread = entry?
                .file_name()
                .to_str()
                .ok()
                .and_then(|name| name.parse().ok());
            if let Some(thread) = thread {
                // A thread that ended meanwhile has left its children to another one.
                ignore_gone(self.children_of_thread(thread, into))?;
            }
        }
        Ok(())
    }

    /// Its proportional set size in bytes.
    ///
    /// # Errors
    /// As [`Process::stat`]; also when the process is somebody else's.
    pub fn pss_bytes(&self) -> io::Result<u64> {
        let mut buffer = [0; ROLLUP_BYTES_MAX];
        let length = read_start(self.open_file("smaps_rollup")?.as_fd(), &mut buffer)?;
        Ok(parse_pss(&buffer[..length]).unwrap_or(0))
    }

    /// Another descriptor of the open folder, to signal it through later.
    ///
    /// # Errors
    /// The daemon is out of descriptors.
    pub fn hold(&self) -> io::Result<OwnedFd> {
        self.folder.try_clone()
    }

    fn children_of_thread(&self, thread: i32, into: &mut Vec<i32>) -> io::Result<()> {
        let file = self.open_file(&format!("task/{thread}/children"))?;
        read_pids(file.as_fd(), into)
    }

    fn open_file(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(
            &self.folder,
            name,
            flags,
            Mode::empty(),
        )?)
    }
}

impl AsFd for Process {
    /// The open folder, which `pidfd_send_signal(2)` takes as a pidfd.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// True for the errors that mean "no longer there".
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::SRCH].map(|errno| Some(errno.raw_os_error()));
    gone.contains(&error.raw_os_error())
}

fn ignore_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if !is_gone(&error) => Err(error),
        _ => Ok(()),
    }
}

/// The stat line of the process that has this number now, for whoever needs nothing else of it.
///
/// # Errors
/// As [`Process::open`] and [`Process::stat`].
pub fn stat_of(pid: i32) -> io::Result<Stat> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(format!("/proc/{pid}/stat"), flags, Mode::empty())?;
    read_stat(file.as_fd())
}

/// The identity of the process that has this number now.
///
/// # Errors
/// As [`Process::open`] and [`Process::stat`].
pub fn identify(pid: i32) -> io::Result<ProcIdentity> {
    Ok(stat_of(pid)?.identity)
}

/// This boot of this machine, in a form that no other boot has.
///
/// # Errors
/// `/proc` is not mounted.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim_end()
        .to_owned())
}

/// What a visit of a tree has seen so far.
#[derive(Debug, Default)]
pub struct Visit {
    /// Every pid come across, alive or not, in the order found: parents before children.
    pids: Vec<i32>,
    known: HashSet<i32>,
    alive: usize,
}

impl Visit {
    /// Shows every living process at and below `roots` to `on_found`, each once and each at the
    /// moment it is found; its children are read after that, unless `on_found` says no. Roots
    /// that this visit has come across before are left out.
    ///
    /// # Errors
    /// Something else than a vanishing process was in the way (no descriptors left, no `/proc`).
    pub fn below(
        &mut self,
        roots: Vec<i32>,
        on_found: &mut dyn FnMut(&Process, &Stat) -> bool,
    ) -> io::Result<()> {
        let mut next = self.pids.len();
        let mut found = roots;
        loop {
            // A process that changes its parent during the walk is listed twice.
            self.pids
                .extend(found.drain(..).filter(|&pid| self.known.insert(pid)));
            let Some(&pid) = self.pids.get(next).filter(|_| next < WALK_PROCESSES_MAX) else {
                return Ok(());
            };
            next += 1;
            match visit_one(pid, on_found, &mut found) {
                Ok(alive) => self.alive += usize::from(alive),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// True for a pid that was come across.
    #[must_use]
    pub fn has(&self, pid: i32) -> bool {
        self.known.contains(&pid)
    }

    /// True when somebody dead was come across, or somebody who was gone a moment later.
    #[must_use]
    pub fn met_the_dead(&self) -> bool {
        self.alive < self.pids.len()
    }

    /// True when both came across the same, in the same order.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.pids == other.pids && self.alive == other.alive
    }
}

fn visit_one(
    pid: i32,
    on_found: &mut dyn FnMut(&Process, &Stat) -> bool,
    children: &mut Vec<i32>,
) -> io::Result<bool> {
    let process = Process::open(pid)?;
    let stat = process.stat()?;
    if !stat.is_alive() {
        return Ok(false);
    }
    if on_found(&process, &stat) {
        process.children(stat.threads, children)?;
    }
    Ok(true)
}

/// The children of `keeper` alone, if it still is the process it was.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when it is gone or its number belongs to another process now.
pub fn children_of(keeper: ProcIdentity) -> io::Result<Vec<i32>> {
    let process = Process::open(keeper.pid())?;
    let stat = process.stat()?;
    if stat.identity != keeper || !stat.is_alive() {
        return Err(Errno::SRCH.into());
    }
    let mut children = Vec::new();
    process.children(stat.threads, &mut children)?;
    Ok(children)
}

/// Whether a keeper has children, looked at again and again through one open file.
#[derive(Debug)]
pub(super) struct Children {
    keeper: ProcIdentity,
    process: Process,
    list: OwnedFd,
}

impl Children {
    /// Of this keeper, which has a single thread.
    ///
    /// # Errors
    /// [`is_gone`] when it is not what it was.
    pub(super) fn of(keeper: ProcIdentity) -> io::Result<Self> {
        let process = Process::open(keeper.pid())?;
        let list = process.open_file(&format!("task/{}/children", keeper.pid()))?;
        let this = Self {
            keeper,
            process,
            list,
        };
        match this.have_parent() {
            true => Ok(this),
            false => Err(Errno::SRCH.into()),
        }
    }

    /// True when there is no entry, neither of a living child nor of a dead one.
    ///
    /// # Errors
    /// The keeper has been collected.
    pub(super) fn are_none(&self) -> io::Result<bool> {
        Ok(rustix::io::pread(&self.list, &mut [0], 0)? == 0)
    }

    /// True while the keeper lives, with one thread: what has ended leaves its children to others.
    pub(super) fn have_parent(&self) -> bool {
        let is_same = |stat: Stat| stat.identity == self.keeper && stat.threads == 1;
        self.process
            .stat()
            .is_ok_and(|stat| stat.is_alive() && is_same(stat))
    }
}

/// Lists the living processes below `keeper`, not the keeper itself, parents before children.
///
/// # Errors
/// [`is_gone`] when the keeper is gone or its number belongs to another process now.
pub fn walk(keeper: ProcIdentity) -> io::Result<Vec<Stat>> {
    let visit = |on_found: &mut dyn FnMut(&Process, &Stat) -> bool| {
        let mut visit = Visit::default();
        visit.below(children_of(keeper)?, on_found)?;
        Ok(visit)
    };
    list(&visit, &|_, stat, _| stat.clone())
}

/// One visit, which shows what it finds and goes on below it if it is told to.
pub type Visiting<'a> = &'a dyn Fn(&mut dyn FnMut(&Process, &Stat) -> bool) -> io::Result<Visit>;

/// Lists what `pick` makes of the living processes that `visit` finds; it is told how many came
/// before.
///
/// A parent that ends during a walk hands its children to a process that was read already; so a
/// walk that met somebody dead is repeated, a bounded number of times, because a zombie that
/// nobody collects is met every time.
///
/// # Errors
/// Those of `visit`.
pub fn list<T>(
    visit: Visiting<'_>,
    pick: &dyn Fn(&Process, &Stat, usize) -> T,
) -> io::Result<Vec<T>> {
    let mut tries = 0;
    loop {
        let mut found = Vec::new();
        let seen = visit(&mut |process, stat| {
            found.push(pick(process, stat, found.len()));
            true
        })?;
        tries += 1;
        if !seen.met_the_dead() || tries == WALK_TRIES_MAX {
            return Ok(found);
        }
    }
}

fn read_stat(file: BorrowedFd<'_>) -> io::Result<Stat> {
    let mut buffer = [0; STAT_BYTES_MAX];
    let length = read_start(file, &mut buffer)?;
    parse_stat(&buffer[..length])
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a stat line"))
}

fn read_start(file: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(file, buffer)?)
}

fn read_pids(file: BorrowedFd<'_>, into: &mut Vec<i32>) -> io::Result<()> {
    let mut buffer = [0; CHILDREN_CHUNK_BYTES];
    let mut pids = Pids::default();
    loop {
        let length = rustix::io::read(file, &mut buffer)?;
        pids.push(&buffer[..length], into);
        if length + CHILDREN_ROOM_BYTES < CHILDREN_CHUNK_BYTES {
            return Ok(());
        }
    }
}

/// Numbers as the kernel lists them, one behind the other, read in pieces.
#[derive(Debug, Default)]
pub(super) struct Pids {
    begun: i32,
}

impl Pids {
    /// Appends the numbers that end in these bytes. 0 stands for a process that cannot be seen
    /// from here, and is left out.
    pub(super) fn push(&mut self, bytes: &[u8], into: &mut Vec<i32>) {
        for &byte in bytes {
            // Something follows every number, the last one too; it may span two reads.
            if byte.is_ascii_digit() {
                self.begun = self
                    .begun
                    .saturating_mul(10)
                    .saturating_add(i32::from(byte - b'0'));
            } else if self.begun > 0 {
                into.push(std::mem::take(&mut self.begun));
            }
        }
    }
}

/// The name stands in brackets and may hold brackets, spaces and line ends itself (D13), so the
/// numbers are those behind the *last* closing bracket.
fn parse_stat(line: &[u8]) -> Option<Stat> {
    let open = line.iter().position(|&byte| byte == b'(')?;
    let close = line.iter().rposition(|&byte| byte == b')')?;
    let pid: i32 = parse_number(line.get(..open)?)?;
    let mut fields = line
        .get(close + 1..)?
        .split(u8::is_ascii_whitespace)
        .skip(1);
    let state = char::from(*fields.next()?.first()?);
    let parent = parse_number(fields.next()?)?;
    let group = parse_number(fields.next()?)?;
    let process_session = parse_number(fields.next()?)?;
    // Fields 7 to 19 and 21 lie between the process session (6), threads (20) and start (22).
    let threads = parse_number(fields.nth(13)?)?;
    let start_ticks = parse_number(fields.nth(1)?)?;
    let identity = ProcIdentity::new(pid, start_ticks)?;
    let name = readable(line.get(open + 1..close)?);
    Some(Stat {
        identity,
        parent,
        group,
        process_session,
        state,
        threads,
        name,
    })
}

fn parse_number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

fn readable(name: &[u8]) -> String {
    let replaced = |c: char| {
        if c.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    String::from_utf8_lossy(name)
        .chars()
        .map(replaced)
        .collect()
}

fn parse_pss(rollup: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(rollup).ok()?;
    let kib: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))?
        .trim()
        .strip_suffix(" kB")?
        .parse()
        .ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D13: names made to look like the fields that follow them.
    #[test]
    fn a_name_cannot_shift_the_fields() {
        let tail = "S 41 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 98765 1 2 3";
        for name in [
            "x) S 1 1 (y",
            "((((( )))))    ",
            "a\nb) Z 1",
            ")",
            "(",
            " ",
            "",
        ] {
            let line = format!("4242 ({name}) {tail}\n");
            let stat = parse_stat(line.as_bytes()).expect("the line is a stat line");
            assert_eq!(stat.identity.pid(), 4242, "{name:?}");
            assert_eq!(
                (stat.parent, stat.state, stat.threads),
                (41, 'S', 3),
                "{name:?}"
            );
            assert_eq!((stat.group, stat.process_session), (1, 1), "{name:?}");
            assert_eq!(stat.identity.start_ticks(), 98765, "{name:?}");
            assert!(!stat.name.contains('\n'), "{name:?}");
        }
        assert_eq!(parse_stat(b"4242 (x"), None);
        assert_eq!(parse_stat(b""), None);
        assert_eq!(
            parse_stat(b"1 (init) S 0 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 2 1"),
            None
        );
    }

    /// A first thread that ended shows `Z` while the others run on.
    #[test]
    fn a_zombie_first_thread_is_not_a_dead_process() {
        let line = |threads| format!("7 (a) Z 2 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 {threads} 0 9 1");
        let alive = |threads| {
            parse_stat(line(threads).as_bytes())
                .expect("a line")
                .is_alive()
        };
        assert!(alive(2));
        assert!(!alive(1));
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = i32::try_from(std::process::id()).expect("a pid fits");
        let process = Process::open(pid).expect("we exist");
        let stat = process.stat().expect("we have a stat line");
        assert_eq!(stat.identity, identify(pid).expect("still here"));
        assert!(process.pss_bytes().expect("ours") > 0);
        assert!(stat.is_alive());
        assert_eq!(boot_id().expect("proc is mounted").len(), 36);
    }

    #[test]
    fn pss_is_read_in_bytes() {
        let text =
            "1000-2000 ---p 0 00:00 0 [rollup]\nRss: 9 kB\nPss:     439 kB\nPss_Dirty: 1 kB\n";
        assert_eq!(parse_pss(text.as_bytes()), Some(439 * 1024));
    }
}
