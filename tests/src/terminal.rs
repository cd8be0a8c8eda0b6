//! A program at a terminal: what it shows, and what somebody types.
//!
//! Fed by tests of what only a terminal has: line editing, its signal keys, its end of input. The
//! terminal is a pseudo one in its usual mode, so what is typed is shown as well.
//! Invariant: the program is dead when this is dropped, and what it showed is in a failing test's
//! message.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::wait::{CEILING, comes_true, wait_until};

/// Ctrl-C.
pub const INTERRUPT: u8 = 3;
/// Ctrl-D, on an empty line.
pub const END: u8 = 4;
/// Ctrl-\.
pub const QUIT: u8 = 28;

/// See the module.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts `command` with nothing but its own variables, as the foreground of a new terminal.
    ///
    /// # Panics
    /// When that cannot be done.
    #[track_caller]
    #[must_use]
    pub fn spawn(command: &Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("the system has terminals");
        grantpt(&master).expect("the terminal is ours");
        unlockpt(&master).expect("the terminal is ours");
        let size = Winsize {
            ws_row: 40,
            ws_col: 200,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).expect("the terminal is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let name = name.into_string().expect("names of terminals are ASCII");
        let slave = File::options()
            .read(true)
            .write(true)
            .open(name)
            .expect("the other end is there");
        let end = || Stdio::from(slave.try_clone().expect("a descriptor more"));
        // It becomes the program, at the head of a process session that has this terminal.
        let mut through = Command::new("setsid");
        through
            .arg("--ctty")
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear()
            .stdin(end())
            .stdout(end())
            .stderr(end());
        for (name, value) in command.get_envs() {
            through.env(name, value.unwrap_or_default());
        }
        if let Some(folder) = command.get_current_dir() {
            through.current_dir(folder);
        }
        let child = through.spawn().expect("setsid is part of every Linux");
        let keys = File::from(master);
        let mut seen = keys.try_clone().expect("a descriptor more");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let kept = shown.clone();
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // EIO: nobody has the other end any more.
            while let Ok(count @ 1..) = seen.read(&mut piece) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&piece[..count]);
            }
        });
        Self {
            child,
            keys,
            shown,
            reader: Some(reader),
        }
    }

    /// All that was shown so far, line ends as programs write them.
    #[must_use]
    pub fn shown(&self) -> String {
        let bytes = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
    }

    /// How often something has been shown.
    #[must_use]
    pub fn count(&self, text: &str) -> usize {
        self.shown().matches(text).count()
    }

    /// Waits until something is shown.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait_for_nth(text, 1);
    }

    /// Waits until something was shown so often.
    ///
    /// # Panics
    /// When it was not.
    #[track_caller]
    pub fn wait_for_nth(&self, text: &str, nth: usize) {
        let there = comes_true(CEILING, || self.count(text) >= nth);
        assert!(
            there,
            "waited in vain for {text:?} ({nth} times), shown:\n{}",
            self.shown()
        );
    }

    /// Types a text and Enter.
    ///
    /// # Panics
    /// When the terminal is gone.
    #[track_caller]
    pub fn type_line(&mut self, text: &str) {
        let line = format!("{text}\n");
        let typed = self.keys.write_all(line.as_bytes());
        typed.expect("the terminal is there");
    }

    /// Presses one key.
    ///
    /// # Panics
    /// When the terminal is gone.
    #[track_caller]
    pub fn press(&mut self, key: u8) {
        self.keys.write_all(&[key]).expect("the terminal is there");
    }

    /// Waits for the program's end.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        let ended = comes_true(CEILING, || {
            let status = self.child.try_wait();
            status.expect("the child is ours to wait for").is_some()
        });
        assert!(ended, "it does not end, shown:\n{}", self.shown());
        wait_until("the end of the program", CEILING, || {
            self.child.try_wait().expect("the child is ours")
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if let Some(reader) = self.reader.take() {
            // It ends with the last holder of the other end.
            drop(reader.join());
        }
    }
}
