//! The store against real files: what it promises to keep, and what it does with what it finds.

mod crash;
mod disk;
mod files;
mod inbox;
mod keeping;
mod log;
mod recover;
mod sessions;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use drowse_actors::ports::{Clock, Page, Store, StoreError, Stored};
use drowse_messages::{
    BootedIdentity, Conversation, Incarnation, LimitOverrides, MessageId, MessageQueued, MonoTime,
    Priority, ProcIdentity, Profile, Progress, Recipe, Running, SendMessage, SessionId,
    SessionState, WallTime, Who,
};

use super::SqliteStore;

/// What no file of the store may ever contain.
const SECRET: &str = "s3cr3t";

/// The real time: the store sleeps and waits for a real disk.
#[derive(Debug)]
struct RealTime(Instant);

impl Clock for RealTime {
    fn now(&self) -> MonoTime {
        MonoTime::default().after(self.0.elapsed())
    }

    fn wall(&self) -> WallTime {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        WallTime(drowse_messages::millis(now))
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("drowse-store-")
        .tempdir()
        .unwrap()
}

fn open(folder: &Path) -> SqliteStore {
    SqliteStore::open(folder, Arc::new(RealTime(Instant::now()))).unwrap()
}

/// Waits for an answer of the store.
fn wait<T>(answer: Stored<T>) -> Result<T, StoreError> {
    let limited = async { tokio::time::timeout(Duration::from_secs(60), answer).await };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(limited).expect("the store answers")
}

/// Waits, 10 s at most, until something is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "waited for: {what}"
        );
        std::thread::yield_now();
    }
}

fn id(number: u64) -> SessionId {
    SessionId::from_random(number)
}

fn profile(number: u64, name: &str) -> Profile {
    let env = [("HOME", "/home/u"), ("TOKEN", SECRET)];
    Profile {
        id: id(number),
        name: name.to_owned(),
        recipe: Recipe {
            agent: "fake".parse().unwrap(),
            protocol: "lines".parse().unwrap(),
            argv: ["fake-agent", "--api-key", SECRET]
                .map(str::to_owned)
                .to_vec(),
            cwd: "/home/u/sub".into(),
            env: env
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        },
        limits: LimitOverrides {
            start_limit: Some(Duration::from_secs(9)),
            ..LimitOverrides::default()
        },
        created: WallTime(1_000 + number),
    }
}

fn progress(state: SessionState) -> Progress {
    Progress {
        state,
        incarnation: Incarnation(1),
        ..Progress::default()
    }
}

fn running(pid: i32) -> Running {
    let of = |pid| BootedIdentity {
        boot_id: "boot".to_owned(),
        process: ProcIdentity::new(pid, 77).unwrap(),
    };
    Running {
        keeper: of(pid),
        agent: of(pid + 1),
        cgroup: None,
    }
}

fn conversation() -> Conversation {
    Conversation {
        native_id: "n-1".to_owned(),
        path: Some("/c.jsonl".to_owned()),
        resumable: true,
        ..Conversation::default()
    }
}

fn message(text: &str) -> SendMessage {
    SendMessage {
        text: text.to_owned(),
        key: None,
        priority: Priority::default(),
        by: Who::Client("test".to_owned()),
    }
}

/// A message of the ordinary kind that waits.
fn later(message: MessageId) -> MessageQueued {
    let priority = Priority::Later;
    MessageQueued { message, priority }
}

fn keyed(text: &str, key: &str) -> SendMessage {
    SendMessage {
        key: Some(key.to_owned()),
        priority: Priority::default(),
        ..message(text)
    }
}

/// A store with one session in it.
fn with_session(folder: &Path) -> SqliteStore {
    let store = open(folder);
    wait(store.open(profile(1, "one"))).unwrap();
    store
}

fn send(store: &SqliteStore, text: &str) -> MessageId {
    wait(store.enqueue(id(1), message(text))).unwrap().message
}

/// Texts of all messages of session 1.
fn texts(store: &SqliteStore) -> Vec<String> {
    let messages = wait(store.messages(id(1), 1_000)).unwrap();
    messages.into_iter().map(|message| message.text).collect()
}

/// The names of all sessions, as listed.
fn names(store: &SqliteStore) -> Vec<String> {
    let page = wait(store.list(Page {
        limit: 1_000,
        ..Page::default()
    }))
    .unwrap();
    page.sessions
        .into_iter()
        .map(|session| session.profile.name)
        .collect()
}

/// Every file of a folder with its contents.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}
