//! A daemon in a process of its own, which can be killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::support::{FAKE_DAEMON, KEEPER, TREE_AGENT, parse_reports};
use drowse_messages::{ProcIdentity, SessionId};

/// A `fake-daemon` with a `tree-agent`.
pub(crate) struct FakeDaemon {
    process: Child,
    said: BufReader<ChildStdout>,
    replies: BufReader<ChildStderr>,
}

impl FakeDaemon {
    pub(crate) fn start(
        session: SessionId,
        socket: &Path,
        orphan_grace: Duration,
        script: &str,
    ) -> Self {
        let mut process = Command::new(FAKE_DAEMON)
            .arg(KEEPER)
            .arg(socket)
            .arg(orphan_grace.as_millis().to_string())
            .args([TREE_AGENT, script])
            .env("DROWSE_SESSION", session.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the daemon starts");
        let said = BufReader::new(process.stdout.take().expect("piped"));
        let replies = BufReader::new(process.stderr.take().expect("piped"));
        Self {
            process,
            said,
            replies,
        }
    }

    /// The next line that the agent said.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.said.read_line(&mut line).expect("text");
        assert!(read > 0, "the daemon has ended");
        line
    }

    pub(crate) fn reports(&mut self, count: usize) -> Vec<ProcIdentity> {
        let lines: String = (0..count).map(|_| self.line()).collect();
        parse_reports(lines.as_bytes())
    }

    /// Gives an order and waits until it was carried out.
    pub(crate) fn order(&mut self, order: &str) {
        let stdin = self.process.stdin.as_mut().expect("piped");
        writeln!(stdin, "{order}").expect("the daemon reads");
        let mut reply = String::new();
        self.replies.read_line(&mut reply).expect("text");
        assert_eq!(reply, "done\n");
    }

    /// As `kill -9` does; returns what it passed on before, and nobody has read.
    pub(crate) fn kill(mut self) -> Vec<u8> {
        self.process.kill().expect("ours");
        self.process.wait().expect("ours");
        let mut rest = Vec::new();
        self.said.read_to_end(&mut rest).expect("a pipe");
        rest
    }
}

pub(crate) fn keeper_of(agent: ProcIdentity) -> ProcIdentity {
    let found = drowse::process::signal::find(agent).expect("alive");
    drowse::process::table::identify(found.1.parent).expect("alive")
}
