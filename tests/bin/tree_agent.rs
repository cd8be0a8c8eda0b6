//! A program that misbehaves by script: what agents and their tools do to escape being ended.
//!
//! `tree-agent 'ignore;fork[setsid;report;sleep];report;sleep'`. Actions run in order, separated
//! by `;`; a script in brackets belongs to the action before it.
//!
//! | action | does |
//! |---|---|
//! | `report` | writes `pid@start` and a line end to standard output |
//! | `sleep`, `exit N`, `spin` | sleeps for ever, ends, burns a core |
//! | `fork[..]` | a child that runs the script and ends |
//! | `times N[..]` | the script N times |
//! | `setsid`, `subreaper`, `stop` | the system call; `stop` is SIGSTOP to itself |
//! | `ignore` | ignores HUP, INT and TERM |
//! | `forget` | ignores CHLD: the kernel collects its children |
//! | `onterm[..]` | sleeps until SIGTERM, runs the script, ends |
//! | `thread[..]` | the script on another thread, and goes on |
//! | `leaderless[..]` | the script on another thread, while the first thread ends |
//! | `respawn[..]` | a child that runs the script, and a new one whenever it ends |
//! | `runner` | for ever: forks a successor and ends |
//! | `storm N` | for ever: a child in its own process session every N microseconds, each living 5 ms |
//! | `bomb N` | for ever, and all children likewise: forks, N processes of one user at most |
//! | `vfork[..]` | a child that runs the script; waits in the kernel until it has ended |
//! | `reexec[..]`, `bare[..]` | replaces itself by a `tree-agent`, the latter with an empty environment |
//! | `suid[..]` | replaces itself by the program `tree-agent-suid` beside it, and becomes root by it |
//! | `group` | becomes the leader of a process group |
//! | `closeall` | closes every descriptor |
//! | `cgroup DIR` | moves to another cgroup |
//! | `listen` | listens on a free TCP port |
//! | `become P W..[S]` | replaces itself by program P with words W, script S, and its own further arguments |
//! | `into PATH` | appends what follows to a file instead of standard output; `$X` is the path in variable X |
//! | `watch` | reports, writes `ready`, and then a line for every signal it gets (`SIGNAL from PID`), for ever |
//! | `orphan` | kills its parent, unless that is init |
//! | `quiet` | replaces its standard input by one that says nothing and does not end |
//! | `name X` | renames itself |
//! | `standing` | writes its descriptors, folder, variables, and then what a parent gives: limit of descriptors, nice value and so on, as one line |
//! | `echo` | copies standard input to standard output until it ends |
//! | `byte` | writes one byte |
//! | `flood N` | writes N bytes, the same ones each time, 4,096 at a time |
//! | `connect PATH` | asks the keeper that listens there to be its daemon, and writes how many bytes came back |
//!
//! With a path in `TREE_AGENT_CANARY` it does nothing of this, but watches into that file.
#![expect(unsafe_code, reason = "fork and its kin are what this program is for")]

use std::ffi::CString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use drowse::process::control::ToKeeper;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{Mode, umask};

fn main() {
    if let Some(path) = std::env::var_os("TREE_AGENT_CANARY") {
        redirect(path.as_bytes());
        // Whoever started it may be killed, and then nobody would end it.
        // SAFETY: a system call without pointers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        watch_signals();
    }
    let script = std::env::args().nth(1).expect("a script");
    run(&script);
}

/// Every signal that can be caught is blocked and taken from the queue, so that none is missed. Of
/// those that cannot, SIGKILL is noticed by whoever started this process, and SIGSTOP by the state
/// it leaves or by the SIGCONT that undoes it.
fn watch_signals() -> ! {
    // SAFETY: system calls on values of this function.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        write(b"ready\n");
        loop {
            let mut from = std::mem::zeroed::<libc::siginfo_t>();
            let signal = libc::sigwaitinfo(&raw const all, &raw mut from);
            write(format!("{signal} from {}\n", from.si_pid()).as_bytes());
        }
    }
}

fn run(script: &str) {
    for (word, argument, inner) in actions(script) {
        act(word, argument, inner);
    }
}

