//! One writer for each conversation on this machine (D29).
//!
//! Two processes that append to one transcript fork its history. So a backend claims its
//! conversation before it is launched: a lock in the state folder for our own, which the kernel
//! frees with its holder, and a look at the user's other processes for an agent that somebody
//! started by hand in the same conversation. Whoever has it is named, and the start can be tried
//! again. Invariants: a holder that is dead never blocks; no process is signalled, and of its
//! arguments nothing is repeated.
//!
//! What it cannot see: an agent that hides its arguments (some put a title in their place), and one
//! that was told of its conversation by its protocol alone.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use drowse_actors::ports::Launch;
use drowse_messages::{Conversation, Name, SessionId};
use rustix::fs::{FlockOperation, flock};

use super::Prepared;
use crate::adapter::agent_of;
use crate::config::find_program;

/// 120 bytes of an id stand in a file's name as they are; ids of agents have 40 or so.
const ID_BYTES_MAX: usize = 120;

/// 64 KiB of a process's arguments: what chooses a conversation stands among the first.
const ARGUMENTS_BYTES_MAX: u64 = 64 << 10;

/// 8 tries for a lock whose file somebody removes at the same moment.
const TRIES_MAX: usize = 8;

/// Arguments with which an agent reads a conversation and writes another one.
const FORKING: [&str; 2] = ["--fork-session", "--fork"];

/// A conversation by the protocol of its agent and its own id.
type Key = (Name, String);

/// The claims of one daemon.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    folder: PathBuf,
    held: Rc<RefCell<BTreeMap<Key, Weak<Held>>>>,
}

/// One claim. It lasts as long as one of its owners.
#[derive(Debug)]
struct Held {
    session: SessionId,
    path: PathBuf,
    file: File,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Removed while it is locked: whoever waits for it finds that its file is no one's name.
        if is_at(&self.file, &self.path) {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// What one backend has claimed.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Claims,
    session: SessionId,
    protocol: Name,
    held: Option<(String, Rc<Held>)>,
}

impl Claims {
    /// Locks are files below the state folder.
    pub(crate) fn of(state_dir: &Path) -> Self {
        Self {
            folder: state_dir.join("conversations"),
            held: Rc::default(),
        }
    }

    /// A claim of nothing yet.
    pub(super) fn claim(&self, session: SessionId, protocol: &Name) -> Claim {
        Claim {
            claims: self.clone(),
            session,
            protocol: protocol.clone(),
            held: None,
        }
    }

    fn take(&self, session: SessionId, key: Key) -> Result<Rc<Held>, String> {
        let known = self.held.borrow().get(&key).and_then(Weak::upgrade);
        if let Some(held) = known {
            // The backend before this one may not have heard yet that it is over.
            return match held.session == session {
                true => Ok(held),
                false => Err(format!(
                    "conversation {} is in use by session {}",
                    key.1, held.session
                )),
            };
        }
        let held = Rc::new(self.lock(session, &key)?);
        let mut all = self.held.borrow_mut();
        all.retain(|_, held| held.strong_count() > 0);
        all.insert(key, Rc::downgrade(&held));
        Ok(held)
    }

    fn lock(&self, session: SessionId, (protocol, id): &Key) -> Result<Held, String> {
        let path = self.folder.join(format!("{protocol}-{}", file_name(id)));
        let failed = |error: std::io::Error| {
            format!(
                "failed to claim conversation {id} ({}): {error}",
                path.display()
            )
        };
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder);
        made.map_err(failed)?;
        for _ in 0..TRIES_MAX {
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(failed)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let holder = holder(&file).map(in_words);
                let holder = holder.unwrap_or_else(|| "another process".to_owned());
                return Err(format!("conversation {id} is in use by {holder}"));
            }
            if is_at(&file, &path) {
                let text = format!("session {session}\n");
                let written = file
                    .set_len(0)
                    .and_then(|()| file.write_all(text.as_bytes()));
                written.map_err(failed)?;
                return Ok(Held {
                    session,
                    path,
                    file,
                });
            }
        }
        let error = std::io::Error::other("its lock is removed again and again");
        Err(failed(error))
    }
}

impl Claim {
    /// Claims the conversation that the agent has now; a claim of another one is given up. What
    /// somebody else has is left to them, and said.
    pub(super) fn follow(&mut self, conversation: &Conversation) {
        let id = &conversation.native_id;
        if id.is_empty() || self.held.as_ref().is_some_and(|(held, _)| held == id) {
            return;
        }
        let key = (self.protocol.clone(), id.clone());
        match self.claims.take(self.session, key) {
            Ok(held) => self.held = Some((id.clone(), held)),
            Err(error) => {
                tracing::warn!(session = %self.session, error, "two write to one conversation");
            }
        }
    }

