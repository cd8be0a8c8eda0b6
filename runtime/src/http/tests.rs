//! The endpoint as its clients meet it: real sockets, a daemon that answers from memory.

mod access;
mod agreement;
mod bounds;
mod client;
mod fake;
mod kept;
mod kit;
mod sessions;
mod socket;
mod streams;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use actix_web::rt::System;
use drowse_messages::{ProblemBody, Refusal, SessionId};
use drowse_policy::session::AgentTraits;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::{Bounds, TcpSocket, UnixSocket, serve};
use crate::config::{ConfigFile, Protocol, Shared, Sources};
use crate::token::SessionTokens;
use client::{Client, Reply};
use fake::Fake;

/// An endpoint on a thread of its own; it stops when dropped.
struct Endpoint {
    daemon: Arc<Fake>,
    folder: TempDir,
    tcp: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    fn start() -> Self {
        Self::with("", Bounds::default())
    }

    fn with(config: &str, bounds: Bounds) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = shared(folder.path(), config);
        let daemon = Arc::<Fake>::default();
        let (stop, stopped) = oneshot::channel();
        let (started, address) = mpsc::channel();
        let (handle, at) = (daemon.clone(), folder.path().to_owned());
        let thread = std::thread::spawn(move || {
            System::new().block_on(async move {
                let socket = UnixSocket::bind(&at.join("d.sock")).unwrap();
                let any = "127.0.0.1:0".parse().unwrap();
                let tcp = TcpSocket::bind(any, &at.join("token")).unwrap();
                let address = tcp.address();
                let tokens = SessionTokens::of(&at).unwrap();
                let server = serve(handle, config, socket, Some(tcp), tokens, bounds).unwrap();
                started.send(address).unwrap();
                let _asked_or_dropped = stopped.await;
                server.stop().await;
            });
        });
        let tcp = address.recv().unwrap();
        Self {
            daemon,
            folder,
            tcp,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("d.sock")
    }

    fn token(&self) -> String {
        fs::read_to_string(self.folder.path().join("token"))
            .unwrap()
            .trim()
            .to_owned()
    }

    fn connect(&self) -> Client {
        Client::unix(&self.socket())
    }

    fn connect_tcp(&self) -> Client {
        Client::tcp(self.tcp)
    }

    fn get(&self, path: &str) -> Reply {
        self.connect().ask("GET", path, &[], b"")
    }

    fn post(&self, path: &str, body: &str) -> Reply {
        self.connect().ask("POST", path, &[], body.as_bytes())
    }

    /// The id of a session opened as [`Self::session`] does.
    fn opened(&self, name: &str) -> SessionId {
        self.session(name);
        self.daemon.world().sessions.last().unwrap().id
    }

    /// Opens a session in the endpoint's own folder.
    fn session(&self, name: &str) -> Reply {
        let program = self.folder.path().join("fake");
        if !program.exists() {
            fs::write(&program, "").unwrap();
            make_executable(&program);
        }
        let body = serde_json::json!({
            "agent": "fake", "name": name, "cwd": self.folder.path(),
            "env": { "PATH": self.folder.path() },
        });
        let reply = self.post("/v1/sessions", &body.to_string());
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply
    }

    fn refuse(&self, refusal: Refusal) {
        self.daemon.world().refuse.push_back(refusal);
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop();
    }
}

fn shared(folder: &Path, config: &str) -> Arc<Shared> {
    let path = folder.join("config.toml");
    fs::write(&path, config).unwrap();
    let fake = ("fake".parse().unwrap(), vec!["fake".to_owned()]);
    let protocols = vec![Protocol {
        name: "raw".parse().unwrap(),
        agents: vec![fake],
        traits: AgentTraits {
            can_resume: true,
            reports_tasks: false,
            observed: false,
            steers: false,
        },
    }];
    let files = vec![ConfigFile {
        path,
        required: true,
    }];
    let variables = vec![
        ("HOME".into(), "/home/me".into()),
        ("DAEMON_ONLY".into(), "x".into()),
    ];
    let sources = Sources {
        files,
        variables,
        protocols,
        ..Sources::default()
    };
    Arc::new(Shared::load(sources).unwrap())
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The problem an answer holds; its form is checked on the way.
fn problem(reply: &Reply) -> ProblemBody {
    assert_eq!(
        reply.header("content-type"),
        Some("application/problem+json"),
        "{}",
        reply.text()
    );
    let body: ProblemBody = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(body.status, reply.status);
    assert_eq!(body.kind, "about:blank");
    assert_eq!(body.retryable, body.class.code() == "retryable");
    assert!(
        !body.title.is_empty() && !body.detail.is_empty(),
        "{body:?}"
    );
    body
}