/// Cuts `word argument[inner]` pieces at the semicolons outside brackets.
fn actions(script: &str) -> Vec<(&str, &str, &str)> {
    let mut depth = 0;
    let pieces = script.split(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ';' && depth == 0
    });
    let parts = |piece: &'_ str| -> (usize, usize) {
        let head = piece.find('[').unwrap_or(piece.len());
        (head, piece[..head].find(' ').unwrap_or(head))
    };
    pieces
        .filter(|piece| !piece.is_empty())
        .map(|piece| {
            let (head, word) = parts(piece);
            let inner = piece[head..]
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'));
            (
                &piece[..word],
                piece[word..head].trim(),
                inner.unwrap_or(""),
            )
        })
        .collect()
}

fn act(word: &str, argument: &str, inner: &str) {
    match word {
        "report" => report(),
        "sleep" => sleep(),
        "spin" => loop {
            std::hint::spin_loop();
        },
        "exit" => leave(argument.parse().expect("a code")),
        "fork" => fork(inner),
        "times" => (0..argument.parse().expect("a count")).for_each(|_| run(inner)),
        "name" => {
            let name = CString::new(argument).expect("no zero byte");
            // SAFETY: a system call on a valid string.
            unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        }
        "thread" => {
            let inner = inner.to_owned();
            drop(thread::spawn(move || run(&inner)));
        }
        "bare" => become_program(Command::new("/proc/self/exe").env_clear(), inner),
        "reexec" => become_program(&mut Command::new("/proc/self/exe"), inner),
        "suid" => {
            let own = std::env::current_exe().expect("proc");
            let program = own.with_file_name("tree-agent-suid");
            become_program(&mut Command::new(program), &format!("root;{inner}"));
        }
        "listen" => {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
            std::mem::forget(listener);
        }
        "cgroup" => {
            std::fs::write(format!("{argument}/cgroup.procs"), "0").expect("it lets us in");
        }
        "become" => become_another(argument, inner),
        "into" => match argument.strip_prefix('$') {
            Some(name) => redirect(std::env::var_os(name).expect("a path").as_bytes()),
            None => redirect(argument.as_bytes()),
        },
        "watch" => {
            report();
            watch_signals();
        }
        "standing" => standing(),
        "echo" => echo(),
        "byte" => write(b"x"),
        "flood" => flood(argument.parse().expect("a length")),
        "connect" => connect(argument),
        "storm" => storm(Duration::from_micros(argument.parse().expect("a number"))),
        "bomb" => bomb(argument.parse().expect("a number")),
        _ => act_by_system_call(word, inner),
    }
}

fn act_by_system_call(word: &str, inner: &str) {
    // SAFETY: system calls without pointers, except where noted.
    unsafe {
        match word {
            "setsid" => drop_result(libc::setsid()),
            "subreaper" => drop_result(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1)),
            "stop" => drop_result(libc::raise(libc::SIGSTOP)),
            "orphan" => {
                let parent = libc::getppid();
                if parent > 1 {
                    libc::kill(parent, libc::SIGKILL);
                }
            }
            "quiet" => {
                let mut ends = [0; 2];
                drop_result(libc::pipe(ends.as_mut_ptr()));
                drop_result(libc::dup2(ends[0], 0));
            }
            "ignore" => {
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
                    libc::signal(signal, libc::SIG_IGN);
                }
            }
            "forget" => {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            "onterm" => {
                let mut wanted = std::mem::zeroed();
                libc::sigemptyset(&raw mut wanted);
                libc::sigaddset(&raw mut wanted, libc::SIGTERM);
                libc::sigprocmask(libc::SIG_BLOCK, &raw const wanted, std::ptr::null_mut());
                report();
                let mut got = 0;
                libc::sigwait(&raw const wanted, &raw mut got);
                run(inner);
                leave(0);
            }
            "leaderless" => {
                let inner = inner.to_owned();
                drop(thread::spawn(move || run(&inner)));
                libc::syscall(libc::SYS_exit, 0);
            }
            "respawn" => loop {
                fork(inner);
                libc::waitpid(-1, std::ptr::null_mut(), 0);
            },
            "runner" => loop {
                if libc::fork() != 0 {
                    libc::_exit(0);
                }
            },
            "vfork" => {
                let flags = libc::CLONE_VFORK | libc::SIGCHLD;
                if libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 {
                    run(inner);
                    leave(0);
                }
            }
            "group" => drop_result(libc::setpgid(0, 0)),
            "closeall" => drop_result(libc::close_range(0, libc::c_uint::MAX, 0)),
            "root" => drop_result(libc::setresgid(0, 0, 0).min(libc::setresuid(0, 0, 0))),
            _ => panic!("no action {word:?}"),
        }
    }
}

