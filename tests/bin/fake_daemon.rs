//! A daemon reduced to one backend: `fake-daemon KEEPER-PROGRAM AGENT-ARGV..`. Copies what the
//! agent says to its own standard output, and is there to be killed.

use std::path::Path;
use std::time::Duration;

use drowse::process::control::Launch;
use drowse::process::link::{KeeperEvent, KeeperLink};
use drowse::process::spawn::KeeperProgram;
use drowse_messages::SessionId;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args_os().skip(1);
    let program = KeeperProgram::at(Path::new(&args.next().expect("a keeper program")));
    let launch = Launch {
        argv: args.collect(),
        env: std::env::vars_os().collect(),
        cwd: "/".into(),
        cgroup: None,
        eof_grace: Duration::from_millis(50),
        term_grace: Duration::from_millis(100),
    };
    let mut link = KeeperLink::spawn(&program, SessionId::from_random(1), launch)
        .await
        .expect("a keeper starts");
    let mut streams = None;
    while let Some(event) = link.next_message().await.expect("a keeper is understood") {
        if let KeeperEvent::Started { mut stdio, .. } = event {
            let (stdin, stderr) = (stdio.stdin, stdio.stderr);
            tokio::spawn(async move {
                tokio::io::copy(&mut stdio.stdout, &mut tokio::io::stdout()).await
            });
            streams = Some((stdin, stderr));
        }
    }
    drop(streams);
}