    /// Claims what a launch is to take up, if nobody else has it.
    pub(super) async fn take(
        &mut self,
        launch: &Launch,
        prepared: &Prepared,
    ) -> Result<(), String> {
        let known = launch.conversation.as_ref();
        let Some(conversation) = known.filter(|known| !known.native_id.is_empty()) else {
            return Ok(());
        };
        let id = conversation.native_id.clone();
        let key = (self.protocol.clone(), id.clone());
        let held = self.claims.take(self.session, key)?;
        let look = Look::of(launch, prepared, conversation);
        // Every process of the machine is looked at: not on the thread of all sessions.
        let found = tokio::task::spawn_blocking(move || look.find()).await;
        if let Ok(Some(pid)) = found {
            let who = in_words(pid);
            return Err(format!("conversation {id} is in use by {who}"));
        }
        self.held = Some((id, held));
        Ok(())
    }
}

/// How somebody else's agent in the same conversation is recognised.
#[derive(Debug)]
struct Look {
    /// How a command line names the conversation.
    names: Vec<String>,
    /// The file of the agent's program.
    program: Option<PathBuf>,
}

impl Look {
    fn of(launch: &Launch, prepared: &Prepared, conversation: &Conversation) -> Self {
        let path = prepared.plan.env.get("PATH").map(String::as_str);
        let program = prepared.plan.argv.first();
        let program = program.and_then(|program| {
            find_program(program, path.unwrap_or_default(), &launch.recipe.cwd)
        });
        let names = conversation.path.iter().chain([&conversation.native_id]);
        Self {
            names: names.filter(|name| !name.is_empty()).cloned().collect(),
            program: program.and_then(|program| program.canonicalize().ok()),
        }
    }

    /// A living process of this user that is an agent and was told to take this conversation up.
    fn find(&self) -> Option<i32> {
        let own = (std::process::id().cast_signed(), rustix::process::geteuid());
        let entries = fs::read_dir("/proc").ok()?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|&pid| pid > 1 && pid != own.0)
            .filter(|pid| {
                fs::metadata(format!("/proc/{pid}")).is_ok_and(|it| it.uid() == own.1.as_raw())
            })
            .find(|&pid| self.is_meant(pid).unwrap_or(false))
    }

    fn is_meant(&self, pid: i32) -> Option<bool> {
        let mut text = Vec::new();
        let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
        file.take(ARGUMENTS_BYTES_MAX).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        let argv: Vec<&str> = text.split_terminator('\0').collect();
        if !self.names_it(&argv) {
            return Some(false);
        }
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
        let same = program.is_some() && program == self.program;
        let program = program.as_deref().and_then(Path::to_str);
        Some(same || agent_of(program, &argv).is_some())
    }

    /// `--resume ID`, `--session=PATH`, `resume ID`: as an argument of its own or behind a `=`.
    fn names_it(&self, argv: &[&str]) -> bool {
        let named = |argument: &&str| {
            let value = argument
                .split_once('=')
                .map_or(*argument, |(_, value)| value);
            self.names.iter().any(|name| name == value)
        };
        let forks = argv.iter().any(|argument| FORKING.contains(argument));
        !forks && argv.iter().skip(1).any(named)
    }
}

/// An id as the name of a file. A long one is cut, with a number of all of it behind.
fn file_name(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut name = String::new();
    for byte in id.bytes() {
        if plain(byte) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    if name.len() > ID_BYTES_MAX {
        // FNV-1a: two ids that share it and the beginning are as good as impossible.
        let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        name.truncate(ID_BYTES_MAX);
        name.push_str(&format!("-{hash:016x}"));
    }
    name
}

/// True when this is the file that has the name.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let (open, named) = (file.metadata().map(place), fs::metadata(path).map(place));
    matches!((open, named), (Ok(open), Ok(named)) if open == named)
}

/// Who has the lock of this file, as the kernel lists it.
fn holder(file: &File) -> Option<i32> {
    let inode = format!(":{}", file.metadata().ok()?.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "FLOCK", _, _, pid, place, ..] if place.ends_with(&inode) => {
                pid.parse().ok().filter(|&pid| pid > 1)
            }
            _ => None,
        }
    })
}