fn become_program(command: &mut Command, script: &str) {
    let error = command.arg0("tree-agent").arg(script).exec();
    panic!("exec: {error}");
}

fn storm(every: Duration) {
    // SAFETY: system calls without pointers but null ones.
    unsafe {
        loop {
            if libc::fork() == 0 {
                libc::setsid();
                thread::sleep(Duration::from_millis(5));
                libc::_exit(0);
            }
            thread::sleep(every);
            while libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
        }
    }
}

/// The limit counts processes of a user and does not bind root, so root becomes somebody whom
/// nobody else is.
fn bomb(processes_max: u64) {
    let limit = libc::rlimit {
        rlim_cur: processes_max,
        rlim_max: processes_max,
    };
    // SAFETY: system calls; the limit is valid for the call that reads it.
    unsafe {
        drop_result(libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit));
        if libc::geteuid() == 0 {
            let user = 100_000 + std::process::id();
            drop_result(libc::setresgid(user, user, user).min(libc::setresuid(user, user, user)));
        }
        loop {
            if libc::fork() < 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn drop_result(result: i32) {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
}

fn fork(script: &str) {
    // SAFETY: only scripts without live locks fork; the child goes on in the same program.
    match unsafe { libc::fork() } {
        0 => {
            run(script);
            leave(0);
        }
        pid => drop_result(pid),
    }
}

fn become_another(words: &str, script: &str) -> ! {
    let mut words = words.split(' ');
    let error = Command::new(words.next().expect("a program"))
        .args(words)
        .args((!script.is_empty()).then_some(script))
        .args(std::env::args_os().skip(2))
        .exec();
    panic!("exec: {error}");
}

fn redirect(path: &[u8]) {
    let path = CString::new(path).expect("no zero byte");
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: system calls on a valid string; what descriptor 1 was is not used again.
    unsafe {
        let file = libc::open(path.as_ptr(), flags, 0o600);
        drop_result(file);
        drop_result(libc::dup2(file, 1));
        libc::close(file);
    }
}

fn sleep() -> ! {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

fn report() {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc");
    let start = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(19));
    write(format!("{}@{}\n", std::process::id(), start.expect("a start")).as_bytes());
}

fn standing() {
    let mut fds: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .expect("proc")
        .map(|entry| entry.expect("an entry").path())
        // The descriptor that this listing itself uses leads nowhere afterwards.
        .filter(|path| std::fs::read_link(path).is_ok_and(|to| !to.starts_with("/proc")))
        .map(|path| {
            path.file_name()
                .expect("named")
                .to_string_lossy()
                .parse()
                .expect("a number")
        })
        .collect();
    fds.sort_unstable();
    let cwd = std::env::current_dir().expect("a folder");
    let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit that exists");
    let nice = rustix::process::getpriority_process(None).expect("ours");
    let oom_score_adj = std::fs::read_to_string("/proc/self/oom_score_adj").expect("proc");
    let text = format!(
        "fds={fds:?} cwd={} env={names:?} nofile={soft}:{hard} nice={nice} oom_score_adj={} \
         umask={:o}\n",
        cwd.display(),
        oom_score_adj.trim(),
        umask(Mode::empty()).bits(),
    );
    write(text.as_bytes());
}

fn echo() {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = std::io::stdin().read(&mut bytes) {
        write(&bytes[..length]);
    }
}

/// Byte `i` is `i` modulo 251, so that none is like one a power of two away.
fn flood(length: usize) {
    let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
    bytes.chunks(4096).for_each(write);
}

fn connect(path: &str) {
    let mut stream = UnixStream::connect(path).expect("somebody listens");
    let order = ToKeeper::TakeOver.encode().expect("short");
    // One who is hung up on cannot write, or is reset: nothing comes back either way.
    let sent = stream.write_all(&order);
    let got = sent.and_then(|()| stream.read(&mut [0; 4096]));
    write(format!("got {} bytes\n", got.unwrap_or(0)).as_bytes());
}

/// One write, so that lines of several processes do not mix; without a lock, which a fork on
/// another thread would copy in its locked state.
fn write(bytes: &[u8]) {
    // SAFETY: the bytes are valid for their length.
    let written = unsafe { libc::write(1, bytes.as_ptr().cast(), bytes.len()) };
    assert_eq!(written, bytes.len().cast_signed(), "stdout is open");
}

fn leave(code: i32) -> ! {
    // SAFETY: ends this process.
    unsafe { libc::_exit(code) }
}