/// `pid 4711 (claude)`: the kernel's name for it, because its arguments may be secrets.
fn in_words(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    match name.is_empty() {
        true => format!("pid {pid}"),
        false => format!("pid {pid} ({name})"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    const ID: &str = "85af6244-747f-4640-a833-8b932f56ff04";

    fn session(number: u64) -> SessionId {
        SessionId::from_random(number)
    }

    fn key() -> Key {
        ("claude".parse().unwrap(), ID.to_owned())
    }

    fn locked(folder: &Path) -> File {
        fs::create_dir_all(folder.join("conversations")).unwrap();
        let path = folder.join("conversations").join(format!("claude-{ID}"));
        let file = File::create(path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        file
    }

    /// D29: somebody else's lock is respected, its holder named, and taken once it is free.
    #[test]
    fn a_lock_that_somebody_has_is_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let claims = Claims::of(folder.path());
        let theirs = locked(folder.path());
        let error = claims.take(session(1), key()).unwrap_err();
        let own = format!(
            "conversation {ID} is in use by pid {} (",
            std::process::id()
        );
        assert!(error.starts_with(&own), "{error}");
        drop(theirs);
        drop(claims.take(session(1), key()).unwrap());
        let left = fs::read_dir(folder.path().join("conversations")).unwrap();
        assert_eq!(left.count(), 0, "a claim that is over leaves no file");
    }

    /// D29: the lock of a process that is dead blocks nobody, whatever is in its file.
    #[test]
    fn a_dead_holder_blocks_nobody() {
        let folder = tempfile::tempdir().unwrap();
        drop(locked(folder.path()));
        fs::write(
            folder
                .path()
                .join("conversations")
                .join(format!("claude-{ID}")),
            "pid 1",
        )
        .unwrap();
        Claims::of(folder.path()).take(session(1), key()).unwrap();
    }

    /// Two sessions of one daemon do not share a conversation; the next backend of one may come
    /// before the last has gone.
    #[test]
    fn a_session_shares_its_claim_with_nobody_but_itself() {
        let folder = tempfile::tempdir().unwrap();
        let claims = Claims::of(folder.path());
        let first = claims.take(session(1), key()).unwrap();
        let again = claims.take(session(1), key()).unwrap();
        drop(first);
        let error = claims.take(session(2), key()).unwrap_err();
        assert!(
            error.ends_with(&format!("in use by session {}", session(1))),
            "{error}"
        );
        drop(again);
        claims.take(session(2), key()).unwrap();
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    struct Stranger(Child);

    impl Stranger {
        fn run(arg0: &str, args: &[&str]) -> Self {
            let mut command = Command::new("sh");
            command.arg0(arg0).args(["-c", "read x"]).args(args);
            let child = command.stdin(Stdio::piped()).spawn().unwrap();
            // The kernel shows the arguments a moment after a program has begun.
            let path = format!("/proc/{}/cmdline", child.id());
            let end = Instant::now() + PATIENCE;
            while !fs::read(&path).unwrap().starts_with(arg0.as_bytes()) {
                assert!(Instant::now() < end, "it does not show its arguments");
                std::thread::yield_now();
            }
            Self(child)
        }
    }

    impl Drop for Stranger {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            drop(self.0.wait());
        }
    }

    /// D29: an agent of this user in the same conversation is found, whoever started it; nobody
    /// else is taken for one.
    #[test]
    fn an_agent_that_somebody_started_is_found() {
        let path = "/home/me/.pi/sessions/x.jsonl";
        let look = Look {
            names: vec![path.to_owned(), ID.to_owned()],
            program: None,
        };
        for args in [
            &["--resume", ID, "--model", "x"][..],
            &["-r", ID],
            &[&format!("--session={path}")],
        ] {
            let stranger = Stranger::run("claude", args);
            let pid = stranger.0.id().cast_signed();
            assert_eq!(look.is_meant(pid), Some(true), "{args:?}");
            assert!(look.find().is_some(), "{args:?}");
        }
        for (arg0, args) in [
            ("grep", &["-r", ID][..]),
            ("drowse", &["run", "--", "claude", "--resume", ID]),
            ("claude", &["--resume", ID, "--fork-session"]),
            ("claude", &["--resume", "another"]),
        ] {
            let stranger = Stranger::run(arg0, args);
            let pid = stranger.0.id().cast_signed();
            assert_eq!(look.is_meant(pid), Some(false), "{arg0} {args:?}");
        }
        assert_eq!(look.find(), None);
    }

    #[test]
    fn any_id_is_a_file_name() {
        assert_eq!(file_name(ID), ID);
        assert_eq!(file_name("../a"), "%2e%2e%2fa");
        let long = file_name(&"x".repeat(5000));
        assert!(long.len() < 200);
        assert_ne!(long, file_name(&"x".repeat(5001)));
    }
}
